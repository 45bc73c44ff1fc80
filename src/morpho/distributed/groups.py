"""Process groups by the names of `torch.distributed`: the default one, parts of it, ranks and sizes."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from morpho.base.errors import ArgumentError, GroupError, fail
from morpho.cluster import world
from morpho.runtime.groups.group import Group

BACKENDS = {None: "auto", "mpi": "auto", "gloo": "auto", "cpu:gloo": "auto", "nccl": "nccl", "cuda:nccl": "nccl",
            "cpu:gloo,cuda:nccl": "auto"}
_default: Group | None = None


class NonMember:
    """A group that this process is not in."""

    rank, size = -1, -1


def seconds_of(timeout: timedelta | float | None, name: str) -> float | None:
    """A timeout in seconds; None: the setting `collective_timeout`."""
    if timeout is None:
        return None
    value = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if not value > 0:
        raise fail(ArgumentError, name, f"timeout={timeout} is no time", "give seconds or a datetime.timedelta above 0")
    return value


def init_process_group(backend: str | None = None, init_method: str | None = None,
                       timeout: timedelta | float | None = None, world_size: int = -1, rank: int = -1,
                       store: Any = None, group_name: str = "", pg_options: Any = None, device_id: Any = None) -> None:
    """Join the processes that were started together: by `torchrun`, Slurm, MPI or `morpho launch`; alone, a group of
    one. Data travel by MPI, whichever of `mpi` and `gloo` you name; `nccl` is for arrays of GPUs.

    Args:
        init_method: `env://` or nothing. Other ways to meet are refused: the launcher's variables say where.
        timeout: seconds or a `timedelta` after which a collective raises; default: the setting `collective_timeout`.
        world_size: with `rank`, checked against what the launcher said.
        store: refused, as `init_method`: ranks meet by the launcher's variables.

    >>> mo.distributed.init_process_group("gloo", timeout=60)
    >>> mo.distributed.is_initialized()
    True
    """
    global _default
    if backend not in BACKENDS:
        raise fail(ArgumentError, "init_process_group", f"the backend {backend!r} is unknown", "use mpi, gloo or nccl")
    if init_method not in (None, "env://") or store is not None:
        way = f"init_method={init_method!r}" if store is None else "a store"
        raise fail(ArgumentError, "init_process_group", f"{way} is not how ranks meet here",
                   "start them by torchrun, srun, mpirun or morpho launch, and leave it out")
    seconds = seconds_of(timeout, "init_process_group")
    group = world.init(BACKENDS[backend])
    for name, value, own in (("world_size", world_size, group.size), ("rank", rank, group.rank)):
        if value not in (-1, own):
            raise fail(GroupError, "init_process_group", f"{name}={value}, and the launcher says {own}",
                       "leave it out: the launcher's variables say it")
    if seconds is not None:
        group.set_timeout(seconds)
    _default = group


def destroy_process_group(group: Group | None = None) -> None:
    """Forget the default group, or close one of `new_group`. Ranks stay connected until the process ends.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.destroy_process_group()
    >>> mo.distributed.is_initialized()
    False
    """
    global _default
    if group is None or group is _default:
        _default = None
    elif isinstance(group, Group):
        group.close()


def is_available() -> bool:
    """Whether MPI is installed; a group of one needs none.

    >>> isinstance(mo.distributed.is_available(), bool)
    True
    """
    return importlib.util.find_spec("mpi4py") is not None


def is_initialized() -> bool:
    """Whether `init_process_group` was called.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.is_initialized()
    True
    """
    return _default is not None


def get_backend(group: Group | None = None) -> str:
    """The kind of a group: `mpi`, `nccl`, or `one`.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.get_backend()
    'one'
    """
    return chosen(group, "get_backend").kind


def get_rank(group: Any = None) -> int:
    """Number of this process in the group; -1 if it is not in it.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.get_rank()
    0
    """
    return int(group.rank) if isinstance(group, NonMember) else chosen(group, "get_rank").rank


def get_world_size(group: Any = None) -> int:
    """How many processes the group has; -1 if this one is not in it.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.get_world_size()
    1
    """
    return int(group.size) if isinstance(group, NonMember) else chosen(group, "get_world_size").size


def new_group(ranks: Sequence[int] | None = None, timeout: timedelta | float | None = None, backend: str | None = None,
              pg_options: Any = None, use_local_synchronization: bool = False, group_desc: str | None = None) -> Any:
    """The group of these ranks, in ascending order; all ranks of the default group call it, and who is not in the list
    gets a `NonMember`, for which collectives do nothing.

    >>> mo.distributed.init_process_group()
    >>> pair = mo.distributed.new_group([0])
    >>> mo.distributed.get_world_size(pair)
    1
    """
    whole = chosen(None, "new_group")
    wanted = sorted(range(whole.size) if ranks is None else [int(rank) for rank in ranks])
    if len({*wanted}) != len(wanted) or any(not 0 <= rank < whole.size for rank in wanted):
        raise fail(ArgumentError, "new_group", f"ranks={list(ranks or ())} are not different ranks below {whole.size}")
    if backend not in BACKENDS:
        raise fail(ArgumentError, "new_group", f"the backend {backend!r} is unknown", "use mpi, gloo or nccl")
    seconds = seconds_of(timeout, "new_group")
    part = whole.split(0 if whole.rank in wanted else None, whole.rank)
    if part is None:
        return NonMember()
    if seconds is not None:
        part.set_timeout(seconds)
    part.global_ranks = tuple(wanted)
    return part


def get_process_group_ranks(group: Group | None = None) -> list[int]:
    """Ranks of the default group that are in a group, in its order.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.get_process_group_ranks()
    [0]
    """
    of = chosen(group, "get_process_group_ranks")
    return list(of.global_ranks) or list(range(of.size))


def get_global_rank(group: Group, group_rank: int) -> int:
    """Rank in the default group of a rank of another group.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.get_global_rank(mo.distributed.new_group([0]), 0)
    0
    """
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise fail(ArgumentError, "get_global_rank", f"rank {group_rank} is not in a group of {len(ranks)}")
    return ranks[group_rank]


def get_group_rank(group: Group | None, global_rank: int) -> int:
    """Rank in a group of a rank of the default group.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.get_group_rank(mo.distributed.new_group([0]), 0)
    0
    """
    ranks = get_process_group_ranks(group)
    if global_rank not in ranks:
        raise fail(ArgumentError, "get_group_rank", f"rank {global_rank} is not in the group of the ranks {ranks}")
    return ranks.index(global_rank)


def chosen(group: Any, name: str) -> Group:
    """The group, or the default one; an error before `init_process_group`."""
    if group is None:
        if _default is None:
            raise fail(GroupError, name, "there is no default process group",
                       "call mo.distributed.init_process_group()")
        current = world.current()  # after a rank died: the survivors
        return _default if current is None or current.epoch <= _default.epoch else current
    if not isinstance(group, Group):
        raise fail(ArgumentError, name, f"a {type(group).__name__} is no process group", "new_group() returns one")
    return group
