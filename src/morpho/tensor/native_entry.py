"""A compiled function's native entry: the tables that it reads, filled for one specialisation at a time."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.base import settings as base_settings
from morpho.passes.memory import aligned
from morpho.runtime.executable import LONG_WORK
from morpho.runtime.faults import index_fault
from morpho.runtime.pool import pool
from morpho.runtime.tables import ContextField
from morpho.tensor import constants
from morpho.tensor.core import Tensor
from morpho.tensor.entries import entries
from morpho.tensor.outputs import output_maker, output_templates
from morpho.tensor.specialise import Specialisation
from morpho.tensor.trees import LEAF, arranger

MOST_KEPT_BYTES = 1 << 30  # a larger workspace is acquired call by call, through Python
_OUT = sys.intern("out")


class NativeEntry(ctypes.Structure):
    """An object whose calls go to native code: the address of the entry, and of what that reads."""

    _fields_ = [("entry", ctypes.c_void_p), ("context", ctypes.c_void_p)]

    def __init__(self, through_python: Callable[..., Any]) -> None:
        super().__init__()
        self.through_python = through_python  # for calls that the entry does not serve
        self.specialisations: dict[Any, Specialisation] = {}
        self.current: Specialisation | None = None
        self.retired: Any = None  # memory a call in another thread may still read
        self.uses = 0  # how often the entry's tables were filled
        self.serves: base_settings.Settings | None = None  # whose code they hold
        self.lock = threading.RLock()
        self.words = (ctypes.c_int64 * int(ContextField.SIZE))()
        self.context = ctypes.addressof(self.words)
        self._prepare_context()
        entries.add(self)

    def __hash__(self) -> int:
        return id(self)

    def _prepare_context(self) -> None:
        words, api = self.words, ctypes.pythonapi
        self._fault_bound = self._fault
        words[ContextField.TENSOR_TYPE], words[ContextField.BYTES_TYPE] = id(Tensor), id(bytes)
        words[ContextField.SLOW], words[ContextField.FAULT] = id(self.through_python), id(self._fault_bound)
        words[ContextField.OUT_NAME], words[ContextField.TUPLE_TYPE] = id(_OUT), id(tuple)
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
            words[target] = ctypes.cast(getattr(api, name), ctypes.c_void_p).value or 0
        words[ContextField.COPY] = ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0
        words[ContextField.SETTINGS_VARIABLE], words[ContextField.ERROR_TYPE] = id(base_settings.current), id(Exception)

    def _leave(self) -> None:
        """Let the specialisation in use go: only one keeps an arena between calls."""
        entries.stop(self)
        if self.current is not None and not self.words[ContextField.BUSY]:
            self.current.block = None

    def _use(self, chosen: Specialisation, generation: int) -> None:
        """Let the native entry serve this specialisation from now on, unless it was found before a change of what may
        mean other code."""
        if self.current is not chosen:
            self._leave()
        entries.stop(self)
        self.current = chosen
        if not chosen.direct or not self.entry or chosen.plan.workspace_bytes + chosen.staging_bytes > MOST_KEPT_BYTES:
            return
        fixed = constants.fixed_table(chosen)
        if fixed is None:
            return  # the first call prepares; the next one comes here again
        self._fill(chosen, fixed)
        entries.start(self, generation)

    def _fill(self, chosen: Specialisation, fixed: list[Any]) -> None:
        """The tables for a specialisation, and its arena; `fixed` is that of inputs that are no arguments."""
        words, executable = self.words, chosen.plan.executables[0]
        executable.refresh_workers()
        working_bytes = chosen.plan.program.arena_bytes + (executable.scratch_bytes + 63) // 64 * 64
        if chosen.block is None:
            chosen.block = pool().acquire(max(working_bytes + chosen.staging_bytes, 64))
        guards = np.array([n for pair in executable.guards for n in pair], np.int64)
        order = {name: i for i, name in enumerate(executable.symbols)}
        bindings = np.zeros(4 * max(len(order), 1), np.int64)
        for name, argument, axis, least, most in chosen.bindings:
            sure = max(least, chosen.least.get(name, least))
            bindings[4 * order[name]:4 * order[name] + 4] = argument, 3 + axis, sure, most
        table = self._output_table(chosen, chosen.block.address + working_bytes)
        allocate_outputs, templates = output_maker(chosen), output_templates(chosen)
        states, hold = chosen.states.table(chosen.plan), chosen.states.hold
        releases = executable.work > LONG_WORK
        arrange, gather = arranger(chosen.structure), chosen.gather
        given = np.array([0 if thing is LEAF else id(thing) for thing in chosen.given or ()], np.int64)
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
        words[ContextField.PROGRAM] = executable.words.ctypes.data
        words[ContextField.INPUTS] = chosen.arguments
        words[ContextField.SLOTS] = len(executable.inputs) + len(executable.results) + 1
        words[ContextField.GUARD_TABLE] = guards.ctypes.data
        words[ContextField.BINDINGS] = bindings.ctypes.data
        words[ContextField.ARENA] = chosen.block.address
        words[ContextField.SCRATCH] = chosen.block.address + chosen.plan.program.arena_bytes
        words[ContextField.RELEASES] = executable.work_at + 1 if releases else 0
        words[ContextField.OVERLAP] = int(chosen.overlap or chosen.staged == [True])
        words[ContextField.STAGED] = int(any(chosen.staged))

    @staticmethod
    def _output_table(chosen: Specialisation, room: int) -> np.ndarray:
        """Per output: its slot, memory to stage it in or 0, bytes of an element."""
        executable, program = chosen.plan.executables[0], chosen.plan.program
        words: list[int] = []
        for place, staged in zip(program.outputs, chosen.staged, strict=False):
            words += [executable.slot_number[place.slot], room if staged else 0, place.dtype.itemsize]
            room += aligned(program.slots[place.slot].nbytes) if staged else 0
        return np.array(words, np.int64)

    def after_fork(self) -> None:
        """In a child: no thread of the parent holds the lock or runs the entry."""
        self.lock = threading.RLock()
        self.words[ContextField.ENABLED] = self.words[ContextField.BUSY] = 0
        self.current = None

    def _fault(self, status: int, program: int) -> None:
        """Called by the native entry when a kernel of a program reports a fault."""
        plan = next(chosen.plan for chosen in list(self.specialisations.values())
                    if chosen.direct and chosen.plan.executables[0].words.ctypes.data == program)
        raise index_fault(plan.graph.outputs, plan.executables[0].faulty(status))
