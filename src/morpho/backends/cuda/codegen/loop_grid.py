"""Parts of loop kernels on a grid: the CPU's generator of loops, for one thread that takes `lanes` columns.

Quotients by a number of the row are computed from its reciprocal where that gives the same bits: the GPU has no
instruction to divide, and its code for one has a branch, so that a thread would wait for one quotient after another.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Value
from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import ISA
from morpho.backends.kernels.loops.loop_code import LoopCode
from morpho.backends.kernels.loops.loop_spec import Access, LoopKernel, Pass
from morpho.base.dtypes import float32

WIDEST = 16  # bytes of one access of a thread
MOST_LANES = 8
LINE_BYTES, MOST_LINES = 128, 128  # of memory that a thread asks for; of a row whose threads ask for all of it


# Sizes of operands between which a quotient by a reciprocal is rounded like the quotient: no step of it underflows.
LEAST, MOST = 2.0**-60, 2.0**60


class AlignedEmitter(GridEmitter):
    """Vectors of a thread are as aligned as they are wide: one access each."""

    def load(self, pointer: str, element: str, lanes: int | None = None, align: int | None = None) -> Value:
        count = self.lanes if lanes is None else lanes
        return super().load(pointer, element, count, align or max(1, count * BITS[element] // 8))

    def store(self, value: Value, pointer: str, align: int | None = None) -> None:
        super().store(value, pointer, align or max(1, value.lanes * BITS[value.element] // 8))


def any_mask(e: GridEmitter, mask: Value) -> Value:
    """Whether a lane's bit is set."""
    if mask.lanes == 1:
        return mask
    bits = e.assign(f"bitcast {mask.type} {mask.name} to i{mask.lanes}", f"i{mask.lanes}", 1)
    return e.assign(f"icmp ne i{mask.lanes} {bits.name}, 0", "i1", 1)


def lanes_of(kernel: LoopKernel) -> int:
    """Columns that a thread takes at once: as many as one wide access holds of the widest operand."""
    moving = [a for a in kernel.accesses if a.kind in ("load", "store") and a.pattern != "zero"]
    simple = all(a.pattern in ("unit", "zero", "none") and a.other < 0 for a in kernel.accesses if a.kind != "index")
    along = all(a.pattern in ("unit", "zero") for a in kernel.accesses if a.kind == "index")
    if not moving or not simple or not along or kernel.inner_rank != 1 or kernel.gathers:
        return 1
    widest = max(max(a.dtype.itemsize for a in moving),
                 max((i.dtype.compute.itemsize // 2 for i in kernel.instructions if i.full), default=1))
    return max(1, min(MOST_LANES, WIDEST // widest))


def side_by_side(access: Access) -> bool:
    """Whether a thread's columns of an operand are one access."""
    return access.kind in ("load", "store") and access.pattern == "unit"


class LoopGrid(LoopCode):
    """The state of a loop kernel being written for a grid."""

    def __init__(self, kernel: LoopKernel, lanes: int, places: int, numbers: int) -> None:
        super().__init__(kernel, ISA)
        self.lanes, self.compact, self.pipelined, self.wide = lanes, False, False, False
        self.e: AlignedEmitter = AlignedEmitter()
        self.e.lanes = lanes
        self.places, self.count = places, numbers
        self.divisors: dict[int, tuple[Value, Value, Value]] = {}  # of a pass: see `prepare_pass`

    def begin_function(self) -> None:
        """The operands' addresses and the kernel's numbers."""
        e, kernel = self.e, self.kernel
        self.bases = [e.load_pointer("%buffers", n) if a.kind != "index" else ""
                      for n, a in enumerate(kernel.accesses)]
        rank = kernel.outer_rank + kernel.inner_rank
        self.outer = [self.number(d) for d in range(kernel.outer_rank)]
        self.inner = [self.number(kernel.outer_rank + d) for d in range(kernel.inner_rank)]
        self.strides = [[self.number(kernel.access_at(n) + d) for d in range(rank)]
                        for n in range(len(kernel.accesses))]
        if kernel.may_fault:
            self.fault = self.allocate("i32", 1)
            e.store(e.constant(0, "i32", 1), self.fault)

    def ask_ahead(self, thread: Value, columns: int) -> None:
        """Ask for what all rows share (weights and biases of a norm) while the kernels ahead are at work, then wait."""
        e = self.e
        for number, access in enumerate(self.kernel.accesses):
            lines = -(-columns * access.dtype.itemsize // LINE_BYTES)
            if access.kind != "load" or access.pattern != "unit" or access.other >= 0 or lines > MOST_LINES:
                continue
            with e.when(e.icmp("slt", thread, lines)):
                e.ask_for(e.offset(self.bases[number], "i8", thread * LINE_BYTES))
        e.wait_for_others()

    def end_function(self, attributes: str = "", head: Sequence[str] = (), words: int = 0) -> str:
        """The whole text; `head` and `words` as of `head_lines` and `words` where they are others."""
        e = self.e
        if self.kernel.may_fault:
            e.report(e.load(self.fault, "i32", 1))
        text = e.text()
        body = "\n".join([*self.allocas, *(head or self.head_lines()), *self.number_lines(text), text])
        return entry("kernel_main", words or self.words, body, " nounwind" + attributes) + e.outside()

    def head_lines(self) -> list[str]:
        """Where the operands' addresses and the kernel's numbers are."""
        first = int(Header.SIZE)
        return [f"  %buffers = getelementptr i64, ptr %p, i64 {first}",
                f"  %values = getelementptr i64, ptr %p, i64 {first + self.places}"]

    @property
    def words(self) -> int:
        """That it is launched with."""
        return int(Header.SIZE) + self.places + self.count

    # -- quotients -----------------------------------------------------------------------------------------------------
    def prepare_pass(self, step: Pass) -> None:
        """As on the CPU; and of every divisor that is a number of the row, its reciprocal and whether it has a size for
        which that does not serve."""
        super().prepare_pass(step)
        self.divisors, e = {}, self.e
        for number in step.needed if self.lanes > 1 else ():
            instruction = self.kernel.instructions[number]
            if instruction.name != "divide" or instruction.dtype.compute is not float32 or number in step.kept:
                continue
            by = instruction.inputs[1]
            if not self.kernel.instructions[by].full and self.kernel.instructions[by].name != "constant":
                y = self.row_operand(by)
                odd = e.fcmp("ult", e.absolute(y), LEAST) | e.fcmp("ugt", e.absolute(y), MOST)
                self.divisors[number] = y, e.constant(1.0, "float", 1) / y, odd

    def full_value(self, step: Pass, number: int, values: dict[int, Value], column: Value, count: Value | None,
                   places: dict[int, str]) -> Value:
        """As on the CPU, but for quotients by a number of the row."""
        if number not in self.divisors or number in step.kept:
            return super().full_value(step, number, values, column, count, places)
        instruction = self.kernel.instructions[number]
        return scalars.round_to(self.e, self.quotient(values[instruction.inputs[0]], *self.divisors[number]),
                                instruction.dtype)

    def quotient(self, x: Value, y: Value, reciprocal: Value, odd: Value) -> Value:
        """x / y: an approximation, made better by what it leaves over; done twice, it is rounded as the quotient is
        (Markstein). Where a lane's size does not allow it, all are divided."""
        e = self.e
        least, most = (struct.unpack("<I", struct.pack("<f", size))[0] for size in (LEAST, MOST))
        bits = e.bits(x) & 0x7FFFFFFF
        zero = e.icmp("eq", bits, 0)
        wrong = e.icmp("ugt", bits - least, most - least) & e.icmp("ne", bits, 0)
        plain = any_mask(e, wrong) | odd
        found, ends = [], []
        divides, quick, done = e.fresh("divides"), e.fresh("quick"), e.fresh("done")
        e.branch_if(plain, divides, quick)
        for label in (divides, quick):
            e.label(label)
            if label == divides:
                found.append(x / e.splat(y, x.lanes))
            else:
                r, minus = e.splat(reciprocal, x.lanes), -e.splat(y, x.lanes)
                first = value = x * r
                for _ in range(2):
                    value = e.fma(e.fma(minus, value, x), r, value)
                found.append(e.select(zero, first, value))
            ends.append(e.block)
            e.branch(done)
        e.label(done)
        ways = ", ".join(f"[ {value.name}, %{end} ]" for value, end in zip(found, ends, strict=True))
        return e.assign(f"phi {x.type} {ways}", x.element, x.lanes)

    def one_lane(self) -> None:
        """From here on a column at a time."""
        self.lanes = self.e.lanes = 1
        self.temporaries = {}
