"""Parts of attention's routines: how tiles are cut, a routine while it is written, steps on vectors.

A tile of rows has its rows in the lanes: the scores of 64 keys are `[key][row]`, so the softmax of a row needs no step
across lanes, keys and values are read as they lie in memory, and the probabilities stand where the second product wants
them. A few rows alone would waste lanes: `_row` routines take one row with keys, then columns, in the lanes. Both do
the same operations in the same order per row (docs/numerics.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, CACHE_LINE, Emitter, Value, defined
from morpho.base.dtypes import DType
from morpho.base.machine import Isa

MINUS_INFINITY = float("-inf")
LARGEST = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}


@dataclass(frozen=True)
class Shape:
    """How tiles are cut for one instruction set and element."""

    element: str
    lanes: int
    by_lane: bool  # whether an fma takes one lane of a register as its factor (AArch64)
    wide: bool  # whether there are 32 registers
    native_half: bool
    vectors: int  # of rows in a tile
    paired: bool = False  # whether products have the order of matrix units, which multiply pairs of bfloat16

    @staticmethod
    def of(dtype: DType, isa: Isa) -> Shape:
        """The largest tile; one lane holds one row."""
        element = scalars.register_type(dtype)
        arm, lanes = isa.architecture == "aarch64", max(1, isa.vector_bits // BITS[element])
        return Shape(element, lanes, arm, arm or isa.vector_bits == 512, isa.native_half, 2 if lanes > 1 else 1)

    @property
    def half(self) -> Shape:
        """A tile of one vector of rows."""
        return replace(self, vectors=1)

    @property
    def rows(self) -> int:
        """Rows of one tile."""
        return self.vectors * self.lanes

    @property
    def few(self) -> int:
        """So many rows are better taken one by one."""
        return max(1, self.lanes * 3 // 8)

    @property
    def keys(self) -> int:
        """Keys that are multiplied at once; the sum of a pair takes three registers."""
        if self.paired:
            return (8 if self.wide else 4) // self.vectors
        return 8 if self.wide or self.vectors == 1 else 4

    @property
    def padding(self) -> int:
        """The depth of queries and keys is padded to a multiple of it."""
        return 2 * self.strip if self.paired else self.strip

    @property
    def strip(self) -> int:
        """Elements of 16 bytes; the depth of a product is padded to a multiple of it."""
        return 128 // BITS[self.element]

    @property
    def value_rows(self) -> int:
        """Rows of the second product's tile."""
        return min(self.rows, (8 if self.wide else 4) // (2 if self.paired else 1))

    @property
    def value_vectors(self) -> int:
        """Vectors of columns of the second product's tile; columns are padded to a multiple of these."""
        return 4 if self.lanes <= 2 else 2

    @property
    def columns(self) -> int:
        return self.value_vectors * self.lanes

    @property
    def size(self) -> int:
        return BITS[self.element] // 8

    def emitter(self) -> Emitter:
        return Emitter(self.lanes, self.native_half, destructive_fma=self.by_lane)


class Routine:
    """One internal function being written: its emitter, and its arguments by name."""

    def __init__(self, shape: Shape, name: str, **arguments: str) -> None:
        self.shape, self.name, self.e = shape, name, shape.emitter()
        self.arguments = {key: shape.element if kind == "element" else kind for key, kind in arguments.items()}

    def __getitem__(self, name: str) -> Value:
        return self.e.argument("%" + name, self.arguments[name], 1)

    def at(self, pointer: str, index: Value | int) -> str:
        return self.e.offset(pointer, self.shape.element, index)

    def load(self, pointer: str, index: Value | int, lanes: int) -> Value:
        return self.e.load(self.at(pointer, index), self.shape.element, lanes)

    def store(self, value: Value, pointer: str, index: Value | int) -> None:
        self.e.store(value, self.at(pointer, index))

    def constant(self, value: float, lanes: int) -> Value:
        return self.e.constant(value, self.shape.element, lanes)

    def text(self) -> str:
        given = ", ".join(f"{kind} %{name}" for name, kind in self.arguments.items())
        return defined(f"internal void @{self.name}({given}) nounwind", self.e.text(), "\n  ret void")


def call(e: Emitter, routine: Routine, *arguments: Value | str | int) -> None:
    """A call from another function; a string is a pointer."""
    given = []
    for kind, argument in zip(routine.arguments.values(), arguments, strict=True):
        given.append(f"{kind} {argument.name if isinstance(argument, Value) else argument}")
    e.line(f"call void @{routine.name}({', '.join(given)})")


def shuffled(e: Emitter, a: Value, b: Value, picks: list[int]) -> Value:
    """Lanes of two vectors side by side, by number."""
    mask = "<" + ", ".join(f"i32 {pick}" for pick in picks) + ">"
    text = f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{len(picks)} x i32> {mask}"
    return e.assign(text, a.element, len(picks))


def lane(e: Emitter, a: Value, number: int) -> Value:
    return e.assign(f"extractelement {a.type} {a.name}, i64 {number}", a.element, 1)


def any_lane(e: Emitter, mask: Value) -> Value:
    """Whether a bit is set in any lane."""
    if mask.lanes == 1:
        return mask
    name = f"llvm.vector.reduce.or.v{mask.lanes}i1"
    e.declarations.add(f"declare i1 @{name}({mask.type})")
    return e.assign(f"call i1 @{name}({mask.type} {mask.name})", "i1", 1)


def prefetch(e: Emitter, pointer: str, element: str, count: Value) -> None:
    """Has `count` elements of memory brought near; where there are none nothing happens."""
    with e.loop(0, count, 8 * CACHE_LINE // BITS[element]) as loop:
        e.prefetch(e.offset(pointer, element, loop.index), 1)


def smin(e: Emitter, a: Value, b: Value | int) -> Value:
    return e.intrinsic("smin", a, e.like(b, a))


def smax(e: Emitter, a: Value, b: Value | int) -> Value:
    return e.intrinsic("smax", a, e.like(b, a))


def joined(e: Emitter, parts: list[Value]) -> Value:
    """Vectors end to end."""
    while len(parts) > 1:
        count = parts[0].lanes
        parts = [shuffled(e, a, b, list(range(2 * count))) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def transposed(f: Routine, strips: list[Value]) -> list[Value]:
    """The columns of a strip of each line, each as one vector over the lines."""
    e, shape = f.e, f.shape
    strip = shape.strip
    if len(strips) == 1:
        return [lane(e, strips[0], c) for c in range(strip)]
    # Vector t holds lines t, t + strip, ...: a transpose within every 16 bytes then puts the lines in order.
    vectors = [joined(e, strips[t::strip]) for t in range(strip)]
    while strip > 1:
        half = len(vectors) // 2
        mixed = []
        for a, b in zip(vectors[:half], vectors[half:], strict=True):
            mixed += [_interleaved(e, a, b, shape.strip, upper) for upper in (False, True)]
        vectors, strip = mixed, strip // 2
    return vectors


def _interleaved(e: Emitter, a: Value, b: Value, strip: int, upper: bool) -> Value:
    """The lower or upper halves of every strip of two vectors, lane by lane in turn."""
    picks = []
    for start in range(0, a.lanes, strip):
        for i in range(strip // 2):
            picks += [start + i + upper * strip // 2, a.lanes + start + i + upper * strip // 2]
    return shuffled(e, a, b, picks)


def clamped(f: Routine, score: Value) -> Value:
    """Clamp an overflow to a finite value, so that -inf means masked and nothing else."""
    e, most = f.e, LARGEST[f.shape.element]
    if f.shape.by_lane:
        return e.minimum(e.maximum(score, -most), most)
    score = e.select(e.fcmp("olt", score, -most), e.like(-most, score), score)
    return e.select(e.fcmp("ogt", score, most), e.like(most, score), score)


def declared(routines: list[Routine]) -> set[str]:
    """Intrinsics and constants that routines use."""
    return set().union(*(routine.e.declarations for routine in routines))
