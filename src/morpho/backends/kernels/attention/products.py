"""Attention's two products: queries by keys, then probabilities by values; for tiles of rows and for one row alone.

Where a shape is `paired` (bfloat16, forwards), sums have the order of matrix units: of every 32 values of k the even
and the odd ones are a chain each, from zero; both are added, and then added to the total.
"""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import scalars
from morpho.backends.code.emit import CACHE_LINE, Emitter, Value
from morpho.backends.kernels.attention.attention import KEY_BLOCK, PAIR_BLOCK
from morpho.backends.kernels.attention.attention_code import (
    MINUS_INFINITY,
    Routine,
    Shape,
    clamped,
    lane,
    shuffled,
    smax,
    smin,
    transposed,
)
from morpho.base.dtypes import DType, bfloat16

UNROLLED = 2  # values of k per turn of the loops
UNROLLED_PAIRS = 4  # the same where they are paired
HEAD = 64  # columns of most models' heads: one row takes them at once where there are registers for them


def _spread(e: Emitter, strip: Value, number: int, lanes: int) -> Value:
    """One lane of a short vector in every lane: an fma of AArch64 takes it so."""
    return shuffled(e, strip, strip, [number] * lanes) if lanes > 1 else lane(e, strip, number)


def score_tile(shape: Shape) -> Routine:
    """s[key][row] = sum over c of q[c][row] * k[key][c], for a tile of rows and `count` keys, and each row's largest.

    Key numbers past `keys` repeat the last one. `depth` is a multiple of a strip. Scores are not clamped: while the
    largest one is an ordinary number it makes no difference, and the kernel sees to the rest.
    """
    f = Routine(shape, f"score_tile{shape.vectors}", q="ptr", k="ptr", stride="i64", depth="i64", count="i64",
                keys="i64", s="ptr", top="ptr")
    e, lanes = f.e, shape.lanes
    with e.loop(0, f["count"], shape.keys, carried=[f.constant(MINUS_INFINITY, lanes)] * shape.vectors) as groups:
        lines = _key_lines(f, groups.index)
        groups.next(*_scores(f, "%q", lines, groups.values, f.at("%s", groups.index * shape.rows)))
    for n, top in enumerate(groups.values):
        f.store(top, "%top", n * lanes)
    return f


def score_tiles(shape: Shape) -> Routine:
    """The same for `tiles` tiles, each with `seen` keys of its own, `count` at most. All of them take some keys before
    the next ones are read: lines far apart in memory may not stay in the nearest cache until the next tile. Of pairs,
    whose keys are packed, and which take fewer at once, a tile takes all keys: rather its queries stay there."""
    f = Routine(shape, "score_tiles", q="ptr", k="ptr", stride="i64", depth="i64", count="i64", keys="i64", s="ptr",
                top="ptr", tiles="i64", seen="ptr")
    e, lanes, rows = f.e, shape.lanes, shape.rows
    with e.loop(0, f["tiles"] * rows, lanes) as loop:
        f.store(f.constant(MINUS_INFINITY, lanes), "%top", loop.index)

    def multiply(tile: Value, key: Value, lines: list[str]) -> None:
        top = f.at("%top", tile * rows)
        tops = [f.load(top, n * lanes, lanes) for n in range(shape.vectors)]
        target = f.at("%s", (tile * KEY_BLOCK + key) * rows)
        for n, new in enumerate(_scores(f, f.at("%q", tile * rows * f["depth"]), lines, tops, target)):
            f.store(new, top, n * lanes)

    if shape.paired:
        with e.loop(0, f["tiles"]) as tiles, e.loop(0, _seen(f, tiles.index), shape.keys) as groups:
            multiply(tiles.index, groups.index, _key_lines(f, groups.index))
        return f
    with e.loop(0, f["count"], shape.keys) as groups:
        lines = _key_lines(f, groups.index)
        with e.loop(0, f["tiles"]) as tiles, e.when(e.icmp("slt", groups.index, _seen(f, tiles.index))):
            multiply(tiles.index, groups.index, lines)
    return f


def _seen(f: Routine, tile: Value) -> Value:
    return f.e.load(f.e.offset("%seen", "i64", tile), "i64", 1)


def _key_lines(f: Routine, first: Value) -> list[str]:
    """Where the keys from `first` on begin that are multiplied at once."""
    last = f["keys"] - 1
    return [f.at("%k", smin(f.e, first + i, last) * f["stride"]) for i in range(f.shape.keys)]


def _scores(f: Routine, q: str, lines: list[str], tops: list[Value], target: str) -> list[Value]:
    """Stores the scores of a tile of queries and some keys, and gives the largest of each row after them."""
    e, shape = f.e, f.shape
    lanes, rows, vectors = shape.lanes, shape.rows, shape.vectors

    def added(index: Value, chains: list[list[Value]]) -> None:
        """A strip of the depth onto the chains, which take turns."""
        strips = [f.load(line, index, shape.strip) for line in lines] if shape.by_lane else []
        left = f.at(q, index * rows)
        for c in range(shape.strip):
            totals = chains[c % len(chains)]
            queries = [f.load(left, c * rows + n * lanes, lanes) for n in range(vectors)]
            for i, line in enumerate(lines):
                factor = _spread(e, strips[i], c, lanes) if strips else e.splat(f.load(line, index + c, 1))
                for n in range(vectors):
                    totals[vectors * i + n] = e.fma(queries[n], factor, totals[vectors * i + n])

    def added_strips(index: Value, chains: list[list[Value]]) -> None:
        for strip in range(0, shape.padding, shape.strip):
            added(index + strip, chains)

    none = [f.constant(0.0, lanes)] * (vectors * shape.keys)
    found = _summed(f, f["depth"], shape.padding, none, added_strips)
    tops = list(tops)
    for i, total in enumerate(found):
        f.store(total, target, i * lanes)
        tops[i % vectors] = e.maximum(tops[i % vectors], total)
    return tops


def _summed(f: Routine, count: Value, step: int, totals: list[Value],
            added: Callable[[Value, list[list[Value]]], None]) -> list[Value]:
    """Totals after `count` values of k, a multiple of `step`, which is even where the shape is paired; `added` puts
    `step` values from an index on onto chains, those of even and of odd values in turn."""
    e = f.e
    if not f.shape.paired:
        with e.loop(0, count, step, carried=totals) as loop:
            chain = list(loop.values)
            added(loop.index, [chain])
            loop.next(*chain)
        return list(loop.values)
    none = [e.constant(0.0, total.element, total.lanes) for total in totals]
    with e.loop(0, count, PAIR_BLOCK, carried=totals) as blocks:
        end = smin(e, blocks.index + PAIR_BLOCK, count)
        with e.loop(blocks.index, end, step, carried=none * 2) as loop:
            chains = [list(loop.values[:len(none)]), list(loop.values[len(none):])]
            added(loop.index, chains)
            loop.next(*chains[0], *chains[1])
        blocks.next(*_joined_chains(loop.values, blocks.values))
    return list(blocks.values)


def _joined_chains(chains: list[Value], totals: list[Value]) -> list[Value]:
    """Totals with the sum of the even and the odd chain of each added."""
    count = len(totals)
    return [total + (even + odd) for total, even, odd in zip(totals, chains[:count], chains[count:], strict=True)]


def value_tile(shape: Shape) -> Routine:
    """o[row][column] = o * factor[row] + sum over keys of p[key][row] * v[key][column], keys ascending."""
    f = Routine(shape, f"value_tile{shape.vectors}", p="ptr", v="ptr", stride="i64", count="i64", width="i64",
                factor="ptr", o="ptr")
    e = f.e
    with e.loop(0, shape.rows, shape.value_rows) as rows, e.loop(0, f["width"], shape.columns) as columns:
        _value_part(f, rows.index, columns.index, f.at("%p", rows.index), f["count"])
    return f


def value_tiles(shape: Shape) -> Routine:
    """The same for `tiles` tiles, each with the keys that it has `seen`. All of them take some columns before the next
    ones are read."""
    f = Routine(shape, "value_tiles", p="ptr", v="ptr", stride="i64", width="i64", factor="ptr", o="ptr", tiles="i64",
                seen="ptr")
    e, each = f.e, shape.rows
    with e.loop(0, f["width"], shape.columns) as columns, e.loop(0, f["tiles"]) as tiles:
        seen = _seen(f, tiles.index)
        with e.when(e.icmp("sgt", seen, 0)), e.loop(0, each, shape.value_rows) as rows:
            weights = f.at("%p", tiles.index * (KEY_BLOCK * each) + rows.index)
            _value_part(f, tiles.index * each + rows.index, columns.index, weights, seen)
    return f


def _value_part(f: Routine, row: Value, column: Value, weights: str, count: Value) -> None:
    """Some rows and columns of the second product."""
    e, shape = f.e, f.shape
    lanes, vectors = shape.lanes, shape.value_vectors
    outs = [f.at("%o", row * f["width"] + column)]
    while len(outs) < shape.value_rows:
        outs.append(f.at(outs[-1], f["width"]))
    factors = _weights(f, f.at("%factor", row))
    old = [f.load(out, n * lanes, lanes) * factor for out, factor in zip(outs, factors, strict=True)
           for n in range(vectors)]
    # UNROLLED: few enough steps for a processor to foresee the end of the loop
    if shape.paired:
        # Weights past the last key are zero, and so are values past the last one.
        found = _summed(f, (count + (UNROLLED_PAIRS - 1)) & -UNROLLED_PAIRS, UNROLLED_PAIRS, old,
                        lambda key, chains: _value_keys(f, weights, column, key, chains, UNROLLED_PAIRS))
    else:
        whole = count & -UNROLLED
        for start, end, step in ((None, whole, UNROLLED), (whole, count, 1)):
            with e.loop(0 if start is None else start, end, step, carried=old) as loop:
                chain = list(loop.values)
                _value_keys(f, weights, column, loop.index, [chain], step)
                loop.next(*chain)
            old = list(loop.values)
        found = old
    for i, total in enumerate(found):
        f.store(total, outs[i // vectors], i % vectors * lanes)


def _value_keys(f: Routine, first: str, column: Value, key: Value, chains: list[list[Value]], count: int) -> None:
    """`count` keys more onto the chains, in turn; the weights of key 0 begin at `first`."""
    e, shape = f.e, f.shape
    weights_at = f.at(first, key * shape.rows)
    line = f.at("%v", key * f["stride"] + column)
    for i in range(count):
        totals = chains[i % len(chains)]
        weights = _weights(f, f.at(weights_at, i * shape.rows))
        values = [f.load(line, n * shape.lanes, shape.lanes) for n in range(shape.value_vectors)]
        pairs = [(weight, value) for weight in weights for value in values]
        totals[:] = [e.fma(value, weight, total) for (weight, value), total in zip(pairs, totals, strict=True)]
        line = f.at(line, f["stride"])


def _weights(f: Routine, address: str) -> list[Value]:
    """A number for each row of a group, the probabilities of one key for instance, each spread over the lanes."""
    e, shape = f.e, f.shape
    if not shape.by_lane or shape.value_rows < shape.strip:
        return [e.splat(f.load(address, r, 1)) for r in range(shape.value_rows)]
    strips = [f.load(address, r, shape.strip) for r in range(0, shape.value_rows, shape.strip)]
    return [_spread(e, strips[r // shape.strip], r % shape.strip, shape.lanes) for r in range(shape.value_rows)]


def value_transposed(shape: Shape) -> Routine:
    """o[line][column] += sum over keys of t[key][line] * k[key][column], keys ascending, where t holds the keys in the
    lanes: 64 lines for each tile of keys. Lines past the last one repeat it, and so do keys, whose slopes are 0."""
    f = Routine(shape, "value_transposed", t="ptr", lines="i64", k="ptr", stride="i64", count="i64",
                width="i64", o="ptr")
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
            first = loop.index.shift_right(tile.bit_length() - 1) * (KEY_BLOCK * tile) + (loop.index & (tile - 1))
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


def _line(f: Routine, name: str, index: Value, stored: DType | None) -> str:
    """Where an element of an operand lies that is packed, or as it is `stored`."""
    return f.at(name, index) if stored is None else f.e.offset(name, scalars.memory_type(stored), index)


def _elements(f: Routine, line: str, index: Value | int, lanes: int, stored: DType | None) -> Value:
    """Some elements of such a line."""
    if stored is None:
        return f.load(line, index, lanes)
    memory = scalars.memory_type(stored)
    return scalars.from_memory(f.e, f.e.load(f.e.offset(line, memory, index), memory, lanes), stored)


def _prefetch_line(f: Routine, index: Value, count: int, stored: DType | None) -> None:
    """Ask for `count` elements of what comes next: it lies in memory, and there are no streams long enough to be
    noticed. Any place will do."""
    size = f.shape.size if stored is None else stored.itemsize
    line = _line(f, "%ahead", index, stored)
    for place in range(0, count * size, CACHE_LINE):
        f.e.prefetch(f.e.offset(line, "i8", place), 1)


def score_row(shape: Shape, stored: DType | None = None) -> Routine:
    """s[key] = sum over c of q[c] * k[key][c] for one row, clamped; small transposes put the keys into the lanes.
    Keys are packed, or as they are `stored`: half floats that are used once are not worth packing. As many elements
    that begin at `ahead`, and lie as far apart as keys do, are asked for meanwhile."""
    f = Routine(shape, "score_stored_row" if stored else "score_row", q="ptr", k="ptr", stride="i64", depth="i64",
                count="i64", keys="i64", scale="element", s="ptr", ahead="ptr")
    e, lanes = f.e, shape.lanes
    together = 2 if lanes > 1 else 4  # more of them would be more streams than a processor follows
    strip = stored_strip(shape, stored)
    with e.loop(0, f["count"], together * lanes) as groups:
        lines = [_line(f, "%k", smin(e, groups.index + i, f["keys"] - 1) * f["stride"], stored)
                 for i in range(together * lanes)]

        def added(index: Value, chains: list[list[Value]], first: Value = groups.index,
                  lines: list[str] = lines) -> None:
            """A strip of the depth onto the chains, which take turns."""
            place = first * f["stride"] + index * (together * lanes)
            _prefetch_line(f, place, together * lanes * strip, stored)
            queries = [f.load("%q", index + c, shape.strip) for c in range(0, strip, shape.strip)]
            factors = [_spread(e, query, c, lanes) for query in queries for c in range(shape.strip)]
            for g in range(together):
                keys = _transposed_keys(f, lines[g * lanes:(g + 1) * lanes], index, stored)
                for c, (key, factor) in enumerate(zip(keys, factors, strict=True)):
                    totals = chains[c % len(chains)]
                    totals[g] = e.fma(key, factor, totals[g])

        none = [f.constant(0.0, lanes)] * together
        for g, total in enumerate(_summed(f, f["depth"], strip, none, added)):
            f.store(clamped(f, total * e.splat(f["scale"], lanes) if shape.paired else total), "%s",
                    groups.index + g * lanes)
    return f


def stored_strip(shape: Shape, stored: DType | None) -> int:
    """Elements of a line transposed at a time: 16 bytes of float32, or of bfloat16, two of which are one lane."""
    return 2 * shape.strip if stored is bfloat16 else shape.strip


def _transposed_keys(f: Routine, lines: list[str], index: Value, stored: DType | None) -> list[Value]:
    """A strip of each line, each of its elements as one vector over the lines."""
    e, strip = f.e, f.shape.strip
    if stored is not bfloat16:
        return transposed(f, [_elements(f, line, index, strip, stored) for line in lines])
    pairs = transposed(f, [e.load(e.offset(line, "i16", index), "i32", strip, 2) for line in lines])
    # The first of a pair is the lower half; a bfloat16 is the upper half of a float32.
    return [e.from_bits(bits, "float") for pair in pairs for bits in (pair << 16, pair & -(1 << 16))]


def value_row(shape: Shape, stored: DType | None = None) -> Routine:
    """o[column] = o * factor + sum over keys of p[key] * v[key][column] for one row; keys marked -inf are left out,
    of which there is none among the first `clear` ones. Values are packed, or as they are `stored`: with the first
    ones of these, lines that begin at `ahead` are asked for."""
    f = Routine(shape, "value_stored_row" if stored else "value_row", p="ptr", marks="ptr", step="i64", v="ptr",
                stride="i64", clear="i64", count="i64", width="i64", factor="element", o="ptr", ahead="ptr")
    e, done = f.e, f.e.constant(0, "i64", 1)
    most = min((16 if shape.wide else 8) // (2 if shape.paired else 1), HEAD // shape.lanes)
    for vectors in (most, shape.value_vectors):
        until = f["width"] & -(vectors * shape.lanes)
        with e.loop(done, until, vectors * shape.lanes) as columns:
            _value_columns(f, columns.index, vectors, stored)
        done = until
    return f


def _value_columns(f: Routine, column: Value, vectors: int, stored: DType | None) -> None:
    e, lanes = f.e, f.shape.lanes
    out = f.at("%o", column)

    def added(key: Value, sums: list[Value]) -> list[Value]:
        weight = e.splat(f.load("%p", key * f["step"], 1))
        line = _line(f, "%v", key * f["stride"] + column, stored)
        return [e.fma(_elements(f, line, n * lanes, lanes, stored), weight, total) for n, total in enumerate(sums)]

    def added_if_seen(key: Value, sums: list[Value], there: Value | None = None) -> list[Value]:
        """The same unless the key is masked, or not `there`."""
        seen, after, before = e.fresh("seen"), e.fresh("after"), e.block
        marked = e.fcmp("une", f.load("%marks", key * f["step"], 1), MINUS_INFINITY)
        e.branch_if(marked if there is None else marked & there, seen, after)
        e.label(seen)
        news = added(key, sums)
        e.branch(after)
        e.label(after)
        return [e.assign(f"phi {new.type} [ {total.name}, %{before} ], [ {new.name}, %{seen} ]", new.element, lanes)
                for new, total in zip(news, sums, strict=True)]

    def ask(key: Value) -> None:
        if stored:
            _prefetch_line(f, key * f["stride"] + column, vectors * lanes, stored)

    old = [f.load(out, n * lanes, lanes) * e.splat(f["factor"]) for n in range(vectors)]
    if f.shape.paired:
        found = _paired_columns(f, old, ask, added, added_if_seen)
    else:
        with e.loop(0, f["clear"], carried=old) as loop:
            ask(loop.index)
            loop.next(*added(loop.index, loop.values))
        with e.loop(f["clear"], f["count"], carried=loop.values) as loop:
            loop.next(*added_if_seen(loop.index, loop.values))
        found = list(loop.values)
    for n, total in enumerate(found):
        f.store(total, out, n * lanes)


def _paired_columns(f: Routine, old: list[Value], ask: Callable[[Value], None], added: Callable[..., list[Value]],
                    added_if_seen: Callable[..., list[Value]]) -> list[Value]:
    """Totals of one row after all keys: pairs that are clear, then those with a look at each of the two."""
    e, count = f.e, len(old)
    none = [e.constant(0.0, total.element, total.lanes) for total in old]
    with e.loop(0, f["count"], PAIR_BLOCK, carried=old) as blocks:
        end = smin(e, blocks.index + PAIR_BLOCK, f["count"])
        middle = smax(e, smin(e, end, f["clear"]) & -2, blocks.index)
        with e.loop(blocks.index, middle, 2, carried=none * 2) as loop:
            for odd in range(2):
                ask(loop.index + odd)
            loop.next(*added(loop.index, loop.values[:count]), *added(loop.index + 1, loop.values[count:]))
        with e.loop(middle, end, 2, carried=loop.values) as loop:
            after = loop.index + 1
            loop.next(*added_if_seen(loop.index, loop.values[:count]),
                      *added_if_seen(after, loop.values[count:], e.icmp("slt", after, end)))
        blocks.next(*_joined_chains(loop.values, blocks.values))
    return list(blocks.values)
