"""Training runs: resumed to the same bits, killed at any moment without losing a checkpoint."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.models.training import Run, Settings, read_text
from morpho.weights import FileFault, MissingFile

TEXT = "In the beginning was the word, and the word was with the cat, and the cat sat on the mat. " * 60
SMALL = Settings(layers=1, width=16, heads=2, vocabulary=270, context=16, batch=2, steps=12, warmup=2, dropout=0.1,
                 seed=3)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def bits(run: Run) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in run.model.state_dict().items()}


def finish(run: Run, **options: int) -> Run:
    for _ in run.advance(check_every=0, **options):
        pass
    return run


def test_a_resumed_run_has_the_bits_of_one_never_stopped(text: Path, tmp_path: Path) -> None:
    whole = finish(Run(tmp_path / "whole", text, SMALL), save_every=0)
    half = Run(tmp_path / "half", text, SMALL)
    for _ in half.advance(7, save_every=5, check_every=0):
        pass
    again = finish(Run(tmp_path / "half", resume=True), save_every=0)
    assert again.step == SMALL.steps and bits(again) == bits(whole) and again.losses == whole.losses
    with mo.settings(threads=1):
        alone = finish(Run(tmp_path / "alone", text, SMALL), save_every=0)
    assert bits(alone) == bits(whole)
    assert whole._ordered.gradients.stats["recompiles"] == 0


def test_the_loss_falls_and_the_folder_is_a_model(text: Path, tmp_path: Path) -> None:
    run = finish(Run(tmp_path / "run", text, replace(SMALL, steps=60, lr=1e-2, dropout=0.0)), save_every=0)
    assert np.mean(run.losses[-5:]) < 0.6 * np.mean(run.losses[:5])
    model, tokenizer = mo.models.load_with_tokenizer(tmp_path / "run")
    ids = tokenizer.encode("In the")
    made = [[*mo.models.generate(one, ids, max_new_tokens=3)] for one in (model, run.model)]
    assert made[0] == made[1]
    assert run.held_out_loss() is not None and isinstance(run.sample("In the", tokens=4), str)
    lines = (tmp_path / "run" / "losses.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [*range(1, 61)]


def test_accumulating_equals_a_larger_batch(text: Path, tmp_path: Path) -> None:
    """To rounding: the mean over four windows, or over two times two."""
    settings = replace(SMALL, steps=3, dropout=0.0, batch=4)
    one = finish(Run(tmp_path / "one", text, settings), save_every=0)
    two = finish(Run(tmp_path / "two", text, replace(settings, batch=2, accumulate=2)), save_every=0)
    np.testing.assert_allclose(one.losses, two.losses, rtol=1e-4)
    for name, tensor in one.model.state_dict().items():
        np.testing.assert_allclose(tensor.numpy(), two.model.state_dict()[name].numpy(), atol=2e-3)


def test_fine_tuning_begins_from_another_model(text: Path, tmp_path: Path) -> None:
    first = finish(Run(tmp_path / "first", text, replace(SMALL, steps=4)), save_every=0)
    second = Run(tmp_path / "second", text, replace(SMALL, steps=2, seed=9), start=tmp_path / "first")
    assert bits(second) == bits(first)
    finish(second, save_every=0)
    assert bits(second) != bits(first)


def test_fine_tuning_keeps_within_the_context_of_the_model(text: Path, tmp_path: Path) -> None:
    """A model of 16 positions is not asked for 64, whatever the settings say."""
    finish(Run(tmp_path / "first", text, replace(SMALL, steps=1)), save_every=0)
    second = finish(Run(tmp_path / "second", text, replace(SMALL, steps=1, context=64), start=tmp_path / "first"))
    assert second.settings.context == 16 and len(second.losses) == 1
    bert = mo.models.create("bert-base", vocab_size=270, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                            intermediate_size=8, max_position_embeddings=16)
    mo.models.save(tmp_path / "bert", bert)
    with pytest.raises(ArgumentError, match="Bert, which makes no text"):
        Run(tmp_path / "third", text, SMALL, start=tmp_path / "bert")
    assert not (tmp_path / "third").exists()  # a run that was not begun leaves nothing


@pytest.mark.parametrize("change", [{"heads": 3}, {"vocabulary": 100}, {"steps": 0}, {"lr": 0.0}, {"kv_heads": 3}])
def test_bad_settings_are_named(change: dict[str, float], text: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="train"):
        Run(tmp_path / "run", text, replace(SMALL, **change))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_bad_folders_and_texts(text: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="no run to resume"):
        Run(tmp_path / "nothing", resume=True)
    with pytest.raises(MissingFile, match="no text file"):
        read_text(tmp_path / "none.txt")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArgumentError, match="UTF-8"):
        read_text(tmp_path / "bytes.txt")
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(ArgumentError, match="is empty"):
        read_text(tmp_path / "empty.txt")
    with pytest.raises(ArgumentError, match="cannot be a folder"):
        Run(text, text, SMALL)
    with pytest.raises(ArgumentError, match="too few"):
        Run(tmp_path / "short", text, replace(SMALL, context=100_000))
    finish(Run(tmp_path / "run", text, replace(SMALL, steps=2)))
    with pytest.raises(ArgumentError, match="holds a run already"):
        Run(tmp_path / "run", text, SMALL)
    newest = Run(tmp_path / "run", resume=True).checkpoints
    (newest.path(2) / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(FileFault, match=r"model\.safetensors does not have the checksum.*there is no whole one before"):
        Run(tmp_path / "run", resume=True)


def test_a_flipped_bit_is_refused_by_name(tmp_path: Path, rng: np.random.Generator,
                                          caplog: pytest.LogCaptureFixture) -> None:
    """Any bit of any file; the error says which checkpoint is whole. One of an earlier version loads with a warning."""
    kept, layer = mo.models.Checkpoints(tmp_path), mo.nn.Linear(2, 2)
    rule = mo.optim.AdamW(layer.parameters(), lr=0.1)
    for step in (1, 2, 3):
        kept.write(step, layer, rule, {"step": step, "losses": [1 / 3]})
    for name in ("run.json", "model.safetensors", "optimiser.safetensors"):
        path = kept.path(3) / name
        whole = path.read_bytes()
        for place in rng.integers(0, len(whole), 12):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << int(rng.integers(8))]) + whole[place + 1:])
            with pytest.raises(FileFault, match=r"step-00000003 cannot be read.*remove step-00000003 to go on from"):
                kept.read()
        path.write_bytes(whole)
    for step in (2, 3):
        (kept.path(step) / "model.safetensors").write_bytes(b"")
    with pytest.raises(FileFault, match=r"model\.safetensors.*remove step-00000002, step-00000003 to go on from"):
        kept.read()
    text = json.loads((kept.path(1) / "run.json").read_text())
    del text["sha256"], text["self"]
    (kept.path(1) / "run.json").write_text(json.dumps(text))
    assert [kept.read(1).numbers["step"] for _ in range(2)] == [1, 1]
    assert [record.message.partition(" is of ")[2][:44] for record in caplog.records] == [
        "an earlier version and has no checksums: whe"]


def test_only_the_last_checkpoints_are_kept(text: Path, tmp_path: Path) -> None:
    run = finish(Run(tmp_path / "run", text, replace(SMALL, steps=8), keep=2), save_every=2)
    assert run.checkpoints.steps() == [6, 8]


PROGRAM = """
import sys
from morpho.models.training import Run
run = Run(sys.argv[1], resume=True)
for _ in run.advance(save_every=1, check_every=0):
    print(run.step, flush=True)
"""


def test_a_killed_run_leaves_readable_checkpoints(text: Path, tmp_path: Path, session_seed: int) -> None:
    """kill -9 at random moments of a run that saves at every step; then it goes on to the bits of one never killed."""
    rng = random.Random(session_seed)
    settings = replace(SMALL, steps=40)
    whole = finish(Run(tmp_path / "whole", text, settings), save_every=0)
    Run(tmp_path / "run", text, settings)
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path / "run")], stdout=subprocess.PIPE,
                                   env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, text=True)
        assert process.stdout is not None
        process.stdout.readline()  # it is in the loop
        time.sleep(rng.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = Run(tmp_path / "run", resume=True)
        assert found.step == found.checkpoints.steps()[-1] >= 1
    assert bits(finish(Run(tmp_path / "run", resume=True), save_every=0)) == bits(whole)


@pytest.mark.parametrize("sizes", [{"batch": 999_999_999}, {"layers": 99_999_999}, {"width": 2_000_000}])
def test_what_no_memory_holds_is_refused_before_it_is_taken(sizes: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=r"\[train\] batch=.* GB of memory at least, and .* GB are there"):
        Settings(**sizes).check()
    with pytest.raises(ArgumentError, match="lr=inf is not a positive number"):
        Settings(lr=float("inf")).check()
