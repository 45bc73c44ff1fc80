"""Files that are there whole or not at all: written under another name, synchronised, moved into place. And a lock that
one process at a time holds on a folder."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from morpho.base.errors import MorphoError, fail
from morpho.weights.errors import FolderInUse, StorageError

TEMPORARY = ".tmp"
MOST_PID_BYTES = 32
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_log = logging.getLogger("morpho")


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which becomes `path` when the block ends well and vanishes when it does not. What the system
    refuses (a full disk, a folder that is read-only) is a `StorageError`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "a"
    >>> with atomic_file(path) as file:
    ...     _ = file.write(b"all")
    >>> path.read_bytes()
    b'all'
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{TEMPORARY}")
    with storing(path):
        try:
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, as `write_bytes` does.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "a"
    >>> write_text(path, "all")
    >>> path.read_text()
    'all'
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write to a file that the user names: whole or not at all where it is one, and straight to a device or a pipe,
    such as /dev/stdout.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "a"
    >>> write_bytes(path, b"all")
    >>> path.read_bytes()
    b'all'
    """
    with storing(path):
        place = path.resolve()  # what a link leads to is replaced, not the link
        if place.exists() and not place.is_file():
            place.write_bytes(data)
            return
        with atomic_file(place) as file:
            file.write(data)


def append(path: Path, data: bytes) -> None:
    """Add lines at the end of a file, all of them or none: where the disk fills up meanwhile, what was written of them
    is cut off again.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "a"
    >>> append(path, b"one\\n"), append(path, b"two\\n")
    (None, None)
    >>> path.read_text()
    'one\\ntwo\\n'
    """
    with storing(path), open(path, "ab", buffering=0) as file:
        before = os.fstat(file.fileno())
        try:
            left = memoryview(data)
            while left:
                left = left[file.write(left) or 0:]
        except OSError:
            if stat.S_ISREG(before.st_mode):
                os.ftruncate(file.fileno(), before.st_size)
            raise


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Tell what the system refuses while something is written at `path` as one sentence.

    >>> from pathlib import Path
    >>> with storing(Path("a/b")):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    ...
    morpho.weights.errors.StorageError: [save] a/b cannot be written: No space left on device. ...
    """
    try:
        yield
    except MorphoError:
        raise
    except OSError as error:
        hint = ("free some space, or choose a folder on another disk" if error.errno in _FULL
                else "choose a folder that you may write to" if error.errno in _FORBIDDEN else "")
        told = fail(StorageError, "save", f"{path} cannot be written: {error.strerror or error}", hint)
        told.errno = error.errno  # type: ignore[attr-defined]
        raise told from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove what writers that were killed left half written; only who holds the folder's lock may do this."""
    for entry in folder.glob(f".*{TEMPORARY}"):
        if entry.is_file():
            entry.unlink(missing_ok=True)


class FolderLock:
    """A lock that one process at a time holds, in a file that says which; whoever dies lets go of it, however it dies.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / ".lock"
    >>> with FolderLock(path, "train"):
    ...     with FolderLock(path, "train"):
    ...         pass
    Traceback (most recent call last):
    ...
    morpho.weights.errors.FolderInUse: [train] process ... is at work in ...
    """

    def __init__(self, path: Path, operation: str, waiting: Callable[[str], None] | None = None) -> None:
        self.path, self.operation, self.waiting = path, operation, waiting  # waiting: told before it waits
        self._handle: int | None = None
        self._depth = 0

    def __enter__(self) -> FolderLock:
        if self._depth == 0:
            with storing(self.path):
                self._handle = self._taken(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        self._depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _taken(self, handle: int) -> int:
        try:
            self._lock(handle)
            os.ftruncate(handle, 0)
            os.pwrite(handle, b"%d\n" % os.getpid(), 0)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _lock(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno in _WITHOUT_LOCKS:
                _log.warning("%s: this file system has no locks; two processes here are not told of each other",
                             self.path)
                return
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
        holder = os.pread(handle, MOST_PID_BYTES, 0).decode("ascii", "replace").strip()
        who = f"process {holder}" if holder.isdecimal() else "another process"
        if self.waiting is None:
            raise fail(FolderInUse, self.operation, f"{who} is at work in {self.path.parent}",
                       "wait until it has ended, or stop it, or choose another folder")
        self.waiting(f"{who} is at work in {self.path.parent}; waiting for it")
        fcntl.flock(handle, fcntl.LOCK_EX)
