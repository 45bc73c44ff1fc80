"""The code of `LapackKernel`: copies with columns side by side, the call, and the result back."""

from __future__ import annotations

from morpho.backends.cpu.codegen.emit import Emitter, Value
from morpho.backends.cpu.codegen.kernel_abi import SIGNATURE
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
        numbers = kernel.record.load(e)
        self.routine = e.load_pointer("%values", kernel.record.at("routine"))
        self.rows, self.count = numbers["rows"], numbers["count"]
        self.extents = kernel.record.loaded("extents", numbers)
        self.strides = [kernel.record.loaded(f"operand{n}", numbers) for n in range(len(self.bases))]
        item = 8 * kernel.parts
        self.left = "%scratch"
        self.right = e.offset("%scratch", "i8", self.rows * self.rows * item)
        self.order = e.offset(self.right, "i8", self.rows * self.count * item)
        self.words = e.offset(self.order, "i64", self.rows)

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

    def given(self, index: int, value: Value | int) -> str:
        """The address of a number that a routine is given."""
        e = self.e
        place = e.offset(self.words, "i64", index)
        e.store(value if isinstance(value, Value) else e.constant(value, "i64", 1), place)
        return place

    def take(self, operand: int, start: Value, target: str, columns: Value) -> None:
        """A matrix to scratch memory, columns side by side."""
        e = self.e
        with e.loop(0, columns) as column, e.loop(0, self.rows) as row:
            self.bring(self.at(operand, start, row.index, column.index), (target, column.index * self.rows + row.index))

    def check(self, status: str) -> None:
        """Leave with the fault of the operation where the routine found one."""
        e = self.e
        failed, fine = e.fresh("failed"), e.fresh("fine")
        e.branch_if(e.icmp("ne", e.load(status, "i64", 1), 0), failed, fine)
        e.label(failed)
        e.line(f"ret i32 {FAULTS[self.kernel.name]}")
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
        rows, count, status = self.given(0, self.rows), self.given(1, self.count), self.given(2, 0)
        e.line(f"call void {self.routine}(ptr {rows}, ptr {count}, ptr {self.left}, ptr {rows}, ptr {self.order}, "
               f"ptr {self.right}, ptr {rows}, ptr {status})")
        self.check(status)
        last = len(self.bases) - 1
        with e.loop(0, self.rows) as row, e.loop(0, self.count) as column:
            self.give((self.right, column.index * self.rows + row.index),
                      self.at(last, starts[last], row.index, column.index))

    def cholesky(self, starts: list[Value]) -> None:
        """potrf of the lower half, and zeros in the other."""
        e = self.e
        self.take(0, starts[0], self.left, self.rows)
        rows, status, half = self.given(0, self.rows), self.given(2, 0), self.given(3, ord("L"))
        e.line(f"call void {self.routine}(ptr {half}, ptr {rows}, ptr {self.left}, ptr {rows}, ptr {status}, i64 1)")
        self.check(status)
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


def generate(kernel: LapackKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a kernel."""
    code = _Code(kernel)
    e = code.e
    with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as loop:
        starts = code.starts(loop.index)
        if kernel.name == "cholesky":
            code.cholesky(starts)
        else:
            code.solve(starts)
    e.line("ret i32 0")
    return (f"define i32 @{name}({SIGNATURE}) nounwind {{\nentry:\n{e.text()}\n}}\n"
            + "\n".join(sorted(e.declarations)) + "\n")
