# mypy: disable-error-code="valid-type"
"""Stable radix sorts of lines, eight bits of the keys a pass, the lowest first.

Lines of one tile are sorted by a block each, in shared memory, in one launch. Longer ones take a launch that counts all
digits, and one for each pass: a tile ranks its keys (lanes with the same digit find each other by a match), looks back
for the number of earlier keys of its line with the same digit, one thread for each digit, sorts itself in shared
memory, and stores runs. Counts are whole numbers, so the order is that of every stable sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS
from morpho.backends.code.kernel_abi import Record
from morpho.backends.code.typed import (
    Operand,
    Operations,
    Pointer,
    Words,
    i32,
    i64,
    local,
    u8,
    u16,
    u32,
    u64,
    writes,
)
from morpho.backends.cuda.blocks.look_back import PREFIX, SUM, take_tile
from morpho.backends.cuda.blocks.threads import (
    FIRST,
    KINDS,
    BlockKernel,
    atomic,
    barrier,
    block,
    device,
    kernel_text,
    lane,
    look,
    moved,
    ones,
    operand,
    pause,
    place_in,
    same_lanes,
    shared,
    show,
    shuffle_up,
    thread,
    typed,
    warp,
    warp_barrier,
)
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, known
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.loops.sorting.keys import INFINITY, QUIET, Keys
from morpho.base.dtypes import DType

THREADS, WARPS, DIGITS, DIGIT_BITS = 256, tuple(range(8)), 256, 8
MOST_ITEMS = 16
TILE = THREADS * MOST_ITEMS
COUNTS, BASES, STAGED = 64, 64 + 4 * 8 * DIGITS, 64 + 4 * 9 * DIGITS  # bytes of shared memory before each
COUNTER = 16  # words of 32 bits before the status words of a pass
VALUE = (1 << 30) - 1  # of a status word; the flag lies above
AHEAD = tuple(range(8))  # status words that are on their way at once
UNSIGNED: dict[int, Any] = {1: u8, 2: u16, 4: u32, 8: u64}


def of_elements(dtype: DType, descending: bool) -> SimpleNamespace:
    """`key(place)` of an element, `element(key)` for whole numbers, and `canonical(place)`: its bits, with one NaN."""
    kind = UNSIGNED[dtype.itemsize]

    def key(place: Any) -> Any: ...
    def element(key: Any) -> Any: ...
    def canonical(place: Any) -> Any: ...

    @writes(key)
    def _key(code: Operations, place: Operand) -> Operand:
        bits = code.e.load(place.name, kind.name, 1)
        return typed(code, Keys(code.e, dtype, descending, canonical=True).of(bits), kind)

    @writes(element)
    def _element(code: Operations, key: Operand) -> Operand:
        return typed(code, Keys(code.e, dtype, descending, canonical=True).back(key), kind)

    @writes(canonical)
    def _canonical(code: Operations, place: Operand) -> Operand:
        e, bits = code.e, code.e.load(place.name, kind.name, 1)
        if dtype.is_float:
            nan = e.icmp("ugt", bits & ((1 << (BITS[kind.name] - 1)) - 1), INFINITY[dtype])
            bits = e.select(nan, QUIET[dtype], bits)
        return typed(code, bits, kind)

    return SimpleNamespace(kind=kind, key=key, element=element, canonical=canonical)


@device
def sum_before(context: Words, count: i32) -> i32:
    """The sum of what the threads of a block before this one have."""
    sums, total, before = shared(context, i32, 16), count, i32(0)
    for distance in (1, 2, 4, 8, 16):
        below = moved(shuffle_up, context, total, distance)
        total = total + below if lane(context) >= distance else total
    barrier(context)
    if lane(context) == 31:
        sums[warp(context)] = total
    barrier(context)
    for w in WARPS:
        before = before + sums[w] if warp(context) > w else before
    return before + total - count


@device
def digits_before(context: Words, status: Pointer[i32], tile: i64) -> i32:
    """The number of keys of earlier tiles that have the thread's digit. `status`: its word of the first tile."""
    words, at, total = local(i32, len(AHEAD)), tile - 1, i32(0)
    while at >= 0:
        for k in AHEAD:
            words[k] = look(status + (at - k if at >= k else 0) * DIGITS)
        open_ = True
        for k in AHEAD:
            flag = words[k] >> 30 & 3
            if open_ and at >= 0:
                if flag == 0:
                    open_ = False
                    pause(context)
                else:
                    total += words[k] & VALUE
                    at = at - 1 if flag == SUM else i64(-1)
    return total


def tiles_of(kind: Any, items: int) -> SimpleNamespace:
    """Native functions over a tile whose threads have so many keys in registers: a warp's lie side by side."""
    each = tuple(range(items))

    @device
    def first(context: Words) -> i64:
        return warp(context) * (32 * items) + lane(context)

    @device
    def clear(context: Words) -> None:
        counts = shared(context, i32, COUNTS)
        for w in WARPS:
            counts[w * DIGITS + thread(context)] = 0

    @device
    def rank(context: Words, keys: Pointer[kind], shift: i64, places: Pointer[i32]) -> i32:
        """How many keys before each have its digit and lie in its warp's part; how many of the tile have the thread's
        digit. The warps' counts become sums over those before."""
        counts, bit = shared(context, i32, COUNTS), i32(1) << i32(lane(context))
        own = counts + warp(context) * DIGITS
        for k in each:
            digit = i32(keys[k] >> kind(shift)) & 255
            peers = same_lanes(context, digit)
            lower = ones(peers & (bit - 1))
            places[k] = own[digit] + lower
            warp_barrier(context)
            if lower == 0:
                own[digit] = own[digit] + ones(peers)
            warp_barrier(context)
        barrier(context)
        total = i32(0)
        for w in WARPS:
            count = counts[w * DIGITS + thread(context)]
            counts[w * DIGITS + thread(context)] = total
            total += count
        return total

    @device
    def place(context: Words, keys: Pointer[kind], shift: i64, places: Pointer[i32], start: i32) -> None:
        """Places of the keys in the sorted tile; `start`: of the thread's digit."""
        counts = shared(context, i32, COUNTS)
        for w in WARPS:
            counts[w * DIGITS + thread(context)] += start
        barrier(context)
        for k in each:
            places[k] = places[k] + counts[warp(context) * DIGITS + i64(i32(keys[k] >> kind(shift)) & 255)]

    return SimpleNamespace(each=each, first=first, clear=clear, rank=rank, place=place)


@dataclass(frozen=True)
class SortTiles(BlockKernel):
    """Lines of one tile, a block each. Buffers: the lines, the result (the order, or the elements)."""

    dtype: DType
    descending: bool
    order: DType | None  # of the result; None: elements
    outer_rank: int
    items: int  # of a thread

    @property
    def record(self) -> Record:
        along = self.outer_rank + 1
        return Record(f"length extents[{self.outer_rank}] source[{along}] target[{along}]")

    def launch(self, sizes: Sizes) -> Launch:
        return Launch(Geometry(known(sizes.rows), THREADS, STAGED + THREADS * self.items * max(4, self.dtype.itemsize)))

    def text(self) -> str:
        of, N, at, rank = of_elements(self.dtype, self.descending), FIRST + 2, self.record.at, self.outer_rank
        kind, bits, items = of.kind, 8 * self.dtype.itemsize, self.items
        tile, by_order, plain = tiles_of(kind, items), self.order, not self.dtype.is_float and self.order is None
        result = kind if by_order is None else KINDS[scalars.memory_type(by_order)]
        of_source, of_target = (place_in(rank, N + at("extents"), N + at(name)) for name in ("source", "target"))

        def kernel_main(p: Words, ctx: Words) -> None:
            line, length = block(ctx), p[N]
            source, target = operand(p, 0, kind) + of_source(p, line), operand(p, 1, result) + of_target(p, line)
            along, first = p[N + at("source") + rank], tile.first(ctx)
            keys, order, places = local(kind, items), local(i32, items), local(i32, items)
            staged, moving = shared(ctx, kind, STAGED), shared(ctx, i32, STAGED)
            for k in tile.each:
                keys[k] = of.key(source + (first + k * 32) * along) if first + k * 32 < length else kind(-1)
                order[k] = i32(first + k * 32)
            for shift in range(0, bits, DIGIT_BITS):
                tile.clear(ctx)
                barrier(ctx)
                start = sum_before(ctx, tile.rank(ctx, keys, shift, places))
                tile.place(ctx, keys, shift, places, start)
                for k in tile.each:
                    staged[places[k]] = keys[k]
                barrier(ctx)
                for k in tile.each:
                    keys[k] = staged[first + k * 32]
                barrier(ctx)
                if not plain:
                    for k in tile.each:
                        moving[places[k]] = order[k]
                    barrier(ctx)
                    for k in tile.each:
                        order[k] = moving[first + k * 32]
                    barrier(ctx)
            for k in tile.each:
                if first + k * 32 < length:
                    place = target + (first + k * 32) * p[N + at("target") + rank]
                    if plain:
                        place[0] = of.element(keys[k])
                    elif by_order is None:
                        place[0] = of.canonical(source + i64(order[k]) * along)
                    else:
                        place[0] = result(order[k])

        return kernel_text(kernel_main, N + len(self.record), THREADS)


@dataclass(frozen=True)
class CountDigits(BlockKernel):
    """How many keys of each line have each digit, of all passes. Buffers: the lines, counts[line, pass, digit], which
    are 0."""

    dtype: DType
    descending: bool
    passes: int
    outer_rank: int

    @property
    def record(self) -> Record:
        return Record(f"length parts each extents[{self.outer_rank}] source[{self.outer_rank + 1}]")

    def launch(self, sizes: Sizes) -> Launch:
        return Launch(Geometry(known(sizes.rows), THREADS, 4 * DIGITS * self.passes))

    def text(self) -> str:
        of, N, at, rank = of_elements(self.dtype, self.descending), FIRST + 2, self.record.at, self.outer_rank
        passes, kind = tuple(range(self.passes)), of.kind
        of_source = place_in(rank, N + at("extents"), N + at("source"))

        def kernel_main(p: Words, ctx: Words) -> None:
            bins, t, number = shared(ctx, i32, 0), thread(ctx), block(ctx)
            line, part, length = number // p[N + 1], number % p[N + 1], p[N]
            source = operand(p, 0, kind) + of_source(p, line)
            counts = operand(p, 1, i32) + line * (DIGITS * len(passes))
            for d in passes:
                bins[d * DIGITS + t] = 0
            barrier(ctx)
            end = min(length, (part + 1) * p[N + 2])
            for at_ in range(part * p[N + 2] + t, end, THREADS):
                key = of.key(source + at_ * p[N + at("source") + rank])
                for d in passes:
                    atomic("add", bins + (i64(i32(key >> kind(DIGIT_BITS * d)) & 255) + d * DIGITS), 1)
            barrier(ctx)
            for d in passes:
                if bins[d * DIGITS + t] != 0:
                    atomic("add", counts + (d * DIGITS + t), bins[d * DIGITS + t])

        return kernel_text(kernel_main, N + len(self.record), THREADS)


@dataclass(frozen=True)
class SortPass(BlockKernel):
    """One pass. Buffers: the lines, keys and order of the pass before, counts, status words, keys and order of this
    pass; of the last pass the result in place of the order."""

    dtype: DType
    descending: bool
    first: bool
    last: bool  # whether it writes a result
    order: DType | None  # of the result; None: elements
    passes: int
    outer_rank: int

    @property
    def record(self) -> Record:
        along = self.outer_rank + 1
        return Record(f"length tiles digit extents[{self.outer_rank}] source[{along}] target[{along}]")

    def launch(self, sizes: Sizes) -> Launch:
        return Launch(Geometry(known(sizes.rows), THREADS, STAGED + TILE * max(4, self.dtype.itemsize)))

    def text(self) -> str:
        of, N, at, rank = of_elements(self.dtype, self.descending), FIRST + 7, self.record.at, self.outer_rank
        kind, first, last, passes = of.kind, self.first, self.last, self.passes
        tile_code = tiles_of(kind, MOST_ITEMS)
        plain = self.last and self.order is None and not self.dtype.is_float
        result = kind if self.order is None else KINDS[scalars.memory_type(self.order)]
        by_order, each = self.order is not None, tile_code.each
        of_source, of_target = (place_in(rank, N + at("extents"), N + at(name)) for name in ("source", "target"))

        def kernel_main(p: Words, ctx: Words) -> None:
            tile_code.clear(ctx)
            number, length, t = take_tile(ctx, operand(p, 4, i64)), p[N], thread(ctx)
            line, tile, shift = number // p[N + 1], number % p[N + 1], p[N + 2] * DIGIT_BITS
            status = operand(p, 4, i32) + (COUNTER + line * p[N + 1] * DIGITS + t)
            source, keys_before = operand(p, 0, kind) + of_source(p, line), operand(p, 1, kind) + line * length
            keys, places, targets = local(kind, MOST_ITEMS), local(i32, MOST_ITEMS), local(i32, MOST_ITEMS)
            start, along = tile * TILE + tile_code.first(ctx), p[N + at("source") + rank]
            staged, moving, bases = shared(ctx, kind, STAGED), shared(ctx, i32, STAGED), shared(ctx, i32, BASES)
            for k in each:
                if start + k * 32 >= length:
                    keys[k] = kind(-1)  # these come last, and are not stored
                elif first:
                    keys[k] = of.key(source + (start + k * 32) * along)
                else:
                    keys[k] = keys_before[start + k * 32]
            total = tile_code.rank(ctx, keys, shift, places)
            show(status + tile * DIGITS, total | i32((PREFIX if tile == 0 else SUM) << 30))
            in_tile = sum_before(ctx, total)
            tile_code.place(ctx, keys, shift, places, in_tile)
            for k in each:
                staged[places[k]] = keys[k]
            before = digits_before(ctx, status, tile)
            show(status + tile * DIGITS, before + total | i32(PREFIX << 30))
            counts = operand(p, 3, i32) + (line * passes + p[N + 2]) * DIGITS
            bases[t] = sum_before(ctx, counts[t]) + before - in_tile
            barrier(ctx)
            for k in each:
                key = staged[k * THREADS + t]
                targets[k] = bases[i32(key >> kind(shift)) & 255] + i32(k * THREADS + t)
                if tile * TILE + k * THREADS + t < length and not last:
                    (operand(p, 5, kind) + line * length)[targets[k]] = key
                if tile * TILE + k * THREADS + t < length and plain:
                    place = operand(p, 6, result) + of_target(p, line)
                    place[i64(targets[k]) * p[N + at("target") + rank]] = of.element(key)
            if not plain:
                barrier(ctx)
                for k in each:
                    number = i32(start + k * 32)
                    if not first and start + k * 32 < length:
                        number = (operand(p, 2, i32) + line * length)[start + k * 32]
                    moving[places[k]] = number
                barrier(ctx)
                for k in each:
                    if tile * TILE + k * THREADS + t < length:
                        number = moving[k * THREADS + t]
                        if not last:
                            (operand(p, 6, i32) + line * length)[targets[k]] = number
                        else:
                            place = operand(p, 6, result) + of_target(p, line)
                            place = place + i64(targets[k]) * p[N + at("target") + rank]
                            place[0] = result(number) if by_order else of.canonical(source + i64(number) * along)

        return kernel_text(kernel_main, N + len(self.record), THREADS)

