"""In-register transposes: square tiles of vectors, by shuffles."""

from __future__ import annotations

from morpho.backends.code.emit import Emitter, Value


def transposed(e: Emitter, lines: list[Value], run: int = 1) -> list[Value]:
    """As many vectors of as many elements, transposed: log2(n) rounds, each exchanging one bit of the two numbers. An
    element may be a run of several that stay side by side."""
    count, bit = len(lines), 1
    while bit < count:
        fresh = list(lines)
        for i in (i for i in range(count) if not i & bit):
            a, b = lines[i], lines[i | bit]
            fresh[i] = _chosen(e, a, b, [count + (j ^ bit) if j & bit else j for j in range(count)], run)
            fresh[i | bit] = _chosen(e, a, b, [count + j if j & bit else j | bit for j in range(count)], run)
        lines, bit = fresh, 2 * bit
    return lines


def _chosen(e: Emitter, a: Value, b: Value, places: list[int], run: int) -> Value:
    lanes = [place * run + part for place in places for part in range(run)]
    mask = ", ".join(f"i32 {i}" for i in lanes)
    return e.assign(f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{len(lanes)} x i32> <{mask}>",
                    a.element, len(lanes))
