"""Training runs that are killed, meet each other in one folder, or find what others left there: real processes, really
killed. Their model is quickly made, and a step adds 1 to every weight, so that its bits say how many were made."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.models.training import Run, Settings
from morpho.models.training.checkpoints import LossLog
from morpho.weights import FileFault, FolderInUse

SMALL = Settings(layers=1, width=8, heads=1, vocabulary=257, context=8, batch=1, steps=400, warmup=1)
def quick(put: Callable[[object, str, object], None]) -> None:
    """Runs of a small model whose step adds 1."""
    def steps(run: Run) -> None:
        def step(ids: mo.Tensor) -> mo.Tensor:
            run.model.load_state_dict({name: weight.numpy() + 1 for name, weight in run.model.state_dict().items()})
            return mo.asarray(float(run.step))

        run.train_step = run.evaluate = step  # type: ignore[assignment]

    put(Run, "_compile", steps)
    put(mo.models, "from_config", lambda config: mo.nn.Linear(2, 2))
    put(os, "fsync", lambda descriptor: None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that has begun."""
    quick(monkeypatch.setattr)
    (tmp_path / "text.txt").write_text("In the beginning was the word, and the word was with the cat. " * 10)
    Run(tmp_path / "run", tmp_path / "text.txt", SMALL)
    return tmp_path / "run"


class Child:
    """A process of its own that trains in a folder: `step` waits until it has made one, `kill` kills it."""

    def __init__(self, folder: Path, save_every: int = 1, each: Callable[[Run], object] = lambda run: None) -> None:
        self.read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:  # pragma: no cover
            try:
                run = Run(folder, resume=True)
                each(run)
                for _ in run.advance(save_every=save_every, check_every=0):
                    os.write(write, b".")
            finally:
                os._exit(1)
        os.close(write)

    def step(self) -> None:
        assert os.read(self.read, 1) == b"."

    def wait(self) -> int:
        os.close(self.read)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL


def check_whole(folder: Path) -> Run:
    """The run, gone on from where it is: one line a step, the model of the last checkpoint, nothing half made."""
    run = Run(folder, resume=True)
    steps = [record["step"] for record in LossLog(folder / "losses.jsonl").read()]
    assert steps == [*range(1, run.step + 1)] and run.losses == [float(n) for n in range(run.step)]
    weights = mo.weights.load(folder / "model.safetensors")
    last = run.checkpoints.read()
    for name, weight in run.model.state_dict().items():
        assert weight.numpy().tobytes() == weights[name].numpy().tobytes() == last.model[name].numpy().tobytes()
    assert not [path for path in folder.rglob("*") if path.suffix in (".tmp", ".old")]
    return run


def test_killed_at_random(folder: Path, session_seed: int) -> None:
    """Whatever the moment: the weights are those of as many steps as there are lines."""
    rng = random.Random(session_seed)
    start = Run(folder, resume=True).model.state_dict()["bias"].numpy().copy()
    for _ in range(8):
        child = Child(folder)
        child.step()
        time.sleep(rng.random() * 0.05)
        child.kill()
        run = check_whole(folder)
        grown = start
        for _ in range(run.step):
            grown = grown + np.float32(1)
        assert run.step and run.model.state_dict()["bias"].numpy().tobytes() == grown.tobytes()


def test_killed_between_the_checkpoint_and_the_model(folder: Path) -> None:
    """Also in the last step: the run is finished, and its model was the one before."""
    for _ in Run(folder, resume=True, steps=3).advance(2, check_every=0):
        pass
    old = (folder / "model.safetensors").read_bytes()

    def dies(run: Run) -> None:
        run.checkpoints.publish = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]

    assert Child(folder, each=dies).wait() == -signal.SIGKILL
    assert (folder / "model.safetensors").read_bytes() == old
    run = check_whole(folder)
    assert run.step == 3 == run.settings.steps and (folder / "model.safetensors").read_bytes() != old


# -- two at once -------------------------------------------------------------------------------------------------------
def test_a_second_trainer_is_told_of_the_first(folder: Path) -> None:
    """By its number; when it is dead, however it died, the folder is free."""
    def waits(run: Run) -> None:
        plain = run.train_step
        run.train_step = lambda ids: time.sleep(60) if run.step else plain(ids)  # type: ignore[assignment]

    child = Child(folder, 0, waits)
    child.step()
    with pytest.raises(FolderInUse, match=f"process {child.pid} is at work in .*run"):
        Run(folder, resume=True)
    with pytest.raises(FolderInUse, match=str(child.pid)):
        Run(folder, folder.parent / "text.txt", SMALL)
    child.kill()
    assert Run(folder, resume=True).step == 0 and LossLog(folder / "losses.jsonl").read() == []
    (folder / ".lock").write_text("99999999\n")  # what a dead one left
    assert Run(folder, resume=True).step == 0


def test_a_run_that_another_one_overtook(folder: Path) -> None:
    """Both were opened at step 0; the second would write over what the first made."""
    first, second = Run(folder, resume=True), Run(folder, resume=True)
    for _ in first.advance(2, check_every=0):
        with pytest.raises(FolderInUse, match=f"process {os.getpid()} is at work"):
            next(second.advance(2))
    with pytest.raises(FolderInUse, match="since this run was opened"):
        next(second.advance(2))
    with pytest.raises(FolderInUse, match="since this run was opened"):
        second.save()
    for _ in first.advance(3, check_every=0):
        pass
    assert check_whole(folder).step == 3


# -- what is found in a folder -----------------------------------------------------------------------------------------
def test_losses_that_were_left_half_written(folder: Path) -> None:
    for _ in Run(folder, resume=True).advance(3, check_every=0):
        pass
    log = folder / "losses.jsonl"
    good = log.read_bytes()
    lines = good.splitlines(keepends=True)
    later = b'{"step": 4, "loss": 1.0}\n{"step": 5, "loss": 1.0}\n'
    for damaged in (good + b'{"step": 4, "lo', good + lines[0], b"", b"\n" + b"".join(lines[1:]), good[:-5],
                    good + later, b"[1]\nnull\n" + good + b"\xff\xfe"):
        log.write_bytes(damaged)
        assert check_whole(folder).step == 3
    assert json.loads(log.read_text().splitlines()[1])["loss"] == 1.0


def test_a_checkpoint_that_was_being_replaced_is_put_back(folder: Path) -> None:
    """Killed between moving the old one aside and the new one in."""
    for _ in Run(folder, resume=True, keep=1).advance(2, check_every=0):
        pass
    kept = mo.models.Checkpoints(folder / "checkpoints")
    os.rename(kept.path(2), folder / "checkpoints" / ".step-00000002.abcdef.old")
    (folder / "checkpoints" / ".step-00000002.123456.tmp").mkdir()
    assert kept.steps() == [] and kept.read().numbers["step"] == 2
    os.rename(kept.path(2), folder / "checkpoints" / ".step-00000002.abcdef.old")
    assert check_whole(folder).step == 2
    model, rule = mo.nn.Linear(2, 2), mo.optim.SGD(mo.nn.Linear(2, 2).parameters(), lr=0.1)
    kept.write(2, model, rule, {"step": 2, "losses": [7.0]})
    assert kept.read().numbers["losses"] == [7.0] and kept.steps() == [2]


def test_beginning_where_others_began(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    mo.weights.save(folder / "start.safetensors", {name: tensor * 0 + 5 for name, tensor
                                                   in mo.nn.Linear(2, 2).state_dict().items()})
    assert (Run(folder, resume=True).model.state_dict()["bias"].numpy() == 5).all()  # killed before its first step
    (folder / "losses.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    again = Run(folder, text, replace(SMALL, steps=2))
    assert not (again.model.state_dict()["bias"].numpy() == 5).any() and not (folder / "losses.jsonl").exists()
    mo.weights.save(tmp_path / "other", mo.nn.Linear(2, 2).state_dict())
    with pytest.raises(ArgumentError, match="holds a model already"):
        Run(tmp_path / "other", text, SMALL)
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == [".lock", "model.safetensors"]


@pytest.mark.parametrize(("name", "content"), [
    ("run.json", "nothing"), ("run.json", "[]"), ("run.json", "{}"), ("run.json", '{"settings": {"layers": "x"}}'),
    ("run.json", '{"settings": {"colour": 1}}'), ("run.json", "[" * 100_000), ("config.json", "nothing"),
    ("tokens.bin", ""), ("checkpoints/step-00000001/run.json", "{}"),
    ("checkpoints/step-00000001/run.json", '{"format": 1, "numbers": {}, "count": 0, "groups": []}'),
])
def test_damaged_files_are_named(name: str, content: str, folder: Path) -> None:
    for _ in Run(folder, resume=True).advance(1, check_every=0):
        pass
    (folder / name).write_text(content)
    with pytest.raises((FileFault, ArgumentError)) as caught:
        Run(folder, resume=True)
    assert Path(name).name in str(caught.value) or "checkpoint" in str(caught.value)
