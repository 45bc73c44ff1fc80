"""Compiled code on disk: shared by processes, made again when damaged, done without where it cannot be written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from subprograms import run, start

import morpho as mo
from morpho.backends.code.compiler import code
from morpho.base.machine import available_isas, machine

PROGRAM = """
    import logging; logging.basicConfig(format="%(message)s")
    from morpho.backends.code.compiler import code
    x = mo.asarray(np.linspace(-1, 1, 50, dtype=np.float32))
    first = (mo.exp(x) * 3 + 1).sum(axis=0).item()
    second = mo.compile(lambda x: mo.tanh(x) - x)(x).numpy().tobytes().hex()
    third = float(mo.softmax(x).max())
    print(first, second, third, code.counters.compiled, code.counters.disk_hits)
"""


def values(printed: str) -> list[str]:
    return printed.split()[:3]


def counts(printed: str) -> tuple[int, int]:
    """Modules compiled, modules taken from disk."""
    return int(printed.split()[3]), int(printed.split()[4])


def test_four_processes_with_one_empty_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    started = [start(PROGRAM, MORPHO_CACHE_DIR=folder) for _ in range(4)]
    printed = []
    for process in started:
        text, said = process.communicate(timeout=60)
        assert process.returncode == 0 and not said.strip(), said
        printed.append(text)
    assert len({tuple(values(text)) for text in printed}) == 1
    again, said = run(PROGRAM, MORPHO_CACHE_DIR=folder)
    assert counts(again)[0] == 0 and counts(again)[1] >= 3 and values(again) == values(printed[0]) and not said
    assert not [name for name in os.listdir(folder) if name.startswith(".")]  # no temporary files are left


def test_damaged_files_are_made_again_and_said_once(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    good, _ = run(PROGRAM, MORPHO_CACHE_DIR=str(folder))
    files = sorted(folder.iterdir())
    assert len(files) >= 3
    for number, file in enumerate(files):
        content = bytearray(file.read_bytes())
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 1
        file.write_bytes((bytes(flipped), bytes(content[:-7]), b"", os.urandom(500))[number % 4])
    printed, said = run(PROGRAM, MORPHO_CACHE_DIR=str(folder))
    assert values(printed) == values(good)
    assert counts(printed) == (counts(good)[0], 0)
    assert said.count("[disk cache]") == 1 and "made again" in said
    assert counts(run(PROGRAM, MORPHO_CACHE_DIR=str(folder))[0])[0] == 0


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX owners")
def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    """A file in its place stands for a read-only disk too, which does not stop root."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    folders = (blocked, blocked / "below", open_to_all, Path("/proc/morpho-cannot-be-made"))
    for process in [start(PROGRAM, MORPHO_CACHE_DIR=str(folder)) for folder in folders]:
        printed, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert counts(printed)[0] >= 3 and counts(printed)[1] == 0
        assert said.count("[disk cache]") == 1, said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk(tmp_path: Path) -> None:
    """Writes fail as on a full disk: it works, and says so once."""
    printed, said = run("""
    import errno, tempfile
    real = tempfile.mkstemp
    def full(*arguments, **named):
        handle, path = real(*arguments, **named)
        os.close(handle)
        return os.open("/dev/full", os.O_WRONLY), path
    tempfile.mkstemp = full
    """ + PROGRAM, MORPHO_CACHE_DIR=None, XDG_CACHE_HOME=None, HOME=str(tmp_path))
    assert counts(printed)[0] >= 3
    assert said.count("[disk cache]") == 1 and "space" in said.lower()


def test_switched_off(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    printed, said = run(PROGRAM, MORPHO_CACHE_DIR=str(folder), MORPHO_CACHE="0")
    assert counts(printed)[0] >= 3 and not folder.exists() and not said


def test_memory_before_disk() -> None:
    x = mo.asarray(np.ones(11, np.float32))
    (mo.exp(x) * 7.25).numpy()
    before = code.counters.snapshot()
    (mo.exp(mo.asarray(np.ones(12, np.float32))) * 7.25).numpy()  # another length is the same kernel
    after = code.counters.snapshot()
    assert after["compiled"] == before["compiled"] and after["disk_hits"] == before["disk_hits"]
    assert after["memory_hits"] > before["memory_hits"]


def test_every_instruction_set_gives_the_same_bits() -> None:
    started = [start(PROGRAM, MORPHO_ISA=isa) for isa in ("native", "scalar", "vector128", "vector512")]
    printed = [process.communicate(timeout=60)[0] for process in started]
    assert len({tuple(values(text)) for text in printed}) == 1


def test_an_instruction_set_this_machine_lacks() -> None:
    missing = next(name for name in ("amx", "avx2", "neon") if name not in available_isas(machine()))
    printed, _ = run("""
    from morpho.base.errors import DeviceError
    try:
        (mo.ones(3) + 1).numpy()
    except DeviceError as error:
        print(error)
    with mo.settings(isa="native"):
        print((mo.ones(3) + 1).tolist())
    """, MORPHO_ISA=missing)
    first, second = printed.splitlines()
    assert first.startswith("[isa]") and missing in first and "Hint: use isa=native" in first
    assert second == "[2.0, 2.0, 2.0]"
    with mo.settings(isa="sparc"), pytest.raises(TypeError, match="'sparc' is unknown"):
        (mo.ones(3) + 1).numpy()


def test_the_source_is_read_once_and_then_known_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = code._sources
    read: list[str] = []

    def opened(path: str, mode: str) -> Any:
        read.append(path)
        return open(path, mode)

    monkeypatch.setattr(code, "open", opened, raising=False)
    with mo.settings(cache_dir=str(tmp_path)):
        found = []
        for _ in range(2):
            code.source_digest.cache_clear()
            found.append((code.source_digest(), len(read)))
        assert found[0] == found[1] and len(read) > 100  # the second time nothing is read
        monkeypatch.setattr(code, "_sources", lambda folder: ((p, s, t + 1) for p, s, t in plain(folder)))
        code.source_digest.cache_clear()
        assert code.source_digest() == found[0][0] and len(read) == 2 * found[0][1]  # touched, but the same
    code.source_digest.cache_clear()
