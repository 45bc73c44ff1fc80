"""The OpenBLAS that NumPy carries: how many threads it may use, so that it never adds to Morpho's own.

Its number of threads is one for the whole process. It is set while a product of Morpho's runs and put back after the
last of those that run at the same time.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from morpho.base.target import wanted_threads

threads_left: Callable[[], int] = wanted_threads  # the runtime floor subtracts the tasks at work
OF_C = ("log", "exp", "hypot", "malloc", "free")  # functions of C's library; NumPy calls the first three too
_PREFIXES_AND_ENDS = (("scipy_openblas_", "64_"), ("openblas_", "64_"), ("scipy_openblas_", ""), ("openblas_", ""))


class _Threads(NamedTuple):
    """OpenBLAS's own functions for its number of threads."""

    get: Callable[[], int]
    set: Callable[[int], object]


@cache
def _libraries() -> list[ctypes.CDLL]:
    """The libraries of that name beside NumPy, loaded by it already."""
    import numpy

    root, found = Path(numpy.__file__).parent, []
    for folder in (root.parent / "numpy.libs", root / ".dylibs", root / ".libs"):
        for path in sorted(folder.glob("*openblas*")) if folder.is_dir() else ():
            try:
                found.append(ctypes.CDLL(str(path)))
            except OSError:
                continue
    return found


@cache
def routine_address(name: str) -> int:
    """Where a routine of LAPACK with whole numbers of 64 bits begins, such as "dgesv", or one of C's library (`OF_C`);
    0 where there is none."""
    if name in OF_C:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0
    for library in _libraries():
        for form in (f"scipy_{name}_64_", f"{name}_64_"):
            if hasattr(library, form):
                return ctypes.cast(getattr(library, form), ctypes.c_void_p).value or 0
    return 0


@cache
def _threads() -> _Threads | None:
    """These functions, or None where NumPy has another BLAS."""
    for library in _libraries():
        for prefix, end in _PREFIXES_AND_ENDS:
            names = [f"{prefix}{verb}_num_threads{end}" for verb in ("get", "set")]
            if all(hasattr(library, name) for name in names):
                getter, setter = (getattr(library, name) for name in names)
                getter.argtypes, getter.restype = [], ctypes.c_int
                setter.argtypes, setter.restype = [ctypes.c_int], None
                return _Threads(getter, setter)
    return None


_lock = threading.Lock()
_granted: list[int] = []  # what each product that runs now was granted
_before = 0  # the number in force before the first of them


@contextmanager
def within_budget() -> Iterator[None]:
    """Inside, BLAS has as many threads as the engine's budget leaves, at least one; afterwards the number it had.

    The caller waits for BLAS meanwhile, so they are never both at work. Products that run at the same time share the
    least number granted to any of them. Where the number cannot be set, BLAS keeps what its own variables say.
    """
    blas = _threads()
    if blas is None:
        yield
        return
    granted = threads_left()
    _enter(blas, granted)
    try:
        yield
    finally:
        _leave(blas, granted)


def _enter(blas: _Threads, granted: int) -> None:
    global _before
    with _lock:
        if not _granted:
            _before = blas.get()
        _granted.append(granted)
        blas.set(min(_granted))


def _leave(blas: _Threads, granted: int) -> None:
    with _lock:
        _granted.remove(granted)
        blas.set(min(_granted, default=_before))


def _after_fork() -> None:
    """In a child no other thread's product runs: forget them all, and put back the number."""
    global _lock
    _lock = threading.Lock()
    blas = _threads() if _granted else None
    if blas is not None:
        _granted.clear()
        blas.set(_before)


# A fork waits for the lock, so that a child finds no half change.
os.register_at_fork(before=lambda: _lock.acquire(), after_in_parent=lambda: _lock.release(),
                    after_in_child=_after_fork)
