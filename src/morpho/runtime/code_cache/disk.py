"""A cache of bytes on disk, bounded in bytes, shared by many processes, that never trusts what it finds.

>>> import tempfile
>>> from pathlib import Path
>>> from morpho.runtime.code_cache.disk import DiskCache
>>> cache = DiskCache(Path(tempfile.mkdtemp()) / "code", limit_bytes=1 << 20)
>>> cache.put("00112233445566778899aabbccddeeff", b"object code")
True
>>> cache.get("00112233445566778899aabbccddeeff")
b'object code'

One file per key: magic, version, length, sha256 of key and payload, payload. A file is written under a temporary name
and moved into place, so a reader sees all of it or nothing. Whatever is wrong (a damaged file, a full disk, a folder
others can write to) is counted and said once; the caller is told "not there" and computes anew.

S3-FIFO (`policy.py`) decides which files leave, as in memory. What it knows of a file outlives the process in the
file's times: the time of change is when it was written, the time of access is later once it was asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
import struct
import tempfile
import time
from pathlib import Path

from morpho.base.errors import ValueFault, fail, sentence
from morpho.base.python.fork_safe import ForkSafe
from morpho.runtime.code_cache.policy import MOST_USES, Entry, Shelf
from morpho.runtime.code_cache.tally import Tally

MAGIC = b"MORPHO\r\n"
VERSION = 1
HEADER = struct.Struct("<8sIQ32s")  # magic, version, payload bytes, sha256
SUFFIX = ".morpho"
TEMPORARY = ".tmp"
TOUCH_AFTER_S = 3600.0  # a file's time of last use is this coarse
LIST_AGAIN_SHARE = 0.25  # of the limit: after so many bytes written the folder is listed anew, for what others wrote
MANY_FILES = 2048  # from here on listing takes tens of milliseconds, and a tally is kept
STALE_AFTER_S = 3600.0  # a temporary file this old was left by a process that died

_KEY = re.compile(r"[0-9a-f]{16,128}")
_log = logging.getLogger("morpho")


class Damaged(Exception):
    """A file that is not what this cache wrote; the text says why."""


class DiskCache(ForkSafe):
    """Bytes by key (16 to 128 hexadecimal digits) in an owner-only `folder` of at most `limit_bytes`.

    Nothing touches the disk before the first `get` or `put`. Thread-safe, safe among processes, and after a fork. The
    limit holds for what a process knows of: the files there at its first `put`, and those it wrote or read since. Of a
    folder with many files it need not know them before its tally (`tally.py`) says that the limit may be near: who
    compiles one kernel does not look at a hundred thousand files for it. With `shared` it also learns what others
    wrote, each time it has written a quarter of the limit: n processes that write at once keep to (1 + n / 4) times the
    limit.
    """

    def __init__(self, folder: Path, limit_bytes: int, shared: bool = False,
                 advice: str = "set MORPHO_CACHE_DIR to a folder of yours") -> None:
        super().__init__()
        self.folder = Path(folder)
        self.limit_bytes, self.shared, self.advice = limit_bytes, shared, advice
        self._usable: bool | None = None  # None: not looked at yet
        self._shelf: Shelf[str, str] = Shelf(limit_bytes)  # file names: which of them leave for a new one
        self._listed = False  # whether the shelf has what was in the folder
        self._unlisted_bytes = 0  # written since the folder was listed
        self._tally = Tally(self.folder)
        self._said: set[str] = set()
        self._unsaid: list[str] = []  # messages that wait until no lock is held
        self._counts = dict.fromkeys(("hits", "misses", "writes", "corrupt", "errors", "evictions"), 0)

    def get(self, key: str) -> bytes | None:
        """The bytes of `key`, verified, or None: `cache.get("00112233445566778899aabbccddeeff")`."""
        name = _file_name(key)
        path = self.folder / name
        payload = self._look(key, path) if self._open_folder(create=False) else None
        with self._lock:
            self._counts["misses" if payload is None else "hits"] += 1
            if payload is not None and self._listed:
                self._used(name, HEADER.size + len(payload))
        return payload

    def put(self, key: str, data: bytes) -> bool:
        """Keep `data` under `key`, and say whether it was kept; others leave for it, unless it has to be asked for
        again before they do (a file of more than a quarter of the limit, when there is no room)."""
        name = _file_name(key)
        nbytes = HEADER.size + len(data)
        if nbytes > self.limit_bytes or not self._open_folder(create=True):
            return False
        header = HEADER.pack(MAGIC, VERSION, len(data), _digest(key, data))
        with self._lock:
            try:
                if self.shared and self._unlisted_bytes > LIST_AGAIN_SHARE * self.limit_bytes:
                    self._listed = False
                    self._list()
                if not self._listed and not self._surely_fits(nbytes):
                    self._list()
                if not self._admit(name, nbytes):
                    return False
                self._unlisted_bytes += nbytes
                self._write(name, header, data, asked_for=name in self._shelf.main)
                self._tally.add(nbytes)
                self._counts["writes"] += 1
                return True
            except OSError as error:
                self._shelf.take(name)
                self._counts["errors"] += 1
                self._say("write", f"{self.folder} cannot be written: {error}; going on without",
                          f"free some space, or {self.advice}")
        self._tell()
        return False

    def reject(self, key: str, reason: str) -> None:
        """Remove what `get` gave, because it does not mean what it should: counted and said like a damaged file."""
        self._discard(self.folder / _file_name(key), Damaged(reason))

    def remove(self, key: str) -> None:
        """Forget `key`, if it is there: `cache.remove("00112233445566778899aabbccddeeff")`."""
        name = _file_name(key)
        with self._lock:
            self._shelf.take(name)
            _remove(self.folder / name)

    def clear(self) -> None:
        """Forget everything but the counters."""
        if not self._open_folder(create=False):
            return
        with self._lock:
            self._listed = False
            self._list()
            for entry in self._shelf.clear():
                _remove(self.folder / entry.value)
            self._tally.forget()
            self._listed = False

    def is_usable(self) -> bool:
        """Whether there is a folder to write to, made if it was not there."""
        return self._open_folder(create=True)

    def stats(self) -> dict[str, int]:
        """Counters of this process, and the bytes and entries it knows of: {"hits": 3, "misses": 1, ...}."""
        usable = self._open_folder(create=False)
        with self._lock:
            try:
                if usable:
                    self._list()
            except OSError:
                usable = False
            held = self._shelf
            return {**self._counts, "bytes": held.small_bytes + held.main_bytes if usable else 0,
                    "limit_bytes": self.limit_bytes, "entries": len(held.entries) if usable else 0}

    def _open_folder(self, create: bool) -> bool:
        """Whether the folder is there, ours, and closed to others; a refusal is final for this object."""
        if self._usable is not None:
            return self._usable
        try:
            if create:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.folder.stat()
        except FileNotFoundError as error:
            return self._refuse(f"it cannot be made: {error}") if create else False
        except OSError as error:
            return self._refuse(f"it cannot be opened: {error}")
        if not stat.S_ISDIR(found.st_mode):
            return self._refuse("it is not a folder")
        if found.st_uid != os.geteuid():
            return self._refuse("it belongs to another user, who could put code there")
        if found.st_mode & 0o022:
            return self._refuse("others can write to it", f"chmod go-w {self.folder}")
        self._usable = True
        return True

    def _refuse(self, why: str, hint: str = "") -> bool:
        self._usable = False
        self._report("folder", f"{self.folder} is not used, because {why}", hint or self.advice)
        return False

    def _list(self) -> None:
        """Learn what is in the folder, once, and again when `put` says so; call it with the lock held.

        Never for an eviction: that takes names off the shelf's queues, whatever the folder holds.
        """
        if self._listed:
            return
        found, there = [], set()
        with os.scandir(self.folder) as files:
            for file in files:
                if file.name.endswith(SUFFIX) and _KEY.fullmatch(file.name.removesuffix(SUFFIX)):
                    there.add(file.name)
                    if file.name not in self._shelf.entries:
                        found.append((*_times_and_size(file), file.name))
                elif file.name.endswith(TEMPORARY) and time.time() - _times_and_size(file)[0] > STALE_AFTER_S:
                    _remove(file.path)
        for name in [name for name in self._shelf.entries if name not in there]:
            self._shelf.take(name)  # another process removed it
        for _, asked_for, size, name in sorted(found):  # in the order of their last use
            self._drop(self._shelf.add(name, name, size, known=asked_for))
        self._listed, self._unlisted_bytes = True, 0
        if len(self._shelf.entries) >= MANY_FILES:
            self._tally.reset(self._shelf.small_bytes + self._shelf.main_bytes)
        else:
            self._tally.forget()

    def _surely_fits(self, nbytes: int) -> bool:
        """Whether there is room for a file, by the folder's tally."""
        held = self._tally.read()
        return held is not None and held + nbytes <= self.limit_bytes

    def _used(self, name: str, nbytes: int) -> None:
        """A file was read just now; call it with the lock held."""
        entry = self._shelf.entries.get(name)
        if entry is not None and entry.nbytes == nbytes:
            entry.uses = min(entry.uses + 1, MOST_USES)
        elif os.path.lexists(self.folder / name):  # of another process; not removed since
            self._drop(self._shelf.add(name, name, nbytes, known=True))

    def _admit(self, name: str, nbytes: int) -> bool:
        """Make room for a file that is about to be written, if it earns it; call it with the lock held.

        Others may have removed those that leave already.
        """
        wanted = self._shelf.room_for(name, nbytes)
        left = self._shelf.add(name, name, nbytes)  # one that is not wanted is remembered, and wanted the next time
        if wanted:
            self._drop(left, but=name)
        return wanted

    def _drop(self, left: tuple[list[Entry[str]], int], but: str = "") -> None:
        """Remove the files of entries that left the shelf, `but` the one that is about to be replaced."""
        for entry in left[0]:
            if entry.value != but:
                self._counts["evictions"] += 1
                _remove(self.folder / entry.value)

    def _write(self, name: str, header: bytes, data: bytes, asked_for: bool) -> None:
        """Write the file under a temporary name, readable by its owner only, and move it into place."""
        try:
            handle, temporary = tempfile.mkstemp(prefix="." + name[:16] + ".", suffix=TEMPORARY, dir=self.folder)
        except FileNotFoundError:  # someone emptied the user's cache folder
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix="." + name[:16] + ".", suffix=TEMPORARY, dir=self.folder)
        try:
            with open(handle, "wb") as file:
                file.write(header)
                file.write(data)
            if asked_for:
                _mark_asked_for(temporary)
            os.replace(temporary, self.folder / name)
        except BaseException:
            _remove(temporary)
            raise

    def _look(self, key: str, path: Path) -> bytes | None:
        """The verified bytes of a file, or None after saying what was wrong with it."""
        try:
            return _read(path, key, self.limit_bytes)
        except Damaged as reason:
            self._discard(path, reason)
        except OSError as error:
            self._report("read", f"{path} cannot be read: {error}")
        return None

    def _discard(self, path: Path, reason: Damaged) -> None:
        """Remove a file that is not ours or not whole."""
        with self._lock:
            self._counts["corrupt"] += 1
            self._shelf.take(path.name)
            self._say("corrupt", f"{path} is removed, because {reason}; it will be made again")
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                self._counts["errors"] += 1
                self._say("remove", f"{path} cannot be removed: {error}")
        self._tell()

    def _report(self, kind: str, message: str, hint: str = "") -> None:
        with self._lock:
            self._counts["errors"] += 1
            self._say(kind, message, hint)
        self._tell()

    def _say(self, kind: str, message: str, hint: str = "") -> None:
        """Have the first message of each kind logged by `_tell`; call it with the lock held."""
        if kind not in self._said:
            self._said.add(kind)
            self._unsaid.append(sentence("disk cache", message, hint, line=""))

    def _tell(self) -> None:
        """Log what there is to say, with no lock held: logging has locks of its own, and a fork takes all of them."""
        while self._unsaid:
            with contextlib.suppress(IndexError):  # another thread has said it
                _log.warning(self._unsaid.pop(0))


def _file_name(key: str) -> str:
    """The name of the key's file; only hexadecimal digits, so that no key leads out of the folder."""
    if not _KEY.fullmatch(key):
        raise fail(ValueFault, "disk cache", f"the key {key[:200]!r} is not 16 to 128 lower-case hexadecimal digits")
    return key + SUFFIX


def _digest(key: str, data: bytes) -> bytes:
    """The key takes part: a good file under another key's name is damaged too."""
    digest = hashlib.sha256(key.encode())
    digest.update(data)
    return digest.digest()


def _read(path: Path, key: str, limit_bytes: int) -> bytes | None:
    """The verified payload of a file, None where there is no such file; raises `Damaged` for any other content."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        if path.is_symlink():
            raise Damaged("it is a symbolic link") from None
        raise
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise Damaged("it is not a plain file")
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise Damaged("others could have written it")
        if found.st_size > limit_bytes:
            return None
        with open(handle, "rb", closefd=False) as file:
            payload = _verify(file.read(found.st_size), key)
        if found.st_atime <= found.st_mtime or time.time() - found.st_atime > TOUCH_AFTER_S:
            _mark_asked_for(handle)
        return payload
    finally:
        os.close(handle)


def _verify(content: bytes, key: str) -> bytes:
    """The payload of a whole, unchanged file."""
    if len(content) < HEADER.size:
        raise Damaged("it is shorter than a header")
    magic, version, nbytes, digest = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise Damaged("it is not a file of this cache")
    if version != VERSION:
        raise Damaged(f"it has version {version}, not {VERSION}")
    if nbytes != len(content) - HEADER.size:
        raise Damaged(f"it has {len(content) - HEADER.size} bytes of payload, not {nbytes}")
    payload = content[HEADER.size :]
    if _digest(key, payload) != digest:
        raise Damaged("its checksum does not match")
    return payload


def _mark_asked_for(file: int | str) -> None:
    """Note a use in the file's time of access, for the processes after this one; the time of change stays."""
    try:
        changed_ns = os.stat(file).st_mtime_ns
        os.utime(file, ns=(max(time.time_ns(), changed_ns + 1), changed_ns))
    except OSError:  # a read-only folder has no eviction either
        pass


def _times_and_size(file: os.DirEntry[str]) -> tuple[float, bool, int]:
    """(time of last use, asked for since it was written, bytes) of a listed file; another process may have removed it
    since."""
    try:
        found = file.stat(follow_symlinks=False)
    except FileNotFoundError:
        return 0.0, False, 0
    return max(found.st_mtime, found.st_atime), found.st_atime > found.st_mtime, found.st_size


def _remove(path: str | Path) -> None:
    """Remove a file if it is there and can be."""
    try:
        os.unlink(path)
    except OSError:
        pass
