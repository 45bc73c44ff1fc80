"""The `Group` protocol: what ranks that work together can do. Who implements it lives in `cluster/groups/`.

Collectives move buffers: C-contiguous NumPy arrays, never pickled objects. bfloat16 travels as `uint16` with
`dtype=bfloat16` said; half floats are added in float32 and rounded once. Every collective is called by all ranks of the
group in the same order. Each returns a `Work`; with `wait=False` it may still be under way, and its buffers belong to
the group until `wait()` returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, as_dtype
from morpho.base.errors import ArgumentError, DTypeError, GroupError, ShapeError, fail
from morpho.runtime.groups import waiting
from morpho.runtime.metrics import metrics
from morpho.runtime.trace import spans

REDUCTIONS = ("sum", "mean", "min", "max", "product")

_calls = metrics.counter("morpho_collective_calls", "Collectives and messages started, by operation.", ("operation",))
_bytes = metrics.counter("morpho_collective_bytes", "Bytes of the buffers given to them.", ("operation",))


class Work:
    """A collective or message under way. `wait()` returns when it is done, or raises what went wrong.

    >>> mo.cluster.Work().done()
    True
    """

    call: waiting.Call | None = None  # which collective or message it is

    def wait(self) -> None:
        """Return when the buffers are the caller's again; raises `PeerLost` where a rank died."""

    def done(self) -> bool:
        """Whether `wait()` would return at once."""
        return True


DONE = Work()


class Later(Work):
    """Work that another thread does: a function that waits, and one that looks."""

    def __init__(self, wait: Callable[[], object], done: Callable[[], bool]) -> None:
        self._wait, self._done, self._over = wait, done, False

    def wait(self) -> None:
        if not self._over:
            with spans.span("network", "wait") as told, waiting.inside(self.call):
                told["in_step"] = spans.in_step()
                self._wait()
            self._over = True

    def done(self) -> bool:
        return self._over or self._done()


class Group(ABC):
    """Ranks 0 to `size` - 1 that work together; `rank` is this one.

    `epoch` counts the shrinkings that led to this group: what was sent in an older epoch is stale.

    >>> group = mo.cluster.init()
    >>> group.rank, group.size, group.epoch
    (0, 1, 0)
    """

    rank: int
    size: int
    epoch: int = 0
    kind: str = ""
    hosts: tuple[str, ...] = ()  # of each rank
    members: tuple[int, ...] = ()  # the rank of each in the world; empty: the same numbers
    global_ranks: tuple[int, ...] = ()  # of each in the group that it is a part of, where `mo.distributed` made it
    timeout_s: float = 0.0  # seconds after which a wait for others raises; 0: never

    # -- what users call ---------------------------------------------------------------------------------------------
    def broadcast(self, buffer: np.ndarray, root: int = 0, *, wait: bool = True) -> Work:
        """The root's buffer, on every rank, in place."""
        self._check("broadcast", buffer, writes=True)
        self._check_rank("broadcast", root)
        return self._start("broadcast", wait, buffer, root)

    def all_reduce(self, buffer: np.ndarray, op: str = "sum", *, dtype: DType | None = None, wait: bool = True) -> Work:
        """Sum, mean, min, max or product over the ranks, on every rank, in place."""
        kind = self._check("all_reduce", buffer, dtype, op, writes=True)
        return self._start("all_reduce", wait, buffer, op, kind)

    def all_gather(self, buffer: np.ndarray, into: np.ndarray, *, wait: bool = True) -> Work:
        """Every rank's buffer, one after the other in the order of ranks, on every rank."""
        self._check_pair("all_gather", buffer, into, self.size, 1)
        return self._start("all_gather", wait, buffer, into)

    def reduce_scatter(self, buffer: np.ndarray, into: np.ndarray, op: str = "sum", *, dtype: DType | None = None,
                       wait: bool = True) -> Work:
        """The reduction of all buffers, of which rank r gets the r-th of `size` equal parts."""
        kind = self._check("reduce_scatter", buffer, dtype, op)
        self._check_pair("reduce_scatter", buffer, into, 1, self.size)
        return self._start("reduce_scatter", wait, buffer, into, op, kind)

    def all_to_all(self, buffer: np.ndarray, into: np.ndarray, *, wait: bool = True) -> Work:
        """Part r of the buffer goes to rank r; parts arrive in the order of their senders."""
        self._check_pair("all_to_all", buffer, into, 1, 1)
        if buffer.size % self.size:
            raise fail(ShapeError, "all_to_all", f"{buffer.size} elements do not part into {self.size} equal shares")
        return self._start("all_to_all", wait, buffer, into)

    def send(self, buffer: np.ndarray, to: int, tag: int = 0, *, wait: bool = True) -> Work:
        """A message to another rank; messages of one tag between two ranks arrive in order."""
        self._check("send", buffer)
        self._check_rank("send", to)
        return self._start("send", wait, buffer, to, tag)

    def recv(self, buffer: np.ndarray, source: int, tag: int = 0, *, wait: bool = True) -> Work:
        """A message of exactly this many bytes from another rank."""
        self._check("recv", buffer, writes=True)
        self._check_rank("recv", source)
        return self._start("recv", wait, buffer, source, tag)

    def barrier(self, *, wait: bool = True) -> Work:
        """Return when every rank has come here."""
        return self._start("barrier", wait)

    def buffer(self, count: int, dtype: Any) -> np.ndarray:
        """Memory of so many elements for a buffer that is reduced again and again: where the group is fastest. Called
        by all ranks together.

        >>> mo.cluster.init().buffer(3, "float32").shape
        (3,)
        """
        return np.empty(count, dtype)

    # -- what an implementation has -----------------------------------------------------------------------------------
    @abstractmethod
    def split(self, color: int | None, key: int = 0) -> Group | None:
        """The group of all ranks that say the same color, in the order of `key`, then of rank; None: in no group."""

    @abstractmethod
    def _run(self, operation: str, wait: bool, *arguments: Any) -> Work:
        """One operation whose arguments have been checked."""

    def set_timeout(self, seconds: float) -> None:
        """Wait no longer than this for others from now on; all ranks say the same. 0 waits for ever."""
        self.timeout_s = seconds

    def meet(self, operation: str, *arguments: Any, place: str = "") -> None:  # noqa: B027 - most compare by themselves
        """Compare what ranks bring to an operation that goes over other groups than this one."""

    def revoke(self) -> None:
        """Make every call on this group fail, on every rank: nobody waits for what will not come."""
        raise fail(GroupError, "group", f"a group of kind {self.kind!r} cannot be revoked")

    def shrink(self) -> Group:
        """The group of those ranks that live, in their old order; called by all of them. Its epoch is one higher."""
        raise fail(GroupError, "group", f"a group of kind {self.kind!r} cannot shrink")

    def agree(self, flag: bool) -> bool:
        """Whether all living ranks say so: the same answer for each of them, even while others die."""
        raise fail(GroupError, "group", f"a group of kind {self.kind!r} cannot agree")

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Free what the group holds; called by all ranks."""

    # -- checks --------------------------------------------------------------------------------------------------------
    def _start(self, operation: str, wait: bool, *arguments: Any) -> Work:
        _calls.add(1, operation)
        if arguments:
            _bytes.add(arguments[0].nbytes, operation)
        call = self._call(operation, *arguments)
        with spans.span("network", operation) as told, waiting.inside(call):
            told |= {"bytes": arguments[0].nbytes if arguments else 0, "in_step": spans.in_step()}
            work = self._run(operation, wait, *arguments)
        if call is not None and work is not DONE:
            work.call = call
        return work

    def _call(self, operation: str, *arguments: Any) -> waiting.Call | None:
        """Record of an operation that may have to wait for others."""
        if self.size == 1:
            return None
        members = self.members or tuple(range(self.size))
        return waiting.come(operation, members, members[arguments[1]] if operation in ("send", "recv") else None)

    def _check(self, operation: str, buffer: Any, dtype: DType | None = None, op: str | None = None,
               writes: bool = False) -> DType | None:
        """That a buffer can be sent, or written into, and reduced so."""
        if not isinstance(buffer, np.ndarray):
            raise fail(ArgumentError, operation, f"a {type(buffer).__name__} is no buffer", "give a NumPy array")
        if not buffer.flags.c_contiguous:
            raise fail(ArgumentError, operation, "the buffer is not contiguous", "numpy.ascontiguousarray makes it so")
        if writes and not buffer.flags.writeable:
            raise fail(ArgumentError, operation, "the buffer is read-only", "give a copy")
        if op is None:
            return None
        if op not in REDUCTIONS:
            raise fail(ArgumentError, operation, f"the reduction {op!r} is unknown", "use " + ", ".join(REDUCTIONS))
        kind = as_dtype(buffer.dtype if dtype is None else dtype)
        if kind.numpy != buffer.dtype:
            raise fail(DTypeError, operation, f"a buffer of {buffer.dtype} does not hold {kind}",
                       f"{kind} is stored as {kind.numpy}")
        if (kind.kind == "b" and op in ("sum", "mean")) or (kind.is_complex and op in ("min", "max")):
            raise fail(DTypeError, operation, f"{op} of {kind} is not defined")
        if op == "mean" and kind.is_integer:
            raise fail(DTypeError, operation, f"a mean of {kind} is not an integer", "convert to a float, or use sum")
        return kind

    def _check_pair(self, operation: str, buffer: Any, into: Any, gives: int, takes: int) -> None:
        self._check(operation, buffer)
        self._check(operation, into, writes=True)
        if buffer.dtype != into.dtype or buffer.size * gives != into.size * takes:
            raise fail(ShapeError, operation, f"a buffer of {buffer.size} {buffer.dtype} does not go into one of "
                       f"{into.size} {into.dtype} with {self.size} ranks")
        if np.may_share_memory(buffer, into) and self.size > 1:
            raise fail(ArgumentError, operation, "the two buffers share memory", "give another one to write into")

    def _check_rank(self, operation: str, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise fail(ArgumentError, operation, f"rank {rank} is not in a group of {self.size}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank={self.rank}, size={self.size})"


def host_colors(hosts: Sequence[str]) -> list[int]:
    """A color for each rank: ranks of one host have the same.

    >>> host_colors(["a", "b", "a"])
    [0, 1, 0]
    """
    names = list(dict.fromkeys(hosts))
    return [names.index(host) for host in hosts]
