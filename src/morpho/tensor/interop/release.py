"""Callback of DLPack for returned memory, in machine code.

Consumers drop a capsule, or the last array over its memory, while an exception of theirs is on its way: no Python code
may run then, and a function of `ctypes` would lose the exception. The native ones put it aside, call a Python function
with the struct's address, and put it back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

_kept: list[Any] = []  # for as long as the process lives: a consumer may call at its very end


@cache
def native(released: Callable[[int], None]) -> tuple[int, int]:
    """Addresses of a deleter of structs and of a destructor of capsules, which releases what nobody took."""
    from morpho.backends.driver.callbacks import ReleaseField, release_functions

    table = (ctypes.c_void_p * len(ReleaseField))()
    functions = release_functions(table, released)
    for value in (table, released):
        _kept.append(value)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return functions
