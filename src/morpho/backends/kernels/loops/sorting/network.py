"""Sorting in vector registers: networks of smaller and larger, and bitonic merges."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from morpho.backends.code.emit import BITS, Emitter, Value

Label = tuple[int, int]  # of two vectors, and the lane there


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


@cache
def _pairing(before: tuple[tuple[Label, ...], tuple[Label, ...]], step: int, group: int) -> tuple[list[int], list[int]]:
    """Where the lower of each pair `step` apart lies in two vectors that hold these labels, and where the higher: as
    lanes of both. Lanes of 16 bytes stay among themselves where each has as many of the lower ones as of the higher."""
    places = {label: number for number, label in enumerate((*before[0], *before[1]))}
    lanes = len(before[0])
    groups = [range(start, start + group) for start in range(0, lanes, group)]
    if any(2 * sum(not before[0][lane][1] & step for lane in lanes_there) != group for lanes_there in groups):
        groups = [range(lanes)]
    low = [places[row[lane]] for there in groups for row in before for lane in there if not row[lane][1] & step]
    labels = [*before[0], *before[1]]
    return low, [places[labels[place][0], labels[place][1] + step] for place in low]


def settled_pair(e: Emitter, a: Value, b: Value) -> list[Value]:
    """Two bitonic vectors, each in order: partners meet in one lane of two registers, so that no comparison is made
    twice; lanes are put back at the end."""
    lanes, group = a.lanes, max(2, 128 // BITS[a.element])
    labels = [tuple((number, lane) for lane in range(lanes)) for number in range(2)]
    step = lanes // 2
    while step >= 1:
        low, high = _pairing((labels[0], labels[1]), step, group)
        flat = [*labels[0], *labels[1]]
        labels = [tuple(flat[place] for place in side) for side in (low, high)]
        a, b = exchanged(e, shuffled(e, a, b, low), shuffled(e, a, b, high))
        step //= 2
    places = {label: number for number, label in enumerate((*labels[0], *labels[1]))}
    return [shuffled(e, a, b, [places[number, lane] for lane in range(lanes)]) for number in range(2)]


def all_settled(e: Emitter, vectors: Sequence[Value]) -> list[Value]:
    """Bitonic vectors, each in order: two at a time where a shuffle takes any lanes of two registers (AVX-512)."""
    if len(vectors) % 2 or vectors[0].lanes * BITS[vectors[0].element] < 512:
        return [settled(e, x) for x in vectors]
    return [x for a, b in zip(vectors[::2], vectors[1::2], strict=True) for x in settled_pair(e, a, b)]


def merged(e: Emitter, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    """Two sorted runs of as many vectors each as one."""
    both = [*left, *[turned(e, x) for x in reversed(right)]]
    step = len(left)
    while step >= 1:
        for i in range(len(both)):
            if not i & step:
                both[i], both[i + step] = exchanged(e, both[i], both[i + step])
        step //= 2
    return all_settled(e, both)


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
