"""What follows a product, computed on its sums before they leave the registers: eight columns of a row at a time.

The operations are those of the loop kernel that would follow, in the same order and with the same roundings. gelu,
gelu_tanh, silu and tanh of half floats and of float32 are computed by the GPU's own power and reciprocal (a relative
error of 2^-17, of tanh 2^-22 of one): the product before them is rounded to a half float.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.cpu.codegen import scalars
from morpho.backends.cpu.codegen.emit import Value
from morpho.backends.cpu.loops.loop_spec import Instruction, LoopKernel, Pass
from morpho.backends.cuda.codegen.grid import Header
from morpho.backends.cuda.codegen.loop_grid import AlignedEmitter, LoopGrid
from morpho.base.dtypes import bfloat16, float16, float32

COLUMNS = 8  # of a chunk
PRODUCT_NUMBERS = 25  # words of a product (`spec.PRODUCT`)
# Phi(-t) = 2^(-t^2 / (2 ln 2)) * u * P(u) with u = 1 / (1 + SCALE * t), from the constant term up
SCALE = 0.3
TAIL = (0.1201115656714958, 0.11334716961437014, 0.1457530316810628, -0.019825895621403383, 0.2185487187707204,
        -0.07793116051286195)
FARTHEST = 40.0  # from which on Phi(-t) is zero


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
            if brain:
                found += [self.from_bits(word << 16, "float"), self.from_bits(word & -65536, "float")]
            else:
                halves = (self.convert("trunc", part, "i16") for part in (word, word.shift_right(16)))
                found += [self.convert("fpext", self.from_bits(half, "half"), "float") for half in halves]
        return self.joined(found)


class EpilogueCode(LoopGrid):
    """Writes it into a kernel of products."""

    def __init__(self, epilogue: Epilogue, places: int, numbers: int, before: int) -> None:
        """`places` operands of the launch, the first two of them the product's; `before` numbers before its own."""
        super().__init__(epilogue.loop, COLUMNS, places, numbers)
        self.own, self.before = epilogue.own, before
        self.e: EpilogueEmitter = EpilogueEmitter()
        self.e.lanes = COLUMNS
        self.given: Value | None = None

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
        self.chunk(self.step, column, None)

    def load_chunk(self, instruction: Instruction, column: Value, count: Value | None, places: dict[int, str]) -> Value:
        """The product's own values are in registers."""
        if instruction.access in self.own:
            assert self.given is not None
            return self.given
        return super().load_chunk(instruction, column, count, places)

    def full_value(self, step: Pass, number: int, values: dict[int, Value], column: Value, count: Value | None,
                   places: dict[int, str]) -> Value:
        """As the loop kernel's, but for gelu of half floats."""
        instruction = self.kernel.instructions[number]
        own = {"gelu": self.gelu, "gelu_tanh": self.gelu_tanh, "silu": self.silu,
               "tanh": self.tanh}.get(instruction.name)
        if own is not None and instruction.dtype is float32:
            return own(values[instruction.inputs[0]])
        if own is not None and instruction.dtype in (bfloat16, float16):
            return scalars.round_to(self.e, own(values[instruction.inputs[0]]), instruction.dtype)
        return super().full_value(step, number, values, column, count, places)

    def silu(self, x: Value) -> Value:
        """x / (1 + e^-x)."""
        return self.by_power(x, x * -1.4426950408889634)

    def gelu_tanh(self, x: Value) -> Value:
        """x / (1 + e^(-2 sqrt(2 / pi) (x + 0.044715 x^3)))."""
        e = self.e
        return self.by_power(x, x * e.fma(x * x, -0.10294324, -2.3022082))

    def tanh(self, x: Value) -> Value:
        """1 - 2 / (1 + e^(2x)), to 2^-22."""
        e = self.e
        power = e.each("exp2", e.minimum(x * 2.8853900817779268, 126.0))
        return e.fma(e.each("reciprocal", power + 1.0), -2.0, e.constant(1.0, "float", x.lanes))

    def by_power(self, x: Value, power: Value) -> Value:
        """x / (1 + 2^power); where the power is beyond all numbers, zero and not inf / inf."""
        e = self.e
        found = x * e.each("reciprocal", e.each("exp2", power) + 1.0)
        return e.select(e.fcmp("ogt", power, 126.0), x * 0.0, found)

    def gelu(self, x: Value) -> Value:
        """max(x, 0) - t * Phi(-t) with t = |x|."""
        e = self.e
        t = e.absolute(x)
        t = e.select(e.fcmp("olt", t, FARTHEST), t, FARTHEST)
        u = e.each("reciprocal", e.fma(t, SCALE, 1.0))
        tail = e.polynomial(u, TAIL[::-1]) * u * e.each("exp2", t * t * -0.72134752044448170)
        found = e.fma(-t, tail, e.select(e.fcmp("ogt", x, 0.0), x, 0.0))
        return e.select(e.is_nan(x), x, found)
