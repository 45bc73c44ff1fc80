"""The function of a `LapackKernel` being written: its numbers, its memory, calls of routines, and copies with columns
side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.kernel_abi import FAULT_ENDLESS, FAULT_NOT_FINITE
from morpho.backends.kernels.linalg.lapack.kernel import RANKS, LapackKernel
from morpho.backends.kernels.linalg.lapack.work_spaces import WORDS, Answers, Argument, Matrix, area_bytes, work_spaces
from morpho.backends.kernels.linalg.matrix import FAULTS
from morpho.base.machine import Isa

Address = tuple[str, Value]  # a pointer, and how many elements further
Shape = tuple[Value, Value]


class Code:
    """The function being written."""

    def __init__(self, kernel: LapackKernel, isa: Isa) -> None:
        self.kernel, self.e = kernel, Emitter(1)
        self.contracts = isa.architecture == "aarch64"  # as compilers do there, NumPy's among them
        e = self.e
        self.element = "float" if kernel.dtype.name in ("float32", "complex64") else "double"  # of the operands
        self.bases = [e.load_pointer("%buffers", n) for n in range(len(RANKS[kernel.name]))]
        record = kernel.record
        numbers = record.load(e)
        self.routines = [e.load_pointer("%values", record.at("routine") + n) for n in range(len(kernel.routines))]
        self.rows, self.columns, self.count = numbers["rows"], numbers["columns"], numbers["count"]
        self.inner = self.least(self.rows, self.columns)
        self.extents = record.loaded("extents", numbers)
        self.strides = [record.loaded(f"operand{n}", numbers) for n in range(len(self.bases))]
        self.given_numbers, self.memory = 0, ""
        if kernel.dynamic:
            self.sizes, self.areas = self.allocate()
        else:
            self.sizes = record.loaded("size", numbers)
            self.areas = {area: e.offset("%scratch", "i8", place)
                          for area, place in zip(kernel.areas, record.loaded("area", numbers), strict=True)}
        self.left = self.areas.get("left", "")
        self.right = self.areas.get("right", "")

    # -- memory ------------------------------------------------------------------------------------------------------
    def least(self, a: Value, b: Value) -> Value:
        return self.e.select(self.e.icmp("slt", a, b), a, b)

    def most(self, a: Value, b: Value | int) -> Value:
        return self.e.select(self.e.icmp("sgt", a, b), a, b)

    def allocate(self) -> tuple[list[Value], dict[str, str]]:
        """Ask the routines for their work spaces, and C's library for the memory, of matrices of any size."""
        e, asked = self.e, "%" + self.e.fresh("asked")
        e.line(f"{asked} = alloca [64 x i64], align 64")

        def ask(routine: int, arguments: tuple[Argument, ...]) -> Answers:
            self.areas, self.given_numbers = {"words": asked}, 8  # those of the answers stand in front
            answers = {"work": 0, "real": 2, "whole": 4, None: 6}
            given: list[Any] = [Place(e.offset(asked, "i64", answers[a])) if a in answers else a for a in arguments]
            self.call(routine, *given, may_fail=True)
            found: Answers = {}
            for name in {a for a in arguments if a in answers and a is not None}:
                place = e.offset(asked, "i64", answers[name])
                whole = name == "whole"
                number = e.load(place, "i64" if whole else "double", 1)
                found[name] = number if whole else e.convert("fptosi", number, "i64")
            return found

        kernel, zero = self.kernel, e.constant(0, "i64", 1)
        matrix = Matrix(self.rows, self.columns, self.count, self.least, self.most)
        work = [e.like(size, zero) for size in work_spaces(kernel, matrix, ask)]
        held = area_bytes(kernel, matrix, work)
        total, starts = zero, {}
        for area in kernel.areas:
            starts[area], total = total, total + held[area]
        self.memory = "%" + e.fresh("memory")
        e.line(f"{self.memory} = call ptr {self.routines[-2]}(i64 {total.name})")
        self.given_numbers = 0
        return work, {area: e.offset(self.memory, "i8", start) for area, start in starts.items()}

    def leave(self, code: int) -> None:
        """Return, with nothing kept."""
        if self.memory:
            self.e.line(f"call void {self.routines[-1]}(ptr {self.memory})")
        self.e.line(f"ret i32 {code}")

    def fail_if(self, bad: Value, code: int) -> None:
        """Leave with a fault."""
        with self.e.leave_if(bad):
            self.leave(code)

    # -- elements ----------------------------------------------------------------------------------------------------
    def starts(self, index: Value) -> list[Value]:
        """Where the matrix of this number of the batch begins in every operand."""
        e = self.e
        places = [e.constant(0, "i64", 1) for _ in self.bases]
        for axis in reversed(range(self.kernel.outer_rank)):
            quotient = e.instruction("udiv", index, self.extents[axis])
            coordinate = index - quotient * self.extents[axis]
            places = [place + coordinate * strides[axis] for place, strides in zip(places, self.strides, strict=True)]
            index = quotient
        return places

    def at(self, operand: int, start: Value, row: Value, column: Value) -> Address:
        """An element of the matrix."""
        outer = self.kernel.outer_rank
        strides = self.strides[operand]
        return self.bases[operand], start + row * strides[outer] + column * strides[outer + 1]

    def load(self, source: Address, part: int, element: str, parts: int) -> Value:
        """A part of an element."""
        e = self.e
        return e.load(e.offset(source[0], element, source[1] * parts + part), element, 1)

    def store(self, value: Value, target: Address, part: int, element: str, parts: int) -> None:
        self.e.store(value, self.e.offset(target[0], element, target[1] * parts + part))

    def element_at(self, area: str, row: Value, column: Value) -> Address:
        """An element of a matrix in scratch memory."""
        return self.areas[area], column * self.rows + row

    def get(self, source: Address) -> list[Value]:
        """All parts of an element in scratch memory."""
        return [self.load(source, part, "double", self.kernel.parts) for part in range(self.kernel.parts)]

    def put(self, value: list[Value], target: Address) -> None:
        """The same to it."""
        for part, one in enumerate(value):
            self.store(one, target, part, "double", self.kernel.parts)

    def number(self, value: float) -> Value:
        return self.e.constant(value, "double", 1)

    def bring(self, source: Address, target: Address) -> None:
        """One element of an operand to scratch memory."""
        given = self.kernel.given_parts
        for part in range(self.kernel.parts):
            if part >= given:
                self.store(self.number(0.0), target, part, "double", self.kernel.parts)
                continue
            value = self.load(source, part, self.element, given)
            self.store(self.e.convert("fpext", value, "double"), target, part, "double", self.kernel.parts)

    def give(self, source: Address, target: Address, conjugate: bool = False) -> None:
        """One element of a result from scratch memory."""
        self.give_parts(self.get(source), target, conjugate)

    def give_parts(self, value: list[Value], target: Address, conjugate: bool = False) -> None:
        """The parts of an element to an operand, rounded to its dtype; of a real one the first."""
        found = self.kernel.found_parts
        for part in range(found):
            one = value[part] if part < len(value) else self.number(0.0)
            one = -one if conjugate and part == 1 else one
            self.store(self.e.convert("fptrunc", one, self.element), target, part, self.element, found)

    # -- matrices ----------------------------------------------------------------------------------------------------
    def take(self, operand: int, start: Value, target: str, columns: Value) -> None:
        """A matrix to scratch memory, columns side by side."""
        e = self.e
        with e.loop(0, columns) as column, e.loop(0, self.rows) as row:
            self.bring(self.at(operand, start, row.index, column.index), (target, column.index * self.rows + row.index))

    def take_finite(self, start: Value, fault: int = FAULT_NOT_FINITE) -> None:
        """The matrix, or a fault where a number is infinite or none: routines that iterate might not end."""
        e = self.e
        self.take(0, start, self.left, self.columns)
        with e.loop(0, self.rows * self.columns * self.kernel.parts, carried=[self.number(0.0)]) as loop:
            value = e.load(e.offset(self.left, "double", loop.index), "double", 1)
            loop.next(e.maximum(loop.values[0], e.absolute(value)))
        self.fail_if(e.fcmp("uge", loop.values[0], float("inf")), fault)

    def give_matrix(self, operand: int, start: Value, source: str, shape: Shape, pitch: Value) -> None:
        """A result of scratch memory, its columns `pitch` apart, to an operand."""
        with self.e.loop(0, shape[0]) as row, self.e.loop(0, shape[1]) as column:
            self.give((source, column.index * pitch + row.index), self.at(operand, start, row.index, column.index))

    def copy(self, source: str, target: str, count: Value) -> None:
        """So many elements from one area to another."""
        e = self.e
        with e.loop(0, count * self.kernel.parts) as loop:
            e.store(e.load(e.offset(self.areas[source], "double", loop.index), "double", 1),
                    e.offset(self.areas[target], "double", loop.index))

    def order_of(self, operand: int, start: Value, place: Value) -> str:
        """The address of a row's number among an operand's whole numbers."""
        return self.e.offset(self.bases[operand], "i64", start + place * self.strides[operand][self.kernel.outer_rank])

    def count_rows(self, operand: int, start: Value) -> None:
        """The numbers 0, 1, 2, ... of rows that nothing has moved."""
        with self.e.loop(0, self.rows) as row:
            self.e.store(row.index, self.order_of(operand, start, row.index))

    @contextmanager
    def downwards(self, count: Value) -> Iterator[Value]:
        """count - 1, ..., 1, 0."""
        with self.e.loop(0, count) as loop:
            yield count - 1 - loop.index

    def swap(self, one: str, other: str, element: str) -> None:
        """Two places of memory change what they hold."""
        e = self.e
        first, second = e.load(one, element, 1), e.load(other, element, 1)
        e.store(first, other)
        e.store(second, one)

    # -- calls -------------------------------------------------------------------------------------------------------
    def given(self, value: Value | int | str) -> str:
        """The address of a number, or a letter, that a routine is given."""
        value = ord(value) if isinstance(value, str) else value
        return self.given_word(value if isinstance(value, Value) else self.e.constant(value, "i64", 1))

    def given_word(self, *values: Value) -> str:
        """The address of numbers of 64 bits, side by side."""
        first = self.given_numbers
        for value in values:
            self.e.store(value, self.e.offset(self.areas["words"], "i64", self.given_numbers))
            self.given_numbers += 1
        assert self.given_numbers <= WORDS, "more numbers than there is room for"
        return self.e.offset(self.areas["words"], "i64", first)

    def call(self, routine: int, *arguments: str | Value | int | Place, may_fail: bool = False,
             status: bool = True) -> str:
        """Call a routine with areas by name, letters and numbers by address, and leave with the operation's fault where
        it found one, unless it `may_fail`; the address of its status. Lengths of letters stand behind it."""
        given, lengths = [], []
        for argument in arguments:
            if isinstance(argument, Place):
                given.append(argument.pointer)
                continue
            if isinstance(argument, str) and argument in self.areas:
                given.append(self.areas[argument])
                continue
            lengths += [", i64 1"] if isinstance(argument, str) else []
            given.append(self.given(argument))
        found = self.given(0) if status else ""
        passed = ", ".join(f"ptr {place}" for place in (*given, *([found] if status else [])))
        self.e.line(f"call void {self.routines[routine]}({passed}{''.join(lengths)})")
        if status and not may_fail:
            self.check(found)
        return found

    def check(self, status: str) -> None:
        """Leave with the fault of the operation where the routine found one."""
        bad = self.e.icmp("ne", self.e.load(status, "i64", 1), 0)
        self.fail_if(bad, FAULTS.get(self.kernel.name, FAULT_ENDLESS))

    def function(self, name: str, *given: Value) -> Value:
        """A function of C's library."""
        routine = self.routines[self.kernel.routines.index(name)]
        passed = ", ".join(f"double {x.name}" for x in given)
        return self.e.assign(f"call double {routine}({passed})", "double", 1)


class Place:
    """An address that a routine is given as it is."""

    def __init__(self, pointer: str) -> None:
        self.pointer = pointer
