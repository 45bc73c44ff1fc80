"""Sorting in vector registers: networks of smaller and larger, and bitonic merges."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from morpho.backends.cpu.codegen.emit import Emitter, Value


def exchanged(e: Emitter, a: Value, b: Value) -> tuple[Value, Value]:
    """The smaller and the larger, lane by lane."""
    return e.intrinsic("smin", a, b), e.intrinsic("smax", a, b)


def shuffled(e: Emitter, a: Value, b: Value, lanes: Sequence[int]) -> Value:
    """Lanes of two vectors, those of the second counted on."""
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return e.assign(f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{len(lanes)} x i32> <{mask}>", a.element,
                    len(lanes))


def turned(e: Emitter, x: Value) -> Value:
    """The lanes backwards."""
    return shuffled(e, x, x, range(x.lanes - 1, -1, -1))


@cache
def odd_even_network(count: int) -> tuple[tuple[int, int], ...]:
    """The comparators of Batcher's odd-even merge sort of a power of two."""
    found = []
    size = 1
    while size < count:
        step = size
        while step >= 1:
            for start in range(step % size, count - step, 2 * step):
                for i in range(start, start + step):
                    if i // (2 * size) == (i + step) // (2 * size):
                        found.append((i, i + step))
            step //= 2
        size *= 2
    return tuple(found)


def transposed(e: Emitter, rows: Sequence[Value]) -> list[Value]:
    """Columns as rows, of as many rows as lanes: halves of ever shorter runs are exchanged."""
    rows, lanes = list(rows), rows[0].lanes
    step = lanes // 2
    while step >= 1:
        for i in range(lanes):
            if i & step:
                continue
            a, b = rows[i], rows[i + step]
            low = [lane if not lane & step else lanes + lane - step for lane in range(lanes)]
            high = [lane + step if not lane & step else lanes + lane for lane in range(lanes)]
            rows[i], rows[i + step] = shuffled(e, a, b, low), shuffled(e, a, b, high)
        step //= 2
    return rows


def settled(e: Emitter, x: Value) -> Value:
    """A bitonic vector in order."""
    step = x.lanes // 2
    while step >= 1:
        other = shuffled(e, x, x, [lane ^ step for lane in range(x.lanes)])
        low, high = exchanged(e, x, other)
        x = shuffled(e, low, high, [lane + (x.lanes if lane & step else 0) for lane in range(x.lanes)])
        step //= 2
    return x


def merged(e: Emitter, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    """Two sorted runs of as many vectors each as one."""
    both = [*left, *[turned(e, x) for x in reversed(right)]]
    step = len(left)
    while step >= 1:
        for i in range(len(both)):
            if not i & step:
                both[i], both[i + step] = exchanged(e, both[i], both[i + step])
        step //= 2
    return [settled(e, x) for x in both]


def all_merged(e: Emitter, vectors: Sequence[Value]) -> list[Value]:
    """Vectors in order, each by itself, as one run."""
    runs = [[x] for x in vectors]
    while len(runs) > 1:
        runs = [merged(e, a, b) for a, b in zip(runs[::2], runs[1::2], strict=True)]
    return runs[0]


def sorted_square(e: Emitter, rows: Sequence[Value]) -> list[Value]:
    """As many vectors as they have lanes, each in order: columns are sorted without a shuffle, and turned."""
    rows = list(rows)
    for i, j in odd_even_network(len(rows)):
        rows[i], rows[j] = exchanged(e, rows[i], rows[j])
    return transposed(e, rows)


def sorted_vector(e: Emitter, x: Value) -> Value:
    """One vector in order, by bitonic merges of ever longer runs."""
    size = 2
    while size <= x.lanes:
        other = shuffled(e, x, x, [lane ^ (size - 1) for lane in range(x.lanes)])
        x = _chosen(e, x, other, size // 2)
        step = size // 4
        while step >= 1:
            x = _chosen(e, x, shuffled(e, x, x, [lane ^ step for lane in range(x.lanes)]), step)
            step //= 2
        size *= 2
    return x


def _chosen(e: Emitter, x: Value, other: Value, step: int) -> Value:
    """The smaller of two in lanes whose number lacks a bit, the larger in the others."""
    low, high = exchanged(e, x, other)
    return shuffled(e, low, high, [lane + (x.lanes if lane & step else 0) for lane in range(x.lanes)])
