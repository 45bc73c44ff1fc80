"""Ranks whose programs differ, ranks that wait for one that does not come, messages that are not what is taken: all of
it must end in errors on every rank, and not in numbers or a wait. Each part has a group of its own.

    mpiexec -n 3 python -m morpho.cluster.launch.worker tests/cluster/waiting_ranks.py SEED PROGRAMS
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import unlike

import morpho as mo
from morpho import cluster
from morpho.base.errors import GroupError
from morpho.cluster.groups import mpi
from morpho.cluster.groups.hierarchical import HierarchicalGroup
from morpho.runtime.groups.group import Group

HERE = "waiting_ranks.py:"


def refused(call: Callable[[], Any], *words: str) -> str:
    """The error of a call, which has these words in it."""
    began = time.monotonic()
    try:
        call()
    except GroupError as error:
        assert all(word in str(error) for word in words), (words, str(error))
        assert time.monotonic() - began < 60
        return str(error)
    raise AssertionError(f"there was no error of {words}")


def fresh(kind: str = "", timeout: int = 60) -> Any:
    """A group of all ranks; of three hosts, or of two, in name."""
    with mo.settings(collective_timeout=timeout):
        group = mpi.world()
    if kind:
        group._hosts = ("a", "b", "c") if kind == "wire" else ("a", "a", "b")
        group.watch_over(float(timeout), True)
    return HierarchicalGroup(group) if kind == "hosts" else group


def check_programs(group: Group, first: int, programs: int) -> None:
    """Random programs one after the other on the same group, which is as good as before after each of them."""
    for seed in range(first, first + programs):
        said = refused(functools.partial(unlike.play, group, seed), "unlike.py:", "ranks came with different "
                       "collectives: rank 0 with ")
        assert ", rank 1 with " in said or ", rank 2 with " in said, said
        rows = np.zeros((group.size, 4096), np.uint8)
        raw = said.partition("different collectives")[2].partition(". At ")[0].encode()
        group.all_gather(np.frombuffer(raw.ljust(4096, b"\0"), np.uint8), rows)
        assert (rows == rows[0]).all(), "all ranks say the same"
    x = np.full(1000, group.rank, np.float32)
    group.all_reduce(x)
    assert (x == sum(range(group.size))).all()


def check_more(group: Group) -> None:
    """Memory of `buffer()` and any other; a group that is split; 0-d."""
    shared = group.buffer(50_000, np.float32)
    plain = np.ones(50_000, np.float32)
    refused(lambda: group.all_reduce(plain if group.rank == 1 else shared), "in memory of `buffer()`")
    refused(lambda: group.buffer(50_000, np.float32) if group.rank else group.barrier(), "buffer of 50000 float32")
    part = group.split(0 if group.rank else None)
    if part is not None:
        refused(lambda: part.broadcast(plain, group.rank - 1), "broadcast (root 0) of 50000 float32", "(root 1)")
    refused(lambda: group.split(0) if group.rank else group.barrier(), "with split at", "with barrier at")


def check_messages(group: Group) -> None:
    x = np.ones(4, np.float32)
    if group.rank == 0:
        for size in (4, 4, 2, 8, 4):
            group.send(np.ones(size, np.float32), 1)
    elif group.rank == 1:
        for early in (True, False):
            x[:] = 0
            work = group.recv(x, 0, wait=False)
            while early and not work.done():
                pass
            work.wait()
            work.wait()
            assert work.done() and x.tolist() == [1, 1, 1, 1]
        refused(lambda: group.recv(x, 0), "rank 0 sent 8 bytes where rank 1 takes 16, of float32 of shape (4,)", HERE)
        refused(lambda: group.recv(x, 0), "rank 0 sent 32 bytes where rank 1 takes 16, of float32 of shape (4,)", HERE)
        group.recv(x, 0)
    group.barrier()


def check_timeout(kind: str = "") -> None:
    """Rank 1 is elsewhere: whoever waits says for whom; the others hear of it where they come to next."""
    group, x = fresh(kind, timeout=1), np.ones(4, np.float32)
    if group.rank == 1:
        wait_until(lambda: group._comparing.heard())  # the line that is named
        where = "after a rank gave up"
    else:
        where = refused(lambda: group.all_reduce(x, wait=group.rank == 0).wait(), "waited 1 s in all_reduce (sum) of 4 "
                        "float32 at ", HERE, "for rank 1; ", f"rank 1 (process {group._processes[1, 0]}")
    refused(group.barrier, "the group is given up: rank ", "waited 1 s in all_reduce (sum) of 4 float32", HERE)
    refused(lambda: group.send(np.ones(1 << 20), 1 - group.rank % 2), "the group is given up: rank ")
    print(where, flush=True)


def check_message_timeout() -> None:
    group = fresh(timeout=1)
    if group.rank == 0:
        refused(lambda: group.recv(np.ones(4), 1, 3), "rank 0 waited 1 s in recv from rank 1 of 32 bytes at ", HERE)
    else:
        wait_until(lambda: group._comparing.heard())
        refused(group.barrier, "the group is given up: rank ")


def check_stopped_inside() -> None:
    """Rank 1 is stopped by a signal after it has come."""
    group, x = fresh(timeout=1), np.ones(4, np.float32)
    if group.rank == 1:
        group._all_reduce = lambda *more: os.kill(os.getpid(), signal.SIGSTOP)
    refused(lambda: (group.all_reduce(x), group.barrier()), "1 s in all_reduce at", "to which all ranks have come",
            "rank 1 (process")
    if group.rank == 0:
        os.kill(int(group._processes[1, 0]), signal.SIGCONT)


def train(group: Group, steps: int, join: bool) -> np.ndarray:
    """Weights after steps of data parallel training, all of the same rows."""
    mo.nn.seed(0)
    model = mo.nn.Linear(3, 2)
    replica = cluster.DistributedDataParallel(model, group=group)
    rule = mo.optim.SGD(model.parameters(), lr=0.1)
    with replica.join() if join else nullcontext():
        for _ in range(steps):
            replica(mo.ones((2, 3))).sum().backward()
            rule.step()
            rule.zero_grad()
    return model.bias.numpy()


def check_join(group: Group) -> None:
    """Ranks have 1, 2 and 3 batches; the mean is over all of them."""
    found = train(group, 1 + group.rank, join=True)
    assert np.allclose(found - train(group, 0, join=False), -0.1 * 2 * (1 + 2 / 3 + 1 / 3)), found


def check_ended(group: Group) -> None:
    """The script of rank 1 is done after a batch, the others go on."""
    x = np.ones(4, np.float32)
    if group.rank == 1:
        train(group, 1, join=False)
    else:
        refused(lambda: train(group, 2, join=False), "for rank 1, whose script has ended", HERE, "replica.join():`")
        for _ in range(2):
            refused(lambda: group.all_reduce(x), "waits in all_reduce (sum) of 4 float32 for rank 1, whose script has "
                    "ended", HERE)
        refused(lambda: group.recv(x, 1), "waits in recv from rank 1 of 16 bytes, whose script has ended")


def wait_until(call: Callable[[], Any]) -> None:
    until = time.monotonic() + 60
    while not call():
        assert time.monotonic() < until
        time.sleep(0.02)


if __name__ == "__main__":
    seed, programs = map(int, sys.argv[1:])
    world = cluster.init()
    for kind in ("", "wire", "hosts"):
        check_programs(fresh(kind), seed, programs)
        print(f"unlike programs are refused {kind}".rstrip(), flush=True)
    check_more(fresh())
    check_messages(fresh())
    print("messages are checked", flush=True)
    check_timeout()
    check_timeout("wire")
    check_message_timeout()
    print("timeouts are errors", flush=True)
    check_stopped_inside()
    print("a rank that is stopped inside is an error", flush=True)
    check_join(fresh())
    check_ended(fresh())
    print("ends are errors", flush=True)
