"""A lock on a name among processes: a file that is locked by the system, and free when its process ends, however."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from types import TracebackType

NESTED_S = 10.0  # whoever has a lock waits for another no longer: its owner may be waiting for the first
_POLL_S = 0.02
_mine = threading.local()  # .count: the locks that this thread has


class FileLock:
    """`with FileLock(path):` one process at a time. `held` is False where the file system has no locks, or where two
    processes may wait for each other: the work is then done twice at worst. The file goes with the last who holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.held = path, False
        self._handle = -1

    def __enter__(self) -> FileLock:
        try:
            while True:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                try:
                    if not _locked(handle):
                        os.close(handle)
                        return self
                    if self._is_ours(handle):
                        self._handle, self.held = handle, True
                        _mine.count = getattr(_mine, "count", 0) + 1
                        return self
                except BaseException:
                    os.close(handle)
                    raise
                os.close(handle)  # its owner removed it while this one waited: the next is another file
        except OSError:
            return self

    def _is_ours(self, handle: int) -> bool:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return False
        mine = os.fstat(handle)
        return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self.held:
            self.held = False
            _mine.count -= 1
            try:
                os.unlink(self.path)
            except OSError:
                pass
            os.close(self._handle)


def _locked(handle: int) -> bool:
    """Wait for a lock; False where this thread has another one, and waited long enough."""
    if not getattr(_mine, "count", 0):
        fcntl.flock(handle, fcntl.LOCK_EX)
        return True
    ends = time.monotonic() + NESTED_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= ends:
                return False
            time.sleep(_POLL_S)
