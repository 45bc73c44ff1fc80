"""A program as data of a library: the tables of an `Executable` as LLVM constants, and an entry that C calls.

The driver's functions are those that run programs in this process (`run_code.py`, `control_code.py`). What they ask of
Python is replaced: nobody interrupts a library, and its kernels are divided among threads by a function of the host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from morpho.backends.code.emit import INTERRUPTS
from morpho.backends.driver.abi import (
    ControlField,
    Function,
    PoolField,
    ProgramField,
    StepField,
    TaskField,
)
from morpho.backends.driver.control_code import control, run_control, set_turn, settle
from morpho.backends.driver.executable import Executable
from morpho.backends.driver.run_code import evaluate, launch_piece, run, run_launch, run_step, set_memory
from morpho.backends.driver.thread_code import work_on
from morpho.base.dims import Size
from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.program.kernel import Kernel
from morpho.program.program import Program

PREFIX = "morpho_"  # of every name of a library that is not for callers
ADDRESSES = 0x5EED_0000_0000_0000  # kernels have numbers from here on in place of addresses
FIRST_FAULT = 16  # a kernel's fault 2^i is the code FIRST_FAULT + i
WHICH_SHIFT = 8  # a code is a kind, and the number of the field it is about shifted by so much
PROCESS_POINTERS = {  # fields of tables that are addresses
    "step": (StepField.FUNCTION, StepField.PLACE_TABLE, StepField.LAUNCH_TABLE),
    "control": (ControlField.MOVING_TABLE, ControlField.CARRIED_TABLE, ControlField.CASE_TABLE, ControlField.PROGRAM,
                ControlField.SYMBOL_TABLE),
    "program": (ProgramField.STEP_TABLE, ProgramField.VALUE_TABLE, ProgramField.MOVING_TABLE, ProgramField.TERM_TABLE),
}


class Code:
    """Kinds of refusal, before anything is written."""

    OK = 0
    SIZE = 1  # a buffer is missing or has another number of bytes
    ALIGNMENT = 2
    BOUNDS = 3  # a dynamic size lies outside its bounds
    WORKSPACE = 4  # missing, too small, or not aligned to 64 bytes
    WEIGHTS = 5  # not the file that was written with the library
    THREADS = 6


class PortableTables(Executable):
    """The tables of a program whose kernels have names in place of addresses."""

    def __init__(self, program: Program, thresholds: DispatchThresholds, threads: int,
                 extra: Sequence[Sequence[Size]] = ()) -> None:
        self.kernels: list[Kernel] = []
        self._threads = threads
        super().__init__(program, program.steps, thresholds, extra)

    @property
    def threads(self) -> int:
        """Threads that the co-scheduled launches are cut for."""
        return self._threads

    @threads.setter
    def threads(self, _: int) -> None:
        """Ignore the threads of this process."""

    def _addresses_of(self, kernels: list[Kernel]) -> Sequence[int]:
        numbers = {kernel: number for number, kernel in enumerate(dict.fromkeys(kernels))}
        self.kernels = list(numbers)
        return [ADDRESSES + numbers[kernel] for kernel in kernels]

    def _register(self) -> None:
        """It never runs here."""

    def constants(self, name: str, kernel_names: Sequence[str], pointer_bytes: int) -> list[str]:
        """Every table as a constant of LLVM; the program is `@{name}_program`, its numbers `@{name}_values`."""
        tables: list[tuple[str, np.ndarray, Sequence[int]]] = [("places", table, ()) for table in self.place_tables]
        tables += [("launch", table, ()) for table in self.co_schedule.values()]
        for table in self.control_tables.arrays:
            tables.append(("control", table, PROCESS_POINTERS["control"] if table.size == int(ControlField.SIZE)
                           and self._is_control(table) else ()))
        size = int(StepField.SIZE)
        steps = tuple(first + int(at) for first in range(0, self.step_table.size - size + 1, size)
                      for at in PROCESS_POINTERS["step"])
        tables += [("steps", self.step_table, steps), ("values", self.values, self._pointers_in_values()),
                   ("moving", self.moving, ()), ("terms", self.terms, ()),
                   ("program", self.words, PROCESS_POINTERS["program"])]
        labels = {table.ctypes.data: f"@{name}_{kind}" if kind in ("program", "values") else f"@{name}_{kind}{number}"
                  for number, (kind, table, _) in enumerate(tables)}
        labels |= {ADDRESSES + number: f"@{kernel}" for number, kernel in enumerate(kernel_names)}
        return [f"{labels[table.ctypes.data]} = internal constant "
                f"{_initialiser(table, frozenset(map(int, pointers)), labels, pointer_bytes)}, align 64"
                for _, table, pointers in tables]

    def _is_control(self, table: np.ndarray) -> bool:
        return any(row[int(StepField.FUNCTION)] == table.ctypes.data
                   for row in self.step_table.reshape(-1, int(StepField.SIZE)))

    def _pointers_in_values(self) -> tuple[int, ...]:
        """Places of kernels that other kernels call."""
        return tuple(number for number, size in enumerate(self.table.sizes)
                     if isinstance(size, int) and ADDRESSES <= size < ADDRESSES + len(self.kernels))


def _initialiser(table: np.ndarray, pointers: frozenset[int], labels: Mapping[int, str], pointer_bytes: int) -> str:
    """The words of a table; a pointer of four bytes is followed by as many zeros."""
    kinds: list[str] = []
    values: list[str] = []
    run: list[int] = []

    def close() -> None:
        if run:
            kinds.append(f"[{len(run)} x i64]")
            values.append(f"[{len(run)} x i64] [{', '.join(f'i64 {word}' for word in run)}]")
            run.clear()

    for number, word in enumerate(table.tolist()):
        label = labels.get(word) if number in pointers else None
        if label is None:
            run.append(word)
            continue
        close()
        kinds.append("ptr")
        values.append(f"ptr {label}")
        if pointer_bytes == 4:
            kinds.append("i32")
            values.append("i32 0")
    close()
    return f"<{{ {', '.join(kinds)} }}> <{{ {', '.join(values)} }}>"


# -- the driver of a library -------------------------------------------------------------------------------------------
def library_driver() -> str:
    """The functions that run any program, without Python: a module of LLVM text."""
    poll = Function("poll", "i64 %force", "i32")
    poll.e.line("ret i32 0")
    shield = Function("shield", "", "void")
    shield.e.line("ret void")
    text = "\n".join([
        f"@{INTERRUPTS} = constant [1 x ptr] [ptr @poll]",
        poll.text(), shield.text(),
        work_on(Function("work_on", "ptr %pool, ptr %task, i64 %thread", "void"), hosted=True),
        _hosted_task(Function("hosted_task", "ptr %data, i64 %thread", "void")),
        _share(Function("share", "ptr %pool, ptr %task", "void")),
        run_step(Function("run_step", "ptr %step, ptr %slots, ptr %values, ptr %scratch, ptr %pool, ptr %spent",
                          "i32")),
        launch_piece(Function("launch_piece", "ptr %rows, ptr %pieces, i64 %first, i64 %last, i64 %left, i64 %right, "
                                            "ptr %scratch", "i32")),
        run_launch(Function("run_launch", "ptr %step, ptr %slots, ptr %values, ptr %scratch, ptr %pool", "i64")),
        set_memory(Function("set_memory", "ptr %step, ptr %slots, ptr %values", "void")),
        set_turn(Function("set_turn", "ptr %table, ptr %slots, ptr %values, i64 %turn", "void")),
        settle(Function("settle", "ptr %table, ptr %slots, ptr %values", "void")),
        control(Function("control", "ptr %row, ptr %slots, ptr %values, ptr %counters", "i64")),
        run_control(Function("run_control", "ptr %program, ptr %slots, ptr %values, ptr %scratch", "i64")),
        evaluate(Function("evaluate", "ptr %program, ptr %symbols, ptr %values", "void")),
        run(Function("run", "ptr %program, ptr %slots, ptr %values, ptr %scratch", "i64")),
    ])
    names = "|".join(re.findall(r"^define .*?@(\w+)\(", text, re.M))
    return re.sub(rf"@({names})\b", rf"@{PREFIX}\1", text)


def _hosted_task(f: Function) -> str:
    """hosted_task(data, thread): what the host's function calls on its threads."""
    pool, task = f.pointer("%data", 0), f.pointer("%data", 1)
    f.e.line(f"call void @work_on(ptr {pool}, ptr {task}, i64 %thread)")
    f.e.line("ret void")
    return f.text()


def _share(f: Function) -> str:
    """share(pool, task): the host's function runs the task on so many threads, or this one does alone."""
    e = f.e
    alone, several = e.fresh("alone"), e.fresh("several")
    threads = f.word("%task", TaskField.THREADS)
    runner = f.pointer("%pool", PoolField.RUNNER)
    f.store(0, "%task", TaskField.POLLS)
    e.branch_if(e.icmp("sgt", threads, 1) & (f.is_null(runner) ^ True), several, alone)
    e.label(several)
    data = f.alloca(2)
    f.store_pointer("%pool", data, 0)
    f.store_pointer("%task", data, 1)
    host = f.pointer("%pool", PoolField.HOST)
    e.line(f"call void {runner}(ptr {host}, i64 {threads.name}, ptr @hosted_task, ptr {data})")
    e.line("ret void")
    e.label(alone)
    e.line("call void @work_on(ptr %pool, ptr %task, i64 0)")
    e.line("ret void")
    return f.text()


# -- the entry ---------------------------------------------------------------------------------------------------------
class Place(NamedTuple):
    """Where the memory of a slot comes from: a field of the call, a constant of the library, bytes of the weights or
    of the workspace."""

    kind: str  # field, constant, weights, workspace
    number: int = 0  # of the field, or bytes from the start
    label: str = ""


class Buffer(NamedTuple):
    """A pair of words of a call: address and bytes. `bytes_at` is the number of the expected bytes among the values."""

    bytes_at: int
    alignment: int


class Copied(NamedTuple):
    """Bytes that are moved when a run has succeeded."""

    source: Place
    target: Place
    bytes_at: int


@dataclass
class EntryPlan:
    """The entry of one exported function: words of the caller's record, in this order: buffers as pairs, the weights'
    pair where they lie beside the library, the workspace's pair, one word for each dynamic size, threads."""

    name: str
    tables: PortableTables
    buffers: list[Buffer]
    places: dict[int, Place]  # by the number of a slot
    bounds: list[tuple[int, int]]  # of each symbol
    workspace_bytes: int
    values_bytes: int  # of the workspace, for the numbers of this call's sizes
    arena_at: int
    scratch_at: int
    most_threads: int
    weights_bytes: int = 0  # of the file beside; 0: none
    weights_stamp: Sequence[int] = ()  # the first words of that file
    copies: list[Copied] = field(default_factory=list)

    @property
    def words(self) -> int:
        """Words of the caller's record."""
        return 2 * len(self.buffers) + 2 * bool(self.weights_bytes) + 2 + len(self.bounds) + 1


class _Entry:
    """The function being written."""

    def __init__(self, plan: EntryPlan) -> None:
        self.plan = plan
        self.f = Function(plan.name, "ptr %call", "i32")
        self.e = self.f.e

    def refuse_unless(self, condition: object, kind: int, which: int) -> None:
        e = self.e
        fine, refused = e.fresh("fine"), e.fresh("refused")
        e.branch_if(condition, fine, refused)  # type: ignore[arg-type]
        e.label(refused)
        e.line(f"ret i32 {kind | which << WHICH_SHIFT}")
        e.label(fine)

    def check_address(self, number: int, alignment: int, kind: int, which: int) -> None:
        if alignment > 1:
            address = self.f.pointer("%call", number)
            low = self.e.assign(f"ptrtoint ptr {address} to i64", "i64", 1)
            self.refuse_unless(self.e.icmp("eq", low & (alignment - 1), 0), kind, which)

    def text(self) -> str:
        f, e, plan = self.f, self.e, self.plan
        at = 2 * len(plan.buffers)
        weights_at, at = at, at + 2 * bool(plan.weights_bytes)
        workspace_at, sizes_at, threads_at = at, at + 2, at + 2 + len(plan.bounds)
        which = len(plan.buffers) + bool(plan.weights_bytes)
        for number, (least, most) in enumerate(plan.bounds):
            size = f.word("%call", sizes_at + number)
            self.refuse_unless(e.icmp("sge", size, least) & e.icmp("sle", size, most), Code.BOUNDS, which + 1 + number)
        workspace = f.pointer("%call", workspace_at)
        if plan.workspace_bytes:
            enough = e.icmp("uge", f.word("%call", workspace_at + 1), plan.workspace_bytes)
            self.refuse_unless(enough & (f.is_null(workspace) ^ True), Code.WORKSPACE, which)
            self.check_address(workspace_at, 64, Code.WORKSPACE, which)
        values = f"@{plan.name}_values"
        if plan.bounds:
            values = workspace
            symbols = f.alloca(len(plan.bounds) + 1)
            f.store(1, symbols, 0)
            for number in range(len(plan.bounds)):
                f.store(f.word("%call", sizes_at + number), symbols, number + 1)
            # The numbers are scratch of the caller's: nothing of the results is written before all is checked.
            e.line(f"call void @{PREFIX}evaluate(ptr @{plan.name}_program, ptr {symbols}, ptr {values})")
        for number, buffer in enumerate(plan.buffers):
            expected = f.word(values, buffer.bytes_at)
            same = e.icmp("eq", f.word("%call", 2 * number + 1), expected)
            there = (f.is_null(f.pointer("%call", 2 * number)) ^ True) | e.icmp("eq", expected, 0)
            self.refuse_unless(same & there, Code.SIZE, number)
            self.check_address(2 * number, buffer.alignment, Code.ALIGNMENT, number)
        weights = ""
        if plan.weights_bytes:
            weights = f.pointer("%call", weights_at)
            number = len(plan.buffers)
            whole = e.icmp("eq", f.word("%call", weights_at + 1), plan.weights_bytes)
            self.refuse_unless(whole & (f.is_null(weights) ^ True), Code.WEIGHTS, number)
            self.check_address(weights_at, 64, Code.WEIGHTS, number)
            for place, word in enumerate(plan.weights_stamp):
                self.refuse_unless(e.icmp("eq", f.word(weights, place), word), Code.WEIGHTS, number)
        self._threads(threads_at, which + 1 + len(plan.bounds))
        self.addresses = {"workspace": workspace, "weights": weights}
        slots = f.alloca(max(plan.tables.slots, 1))
        for number in range(plan.tables.slots):
            memory = plan.places.get(number)
            f.store_pointer("null" if memory is None else self._address(memory), slots, number)
        scratch = e.offset(workspace, "i8", plan.scratch_at)
        given = f"ptr {self.program}, ptr {slots}, ptr {values}, ptr {scratch}"
        status = e.assign(f"call i64 @{PREFIX}run({given})", "i64", 1)
        failed, done = e.fresh("failed"), e.fresh("done")
        e.branch_if(e.icmp("ne", status, 0), failed, done)
        e.label(failed)
        bits = e.assign(f"call i64 @llvm.cttz.i64(i64 {status.name}, i1 true)", "i64", 1)
        e.line(f"ret i32 {e.convert('trunc', bits + FIRST_FAULT, 'i32').name}")
        e.label(done)
        for copied in plan.copies:
            count = f.word(values, copied.bytes_at)
            e.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {self._address(copied.target)}, "
                   f"ptr {self._address(copied.source)}, i64 {count.name}, i1 false)")
        e.line("ret i32 0")
        return ("declare i64 @llvm.cttz.i64(i64, i1)\n"
                "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n" + f.text())

    def _address(self, place: Place) -> str:
        if place.kind == "field":
            return self.f.pointer("%call", 2 * place.number)
        if place.kind == "constant":
            return place.label
        return self.e.offset(self.addresses[place.kind], "i8", place.number)

    def _threads(self, at: int, which: int) -> None:
        """The pool of this call, and the program that names it, both on the stack: calls may run side by side."""
        f, e, plan = self.f, self.e, self.plan
        pool = f.alloca(int(PoolField.SIZE))
        for each in (PoolField.SLEEPERS, PoolField.MORE_SLEEPERS, PoolField.RUNNER, PoolField.HOST):
            f.store(0, pool, each)
        f.store(1, pool, PoolField.THREADS)
        host = f.pointer("%call", at)
        given, done = e.fresh("given"), e.fresh("done")
        e.branch_if(f.is_null(host), done, given)
        e.label(given)
        wanted = f.word(host, 0)
        self.refuse_unless(e.icmp("sge", wanted, 1), Code.THREADS, which)
        most = e.select(e.icmp("slt", wanted, plan.most_threads), wanted, plan.most_threads)
        f.store(most, pool, PoolField.THREADS)
        f.store_pointer(f.pointer(host, 1), pool, PoolField.RUNNER)
        f.store_pointer(f.pointer(host, 2), pool, PoolField.HOST)
        e.branch(done)
        e.label(done)
        self.program = f.alloca(int(ProgramField.SIZE))
        for word in range(int(ProgramField.SIZE)):
            if word == ProgramField.POOL:
                f.store_pointer(pool, self.program, word)
            elif word in PROCESS_POINTERS["program"]:
                f.store_pointer(f.pointer(f"@{plan.name}_program", word), self.program, word)
            else:
                f.store(int(plan.tables.words[word]), self.program, word)


def entry_text(plan: EntryPlan) -> str:
    """The function that a host calls with the address of a record."""
    return _Entry(plan).text()
