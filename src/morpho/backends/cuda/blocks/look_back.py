# mypy: disable-error-code="valid-type"
"""Sums of all that comes before a tile, in one launch: decoupled look-back, with a fixed order of additions.

Blocks take tiles from a counter, in order, so that who waits for earlier tiles waits for running ones. A tile shows its
sum, and the last tile of 32 the sum of its group, in status words: 32 bits of value beside a flag, read and written at
once, so that there are no fences. A value of 64 bits has two words; both must have the flag.
The order: 4 elements of a lane one by one, lanes of a warp by doubling distances, 4 rows of a warp and 8 warps of a
tile one by one, 32 tiles of a group by doubling distances, groups one by one. Look-back finds the last group that is
finished and adds the sums of those behind it, oldest first: the same bits, wherever it begins.
"""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from morpho.backends.code.typed import Pointer, Words, i1, i32, i64, local
from morpho.backends.cuda.blocks.threads import (
    atomic,
    ballot,
    barrier,
    device,
    lane,
    leading_zeros,
    look,
    moved,
    pause,
    shared,
    show,
    shuffle,
    shuffle_up,
    thread,
    value_of,
    warp,
    words_of,
)

THREADS, WARPS, GROUP = 256, 8, 32
SUM, PREFIX = 1, 2  # what a status word holds: the sum of a tile or group alone, or of all up to it
BOX_BYTES = 16 + 8 * WARPS  # shared memory: a word for all, and the sums of warps
STATUS = 8  # words of a workspace before the status words; the first counts tiles
ROWS = range(4)
LANE_ITEMS = tuple((row, k) for row in ROWS for k in range(4))


def status_words(kind: Any) -> int:
    """Words of a tile, and of a group."""
    return 2 if kind.bits == 64 else 1


@device
def take_tile(context: Words, status: Words) -> i64:
    """The next tile, the same for all threads of a block."""
    box = shared(context, i64, 0)
    if thread(context) == 0:
        box[0] = atomic("add", status, 1)
    barrier(context)
    tile: i64 = box[0]
    barrier(context)
    return tile


@lru_cache(maxsize=64)
def scans(kind: Any, combine: Any, neutral: Any) -> SimpleNamespace:
    """Native functions that scan values of one type."""
    words = tuple(range(status_words(kind)))

    @device
    def post(status: Words, index: i64, flag: i64, value: kind) -> None:
        parts = words_of(kind(value))
        for k in words:
            show(status + (index * len(words) + k), flag << 32 | parts[k])

    @device
    def wait(status: Words, index: i64, context: Words, value: Pointer[kind]) -> i32:
        """The flag of a status word when it is there, and its value."""
        first: i64 = look(status + index * len(words))
        second: i64 = look(status + (index * len(words) + len(words) - 1))
        while first >> 32 == 0 or first >> 32 != second >> 32:
            pause(context)
            first = look(status + index * len(words))
            second = look(status + (index * len(words) + len(words) - 1))
        value[0] = value_of(kind, first, second)
        return i32(first >> 32)

    @device
    def scan_warp(context: Words, value: kind) -> kind:
        for distance in (1, 2, 4, 8, 16):
            below = moved(shuffle_up, context, kind(value), distance)
            both = combine(below, value)
            value = both if lane(context) >= distance else value
        return value

    @device
    def below(context: Words, value: kind, number: i64) -> kind:
        """The scanned value of the lane below one, or nothing."""
        other = moved(shuffle, context, kind(value), (number - 1) & 31)
        return kind(neutral) if number == 0 else other

    @device
    def scan_block(context: Words, items: Pointer[kind], results: Pointer[kind]) -> None:
        """Scan 4 rows of 4 values of each lane within every warp; results: what comes before the warp, and all."""
        sums = shared(context, kind, 16)
        carry = kind(neutral)
        for row in tuple(ROWS):
            for k in (1, 2, 3):
                items[row * 4 + k] = combine(items[row * 4 + k - 1], items[row * 4 + k])
            scanned = scan_warp(context, items[row * 4 + 3])
            first = combine(carry, below(context, scanned, lane(context)))
            for k in (0, 1, 2, 3):
                items[row * 4 + k] = combine(first, items[row * 4 + k])
            carry = combine(carry, moved(shuffle, context, scanned, 31))
        if lane(context) == 0:
            sums[warp(context)] = carry
        barrier(context)
        before, total = kind(neutral), kind(neutral)
        for w in tuple(range(WARPS)):
            before = total if warp(context) == w else before
            total = combine(total, sums[w])
        results[0] = before
        results[1] = total
        barrier(context)

    @device
    def window(context: Words, status: Words, end: i64, value: Pointer[kind]) -> i32:
        """A lane's status of the 32 groups before `end`; before the first there is a prefix of nothing."""
        index, flag = end - 32 + lane(context), i32(PREFIX)
        value[0] = kind(neutral)
        if index >= 0:
            flag = wait(status, index, context, value)
        return flag

    @device
    def chain(context: Words, total: kind, flag: i32, value: kind) -> kind:
        """Add 32 groups to the sum of those before, but begin at the last that has its prefix."""
        latest = i32(31) - leading_zeros(ballot(context, i32(flag == PREFIX)), i1(0))
        prefix = moved(shuffle, context, kind(value), i64(latest) & 31)
        total = prefix if latest >= 0 else total
        for k in tuple(range(32)):
            both = combine(total, moved(shuffle, context, value, k))
            total = both if latest < k else total
        return total

    @device
    def groups_before(context: Words, status: Words, group: i64) -> kind:
        """The sum of all groups before one, by a warp."""
        value, end = local(kind, 1), group
        flag = window(context, status, end, value)
        while ballot(context, i32(flag == PREFIX)) == 0:
            end -= 32
            flag = window(context, status, end, value)
        total = chain(context, kind(neutral), flag, value[0])
        while end < group:
            end += 32
            flag = window(context, status, end, value)
            total = chain(context, total, flag, value[0])
        return total

    @device
    def tiles_before(context: Words, status: Words, tile: i64, tiles: i64, total: kind) -> kind:
        """The sum of all tiles before one, whose own sum is `total`. `status`: words of a line of so many tiles."""
        box = shared(context, kind, 0)
        if warp(context) == 0:
            groups, place, value = status + tiles * len(words), tile & (GROUP - 1), local(kind, 1)
            if lane(context) == 0 and place < GROUP - 1:
                post(status, tile, SUM, total)
            value[0] = kind(total) if lane(context) == place else kind(neutral)
            if lane(context) < place:
                wait(status, tile - place + lane(context), context, value)
            scanned = scan_warp(context, value[0])
            whole = moved(shuffle, context, scanned, 31)
            if place == GROUP - 1 and lane(context) == 0:
                post(groups, tile // GROUP, SUM, whole)
            before = groups_before(context, groups, tile // GROUP)
            if place == GROUP - 1 and lane(context) == 0:
                post(groups, tile // GROUP, PREFIX, combine(before, whole))
            before = combine(before, below(context, scanned, place))
            if lane(context) == 0:
                box[0] = before
        barrier(context)
        result = box[0]
        barrier(context)
        return kind(result)

    return SimpleNamespace(post=post, scan_warp=scan_warp, scan_block=scan_block, tiles_before=tiles_before)


def workspace(tiles: int, kind: Any) -> int:
    """Status words of a line of so many tiles."""
    return (tiles + tiles // GROUP) * status_words(kind)
