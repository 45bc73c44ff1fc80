"""What DLPack calls when memory comes back, in machine code.

Consumers drop a capsule, or the last array over its memory, while an exception of theirs is on its way: no Python code
may run then, and a function of `ctypes` would lose the exception. The native ones put it aside, call a Python function
with the struct's address, and put it back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from morpho.backends.code.compiler import code
from morpho.base.target import isa_named

# What the native functions call, in the order of their table; the last entry is the Python function.
API = ("Py_IsInitialized", "PyGILState_Ensure", "PyErr_Fetch", "PyLong_FromVoidPtr", "PyObject_Vectorcall", "Py_DecRef",
       "PyErr_WriteUnraisable", "PyErr_Restore", "PyGILState_Release", "PyCapsule_IsValid", "PyCapsule_GetPointer")
_LOADS = "".join(f"  %{name}.at = getelementptr ptr, ptr %table, i64 {number}\n"
                 f"  %{name} = load ptr, ptr %{name}.at, align 8\n" for number, name in enumerate((*API, "python")))
TEXT = f"""
@table = internal global ptr null, align 8
@plain = internal constant [9 x i8] c"dltensor\\00"
@versioned = internal constant [19 x i8] c"dltensor_versioned\\00"

define void @set_table(ptr %table) nounwind {{
  store ptr %table, ptr @table, align 8
  ret void
}}

define void @release(ptr %managed) nounwind {{
entry:
  %kind = alloca ptr, align 8
  %value = alloca ptr, align 8
  %trace = alloca ptr, align 8
  %arguments = alloca ptr, align 8
  %table = load ptr, ptr @table, align 8
{_LOADS}  %alive = call i32 %Py_IsInitialized()
  %over = icmp eq i32 %alive, 0
  br i1 %over, label %done, label %begin
begin:
  %state = call i32 %PyGILState_Ensure()
  call void %PyErr_Fetch(ptr %kind, ptr %value, ptr %trace)
  %number = call ptr %PyLong_FromVoidPtr(ptr %managed)
  %none = icmp eq ptr %number, null
  br i1 %none, label %failed, label %call
call:
  store ptr %number, ptr %arguments, align 8
  %result = call ptr %PyObject_Vectorcall(ptr %python, ptr %arguments, i64 1, ptr null)
  call void %Py_DecRef(ptr %number)
  %nothing = icmp eq ptr %result, null
  br i1 %nothing, label %failed, label %right
failed:
  call void %PyErr_WriteUnraisable(ptr %python)
  br label %restore
right:
  call void %Py_DecRef(ptr %result)
  br label %restore
restore:
  %old.kind = load ptr, ptr %kind, align 8
  %old.value = load ptr, ptr %value, align 8
  %old.trace = load ptr, ptr %trace, align 8
  call void %PyErr_Restore(ptr %old.kind, ptr %old.value, ptr %old.trace)
  call void %PyGILState_Release(i32 %state)
  br label %done
done:
  ret void
}}

define void @drop(ptr %capsule) nounwind {{
entry:
  %table = load ptr, ptr @table, align 8
{_LOADS}  %is.plain = call i32 %PyCapsule_IsValid(ptr %capsule, ptr @plain)
  %is.versioned = call i32 %PyCapsule_IsValid(ptr %capsule, ptr @versioned)
  %either = or i32 %is.plain, %is.versioned
  %taken = icmp eq i32 %either, 0
  br i1 %taken, label %done, label %untaken
untaken:
  %old = icmp ne i32 %is.plain, 0
  %name = select i1 %old, ptr @plain, ptr @versioned
  %managed = call ptr %PyCapsule_GetPointer(ptr %capsule, ptr %name)
  call void @release(ptr %managed)
  br label %done
done:
  ret void
}}
"""
_kept: list[Any] = []  # for as long as the process lives: a consumer may call at its very end


@cache
def native(released: Callable[[int], None]) -> tuple[int, int]:
    """Addresses of a deleter of structs and of a destructor of capsules, which releases what nobody took."""
    set_table, release, drop = code.native_functions(TEXT, lambda: TEXT, ("set_table", "release", "drop"),
                                                     isa_named("scalar"))
    table = (ctypes.c_void_p * (len(API) + 1))()
    for number, name in enumerate(API):
        table[number] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    table[len(API)] = id(released)
    for value in (table, released):
        _kept.append(value)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(set_table)(ctypes.addressof(table))
    return release, drop
