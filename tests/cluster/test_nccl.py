"""Groups over NCCL: a fake of the library between threads, over the memory of emulated GPUs."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from morpho.backends.cuda.backend import CudaBackend
from morpho.backends.cuda.emulator.addresses import on_host
from morpho.backends.cuda.emulator.device import EmulatedDevice
from morpho.base.errors import GroupError
from morpho.cluster.groups.nccl import NcclGroup
from morpho.cluster.groups.one import OneGroup
from morpho.cluster.groups.threads import run_threads
from morpho.runtime.groups.group import Group


class FakeNccl:
    """Bytes between ranks by queues: one for each pair of a communicator. Calls between GroupStart and GroupEnd run at
    its end, sends first, as NCCL's never wait for each other there."""

    def __init__(self) -> None:
        self.pairs: dict[tuple[Any, int, int], queue.Queue[bytes]] = defaultdict(queue.Queue)
        self.ranks: dict[int, tuple[Any, int, int]] = {}  # by the communicator's number
        self.lock, self.held = threading.Lock(), threading.local()
        self.numbers = 0

    def ncclGetUniqueId(self, number: Any) -> int:
        with self.lock:
            self.numbers += 1
            number._obj.internal = b"unique %d" % self.numbers
        return 0

    def ncclCommInitRank(self, made: Any, size: int, number: Any, rank: int) -> int:
        with self.lock:
            made._obj.value = len(self.ranks) + 1
            self.ranks[made._obj.value] = bytes(number.internal), size, rank
        return 0

    def ncclCommDestroy(self, made: Any) -> int:
        return 0 if self.ranks.pop(made.value, None) else 4

    def ncclGroupStart(self) -> int:
        self.held.calls = []
        return 0

    def ncclGroupEnd(self) -> int:
        calls, self.held.calls = self.held.calls, None
        for act in sorted(calls, key=lambda one: one[0] == "recv"):
            self._move(*act)
        return 0

    def _move(self, way: str, address: int, count: int, peer: int, group: Any, rank: int) -> None:
        if way == "send":
            self.pairs[group, rank, peer].put(ctypes.string_at(on_host(address), count))
        else:
            found = self.pairs[group, peer, rank].get(timeout=30)
            assert len(found) == count
            ctypes.memmove(on_host(address), found, count)

    def _one(self, way: str, address: Any, count: Any, kind: int, peer: int, made: Any, stream: Any) -> int:
        assert kind == 1 and stream.value
        group, _, rank = self.ranks[made.value]
        act = way, address.value, count.value, peer, group, rank
        if getattr(self.held, "calls", None) is not None:
            self.held.calls.append(act)
        else:
            self._move(*act)
        return 0

    def ncclSend(self, *given: Any) -> int:
        return self._one("send", *given)

    def ncclRecv(self, *given: Any) -> int:
        return self._one("recv", *given)

    def ncclAllGather(self, source: Any, target: Any, count: Any, kind: int, made: Any, stream: Any) -> int:
        group, size, rank = self.ranks[made.value]
        for peer in range(size):
            self._move("send", source.value, count.value, peer, group, rank)
        for peer in range(size):
            self._move("recv", target.value + peer * count.value, count.value, peer, group, rank)
        return 0

    def ncclBroadcast(self, source: Any, target: Any, count: Any, kind: int, root: int, made: Any, stream: Any) -> int:
        group, size, rank = self.ranks[made.value]
        for peer in range(size) if rank == root else ():
            self._move("send", source.value, count.value, peer, group, rank)
        self._move("recv", target.value, count.value, root, group, rank)
        return 0


def joined(over: Group, fake: FakeNccl) -> NcclGroup:
    return NcclGroup(over, CudaBackend(f"cuda_emulated:{over.rank}", EmulatedDevice(over.rank)), fake)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_collectives_have_the_bits_of_other_groups(size: int) -> None:
    fake = FakeNccl()
    given = [np.random.default_rng(n).standard_normal(3 * size + 1).astype("f") for n in range(size)]

    def work(over: Group) -> list[list[float]]:
        found = []
        for group in (over, joined(over, fake)):
            mine, even = given[group.rank].copy(), given[group.rank][:2 * size].copy()
            gathered, part, mixed = np.empty((size, mine.size), "f"), np.empty(2, "f"), np.empty_like(even)
            group.all_gather(mine, gathered)
            group.reduce_scatter(even, part, "max")
            group.all_to_all(even, mixed)
            group.all_reduce(mine, "mean")
            told = np.full(3, float(group.rank + 7), "f")
            group.broadcast(told, size - 1)
            group.barrier()
            found.append([x.tobytes().hex() for x in (gathered, part, mixed, mine, told)])
        return found

    for plain, over_nccl in run_threads(size, work):
        assert plain == over_nccl


def test_messages_and_parts_of_a_group() -> None:
    fake = FakeNccl()

    def work(over: Group) -> tuple[float, int, int]:
        group = joined(over, fake)
        buffer = np.full(2, 5.0, "f") if group.rank == 0 else np.zeros(2, "f")
        if group.rank == 0:
            group.send(buffer, 1)
        else:
            group.recv(buffer, 0)
        part = group.split(group.rank)
        assert part is not None and part.kind == "nccl"
        part.all_reduce(buffer)
        group.close()
        return float(buffer[0]), part.rank, part.size

    assert run_threads(2, work) == [(5.0, 0, 1), (5.0, 0, 1)]


def test_a_status_is_an_error() -> None:
    group = joined(OneGroup(), FakeNccl())
    group.close()
    with pytest.raises(GroupError, match="ncclCommDestroy gave the status 4"):
        group.close()
