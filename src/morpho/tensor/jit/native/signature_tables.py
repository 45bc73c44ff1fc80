"""Tables of the native entry for the calls of one signature, filled for one specialisation of it.

A compiled function has one set of them per signature, in a chain: what the first does not serve goes to the next, and
from the last to Python.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.backends.driver.abi import BINDING_WORDS, LONG_WORK, ContextField, Enabled
from morpho.base import settings as base_settings
from morpho.base.trees import LEAF, arranger
from morpho.passes.memory.arena import aligned
from morpho.runtime.memory.pool import pool
from morpho.tensor.core import Tensor
from morpho.tensor.jit.native.outputs import output_maker, output_templates
from morpho.tensor.jit.specialise import Specialisation

_OUT = sys.intern("out")
_fills = itertools.count()


def point_at_python(words: Any) -> None:
    """The words of a `ContextField` table that are objects and functions of Python's own."""
    words[ContextField.TENSOR_TYPE], words[ContextField.BYTES_TYPE] = id(Tensor), id(bytes)
    words[ContextField.TUPLE_TYPE] = id(tuple)
    words[ContextField.NONE], words[ContextField.TRUE], words[ContextField.NOTHING] = id(None), id(True), id(None)
    for name, target in (("PyObject_Vectorcall", ContextField.VECTORCALL),
                         ("PyEval_SaveThread", ContextField.SAVE_THREAD),
                         ("PyEval_RestoreThread", ContextField.RESTORE_THREAD),
                         ("Py_IncRef", ContextField.INCREMENT), ("Py_DecRef", ContextField.DECREMENT),
                         ("PyContextVar_Get", ContextField.GET_SETTINGS),
                         ("PyLong_FromLongLong", ContextField.NUMBER),
                         ("PyType_GenericAlloc", ContextField.NEW_OBJECT),
                         ("PyByteArray_FromStringAndSize", ContextField.NEW_MEMORY),
                         ("PyByteArray_AsString", ContextField.MEMORY_AT),
                         ("PyBytes_FromStringAndSize", ContextField.NEW_BYTES),
                         ("PyTuple_New", ContextField.NEW_TUPLE),
                         ("PyErr_ExceptionMatches", ContextField.ERROR_IS),
                         ("PyErr_Clear", ContextField.CLEAR_ERROR)):
        words[target] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


class SignatureTables:
    """The tables of one signature of a compiled function, and the arena of its calls."""

    def __init__(self, through_python: Callable[..., Any], fault: Callable[..., Any], common: int) -> None:
        self.chosen: Specialisation | None = None
        self.filled = 0  # when, in the order of all fillings
        self.serves: base_settings.Settings | None = None  # whose code the tables hold
        self.is_right = False  # and whether that is still the right one; both are `entries`' to set
        self.words = (ctypes.c_int64 * int(ContextField.SIZE))()
        self._prepare(through_python, fault, common)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.words)

    @property
    def is_enabled(self) -> bool:
        return bool(self.words[ContextField.ENABLED] != Enabled.NONE)

    def _prepare(self, through_python: Callable[..., Any], fault: Callable[..., Any], common: int) -> None:
        words = self.words
        point_at_python(words)
        words[ContextField.SLOW], words[ContextField.FAULT] = id(through_python), id(fault)
        words[ContextField.OUT_NAME] = id(_OUT)
        words[ContextField.COMMON] = common
        words[ContextField.COPY] = ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0
        words[ContextField.SETTINGS_VARIABLE], words[ContextField.ERROR_TYPE] = id(base_settings.current), id(Exception)

    def let_go(self) -> None:
        """Give the arena back, unless a call runs in it, in this thread or another."""
        if self.chosen is not None and not self.chosen.is_busy:
            self.chosen.block = None

    def fill(self, chosen: Specialisation, fixed: list[Any]) -> None:
        """The tables for a specialisation, and its arena; `fixed` is that of inputs that are no arguments."""
        self.chosen = chosen
        self.filled = next(_fills)
        words, executable = self.words, chosen.entry_plan.native_code
        executable.refresh_workers()
        working_bytes = chosen.entry_plan.program.arena_bytes + (executable.scratch_bytes + 63) // 64 * 64
        if chosen.block is None:
            chosen.block = pool().acquire(max(working_bytes + chosen.staging_bytes, 64))
        guards = np.array([n for pair in executable.guards for n in pair], np.int64)
        order = {name: i for i, name in enumerate(executable.symbols)}
        bindings = np.zeros((max(len(order), 1), BINDING_WORDS), np.int64)
        for (name, factor, constant), argument, axis, least, most in chosen.bindings:
            sure = max(least, chosen.least.get(name, least))
            bindings[order[name]] = argument, 3 + axis, sure, most, factor, constant
        table = self._output_table(chosen, chosen.block.address + working_bytes)
        allocate_outputs, templates = output_maker(chosen), output_templates(chosen)
        states, hold = chosen.states.table(chosen.entry_plan), chosen.states.hold
        releases = executable.work > LONG_WORK
        arrange, gather = arranger(chosen.structure), chosen.gather
        given = np.array([0 if thing is LEAF else id(thing()) for thing in chosen.given or ()], np.int64)
        chosen.given_table = given
        chosen.keep = [guards, bindings, table, allocate_outputs, templates, states, hold, given, arrange, *fixed]
        words[ContextField.ARGUMENTS] = len(given) if chosen.given is not None else -1
        words[ContextField.ARGUMENT_TABLE] = given.ctypes.data
        words[ContextField.GATHER] = id(gather) if gather is not None else 0
        words[ContextField.STATES], words[ContextField.STATE_TABLE] = len(states), states.ctypes.data
        words[ContextField.HOLD] = id(hold) if releases and len(states) else 0
        words[ContextField.TEMPLATES] = templates[0].ctypes.data if templates is not None else 0
        words[ContextField.FIXED], words[ContextField.FIXED_TABLE] = len(fixed[0]) // 3, fixed[0].ctypes.data
        words[ContextField.CAPTURED], words[ContextField.CAPTURED_TABLE] = len(fixed[1]), fixed[1].ctypes.data
        words[ContextField.OUTPUTS], words[ContextField.OUTPUT_TABLE] = len(table) // 3, table.ctypes.data
        words[ContextField.ALLOCATE], words[ContextField.SINGLE] = id(allocate_outputs), int(chosen.structure is LEAF)
        words[ContextField.ARRANGE] = id(arrange) if arrange is not None else 0
        words[ContextField.OWNER], words[ContextField.BUSY] = id(chosen), ctypes.addressof(chosen.busy)
        words[ContextField.PROGRAM] = executable.words.ctypes.data
        words[ContextField.INPUTS] = chosen.arguments
        words[ContextField.SLOTS] = executable.slots
        words[ContextField.GUARD_TABLE] = guards.ctypes.data
        words[ContextField.BINDINGS] = bindings.ctypes.data
        words[ContextField.ARENA] = chosen.block.address
        words[ContextField.SCRATCH] = chosen.block.address + chosen.entry_plan.program.arena_bytes
        words[ContextField.RELEASES] = executable.work_at + 1 if releases else 0
        words[ContextField.OVERLAP] = int(chosen.overlap or chosen.staged == [True])
        words[ContextField.STAGED] = int(any(chosen.staged))

    @staticmethod
    def _output_table(chosen: Specialisation, room: int) -> np.ndarray:
        """Per output: its slot, memory to stage it in or 0, bytes of an element."""
        executable, program = chosen.entry_plan.native_code, chosen.entry_plan.program
        words: list[int] = []
        for place, staged in zip(program.outputs, chosen.staged, strict=False):
            words += [executable.slot_number[place.slot], room if staged else 0, place.dtype.itemsize]
            room += aligned(program.slots[place.slot].nbytes) if staged else 0
        return np.array(words, np.int64)
