"""A lock on a name among processes: a file that is locked by the system, and free when its process ends, however."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType


class FileLock:
    """`with FileLock(path):` one process at a time. `held` is False where the file system has no locks: the work is
    then done twice at worst. The file goes with the last who holds it."""

    def __init__(self, path: Path) -> None:
        self.path, self.held = path, False
        self._handle = -1

    def __enter__(self) -> FileLock:
        try:
            while True:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX)
                    if self._is_ours(handle):
                        self._handle, self.held = handle, True
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
            try:
                os.unlink(self.path)
            except OSError:
                pass
            os.close(self._handle)
