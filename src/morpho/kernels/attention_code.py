"""The routines that attention's kernels are made of: products of small tiles, masks, softmax of a block, packing.

A tile of rows has its rows in the lanes: the scores of 64 keys are `[key][row]`, so the softmax of a row needs no step
across lanes, keys and values are read as they lie in memory, and the probabilities stand where the second product wants
them. A few rows alone would waste lanes: `_row` routines take one row with keys, then columns, in the lanes. Both do
the same operations in the same order per row (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from morpho.base.dtypes import DType, bool_
from morpho.base.machine import Isa
from morpho.kernels import scalars
from morpho.kernels.emit import BITS, Emitter, Value
from morpho.kernels.vector_math.exponential import exp_nonpositive

BLOCK = 64  # keys; blocks start at multiples of it
UNROLLED = 2
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
        """Keys that are multiplied at once."""
        return 8 if self.wide or self.vectors == 1 else 4

    @property
    def strip(self) -> int:
        """Elements of 16 bytes; the depth of a product is padded to a multiple of it."""
        return 128 // BITS[self.element]

    @property
    def value_rows(self) -> int:
        """Rows of the second product's tile."""
        return min(self.rows, 8 if self.wide else 4)

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
        return f"define internal void @{self.name}({given}) nounwind {{\nentry:\n{self.e.text()}\n  ret void\n}}\n"


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


def smin(e: Emitter, a: Value, b: Value | int) -> Value:
    return e.intrinsic("smin", a, e.like(b, a))


def smax(e: Emitter, a: Value, b: Value | int) -> Value:
    return e.intrinsic("smax", a, e.like(b, a))


def _spread(e: Emitter, strip: Value, number: int, lanes: int) -> Value:
    """One lane of a short vector in every lane: an fma of AArch64 takes it so."""
    return shuffled(e, strip, strip, [number] * lanes) if lanes > 1 else lane(e, strip, number)


# -- products ------------------------------------------------------------------------------------------------------
def clamped(f: Routine, score: Value) -> Value:
    """What overflows stays finite, so that -inf means masked and nothing else."""
    e, most = f.e, LARGEST[f.shape.element]
    if f.shape.by_lane:
        return e.minimum(e.maximum(score, -most), most)
    score = e.select(e.fcmp("olt", score, -most), e.like(-most, score), score)
    return e.select(e.fcmp("ogt", score, most), e.like(most, score), score)


def score_tile(shape: Shape) -> Routine:
    """s[key][row] = sum over c of q[c][row] * k[key][c], for a tile of rows and `count` keys, and each row's largest.

    Key numbers past `keys` repeat the last one. `depth` is a multiple of a strip. Scores are not clamped: while the
    largest one is an ordinary number it makes no difference, and the kernel sees to the rest.
    """
    f = Routine(shape, f"score_tile{shape.vectors}", q="ptr", k="ptr", stride="i64", depth="i64", count="i64",
                keys="i64", s="ptr", top="ptr")
    e, lanes, rows, vectors = f.e, shape.lanes, shape.rows, shape.vectors
    with e.loop(0, f["count"], shape.keys, carried=[f.constant(MINUS_INFINITY, lanes)] * vectors) as groups:
        lines = [f.at("%k", smin(e, groups.index + i, f["keys"] - 1) * f["stride"]) for i in range(shape.keys)]
        with e.loop(0, f["depth"], shape.strip, carried=[f.constant(0.0, lanes)] * (vectors * shape.keys)) as loop:
            totals = list(loop.values)
            strips = [f.load(line, loop.index, shape.strip) for line in lines] if shape.by_lane else []
            left = f.at("%q", loop.index * rows)
            for c in range(shape.strip):
                queries = [f.load(left, c * rows + n * lanes, lanes) for n in range(vectors)]
                for i, line in enumerate(lines):
                    factor = _spread(e, strips[i], c, lanes) if strips else e.splat(f.load(line, loop.index + c, 1))
                    for n in range(vectors):
                        totals[vectors * i + n] = e.fma(queries[n], factor, totals[vectors * i + n])
            loop.next(*totals)
        tops, target = list(groups.values), f.at("%s", groups.index * rows)
        for i, total in enumerate(loop.values):
            f.store(total, target, i * lanes)
            tops[i % vectors] = e.maximum(tops[i % vectors], total)
        groups.next(*tops)
    for n, top in enumerate(groups.values):
        f.store(top, "%top", n * lanes)
    return f


def value_tile(shape: Shape) -> Routine:
    """o[row][column] = o * factor[row] + sum over keys of p[key][row] * v[key][column], keys ascending."""
    f = Routine(shape, f"value_tile{shape.vectors}", p="ptr", v="ptr", stride="i64", count="i64", width="i64",
                factor="ptr", o="ptr")
    e, lanes, group = f.e, shape.lanes, shape.value_rows
    with e.loop(0, shape.rows, group) as rows, e.loop(0, f["width"], shape.columns) as columns:
        outs = [f.at("%o", (rows.index + r) * f["width"] + columns.index) for r in range(group)]
        old = []
        for r, out in enumerate(outs):
            factor = e.splat(f.load("%factor", rows.index + r, 1))
            old += [f.load(out, n * lanes, lanes) * factor for n in range(shape.value_vectors)]
        whole = f["count"] & -UNROLLED  # few enough steps for a processor to foresee the end of the loop
        with e.loop(0, whole, UNROLLED, carried=old) as loop:
            loop.next(*_value_keys(f, rows.index, columns.index, loop.index, loop.values, UNROLLED))
        with e.loop(whole, f["count"], carried=loop.values) as loop:
            loop.next(*_value_keys(f, rows.index, columns.index, loop.index, loop.values, 1))
        for i, total in enumerate(loop.values):
            f.store(total, outs[i // shape.value_vectors], i % shape.value_vectors * lanes)
    return f


def _value_keys(f: Routine, row: Value, column: Value, key: Value, totals: list[Value], count: int) -> list[Value]:
    """The totals after `count` keys more."""
    e, shape = f.e, f.shape
    weights_at = f.at("%p", key * shape.rows + row)
    line = f.at("%v", key * f["stride"] + column)
    for i in range(count):
        weights = _weights(f, f.at(weights_at, i * shape.rows))
        values = [f.load(line, n * shape.lanes, shape.lanes) for n in range(shape.value_vectors)]
        pairs = [(weight, value) for weight in weights for value in values]
        totals = [e.fma(value, weight, total) for (weight, value), total in zip(pairs, totals, strict=True)]
        line = f.at(line, f["stride"])
    return totals


def _weights(f: Routine, address: str) -> list[Value]:
    """The probabilities of one key for a group of rows, each spread over the lanes."""
    e, shape = f.e, f.shape
    if not shape.by_lane or shape.value_rows < shape.strip:
        return [e.splat(f.load(address, r, 1)) for r in range(shape.value_rows)]
    strips = [f.load(address, r, shape.strip) for r in range(0, shape.value_rows, shape.strip)]
    return [_spread(e, strips[r // shape.strip], r % shape.strip, shape.lanes) for r in range(shape.value_rows)]


def value_turned(shape: Shape) -> Routine:
    """o[line][column] += sum over keys of t[key][line] * k[key][column], keys ascending, where t holds the keys in the
    lanes: 64 lines for each tile of keys. Lines past the last one repeat it, and so do keys, whose slopes are 0."""
    f = Routine(shape, "value_turned", t="ptr", lines="i64", k="ptr", stride="i64", count="i64", width="i64", o="ptr")
    e, lanes, tile = f.e, shape.lanes, shape.rows
    strip = min(shape.strip, tile)
    group = 8 if shape.wide else 4
    with e.loop(0, f["lines"], group) as rows, e.loop(0, f["width"], shape.columns) as columns:
        numbers = [smin(e, rows.index + r, f["lines"] - 1) for r in range(group)]
        outs = [f.at("%o", number * f["width"] + columns.index) for number in numbers]
        old = [f.load(out, n * lanes, lanes) for out in outs for n in range(shape.value_vectors)]
        slopes = [f.at("%t", number * tile) for number in numbers]
        with e.loop(0, f["count"], strip, carried=old) as loop:
            totals = list(loop.values)
            first = loop.index.shift_right(tile.bit_length() - 1) * (BLOCK * tile) + (loop.index & (tile - 1))
            loaded = [f.load(line, first, strip) for line in slopes] if shape.by_lane else []
            for i in range(strip):
                line = f.at("%k", smin(e, loop.index + i, f["count"] - 1) * f["stride"] + columns.index)
                values = [f.load(line, n * lanes, lanes) for n in range(shape.value_vectors)]
                weights = [_spread(e, part, i, lanes) if strip > 1 else part for part in loaded] or [
                    e.splat(f.load(line, first + i, 1)) for line in slopes]
                pairs = [(weight, value) for weight in weights for value in values]
                totals = [e.fma(value, weight, total) for (weight, value), total in zip(pairs, totals, strict=True)]
            loop.next(*totals)
        for i, total in enumerate(loop.values):
            f.store(total, outs[i // shape.value_vectors], i % shape.value_vectors * lanes)
    return f


def score_row(shape: Shape) -> Routine:
    """s[key] = sum over c of q[c] * k[key][c] for one row, clamped; small transposes put the keys into the lanes."""
    f = Routine(shape, "score_row", q="ptr", k="ptr", stride="i64", depth="i64", count="i64", keys="i64", s="ptr")
    e, lanes = f.e, shape.lanes
    together = 2 if lanes > 1 else 4  # more of them would be more streams than a processor follows
    with e.loop(0, f["count"], together * lanes) as groups:
        lines = [f.at("%k", smin(e, groups.index + i, f["keys"] - 1) * f["stride"]) for i in range(together * lanes)]
        with e.loop(0, f["depth"], shape.strip, carried=[f.constant(0.0, lanes)] * together) as loop:
            totals = list(loop.values)
            query = f.load("%q", loop.index, shape.strip)
            factors = [_spread(e, query, c, lanes) for c in range(shape.strip)]
            for g in range(together):
                keys = _turned(f, lines[g * lanes:(g + 1) * lanes], loop.index)
                for c, factor in enumerate(factors):
                    totals[g] = e.fma(keys[c], factor, totals[g])
            loop.next(*totals)
        for g, total in enumerate(loop.values):
            f.store(clamped(f, total), "%s", groups.index + g * lanes)
    return f


def _turned(f: Routine, lines: list[str], column: Value) -> list[Value]:
    """Columns `column`.. of a strip, each as one vector over the lines."""
    e, shape = f.e, f.shape
    strip = shape.strip
    if len(lines) == 1:
        return [f.load(lines[0], column + c, 1) for c in range(strip)]
    loaded = [f.load(line, column, strip) for line in lines]
    # Vector t holds lines t, t + strip, ...: a transpose within every 16 bytes then puts the lines in order.
    vectors = [_joined(e, loaded[t::strip]) for t in range(strip)]
    while strip > 1:
        half = len(vectors) // 2
        mixed = []
        for a, b in zip(vectors[:half], vectors[half:], strict=True):
            mixed += [_interleaved(e, a, b, shape.strip, upper) for upper in (False, True)]
        vectors, strip = mixed, strip // 2
    return vectors


def _joined(e: Emitter, parts: list[Value]) -> Value:
    """Vectors end to end."""
    while len(parts) > 1:
        count = parts[0].lanes
        parts = [shuffled(e, a, b, list(range(2 * count))) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _interleaved(e: Emitter, a: Value, b: Value, strip: int, upper: bool) -> Value:
    """The lower or upper halves of every strip of two vectors, lane by lane in turn."""
    picks = []
    for start in range(0, a.lanes, strip):
        for i in range(strip // 2):
            picks += [start + i + upper * strip // 2, a.lanes + start + i + upper * strip // 2]
    return shuffled(e, a, b, picks)


def value_row(shape: Shape) -> Routine:
    """o[column] = o * factor + sum over keys of p[key] * v[key][column] for one row; keys marked -inf are left out."""
    f = Routine(shape, "value_row", p="ptr", marks="ptr", step="i64", v="ptr", stride="i64", count="i64", width="i64",
                factor="element", o="ptr")
    e, wide = f.e, 8 * shape.lanes
    whole = f["width"] & -wide
    with e.loop(0, whole, wide) as columns:
        _value_columns(f, columns.index, 8)
    with e.loop(whole, f["width"], shape.columns) as columns:
        _value_columns(f, columns.index, shape.value_vectors)
    return f


def _value_columns(f: Routine, column: Value, vectors: int) -> None:
    e, lanes = f.e, f.shape.lanes
    out = f.at("%o", column)
    old = [f.load(out, n * lanes, lanes) * e.splat(f["factor"]) for n in range(vectors)]
    with e.loop(0, f["count"], carried=old) as loop:
        position = loop.index * f["step"]
        seen, after, before = e.fresh("seen"), e.fresh("after"), e.block
        e.branch_if(e.fcmp("une", f.load("%marks", position, 1), MINUS_INFINITY), seen, after)
        e.label(seen)
        weight = e.splat(f.load("%p", position, 1))
        line = f.at("%v", loop.index * f["stride"] + column)
        news = [e.fma(f.load(line, n * lanes, lanes), weight, total) for n, total in enumerate(loop.values)]
        e.branch(after)
        e.label(after)
        loop.next(*[e.assign(f"phi {new.type} [ {total.name}, %{before} ], [ {new.name}, %{seen} ]", new.element, lanes)
                    for new, total in zip(news, loop.values, strict=True)])
    for n, total in enumerate(loop.values):
        f.store(total, out, n * lanes)


# -- masks ---------------------------------------------------------------------------------------------------------
def _mask_value(f: Routine, raw: Value, dtype: DType) -> Value:
    """Loaded elements of a mask as bits, or as numbers to add."""
    value = scalars.from_memory(f.e, raw, dtype)
    return value if dtype is bool_ else f.e.convert("fpext", value, f.shape.element)


def mask_tile(shape: Shape, mask: DType | None) -> Routine:
    """Scores that a row may not see become -inf, those past `count` too; a float mask is added.

    Row r sees the keys from lower[r] up to upper[r]; its line of the mask begins at element offsets[r].
    """
    f = Routine(shape, f"mask_tile{shape.vectors}", s="ptr", start="i64", count="i64", lower="ptr", upper="ptr",
                mask="ptr", offsets="ptr", step="i64", top="ptr")
    e, rows = f.e, shape.rows
    lower, upper = (e.load(f"%{name}", "i32", rows) for name in ("lower", "upper"))
    none = f.constant(MINUS_INFINITY, rows)
    with e.loop(0, f["count"], carried=[none]) as keys:
        key = f["start"] + keys.index
        position = e.splat(e.convert("trunc", key, "i32"), rows)
        seen = e.icmp("sge", position, lower) & e.icmp("slt", position, upper)
        score = clamped(f, f.load("%s", keys.index * rows, rows))
        if mask is not None:
            places = [e.load(e.offset("%offsets", "i64", r), "i64", 1) + key * f["step"] for r in range(rows)]
            value = _mask_value(f, _gathered(f, mask, places), mask)
            seen, score = (seen & value, score) if mask is bool_ else (seen, score + value)
        score = e.select(seen, score, none)
        f.store(score, "%s", keys.index * rows)
        keys.next(e.maximum(keys.values[0], score))
    f.store(keys.values[0], "%top", 0)
    with e.loop(f["count"], BLOCK) as keys:
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


def mask_turned(shape: Shape, mask: DType | None) -> Routine:
    """The same with the keys from `start` in the lanes and `count` rows one after another; keys past `keys` repeat the
    last one and are masked."""
    f = Routine(shape, "mask_turned", s="ptr", start="i64", count="i64", lower="ptr", upper="ptr", mask="ptr",
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
            seen, score = (seen & value, score) if mask is bool_ else (seen, score + value)
        f.store(e.select(seen, score, f.constant(MINUS_INFINITY, lanes)), "%s", rows.index * lanes)
    return f


def mask_row(shape: Shape, mask: DType | None) -> Routine:
    """The same for one row; `mask` points at its line."""
    f = Routine(shape, "mask_row", s="ptr", start="i64", count="i64", lower="i32", upper="i32", mask="ptr", step="i64")
    e = f.e
    none = f.constant(MINUS_INFINITY, 1)
    with e.loop(0, f["count"]) as keys:
        key = f["start"] + keys.index
        position = e.convert("trunc", key, "i32")
        seen = e.icmp("sge", position, f["lower"]) & e.icmp("slt", position, f["upper"])
        score = f.load("%s", keys.index, 1)
        if mask is not None:
            memory = scalars.memory_type(mask)
            value = _mask_value(f, e.load(e.offset("%mask", memory, key * f["step"]), memory, 1), mask)
            seen, score = (seen & value, score) if mask is bool_ else (seen, score + value)
        f.store(e.select(seen, score, none), "%s", keys.index)
    with e.loop(f["count"], BLOCK) as keys:
        f.store(none, "%s", keys.index)
    return f


# -- softmax of a block --------------------------------------------------------------------------------------------
def _turn(f: Routine, old: Value, top: Value) -> tuple[Value, Value, Value]:
    """The new maximum, what is subtracted from scores (0 before any key was seen), and the factor of what was."""
    e = f.e
    new = e.maximum(old, top)
    shift = e.select(e.fcmp("oeq", new, MINUS_INFINITY), e.like(0.0, new), new)
    return new, shift, exp_nonpositive(e, old - shift)


def softmax_tile(shape: Shape) -> Routine:
    """Scores of a block become exp(score - maximum); m, l and the factor of the earlier blocks are brought forward."""
    f = Routine(shape, f"softmax_tile{shape.vectors}", s="ptr", m="ptr", l="ptr", factor="ptr", top="ptr", count="i64")
    e, rows = f.e, shape.rows
    new, shift, factor = _turn(f, f.load("%m", 0, rows), f.load("%top", 0, rows))
    f.store(new, "%m", 0)
    f.store(factor, "%factor", 0)
    together = 4 // shape.vectors if shape.lanes > 1 else 1  # keys: four vectors side by side
    shifts = shuffled(e, shift, shift, [*range(rows)] * together) if rows > 1 else shift
    done = (f["count"] + (together - 1)) & -together
    with e.loop(0, done, together) as keys:
        score = f.load("%s", keys.index * rows, together * rows)
        f.store(exp_nonpositive(e, score - shifts), "%s", keys.index * rows)
    with e.loop(done, BLOCK) as keys:
        f.store(f.constant(0.0, rows), "%s", keys.index * rows)

    def fold(first: int, step: int) -> Value:
        """The sum of keys first, first + step, ...: halves are added, as in the tree of every sum."""
        if step == BLOCK:
            return f.load("%s", first * rows, rows)
        return fold(first, 2 * step) + fold(first + step, 2 * step)

    f.store(e.fma(f.load("%l", 0, rows), factor, fold(0, 1)), "%l", 0)
    return f


def softmax_row(shape: Shape) -> Routine:
    """The same for one row, keys in the lanes; the scores stay, for they mark what is masked."""
    f = Routine(shape, "softmax_row", s="ptr", p="ptr", m="ptr", l="ptr", factor="ptr")
    e, lanes = f.e, shape.lanes
    top = _folded(f, "%s", e.maximum)
    new, shift, factor = _turn(f, f.load("%m", 0, 1), top)
    f.store(new, "%m", 0)
    f.store(factor, "%factor", 0)
    chunk = min(BLOCK, 4 * lanes) if lanes > 1 else 1
    shifts = e.splat(shift, chunk)
    with e.loop(0, BLOCK, chunk) as keys:
        f.store(exp_nonpositive(e, f.load("%s", keys.index, chunk) - shifts), "%p", keys.index)
    total = _folded(f, "%p", lambda a, b: a + b)
    f.store(e.fma(f.load("%l", 0, 1), factor, total), "%l", 0)
    return f


def _folded(f: Routine, address: str, combine: Callable[[Value, Value], Value]) -> Value:
    """64 values of a row to one, by halves."""
    e, lanes = f.e, f.shape.lanes

    def fold(first: int, step: int) -> Value:
        if step * lanes == BLOCK:
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


def slope_tile(shape: Shape, turned: bool) -> Routine:
    """Scores in s become probabilities exp(score - lse), and in t, the product of cotangent and value, their slopes
    p * (t - delta); lse and delta belong to the lanes, or `turned` to the lines. May go one line past `count`."""
    f = Routine(shape, "slope_tile", s="ptr", t="ptr", lse="ptr", delta="ptr", count="i64")
    e, rows = f.e, shape.rows
    together = 2 if shape.lanes > 1 else 1  # lines: four vectors side by side

    def spread(name: str, line: Value) -> Value:
        """lse or delta beside the elements of some lines."""
        values = [e.splat(f.load(name, line + i, 1), rows) if turned else f.load(name, 0, rows)
                  for i in range(together)]
        return _joined(e, values)

    with e.loop(0, f["count"], together) as lines:
        at = lines.index * rows
        score, product = (f.load(name, at, together * rows) for name in ("%s", "%t"))
        hidden = e.fcmp("oeq", score, MINUS_INFINITY)
        power = e.select(hidden, 0.0, exp_nonpositive(e, score - spread("%lse", lines.index)))
        f.store(power, "%s", at)
        f.store(e.select(hidden, 0.0, power * (product - spread("%delta", lines.index))), "%t", at)
    return f


# -- packing -------------------------------------------------------------------------------------------------------
def pack_lines(shape: Shape, dtype: DType) -> Routine:
    """Lines of memory times a factor, side by side as registers hold them, each padded with zeros to `width`."""
    f = Routine(shape, "pack_lines", source="ptr", stride="i64", step="i64", lines="i64", size="i64", width="i64",
                factor="element", target="ptr")
    e, lanes, memory = f.e, shape.lanes, scalars.memory_type(dtype)
    whole = e.select(e.icmp("eq", f["step"], 1), f["size"] & -lanes, e.constant(0, "i64", 1))
    with e.loop(0, f["lines"]) as lines:
        source = e.offset("%source", memory, lines.index * f["stride"])
        target = f.at("%target", lines.index * f["width"])
        with e.loop(0, whole, lanes) as loop:
            loaded = e.load(e.offset(source, memory, loop.index), memory, lanes)
            f.store(scalars.from_memory(e, loaded, dtype) * e.splat(f["factor"]), target, loop.index)
        with e.loop(whole, f["size"]) as loop:
            one = e.load(e.offset(source, memory, loop.index * f["step"]), memory, 1)
            f.store(scalars.from_memory(e, one, dtype) * f["factor"], target, loop.index)
        with e.loop(f["size"], f["width"]) as loop:
            f.store(f.constant(0.0, 1), target, loop.index)
    return f


def pack_lanes(shape: Shape, dtype: DType) -> Routine:
    """Lines of memory times a factor and turned: target[c][line]; lines past `lines` and c past `size` are zero."""
    f = Routine(shape, f"pack_lanes{shape.vectors}", source="ptr", offsets="ptr", step="i64", lines="i64", size="i64",
                width="i64", factor="element", target="ptr")
    e, rows, memory = f.e, shape.rows, scalars.memory_type(dtype)
    with e.loop(0, f["width"] * rows, shape.lanes) as loop:
        f.store(f.constant(0.0, shape.lanes), "%target", loop.index)
    with e.loop(0, f["lines"]) as lines:
        source = e.offset("%source", memory, e.load(e.offset("%offsets", "i64", lines.index), "i64", 1))
        target = f.at("%target", lines.index)
        with e.loop(0, f["size"]) as loop:
            one = e.load(e.offset(source, memory, loop.index * f["step"]), memory, 1)
            f.store(scalars.from_memory(e, one, dtype) * f["factor"], target, loop.index * rows)
    return f


def finite(shape: Shape) -> Routine:
    """Stores at `found` whether all of `lines` lines of `width` elements are finite."""
    f = Routine(shape, "finite", v="ptr", stride="i64", lines="i64", width="i64", found="ptr")
    e, lanes, zero = f.e, shape.lanes, f.constant(0.0, shape.lanes)
    with e.loop(0, f["lines"], carried=[zero] * shape.value_vectors) as lines:
        line = f.at("%v", lines.index * f["stride"])
        with e.loop(0, f["width"], shape.columns, carried=lines.values) as loop:
            loop.next(*[e.fma(f.load(f.at(line, loop.index), n * lanes, lanes), zero, total)  # NaN from what is not
                        for n, total in enumerate(loop.values)])
        lines.next(*loop.values)
    total = lines.values[0]
    for other in lines.values[1:]:
        total = total + other
    strange = any_lane(e, e.is_nan(total))
    e.store(e.convert("zext", strange ^ 1, "i64"), "%found")
    return f


def declared(routines: list[Routine]) -> set[str]:
    """Intrinsics and constants that routines use."""
    return set().union(*(routine.e.declarations for routine in routines))
