"""Callbacks of CPython and consumers of DLPack, in native code: releases of memory, and requests for a buffer.

Each function reads a table of addresses of CPython's own functions, which is set before. `ReleaseField` and
`BufferField` say what lies where; their names are those of the functions, and the last one is a Python object.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from typing import Any, cast

from morpho.backends.code.compiler.code import addresses_of
from morpho.backends.code.native import native
from morpho.backends.code.typed import NULL, Address, Bytes, Global, Words, i32, i64, local
from morpho.base.target import isa_named

Object = Address
Call = Callable[[Object, Words, i64, Object], Object]  # PyObject_Vectorcall
Drop = Callable[[Object], None]  # Py_DecRef


class ReleaseField(IntEnum):
    """The table of `release` and `drop`."""

    Py_IsInitialized = 0
    PyGILState_Ensure = 1
    PyErr_Fetch = 2
    PyLong_FromVoidPtr = 3
    PyObject_Vectorcall = 4
    Py_DecRef = 5
    PyErr_WriteUnraisable = 6
    PyErr_Restore = 7
    PyGILState_Release = 8
    PyCapsule_IsValid = 9
    PyCapsule_GetPointer = 10
    PYTHON = 11


class BufferField(IntEnum):
    """The table of `get_buffer`."""

    PyLong_FromLong = 0
    PyObject_Vectorcall = 1
    PyObject_GetBuffer = 2
    Py_DecRef = 3
    PyErr_Occurred = 4
    PYTHON = 5


PLAIN, VERSIONED = cast(Bytes, b"dltensor"), cast(Bytes, b"dltensor_versioned")  # names of capsules that nobody took
OWNER = 1  # the word of a Py_buffer that names the object which gave it
release_table = Global("release_table", Words)
buffer_table = Global("buffer_table", Words)


@native()
def set_release_table(table: Words) -> None:
    release_table[0] = table


@native()
def release(managed: Address) -> None:
    """Deleter of a struct: call the Python function with its address. An exception that is on its way stays so."""
    table: Words = release_table[0]
    is_initialized: Callable[[], i32] = table[ReleaseField.Py_IsInitialized]
    if is_initialized() == 0:
        return
    ensure: Callable[[], i32] = table[ReleaseField.PyGILState_Ensure]
    fetch: Callable[[Words, Words, Words], None] = table[ReleaseField.PyErr_Fetch]
    number_of: Callable[[Address], Object] = table[ReleaseField.PyLong_FromVoidPtr]
    call: Call = table[ReleaseField.PyObject_Vectorcall]
    drop_object: Drop = table[ReleaseField.Py_DecRef]
    report: Drop = table[ReleaseField.PyErr_WriteUnraisable]
    restore: Callable[[Object, Object, Object], None] = table[ReleaseField.PyErr_Restore]
    leave: Callable[[i32], None] = table[ReleaseField.PyGILState_Release]
    python: Object = table[ReleaseField.PYTHON]
    state = ensure()
    pending = local(i64, 3)
    fetch(pending, pending + 1, pending + 2)
    arguments = local(i64, 1)
    number = number_of(managed)
    result = NULL
    if number:
        arguments[0] = number
        result = call(python, arguments, 1, NULL)
        drop_object(number)
    if result:
        drop_object(result)
    else:
        report(python)
    restore(Address(pending[0]), Address(pending[1]), Address(pending[2]))
    leave(state)


@native()
def drop(capsule: Object) -> None:
    """Destructor of a capsule: release what nobody took."""
    table: Words = release_table[0]
    is_valid: Callable[[Object, Bytes], i32] = table[ReleaseField.PyCapsule_IsValid]
    pointer_of: Callable[[Object, Bytes], Address] = table[ReleaseField.PyCapsule_GetPointer]
    is_plain, is_versioned = is_valid(capsule, PLAIN), is_valid(capsule, VERSIONED)
    if is_plain:
        release(pointer_of(capsule, PLAIN))
    elif is_versioned:
        release(pointer_of(capsule, VERSIONED))


@native()
def set_buffer_table(table: Words) -> None:
    buffer_table[0] = table


@native()
def get_buffer(exporter: Object, view: Words, flags: i32) -> i32:
    """Fill a Py_buffer from the memoryview that a Python function gives for an object and flags; 0 if it could be
    done. Refused while an error is pending."""
    table: Words = buffer_table[0]
    pending: Callable[[], Object] = table[BufferField.PyErr_Occurred]
    number_of: Callable[[i64], Object] = table[BufferField.PyLong_FromLong]
    call: Call = table[BufferField.PyObject_Vectorcall]
    drop_object: Drop = table[BufferField.Py_DecRef]
    fill: Callable[[Object, Words, i32], i32] = table[BufferField.PyObject_GetBuffer]
    view[OWNER] = 0
    if pending():
        return -1
    number = number_of(i64(flags))
    if not number:
        return -1
    arguments = local(i64, 2)
    arguments[0], arguments[1] = exporter, number
    memory = call(Address(table[BufferField.PYTHON]), arguments, 2, NULL)
    drop_object(number)
    if not memory:
        return -1
    status = fill(memory, view, flags)
    drop_object(memory)
    return status


def filled(table: Any, fields: type[IntEnum], python: Any) -> int:
    """Put the addresses of CPython's functions into a table, and the object; return the table's address."""
    for field in fields:
        table[field] = (id(python) if field.name == "PYTHON" else
                        ctypes.cast(getattr(ctypes.pythonapi, field.name), ctypes.c_void_p).value)
    return ctypes.addressof(table)


def release_functions(table: Any, python: Any) -> tuple[int, int]:
    """Addresses of a deleter and of a destructor, which call a Python function. The table must live as long."""
    setter, *functions = addresses_of("releases", set_release_table, release, drop, isa=isa_named("scalar"))
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(setter)(filled(table, ReleaseField, python))
    return functions[0], functions[1]


def buffer_function(table: Any, python: Any) -> int:
    """The address of what serves buffers by a Python function. The table must live as long."""
    setter, function = addresses_of("buffers", set_buffer_table, get_buffer, isa=isa_named("scalar"))
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(setter)(filled(table, BufferField, python))
    return function
