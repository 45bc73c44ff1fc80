"""Groups over MPI (mpi4py and Open MPI, `pip install 'morpho-tensor[cluster]'`).

Collectives that are not waited for run on one thread of the group, in the order they were started, so that they go on
while this process computes; messages are MPI's own requests. An error of MPI becomes `PeerLost` where a rank died or
the group was revoked. MPI has no bfloat16 or float16: their reductions are an all-to-all of parts, a sum in float32 in
the order of ranks, and an all-gather, so that only half floats are on the wire. Buffers of `buffer()` lie in shared
memory where all ranks are on one host, and are added there.
"""

from __future__ import annotations

import atexit
import math
import mmap
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.base import settings
from morpho.base.dtypes import DType
from morpho.base.errors import GroupError, MorphoError, PeerLost, fail
from morpho.cluster.groups.comparing import Board, Comparing, What, Wire, line
from morpho.cluster.groups.in_order import InOrder
from morpho.cluster.groups.limit import AGREE_S, Waited, limited, watch
from morpho.cluster.groups.shared_memory import SharedBuffers, create, open_memory
from morpho.cluster.launch.mpiexec import needs_mpi
from morpho.cluster.launch.told import JOINED, JOINING, started, telling
from morpho.cluster.workers.reports import is_stopped
from morpho.runtime.groups import waiting
from morpho.runtime.groups.group import Group, Work
from morpho.runtime.groups.reducing import is_half, reduce_into
from morpho.runtime.trace import spans

_NAME_BYTES = 256  # of a host
_PATIENCE_S = 1.0  # until the reason of an error is known
_MESSAGE_S = 0.25  # in which the reason of a revocation arrives, where it is a message
_LEAST_SHARED = 1 << 16  # bytes: below, two meetings cost more than what MPI does
_START_S = 120.0  # what ranks have to find each other, at least
_END_EVERY_S = 0.005  # whether the others have ended too
_YIELDS_S = 0.002  # a rank that waits for a message only yields its core for so long, then it sleeps between looks
_LAST_WORDS_S = 5.0  # what messages of a rank that has ended have to arrive
_NO_TAG = 0x7FFF  # of no message
_LOOK_EVERY_S = 0.0001  # whether the others have come: without a sleep that takes a core from those that compute


def world() -> MPIGroup:
    """The group of all processes that were started together."""
    chosen = settings.get()
    group = MPIGroup(mpi().COMM_WORLD.Dup())
    group.know_processes()
    group.hosts  # noqa: B018 - all ranks ask together: now, while all live
    wanted = np.asarray([chosen.compare_collectives], np.int32)
    group.communicator.Allreduce(group._mpi.IN_PLACE, wanted, group._mpi.MAX)  # one that does not would hang the others
    group.watch_over(float(chosen.collective_timeout), bool(wanted[0]))
    return group


def mpi() -> Any:
    """mpi4py's module, with MPI started. It is finalised at the end of the process, unless a rank was lost: survivors
    would wait there for the dead one."""
    try:
        if "mpi4py.MPI" not in sys.modules:
            import mpi4py

            mpi4py.rc.finalize = False
            atexit.register(_finalise)
            telling.tell(JOINING)
            seconds = settings.get().collective_timeout or threading.TIMEOUT_MAX
            with limited(max(seconds, _START_S), "MPI's start, in which all ranks wait for each other,"):
                from mpi4py import MPI
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as error:
        raise needs_mpi(str(error).splitlines()[0]) from error
    telling.tell(JOINED)
    return MPI


_lost = threading.Event()  # a rank that was started together with this one is known to be dead


def has_lost() -> bool:
    """Whether a rank died or left while others waited for it, in any group of this process."""
    return _lost.is_set()


def has_peers() -> bool:
    """Whether MPI runs in this process, with others."""
    found = sys.modules.get("mpi4py.MPI")
    return bool(found and found.Is_initialized() and not found.Is_finalized() and found.COMM_WORLD.Get_size() > 1)


def _opened(name: str, nbytes: int) -> mmap.mmap | None:
    try:
        return open_memory(name, nbytes) if name else None
    except (OSError, ValueError):
        return None


def is_narrow(dtype: np.dtype, op: str) -> bool:
    """Whether MPI's result is not what wraps around: its vectorised sums of 8 and 16 bits stop at the largest number.

    >>> is_narrow(np.dtype(np.uint16), "sum"), is_narrow(np.dtype(np.int32), "sum")
    (True, False)
    """
    return dtype.kind in "iu" and dtype.itemsize <= 2 and op in ("sum", "product")


def has_nan(dtype: np.dtype, op: str) -> bool:
    """Whether MPI may lose a NaN: of two numbers it takes the one that a comparison is true of.

    >>> has_nan(np.dtype(np.float32), "max"), has_nan(np.dtype(np.float32), "sum")
    (True, False)
    """
    return dtype.kind == "f" and op in ("min", "max")


_comparing: list[Comparing] = []  # of all groups that live: each is told when this process ends
_stuck = threading.Event()  # a collective came to no end: MPI cannot be finalised


def _finalise() -> None:
    """Say that this rank takes part in nothing more, and finalise MPI with the others. A rank that died meanwhile is
    not waited for, as MPI itself would."""
    found = sys.modules.get("mpi4py.MPI")
    if found is None or not found.Is_initialized() or found.Is_finalized():
        return
    for each in _comparing:
        each.end()
    if _lost.is_set() or _stuck.is_set():
        return
    everyone = found.COMM_WORLD
    everyone.Set_errhandler(found.ERRORS_RETURN)
    try:
        request = everyone.Ibarrier()
        while not request.Test():
            everyone.Iprobe(found.ANY_SOURCE, 0)
            time.sleep(_END_EVERY_S)
    except found.Exception:
        return
    found.Finalize()


class _Message(Work):
    """A message under way; its status is kept, whoever asks for it first."""

    def __init__(self, group: MPIGroup, request: Any, operation: str, buffer: np.ndarray, peer: int) -> None:
        self._group, self._request, self._operation, self._buffer, self._peer = group, request, operation, buffer, peer
        self._status, self._error, self._came, self._over = group._mpi.Status(), None, False, False
        self.call: waiting.Call | None = None

    def done(self) -> bool:
        if not self._came:
            try:
                self._came = self._request.Test(self._status)
            except self._group._mpi.Exception as error:
                self._error, self._came = error, True
        return self._came

    def wait(self) -> None:
        if self._over:
            return
        with spans.span("network", "wait") as told, waiting.inside(self.call):
            told["in_step"] = spans.in_step()
            self._group._until(self.done, self._operation, self._peer, self._buffer)
        self._over = True
        self._group._arrived(self._status, self._error, self._operation, self._buffer, self._peer)


class MPIGroup(Group):
    """One rank of an MPI communicator, which it owns."""

    kind = "mpi"

    def __init__(self, communicator: Any, epoch: int = 0) -> None:
        self._mpi = mpi()
        communicator.Set_errhandler(self._mpi.ERRORS_RETURN)
        self.communicator, self.epoch = communicator, epoch
        self.rank, self.size = communicator.Get_rank(), communicator.Get_size()
        self.members = tuple(communicator.Get_group().Translate_ranks(None, self._mpi.COMM_WORLD.Get_group()))
        self._order = InOrder()
        self._hosts: tuple[str, ...] = ()
        self._shared: dict[int, SharedBuffers] = {}  # by the address of this rank's buffer
        self._shared_count = 0
        self._comparing: Comparing | None = None
        self.timeout_s = 0.0
        self._processes: np.ndarray | None = None  # (rank, 2): numbers of the system and when they began

    @property
    def hosts(self) -> tuple[str, ...]:  # type: ignore[override]
        """The host of each rank; the first to ask must be all ranks together."""
        if not self._hosts:
            name = self._mpi.Get_processor_name().encode()[:_NAME_BYTES]
            mine = np.zeros(_NAME_BYTES, np.uint8)
            mine[:len(name)] = np.frombuffer(name, np.uint8)
            found = np.empty((self.size, _NAME_BYTES), np.uint8)
            self.all_gather(mine, found)
            self._hosts = tuple(bytes(row).rstrip(b"\0").decode() for row in found)
        return self._hosts

    def know_processes(self) -> np.ndarray:
        """Which process each rank is; all ranks ask together."""
        if self._processes is None:
            found = np.empty((self.size, 2), np.int64)
            self.all_gather(np.asarray([os.getpid(), started(os.getpid())], np.int64), found)
            self._processes = found
        return self._processes

    def split(self, color: int | None, key: int = 0) -> Group | None:
        found: list[MPIGroup] = []
        with waiting.inside(self._call("split")):
            self._run("split", True, found, color, key)
        return found[0] if found else None

    def _split(self, found: list[MPIGroup], color: int | None, key: int) -> None:
        part = self.communicator.Split(self._mpi.UNDEFINED if color is None else color, key)
        if part != self._mpi.COMM_NULL:
            found.append(MPIGroup(part, self.epoch))
            self._inherit(found[0])

    def _inherit(self, part: MPIGroup) -> None:
        """Have a group of some of these ranks know what is known of them."""
        places = [self.members.index(member) for member in part.members]
        if self._hosts:
            part._hosts = tuple(self._hosts[place] for place in places)
        if self._processes is not None:
            part._processes = self._processes[places]
        part.watch_over(self.timeout_s, self._comparing is not None)

    # -- comparing, and a timeout --------------------------------------------------------------------------------------
    def watch_over(self, timeout_s: float, compare: bool) -> None:
        """Compare what ranks bring from now on, and wait for nobody longer than this. Called by all ranks together."""
        self.timeout_s = timeout_s
        if self.size == 1:
            return
        watch.begin(timeout_s)
        if compare:
            more = self.rank, self.size, timeout_s, self._look, self._why, self._give_up
            memory = self._memory(Board.nbytes(self.size)) if len({*self.hosts}) == 1 else None
            self._comparing = (Wire(self._mpi, self._quiet(self.communicator.Dup()), *more[2:]) if memory is None else
                               Board(memory, *more))
            self._comparing.members = self.members
            _comparing.append(self._comparing)

    def set_timeout(self, seconds: float) -> None:
        self.timeout_s = seconds
        watch.begin(seconds)
        if self._comparing is not None:
            self._comparing.timeout_s = seconds

    def _quiet(self, communicator: Any) -> Any:
        communicator.Set_errhandler(self._mpi.ERRORS_RETURN)
        return communicator

    def _memory(self, nbytes: int) -> mmap.mmap | None:
        """Memory that all ranks share, if all can have it. Nobody else finds its file: it has no name later."""
        name = np.zeros(_NAME_BYTES, np.uint8)
        path = create(nbytes) if self.rank == 0 else ""
        name[:len(path)] = np.frombuffer(path.encode(), np.uint8)
        try:
            self._broadcast(name, 0)
            memory = _opened(bytes(name).rstrip(b"\0").decode(), nbytes)
            everybody = np.asarray([memory is not None], np.int32)
            self.communicator.Allreduce(self._mpi.IN_PLACE, everybody, self._mpi.MIN)
        finally:
            if path:
                os.unlink(path)
        return memory if everybody[0] else None

    def meet(self, operation: str, *arguments: Any, place: str = "") -> None:
        if self._comparing is not None:
            come, what = self._comparing.come, self._what(operation, arguments)
            self._guarded(lambda: come(what, place))

    def _what(self, operation: str, arguments: tuple[Any, ...]) -> What:
        """Description of an operation that must be equal on all ranks."""
        if operation == "all_reduce":
            buffer, op, dtype = arguments
            return operation, buffer.size, dtype.name, op, self._shared_number(buffer)
        if operation == "reduce_scatter":
            return operation, arguments[1].size, arguments[3].name, arguments[2]
        if operation == "broadcast":
            return operation, arguments[0].size, arguments[0].dtype.name, arguments[1]
        if operation in ("all_gather", "all_to_all"):
            return operation, arguments[0].size, arguments[0].dtype.name
        if operation == "share":
            return "buffer", arguments[1], arguments[2].name
        return (operation,)

    def _shared_number(self, buffer: np.ndarray) -> int:
        """Which of the buffers in shared memory it is, 0: none."""
        if not self._shared:
            return 0
        shared = self._shared.get(buffer.ctypes.data)
        fits = shared is not None and buffer.size == shared.mine.size and buffer.dtype == shared.mine.dtype
        return shared.number if shared is not None and fits else 0

    def _look(self) -> None:
        """Drive MPI, which else moves nothing while this rank looks at memory, and raise where the group is broken."""
        self.communicator.Iprobe(self._mpi.ANY_SOURCE, _NO_TAG)

    def _give_up(self) -> None:
        _stuck.set()
        try:
            self.communicator.Revoke()
        except (self._mpi.Exception, NotImplementedError):
            pass  # others have the text, or their own timeout

    def overdue(self, what: str, thread: int) -> bool:
        """End a call that blocks inside MPI for longer than the timeout; whether it can be ended."""
        comparing = self._comparing
        if comparing is None or what.startswith(("agree", "shrink")):
            return False
        where = waiting.line_of(sys._current_frames().get(thread))
        others = [rank for rank in range(self.size) if rank != self.rank]
        try:
            comparing.give_up(f"{what} at {where}, to which all ranks have come,", others, "group", where)
        except GroupError:
            self._give_up()  # the error is raised where the call was, which must end even if another rank gave up first
        return True

    def _why(self, late: Sequence[int]) -> list[str]:
        """Reports on ranks that are late."""
        rows, known = waiting.others(), []
        for rank in late:
            member = self.members[rank]
            process = int(self._processes[rank, 0]) if self._processes is not None else 0
            host = self._hosts[rank] if self._hosts else ""
            here = not host or host == self._hosts[self.rank]
            who = f"rank {rank} (process {process}" + ("" if here else f" on {host}") + ")"
            row = rows.get(member)
            if row is not None and (row["state"] or row["line"]):
                state = row["state"]
                known.append(f"{who} {state}; it was at {row['line']}" if state else f"{who} is at {row['line']}")
            elif here and process and self._processes is not None:
                gone = started(process) != int(self._processes[rank, 1])
                known.append(f"{who} " + ("is gone" if gone else "is stopped by a signal" if is_stopped(process)
                                          else "runs, and is elsewhere"))
            else:
                known.append(f"nothing is heard of {who}: it is elsewhere, or the line to its host is down")
        return known

    def _until(self, done: Callable[[], bool], operation: str, peer: int, buffer: np.ndarray) -> None:
        """Wait for a message, no longer than the timeout, and not for a rank that has ended."""
        clock, ended_s = Waited(self.timeout_s), math.inf
        name = f"{operation} {'to' if operation == 'send' else 'from'} rank {peer} of {buffer.nbytes} bytes"
        ended = (GroupError, operation, f"rank {self.rank} waits in {name}, whose script has ended",
                 "each message needs a send and a recv, of the same tag")
        while not done():
            waited, now = clock.seconds(), time.monotonic()
            if waited < _YIELDS_S:
                os.sched_yield()
                continue
            comparing = self._comparing
            try:
                self._guarded(self._look)
            except PeerLost as error:  # MPI may know of the end of a process before this loop looks at its word
                if comparing is None or not comparing.has_ended(peer):
                    raise
                raise fail(*ended) from error
            if comparing is not None:
                comparing._check_verdict()
                if comparing.has_ended(peer):
                    ended_s = min(ended_s, now)
                if now - ended_s > min(_LAST_WORDS_S, self.timeout_s or math.inf):
                    raise fail(*ended)
                if 0 < self.timeout_s < waited:
                    comparing.give_up(f"{name} at {line()}", [peer], operation)
            time.sleep(_LOOK_EVERY_S)

    def buffer(self, count: int, dtype: Any) -> np.ndarray:
        dtype = np.dtype(dtype)
        found: list[np.ndarray] = []
        if self.size > 1 and count * dtype.itemsize >= _LEAST_SHARED:
            with waiting.inside(self._call("buffer")):
                self._run("share", True, found, count, dtype)
        return found[0] if found else np.empty(count, dtype)

    def _share(self, found: list[np.ndarray], count: int, dtype: np.dtype) -> None:
        """A buffer in shared memory, if all ranks can have it."""
        if len(set(self.hosts)) > 1:
            return
        memory = self._memory(SharedBuffers.nbytes(self.size, count, dtype))
        if memory is not None:
            self._shared_count += 1
            shared = SharedBuffers(memory, self.rank, self.size, count, dtype, self._shared_count)
            address = shared.mine.ctypes.data
            self._shared[address] = shared
            found.append(shared.mine[:])  # who is done with it lets go of this one
            weakref.finalize(found[0], self._shared.pop, address, None)

    # -- operations ----------------------------------------------------------------------------------------------------
    def _run(self, operation: str, wait: bool, *arguments: Any) -> Work:
        if operation in ("send", "recv"):
            return self._message(operation, wait, *arguments)
        method: Callable[..., None] = getattr(self, f"_{operation}")
        comparing, calls = self._comparing, watch.calls
        place = "" if comparing is None or (wait and self._order.is_idle()) else line()

        def act() -> None:
            thread = threading.get_ident()
            try:
                if comparing is not None:
                    comparing.come(self._what(operation, arguments), place)
                calls[thread] = time.monotonic(), self.timeout_s, self, operation
                method(*arguments)
            except self._mpi.Exception as error:
                raise self._told(error) from error
            finally:
                calls.pop(thread, None)

        return self._order.run(act, wait)

    def _message(self, operation: str, wait: bool, buffer: np.ndarray, peer: int, tag: int) -> Work:
        whole = [buffer, buffer.nbytes, self._mpi.BYTE]
        if operation == "send":
            request = self._guarded(lambda: self.communicator.Isend(whole, peer, tag))
        else:
            request = self._guarded(lambda: self.communicator.Irecv(whole, peer, tag))
        work = _Message(self, request, operation, buffer, peer)
        if wait:
            work.wait()
        return work

    def _arrived(self, status: Any, error: Any, operation: str, buffer: np.ndarray, peer: int) -> None:
        truncated = error is not None and error.Get_error_class() == self._mpi.ERR_TRUNCATE
        if error is not None and not truncated:
            raise self._told(error) from error
        count = status.Get_count(self._mpi.BYTE) if operation == "recv" else buffer.nbytes
        if truncated or count != buffer.nbytes:
            size = str(count) if count != buffer.nbytes and count >= 0 else f"more than {buffer.nbytes}"
            raise fail(GroupError, operation, f"rank {peer} sent {size} bytes where rank {self.rank} takes "
                       f"{buffer.nbytes}, of {buffer.dtype} of shape {buffer.shape}") from error

    def _bytes(self, buffer: np.ndarray) -> list[Any]:
        return [buffer, buffer.nbytes, self._mpi.BYTE]

    def _barrier(self) -> None:
        self.communicator.Barrier()

    def _broadcast(self, buffer: np.ndarray, root: int) -> None:
        self.communicator.Bcast(self._bytes(buffer), root)

    def _all_gather(self, buffer: np.ndarray, into: np.ndarray) -> None:
        self.communicator.Allgather(self._bytes(buffer), [into, buffer.nbytes, self._mpi.BYTE])

    def _all_to_all(self, buffer: np.ndarray, into: np.ndarray) -> None:
        share = buffer.nbytes // self.size
        self.communicator.Alltoall([buffer, share, self._mpi.BYTE], [into, share, self._mpi.BYTE])

    def _all_reduce(self, buffer: np.ndarray, op: str, dtype: DType) -> None:
        if self._shared_number(buffer):
            shared = self._shared[buffer.ctypes.data]
            self._meet()
            shared.reduce_share(op, dtype)
            self._meet()
            return
        if is_half(dtype):
            self._reduce_halves(buffer, op, dtype)
            return
        if is_narrow(buffer.dtype, op):
            wide = buffer.astype(np.int32)
            self.communicator.Allreduce(self._mpi.IN_PLACE, wide, self._operator(op))
            np.copyto(buffer, wide, casting="unsafe")
            return
        lost = np.isnan(buffer.reshape(-1)).view(np.uint8) if has_nan(buffer.dtype, op) else None
        self.communicator.Allreduce(self._mpi.IN_PLACE, self._typed(buffer), self._operator(op))
        if lost is not None:
            self.communicator.Allreduce(self._mpi.IN_PLACE, lost, self._mpi.MAX)
            buffer.reshape(-1)[lost.view(np.bool_)] = np.nan
        if op == "mean":
            buffer /= buffer.dtype.type(self.size)

    def _meet(self) -> None:
        """A barrier that leaves the core to those that compute."""
        request = self.communicator.Ibarrier()
        while not request.Test():
            time.sleep(_LOOK_EVERY_S)

    def _reduce_halves(self, buffer: np.ndarray, op: str, dtype: DType) -> None:
        share = -(-buffer.size // self.size)
        parts = np.zeros(share * self.size, buffer.dtype)
        parts[:buffer.size] = buffer.ravel()
        mine = np.empty(share, buffer.dtype)
        self._reduce_scatter(parts, mine, op, dtype)
        self._all_gather(mine, parts)
        np.copyto(buffer, parts[:buffer.size].reshape(buffer.shape))

    def _reduce_scatter(self, buffer: np.ndarray, into: np.ndarray, op: str, dtype: DType) -> None:
        if is_half(dtype) or is_narrow(buffer.dtype, op) or has_nan(buffer.dtype, op):
            parts = np.empty((self.size, into.size), buffer.dtype)
            self._all_to_all(buffer, parts)
            reduce_into(into.reshape(-1), [*parts], op, dtype)
            return
        self.communicator.Reduce_scatter_block(self._typed(buffer), self._typed(into), self._operator(op))
        if op == "mean":
            into /= into.dtype.type(self.size)

    def _typed(self, buffer: np.ndarray) -> Any:
        """With MPI's own element type; a bool is a byte of 0 or 1."""
        return buffer.view(np.uint8) if buffer.dtype == np.bool_ else buffer

    def _operator(self, op: str) -> Any:
        return {"sum": self._mpi.SUM, "mean": self._mpi.SUM, "min": self._mpi.MIN, "max": self._mpi.MAX,
                "product": self._mpi.PROD}[op]

    # -- survival ------------------------------------------------------------------------------------------------------
    def revoke(self) -> None:
        try:
            self.communicator.Revoke()
        except self._mpi.Exception as error:
            raise self._told(error) from error

    def shrink(self) -> Group:
        _lost.set()
        with limited(AGREE_S, "the survivors' agreement on who is left"), waiting.inside(self._call("shrink")):
            self._order.settle()
            new = MPIGroup(self._guarded(self.communicator.Shrink), self.epoch + 1)
            self._guarded(lambda: self._inherit(new))
        if self._processes is not None and self._hosts:
            self._fence(new)
        return new

    def _fence(self, new: MPIGroup) -> None:
        """End those that were left out and may be only stopped: they must not come back with old news. The first of the
        living on each host does it."""
        assert self._processes is not None
        living, hosts = new.know_processes().tolist(), new.hosts
        if hosts.index(hosts[new.rank]) != new.rank:
            return
        for (number, began), host in zip(self._processes.tolist(), self._hosts, strict=True):
            if host == hosts[new.rank] and [number, began] not in living and started(number) == began:
                try:
                    os.kill(number, signal.SIGKILL)
                except OSError:
                    pass  # it is gone

    def agree(self, flag: bool) -> bool:
        thread = threading.get_ident()
        watch.calls[thread] = time.monotonic(), self.timeout_s, self, "agree"
        try:
            with waiting.inside(self._call("agree")):
                return bool(self.communicator.Agree(int(flag)))
        except self._mpi.Exception as error:
            raise self._told(error) from error
        finally:
            watch.calls.pop(thread, None)

    def close(self) -> None:
        self._order.close()
        if self._comparing is not None:
            self._comparing.end()
            _comparing.remove(self._comparing)
            self._comparing = None
        if self.communicator != self._mpi.COMM_WORLD and not self._mpi.Is_finalized():
            self._guarded(self.communicator.Free)

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._mpi.Exception as error:
            raise self._told(error) from error

    def _has_lost(self) -> bool:
        """Whether a rank is known to be dead, or soon is: some collectives fail without saying why before that."""
        limit = time.monotonic() + _PATIENCE_S
        while time.monotonic() < limit:
            try:
                if self.communicator.Is_revoked() or self.communicator.Get_failed().Get_size():
                    return True
            except (self._mpi.Exception, AttributeError, NotImplementedError):
                return False  # an MPI that knows of no failures
            time.sleep(0.01)
        return False

    def _told(self, error: Any) -> MorphoError:
        """Turn an error of MPI into one of Morpho's."""
        comparing = self._comparing
        if comparing is not None:
            revoked = error.Get_error_class() == getattr(self._mpi, "ERR_REVOKED", None)
            comparing.verdict = comparing.verdict or comparing.heard(_MESSAGE_S if revoked else 0.0)
            if comparing.verdict:
                return comparing.error()
        kinds = {getattr(self._mpi, name, None) for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING",
                                                             "ERR_REVOKED")}
        text = error.Get_error_string().removeprefix("MPI_ERR_")
        if error.Get_error_class() in kinds or self._has_lost():
            _lost.set()
            return fail(PeerLost, "group", f"a rank of the group died or left ({text})",
                        "revoke() notifies the others, shrink() returns the group of living ranks")
        return fail(GroupError, "group", f"MPI says, on rank {self.rank} of {self.size}: {text}")
