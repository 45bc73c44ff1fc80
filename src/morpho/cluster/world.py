"""The group this process belongs to: MPI's where a launcher started it with others, a group of one otherwise."""

from __future__ import annotations

from morpho.base import settings
from morpho.base.errors import ArgumentError, fail
from morpho.cluster.groups import hierarchical, mpi, nccl, one
from morpho.runtime.groups import registry
from morpho.runtime.groups.group import Group

KINDS = ("auto", "one", "mpi", "nccl")
_world: Group | None = None
_least = 1  # ranks without which training ends: what the launcher was told
registry.set_alone(one.OneGroup())


def init(kind: str = "auto", by_hosts: bool | None = None) -> Group:
    """The group of all processes that were started together; alone, a group of one, so that the same script runs
    either way. Called again, it gives the same group. `by_hosts` reduces within each host first; by default it does
    where several hosts have several ranks each.

    >>> group = mo.cluster.init()
    >>> group.rank, group.size
    (0, 1)
    """
    global _world
    if kind not in KINDS:
        raise fail(ArgumentError, "cluster", f"groups of kind {kind!r} are unknown", "use " + ", ".join(KINDS))
    if _world is not None and kind == "auto":
        return _world
    if kind == "nccl":
        return nccl.world()
    if kind == "mpi" or (kind == "auto" and settings.world_size() is not None):
        found: Group = mpi.world()
        if by_hosts is None:
            by_hosts = 1 < len({*found.hosts}) < found.size
        if by_hosts:
            found = hierarchical.HierarchicalGroup(found)
    else:
        found = one.OneGroup()
    _world = found
    return found


def current() -> Group | None:
    """The group that `init()` gave, None before."""
    return _world


def least() -> int:
    """How many ranks must live for training to go on."""
    return _least


def set_least(count: int) -> None:
    """Say how many ranks must live."""
    global _least
    _least = count


def become(group: Group) -> None:
    """Have `init()` give this group from now on, and programs run on it: that of the survivors."""
    global _world
    if _world is not None:
        registry.rebind(_world, group)
    _world = group
