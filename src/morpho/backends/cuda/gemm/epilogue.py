"""The epilogue of a product, computed on its sums before they leave the registers: eight columns of a row at a time.

The operations are those of the loop kernel that would follow, in the same order and with the same roundings. gelu,
gelu_tanh, silu and tanh of half floats and of float32 are computed by the GPU's own power and reciprocal (a relative
error of 2^-17, of tanh 2^-22 of one): the product before them is rounded to a half float.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import Header
from morpho.backends.cuda.codegen.loop_grid import AlignedEmitter, LoopGrid
from morpho.backends.kernels.loops.loop_spec import Instruction, LoopKernel, Pass
from morpho.backends.kernels.loops.values import write_chunk
from morpho.base.dtypes import bfloat16, float16, float32

COLUMNS = 8  # of a chunk
PRODUCT_NUMBERS = 25  # words of a product (`spec.PRODUCT`)
# Phi(-t) = 2^(-t^2 / (2 ln 2)) * u * P(u) with u = 1 / (1 + SCALE * t), from the constant term up
SCALE = 0.3
TAIL = (0.1201115656714958, 0.11334716961437014, 0.1457530316810628, -0.019825895621403383, 0.2185487187707204,
        -0.07793116051286195)
TAILED = ("gelu", "gelu_tanh", "silu")  # max(x, 0) - t * tail(t) with t = |x|
FARTHEST = 128.0  # from which on their tails are zero
NEAREST = 2.0**-18  # below which they are taken to be what they are there
# Their values for all bfloat16 between: the upper halves of the first and the last, and the bytes of a table of them
FIRST, LAST = (127 - 18) << 7, (127 + 7) << 7
TAILS_BYTES = 4 * (LAST - FIRST + 1)


@dataclass(frozen=True)
class Epilogue:
    """The loop kernel, and which of its accesses are the product itself."""

    loop: LoopKernel
    own: tuple[int, ...]

    @property
    def alignments(self) -> list[tuple[int, int]]:
        """Operands of the launch that are read or written in chunks, and bytes of a chunk."""
        return [(2 + n, 16) for n, access in enumerate(self.loop.accesses)
                if n not in self.own and access.pattern == "unit"]


class EpilogueEmitter(AlignedEmitter):
    """Rounds half floats two at a time."""

    def lane(self, x: Value, number: int) -> Value:
        """One element of a vector."""
        if x.lanes == 1:
            return x
        return self.assign(f"extractelement {x.type} {x.name}, i64 {number}", x.element, 1)

    def joined(self, parts: list[Value]) -> Value:
        """A vector of single values."""
        if len(parts) == 1:
            return parts[0]
        text, kind = "poison", f"<{len(parts)} x {parts[0].element}>"
        for number, part in enumerate(parts):
            name = "%" + self.fresh("j")
            self.line(f"{name} = insertelement {kind} {text}, {part.type} {part.name}, i64 {number}")
            text = name
        return Value(self, text, parts[0].element, len(parts))

    def each(self, function: str, x: Value) -> Value:
        """A function of the grid for every lane."""
        return self.joined([self.assign(f"call float @gpu.{function}(ptr %ctx, float {self.lane(x, n).name})", "float",
                                        1) for n in range(x.lanes)])

    def round_half(self, x: Value, brain: bool) -> Value | None:
        """By the instruction that packs two."""
        if x.lanes % 2:
            return None
        found = []
        for number in range(0, x.lanes, 2):
            low, high = self.lane(x, number), self.lane(x, number + 1)
            name = "pack_bf16" if brain else "pack_f16"
            word = self.assign(f"call i32 @gpu.{name}(ptr %ctx, float {low.name}, float {high.name})", "i32", 1)
            found += self.unpacked(word, brain)
        return self.joined(found)

    def unpacked(self, word: Value, brain: bool) -> list[Value]:
        """The two half floats of a word."""
        if brain:
            return [self.from_bits(word << 16, "float"), self.from_bits(word & -65536, "float")]
        halves = (self.convert("trunc", part, "i16") for part in (word, word.shift_right(16)))
        return [self.convert("fpext", self.from_bits(half, "half"), "float") for half in halves]


class EpilogueCode(LoopGrid):
    """Writes it into a kernel of products."""

    def __init__(self, epilogue: Epilogue, places: int, numbers: int, before: int) -> None:
        """`places` operands of the launch, the first two of them the product's; `before` numbers before its own."""
        super().__init__(epilogue.loop, COLUMNS, places, numbers)
        self.own, self.before = epilogue.own, before
        self.e: EpilogueEmitter = EpilogueEmitter()
        self.e.lanes = COLUMNS
        self.given: Value | None = None
        self.pairs: list[Value] | None = None  # the product's own values as pairs of bfloat16, where they came so
        self.tails = ""  # where a table of tails lies (`fill_tails`), for results of bfloat16

    def head(self, text: str) -> list[str]:
        """The lines before a kernel's body that name the operands and numbers."""
        first = int(Header.SIZE)
        lines = [f"  %buffers = getelementptr i64, ptr %p, i64 {first + 2}",
                 f"  %values = getelementptr i64, ptr %p, i64 {first + self.places + self.before}"]
        return [*self.allocas, *lines, *self.number_lines(text)]

    def begin_row(self, row: Value) -> None:
        """Where the operands of a row lie, and its own values."""
        self.place_row(self.split(row, self.outer))
        self.row_values(0)
        (self.step,) = self.kernel.passes
        self.prepare_pass(self.step)

    def columns_at(self, column: Value, sums: list[Value]) -> None:
        """Eight columns of the row, from the product's sums on."""
        e = self.e
        dtype = self.kernel.accesses[self.own[0]].dtype
        self.given = scalars.round_to(e, e.joined(sums), dtype)
        write_chunk(self, self.step, column, None)

    def given_at(self, column: Value, words: list[Value]) -> None:
        """Eight columns of the row, from words of two rounded results on."""
        brain = self.kernel.accesses[self.own[0]].dtype is bfloat16
        self.given = self.e.joined([half for word in words for half in self.e.unpacked(word, brain)])
        self.pairs = words if brain else None
        write_chunk(self, self.step, column, None)
        self.pairs = None

    def load_chunk(self, instruction: Instruction, column: Value, count: Value | None, places: dict[int, str]) -> Value:
        """The product's own values are in registers."""
        if instruction.access in self.own:
            assert self.given is not None
            return self.given
        return super().load_chunk(instruction, column, count, places)

    def full_value(self, step: Pass, number: int, values: dict[int, Value], column: Value, count: Value | None,
                   places: dict[int, str]) -> Value:
        """As the loop kernel's, but for activations of half floats."""
        instruction = self.kernel.instructions[number]
        own = partial(self.activation, instruction.name) if instruction.name in TAILED else (
            self.tanh if instruction.name == "tanh" else None)
        if own is not None and instruction.dtype is float32:
            return own(values[instruction.inputs[0]])
        if self.pairs is not None and instruction.name == "add" and instruction.dtype is bfloat16:
            added = self.added(instruction, places)
            if added is not None:
                return added
        if self.tails and instruction.name in TAILED and instruction.dtype is bfloat16:
            return scalars.round_to(self.e, self.by_table(values[instruction.inputs[0]]), bfloat16)
        if own is not None and instruction.dtype in (bfloat16, float16):
            return scalars.round_to(self.e, own(values[instruction.inputs[0]]), instruction.dtype)
        return super().full_value(step, number, values, column, count, places)

    def added(self, instruction: Instruction, places: dict[int, str]) -> Value | None:
        """The product and another operand that lies side by side, two at a time; None where they are not those."""
        e, loads = self.e, [self.kernel.instructions[number] for number in instruction.inputs]
        mine = [load for load in loads if load.name == "load" and load.access in self.own]
        others = [load for load in loads if load.name == "load" and load.access in places and load not in mine
                  and self.kernel.accesses[load.access].dtype is bfloat16]
        if len(mine) != 1 or len(others) != 1:
            return None
        assert self.pairs is not None
        four = e.load(places[others[0].access], "i32", 4, align=16)
        sums = [e.assign(f"call i32 @gpu.add_bf16(ptr %ctx, i32 {word.name}, i32 {e.lane(four, n).name})", "i32", 1)
                for n, word in enumerate(self.pairs)]
        return e.joined([half for word in sums for half in e.unpacked(word, True)])

    def tanh(self, x: Value) -> Value:
        """1 - 2 / (1 + e^(2x)), to 2^-22."""
        e = self.e
        power = e.each("exp2", e.minimum(x * 2.8853900817779268, 126.0))
        return e.fma(e.each("reciprocal", power + 1.0), -2.0, e.constant(1.0, "float", x.lanes))

    def activation(self, name: str, x: Value) -> Value:
        """max(x, 0) - t * tail(t) with t = |x|."""
        e = self.e
        t = e.absolute(x)
        t = e.select(e.fcmp("olt", t, FARTHEST), t, FARTHEST)
        found = e.fma(-t, self.tail(name, e.intrinsic("maxnum", t, e.like(NEAREST, t))),
                      e.select(e.fcmp("ogt", x, 0.0), x, 0.0))
        return e.select(e.is_nan(x), x, found)

    def tail(self, name: str, t: Value) -> Value:
        """Of gelu Phi(-t); of the others 1 / (1 + e^t), or e to the power that gelu_tanh takes for t."""
        e = self.e
        if name == "gelu":
            u = e.each("reciprocal", e.fma(t, SCALE, 1.0))
            return e.polynomial(u, TAIL[::-1]) * u * e.each("exp2", t * t * -0.72134752044448170)
        power = t * (e.fma(t * t, 0.10294324, 2.3022082) if name == "gelu_tanh" else 1.4426950408889634)
        return e.each("reciprocal", e.each("exp2", power) + 1.0)

    @property
    def looks_up(self) -> bool:
        """Whether a table of tails would serve."""
        return bool(wanted_tails(self.kernel))

    def fill_tails(self, place: str, thread: Value, threads: int) -> None:
        """The table, by all threads of a block."""
        e = self.e
        with e.loop(thread, LAST - FIRST + 1, threads) as loop:
            t = e.from_bits(e.convert("trunc", (loop.index + FIRST) << 16, "i32"), "float")
            e.store(self.tail(wanted_tails(self.kernel), t), e.offset(place, "float", loop.index), align=4)
        self.tails = place

    def by_table(self, x: Value) -> Value:
        """The same bits as `activation` of a bfloat16: the tails it would compute were written down by the block."""
        e = self.e
        t = e.intrinsic("minnum", e.absolute(x), e.like(FARTHEST, x))
        at = e.intrinsic("umax", e.bits(t).shift_right(14), e.like(4 * FIRST, e.bits(t)))
        places = [e.convert("zext", e.lane(at, n) - 4 * FIRST, "i64") for n in range(x.lanes)]
        tail = e.joined([e.load(e.offset(self.tails, "i8", place), "float", 1, align=4) for place in places])
        return e.fma(-t, tail, e.intrinsic("maximum", x, e.like(0.0, x)))


def wanted_tails(kernel: LoopKernel) -> str:
    """The activation of bfloat16 that a loop has, where it is one; else nothing."""
    found = {i.name for i in kernel.instructions if i.name in TAILED and i.dtype is bfloat16}
    return found.pop() if len(found) == 1 else ""
