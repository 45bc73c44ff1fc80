"""Ranks that come back to a training, or join it, between two steps."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mpi4py", reason="ranks are MPI processes: pip install 'morpho-tensor[cluster]'")

from starting import HERE, TINY, call
from test_training import model_of_a_thread
from training_ranks import train

from morpho import cluster
from morpho.base.errors import ArgumentError, GroupError, fail
from morpho.cli.train import _was_begun
from morpho.cluster import world
from morpho.cluster.groups.one import OneGroup
from morpho.cluster.groups.threads import run_threads
from morpho.cluster.launch import launcher, told
from morpho.cluster.launch.launcher import Job
from morpho.cluster.launch.mpiexec import Hosts
from morpho.cluster.training.run import DistributedRun
from morpho.models.training import Run, Settings
from morpho.models.training.checkpoints import Checkpoints, LossLog
from morpho.weights.errors import FolderInUse, StorageError


def a_text(tmp_path: Path) -> Path:
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time there was a cat, and the cat was fat. " * 60, encoding="utf-8")
    return text


def same_run(one: Path, other: Path) -> None:
    for name in ("losses.jsonl", "model.safetensors", "run.json", "checkpoints/step-00000005/optimiser.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_a_killed_rank_comes_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two are killed, the first rank among them; all three are there again from the next step on."""
    text = a_text(tmp_path)
    words = [*TINY, "--steps", "5", "--save-every", "0", "--dropout", "0.1"]
    assert call("train", "--data", text, "--out", tmp_path / "one", *words, "--nodes", 1) == 0
    assert call("launch", "-n", 3, "--elastic", "1:3", "--widen-after", 0, HERE / "dying_train.py",
                "0:0:1:step", "0:2:1:step", "--", "--data", text, "--out", tmp_path / "more", *words) == 0
    same_run(tmp_path / "one", tmp_path / "more")
    said = capfd.readouterr().err
    assert "start 0: 3 ranks at step 0" in said and "start 1: 3 ranks at step 2" in said, said


def test_a_run_goes_on_with_and_without_nodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One rule of steps: alone, over two processes and over more processes than rows, with the bits of one never
    stopped. A run of another rule goes on too, and says that its course changes."""
    text = a_text(tmp_path)
    words = [*TINY, "--steps", "5", "--save-every", "0", "--dropout", "0.1", "--batch", "2"]
    assert call("train", "--data", text, "--out", tmp_path / "one", *words) == 0
    assert call("train", "--data", text, "--out", tmp_path / "more", *words, "--until", 2) == 0
    assert call("train", "--out", tmp_path / "more", "--resume", "--nodes", 3, "--until", 4) == 0
    assert call("train", "--out", tmp_path / "more", "--resume") == 0
    same_run(tmp_path / "one", tmp_path / "more")
    assert not caplog.records
    settings = json.loads((tmp_path / "more" / "run.json").read_text())
    (tmp_path / "more" / "run.json").write_text(json.dumps({"settings": settings["settings"]}))
    for _ in range(2):  # said once
        Run(tmp_path / "more", resume=True)
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "from step 5 on it differs from one never stopped"]


# -- `Trainer.widen` ---------------------------------------------------------------------------------------------------
class Wide(cluster.Trainer):
    """A trainer that is told of room for more ranks before its third step."""

    saves: list[int]
    save: Any

    def step(self, *batch: np.ndarray) -> float:
        if self.steps == 2:
            world.widen()
        loss = super().step(*batch)
        if self.widening:
            self.widen(lambda: type(self).save(self))
        return loss


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "_terms", world.Terms(widen_s=1e9))
    monkeypatch.setattr(world, "_can_widen", False)


def ranks_that(save: Any) -> list[Any]:
    """What `train` gives of three ranks that are threads, or with what status they end."""
    def rank(group: Any) -> Any:
        trainer = type("Saving", (Wide,), {"save": staticmethod(lambda made: save(group, made))})
        try:
            return train(group, model=model_of_a_thread(), trainer=trainer)
        except SystemExit as left:
            return left.code

    return run_threads(3, rank)


@pytest.mark.usefixtures("room")
def test_all_ranks_end_with_what_rank_0_saved() -> None:
    saved = []
    assert ranks_that(lambda group, made: saved.append((group.rank, made.steps))) == [told.AGAIN] * 3
    assert saved == [(0, 3)]


@pytest.mark.usefixtures("room")
def test_the_next_one_saves_where_rank_0_dies_of_it() -> None:
    saved = []

    def save(group: Any, made: Any) -> None:
        if group.rank == 0:
            group.die()
            raise SystemExit(-1)
        saved.append((group.rank, made.steps))

    assert ranks_that(save) == [-1, told.AGAIN, told.AGAIN]
    assert saved == [(1, 3)]


@pytest.mark.usefixtures("room")
def test_what_cannot_be_saved_ends_nobody() -> None:
    def save(group: Any, made: Any) -> None:
        raise OSError(28, "No space left on device")

    alone = train(OneGroup())
    assert [found[:2] for found in ranks_that(save)] == [alone[:2]] * 3


def test_what_cannot_be_saved_at_the_end_is_an_error_of_all() -> None:
    def rank(group: Any) -> Any:
        try:
            return train(group, model=model_of_a_thread(), trainer=Full)
        except (OSError, GroupError) as error:
            return type(error)

    class Full(cluster.Trainer):
        def finish(self, save: Any = None) -> None:
            super().finish(self.refuse)

        def refuse(self) -> None:
            raise OSError(28, "No space left on device")

    assert run_threads(3, rank) == [OSError, GroupError, GroupError]


@pytest.mark.parametrize("when", [(2, "write"), (2, "add"), (3, "write")])
def test_a_full_disk_ends_a_run_after_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                    when: tuple[int, str]) -> None:
    """And it goes on from the last whole checkpoint when there is room, with the bits of one that always had it."""
    def opened(name: str, **options: Any) -> DistributedRun:
        settings = Settings(layers=1, width=16, heads=2, vocabulary=270, context=8, batch=8, steps=4, warmup=1)
        return DistributedRun(OneGroup(), tmp_path / name, a_text(tmp_path), settings, say=said.append, **options)

    def refusing(self: Any, *arguments: Any) -> Any:
        if run.step >= when[0]:
            raise fail(StorageError, "save", "the disk is full")
        return before(self, *arguments)

    said: list[str] = []
    run = opened("always")
    assert [now.step for now in run.advance(save_every=1)] == [1, 2, 3, 4]
    run = opened("full")
    kind = Checkpoints if when[1] == "write" else LossLog
    before = getattr(kind, when[1])
    monkeypatch.setattr(kind, when[1], refusing)
    if when[1] == "write":
        with pytest.raises(StorageError, match="the disk is full"):
            list(run.advance(save_every=1))
        assert run.step == when[0] + 1 and run.checkpoints.steps()[-1] == when[0] - 1
    else:  # there is room for what is saved in the end
        assert [now.step for now in run.advance(save_every=1)] == [1, 2, 3]
    assert "the disk is full; stopping after the next step" in said
    monkeypatch.undo()
    run = opened("full", resume=True)
    list(run.advance(save_every=1))
    for name in ("losses.jsonl", "model.safetensors", "checkpoints/step-00000004/optimiser.safetensors"):
        assert (tmp_path / "always" / name).read_bytes() == (tmp_path / "full" / name).read_bytes(), name


def test_two_runs_that_begin_in_one_folder(tmp_path: Path) -> None:
    settings = Settings(layers=1, width=16, heads=2, vocabulary=270, context=8, batch=8, steps=2, warmup=1)
    first, second = (DistributedRun(OneGroup(), tmp_path / "run", a_text(tmp_path), replace(settings, width=width))
                     for width in (16, 32))
    with pytest.raises(FolderInUse, match="another process trained in"):
        list(first.advance())
    assert len(list(second.advance())) == 2


def test_nobody_asks_for_ranks_without_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "_can_widen", True)
    assert not world.wants_more()
    monkeypatch.setattr(world, "_terms", world.Terms(widen_s=0.0))
    assert world.wants_more()
    world.not_now()
    assert not world.wants_more()
    monkeypatch.setattr(world.mpi, "has_lost", lambda: True)
    assert world.wants_more()


def test_only_what_the_same_launch_began_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.json").write_text("{}")
    os.utime(tmp_path / "run.json", (1000.0, 1000.0))
    for starts, began_s, expected in [(0, 999.0, False), (1, 999.0, True), (1, 1001.0, False)]:
        monkeypatch.setattr(world, "_terms", world.Terms(starts=starts, began_s=began_s))
        assert _was_begun(tmp_path) is expected
        assert not _was_begun(tmp_path / "none")


# -- the launcher ------------------------------------------------------------------------------------------------------
def test_a_host_that_answers_again_joins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One of two hosts answers at first. When both do, the ranks are told, and end to be started anew on both."""
    answering, started = [{"a"}], []

    def start(count: int, program: Any, where: Hosts, **options: Any) -> subprocess.Popen[Any]:
        started.append((count, " ".join(host for host, _ in where.slots), program[program.index("--starts") + 1]))
        if len(started) > 1:
            return subprocess.Popen(["true"])
        process = subprocess.Popen(["sh", "-c", f"trap 'exit {told.AGAIN}' USR2; touch {tmp_path}/up; "
                                    "while :; do sleep 0.02; done"])
        while not (tmp_path / "up").exists():
            time.sleep(0.01)
        answering[0] = {"a", "b"}
        return process

    monkeypatch.setattr(launcher.mpiexec, "start", start)
    monkeypatch.setattr(launcher, "_ASK_HOSTS_EVERY_S", 0.02)
    monkeypatch.setattr(launcher, "WIDEN_S", 0.0)  # no rank of this machine says how far it is
    monkeypatch.setattr(launcher, "is_reachable", lambda host, agent: host in answering[0])
    job = Job((__file__,), 4, Hosts((("a", 2), ("b", 2))), least=2, narrows=True, widen_s=0.0)
    assert launcher.launch(job) == 0
    assert started == [(2, "a", "0"), (4, "a b", "1")]


def test_ranks_that_still_start_are_left_alone() -> None:
    starting, joined = told.Rank(-1, 0, told.JOINING, None), told.Rank(-1, 0, told.JOINED, None)
    assert not launcher._hear([starting], 1e9) and launcher._hear([starting, joined], 0.0)
    assert not launcher._hear([], 1.0) and launcher._hear([], 1e9)


@pytest.mark.parametrize(("words", "said"), [
    (["launch", "-n", "2", "--widen-after", "3", "x.py"], "give --elastic LEAST:MOST too"),
    (["launch", "--elastic", "2:4", "--widen-after", "-3", __file__], "is no number of seconds"),
    (["launch", "--elastic", "2:4", "--widen-after", "nan", __file__], "is no number of seconds"),
    (["train", "--out", "x", "--nodes", "8", "--elastic", "2:4"], "--nodes 8 lies outside --elastic 2:4"),
])
def test_mistakes(words: list[str], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        call(*words)


def test_one_process_is_not_elastic(capfd: pytest.CaptureFixture[str]) -> None:
    assert call("train", "--out", "x", "--elastic", "2:4") == 2
