"""Other owners of an array's memory: arrays that nobody can write are taken without a copy."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import numpy as np

from morpho.runtime.memory.buffer import Exporter


def is_fixed(array: np.ndarray) -> bool:
    """Whether nobody writes this memory: the array is read-only, and so is everything that it is a view of, down to an
    array that owns its elements, to `bytes`, to a file that is mapped for reading, or to a tensor.

    >>> x = np.arange(3)
    >>> view = x[:]
    >>> view.flags.writeable = False
    >>> is_fixed(view), is_fixed(np.frombuffer(b"abc", np.uint8))
    (False, True)
    """
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        if owner.base is None:
            return bool(owner.flags.owndata)
        owner = owner.base
    while isinstance(owner, memoryview):
        if not owner.readonly:
            return False
        owner = owner.obj
    if isinstance(owner, mmap.mmap):
        with memoryview(owner) as view:
            return view.readonly
    return isinstance(owner, bytes | Exporter)


def _held(*args: Any) -> int:
    return sys.getrefcount(args[0])


def _can_tell() -> bool:
    """Whether a count of references tells what a function is given by name from what is made for the call. From Python
    3.14 on a name's reference may be borrowed, and is not counted."""
    if sys.version_info >= (3, 14) or sys.implementation.name != "cpython":
        return False
    named = np.empty(0)
    return _held(np.empty(0)) == _TEMPORARY and _held(named) == _TEMPORARY + 1


_TEMPORARY = 2  # references to what only the arguments of a function hold, while it counts them
_counts = _can_tell()


def is_temporary(references: int, array: np.ndarray) -> bool:
    """Whether an array was made for this call alone. `references` is `sys.getrefcount(args[0])` in a function that
    takes `*args`, called from Python."""
    return _counts and references == _TEMPORARY and array.base is None and array.flags.owndata
