"""The tally of a folder with many files: nobody lists it while there is surely room, and the limit holds after all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from morpho.runtime.code_cache import disk
from morpho.runtime.code_cache.disk import HEADER, DiskCache
from morpho.runtime.code_cache.tally import MOST_BYTES, NAME, Tally

SIZE = 100 + HEADER.size


def key(number: int) -> str:
    return f"{number:032x}"


def listings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    calls: list[object] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: calls.append(path) or scandir(path))
    return calls


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty files, which count as many."""
    monkeypatch.setattr(disk, "MANY_FILES", 10)
    for number in range(20):  # each by another process: from the tenth on there is a tally
        assert DiskCache(tmp_path / "code", 30 * SIZE).put(key(number), b"x" * 100)
    return tmp_path / "code"


def test_a_folder_with_room_is_not_listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = listings(monkeypatch)
    cache = DiskCache(folder, 30 * SIZE)
    assert cache.put(key(100), b"y" * 100) and cache.get(key(100)) == b"y" * 100 and not calls
    assert Tally(folder).read() == 21 * SIZE
    assert cache.stats()["entries"] == 21 and len(calls) == 1


def test_the_limit_holds_whatever_processes_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = listings(monkeypatch)
    for number in range(100, 160):
        assert DiskCache(folder, 30 * SIZE).put(key(number), b"y" * 100)
        assert sum((folder / name).stat().st_size for name in os.listdir(folder) if name != NAME) <= 30 * SIZE
    assert 50 <= len(calls) < 60  # the ten that surely fitted were not listed for


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 8, b"\0" * (MOST_BYTES + 8)], ids=len)
def test_a_tally_that_makes_no_sense_is_not_trusted(folder: Path, content: bytes,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / NAME).write_bytes(content)
    calls = listings(monkeypatch)
    assert DiskCache(folder, 30 * SIZE).put(key(100), b"y" * 100)
    assert len(calls) == 1 and Tally(folder).read() == 21 * SIZE


def test_a_tally_of_others_is_not_read(folder: Path, tmp_path: Path) -> None:
    (folder / NAME).chmod(0o622)
    assert Tally(folder).read() is None
    (folder / NAME).unlink()
    (tmp_path / "elsewhere").write_bytes(b"\0" * 8)
    (folder / NAME).symlink_to(tmp_path / "elsewhere")
    assert Tally(folder).read() is None
    Tally(folder).add(5)
    assert (tmp_path / "elsewhere").read_bytes() == b"\0" * 8


def test_an_emptied_cache_has_none(folder: Path) -> None:
    assert (folder / NAME).exists()
    DiskCache(folder, 30 * SIZE).clear()
    assert not list(folder.iterdir())
