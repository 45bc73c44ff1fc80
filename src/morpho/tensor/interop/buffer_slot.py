"""The buffer protocol on Python 3.11, which has no `__buffer__` for classes written in Python: `memoryview(tensor)`,
`file.write(tensor)`, `hashlib.sha256(tensor)`.

Every class has room for two C functions that serve buffers; where they are empty, objects have none. The first is set
to a native function that asks `__buffer__`, as Python 3.12 does by itself. LLVM is not there yet when the class is
made: until the first request comes, it is a function of `ctypes` that compiles the native one (or finds it on disk) and
takes its place. What a function of `ctypes` raises is lost on its way to the caller, so that a first request that is
refused (a writable buffer, bfloat16, a value that has an error) is a SystemError.

`torch.asarray` reads any buffer as float32, whatever it holds. It asks for a writable one first, and for plain bytes
with the error of that refusal still pending, which no other caller does: the native function refuses it. Where the
first error is lost, the second request cannot be told from NumPy's `frombuffer`; the function is therefore prepared
at once where PyTorch is loaded, and otherwise that one request is refused too.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

from morpho.base.errors import CompileError

SIZE, BUFFER_PROCEDURES = 32, 160  # places in PyTypeObject (64 bits)
SIMPLE, WRITABLE = 0, 1  # PyBUF_SIMPLE, PyBUF_WRITABLE
_unheard: set[int] = set()  # threads whose first request was refused by an error that was lost
GetBuffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)


def is_needed() -> bool:
    """Whether this is the Python whose classes are laid out as above and whose objects have no buffers."""
    return (sys.version_info[:2] == (3, 11) and sys.implementation.name == "cpython"
            and ctypes.sizeof(ctypes.c_void_p) == 8 and not hasattr(sys, "gettotalrefcount"))


class Slot:
    """The place for a function that serves the buffers of a class and of those derived from it."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.first = GetBuffer(self.first_request)
        self.table = (ctypes.c_void_p * 6)()  # `BufferField`
        self.put(ctypes.cast(self.first, ctypes.c_void_p).value)
        if "torch" in sys.modules:
            self.native()

    def put(self, address: int | None) -> None:
        """Set the function in every class that has a place for one; classes made later take it over."""
        waiting = [self.kind]
        while waiting:
            kind = waiting.pop()
            waiting += kind.__subclasses__()
            procedures = _word(kind, BUFFER_PROCEDURES)
            if _word(kind, SIZE) == kind.__basicsize__ and id(kind) < procedures < id(kind) + type.__basicsize__:  # type: ignore[operator]
                ctypes.c_void_p.from_address(procedures).value = address

    def first_request(self, exporter: Any, view: int, flags: int) -> int:
        """Fill a Py_buffer, the first time; 0 if that could be done."""
        ctypes.c_void_p.from_address(view + ctypes.sizeof(ctypes.c_void_p)).value = None  # the buffer has no owner yet
        try:
            return self.native()(exporter, view, flags)
        except BaseException:  # an interrupt too: what C gets then is not defined
            if "torch" in sys.modules and flags & WRITABLE:
                _unheard.add(threading.get_ident())
            return -1

    def native(self) -> Callable[..., int]:
        """The native function, in its place from now on; without LLVM the same in Python."""
        from morpho.backends.driver.callbacks import buffer_function

        try:
            get_buffer = buffer_function(self.table, _ask)
        except CompileError:
            return _get_buffer
        self.put(get_buffer)
        return GetBuffer(get_buffer)


def _ask(exporter: Any, flags: int) -> memoryview:
    if _unheard and threading.get_ident() in _unheard:
        _unheard.discard(threading.get_ident())
        if flags == SIMPLE:
            raise BufferError("whoever asks may be torch.asarray, which takes any buffer for float32; ask again, or "
                              "use torch.from_dlpack")
    return exporter.__buffer__(flags)  # type: ignore[no-any-return]


def _get_buffer(exporter: Any, view: int, flags: int) -> int:
    return int(ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(_ask(exporter, flags)), ctypes.c_void_p(view),
                                                   ctypes.c_int(flags)))


def _word(kind: type, place: int) -> int:
    return ctypes.c_ssize_t.from_address(id(kind) + place).value
