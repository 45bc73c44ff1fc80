"""Factorisations of large matrices on Morpho's own products: blocks of at most 32 rows are factorised natively, all
else is GEMM. No step leaves native code, and bits depend neither on threads nor on a BLAS.

Cholesky and triangular solves are recursive: halves until a block is small. LU factorises panels of 32 columns, with
row exchanges; QR orthogonalises panels of 16 columns against those before, twice, and each by a tree of small QRs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.tensor.functions import linalg as plain

Tensor = mo.Tensor
SMALL = 32  # rows of a block that has native code
PANEL = 16  # columns of a panel of QR: two triangles below each other are one small matrix


def matrix_of(name: str, x: Any, square: bool = True) -> Tensor:
    """A real matrix of a known size."""
    found: Tensor = x if isinstance(x, Tensor) else mo.asarray(x)
    if found.dtype not in (mo.float32, mo.float64):
        raise fail(DTypeError, name, f"dtype {found.dtype} is not taken by the native algorithm",
                   'convert to float32 or float64, or leave out algorithm="native"')
    if found.ndim != 2 or (square and found.shape[0] != found.shape[1]):
        raise fail(ShapeError, name, f"shape {tuple(found.shape)} is not that of a {'square ' if square else ''}matrix",
                   "mo.vmap takes stacks of them")
    if not all(isinstance(size, int) for size in found.shape):
        raise fail(ShapeError, name, f"shape {tuple(found.shape)} is dynamic: blocks are cut while compiling")
    return found


def _half(n: int) -> int:
    """Where to cut: at a multiple of the small size."""
    return max(SMALL, (n // 2 + SMALL - 1) // SMALL * SMALL)


def cholesky(a: Tensor) -> Tensor:
    """L with a = L L^T, from the lower triangle."""
    n = int(a.shape[0])
    if n <= SMALL:
        return plain.cholesky(a)
    k = _half(n)
    first = cholesky(a[:k, :k])
    below = mo.matrix_transpose(solve_lower(first, mo.matrix_transpose(a[k:, :k])))
    rest = cholesky(a[k:, k:] - below @ mo.matrix_transpose(below))
    top = mo.concat([first, mo.zeros((k, n - k), dtype=a.dtype)], axis=1)
    return mo.concat([top, mo.concat([below, rest], axis=1)], axis=0)


def solve_lower(a: Tensor, b: Tensor, unit: bool = False) -> Tensor:
    """x with a x = b, a lower triangular."""
    n = int(a.shape[0])
    if n <= SMALL:
        return plain.solve_triangular(a, b, unitriangular=unit)
    k = _half(n)
    first = solve_lower(a[:k, :k], b[:k], unit)
    return mo.concat([first, solve_lower(a[k:, k:], b[k:] - a[k:, :k] @ first, unit)], axis=0)


def solve_upper(a: Tensor, b: Tensor, unit: bool = False) -> Tensor:
    """x with a x = b, a upper triangular."""
    n = int(a.shape[0])
    if n <= SMALL:
        return plain.solve_triangular(a, b, upper=True, unitriangular=unit)
    k = _half(n)
    last = solve_upper(a[k:, k:], b[k:], unit)
    return mo.concat([solve_upper(a[:k, :k], b[:k] - a[:k, k:] @ last, unit), last], axis=0)


class Factors(NamedTuple):
    """Both factors in one matrix, and the number of the row that each row was."""

    both: Tensor
    order: Tensor


def lu(a: Tensor) -> Factors:
    """Gaussian elimination with row exchanges, recursive over columns."""
    return _lu(a, mo.arange(a.shape[0]))


def _lu(a: Tensor, order: Tensor) -> Factors:
    """Of a tall matrix: its left half, then what that leaves of its right half."""
    rows, columns = (int(n) for n in a.shape)
    if columns <= SMALL:
        return _panel(a, order)
    k = _half(columns)
    left = _lu(a[:, :k], mo.arange(rows))
    right = mo.take(a[:, k:], left.order, axis=0)
    top = solve_lower(left.both[:k], right[:k], unit=True)
    rest = _lu(right[k:] - left.both[k:] @ top, mo.arange(rows - k))
    below = mo.concat([mo.take(left.both[k:], rest.order, axis=0), rest.both], axis=1)
    both = mo.concat([mo.concat([left.both[:k], top], axis=1), below], axis=0)
    whole = mo.concat([left.order[:k], mo.take(left.order[k:], rest.order)])
    return Factors(both, mo.take(order, whole))


def _panel(a: Tensor, order: Tensor) -> Factors:
    """Few columns, one after the other, as a native loop: the pivot is the first of the largest."""
    rows, columns = (int(n) for n in a.shape)
    down, across = mo.arange(rows), mo.arange(columns)

    def turn(k: Any, state: Any) -> Any:
        a, order = state
        column = mo.take(a, mo.reshape(k, (1,)), axis=1)[:, 0]
        sizes = mo.where(down >= k, mo.abs(column), mo.full(rows, -1.0, dtype=a.dtype))
        pivot = mo.argmax(sizes)
        exchange = mo.where(down == k, pivot, mo.where(down == pivot, k, down))
        a, order = mo.take(a, exchange, axis=0), mo.take(order, exchange)
        row = mo.take(a, mo.reshape(k, (1,)), axis=0)[0]
        column = mo.take(a, mo.reshape(k, (1,)), axis=1)[:, 0]
        value = mo.take(row, mo.reshape(k, (1,)))[0]
        factor = mo.where(down > k, column / mo.where(value == 0, mo.ones_like(value), value), mo.zeros_like(column))
        update = a - factor[:, None] * mo.where(across > k, row, mo.zeros_like(row))[None, :]
        here = (across == k)[None, :] & (down > k)[:, None]
        return mo.where(here, factor[:, None], update), order

    found: Any = mo.fori_loop(0, min(rows, columns), turn, (a, order))
    return Factors(*found)


def solve(a: Tensor, b: Tensor) -> Tensor:
    """By LU and two triangular solves."""
    both, order = lu(a)
    return solve_upper(both, solve_lower(both, mo.take(b, order, axis=0), unit=True))


def qr(a: Tensor) -> tuple[Tensor, Tensor]:
    """Q of as many columns as a, and R: panels orthogonalised against those before, twice each."""
    rows, columns = (int(n) for n in a.shape)
    if columns > rows:
        q, r = qr(a[:, :rows])
        return q, mo.concat([r, mo.matrix_transpose(q) @ a[:, rows:]], axis=1)
    q, lines = mo.zeros((rows, 0), dtype=a.dtype), []
    for start in range(0, columns, PANEL):
        panel = a[:, start:start + PANEL]
        width = int(panel.shape[1])
        if start == 0:
            own, triangle = _tall(panel)
            above = mo.zeros((0, width), dtype=a.dtype)
        else:
            turned = mo.matrix_transpose(q)
            first = turned @ panel
            own, once = _tall(panel - q @ first)
            second = turned @ own
            own, twice = _tall(own - q @ second)
            triangle, above = twice @ once, first + second @ once
        q = mo.concat([q, own], axis=1)
        column = mo.concat([above, triangle, mo.zeros((columns - start - width, width), dtype=a.dtype)], axis=0)
        lines.append(column)
    return q, mo.concat(lines, axis=1)


def _tall(a: Tensor) -> tuple[Tensor, Tensor]:
    """QR of a few columns: of blocks of rows, then of their triangles, two at a time."""
    rows = int(a.shape[0])
    if rows <= SMALL:
        found = plain.qr(a)
        return found.Q, found.R
    cut = _half(rows)
    q1, r1 = _tall(a[:cut])
    q2, r2 = _tall(a[cut:])
    q, r = _tall(mo.concat([r1, r2], axis=0))
    k = int(r1.shape[0])
    return mo.concat([q1 @ q[:k], q2 @ q[k:]], axis=0), r


def choice(name: str, algorithm: str) -> bool:
    """Whether the native algorithm was asked for."""
    if algorithm not in ("auto", "native"):
        raise fail(ArgumentError, name, f"algorithm {algorithm!r} is unknown",
                   '"auto" (LAPACK beyond 32 rows) or "native" (blocks on products, the same bits everywhere)')
    return algorithm == "native"
