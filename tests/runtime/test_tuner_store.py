"""What the tuner found, as a file: whole or not at all, for its owner, for this machine."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, ValueFault
from morpho.cost.tuned_choices import Choice
from morpho.runtime import thresholds
from morpho.runtime.tuner import store
from morpho.runtime.tuner.store import Row, Table


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with mo.settings(cache_dir=str(tmp_path / "cache")):
        yield tmp_path
    store._kept.cache_clear()
    thresholds.tuned_anew()


ROWS = {"matmul float32 1x64x64x64 given t2 avx512": Row(Choice(height=4, threads="one"), 1.25, 40),
        "loop exp float32 300x4096 t2 avx512": Row(Choice(threads="many"), 1.5, 20)}


def test_what_is_kept_is_read_again_by_its_owner_alone(folder: Path) -> None:
    store.keep(ROWS)
    assert stat.S_IMODE(store.path().stat().st_mode) == 0o600
    store._kept.cache_clear()
    assert store.kept().rows == ROWS
    thresholds.tuned_anew()
    assert thresholds.current().choices.get(next(iter(ROWS))).height == 4
    with mo.settings(tune="off"):
        assert not thresholds.current().choices.rows
    store.keep({}, {next(iter(ROWS))})
    assert list(store.kept().rows) == list(ROWS)[1:]
    store.forget()
    assert not store.kept().rows


@pytest.mark.parametrize("damage", [
    lambda text: text[:-20], lambda text: text.replace("1.25", "1.26"), lambda text: "[]", lambda text: "",
    lambda text: "[" * 100_000,
    lambda text: text.replace('"one"', '"two"'), lambda text: text.replace("tuned choices 1", "tuned choices 9")])
def test_a_damaged_file_is_refused_and_left_alone(folder: Path, damage, caplog: pytest.LogCaptureFixture) -> None:
    store.keep(ROWS)
    store.path().write_text(damage(store.path().read_text()))
    with pytest.raises(ValueFault, match=r"tuned\.json"):
        store.read_file(store.path())
    store._kept.cache_clear()
    assert not store.kept().rows
    assert "the defaults are used" in caplog.text


@pytest.mark.parametrize("row", [{"tile_rows": -8}, {"tile_rows": True}, {"threads": "three"}, {"unknown": 1},
                                 {"way": "x" * 200}, {"tile_rows": 1 << 40}, "text"])
def test_odd_rows_with_a_right_checksum_are_refused(folder: Path, row: object) -> None:
    content = {"format": store.FORMAT, "fingerprint": store.fingerprint(),
               "choices": {"key": {"choice": row, "gain": 1.2, "pairs": 3}}}
    text = json.dumps({**content, "checksum": store._checksum(content)})
    with pytest.raises(ValueFault, match="odd row"):
        store.parsed(text, "a file")


def test_export_and_import(folder: Path) -> None:
    file = folder / "choices.json"
    with pytest.raises(ArgumentError, match="no choice is kept"):
        store.export(file)
    store.keep(ROWS)
    assert store.export(file) == 2
    store.forget()
    assert store.take(file) == 2 and store.kept().rows == ROWS


def test_choices_of_another_machine_need_force(folder: Path) -> None:
    file = folder / "choices.json"
    store.write_file(file, Table({**store.fingerprint(), "cpu": "another"}, ROWS))
    with pytest.raises(ArgumentError, match="another machine or version: its cpu is 'another'"):
        store.take(file)
    assert not store.kept().rows
    assert store.take(file, force=True) == 2 and store.kept().rows == ROWS


def test_choices_of_another_version_are_not_used(folder: Path) -> None:
    store.path().parent.mkdir(parents=True)
    store.write_file(store.path(), Table({**store.fingerprint(), "version": "0.0.0"}, ROWS))
    assert not store.kept().rows


def test_without_a_cache_choices_live_in_memory(folder: Path) -> None:
    with mo.settings(cache=False):
        store.keep(ROWS)
        assert store.kept().rows == ROWS and not store.path().exists()
        store.keep({}, set(ROWS))
