"""The code of `LapackKernel`: copies with columns side by side, the calls, and the results back."""

from __future__ import annotations

from morpho.backends.cpu.codegen.emit import Emitter, Value
from morpho.backends.cpu.codegen.kernel_abi import FAULT_ENDLESS, SIGNATURE
from morpho.backends.cpu.linalg.lapack import LapackKernel
from morpho.backends.cpu.linalg.matrix import FAULTS, RANKS
from morpho.base.machine import Isa

Address = tuple[str, Value]  # a pointer, and how many elements further


class _Code:
    """The function being written."""

    def __init__(self, kernel: LapackKernel) -> None:
        self.kernel, self.e = kernel, Emitter(1)
        e = self.e
        self.element = "float" if kernel.dtype.name in ("float32", "complex64") else "double"  # of the operands
        self.bases = [e.load_pointer("%buffers", n) for n in range(len(RANKS[kernel.name]))]
        record = kernel.record
        numbers = record.load(e)
        self.routines = [e.load_pointer("%values", record.at("routine") + n) for n in range(len(kernel.routines))]
        self.rows, self.columns, self.count = numbers["rows"], numbers["columns"], numbers["count"]
        self.inner = e.select(e.icmp("slt", self.rows, self.columns), self.rows, self.columns)
        self.sizes = record.loaded("size", numbers)
        self.extents = record.loaded("extents", numbers)
        self.strides = [record.loaded(f"operand{n}", numbers) for n in range(len(self.bases))]
        self.areas = {area: e.offset("%scratch", "i8", place)
                      for area, place in zip(kernel.areas, record.loaded("area", numbers), strict=True)}
        self.left = self.areas["left"]
        self.right = self.areas.get("right", "")
        self.given_numbers = 0

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

    def load(self, source: Address, part: int, element: str) -> Value:
        """A part of an element."""
        e = self.e
        return e.load(e.offset(source[0], element, source[1] * self.kernel.parts + part), element, 1)

    def store(self, value: Value, target: Address, part: int, element: str) -> None:
        self.e.store(value, self.e.offset(target[0], element, target[1] * self.kernel.parts + part))

    def bring(self, source: Address, target: Address) -> None:
        """One element of an operand to scratch memory."""
        for part in range(self.kernel.parts):
            value = self.load(source, part, self.element)
            value = value if self.element == "double" else self.e.convert("fpext", value, "double")
            self.store(value, target, part, "double")

    def give(self, source: Address, target: Address, conjugate: bool = False) -> None:
        """One element of a result from scratch memory."""
        for part in range(self.kernel.parts):
            value = self.load(source, part, "double")
            if conjugate and part == 1:
                value = self.e.assign(f"fneg double {value.name}", "double", 1)
            value = value if self.element == "double" else self.e.convert("fptrunc", value, "float")
            self.store(value, target, part, self.element)

    def given(self, value: Value | int | str) -> str:
        """The address of a number, or a letter, that a routine is given."""
        e = self.e
        place = e.offset(self.areas["words"], "i64", self.given_numbers)
        self.given_numbers += 1
        value = ord(value) if isinstance(value, str) else value
        e.store(value if isinstance(value, Value) else e.constant(value, "i64", 1), place)
        return place

    def take(self, operand: int, start: Value, target: str, columns: Value) -> None:
        """A matrix to scratch memory, columns side by side."""
        e = self.e
        with e.loop(0, columns) as column, e.loop(0, self.rows) as row:
            self.bring(self.at(operand, start, row.index, column.index), (target, column.index * self.rows + row.index))

    def call(self, routine: int, *arguments: str | Value | int, may_fail: bool = False) -> str:
        """Call a routine with areas by name, letters and numbers by address, and leave with the operation's fault where
        it found one, unless it `may_fail`; the address of its status. Lengths of letters stand behind it."""
        given, lengths = [], []
        for argument in arguments:
            if isinstance(argument, str) and argument in self.areas:
                given.append(self.areas[argument])
                continue
            lengths += [", i64 1"] if isinstance(argument, str) else []
            given.append(self.given(argument))
        status = self.given(0)
        passed = ", ".join(f"ptr {place}" for place in (*given, status))
        self.e.line(f"call void {self.routines[routine]}({passed}{''.join(lengths)})")
        if not may_fail:
            self.check(status)
        return status

    def check(self, status: str) -> None:
        """Leave with the fault of the operation where the routine found one."""
        e = self.e
        failed, fine = e.fresh("failed"), e.fresh("fine")
        e.branch_if(e.icmp("ne", e.load(status, "i64", 1), 0), failed, fine)
        e.label(failed)
        e.line(f"ret i32 {FAULTS.get(self.kernel.name, FAULT_ENDLESS)}")
        e.label(fine)

    # -- operations --------------------------------------------------------------------------------------------------
    def solve(self, starts: list[Value]) -> None:
        """gesv, as NumPy's solve and inv: with the right side, or ones on the diagonal."""
        e = self.e
        self.take(0, starts[0], self.left, self.rows)
        if self.kernel.name == "solve":
            self.take(1, starts[1], self.right, self.count)
        else:
            with e.loop(0, self.rows) as column, e.loop(0, self.rows) as row:
                zero = e.constant(0.0, "double", 1)
                one = e.select(e.icmp("eq", row.index, column.index), e.constant(1.0, "double", 1), zero)
                for part in range(self.kernel.parts):
                    place = self.right, column.index * self.rows + row.index
                    self.store(zero if part else one, place, part, "double")
        self.call(0, self.rows, self.count, "left", self.rows, "order", "right", self.rows)
        last = len(self.bases) - 1
        with e.loop(0, self.rows) as row, e.loop(0, self.count) as column:
            self.give((self.right, column.index * self.rows + row.index),
                      self.at(last, starts[last], row.index, column.index))

    def cholesky(self, starts: list[Value]) -> None:
        """potrf of the lower half, and zeros in the other."""
        e = self.e
        self.take(0, starts[0], self.left, self.rows)
        self.call(0, "L", self.rows, "left", self.rows)
        upper = self.kernel.upper
        with e.loop(0, self.rows) as row, e.loop(0, self.rows) as column:
            target = self.at(1, starts[1], *((column.index, row.index) if upper else (row.index, column.index)))
            below, above, done = e.fresh("below"), e.fresh("above"), e.fresh("done")
            e.branch_if(e.icmp("sge", row.index, column.index), below, above)
            e.label(below)
            self.give((self.left, column.index * self.rows + row.index), target, conjugate=upper)
            e.branch(done)
            e.label(above)
            for part in range(self.kernel.parts):  # the conjugate of 0 has a part of -0
                self.store(e.constant(-0.0 if part and upper else 0.0, self.element, 1), target, part, self.element)
            e.branch(done)
            e.label(done)


    def give_matrix(self, operand: int, start: Value, source: str, shape: tuple[Value, Value], pitch: Value) -> None:
        """A result of scratch memory, its columns `pitch` apart, to an operand."""
        with self.e.loop(0, shape[0]) as row, self.e.loop(0, shape[1]) as column:
            self.give((source, column.index * pitch + row.index), self.at(operand, start, row.index, column.index))

    def give_values(self, operand: int, start: Value) -> None:
        """Real values to an operand with one axis."""
        e = self.e
        with e.loop(0, self.inner) as loop:
            value = e.load(e.offset(self.areas["values"], "double", loop.index), "double", 1)
            value = value if self.element == "double" else e.convert("fptrunc", value, "float")
            place = start + loop.index * self.strides[operand][self.kernel.outer_rank]
            e.store(value, e.offset(self.bases[operand], self.element, place))

    def determinant(self, starts: list[Value]) -> None:
        """getrf; the sign by the rows it changed, and the sum of the logarithms of the diagonal."""
        e = self.e
        self.take(0, starts[0], self.left, self.columns)
        status = self.call(0, self.rows, self.rows, "left", self.rows, "order", may_fail=True)
        one, zero = e.constant(1.0, "double", 1), e.constant(0.0, "double", 1)
        with e.loop(0, self.rows, carried=[one, zero]) as loop:
            changed = e.load(e.offset(self.areas["order"], "i64", loop.index), "i64", 1)
            pivot = e.load(e.offset(self.left, "double", loop.index * (self.rows + 1)), "double", 1)
            sign, total = loop.values
            sign = e.select(e.icmp("ne", changed, loop.index + 1), -sign, sign)
            sign = e.select(e.fcmp("olt", pivot, 0.0), -sign, sign)
            size = e.select(e.fcmp("olt", pivot, 0.0), -pivot, pivot)
            loop.next(sign, total + self.function(1, size))
        singular = e.icmp("ne", e.load(status, "i64", 1), 0)
        sign = e.select(singular, zero, loop.values[0])
        total = e.select(singular, e.constant(float("-inf"), "double", 1), loop.values[1])
        results = [sign * self.function(2, total)] if self.kernel.name == "det" else [sign, total]
        for operand, value in enumerate(results, 1):
            value = value if self.element == "double" else e.convert("fptrunc", value, "float")
            e.store(value, e.offset(self.bases[operand], self.element, starts[operand]))

    def function(self, routine: int, x: Value) -> Value:
        """A function of C's library."""
        return self.e.assign(f"call double {self.routines[routine]}(double {x.name})", "double", 1)

    def qr(self, starts: list[Value]) -> None:
        """geqrf, the triangle, then orgqr of its reflections in as many columns as the factor has."""
        e, item = self.e, self.kernel.parts
        self.take(0, starts[0], self.left, self.columns)
        self.call(0, self.rows, self.columns, "left", self.rows, "tau", "work", self.sizes[0])
        with e.loop(0, self.count) as row, e.loop(0, self.columns) as column:
            target = self.at(2, starts[2], row.index, column.index)
            for in_triangle in e.both(e.icmp("sle", row.index, column.index)):
                if in_triangle:
                    self.give((self.left, column.index * self.rows + row.index), target)
                else:
                    for part in range(item):
                        self.store(e.constant(0.0, self.element, 1), target, part, self.element)
        with e.loop(0, self.inner * self.rows * item) as loop:
            value = e.load(e.offset(self.left, "double", loop.index), "double", 1)
            e.store(value, e.offset(self.right, "double", loop.index))
        self.call(1, self.rows, self.count, self.inner, "right", self.rows, "tau", "work", self.sizes[0])
        self.give_matrix(1, starts[1], self.right, (self.rows, self.count), self.rows)

    def svd(self, starts: list[Value]) -> None:
        """gesdd: U, the values, and the conjugate transpose of V."""
        vectors, real = self.kernel.name == "svd", ("real",) if self.kernel.parts == 2 else ()
        self.take(0, starts[0], self.left, self.columns)
        form = "N" if not vectors else "A" if self.kernel.full else "S"
        wide = self.columns if self.kernel.full else self.inner
        self.call(0, form, self.rows, self.columns, "left", self.rows, "values", "right", self.rows, "other", wide,
                  "work", self.sizes[0], *real, "whole")
        self.give_values(2 if vectors else 1, starts[2 if vectors else 1])
        if vectors:
            self.give_matrix(1, starts[1], self.right, (self.rows, self.count), self.rows)
            self.give_matrix(3, starts[3], self.areas["other"], (wide, self.columns), wide)
            self.fix_signs(1, starts, (self.rows, self.count), 3)

    def eigh(self, starts: list[Value]) -> None:
        """syevd or heevd of the lower half."""
        vectors, real = self.kernel.name == "eigh", ("real", self.sizes[1]) if self.kernel.parts == 2 else ()
        self.take(0, starts[0], self.left, self.columns)
        self.call(0, "V" if vectors else "N", "L", self.rows, "left", self.rows, "values", "work", self.sizes[0], *real,
                  "whole", self.sizes[2])
        self.give_values(1, starts[1])
        if vectors:
            self.give_matrix(2, starts[2], self.left, (self.rows, self.rows), self.rows)
            self.fix_signs(2, starts, (self.rows, self.rows), None)

    def fix_signs(self, decisive: int, starts: list[Value], shape: tuple[Value, Value], other: int | None) -> None:
        """Turn columns round, and the rows of `other` that belong to them, as `ops/linalg/lapack.py` says: the first
        element that is at least half as large as the largest is positive. On the results, as they were rounded."""
        if self.kernel.parts == 2:
            return
        e = self.e

        def element(operand: int, row: Value, column: Value) -> str:
            base, place = self.at(operand, starts[operand], row, column)
            return e.offset(base, self.element, place)

        def turn(place: str) -> None:
            e.store(e.load(place, self.element, 1) * -1.0, place)

        zero = e.constant(0.0, self.element, 1)
        with e.loop(0, shape[1]) as column:
            with e.loop(0, shape[0], carried=[zero]) as row:
                size = e.absolute(e.load(element(decisive, row.index, column.index), self.element, 1))
                row.next(e.select(e.fcmp("ogt", size, row.values[0]), size, row.values[0]))
            half = row.values[0] * 0.5
            first = e.first_without(e.constant(0, "i64", 1), shape[0] - 1, lambda at: e.fcmp(
                "olt", e.absolute(e.load(element(decisive, at, column.index), self.element, 1)), half))
            with e.when(e.fcmp("olt", e.load(element(decisive, first, column.index), self.element, 1), 0.0)):
                with e.loop(0, shape[0]) as row:
                    turn(element(decisive, row.index, column.index))
                if other is not None:
                    with e.when(e.icmp("slt", column.index, self.inner)), e.loop(0, self.columns) as along:
                        turn(element(other, column.index, along.index))


OPERATIONS = {"solve": _Code.solve, "inv": _Code.solve, "cholesky": _Code.cholesky, "qr": _Code.qr, "svd": _Code.svd,
              "svdvals": _Code.svd, "eigh": _Code.eigh, "eigvalsh": _Code.eigh, "det": _Code.determinant,
              "slogdet": _Code.determinant}


def generate(kernel: LapackKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a kernel."""
    code = _Code(kernel)
    e = code.e
    with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as loop:
        OPERATIONS[kernel.name](code, code.starts(loop.index))
    e.line("ret i32 0")
    return (f"define i32 @{name}({SIGNATURE}) nounwind {{\nentry:\n{e.text()}\n}}\n"
            + "\n".join(sorted(e.declarations)) + "\n")
