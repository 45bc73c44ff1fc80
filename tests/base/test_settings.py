"""Settings: from the environment, for a block, and refused in words where they are wrong."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import morpho as mo
from morpho.base import settings
from morpho.base.errors import ArgumentError
from morpho.base.machine import ISAS
from morpho.base.settings import Settings, describe, from_environment


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in fields(Settings):
        monkeypatch.delenv(f"MORPHO_{field.name.upper()}", raising=False)


def test_every_setting_is_described() -> None:
    assert set(describe) == {field.name for field in fields(Settings)}
    assert all(describe.values())


@pytest.mark.parametrize(("name", "text", "value"), [
    ("THREADS", "3", 3), ("LEVEL", "0", 0), ("CACHE", "0", False), ("CACHE", "Yes", True), ("CACHE", "off", False),
    ("ISA", "scalar", "scalar"),
    ("CACHE_DIR", "/somewhere", "/somewhere"), ("PASSES_OFF", "fuse,cse", "fuse,cse"), ("POOL_BYTES", "1000", 1000),
    ("DEVICE", "reference", "reference")])
def test_the_environment(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object) -> None:
    monkeypatch.setenv(f"MORPHO_{name}", text)
    assert getattr(from_environment(), name.lower()) == value


@pytest.mark.parametrize(("name", "text", "said"), [
    ("THREADS", "two", "MORPHO_THREADS='two' is not a valid int"), ("THREADS", "-1", "cannot be negative"),
    ("LEVEL", "9", "not one of 0, 1, 2, 3"), ("CACHE", "maybe", "MORPHO_CACHE='maybe'"),
    ("LEVEL", "", "not a valid int"),
    ("DEVICE", "tpu", "device 'tpu' is unknown"), ("THREDS", "2", "MORPHO_THREDS is unknown"),
    ("LOG", "loud", "log 'loud' is unknown")])
def test_mistakes_in_the_environment(monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str) -> None:
    monkeypatch.setenv(f"MORPHO_{name}", text)
    with pytest.raises(ArgumentError, match=said):
        from_environment()


def test_a_mistake_in_the_environment_ends_a_program_in_words() -> None:
    import os

    done = subprocess.run([sys.executable, "-c", "import morpho as mo; (mo.ones(3) + 1).numpy()"], text=True,
                          capture_output=True, env={**os.environ, "MORPHO_LEVEL": "high"})
    assert done.returncode == 1 and "[settings] MORPHO_LEVEL='high' is not a valid int" in done.stderr


def test_blocks_nest_and_end() -> None:
    before = settings.get()
    with mo.settings(threads=3) as outer:
        assert outer.threads == 3 and settings.get() is outer
        with mo.settings(level=1):
            assert (settings.get().threads, settings.get().level) == (3, 1)
        assert settings.get() is outer
        with pytest.raises(KeyError), mo.settings(level=0):
            raise KeyError
        assert settings.get() is outer
    assert settings.get() is before


@pytest.mark.parametrize("changes", [{"threads": "two"}, {"threads": True}, {"threads": 1.5}, {"cache": 3},
                                     {"passes_off": ["fuse"]}, {"level": None}, {"threads": -1}, {"colour": "blue"}])
def test_wrong_blocks(changes: dict) -> None:
    before = settings.get()
    with pytest.raises(ArgumentError, match=r"\[settings\].*test_settings.py:"):
        mo.settings(**changes)
    assert settings.get() is before


def test_whoever_asked_is_told() -> None:
    told: list[int] = []
    settings.changed.append(lambda: told.append(settings.get().level))
    try:
        with mo.settings(level=1):
            assert told == [1]
        assert told == [1, settings.get().level]
    finally:
        settings.changed.pop()


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(cache_dir="/a/b").cache_path == Path("/a/b")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert Settings().cache_path == Path("/x/morpho")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert Settings().cache_path == Path("/home/someone/.cache/morpho")


def test_every_instruction_set_is_described() -> None:
    plain = describe["isa"].replace("vector128/256/512", "vector128, vector256, vector512")
    assert [name for name in ISAS if name not in plain] == []


def test_unknown_passes_and_instruction_sets() -> None:
    with mo.settings(passes_off="fuse,magic"), pytest.raises(ArgumentError, match=r"\['magic'\].*the passes are"):
        (mo.ones(3) + 1).numpy()
    with mo.settings(isa="magic"), pytest.raises(ArgumentError, match="'magic' is unknown"):
        (mo.ones(3) + 1).numpy()
    assert (mo.ones(3) + 1).tolist() == [2, 2, 2]


def test_log_says_what_is_said(caplog: pytest.LogCaptureFixture) -> None:
    import logging

    logger = logging.getLogger("morpho")
    for chosen, wanted in (("error", ["error"]), ("warning", ["warning", "error"]),
                           ("debug", ["debug", "info", "warning", "error"])):
        caplog.clear()
        with mo.settings(log=chosen):
            for severity in ("debug", "info", "warning", "error"):
                getattr(logger, severity)(severity)
        assert [record.message for record in caplog.records] == wanted


def test_switches_are_0_and_1_too() -> None:
    with mo.settings(cache=0, co_schedule=1):
        chosen = settings.get()
        assert chosen.cache is False and chosen.co_schedule is True
    with pytest.raises(ArgumentError, match="cache=2 is not of type bool"):
        mo.settings(cache=2)
    with pytest.raises(ArgumentError, match="threads=True is not of type int"):
        mo.settings(threads=True)
