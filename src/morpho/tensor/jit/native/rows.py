"""`x[i]` by native code (`driver/entry/row_code.py`): put before the Python function of `Tensor` once the driver is
there, or once so many elements were taken one by one that it pays to load it."""

from __future__ import annotations

import ctypes
from typing import Any

from morpho.backends.code.compiler import code
from morpho.backends.driver.abi import ContextField, Distances
from morpho.backends.driver.entry.row_code import FUNCTIONS, RowField, row_text
from morpho.base.dtypes import ALL
from morpho.base.target import isa_named
from morpho.tensor import eager
from morpho.tensor.core import Tensor
from morpho.tensor.jit.native.signature_tables import point_at_python

ONE_ARGUMENT = 8  # METH_O


class MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p)]


_kept: list[Any] = []  # what native code reads, for the life of the process


def install(at: Distances) -> None:
    """Let native code serve `x[i]`; it calls the Python function for everything else."""
    if _kept:
        return
    python = Tensor.__getitem__
    words = (ctypes.c_int64 * int(RowField.SIZE))()
    point_at_python(words)
    sizes = (ctypes.c_int64 * 32)()
    for dtype in ALL:
        sizes[dtype.code] = dtype.itemsize
    words[ContextField.SLOW], words[RowField.INT_TYPE] = id(python), id(int)
    words[RowField.QUIET], words[RowField.ITEM_SIZES] = ctypes.addressof(eager.quiet), ctypes.addressof(sizes)
    for name, field in (("PyLong_AsLongLongAndOverflow", RowField.AS_NUMBER), ("PyTuple_GetSlice", RowField.PART)):
        words[field] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
    text = row_text(at)
    row, set_context = code.native_functions(text, lambda: text, FUNCTIONS, isa_named("scalar"))
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(set_context)(ctypes.addressof(words))
    definition = MethodDefinition(b"__getitem__", row, ONE_ARGUMENT, b"x[key].")
    make = ctypes.pythonapi.PyDescr_NewMethod
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p]
    _kept[:] = [python, words, sizes, definition]
    method = make(Tensor, ctypes.addressof(definition))
    Tensor.__getitem__ = method  # type: ignore[method-assign]
    eager.native_row[:] = [method]
