"""The seat of NCCL groups: on streams and buffers of the cuda backend. Until they are there asking is an error."""

from __future__ import annotations

from morpho.base.errors import GroupError, fail
from morpho.runtime.groups.group import Group


def world() -> Group:
    """The group of all processes, each with its own GPU."""
    raise fail(GroupError, "cluster", "NCCL groups are not there yet", "use kind='mpi'")
