"""Ranks that do not come together: errors that name both sides, on every rank, and no numbers or waits."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import unlike
from starting import run_ranks

import morpho as mo
from morpho import cluster
from morpho.base.errors import GroupError
from morpho.cluster import world
from morpho.cluster.groups import limit
from morpho.cluster.groups.comparing import Board
from morpho.cluster.groups.threads import run_threads
from morpho.runtime.groups.group import Group


@pytest.fixture(autouse=True)
def nobody_joined(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(world, "_world", None)
    yield


def test_ranks_whose_programs_differ(seed: int) -> None:
    """Random programs, one host and three; timeouts; messages; a rank whose script ends, or that a signal stops."""
    printed = run_ranks(3, "waiting_ranks.py", seed % 10_000, 12)
    for words in ("unlike programs are refused\n", "unlike programs are refused wire",
                  "unlike programs are refused hosts", "messages are checked", "timeouts are errors",
                  "a rank that is stopped inside is an error", "ends are errors"):
        assert printed.count(words) == 3, printed


def test_unlike_programs_are_unlike(seed: int) -> None:
    rng = random.Random(seed)
    barrier = ("barrier", "uint8", 1, "sum", 0)
    for calls in ([unlike.random_call(rng, 2) for _ in range(3)], [unlike.random_call(rng, 2), barrier, barrier]):
        assert unlike.differ(calls, unlike.unlike(calls, rng, 2))
    assert not unlike.differ([barrier, barrier], [barrier])


def test_the_first_rank_that_gives_up_is_the_one_that_all_name() -> None:
    """One that gives up later, because it was stopped itself, does not accuse those that waited for it."""
    memory = bytearray(Board.nbytes(3))
    first, stopped, third = (Board(memory, rank, 3, 1.0, lambda: None, lambda late: [], lambda: None)
                             for rank in range(3))
    with pytest.raises(GroupError, match="rank 2 waited 1 s in barrier for rank 1"):
        third.give_up("barrier", [1], "barrier")
    with pytest.raises(GroupError, match="the group is given up: rank 2 waited 1 s in barrier for rank 1"):
        stopped.give_up("all_reduce", [0, 2], "all_reduce")
    assert first.heard() == stopped.heard() == third.verdict


def test_time_in_which_a_process_is_stopped_is_not_waited_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(limit, "time", SimpleNamespace(monotonic=lambda: now[0]))
    waited = limit.Waited(10.0)
    seconds = []
    for step in (1.0, 1.0, 60.0, 4.0, 4.0):
        now[0] += step
        seconds.append(waited.seconds())
    assert seconds == [1.0, 2.0, 0.0, 4.0, 8.0]


@pytest.mark.parametrize(("variables", "words"), [
    ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "a"},
     r"RANK=1 and WORLD_SIZE=4 \(torchrun\) say that this process is rank 1 of 4, .*`morpho launch -n 4 SCRIPT`.*ALO"),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, r"SLURM_PROCID=0 and SLURM_NTASKS=4 \(srun\).*`srun --mpi=pmix`"),
    ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "3"}, "rank 1 of 3"),
])
def test_ranks_of_other_launchers_are_not_silently_alone(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str],
                                                         words: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(GroupError, match=words):
        cluster.init()
    with mo.settings(alone=True):
        assert cluster.init().size == 1


@pytest.mark.parametrize("variables", [
    {"RANK": "0", "WORLD_SIZE": "1"}, {"WORLD_SIZE": "2"}, {"SLURM_NTASKS": "4"},  # a shell of salloc
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"}, {"RANK": "x", "WORLD_SIZE": "2"}])
def test_who_is_alone_by_right(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cluster.init().size == 1


def test_another_mpi_is_not_silently_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `mpi.world` gives there is a group of one."""
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setattr(world.mpi, "world", lambda: world.one.OneGroup())
    with pytest.raises(GroupError, match=r"PMI_RANK=1 and PMI_SIZE=2 .another MPI's mpiexec. say .* rank 1 of 2"):
        cluster.init()
    assert cluster.init("one").size == 1


BATCHES = (3, 1, 0)  # of each rank
_one_at_a_time = threading.Lock()


def rows(rank: int, step: int) -> np.ndarray:
    return np.random.default_rng(10 * rank + step).normal(size=(2, 3)).astype(np.float32)


def small_model() -> mo.nn.Module:
    with _one_at_a_time:
        mo.nn.seed(0)
        return mo.nn.Sequential(mo.nn.Linear(3, 4), mo.nn.Tanh(), mo.nn.Linear(4, 1))


@pytest.mark.parametrize(("compiled", "over_all"), [(False, True), (True, False)])
def test_ranks_with_unequally_many_batches(compiled: bool, over_all: bool) -> None:
    """The weights of all ranks are those of one process that has all the batches."""
    def rank(group: Group) -> np.ndarray:
        model = small_model()
        replica = cluster.DistributedDataParallel(model, group=group)
        rule = mo.optim.SGD(model.parameters(), lr=0.1)

        def step(x: mo.Tensor) -> None:
            mo.square(replica(x)).sum().backward()
            rule.step()
            rule.zero_grad()

        step = mo.compile(step) if compiled else step
        with replica.join(over_all):
            for number in range(BATCHES[group.rank]):
                step(mo.asarray(rows(group.rank, number)))
        return np.concatenate([each.numpy().ravel() for each in model.parameters()])

    model = small_model()
    rule = mo.optim.SGD(model.parameters(), lr=0.1)
    for number in range(max(BATCHES)):
        active = [each for each in range(3) if number < BATCHES[each]]
        loss = mo.square(model(mo.asarray(np.concatenate([rows(each, number) for each in active])))).sum()
        (loss / (3 if over_all else len(active))).backward()
        rule.step()
        rule.zero_grad()
    expected = np.concatenate([each.numpy().ravel() for each in model.parameters()])
    for weights in run_threads(3, rank):
        assert np.allclose(weights, expected, atol=1e-6)
