"""The buffer protocol on Python 3.11, which has no `__buffer__` for classes written in Python: `memoryview(tensor)`,
`bytes(tensor)`, `file.write(tensor)`, `hashlib.sha256(tensor)`.

Every class has room for two C functions that serve buffers; where they are empty, objects have none. The first is set
to a function made by `ctypes` that asks `__buffer__`, as Python 3.12 does by itself. What such a function raises is
lost on its way to the caller, so that a request that is refused (a writable buffer, bfloat16) is a SystemError.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

SIZE, BUFFER_PROCEDURES = 32, 160  # places in PyTypeObject (64 bits)
GetBuffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)


def is_needed() -> bool:
    """Whether this is the Python whose classes are laid out as above and whose objects have no buffers."""
    return (sys.version_info[:2] == (3, 11) and sys.implementation.name == "cpython"
            and ctypes.sizeof(ctypes.c_void_p) == 8 and not hasattr(sys, "gettotalrefcount"))


def serve_buffers(kind: type) -> bool:
    """Let objects of a class, and of classes derived from it, be asked for a buffer; whether that could be done."""
    if not is_needed() or _word(kind, SIZE) != kind.__basicsize__:
        return False
    procedures = _word(kind, BUFFER_PROCEDURES)
    if not id(kind) < procedures < id(kind) + type.__basicsize__:  # they are part of a class that Python code made
        return False
    ctypes.c_void_p.from_address(procedures).value = ctypes.cast(_get_buffer, ctypes.c_void_p).value
    return all([serve_buffers(derived) for derived in kind.__subclasses__()])


def _word(kind: type, place: int) -> int:
    return ctypes.c_ssize_t.from_address(id(kind) + place).value


@GetBuffer
def _get_buffer(exporter: Any, view: int, flags: int) -> int:
    """Fill a Py_buffer; 0 if that could be done."""
    try:
        return int(ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(exporter.__buffer__(flags)),
                                                       ctypes.c_void_p(view), ctypes.c_int(flags)))
    except Exception:
        ctypes.c_void_p.from_address(view + ctypes.sizeof(ctypes.c_void_p)).value = None  # the buffer has no owner
        return -1
