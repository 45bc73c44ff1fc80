"""Ranks that do not come together: errors that name both sides, on every rank, and no numbers or waits."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import unlike
from starting import run_ranks

import morpho as mo
from morpho import cluster
from morpho.base.errors import GroupError
from morpho.cluster import world


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
    calls = [unlike.random_call(rng, 2) for _ in range(3)]
    other = unlike.unlike(calls, rng, 2)
    assert [*map(unlike.relevant, other)] != [*map(unlike.relevant, calls)]


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
