"""Matrices of a form: block diagonal, Kronecker products, Toeplitz and circulant ones and their systems; long products;
norms of any order and condition numbers."""

from __future__ import annotations

import math
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import normalise_axes
from morpho.tensor.autodiff.precision import rounded_once
from morpho.tensor.functions import fft
from morpho.tensor.functions import linalg as plain
from morpho.tensor.functions.calculus.curves import kron as _kron
from morpho.tensor.functions.products.einsum import einsum as _einsum

Tensor = mo.Tensor


def kron(x1: Any, x2: Any, /) -> Tensor:
    """The Kronecker product.

    >>> mo.linalg.kron(mo.asarray([[1, 2]]), mo.asarray([[1], [10]])).tolist()
    [[1, 2], [10, 20]]
    """
    return _kron(x1, x2)


def multi_dot(arrays: Any, /) -> Tensor:
    """The product of several matrices in the order that multiplies least; the first and last may be vectors.

    >>> mo.linalg.multi_dot([mo.ones((2, 3)), mo.ones((3, 4)), mo.ones(4)]).tolist()
    [12.0, 12.0]
    """
    given = [x if isinstance(x, Tensor) else mo.asarray(x) for x in arrays]
    if len(given) < 2:
        raise fail(ArgumentError, "multi_dot", f"{len(given)} operand is no product", "give two or more")
    if any(x.ndim != 2 for x in given[1:-1]) or given[0].ndim not in (1, 2) or given[-1].ndim not in (1, 2):
        raise fail(ShapeError, "multi_dot", "operands are matrices; the first and the last may be vectors",
                   "mo.matmul and mo.einsum take stacks")
    letters = [chr(ord("a") + n) for n in range(len(given) + 1)]
    terms = [f"{letters[n]}{letters[n + 1]}" for n in range(len(given))]
    if given[0].ndim == 1:
        terms[0] = letters[1]
    if given[-1].ndim == 1:
        terms[-1] = letters[len(given) - 1]
    ends = ("" if given[0].ndim == 1 else letters[0]) + ("" if given[-1].ndim == 1 else letters[-1])
    return _einsum(",".join(terms) + "->" + ends, *given)


def block_diag(*arrays: Any) -> Tensor:
    """Matrices along the diagonal, zeros elsewhere; stacks of them broadcast.

    >>> mo.linalg.block_diag(mo.asarray([[1, 2]]), mo.asarray([[3]])).tolist()
    [[1, 2, 0], [0, 0, 3]]
    """
    if not arrays:
        raise fail(ArgumentError, "block_diag", "there are no matrices")
    blocks = [x if isinstance(x, Tensor) else mo.asarray(x) for x in arrays]
    blocks = [mo.reshape(x, (1,) * (2 - x.ndim) + tuple(x.shape)) if x.ndim < 2 else x for x in blocks]
    columns: Any = sum(x.shape[-1] for x in blocks)
    before: Any = 0
    rows = []
    for x in blocks:
        width = x.shape[-1]
        border = [(0, 0)] * (x.ndim - 1) + [(before, columns - before - width)]
        rows.append(mo.pad(x, border))
        before += width
    return mo.concat(rows, axis=-2)


def toeplitz(c: Any, r: Any = None, /) -> Tensor:
    """The matrix whose diagonals are constant: first column c, first row r (whose first element is c's); without r, c's
    conjugate.

    >>> mo.linalg.toeplitz([1, 2, 3], [1, 9, 8]).tolist()
    [[1, 9, 8], [2, 1, 9], [3, 2, 1]]
    """
    column, row = _line("toeplitz", c), None if r is None else _line("toeplitz", r)
    if row is None:
        row = mo.conj(column) if column.dtype.kind == "c" else column
    m, n = column.shape[-1], row.shape[-1]
    values = mo.concat([mo.flip(row[..., 1:], axis=-1), column], axis=-1)  # diagonals from the upper right on
    at = mo.arange(m)[:, None] - mo.arange(n)[None, :] + (n - 1)
    return mo.reshape(mo.take(values, mo.reshape(at, (-1,)), axis=-1), (*column.shape[:-1], m, n))


def circulant(c: Any, /) -> Tensor:
    """The matrix whose columns are c, each turned round by one more.

    >>> mo.linalg.circulant([1, 2, 3]).tolist()
    [[1, 3, 2], [2, 1, 3], [3, 2, 1]]
    """
    column = _line("circulant", c)
    n = column.shape[-1]
    at = (mo.arange(n)[:, None] - mo.arange(n)[None, :]) % n
    return mo.reshape(mo.take(column, mo.reshape(at, (-1,)), axis=-1), (*column.shape[:-1], n, n))


def _line(name: str, x: Any) -> Tensor:
    found: Tensor = x if isinstance(x, Tensor) else mo.asarray(x)
    if found.ndim < 1 or found.shape[-1] == 0:
        raise fail(ShapeError, name, f"shape {tuple(found.shape)} is not that of a vector")
    return found


def solve_circulant(c: Any, b: Any, /) -> Tensor:
    """x with `circulant(c) @ x = b`, by Fourier transforms: n log n operations. A singular matrix gives infinities.

    >>> mo.linalg.solve_circulant([2.0, 1.0, 0.0], [3.0, 3.0, 3.0]).numpy().round(3).tolist()
    [1.0, 1.0, 1.0]
    """
    column, right = _line("solve_circulant", c), _line("solve_circulant", b)
    n = column.shape[-1]
    if right.shape[0 if right.ndim > 1 else -1] != n:
        raise fail(ShapeError, "solve_circulant", f"{n} rows and a right side of shape {tuple(right.shape)}")
    if column.dtype.kind != "c" and right.dtype.kind != "c":
        below = fft.rfft(column)
        above = fft.rfft(right, axis=0)
        return fft.irfft(above / (below if right.ndim == 1 else below[:, None]), n=int(n), axis=0)
    below, above = fft.fft(column), fft.fft(right, axis=0)
    return fft.ifft(above / (below if right.ndim == 1 else below[:, None]), axis=0)


@rounded_once
def solve_toeplitz(c: Any, b: Any, /, *, r: Any = None) -> Tensor:
    """x with `toeplitz(c, r) @ x = b`, by Levinson's recursion: n^2 operations, a native loop. Every leading block must
    be regular; it is exact to rounding for well-conditioned ones (`mo.linalg.solve(toeplitz(c, r), b)` is safer). The
    first column and row may also be a pair, as SciPy takes them, and b several right sides as columns.

    >>> mo.linalg.solve_toeplitz([2.0, 1.0, 0.0], [3.0, 4.0, 3.0]).numpy().round(3).tolist()
    [1.0, 1.0, 1.0]
    """
    lines = r is None and isinstance(c, tuple) and len(c) == 2
    if lines and all(getattr(one, "ndim", isinstance(one, list | tuple)) for one in c):
        c, r = c  # a pair of numbers is a column of two
    column, right = _line("solve_toeplitz", c), _line("solve_toeplitz", b)
    if right.ndim == 2:
        found: Tensor = mo.vmap(lambda one: solve_toeplitz(c, one, r=r), in_axes=1, out_axes=1)(right)
        return found
    row = column if r is None else _line("solve_toeplitz", r)
    if r is None and column.dtype.kind == "c":
        row = mo.conj(column)
    n = int(column.shape[-1])
    if column.ndim != 1 or row.shape != (n,) or right.shape != (n,):
        raise fail(ShapeError, "solve_toeplitz", f"first column {tuple(column.shape)}, first row {tuple(row.shape)}, "
                                                 f"right side {tuple(right.shape)} are not vectors of one length",
                   "mo.vmap solves several")
    numbers = mo.arange(n)
    dtype = mo.result_type(column.dtype, row.dtype, right.dtype)
    column, row, right = (mo.astype(x, dtype) for x in (column, row, right))
    first = mo.astype(numbers == 0, dtype) / column[0]

    def turn(k: Any, state: Any) -> Any:
        forward, backward, x = state
        below = mo.take(column, mo.clip(k - numbers, 0, n - 1)) * mo.astype((numbers < k), dtype)
        above = mo.take(row, mo.clip(numbers, 0, n - 1)) * mo.astype((numbers <= k) & (numbers > 0), dtype)
        shifted = mo.where(numbers == 0, mo.zeros_like(backward), mo.roll(backward, 1))
        ahead, behind = mo.sum(below * forward), mo.sum(above * shifted)
        scale = 1 / (1 - ahead * behind)
        forward, backward = scale * (forward - ahead * shifted), scale * (shifted - behind * forward)
        missed = mo.take(right, mo.reshape(k, (1,)))[0] - mo.sum(below * x)
        return forward, backward, x + missed * backward

    return mo.fori_loop(1, n, turn, (first, first, first * right[0]))[2]  # type: ignore[no-any-return]


def norm(x: Any, /, *, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """NumPy's norm: of a vector, or along one axis, a vector's; of a matrix, or of two axes, a matrix's; without an
    order the root of the sum of squares.

    >>> mo.linalg.norm(mo.asarray([[3.0, 0.0], [0.0, 4.0]])).item()
    5.0
    """
    found: Tensor = x if isinstance(x, Tensor) else mo.asarray(x)
    if axis is None and (ord is None or found.ndim == 1):
        flat = plain.vector_norm(mo.reshape(found, (-1,)), ord=2 if ord is None else ord)
        return mo.reshape(flat, (1,) * found.ndim) if keepdims else flat
    axes = normalise_axes(axis, found.ndim, "norm")
    if len(axes) == 1:
        return plain.vector_norm(found, axis=axes[0], ord=2 if ord is None else ord, keepdims=keepdims)
    if len(axes) != 2:
        raise fail(ArgumentError, "norm", f"a norm of order {ord} over {len(axes)} axes", "name one axis or two")
    moved = mo.moveaxis(found, axes, (-2, -1))
    length = plain.matrix_norm(moved, ord="fro" if ord is None else ord, keepdims=keepdims)
    return mo.moveaxis(length, (-2, -1), axes) if keepdims else length


def cond(x: Any, /, *, p: Any = None) -> Tensor:
    """The condition number: the ratio of the largest to the smallest singular value, or for another norm p (1, -1, inf,
    -inf, "fro") that of x times that of its inverse. A singular matrix has inf in the 2-norm.

    >>> mo.linalg.cond(mo.asarray([[2.0, 0.0], [0.0, 8.0]])).item()
    4.0
    """
    if p in (None, 2, -2):
        values = plain.svdvals(x)
        if values.shape[-1] == 0:
            raise fail(ShapeError, "cond", "a matrix without elements has no condition number")
        large, small = values[..., 0], values[..., -1]
        return small / large if p == -2 else large / small
    if p not in (1, -1, math.inf, -math.inf, "fro"):
        raise fail(ArgumentError, "cond", f"norm {p!r} is unknown", 'one of 2, -2, 1, -1, inf, -inf, "fro"')
    return plain.matrix_norm(x, ord=p) * plain.matrix_norm(plain.inv(x), ord=p)
