"""How many bytes a cache's folder holds at most, without looking at its files: a file beside them that says so.

It begins with the bytes that were there when somebody listed the folder; everyone who writes a file appends its bytes,
eight at a time, which the system does at once. What was removed or replaced since is still counted: the tally is never
too small by more than a process that lists misses of others' writes meanwhile, and a listing sets it right.
"""

from __future__ import annotations

import os
import stat
import struct
import tempfile
from pathlib import Path

NAME = ".tally"
MOST_BYTES = 1 << 16  # of the file: 8191 files written, then somebody lists again
_NUMBER = struct.Struct("<q")


class Tally:
    """The tally of a folder.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tally = Tally(Path(folder))
    ...     before = tally.read()
    ...     tally.reset(1000)
    ...     tally.add(24)
    ...     (before, tally.read())
    (None, 1024)
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def read(self) -> int | None:
        """Bytes in the folder, at most; None where nobody knows."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
                return None
            content = os.read(handle, MOST_BYTES + 1)
        except OSError:
            return None
        finally:
            os.close(handle)
        if not content or len(content) > MOST_BYTES or len(content) % _NUMBER.size:
            return None
        numbers = [number for number, in _NUMBER.iter_unpack(content)]
        return None if min(numbers) < 0 else sum(numbers)

    def add(self, nbytes: int) -> None:
        """A file was written. Where there is no tally yet, none is begun: the next one who needs it lists."""
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.write(handle, _NUMBER.pack(nbytes))
        except OSError:  # a full disk: whoever reads a part of a number lists
            pass
        finally:
            os.close(handle)

    def reset(self, nbytes: int) -> None:
        """The folder was listed, and holds so many bytes."""
        temporary = ""
        try:
            handle, temporary = tempfile.mkstemp(prefix=NAME + ".", suffix=".tmp", dir=self.path.parent)
            with open(handle, "wb") as file:
                file.write(_NUMBER.pack(nbytes))
            os.replace(temporary, self.path)
        except OSError:
            self.forget(temporary)

    def forget(self, temporary: str = "") -> None:
        """No tally, or no temporary file of one."""
        try:
            os.unlink(temporary or self.path)
        except OSError:
            pass
