"""Groups over NCCL: buffers go through device memory, and NCCL moves bytes between the GPUs of the ranks.

Reductions are moves too: every rank gets its part of all buffers, adds them up in the order of ranks, and gives the sum
to all. So a sum has the same bits over NCCL as over any other group. Ranks find each other by another group (`over`):
rank 0 makes NCCL's number, and the others hear of it there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.backends.cuda.vendor import libraries
from morpho.backends.registry import backend_of, devices
from morpho.base import settings
from morpho.base.dtypes import DType
from morpho.base.errors import GroupError, fail
from morpho.cluster.groups.mpi import world as mpi_world
from morpho.cluster.groups.one import OneGroup
from morpho.runtime.groups.group import DONE, Group, Work
from morpho.runtime.groups.reducing import reduce_into

UNIQUE_BYTES = 128
BYTE = 1  # ncclUint8


class UniqueId(ctypes.Structure):
    """Identifier that the ranks of a communicator share."""

    _fields_ = (("internal", ctypes.c_char * UNIQUE_BYTES),)


class NcclGroup(Group):
    """Ranks with a GPU each. `handle` is the library, or a fake one of tests."""

    kind = "nccl"

    def __init__(self, over: Group, backend: Any, handle: Any) -> None:
        self.over, self.backend, self.handle = over, backend, handle
        self.rank, self.size, self.epoch, self.hosts = over.rank, over.size, over.epoch, over.hosts
        shared = np.zeros(UNIQUE_BYTES, np.uint8)
        number = UniqueId()
        if self.rank == 0:
            self.call("ncclGetUniqueId", ctypes.byref(number))
            shared[:] = np.frombuffer(bytes(number), np.uint8)
        over.broadcast(shared)
        ctypes.memmove(ctypes.byref(number), shared.tobytes(), UNIQUE_BYTES)
        self.communicator = ctypes.c_void_p()
        self.call("ncclCommInitRank", ctypes.byref(self.communicator), self.size, number, self.rank)

    def call(self, name: str, *given: Any) -> None:
        """A function of the library; a status is an error."""
        status = int(getattr(self.handle, name)(*given))
        if status:
            raise fail(GroupError, "nccl", f"{name} gave the status {status}",
                       "set NCCL_DEBUG=WARN to see its messages")

    def split(self, color: int | None, key: int = 0) -> Group | None:
        found = self.over.split(color, key)
        return None if found is None else NcclGroup(found, self.backend, self.handle)

    def close(self) -> None:
        self.call("ncclCommDestroy", self.communicator)

    # -- operations ----------------------------------------------------------------------------------------------------
    def _run(self, operation: str, wait: bool, *arguments: Any) -> Work:
        if operation not in ("send", "recv"):
            self.over.meet(operation, *arguments)
        getattr(self, f"_{operation}")(*arguments)
        return DONE

    def _moved(self, given: np.ndarray, nbytes: int, move: Callable[[Any, Any], None]) -> np.ndarray:
        """So many bytes that NCCL puts into device memory, from a buffer that is brought there; `move` queues it."""
        source, target = (self.backend.allocate(max(size, 1)) for size in (given.nbytes, nbytes))
        found = np.empty(nbytes, np.uint8)
        try:
            if given.nbytes:
                self.backend.copy_in(source, np.ascontiguousarray(given).reshape(-1).view(np.uint8).data)
            move(ctypes.c_void_p(source.address), ctypes.c_void_p(target.address))
            if nbytes:
                self.backend.copy_out(target, memoryview(found)).wait()  # type: ignore[arg-type]
            else:
                self.backend.synchronize()
        finally:
            for buffer in (source, target):
                self.backend.release(buffer)
        return found

    @property
    def _end(self) -> tuple[Any, Any]:
        """Arguments that every NCCL function ends with: the communicator, and the stream of the backend's programs."""
        return self.communicator, ctypes.c_void_p(self.backend.stream_handle())

    def _broadcast(self, buffer: np.ndarray, root: int) -> None:
        found = self._moved(buffer, buffer.nbytes, lambda source, target: self.call(
            "ncclBroadcast", source, target, ctypes.c_size_t(buffer.nbytes), BYTE, root, *self._end))
        buffer[...] = found.view(buffer.dtype).reshape(buffer.shape)

    def _all_gather(self, buffer: np.ndarray, into: np.ndarray) -> None:
        found = self._moved(buffer, into.nbytes, lambda source, target: self.call(
            "ncclAllGather", source, target, ctypes.c_size_t(buffer.nbytes), BYTE, *self._end))
        into[...] = found.view(into.dtype).reshape(into.shape)

    def _all_to_all(self, buffer: np.ndarray, into: np.ndarray) -> None:
        part = buffer.nbytes // self.size

        def move(source: Any, target: Any) -> None:
            self.call("ncclGroupStart")
            for rank in range(self.size):
                for name, start in (("ncclSend", source), ("ncclRecv", target)):
                    self.call(name, ctypes.c_void_p(start.value + rank * part), ctypes.c_size_t(part), BYTE, rank,
                              *self._end)
            self.call("ncclGroupEnd")

        into[...] = self._moved(buffer, into.nbytes, move).view(into.dtype).reshape(into.shape)

    def _reduce_scatter(self, buffer: np.ndarray, into: np.ndarray, op: str, dtype: DType) -> None:
        parts = np.empty_like(buffer.reshape(self.size, -1))
        self._all_to_all(buffer.reshape(self.size, -1), parts)
        reduce_into(into.reshape(-1), [*parts], op, dtype)

    def _all_reduce(self, buffer: np.ndarray, op: str, dtype: DType) -> None:
        each = -(-buffer.size // self.size)
        whole = np.zeros(each * self.size, buffer.dtype)
        whole[:buffer.size] = buffer.reshape(-1)
        mine, found = np.empty(each, buffer.dtype), np.empty_like(whole)
        self._reduce_scatter(whole, mine, op, dtype)
        self._all_gather(mine, found)
        buffer[...] = found[:buffer.size].reshape(buffer.shape)

    def _send(self, buffer: np.ndarray, to: int, tag: int) -> None:
        self._moved(buffer, 0, lambda source, target: self.call(
            "ncclSend", source, ctypes.c_size_t(buffer.nbytes), BYTE, to, *self._end))

    def _recv(self, buffer: np.ndarray, source: int, tag: int) -> None:
        found = self._moved(np.empty(0, np.uint8), buffer.nbytes, lambda _, target: self.call(
            "ncclRecv", target, ctypes.c_size_t(buffer.nbytes), BYTE, source, *self._end))
        buffer[...] = found.view(buffer.dtype).reshape(buffer.shape)

    def _barrier(self) -> None:
        self._all_gather(np.zeros(1, np.uint8), np.zeros(self.size, np.uint8))


def world() -> Group:
    """The group of all processes, each with its own GPU: found by MPI where a launcher started several, else alone."""
    over: Group = mpi_world() if settings.world_size() is not None else OneGroup()
    gpus = [name for name in devices() if name.startswith("cuda:")]
    if not gpus:
        raise fail(GroupError, "nccl", "there is no GPU for NCCL to move bytes between", "use kind='mpi'")
    here = sum(host == over.hosts[over.rank] for host in over.hosts[:over.rank])  # ranks of this host before this one
    if here >= len(gpus):
        raise fail(GroupError, "nccl", f"rank {over.rank} is number {here} on its host, which has {len(gpus)} GPUs",
                   "start no more ranks on a host than it has GPUs")
    return NcclGroup(over, backend_of(gpus[here]), libraries.library("nccl"))
