"""The cache on disk: what it trusts, what it survives, what it removes."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from callers import together
from hypothesis import given, settings
from hypothesis import strategies as st

from morpho.base.errors import ValueFault
from morpho.runtime.code_cache import disk, policy
from morpho.runtime.code_cache.disk import HEADER, SUFFIX, DiskCache

KEY = "00112233445566778899aabbccddeeff"
SOURCE = Path(disk.__file__).resolve().parents[2]


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "morpho"


@pytest.fixture
def warnings() -> Iterator[list[logging.LogRecord]]:
    """What was said through the logger `morpho`."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("morpho")
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


def test_bytes_come_back_in_this_and_another_object(folder: Path) -> None:
    cache = DiskCache(folder, 10_000)
    assert cache.get(KEY) is None and not folder.exists()
    assert cache.put(KEY, b"payload")
    assert cache.get(KEY) == b"payload"
    assert DiskCache(folder, 10_000).get(KEY) == b"payload"
    assert cache.put(KEY, b"")
    assert cache.get(KEY) == b""
    stats = cache.stats()
    assert (stats["hits"], stats["misses"], stats["writes"], stats["entries"]) == (2, 1, 2, 1)
    assert stats["bytes"] == HEADER.size and stats["errors"] == stats["corrupt"] == 0


def test_folder_and_files_belong_to_the_owner_only(folder: Path) -> None:
    DiskCache(folder, 10_000).put(KEY, b"payload")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / (KEY + SUFFIX)).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == [KEY + SUFFIX]


@pytest.mark.parametrize("mode", (0o770, 0o707, 0o777))
def test_a_folder_others_can_write_to_is_refused(folder: Path, mode: int, warnings: list[logging.LogRecord]) -> None:
    DiskCache(folder, 10_000).put(KEY, b"payload")
    folder.chmod(mode)
    cache = DiskCache(folder, 10_000)
    assert cache.get(KEY) is None and not cache.put(KEY, b"other") and cache.get(KEY) is None
    assert len(warnings) == 1 and "others can write" in warnings[0].getMessage()
    assert cache.stats()["errors"] == 1 and cache.stats()["entries"] == 0


def test_a_folder_of_someone_else_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[logging.LogRecord]
) -> None:
    DiskCache(folder, 10_000).put(KEY, b"payload")
    monkeypatch.setattr(os, "geteuid", lambda: 123456)
    cache = DiskCache(folder, 10_000)
    assert cache.get(KEY) is None and not cache.put(KEY, b"other")
    assert len(warnings) == 1 and "another user" in warnings[0].getMessage()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path, warnings: list[logging.LogRecord]) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        cache = DiskCache(path, 10_000)
        assert not cache.put(KEY, b"payload") and cache.get(KEY) is None
    assert len(warnings) == 2


@pytest.mark.parametrize(
    "wrong", ("", "abc", "../" * 8 + "etc", "0" * 15, "0" * 129, "A" * 16, KEY + "\n", KEY + "/x", "0" * 15 + "\0")
)
def test_a_key_cannot_leave_the_folder(folder: Path, wrong: str) -> None:
    cache = DiskCache(folder, 10_000)
    for call in (lambda: cache.get(wrong), lambda: cache.put(wrong, b"payload")):
        with pytest.raises(ValueFault, match="hexadecimal"):
            call()
    assert not folder.exists()


def damage_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_long(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def damage_payload(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def damage_version(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8] += 1
    path.write_bytes(content)


def damage_foreign(path: Path) -> None:
    path.write_bytes(b"#!/bin/sh\n" * 20)


def damage_writable(path: Path) -> None:
    path.chmod(0o666)


def damage_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def damage_link(path: Path) -> None:
    outside = path.parent.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)


def damage_dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/at/all")


def damage_swapped(path: Path) -> None:
    other = DiskCache(path.parent, 10_000)
    other.put(key(1), b"code of another key")
    (path.parent / (key(1) + SUFFIX)).rename(path)


@pytest.mark.parametrize("damage", [value for name, value in sorted(globals().items()) if name.startswith("damage_")])
def test_a_damaged_file_is_removed_counted_and_said_once(folder: Path, damage, warnings) -> None:
    cache = DiskCache(folder, 10_000)
    path = folder / (KEY + SUFFIX)
    for count in (1, 2):
        assert cache.put(KEY, b"payload")
        damage(path)
        assert cache.get(KEY) is None
        assert not os.path.lexists(path)
        assert cache.stats()["corrupt"] == count
    assert len(warnings) == 1 and warnings[0].name == "morpho" and "removed" in warnings[0].getMessage()
    assert cache.stats()["entries"] == 0 and cache.stats()["bytes"] == 0
    if damage is damage_link:
        assert (folder.parent / "outside").exists()
    assert cache.put(KEY, b"again") and cache.get(KEY) == b"again"


def test_a_folder_in_place_of_a_file_is_survived(folder: Path, warnings: list[logging.LogRecord]) -> None:
    cache = DiskCache(folder, 10_000)
    cache.put(key(1), b"payload")
    (folder / (KEY + SUFFIX)).mkdir()
    assert cache.get(KEY) is None and cache.get(KEY) is None
    assert not cache.put(KEY, b"payload")
    assert cache.stats()["errors"] == 3 and cache.stats()["corrupt"] == 2 and len(warnings) == 3


@settings(max_examples=60, deadline=None)
@given(content=st.one_of(st.binary(max_size=120), st.binary(max_size=80).map(lambda tail: disk.MAGIC + tail)))
def test_no_content_is_believed(content: bytes) -> None:
    with pytest.raises(disk.Damaged):
        disk._verify(content, KEY)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=60), bit=st.integers(0, 10_000))
def test_every_flipped_bit_is_noticed(data: bytes, bit: int) -> None:
    header = HEADER.pack(disk.MAGIC, disk.VERSION, len(data), disk._digest(KEY, data))
    content = bytearray(header + data)
    assert disk._verify(bytes(content), KEY) == data
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    with pytest.raises(disk.Damaged):
        disk._verify(bytes(content), KEY)


@pytest.mark.parametrize("code", (errno.ENOSPC, errno.EROFS, errno.EACCES))
@pytest.mark.parametrize("where", ("replace", "mkstemp"))
def test_a_full_or_read_only_disk_is_said_once_and_survived(
    folder: Path, code: int, where: str, monkeypatch: pytest.MonkeyPatch, warnings: list[logging.LogRecord]
) -> None:
    cache = DiskCache(folder, 10_000)
    cache.put(key(1), b"payload")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os if where == "replace" else disk.tempfile, where, refuse)
        assert not cache.put(KEY, b"payload") and not cache.put(KEY, b"payload")
    assert len(warnings) == 1 and os.strerror(code) in warnings[0].getMessage()
    assert cache.stats()["errors"] == 2 and cache.stats()["entries"] == 1
    assert [path.name for path in folder.iterdir()] == [key(1) + SUFFIX]
    assert cache.get(key(1)) == b"payload"
    assert cache.put(KEY, b"payload")


def test_a_file_that_cannot_be_read_is_a_miss(
    folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[logging.LogRecord]
) -> None:
    cache = DiskCache(folder, 10_000)
    cache.put(KEY, b"payload")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert cache.get(KEY) is None and cache.get(KEY) is None
    assert len(warnings) == 1 and cache.stats()["errors"] == 2 and cache.stats()["corrupt"] == 0
    assert cache.get(KEY) == b"payload"


def test_a_folder_that_vanishes_is_made_again(folder: Path) -> None:
    cache = DiskCache(folder, 10_000)
    cache.put(KEY, b"payload")
    (folder / (KEY + SUFFIX)).unlink()
    folder.rmdir()
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"payload") and cache.get(KEY) == b"payload"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_was_asked_for_again_stays_through_a_scan(folder: Path) -> None:
    """S3-FIFO, as in memory: files that are written and never read leave before one that was read, however many."""
    each = HEADER.size + 100
    cache = DiskCache(folder, 8 * each)
    for number in range(8):
        assert cache.put(key(number), b"x" * 100)
    assert cache.get(key(0)) is not None and cache.get(key(5)) is not None
    for number in range(100, 200):
        assert cache.put(key(number), b"x" * 100)
    assert [number for number in range(8) if cache.get(key(number)) is not None] == [0, 5]
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 8 * each
    assert cache.stats()["evictions"] == 100 and cache.stats()["entries"] == 8


def test_a_large_stranger_has_to_ask_twice(folder: Path) -> None:
    each = HEADER.size + 100
    cache = DiskCache(folder, 8 * each)
    for number in range(8):
        assert cache.put(key(number), b"x" * 100)
    large = b"y" * (4 * each)
    assert not cache.put(KEY, large) and cache.stats()["entries"] == 8 and cache.stats()["evictions"] == 0
    assert cache.put(KEY, large) and cache.get(KEY) == large
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 8 * each


def test_an_eviction_looks_at_no_more_files_than_leave(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: the folder is not listed, nor a file looked at; the shelf counts its steps."""
    steps = []
    for entries in (50, 400):
        cache = DiskCache(folder / str(entries), entries * (HEADER.size + 10))
        for number in range(entries):
            cache.put(key(number), b"x" * 10)
        before = cache._shelf.steps
        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", lambda path: pytest.fail("listed"))
            for number in range(1000, 1040):
                assert cache.put(key(number), b"x" * 10)
        assert cache.stats()["evictions"] == 40
        steps.append(cache._shelf.steps - before)
    assert steps[0] == steps[1] == 40


@pytest.mark.parametrize("skew", (0.9, 1.1))
def test_files_hit_as_often_as_the_policy_does_in_memory(folder: Path, skew: float) -> None:
    """The same requests through files and through the bare policy: the same hits, so docs' table holds for both."""
    draws = np.random.default_rng(7)
    weights = 1 / np.arange(1, 201) ** skew
    trace = draws.choice(200, 1200, p=weights / weights.sum())
    cache = DiskCache(folder, 20 * (HEADER.size + 8))
    shelf: policy.Shelf[int, None] = policy.Shelf(20 * (HEADER.size + 8))
    hits = 0
    for number in trace.tolist():
        entry = shelf.entries.get(number)
        if entry is None:
            shelf.add(number, None, HEADER.size + 8)
        else:
            hits, entry.uses = hits + 1, min(entry.uses + 1, policy.MOST_USES)
        if cache.get(key(number)) is None:
            cache.put(key(number), b"x" * 8)
    assert cache.stats()["hits"] == hits > 300


def test_larger_than_the_limit_is_not_kept(folder: Path) -> None:
    cache = DiskCache(folder, 200)
    assert cache.put(KEY, b"x" * 100)
    assert not cache.put(key(1), b"x" * 200)
    assert cache.get(KEY) == b"x" * 100
    assert DiskCache(folder, 100).get(KEY) is None and cache.get(KEY) is not None


def test_replacing_a_file_counts_it_once(folder: Path) -> None:
    cache = DiskCache(folder, 500)
    cache.put(key(1), b"x" * 100)
    cache.put(KEY, b"x" * 100)
    for size in (200, 50, 290):
        assert cache.put(KEY, b"y" * size) and cache.get(KEY) == b"y" * size
        assert cache.stats()["bytes"] == sum(path.stat().st_size for path in folder.iterdir()) <= 500
    assert cache.put(key(1), b"z" * 400) and cache.get(key(1)) == b"z" * 400
    assert cache.stats()["bytes"] == sum(path.stat().st_size for path in folder.iterdir()) <= 500


def test_what_an_earlier_process_read_again_stays(folder: Path) -> None:
    """The use stands in the file's time of access, so that a new process knows which files were asked for."""
    each = HEADER.size + 100
    first = DiskCache(folder, 10 * each)
    for number in range(8):
        first.put(key(number), b"x" * 100)
        written = time.time() - 100_000 * (number + 1)
        os.utime(folder / (key(number) + SUFFIX), (written, written))
    (folder / "notes.txt").write_text("not ours")
    assert DiskCache(folder, 10 * each).get(key(6)) is not None
    second = DiskCache(folder, 6 * each)
    for number in range(10, 15):
        assert second.put(key(number), b"x" * 100)
    assert [number for number in range(8) if second.get(key(number)) is not None] == [6]
    assert (folder / "notes.txt").exists()


def test_a_use_is_noted_at_most_once_an_hour(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(folder, 10_000)
    cache.put(KEY, b"payload")
    path = folder / (KEY + SUFFIX)
    noted = []
    monkeypatch.setattr(disk, "_mark_asked_for", noted.append)
    now = time.time()
    for accessed, marks in ((now - 5000, 1), (now - 1000, 0), (now - 4000, 1)):
        noted.clear()
        os.utime(path, (accessed, now - 5000))
        assert cache.get(KEY) == b"payload" and len(noted) == marks
    monkeypatch.undo()
    os.utime(path, (now - 5000, now - 5000))
    assert cache.get(KEY) == b"payload"
    assert path.stat().st_atime > now - 10 and abs(path.stat().st_mtime - (now - 5000)) < 1


def test_the_folder_is_listed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DiskCache(folder, 10_000).put(KEY, b"payload")
    calls = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: calls.append(path) or scandir(path))
    cache = DiskCache(folder, 600)
    assert cache.get(KEY) == b"payload" and not calls
    for number in range(20):
        assert cache.put(key(number), b"x" * 50)
    assert len(calls) == 1 and cache.stats()["evictions"] > 10


def test_deletions_by_others_are_tolerated(folder: Path) -> None:
    cache = DiskCache(folder, 600)
    for number in range(3):
        cache.put(key(number), b"x" * 50)
    for path in folder.iterdir():
        path.unlink()
    for number in range(10, 20):
        assert cache.put(key(number), b"x" * 50)
    assert cache.get(key(0)) is None and cache.stats()["errors"] == 0


def test_temporary_files_of_dead_processes_are_removed(folder: Path) -> None:
    DiskCache(folder, 10_000).put(KEY, b"payload")
    old, young = folder / ".old.tmp", folder / ".young.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    DiskCache(folder, 10_000).put(key(1), b"payload")
    assert not old.exists() and young.exists()


def test_threads_share_one_object(folder: Path) -> None:
    cache = DiskCache(folder, 2000)
    wrong = []

    def work(start: int) -> None:
        for step in range(100):
            number = (start + step) % 30
            cache.put(key(number), payload(number))
            wrong.append(cache.get(key(number)) not in (None, payload(number)))

    together(work, 6)
    assert not any(wrong) and len(wrong) == 600
    assert cache.stats()["corrupt"] == cache.stats()["errors"] == 0
    assert sum(path.stat().st_size for path in folder.iterdir()) == cache.stats()["bytes"] <= 2000


def test_what_goes_while_it_is_read_is_not_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(folder, 400)
    cache.put(key(0), b"a" * 200)
    plain = cache._look
    monkeypatch.setattr(cache, "_look", lambda *given: (plain(*given), cache.put(key(1), b"b" * 200))[0])
    assert cache.get(key(0)) == b"a" * 200
    assert [path.stat().st_size for path in folder.iterdir()] == [cache.stats()["bytes"]]


def payload(number: int) -> bytes:
    return key(number).encode() * (1 + number % 5)


WORKER = """
import hashlib, sys
from pathlib import Path
from morpho.runtime.code_cache.disk import DiskCache
cache = DiskCache(Path(sys.argv[1]), 4000)
found = sum(cache.get(hashlib.sha256(str(number).encode()).hexdigest()) is not None for number in range(3))
print("ready", flush=True)
sys.stdin.readline()
for step in range(400):
    number = (int(sys.argv[2]) * 7 + step) % 40
    name = hashlib.sha256(str(number).encode()).hexdigest()
    data = cache.get(name)
    assert data in (None, name.encode() * (1 + number % 5)), number
    found += data is not None
    if data is None:
        assert cache.put(name, name.encode() * (1 + number % 5))
stats = cache.stats()
assert stats["corrupt"] == stats["errors"] == 0, stats
assert stats["bytes"] <= 4000, stats
print(found)
"""


def test_processes_share_one_folder(folder: Path) -> None:
    """Each reads what this process wrote; then all of them write at once."""
    cache = DiskCache(folder, 4000)
    for number in range(3):
        assert cache.put(key(number), payload(number))
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(folder), str(number)], env=environment,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n", worker.communicate()[1]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        output, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors
        assert int(output) >= 3
    assert not [path for path in folder.iterdir() if path.suffix != SUFFIX]


def test_a_fork_while_another_thread_writes_leaves_no_locked_lock(folder: Path) -> None:
    cache = DiskCache(folder, 10_000)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            cache.put(KEY, b"payload")

    worker = threading.Thread(target=busy)
    worker.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                try:
                    os._exit(0 if cache.put(key(1), b"child") and cache.get(key(1)) == b"child" else 1)
                finally:
                    os._exit(2)
            deadline = time.monotonic() + 10
            while (finished := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
                time.sleep(0.002)
            if finished == (0, 0):
                os.kill(child, 9)
                os.waitpid(child, 0)
            assert finished == (child, 0)
    finally:
        stop.set()
        worker.join(10)


def test_nothing_is_logged_with_the_lock_held(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A fork takes the lock of every cache and those of logging: a thread that holds one must not wait for another."""
    free: list[bool] = []

    class Asking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            free.append(cache._lock.acquire(blocking=False))
            if free[-1]:
                cache._lock.release()

    cache, handler = DiskCache(tmp_path / "cache", 1 << 20), Asking()
    logger = logging.getLogger("morpho")
    logger.addHandler(handler)
    try:
        cache.reject("00112233445566778899aabbccddeeff", "test")
        cache._report("folder", "test")
    finally:
        logger.removeHandler(handler)
    assert free == [True, True]
