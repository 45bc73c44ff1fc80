"""`morpho train` and `morpho run` as commands."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

import morpho as mo
from morpho.cli.main import app
from morpho.cli.train import loss_curve
from morpho.models import training

TINY = ["--layers", "1", "--width", "16", "--heads", "2", "--vocabulary", "270", "--context", "16", "--batch", "2",
        "--steps", "6", "--warmup", "1", "--seed", "1"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("Once upon a time there was a cat, and the cat was fat. " * 60, encoding="utf-8")
    return path


def call(*words: str) -> str:
    found = CliRunner().invoke(app, [*words])
    assert found.exit_code == 0, found.output
    return found.output


def test_train_then_run(text: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "model")
    said = call("train", "--data", str(text), "--out", out, *TINY, "--until", "3", "--sample-every", "2")
    assert "saved at step 3" in said and "parameters" in said
    assert "done: morpho run" in call("train", "--out", out, "--resume")
    assert "finished" in call("train", "--out", out, "--resume")
    once = call("run", out, "Once", "--tokens", "4", "--seed", "5")
    assert once.startswith("Once") and "tokens/s" in once and "seed 5" in once
    assert once.split("[")[0] == call("run", out, "Once", "--tokens", "4", "--seed", "5").split("[")[0]


def test_a_resumed_run_keeps_its_habits(text: Path, tmp_path: Path) -> None:
    """Samples, checkpoints and how many of them are kept go on as they were, unless asked for anew."""
    out = tmp_path / "model"
    said = call("train", "--data", str(text), "--out", str(out), *TINY, "--until", "2", "--sample-every", "1",
                "--save-every", "1", "--keep", "2")
    assert said.count("a sample:") == 2
    said = call("train", "--out", str(out), "--resume", "--until", "4")
    assert said.count("a sample:") == 2 and len(list((out / "checkpoints").iterdir())) == 2
    assert "a sample:" not in call("train", "--out", str(out), "--resume", "--sample-every", "0")
    (out / "habits.json").write_text("nothing", encoding="utf-8")
    with pytest.raises(mo.errors.MorphoError, match="at step 6 already"):
        CliRunner().invoke(app, ["train", "--out", str(out), "--resume", "--steps", "5"], catch_exceptions=False)
    assert "--steps 12" in call("train", "--out", str(out), "--resume")


def test_the_model_that_ships_writes(tmp_path: Path) -> None:
    said = call("run", "In the beginning", "--tokens", "8", "--temperature", "0")
    assert said.startswith("In the beginning") and "[8 tokens" in said


def test_interrupting_saves(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a step: the step ends, and the run is saved."""
    plain, before = training.Run.batch, signal.getsignal(signal.SIGINT)

    def batch(self: training.Run, step: int) -> object:
        if step == 2:
            signal.raise_signal(signal.SIGINT)
        return plain(self, step)

    monkeypatch.setattr(training.Run, "batch", batch)
    said = call("train", "--data", str(text), "--out", str(tmp_path / "model"), *TINY)
    assert "stopping after this step" in said and "saved at step 3" in said
    assert signal.getsignal(signal.SIGINT) is before


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    from morpho.base.errors import MorphoError

    for words, reason in ((["train", "--out", str(tmp_path / "a")], "needs a text"),
                          (["run", "no-such-model", "Once"], "no-such-model"),
                          (["run", ""], "empty")):
        found = CliRunner().invoke(app, words)
        assert isinstance(found.exception, MorphoError) and reason in str(found.exception), found.output
    assert CliRunner().invoke(app, ["run", "a", "b", "c"]).exit_code == 2
    assert CliRunner().invoke(app, ["run", "Once", "--seed", "-1"]).exit_code == 2


def test_options_that_would_be_ignored_are_refused(text: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "model")
    call("train", "--data", str(text), "--out", out, *TINY)
    for words in (["--resume", "--layers", "2"], ["--resume", "--data", str(text)], ["--resume", "--lr", "1"]):
        found = CliRunner().invoke(app, ["train", "--out", out, *words])
        assert found.exit_code == 2 and "belongs to a new run" in " ".join(found.output.split()).replace("│ ", "")
    found = CliRunner().invoke(app, ["train", "--out", out + "2", "--data", str(text), "--start", out, "--width", "8"])
    assert found.exit_code == 2
    assert "done" in call("train", "--out", out, "--resume", "--steps", "8")
    assert training.Run(out, resume=True).settings.steps == 8


def test_a_model_without_a_prompt_and_a_full_context(text: Path, tmp_path: Path) -> None:
    from morpho.base.errors import MorphoError

    out = str(tmp_path / "model")
    call("train", "--data", str(text), "--out", out, *TINY)
    found = CliRunner().invoke(app, ["run", out])
    assert isinstance(found.exception, MorphoError) and "there is no prompt" in str(found.exception)
    found = CliRunner().invoke(app, ["run", out, "Once", "--chat"])
    assert isinstance(found.exception, MorphoError) and "chat template" in str(found.exception)
    assert "the context of 16 tokens is full" in call("run", out, "Once", "--tokens", "50", "--seed", "3")


def test_the_curve_shows_first_and_last() -> None:
    assert loss_curve([]) == ""
    lines = loss_curve([4.0, 3.0, 2.0, 1.0]).splitlines()
    assert lines[0].strip().startswith("4.000") and lines[-2].strip().startswith("1.000") and lines[-1].endswith("4")
