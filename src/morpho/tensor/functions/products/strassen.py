"""Strassen's product in Winograd's form: 7 products of halves and 15 sums in place of 8 products.

Its error grows faster than that of the plain product. With l levels over plain products of inner size k0, unit roundoff
u and matrices bounded by max|a|, max|b|, every element is off by at most about
`18**l * (k0**2 + 6 * k0) * u * max|a| * max|b|` (Higham, Accuracy and Stability of Numerical Algorithms, 23.2.2),
against `k * k * u * max|a| * max|b|` for one FMA chain; small elements of the result can lose all their digits.
Half floats are widened, all of it is computed in float32 and rounded once: sums of quarters kept to 8 or 11 bits would
lose far more than the plain product does, and those of float16 would overflow.
"""

from __future__ import annotations

from morpho.base.dims import Size
from morpho.base.errors import ArgumentError, fail
from morpho.ir.node import Node, build
from morpho.ops.algebra import add, cast, sub

LEAF = 512  # halves below this are multiplied plainly: the sums would cost more than the saved product
MOST_LEVELS = 4


def strassen(a: Node, b: Node, leaf: int = LEAF) -> Node:
    """The product of two nodes (..., m, k) and (..., k, n) with the same leading axes."""
    sizes = (*a.shape[-2:], b.shape[-1])
    if not all(isinstance(size, int) for size in sizes):
        raise fail(ArgumentError, "matmul", "algorithm='strassen' needs sizes that are known",
                   "use algorithm='auto' with dynamic sizes")
    levels = 0
    while levels < MOST_LEVELS and min(sizes) >> (levels + 1) >= leaf:  # type: ignore[operator]
        levels += 1
    padded = [-(-size >> levels) << levels for size in sizes]  # type: ignore[operator]
    wide = a.dtype.compute if levels else a.dtype  # without a level it is the plain product, which has rules of its own
    left, right = _padded(cast(a, wide), padded[0], padded[1]), _padded(cast(b, wide), padded[1], padded[2])
    return cast(_part(_product(left, right, levels), (0, sizes[0]), (0, sizes[2])), a.dtype)


def _padded(node: Node, rows: int, columns: int) -> Node:
    """Zeros below and to the right; they add nothing to any element that is kept."""
    if node.shape[-2:] == (rows, columns):
        return node
    lead = (0,) * (len(node.shape) - 2)
    after = (*lead, rows - node.shape[-2], columns - node.shape[-1])
    return build("pad", node, before=(0,) * len(node.shape), after=after, value=0)


def _part(node: Node, rows: tuple[Size, Size], columns: tuple[Size, Size]) -> Node:
    lead = node.shape[:-2]
    starts = (*(0 for _ in lead), rows[0], columns[0])
    sizes = (*lead, rows[1] - rows[0], columns[1] - columns[0])
    if sizes == node.shape:
        return node
    return build("slice", node, starts=starts, sizes=sizes, steps=(1,) * len(sizes))


def _quarters(node: Node) -> list[Node]:
    m, n = node.shape[-2] // 2, node.shape[-1] // 2
    return [_part(node, (i * m, (i + 1) * m), (j * n, (j + 1) * n)) for i in (0, 1) for j in (0, 1)]


def _product(a: Node, b: Node, levels: int) -> Node:
    if levels == 0:
        return build("matmul", a, b)
    a11, a12, a21, a22 = _quarters(a)
    b11, b12, b21, b22 = _quarters(b)
    s1 = add(a21, a22)
    s2 = sub(s1, a11)
    t1 = sub(b12, b11)
    t2 = sub(b22, t1)
    pairs = ((a11, b11), (a12, b21), (sub(a12, s2), b22), (a22, sub(t2, b21)), (s1, t1), (s2, t2),
             (sub(a11, a21), sub(b22, b12)))
    p1, p2, p3, p4, p5, p6, p7 = (_product(left, right, levels - 1) for left, right in pairs)
    u2 = add(p1, p6)
    u3 = add(u2, p7)
    top = build("concatenate", add(p1, p2), add(add(u2, p5), p3), axis=len(a.shape) - 1)
    bottom = build("concatenate", sub(u3, p4), add(u3, p5), axis=len(a.shape) - 1)
    return build("concatenate", top, bottom, axis=len(a.shape) - 2)
