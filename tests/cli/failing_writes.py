"""A disk that fails at one moment: the n-th time that something below a folder is opened for writing, written, moved or
synchronised."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class FailingWrites:
    """Counts the moments below `root`, and fails at number `at`, once; `what` then says what it was."""

    def __init__(self, root: Path, at: int) -> None:
        self.root, self.at, self.count, self.what = str(root), at, 0, ""

    def moment(self, what: str) -> bool:
        """Whether this is the moment."""
        self.count += 1
        if self.count - 1 == self.at:
            self.what = what
        return self.count - 1 == self.at

    def concerns(self, path: Any) -> bool:
        if isinstance(path, int):
            try:
                path = os.readlink(f"/proc/self/fd/{path}")
            except OSError:
                return False
        return os.path.abspath(os.fspath(path)).startswith(self.root)

    def fail(self, path: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), None if isinstance(path, int) else os.fspath(path))


class Written:
    """A file opened for writing."""

    def __init__(self, file: Any, faults: FailingWrites) -> None:
        self._file, self._faults = file, faults

    def write(self, data: Any) -> Any:
        if self._faults.moment(f"write {self._file.name}"):
            self._file.write(data[:len(data) // 2])  # the disk is full in the middle
            self._faults.fail(0)
        return self._file.write(data)

    def __enter__(self) -> Written:
        self._file.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        return self._file.__exit__(*exception)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def failing_writes(root: Path, at: int) -> Iterator[FailingWrites]:
    """The disk inside the block."""
    faults, plain_open = FailingWrites(root, at), builtins.open

    def opens(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if not set(mode) & set("wax+") or not faults.concerns(file):
            return plain_open(file, mode, *args, **kwargs)
        if not isinstance(file, int) and faults.moment(f"open {file}"):
            faults.fail(file)
        return Written(plain_open(file, mode, *args, **kwargs), faults)

    def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            writes = function is not os_open or (args and args[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if writes and faults.concerns(path) and faults.moment(f"{function.__name__} {path}"):
                faults.fail(path)
            return function(path, *args, **kwargs)

        return call

    os_open = os.open

    def fsync(descriptor: int) -> None:  # the real one costs 10 ms a time, and nobody cuts the power here
        if faults.concerns(descriptor) and faults.moment("fsync"):
            faults.fail(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "open", opens)
        patch.setattr(io, "open", opens)
        for name in ("open", "replace", "rename", "mkdir", "ftruncate", "pwrite"):
            patch.setattr(os, name, guarded(getattr(os, name)))
        patch.setattr(os, "fsync", fsync)
        yield faults
