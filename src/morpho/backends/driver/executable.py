"""An executable: a program whose kernels are compiled and whose tables are laid out in the driver's ABI.

Every number that may depend on a dynamic dimension (extents, strides, byte offsets, guarded words) stands in one table
of values; where dimensions are dynamic the driver computes that table from the arguments' shapes at each call.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from morpho.backends.code.compiler import code
from morpho.backends.code.compiler.compilation import kernel_addresses
from morpho.backends.code.emit import FAULT_INTERRUPT
from morpho.backends.driver import interrupts, threads
from morpho.backends.driver.abi import LONG_WORK, ControlKind, Distances, ProgramField, StepField
from morpho.backends.driver.control_tables import ControlTables
from morpho.backends.driver.driver import FUNCTIONS, driver_text
from morpho.backends.driver.host_call import HostCall
from morpho.backends.driver.interrupts import HOST_WORK, InterruptField
from morpho.backends.driver.timed_code import TIMED_FUNCTIONS, timed_text
from morpho.backends.kernels.gemm.gemm import EPILOGUE, PROLOGUE
from morpho.base.dims import Dim, Size, evaluate, upper
from morpho.base.errors import ArgumentError, fail
from morpho.base.machine import host_architecture
from morpho.base.python.blas import routine_address
from morpho.base.target import isa_named
from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.program.co_schedule import (
    TILES_PER_THREAD,
    alternates,
    groups,
    in_long_loops,
    least_shared_work,
    least_waking_work,
    pieces,
    pieces_per_thread,
    share_of_thread,
)
from morpho.program.kernel import Kernel
from morpho.program.program import AnyStep, Control, HostStep, Program, Step, span
from morpho.program.view import View

MOST_FACTORS = 4  # dynamic sizes that one term of a number multiplies


class SizeTable:
    """The value table of a program: one entry per distinct size, but for runs of sizes that must be contiguous."""

    def __init__(self) -> None:
        self.sizes: list[Size] = []
        self._known: dict[Size, int] = {}

    def one(self, size: Size) -> int:
        """The index of a number."""
        found = self._known.get(size)
        if found is None:
            found = self._known[size] = len(self.sizes)
            self.sizes.append(size)
        return found

    def run(self, sizes: Sequence[Size]) -> int:
        """The index of the first of several numbers that stand side by side."""
        start = len(self.sizes)
        self.sizes.extend(sizes)
        return start


class Native:
    """The driver's functions, compiled once per process."""

    def __init__(self, distances: Distances, pauses: bool = False, recorder: int = 0) -> None:
        """With the address of a `RecorderField` table it is the timed twin."""
        text = timed_text(distances, host_architecture(), pauses) if recorder else driver_text(distances, pauses)
        isa = isa_named("scalar")
        names = TIMED_FUNCTIONS if recorder else FUNCTIONS
        functions = code.native_functions(text, lambda: text, names, isa)
        self.entry, run, released, poll, evaluate_at, self.worker, *timing = functions
        arguments = (ctypes.c_void_p,) * 4
        interrupts.table[InterruptField.POLL] = poll
        self.run_long = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(released)  # gives up the interpreter lock
        self.run_short = ctypes.PYFUNCTYPE(ctypes.c_int64, *arguments)(run)
        self.evaluate = ctypes.PYFUNCTYPE(None, *arguments[:3])(evaluate_at)
        if timing:
            ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(timing[1])(recorder)
            self.now = ctypes.PYFUNCTYPE(ctypes.c_int64)(timing[0])  # the twin's clock


_native: Native | None = None
_twin: Native | None = None  # of who profiles; kept for the next time
_profiled = False
_distances: Distances | None = None
loaded: list[Callable[[], None]] = []  # called once, when the driver is there
live: weakref.WeakSet[Executable] = weakref.WeakSet()
born: list[Executable] | None = None  # while somebody profiles: all programs, held until their events are read


def set_distances(distances: Distances) -> None:
    """Told by the tensor floor where native code finds what it reads inside Python objects."""
    global _distances
    _distances = distances


def is_ready() -> bool:
    """Whether the driver can be had: the tensor floor has told the distances, which it does before it computes."""
    return _distances is not None


def native() -> Native:
    """The driver in force, compiled or loaded at first use."""
    global _native
    if _profiled:
        assert _twin is not None
        return _twin
    if _native is None:
        assert _distances is not None, "the tensor floor tells the distances when it is imported"
        _native = Native(_distances)
        for function in loaded:
            function()
    return _native


def profile_with(recorder: int) -> Native:
    """Put the timed twin in force, whose events go to the rings of a `RecorderField` table, or with 0 the plain driver
    again. Programs alive are pointed at its threads; compiled functions have entries that their floor changes."""
    global _twin, _profiled, born
    born = list(live) if recorder else None
    if recorder and _twin is None:
        assert _distances is not None, "the tensor floor tells the distances when it is imported"
        _twin = Native(_distances, recorder=recorder)
    _profiled = bool(recorder)
    for executable in list(live):
        executable.refresh_workers()
    return native()


class Executable:
    """A native program. Host steps are functions like any other's (`host_call.py`)."""

    def __init__(self, program: Program, steps: Sequence[AnyStep], thresholds: DispatchThresholds,
                 extra: Sequence[Sequence[Size]] = ()) -> None:
        self.program, self.steps, self.thresholds = program, list(steps), thresholds
        self.threads = threads.wanted_threads()
        self.inputs = [s for s in program.slots if s.kind == "input"]
        self.results = [s for s in program.slots if s.kind == "result"]
        self.slot_number: dict[int, int] = {}
        self._number_slots()
        self.table = SizeTable()
        self.host_calls: dict[int, HostCall] = {}  # by number of the step
        self.guards = [(len(sizes), self.table.run(sizes)) for sizes in extra]
        kernels = [kernel for step in self.steps if isinstance(step, Step) for kernel in step.kernels]
        self._build_steps(iter(self._addresses_of(kernels)))
        self.work_at = self.table.one(self._work_of_a_call())
        self._build_values()
        self._build_program()

    def _addresses_of(self, kernels: list[Kernel]) -> Sequence[int]:
        return kernel_addresses(kernels)

    # -- tables --------------------------------------------------------------------------------------------------------
    def _number_slots(self) -> None:
        """Inputs, results, memories of others, then the arena, which holds every temporary, then cursors."""
        self.cursors = 0
        arena = len(self.inputs) + len(self.results) + self.program.memories
        self.slots = arena + 1  # that a caller has room for
        for index, slot in enumerate(self.program.slots):
            if slot.kind == "input":
                self.slot_number[index] = slot.index
            elif slot.kind == "result":
                self.slot_number[index] = len(self.inputs) + slot.index
            elif slot.kind == "memory":
                self.slot_number[index] = len(self.inputs) + len(self.results) + slot.index
            elif slot.kind == "cursor":
                self.slot_number[index] = arena + 1 + self.cursors
                self.cursors += 1
            else:
                self.slot_number[index] = arena

    def _build_steps(self, addresses: Iterator[int]) -> None:
        words: list[int] = []
        thresholds = self.thresholds
        self.co_schedule = self._build_co_schedule(thresholds)
        self.place_tables: list[np.ndarray] = []
        self.control_tables = ControlTables(self)
        for number, (step, in_loop) in enumerate(zip(self.steps, in_long_loops(self.steps), strict=True)):
            if isinstance(step, Control):
                words += self._memory_row(step) if step.kind == "memory" else self.control_tables.row(number, step)
                continue
            if isinstance(step, HostStep):
                words += self._host_row(number, step)
                continue
            address = next(addresses)
            self._add_places(step.views)
            values = step.values
            if routines := getattr(step.kernel, "routines", ()):
                values = (*map(routine_address, routines), *values[len(routines):])
            if step.epilogue is not None:
                values = (*values[:EPILOGUE], next(addresses), *values[EPILOGUE + 1:])
            if step.prologue is not None:
                values = (*values[:PROLOGUE], next(addresses), *values[PROLOGUE + 1:])
            words += [address, len(step.views), self.place_tables[-1].ctypes.data, self.table.run(values),
                      self.table.one(step.rows), self.table.one(step.columns), int(step.splits_columns), step.work,
                      step.kernel.scratch_bytes_per_column, step.kernel.scratch_bytes + step.scratch,
                      pieces_per_thread(step), least_shared_work(step, thresholds),
                      -1 if step.together == 0 else step.together if step.together > 1 else 0,
                      self.co_schedule[number].ctypes.data if number in self.co_schedule else 0, int(alternates(step)),
                      least_waking_work(step, thresholds, in_loop), share_of_thread(step, thresholds),
                      int(pieces_per_thread(step) == TILES_PER_THREAD)]
        self.step_table = np.array(words or [0], np.int64)

    def _add_places(self, places: Sequence[View | None]) -> None:
        """The table of a step's operands."""
        pairs = [number for place in places
                 for number in ([0, self.table.one(0)] if place is None else self.lies(place))]
        self.place_tables.append(np.array(pairs or [0], np.int64))

    def _host_row(self, number: int, step: HostStep) -> list[int]:
        """The words of a step that runs in NumPy, on the thread that runs the program."""
        call = self.host_calls[number] = HostCall(step)
        self._add_places(step.views)
        words = [0] * int(StepField.SIZE)
        words[StepField.FUNCTION], words[StepField.PLACES] = call.address, len(step.views)
        words[StepField.PLACE_TABLE] = self.place_tables[-1].ctypes.data
        words[StepField.VALUES] = self.table.run(call.values)
        words[StepField.ROWS] = words[StepField.COLUMNS] = self.table.one(1)
        words[StepField.PIECES], words[StepField.LEAST], words[StepField.WORK] = 1, LONG_WORK, HOST_WORK
        return words

    def _memory_row(self, step: Control) -> list[int]:
        """The words of a mark behind which slots lie at an address that was found."""
        self._add_places([step.value])
        words = [0] * int(StepField.SIZE)
        words[StepField.PLACES], words[StepField.PLACE_TABLE] = 1, self.place_tables[-1].ctypes.data
        words[StepField.ROWS] = len(self.inputs) + len(self.results) + step.number
        words[StepField.TOGETHER] = int(ControlKind.MEMORY)
        return words

    def lies(self, place: View) -> list[int]:
        """The number of a place's slot, and that of its first byte among the values."""
        slot = self.program.slots[place.slot]
        return [self.slot_number[place.slot], self.table.one(slot.offset + place.offset * place.dtype.itemsize)]

    def _build_co_schedule(self, thresholds: DispatchThresholds) -> dict[int, np.ndarray]:
        """The table of every co-scheduled launch, by the number of its first step."""
        found = {}
        for number, group in groups(self.steps):
            listed = pieces(group, self.threads, thresholds)
            head = [len(listed), max(step.scratch_bytes(1) for step in group), sum(len(step.views) for step in group)]
            found[number] = np.array([*head, *(n for piece in listed for n in piece)], np.int64)
        return found

    def _build_values(self) -> None:
        """The numbers, or their polynomials over the symbols."""
        symbols: dict[str, tuple[int, int]] = {}
        for size in self.table.sizes:
            if isinstance(size, Dim):
                symbols |= size.symbols
        for step in self.steps:  # what is counted, also where nothing that is left of the program has that size
            if isinstance(step, Control) and step.kind == "size" and isinstance(step.turns, Dim):
                symbols |= step.turns.symbols
        self.symbols = sorted(symbols)
        self.symbol_places = [self.table.one(Dim(name, *symbols[name])) for name in self.symbols] \
            if self.control_tables.counted else []
        number = {name: i + 1 for i, name in enumerate(self.symbols)}
        self.values = np.array([0 if isinstance(size, Dim) else size for size in self.table.sizes or [0]], np.int64)
        moving: list[int] = []
        terms: list[int] = []
        for place, size in enumerate(self.table.sizes):
            if not isinstance(size, Dim):
                continue
            moving += [place, len(terms) // 5]
            for monomial, coefficient in size.terms:
                names = [number[symbol[0]] for symbol in monomial]
                if len(names) > MOST_FACTORS:
                    raise fail(ArgumentError, "compile", f"the size {size} multiplies more than four dynamic sizes",
                               "declare fewer axes dynamic")
                terms += [coefficient, *names, *[0] * (MOST_FACTORS - len(names))]
            moving.append(len(terms) // 5)
        self.moving, self.terms = np.array(moving or [0], np.int64), np.array(terms or [0], np.int64)

    def _build_program(self) -> None:
        words = np.zeros(int(ProgramField.SIZE), np.int64)
        words[ProgramField.STEPS] = len(self.steps)
        words[ProgramField.STEP_TABLE] = self.step_table.ctypes.data
        words[ProgramField.VALUES] = len(self.table.sizes)
        words[ProgramField.VALUE_TABLE] = self.values.ctypes.data
        words[ProgramField.SYMBOLS] = len(self.symbols)
        words[ProgramField.MOVING] = len(self.moving) // 3
        words[ProgramField.MOVING_TABLE] = self.moving.ctypes.data
        words[ProgramField.TERM_TABLE] = self.terms.ctypes.data
        words[ProgramField.CONTROLS] = self.control_tables.count
        words[ProgramField.SLOTS] = self.slots
        words[ProgramField.CURSORS] = self.cursors
        words[ProgramField.SHIELD] = -1
        self.words = words
        self.control_tables.finish(words.ctypes.data, self.symbols, self.symbol_places)
        self._register()

    def _register(self) -> None:
        """Count the program among those of this process that run."""
        self.epoch = -1, False
        live.add(self)
        if born is not None:
            born.append(self)
        self.refresh_workers()

    def refresh_workers(self) -> None:
        """Point the program at this process's threads; after a fork they are new ones."""
        epoch = threads.epoch, _profiled
        if self.epoch != epoch:
            self.workers = threads.workers(self.threads, native().worker)
            self.words[ProgramField.POOL] = self.workers.address
            self.epoch = epoch

    def shield_from(self, step: int) -> None:
        """Let no interrupt end a run once it has come to this step."""
        self.words[ProgramField.SHIELD] = step

    @property
    def co_scheduled_launches(self) -> int:
        """How often several steps ran as one launch so far."""
        return int(self.words[ProgramField.CO_SCHEDULED])

    # -- needs ---------------------------------------------------------------------------------------------------------
    @property
    def scratch_bytes(self) -> int:
        """The most scratch any step can need, all threads together."""
        return self._scratch(upper)

    def scratch_needed(self, sizes: Mapping[str, int]) -> int:
        """The scratch of a call with these sizes of the dynamic dimensions."""
        return self._scratch(lambda size: evaluate(size, sizes))

    def _scratch(self, number: Callable[[Size], int]) -> int:
        return max((step.scratch_bytes(self.threads, number) for step in self.steps if isinstance(step, Step)),
                   default=0)

    @property
    def work(self) -> int:
        """Operations of one call at the largest sizes."""
        return upper(self._total_work())

    def _total_work(self) -> Size:
        """Operations of one call: those of a loop at every turn, and many where nobody knows how many there are, or
        where other threads may run meanwhile since a step is Python's."""
        total: Size = LONG_WORK + 1 if self.host_calls else 0
        times: list[Size] = [1]
        for step in self.steps:
            if isinstance(step, Step):
                inside = step.operations if step.threads == "library" and step.operations is not None else 0
                total = total + (step.rows * step.columns * step.work + inside) * times[-1]
            elif isinstance(step, HostStep):
                continue
            elif step.kind == "loop":
                times.append(times[-1] * (LONG_WORK if step.turns is None else step.turns))
            elif step.kind == "end":
                times.pop()
        return total

    def _work_of_a_call(self) -> Size:
        """Operations of one call by its sizes, or whether they are many where that is more than tables hold."""
        total = self._total_work()
        if isinstance(total, Dim) and all(len(monomial) <= MOST_FACTORS for monomial, _ in total.terms):
            return total
        return min(upper(total), LONG_WORK + 1)

    def numbers(self, sizes: Mapping[str, int]) -> np.ndarray:
        """The table of values for given sizes of the dynamic dimensions."""
        if not self.symbols:
            return self.values
        return np.array([evaluate(size, sizes) for size in self.table.sizes], np.int64)

    @property
    def counted(self) -> dict[str, int]:
        """Sizes that are data, and the most that each can be."""
        return {next(iter(step.turns.symbols)): upper(step.turns) for step in self.steps
                if isinstance(step, Control) and step.kind == "size" and isinstance(step.turns, Dim)}

    def _tell(self, values: np.ndarray, sizes: Mapping[str, int]) -> None:
        """Write the counts into the dict of sizes that the caller gave, if any."""
        for name in self.control_tables.counted:
            assert isinstance(sizes, dict)
            sizes[name] = int(values[self.symbol_places[self.symbols.index(name)]])

    # -- running -------------------------------------------------------------------------------------------------------
    def run(self, pointers: Sequence[int], sizes: Mapping[str, int], arena: int) -> int:
        """Run with the addresses of inputs and results; scratch follows the temporaries in the arena. Sizes that are
        data are given as the most they can be, and are what they turned out to be afterwards."""
        self.refresh_workers()
        slots = self._slot_table(pointers, arena)
        values = self.numbers(sizes)
        call = native().run_long if self.work > LONG_WORK else native().run_short
        status = int(call(self.words.ctypes.data, ctypes.addressof(slots), values.ctypes.data,
                          arena + self.program.arena_bytes))
        if status & FAULT_INTERRUPT:
            raise interrupts.raised()
        self._tell(values, sizes)
        return status

    def _slot_table(self, pointers: Sequence[int], arena: int) -> Any:
        """Where slots lie; memories of others are found later."""
        return (ctypes.c_void_p * (len(pointers) + self.program.memories + 1))(
            *pointers, *[0] * self.program.memories, arena)

    def run_timed(self, pointers: Sequence[int], sizes: Mapping[str, int], arena: int, seconds: list[float]) -> int:
        """As `run`, one step at a time; the time of each is appended to `seconds`."""
        self.refresh_workers()
        slots = self._slot_table(pointers, arena)
        values, words, table = self.numbers(sizes), self.words.copy(), self.step_table.copy()
        marks = table[int(StepField.TOGETHER)::int(StepField.SIZE)]
        marks[marks > int(ControlKind.LOOP)] = 0
        words[ProgramField.SHIELD] = -1
        for number, length in self._units():
            words[ProgramField.STEPS] = length
            words[ProgramField.STEP_TABLE] = table.ctypes.data + 8 * int(StepField.SIZE) * number
            started = time.perf_counter()
            status = int(native().run_long(words.ctypes.data, ctypes.addressof(slots), values.ctypes.data,
                                           arena + self.program.arena_bytes))
            if status & FAULT_INTERRUPT:
                raise interrupts.raised()
            seconds += [time.perf_counter() - started, *[0.0] * (length - 1)]
            if status:
                return status + (number << 32)
        self._tell(values, sizes)
        return 0

    def _units(self) -> Iterator[tuple[int, int]]:
        """Parts that can be timed: a step, or all of a loop or of a branch."""
        number = 0
        while number < len(self.steps):
            length = span(self.steps, number)
            yield number, length
            number += length

    def faulty(self, status: int) -> Step | HostStep:
        """The step behind a status."""
        found = self.steps[(status >> 32) - 1]
        assert isinstance(found, Step | HostStep)
        return found

    def host_error(self, status: int) -> BaseException:
        """The error behind the status of a host step, which ran in this thread."""
        return self.host_calls[(status >> 32) - 1].error()

    def function_of(self, number: int) -> int:
        """The address of the kernel that a step calls."""
        return int(self.step_table[number * int(StepField.SIZE) + int(StepField.FUNCTION)])

    @property
    def native_steps(self) -> int:
        """Steps that are not the host's."""
        return len(self.steps) - len(self.host_calls)
