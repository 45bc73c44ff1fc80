"""Scores of a block: masks, softmax as blocks go by, and its gradient in the backward pass."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import scalars
from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.vector_math.exponential import exp_nonpositive, exp_short
from morpho.backends.kernels.attention.attention import KEY_BLOCK
from morpho.backends.kernels.attention.attention_code import (
    MINUS_INFINITY,
    Routine,
    Shape,
    clamped,
    joined,
    lane,
    shuffled,
    smin,
)
from morpho.base.dtypes import DType, bool_

QUIET_NAN, HALF_UNIT = 0x7FC00000, 0x7FFF  # bits of float32; just less than half of the last place of bfloat16


# -- masks -------------------------------------------------------------------------------------------------------------
def _mask_value(f: Routine, raw: Value, dtype: DType) -> Value:
    """Loaded elements of a mask as bits, or as numbers to add."""
    value = scalars.from_memory(f.e, raw, dtype)
    return value if dtype is bool_ else f.e.convert("fpext", value, f.shape.element)


def _adds(f: Routine, value: Value) -> Value:
    """Whether a float mask hides nothing: a score may be NaN, which -inf alone would not hide."""
    return f.e.fcmp("une", value, MINUS_INFINITY)


def mask_tile(shape: Shape, mask: DType | None) -> Routine:
    """Scores that a row may not see become -inf, those past `count` too; a float mask is added.

    Row r sees the keys from lower[r] up to upper[r]; its line of the mask begins at element offsets[r]. The scores of
    the first `clear` keys, which all rows see, are only clamped. Pairs are multiplied by the scale here, not before.
    """
    f = Routine(shape, f"mask_tile{shape.vectors}", s="ptr", start="i64", clear="i64", count="i64", lower="ptr",
                upper="ptr", mask="ptr", offsets="ptr", step="i64", scale="element", top="ptr")
    e, rows = f.e, shape.rows

    def scaled(key: Value) -> Value:
        score = f.load("%s", key * rows, rows)
        return clamped(f, score * e.splat(f["scale"], rows) if shape.paired else score)

    lower, upper = (e.load(f"%{name}", "i32", rows) for name in ("lower", "upper"))
    none = f.constant(MINUS_INFINITY, rows)
    with e.loop(0, f["clear"], carried=[none]) as keys:
        score = scaled(keys.index)
        f.store(score, "%s", keys.index * rows)
        keys.next(e.maximum(keys.values[0], score))
    with e.loop(f["clear"], f["count"], carried=keys.values) as keys:
        key = f["start"] + keys.index
        position = e.splat(e.convert("trunc", key, "i32"), rows)
        seen = e.icmp("sge", position, lower) & e.icmp("slt", position, upper)
        score = scaled(keys.index)
        if mask is not None:
            places = [e.load(e.offset("%offsets", "i64", r), "i64", 1) + key * f["step"] for r in range(rows)]
            value = _mask_value(f, _gathered(f, mask, places), mask)
            seen, score = (seen & value, score) if mask is bool_ else (seen & _adds(f, value), score + value)
        score = e.select(seen, score, none)
        f.store(score, "%s", keys.index * rows)
        keys.next(e.maximum(keys.values[0], score))
    f.store(keys.values[0], "%top", 0)
    with e.loop(f["count"], KEY_BLOCK) as keys:
        f.store(none, "%s", keys.index * rows)
    return f


def _gathered(f: Routine, mask: DType, places: list[Value]) -> Value:
    """Elements of the mask at given places, one a lane."""
    e, memory = f.e, scalars.memory_type(mask)
    ones = [e.load(e.offset("%mask", memory, place), memory, 1) for place in places]
    raw = Value(e, "poison", memory, len(ones))
    for r, one in enumerate(ones):
        raw = one if len(ones) == 1 else e.assign(
            f"insertelement {raw.type} {raw.name}, {memory} {one.name}, i64 {r}", memory, len(ones))
    return raw


def mask_transposed(shape: Shape, mask: DType | None) -> Routine:
    """The same with the keys from `start` in the lanes and `count` rows one after another; keys past `keys` repeat the
    last one and are masked."""
    f = Routine(shape, "mask_transposed", s="ptr", start="i64", count="i64", lower="ptr", upper="ptr", mask="ptr",
                offsets="ptr", step="i64", keys="i64")
    e, lanes = f.e, shape.rows
    position = e.splat(e.convert("trunc", f["start"], "i32"), lanes) + e.lane_numbers("i32", lanes)
    with e.loop(0, f["count"]) as rows:
        lower, upper = (e.splat(e.load(e.offset(f"%{name}", "i32", rows.index), "i32", 1), lanes)
                        for name in ("lower", "upper"))
        seen = e.icmp("sge", position, lower) & e.icmp("slt", position, upper)
        score = clamped(f, f.load("%s", rows.index * lanes, lanes))
        if mask is not None:
            start = e.load(e.offset("%offsets", "i64", rows.index), "i64", 1)
            places = [start + smin(e, f["start"] + i, f["keys"] - 1) * f["step"] for i in range(lanes)]
            value = _mask_value(f, _gathered(f, mask, places), mask)
            seen, score = (seen & value, score) if mask is bool_ else (seen & _adds(f, value), score + value)
        f.store(e.select(seen, score, f.constant(MINUS_INFINITY, lanes)), "%s", rows.index * lanes)
    return f


def mask_row(shape: Shape, mask: DType | None) -> Routine:
    """The same for one row, which sees keys from `lower` up to `upper` of a block; `mask` points at its line."""
    f = Routine(shape, "mask_row", s="ptr", start="i64", count="i64", lower="i32", upper="i32", mask="ptr", step="i64")
    e, lanes = f.e, shape.lanes
    with e.loop(0, KEY_BLOCK, lanes) as keys:
        position = e.splat(e.convert("trunc", f["start"] + keys.index, "i32"), lanes)
        position = position + e.lane_numbers("i32", lanes)
        seen = e.icmp("sge", position, e.splat(f["lower"], lanes)) & e.icmp("slt", position, e.splat(f["upper"], lanes))
        f.store(e.select(seen, f.load("%s", keys.index, lanes), MINUS_INFINITY), "%s", keys.index)
    if mask is not None:
        memory = scalars.memory_type(mask)
        with e.loop(0, f["count"]) as keys:
            score = f.load("%s", keys.index, 1)
            place = e.offset("%mask", memory, (f["start"] + keys.index) * f["step"])
            value = _mask_value(f, e.load(place, memory, 1), mask)
            if mask is not bool_:  # what is not seen stays so
                score, value = score + value, e.fcmp("une", score, MINUS_INFINITY) & _adds(f, value)
            f.store(e.select(value, score, MINUS_INFINITY), "%s", keys.index)
    return f


# -- softmax of a block ------------------------------------------------------------------------------------------------
def _turn(f: Routine, old: Value, top: Value) -> tuple[Value, Value, Value]:
    """The new maximum, what is subtracted from scores (0 before any key was seen), and the factor of what was."""
    e = f.e
    new = e.maximum(old, top)
    shift = e.select(e.fcmp("oeq", new, MINUS_INFINITY), e.like(0.0, new), new)
    return new, shift, exp_nonpositive(e, old - shift)


def rounded_power(e: Emitter, x: Value) -> Value:
    """e**x for x <= 0, rounded to bfloat16, as a float32; 0 below 2**-64, so that matrix units meet no subnormals."""
    bits = e.intrinsic("umin", e.bits(exp_short(e, x)), e.like(QUIET_NAN, e.bits(x)))  # any NaN is this one
    return e.from_bits((bits + HALF_UNIT + (bits.shift_right(16) & 1)) & -(1 << 16), "float")


def softmax_tile(shape: Shape) -> Routine:
    """Scores of a block become exp(score - maximum); m, l and the factor of the earlier blocks are brought forward.
    Scores of pairs are multiplied by the scale before, and their powers rounded."""
    f = Routine(shape, f"softmax_tile{shape.vectors}", s="ptr", m="ptr", l="ptr", factor="ptr", top="ptr", count="i64",
                scale="element")
    e, rows = f.e, shape.rows
    top = f.load("%top", 0, rows)
    new, shift, factor = _turn(f, f.load("%m", 0, rows), top * e.splat(f["scale"], rows) if shape.paired else top)
    f.store(new, "%m", 0)
    f.store(factor, "%factor", 0)
    # Keys: four vectors side by side, eight where half of them would wait for themselves and there are registers.
    together = (4 if shape.by_lane else 4 // shape.vectors) if shape.lanes > 1 else 1
    shifts = shuffled(e, shift, shift, [*range(rows)] * together) if rows > 1 else shift
    done = (f["count"] + (together - 1)) & -together
    with e.loop(0, done, together) as keys:
        score = f.load("%s", keys.index * rows, together * rows)
        if shape.paired:
            f.store(rounded_power(e, score * e.splat(f["scale"], score.lanes) - shifts), "%s", keys.index * rows)
        else:
            f.store(exp_nonpositive(e, score - shifts), "%s", keys.index * rows)
    with e.loop(done, KEY_BLOCK) as keys:
        f.store(f.constant(0.0, rows), "%s", keys.index * rows)

    def fold(first: Value, step: int, more: int = 0) -> Value:
        """The sum of keys first, first + step, ...: halves are added, as in the tree of every sum."""
        if step == KEY_BLOCK:
            return f.load("%s", (first + more) * rows, rows)
        return fold(first, 2 * step, more) + fold(first, 2 * step, more + step)

    with e.loop(0, 2, carried=[f.constant(0.0, rows)]) as odd:  # adding to 0.0 changes no sum of powers
        odd.next(odd.values[0] + fold(odd.index, 2))
    f.store(e.fma(f.load("%l", 0, rows), factor, odd.values[0]), "%l", 0)
    return f


def softmax_row(shape: Shape) -> Routine:
    """The same for one row, keys in the lanes; the scores stay, for they mark what is masked."""
    f = Routine(shape, "softmax_row", s="ptr", p="ptr", m="ptr", l="ptr", factor="ptr", count="i64")
    e, lanes = f.e, shape.lanes
    top = _folded(f, "%s", e.maximum)
    new, shift, factor = _turn(f, f.load("%m", 0, 1), top)
    f.store(new, "%m", 0)
    f.store(factor, "%factor", 0)
    chunk = min(KEY_BLOCK, 4 * lanes) if lanes > 1 else 1
    shifts = e.splat(shift, chunk)
    seen = (f["count"] + (chunk - 1)) & -chunk
    with e.loop(0, seen, chunk) as keys:
        power = rounded_power if shape.paired else exp_nonpositive
        f.store(power(e, f.load("%s", keys.index, chunk) - shifts), "%p", keys.index)
    with e.loop(seen, KEY_BLOCK, chunk) as keys:  # exp(-inf)
        f.store(f.constant(0.0, chunk), "%p", keys.index)
    total = _folded(f, "%p", lambda a, b: a + b)
    f.store(e.fma(f.load("%l", 0, 1), factor, total), "%l", 0)
    return f


def _folded(f: Routine, address: str, combine: Callable[[Value, Value], Value]) -> Value:
    """64 values of a row to one, by halves."""
    e, lanes = f.e, f.shape.lanes

    def fold(first: int, step: int) -> Value:
        if step * lanes == KEY_BLOCK:
            return f.load(address, first * lanes, lanes)
        return combine(fold(first, 2 * step), fold(first + step, 2 * step))

    value = fold(0, 1)
    while value.lanes > 1:
        half = value.lanes // 2
        low, high = (shuffled(e, value, value, [*range(start, start + half)]) for start in (0, half))
        if half == 1:
            low, high = lane(e, value, 0), lane(e, value, 1)
        value = combine(low, high)
    return value


def slope_tile(shape: Shape, transposed: bool) -> Routine:
    """Scores in s become probabilities exp(score - lse), and in t, the product of cotangent and value, their slopes
    p * (t - delta); lse and delta belong to the lanes, or `transposed` to the lines. May go one line past `count`."""
    f = Routine(shape, "slope_tile", s="ptr", t="ptr", lse="ptr", delta="ptr", count="i64")
    e, rows = f.e, shape.rows
    together = 2 if shape.lanes > 1 else 1  # lines: four vectors side by side

    def spread(name: str, line: Value) -> Value:
        """lse or delta beside the elements of some lines."""
        values = [e.splat(f.load(name, line + i, 1), rows) if transposed else f.load(name, 0, rows)
                  for i in range(together)]
        return joined(e, values)

    with e.loop(0, f["count"], together) as lines:
        at = lines.index * rows
        score, product = (f.load(name, at, together * rows) for name in ("%s", "%t"))
        hidden = e.fcmp("oeq", score, MINUS_INFINITY)
        power = e.select(hidden, 0.0, exp_nonpositive(e, score - spread("%lse", lines.index)))
        f.store(power, "%s", at)
        f.store(e.select(hidden, 0.0, power * (product - spread("%delta", lines.index))), "%t", at)
    return f
