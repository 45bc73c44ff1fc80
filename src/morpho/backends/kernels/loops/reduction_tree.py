"""The reduction tree of docs/numerics.md: lanes of 64, blocks of 4096, pairwise over blocks.

Element i of a row adds into lane i mod 64 of its block. The 64 lanes fold by halves (lane i takes lane i + 32, then
i + 16, ...). Block results join pairwise as a binary counter does, so that any number of threads can compute blocks
apart and join them in the same tree. Lanes start at the identity; an absent element leaves its lane alone.
"""

from __future__ import annotations

import math

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Emitter, Value
from morpho.backends.kernels.loops.loop_spec import TREE_LANES
from morpho.backends.kernels.loops.values import LoopState
from morpho.base.dtypes import DType, bool_


def lane_type(dtype: DType) -> str:
    """The element type of an accumulator: half floats add in float32, a bool is a byte."""
    return "i8" if dtype is bool_ else scalars.register_type(dtype)


def identity(name: str, dtype: DType) -> float | int:
    """Result of an empty reduction."""
    if name in ("sum", "any"):
        return 0
    if name in ("prod", "all"):
        return 1
    if dtype.is_float:
        return -math.inf if name == "max" else math.inf
    bits = BITS[lane_type(dtype)]
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.kind == "i" else (0, (1 << bits) - 1)
    return low if name == "max" else high


def combine(e: Emitter, name: str, dtype: DType, a: Value, b: Value) -> Value:
    """One step of the tree; `a` is the earlier part."""
    if name == "sum":
        return a + b
    if name == "prod":
        return a * b
    if name in ("any", "all"):
        return a | b if name == "any" else a & b
    if dtype.is_float:
        return e.maximum(a, b) if name == "max" else e.minimum(a, b)
    sign = "s" if dtype.kind == "i" else "u"
    return e.intrinsic(sign + name, a, b)


def fold(e: Emitter, name: str, dtype: DType, parts: list[Value]) -> Value:
    """64 lanes, given as equal vectors in order, to one value: halves, quarters, ... down to one lane."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [combine(e, name, dtype, parts[i], parts[i + half]) for i in range(half)]
    value = parts[0]
    while value.lanes > 1:
        half = value.lanes // 2
        low, high = (_part(e, value, start, half) for start in (0, half))
        value = combine(e, name, dtype, low, high)
    return value


def _part(e: Emitter, value: Value, start: int, count: int) -> Value:
    if count == 1:
        return e.assign(f"extractelement {value.type} {value.name}, i64 {start}", value.element, 1)
    mask = ", ".join(f"i32 {start + i}" for i in range(count))
    return e.assign(f"shufflevector {value.type} {value.name}, {value.type} poison, <{count} x i32> <{mask}>",
                    value.element, count)


class Tree:
    """One reduction being written: its lanes in memory and its stack of joined blocks."""

    def __init__(self, code: LoopState, number: int) -> None:
        instruction = code.kernel.instructions[number]
        self.code, self.number = code, number
        self.name, self.dtype = instruction.name.removeprefix("reduce_"), instruction.dtype
        self.element = lane_type(self.dtype)
        self.lanes = code.temporaries.setdefault(f"lanes{number}", code.allocate(self.element, TREE_LANES))
        self.stack = code.temporaries.setdefault(f"stack{number}", code.allocate(self.element, 64))
        self.input = instruction.inputs[0]

    def start(self, lanes: int) -> Value:
        return self.code.e.constant(identity(self.name, self.dtype), self.element, lanes)

    def as_lane(self, value: Value) -> Value:
        return self.code.e.convert("zext", value, "i8") if value.element == "i1" else value

    def join(self, a: Value, b: Value) -> Value:
        return combine(self.code.e, self.name, self.dtype, a, b)

    def store_lanes(self, parts: list[Value]) -> None:
        e = self.code.e
        for position, part in enumerate(parts):
            e.store(part, e.offset(self.lanes, self.element, position * part.lanes))

    def add_chunk(self, value: Value, column: Value, mask: Value | None) -> None:
        """Combine a chunk into the lanes it belongs to, leaving lanes of absent elements alone."""
        e = self.code.e
        value = self.as_lane(value)
        if mask is not None:
            value = e.select(mask, value, self.start(value.lanes))
        place = e.offset(self.lanes, self.element, column & (TREE_LANES - 1))
        e.store(self.join(e.load(place, self.element), value), place)

    def finish_block(self, block: Value) -> None:
        """Fold the lanes and join the result with the finished blocks before it, as a binary counter carries."""
        self.push(self.folded(), block)

    def folded(self) -> Value:
        """The 64 lanes of a block as one value."""
        e, width = self.code.e, self.code.lanes
        parts = [e.load(e.offset(self.lanes, self.element, i), self.element) for i in range(0, TREE_LANES, width)]
        return fold(e, self.name, self.dtype, parts)

    def push(self, value: Value, block: Value) -> None:
        e = self.code.e
        carries = e.intrinsic("cttz", block ^ -1, e.constant(True, "i1", 1), suffix="i64")
        with e.loop(0, carries, carried=[value]) as loop:
            earlier = e.load(e.offset(self.stack, self.element, loop.index), self.element, 1)
            loop.next(self.join(earlier, loop.values[0]))
        e.store(loop.values[0], e.offset(self.stack, self.element, carries))

    def result(self, blocks: Value) -> Value:
        """Join what is left on the stack, latest first; no block at all is the identity."""
        e = self.code.e
        bits = 64 - e.intrinsic("ctlz", blocks, e.constant(False, "i1", 1), suffix="i64")
        with e.loop(0, bits, carried=[self.start(1)]) as loop:
            present = e.icmp("ne", e.instruction("lshr", blocks, loop.index) & 1, 0)
            earlier = e.load(e.offset(self.stack, self.element, loop.index), self.element, 1)
            loop.next(e.select(present, self.join(earlier, loop.values[0]), loop.values[0]))
        return self.finished(loop.values[0])

    def finished(self, total: Value) -> Value:
        """The accumulated value as a register value of the result's dtype."""
        e = self.code.e
        if self.dtype is bool_:
            return e.icmp("ne", total, 0)
        return scalars.round_to(e, total, self.dtype) if self.name in ("sum", "prod") else total
