"""The seat of NCCL groups: they come with the cuda backend's streams and buffers. Until then asking is an error."""

from __future__ import annotations

from morpho.base.errors import GroupError, fail
from morpho.runtime.groups.group import Group


def world() -> Group:
    """The group of all processes, each with its own GPU."""
    raise fail(GroupError, "cluster", "NCCL groups need the cuda backend, which is not there", "use kind='mpi'")
