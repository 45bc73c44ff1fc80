"""The group this process belongs to: MPI's where a launcher started it with others, a group of one otherwise."""

from __future__ import annotations

import time
from dataclasses import dataclass

from morpho.base import settings
from morpho.base.errors import ArgumentError, GroupError, fail
from morpho.cluster.groups import hierarchical, mpi, nccl, one
from morpho.cluster.launch import joining
from morpho.runtime.groups import registry
from morpho.runtime.groups.group import Group

KINDS = ("auto", "one", "mpi", "nccl")
_world: Group | None = None


@dataclass(frozen=True)
class Terms:
    """Options of the launcher. least: ranks without which training ends. widen_s: seconds after the start from which
    ranks that are lost are wanted back, by a start anew; None: never. starts: how many starts came before this one.
    began_s: when the first of them was, in seconds since 1970."""

    least: int = 1
    widen_s: float | None = None
    starts: int = 0
    began_s: float = 0.0


_terms = Terms()
_since_s = time.monotonic()  # from when `widen_s` counts
_can_widen = False  # the launcher said that there is room for more ranks
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
        group = nccl.world()
        _check_size(group.size)
        return group
    if kind in ("auto", "mpi"):
        _join()
    if kind == "mpi" or (kind == "auto" and settings.world_size() is not None):
        found: Group = mpi.world()
        _check_size(found.size)
        if by_hosts is None:
            by_hosts = 1 < len({*found.hosts}) < found.size
        if by_hosts:
            found = hierarchical.HierarchicalGroup(found)
    else:
        if kind == "auto":
            _check_size(1)
        found = one.OneGroup()
    _world = found
    return found


def _join() -> None:
    """Become a rank of MPI, where another launcher started this process and said where its ranks meet."""
    rank, size, _, launcher = settings.other_launcher()
    if size == 1 or settings.get().alone:
        return
    place = settings.meeting_place(launcher)
    if place is not None:
        joining.join(rank, size, place, launcher)


def _check_size(size: int) -> None:
    """An error where a launcher's variables say that there are more ranks than the group has: each would be alone, with
    the whole work, and write the same files."""
    rank, promised, variables, launcher = settings.other_launcher()
    if promised <= size or settings.get().alone:
        return
    how = f"start them by `morpho launch -n {promised} SCRIPT`"
    if launcher == "srun":
        how += ", `morpho launch --hosts queue SCRIPT`, or `srun --mpi=pmix`"
    raise fail(GroupError, "cluster", f"{variables} ({launcher}) say that this process is rank {rank} of {promised}, "
               f"and its group has {size}: they do not say where ranks meet",
               f"set MASTER_ADDR and MASTER_PORT, or {how}; if each process is meant to be alone, set MORPHO_ALONE=1 "
               "or call cluster.init('one')")


def current() -> Group | None:
    """The group that `init()` gave, None before."""
    return _world


def terms() -> Terms:
    """Options of the launcher."""
    return _terms


def set_terms(told: Terms) -> None:
    """Say what the launcher was told."""
    global _terms
    _terms = told


def widen() -> None:
    """Note that the launcher could start more ranks than it did: its word."""
    global _can_widen
    _can_widen = True


def not_now() -> None:
    """Ask for no more ranks until `widen_s` are over once more: what they would go on from could not be saved."""
    global _since_s, _can_widen
    _since_s, _can_widen = time.monotonic(), False


def wants_more() -> bool:
    """Whether a start anew would have more ranks than live now, and is due.

    >>> wants_more()
    False
    """
    if _terms.widen_s is None:
        return False
    return _can_widen or (mpi.has_lost() and time.monotonic() - _since_s >= _terms.widen_s)


def become(group: Group) -> None:
    """Have `init()` give this group from now on, and programs run on it: that of the survivors."""
    global _world
    if _world is not None:
        registry.rebind(_world, group)
    _world = group
