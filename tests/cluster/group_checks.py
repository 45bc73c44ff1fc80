"""What every group must do, as a program of one rank: tests run it on threads, on one rank, and on processes.

    python -m morpho.cluster.launch.worker tests/cluster/group_checks.py       (under mpiexec)
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from morpho.base.dtypes import bfloat16, float16, float32
from morpho.base.errors import MorphoError
from morpho.cluster.groups.mpi import MPIGroup
from morpho.runtime.groups.group import Group
from morpho.runtime.groups.reducing import narrow, widen

DTYPES = (np.float32, np.float64, np.int8, np.int32, np.int64, np.uint16, np.complex64, np.float16)
OPERATIONS = {"sum": np.add, "min": np.minimum, "max": np.maximum, "product": np.multiply}


def numbers(rank: int, count: int, dtype: object) -> np.ndarray:
    """Small integers of a rank, exact in every dtype and in every order of a sum."""
    return (np.random.default_rng(rank).integers(1, 4, count)).astype(dtype)  # type: ignore[call-overload]


def check_reductions(group: Group) -> None:
    for dtype in DTYPES:
        for count in (1, 7, 1000):
            everyone = [numbers(rank, count, dtype) for rank in range(group.size)]
            for op, function in OPERATIONS.items():
                if dtype is np.complex64 and op in ("min", "max"):
                    continue
                for wait in (True, False):
                    x = everyone[group.rank].copy()
                    group.all_reduce(x, op, wait=wait).wait()
                    assert np.array_equal(x, function.reduce(everyone, dtype=x.dtype)), (dtype, count, op)
    x = np.full(4, group.rank, np.float32)
    group.all_reduce(x, "mean")
    assert np.allclose(x, (group.size - 1) / 2)
    truth = np.asarray([group.rank % 2, 1, 0], bool)
    group.all_reduce(truth, "max")
    assert truth.tolist() == [group.size > 1, True, False]


def check_extremes(group: Group) -> None:
    """NaN of any one rank is in the result, narrow integers wrap around, as in NumPy."""
    for who in range(group.size):
        x = np.asarray([group.rank, 1.0, -1.0], np.float32)
        if group.rank == who:
            x[1] = np.nan
        for op in ("min", "max"):
            found, part = x.copy(), np.empty(3, np.float32)
            group.all_reduce(found, op)
            group.reduce_scatter(np.tile(x, group.size), part, op)
            expected = np.asarray([0 if op == "min" else group.size - 1, np.nan, -1], np.float32)
            assert np.array_equal(found, expected, equal_nan=True) and np.array_equal(part, expected, equal_nan=True)
    for dtype in (np.int8, np.uint8, np.int16, np.uint16):
        for op in ("sum", "product"):
            everyone = [np.full(67, np.iinfo(dtype).max - rank, dtype) for rank in range(group.size)]
            found, part = everyone[group.rank].copy(), np.empty(67, dtype)
            group.all_reduce(found, op)
            group.reduce_scatter(np.tile(everyone[group.rank], group.size), part, op)
            expected = OPERATIONS[op].reduce(everyone, dtype=dtype)
            assert np.array_equal(found, expected) and np.array_equal(part, expected), (dtype, op)


def check_halves(group: Group) -> None:
    """Sums of half floats are those of float32 in the order of ranks, rounded once."""
    for dtype in (bfloat16, float16):
        everyone = [narrow(np.random.default_rng(rank).normal(size=37).astype(np.float32), dtype)
                    for rank in range(group.size)]
        total = np.array(widen(everyone[0], dtype))
        for part in everyone[1:]:
            total += widen(part, dtype)
        x = everyone[group.rank].copy()
        group.all_reduce(x, dtype=dtype)
        assert np.array_equal(x, narrow(total, dtype))


def check_kept_buffers(group: Group) -> None:
    """Memory of the group's own is reduced as any other, again and again: in shared memory where ranks can have it."""
    for dtype, stored in ((float32, np.float32), (bfloat16, np.uint16), (float16, np.float16)):
        for count in (5, 70_001):
            buffer = group.buffer(count, stored)
            for turn in range(3):
                everyone = [narrow(numbers(rank + turn, count, np.float32), dtype) for rank in range(group.size)]
                np.copyto(buffer, everyone[group.rank])
                group.all_reduce(buffer, "sum", dtype=dtype, wait=turn == 1).wait()
                expected = np.add.reduce([widen(each, dtype) for each in everyone])
                assert np.array_equal(widen(buffer, dtype), expected), (dtype, count, turn)
            if group.kind == "mpi":
                assert len(group._shared) == (count > 5)
            del buffer
    if group.kind == "mpi":
        from morpho.cluster.groups import mpi

        assert not group._shared, "memory that nobody holds is given back"
        mpi.create = lambda nbytes: ""  # no room
        buffer = group.buffer(70_001, np.float32)
        buffer[:] = group.rank
        group.all_reduce(buffer, "mean")
        assert not group._shared and np.allclose(buffer, (group.size - 1) / 2)


def check_moves(group: Group) -> None:
    size, rank = group.size, group.rank
    for wait in (True, False):
        for root in range(size):
            x = np.full((2, 3), rank, np.int64)
            group.broadcast(x, root, wait=wait).wait()
            assert (x == root).all()
        whole = np.zeros((size, 2), np.uint16)
        group.all_gather(np.asarray([rank, 7], np.uint16), whole, wait=wait).wait()
        assert whole.tolist() == [[r, 7] for r in range(size)]
        part = np.empty(3, np.float32)
        group.reduce_scatter(np.arange(3 * size, dtype=np.float32), part, wait=wait).wait()
        assert np.array_equal(part, size * np.arange(3 * rank, 3 * rank + 3, dtype=np.float32))
        swapped = np.empty((size, 2), np.int32)
        group.all_to_all(np.asarray([[rank, r] for r in range(size)], np.int32), swapped, wait=wait).wait()
        assert swapped.tolist() == [[r, rank] for r in range(size)]
        group.barrier(wait=wait).wait()


def check_messages(group: Group) -> None:
    """Everyone sends to the next before receiving from the one before."""
    size, rank = group.size, group.rank
    works = [group.send(np.full(5, 10 * rank + tag, np.float64), (rank + 1) % size, tag, wait=False) for tag in (1, 2)]
    for tag in (2, 1):
        x = np.empty(5)
        group.recv(x, (rank - 1) % size, tag, wait=tag == 2).wait()
        assert (x == 10 * ((rank - 1) % size) + tag).all()
    for work in works:
        work.wait()
    group.barrier()


def check_order(group: Group) -> None:
    """Collectives that are not waited for keep their order, among themselves and before one that is."""
    buffers = [np.full(100, k, np.float32) for k in range(5)]
    works = [group.all_reduce(x, wait=False) for x in buffers]
    last = np.ones(1, np.float32)
    group.all_reduce(last)
    for k, (work, x) in enumerate(zip(works, buffers)):
        work.wait()
        assert (x == k * group.size).all() and work.done()
    assert last[0] == group.size


def check_split(group: Group) -> None:
    half = group.split(group.rank % 2, -group.rank)
    assert half is not None
    x = np.asarray([group.rank])
    group_of = np.empty(half.size, x.dtype)
    half.all_gather(x, group_of)
    assert group_of.tolist() == [r for r in reversed(range(group.size)) if r % 2 == group.rank % 2]
    nobody = group.split(None if group.rank == 0 else 0)
    assert (nobody is None) == (group.rank == 0)
    assert len(group.hosts) == group.size


def check_refusals(group: Group) -> None:
    x = np.ones(4, np.float32)
    for call in (lambda: group.all_reduce(x[::2]), lambda: group.all_reduce([1.0]), lambda: group.all_reduce(x, "xor"),
                 lambda: group.all_reduce(np.ones(2, bool)), lambda: group.broadcast(x, group.size),
                 lambda: group.all_gather(x, np.empty(4 * group.size + 1, np.float32)),
                 lambda: group.all_reduce(x, dtype=bfloat16), lambda: group.all_reduce(np.ones(2, np.int32), "mean")):
        with pytest.raises(MorphoError):
            call()
    x.flags.writeable = False
    with pytest.raises(MorphoError, match="read-only"):
        group.all_reduce(x)


def check_channels(group: Group) -> None:
    """What is larger than the buffer that waits for it is an error that names its sender."""
    from morpho.cluster.transport.channel import Channels
    from morpho.cluster.transport.frame import Header, Kind, TransportError

    assert isinstance(group, MPIGroup)
    channels = Channels(group._mpi, group.communicator.Dup(), 1)
    if group.rank == 0:
        channels.open_sender(1, 4096, "f32").send(Header(Kind.ACTIVATION, 1, 0), np.zeros((1, 64), np.float32))
    if group.rank == 1:
        receiver, until = channels.open_receiver(0, 64), time.monotonic() + 60
        with pytest.raises(TransportError, match="a message from rank 0 is larger than the 64 bytes agreed on"):
            while time.monotonic() < until:
                receiver.poll()
    group.barrier()


CHECKS = (check_reductions, check_extremes, check_halves, check_kept_buffers, check_moves, check_messages, check_order,
          check_split, check_refusals)


def check_all(group: Group) -> bool:
    """Every check, on this rank."""
    for check in CHECKS:
        check(group)
    return True


if __name__ == "__main__":
    from morpho import cluster

    world = cluster.init(by_hosts="hosts" in sys.argv)
    check_all(world)
    if world.kind == "mpi":
        check_channels(world)
    print("all checks", world.kind, world.size, flush=True)
