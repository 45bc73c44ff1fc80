"""The routines of attention on matrix units: operands packed as tiles, the two products, and what lies between them.

A tile has 16 lines of 64 bytes. A left tile holds 32 values of k of 16 lines; a right one holds pairs of k, a line for
each pair, with its 16 columns side by side. The first product is keys by queries: keys are read as they lie, and its
result is `[key][row]`, with rows in the lanes, as the softmax wants it. The second one is weights by values.
"""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.code.register_transpose import transposed
from morpho.backends.kernels.attention.attention import KEY_BLOCK, PAIR_BLOCK
from morpho.backends.kernels.attention.attention_code import MINUS_INFINITY, Routine, Shape, any_lane
from morpho.backends.kernels.gemm.amx.amx import LINE_BYTES, SIDE
from morpho.backends.kernels.gemm.amx.amx_code import TILE_BYTES, call, joined

GROUP = 2 * SIDE  # rows taken at once, and keys, and columns
KEY_TILES = KEY_BLOCK // PAIR_BLOCK  # tiles of a block of keys, where those are values of k
ITEM = 2  # bytes of a bfloat16
EXPONENT = 0x7F80  # of a bfloat16


def _half(f: Routine, pointer: str, index: Value | int) -> str:
    return f.e.offset(pointer, "i16", index)


def _copied(f: Routine, source: str, target: str) -> None:
    f.e.store(f.e.load(source, "i16", 1), target)


def _cleared(f: Routine, target: str, count: Value) -> None:
    """So many bytes of zeros, a multiple of a tile's line."""
    with f.e.loop(0, count, LINE_BYTES) as loop:
        f.e.store(f.e.constant(0, "i32", SIDE), f.e.offset(target, "i8", loop.index), 4)


def pack_queries(shape: Shape) -> Routine:
    """16 rows that begin at `offsets` as right tiles, the depth padded with zeros."""
    f = Routine(shape, "pack_queries", source="ptr", offsets="ptr", step="i64", size="i64", tiles="i64", target="ptr")
    e = f.e
    sources = [_half(f, "%source", e.load(e.offset("%offsets", "i64", r), "i64", 1)) for r in range(SIDE)]
    whole = e.select(e.icmp("eq", f["step"], 1), f["size"].shift_right(5), e.constant(0, "i64", 1))
    with e.loop(0, whole) as loop:
        lines = [e.load(_half(f, source, loop.index * PAIR_BLOCK), "i32", SIDE, ITEM) for source in sources]
        for number, line in enumerate(transposed(e, lines)):
            e.store(line, e.offset("%target", "i8", loop.index * TILE_BYTES + number * LINE_BYTES))
    _cleared(f, e.offset("%target", "i8", whole * TILE_BYTES), (f["tiles"] - whole) * TILE_BYTES)
    with e.loop(whole * PAIR_BLOCK, f["size"]) as loop:
        place = loop.index.shift_right(1) * GROUP + (loop.index & 1)  # a pair has 16 rows of two
        for r, source in enumerate(sources):
            _copied(f, _half(f, source, loop.index * f["step"]), _half(f, "%target", place + 2 * r))
    return f


def pack_keys(shape: Shape) -> Routine:
    """`lines` lines side by side, each padded with zeros to `width`, and lines of zeros up to a block."""
    f = Routine(shape, "pack_keys", source="ptr", stride="i64", step="i64", lines="i64", size="i64", width="i64",
                target="ptr")
    e = f.e
    _cleared(f, "%target", f["width"] * (KEY_BLOCK * ITEM))
    whole = e.select(e.icmp("eq", f["step"], 1), f["size"] & -SIDE, e.constant(0, "i64", 1))
    with e.loop(0, f["lines"]) as lines:
        source, target = (_half(f, name, lines.index * f[size]) for name, size in (("%source", "stride"),
                                                                                     ("%target", "width")))
        with e.loop(0, whole, SIDE) as loop:
            e.store(e.load(_half(f, source, loop.index), "i16", SIDE), _half(f, target, loop.index))
        with e.loop(whole, f["size"]) as loop:
            _copied(f, _half(f, source, loop.index * f["step"]), _half(f, target, loop.index))
    return f


def pack_values(shape: Shape) -> Routine:
    """`lines` lines as right tiles, two after another for each 16 columns; zeros past the last line and column."""
    f = Routine(shape, "pack_values", source="ptr", stride="i64", step="i64", lines="i64", size="i64", tiles="i64",
                target="ptr")
    e = f.e
    zero = e.constant(0, "i64", 1)
    plain = e.icmp("eq", f["step"], 1)
    columns = e.select(plain, f["size"] & -SIDE, zero)  # taken by vectors, and so many keys
    keys = e.select(plain, f["lines"] & -2, zero)
    with e.when(e.icmp("slt", keys, KEY_BLOCK) | e.icmp("slt", columns, f["tiles"] * SIDE)):
        _cleared(f, "%target", f["tiles"] * (KEY_TILES * TILE_BYTES))
    with e.loop(0, keys, 2) as pairs:
        line = _half(f, "%source", pairs.index * f["stride"])
        target = e.offset("%target", "i8", pairs.index * (LINE_BYTES // 2))
        with e.loop(0, columns, SIDE) as loop:
            both = [e.load(_half(f, line, f["stride"] * odd + loop.index), "i16", SIDE) for odd in range(2)]
            e.store(joined(e, both), e.offset(target, "i8", loop.index * (KEY_TILES * TILE_BYTES // SIDE)))
    with e.loop(0, f["lines"]) as lines:
        first = e.select(e.icmp("slt", lines.index, keys), columns, zero)
        with e.loop(first, f["size"]) as loop:
            tile = loop.index.shift_right(4) * (KEY_TILES * TILE_BYTES // ITEM)
            place = tile + lines.index.shift_right(1) * GROUP + (loop.index & (SIDE - 1)) * 2 + (lines.index & 1)
            _copied(f, _half(f, "%source", lines.index * f["stride"] + loop.index * f["step"]),
                    _half(f, "%target", place))
    return f


def finite_values(shape: Shape) -> Routine:
    """Stores at `found` whether all numbers of the tiles of values are finite."""
    f = Routine(shape, "finite_values", v="ptr", tiles="i64", found="ptr")
    e = f.e
    with e.loop(0, f["tiles"] * (KEY_TILES * TILE_BYTES), LINE_BYTES,
                carried=[e.constant(0, "i16", GROUP)]) as loop:
        exponents = e.load(e.offset("%v", "i8", loop.index), "i16", GROUP) & EXPONENT
        loop.next(e.intrinsic("umax", loop.values[0], exponents))
    strange = any_lane(e, e.icmp("eq", loop.values[0], EXPONENT))
    e.store(e.convert("zext", strange ^ 1, "i64"), "%found")
    return f


def _load(f: Routine, register: int, place: str, stride: Value | int = LINE_BYTES) -> None:
    call(f.e, "tileloadd64", f"i8 {register}", f"ptr {place}",
         f"i64 {stride.name if isinstance(stride, Value) else stride}")


def _multiply(f: Routine) -> None:
    """Two left tiles by two right ones onto four."""
    for left in range(2):
        for right in range(2):
            call(f.e, "tdpbf16ps", f"i8 {2 * left + right}", f"i8 {4 + left}", f"i8 {6 + right}")


def score_units(shape: Shape) -> Routine:
    """s[key][row] of a group of rows and `count` keys, more up to a multiple of 32, and each row's largest of `count`.
    Keys lie `stride` bytes apart."""
    f = Routine(shape, "score_units", q="ptr", k="ptr", stride="i64", tiles="i64", count="i64", s="ptr", top="ptr")
    e, rows, lanes = f.e, shape.rows, shape.lanes
    with e.loop(0, f["count"], GROUP) as keys:
        for register in range(4):
            call(e, "tilezero", f"i8 {register}")
        line = e.offset("%k", "i8", keys.index * f["stride"])
        with e.loop(0, f["tiles"]) as loop:
            for half in range(2):
                along = f["stride"] * (SIDE * half) + loop.index * LINE_BYTES
                _load(f, 4 + half, e.offset(line, "i8", along), f["stride"])
                _load(f, 6 + half, e.offset("%q", "i8", (f["tiles"] * half + loop.index) * TILE_BYTES))
            _multiply(f)
        for left in range(2):
            for right in range(2):
                place = f.at("%s", (keys.index + SIDE * left) * rows + SIDE * right)
                call(e, "tilestored64", f"i8 {2 * left + right}", f"ptr {place}", f"i64 {rows * shape.size}")
    with e.loop(0, f["count"], carried=[f.constant(MINUS_INFINITY, lanes)] * shape.vectors) as keys:
        keys.next(*[e.maximum(top, f.load("%s", keys.index * rows + n * lanes, lanes))
                    for n, top in enumerate(keys.values)])
    for n, top in enumerate(keys.values):
        f.store(top, "%top", n * lanes)
    return f


def weight_units(shape: Shape) -> Routine:
    """The weights of a group, bfloat16 in float32, as left tiles: two of keys for each 16 rows."""
    f = Routine(shape, "weight_units", s="ptr", p="ptr")
    e, rows = f.e, shape.rows
    with e.loop(0, GROUP, SIDE) as half, e.loop(0, KEY_BLOCK, PAIR_BLOCK) as keys:
        first = f.at("%s", keys.index * rows + half.index)
        pairs = []
        for pair in range(SIDE):
            low, high = (e.bits(f.load(first, (2 * pair + odd) * rows, SIDE)) for odd in range(2))
            pairs.append(low.shift_right(16) | high)
        target = e.offset("%p", "i8", half.index * (KEY_TILES * TILE_BYTES // SIDE)
                          + keys.index * (TILE_BYTES // PAIR_BLOCK))
        for number, line in enumerate(transposed(e, pairs)):
            e.store(line, e.offset(target, "i8", number * LINE_BYTES))
    return f


def scale_results(shape: Shape) -> Routine:
    """o[row] *= factor[row] for a group of rows, where it is not 1."""
    f = Routine(shape, "scale_results", o="ptr", width="i64", factor="ptr")
    e, lanes = f.e, shape.lanes
    with e.loop(0, GROUP) as rows:
        factor = f.load("%factor", rows.index, 1)
        with e.when(e.fcmp("une", factor, 1.0)):
            line = f.at("%o", rows.index * f["width"])
            with e.loop(0, f["width"], shape.columns) as loop:
                for n in range(shape.value_vectors):
                    place = f.at(line, loop.index + n * lanes)
                    e.store(e.load(place, shape.element, lanes) * e.splat(factor, lanes), place)
    return f


def value_units(shape: Shape) -> Routine:
    """o[row][column] += weights by values for a group of rows; `steps` tiles of keys."""
    f = Routine(shape, "value_units", p="ptr", v="ptr", steps="i64", o="ptr", width="i64")
    e = f.e
    stride = f["width"] * shape.size

    def move(name: str, column: Value) -> None:
        for left in range(2):
            for right in range(2):
                place = f.at("%o", f["width"] * (SIDE * left) + column + SIDE * right)
                call(e, name, f"i8 {2 * left + right}", f"ptr {place}", f"i64 {stride.name}")

    with e.loop(0, f["width"], GROUP) as columns:
        move("tileloadd64", columns.index)
        values = e.offset("%v", "i8", columns.index * (KEY_TILES * TILE_BYTES // SIDE))
        with e.loop(0, f["steps"]) as loop:
            for half in range(2):
                along = loop.index * TILE_BYTES + half * KEY_TILES * TILE_BYTES
                _load(f, 4 + half, e.offset("%p", "i8", along))
                _load(f, 6 + half, e.offset(values, "i8", along))
            _multiply(f)
        move("tilestored64", columns.index)
    return f
