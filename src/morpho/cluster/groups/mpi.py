"""Groups over MPI (mpi4py and Open MPI, `pip install 'morpho-tensor[cluster]'`).

Collectives that are not waited for run on one thread of the group, in the order they were started, so that they go on
while this process computes; messages are MPI's own requests. An error of MPI becomes `PeerLost` where a rank died or
the group was revoked. MPI has no bfloat16 or float16: their reductions are an all-to-all of parts, a sum in float32 in
the order of ranks, and an all-gather, so that only half floats are on the wire. Buffers of `buffer()` lie in shared
memory where all ranks are on one host, and are added there.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.base.dtypes import DType
from morpho.base.errors import GroupError, MorphoError, PeerLost, fail
from morpho.cluster.groups.in_order import InOrder
from morpho.cluster.groups.limit import AGREE_S, limited
from morpho.cluster.groups.shared_memory import SharedBuffers, create
from morpho.cluster.launch.mpiexec import needs_mpi
from morpho.cluster.launch.told import JOINED, JOINING, started, telling
from morpho.runtime.groups import waiting
from morpho.runtime.groups.group import Group, Later, Work
from morpho.runtime.groups.reducing import is_half, reduce_into

_NAME_BYTES = 256  # of a host
_PATIENCE_S = 1.0  # until the reason of an error is known
_LEAST_SHARED = 1 << 16  # bytes: below, two meetings cost more than what MPI does
_LOOK_EVERY_S = 0.0001  # whether the others have come: without a sleep that takes a core from those that compute


def world() -> MPIGroup:
    """The group of all processes that were started together."""
    found = MPIGroup(mpi().COMM_WORLD.Dup())
    found.know_processes()
    found.hosts  # noqa: B018 - all ranks ask together: now, while all live
    return found


def mpi() -> Any:
    """mpi4py's module, with MPI started. It is finalised at the end of the process, unless a rank was lost: survivors
    would wait there for the dead one."""
    try:
        if "mpi4py.MPI" not in sys.modules:
            import mpi4py

            mpi4py.rc.finalize = False
            atexit.register(_finalise)
            telling.tell(JOINING)
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


def _finalise() -> None:
    found = sys.modules.get("mpi4py.MPI")
    if found is not None and not _lost.is_set() and found.Is_initialized() and not found.Is_finalized():
        found.Finalize()


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
        with waiting.inside(self._call("split")):
            found = self._guarded(lambda: self.communicator.Split(self._mpi.UNDEFINED if color is None else color, key))
        return None if found == self._mpi.COMM_NULL else MPIGroup(found, self.epoch)

    def buffer(self, count: int, dtype: Any) -> np.ndarray:
        dtype = np.dtype(dtype)
        found: list[np.ndarray] = []
        if self.size > 1 and count * dtype.itemsize >= _LEAST_SHARED:
            with waiting.inside(self._call("buffer")):
                self._run("share", True, found, count, dtype)
        return found[0] if found else np.empty(count, dtype)

    def _share(self, found: list[np.ndarray], count: int, dtype: np.dtype) -> None:
        """A buffer in shared memory, if all ranks can have it. Nobody else finds the file: it has no name later."""
        if len(set(self.hosts)) > 1:
            return
        name = np.zeros(_NAME_BYTES, np.uint8)
        path = create(SharedBuffers.nbytes(self.size, count, dtype)) if self.rank == 0 else ""
        name[:len(path)] = np.frombuffer(path.encode(), np.uint8)
        try:
            self._broadcast(name, 0)
            shared = self._opened(bytes(name).rstrip(b"\0").decode(), count, dtype)
            everybody = np.asarray([shared is not None], np.int32)
            self.communicator.Allreduce(self._mpi.IN_PLACE, everybody, self._mpi.MIN)
        finally:
            if path:
                os.unlink(path)
        if shared is not None and everybody[0]:
            address = shared.mine.ctypes.data
            self._shared[address] = shared
            found.append(shared.mine[:])  # who is done with it lets go of this one
            weakref.finalize(found[0], self._shared.pop, address, None)

    def _opened(self, name: str, count: int, dtype: np.dtype) -> SharedBuffers | None:
        try:
            return SharedBuffers(name, self.rank, self.size, count, dtype) if name else None
        except (OSError, ValueError):
            return None

    # -- operations ----------------------------------------------------------------------------------------------------
    def _run(self, operation: str, wait: bool, *arguments: Any) -> Work:
        if operation in ("send", "recv"):
            return self._message(operation, wait, *arguments)
        method: Callable[..., None] = getattr(self, f"_{operation}")
        return self._order.run(lambda: self._guarded(lambda: method(*arguments)), wait)

    def _message(self, operation: str, wait: bool, buffer: np.ndarray, peer: int, tag: int) -> Work:
        whole = [buffer, buffer.nbytes, self._mpi.BYTE]
        if operation == "send":
            request = self._guarded(lambda: self.communicator.Isend(whole, peer, tag))
        else:
            request = self._guarded(lambda: self.communicator.Irecv(whole, peer, tag))
        work = Later(lambda: self._arrived(request, operation, buffer, peer), lambda: self._guarded(request.Test))
        if wait:
            work.wait()
        return work

    def _arrived(self, request: Any, operation: str, buffer: np.ndarray, peer: int) -> None:
        status = self._mpi.Status()
        try:
            request.Wait(status)
        except self._mpi.Exception as error:
            if error.Get_error_class() == self._mpi.ERR_TRUNCATE:
                raise fail(GroupError, operation, f"rank {peer} sent more than the {buffer.nbytes} bytes that are "
                           "taken") from error
            raise self._told(error) from error
        if operation == "recv" and status.Get_count(self._mpi.BYTE) != buffer.nbytes:
            raise fail(GroupError, operation, f"rank {peer} sent {status.Get_count(self._mpi.BYTE)} bytes where "
                       f"{buffer.nbytes} are taken")

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
        shared = self._shared.get(buffer.ctypes.data)
        if shared is not None and buffer.size == shared.mine.size and buffer.dtype == shared.mine.dtype:
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
        try:
            with waiting.inside(self._call("agree")):
                return bool(self.communicator.Agree(int(flag)))
        except self._mpi.Exception as error:
            raise self._told(error) from error

    def close(self) -> None:
        self._order.close()
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
        """What MPI says, said as ours."""
        kinds = {getattr(self._mpi, name, None) for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING",
                                                             "ERR_REVOKED")}
        text = error.Get_error_string().removeprefix("MPI_ERR_")
        if error.Get_error_class() in kinds or self._has_lost():
            _lost.set()
            return fail(PeerLost, "group", f"a rank of the group died or left ({text})",
                        "revoke() tells the others, shrink() gives the group of those that live")
        return fail(GroupError, "group", f"MPI says: {text}")
