"""Few eigenvalues of large symmetric matrices: Lanczos and LOBPCG, as native loops."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.sparse.arrays import Tensor
from morpho.sparse.krylov import Apply, operator


def _rows(name: str, a: Any, v0: Any) -> int:
    if hasattr(a, "shape"):
        return int(a.shape[0])
    if v0 is None:
        raise fail(ArgumentError, name, "of a function the number of rows is not known", "give a start with v0 or X")
    return int(v0.shape[0])


def lanczos(a: Any, /, *, k: int = 6, steps: int | None = None, v0: Any = None, key: Any = None,
            which: str = "largest") -> tuple[Tensor, Tensor]:
    """The k largest or smallest eigenvalues of a symmetric matrix, and their vectors as columns.

    `steps` vectors (at least 2 k + 1) are made, each orthogonal to all before it, twice; the small problem is
    `mo.linalg.eigh`'s. More steps, better values.

    >>> a = mo.sparse.diags([mo.arange(1, 9, dtype=mo.float64)])
    >>> values, vectors = mo.sparse.lanczos(a, k=2, steps=8)
    >>> values.numpy().round(6).tolist()
    [7.0, 8.0]
    """
    apply, rows = operator("lanczos", a), _rows("lanczos", a, v0)
    if which not in ("largest", "smallest"):
        raise fail(ArgumentError, "lanczos", f"which={which!r} is unknown", '"largest" or "smallest"')
    if not 1 <= k <= rows:
        raise fail(ArgumentError, "lanczos", f"{k} eigenvalues of a matrix of {rows} rows")
    count = min(rows, steps if steps is not None else max(2 * k + 1, 20))
    dtype = getattr(a, "dtype", None) if v0 is None else v0.dtype
    start = mo.random.normal(mo.random.key(0) if key is None else key, (rows,), dtype=dtype) if v0 is None \
        else mo.asarray(v0)
    basis, alphas, betas = _tridiagonal(apply, start, count)
    numbers = mo.arange(count)
    below = mo.astype(numbers[:, None] == numbers[None, :] + 1, alphas.dtype) * betas[None, :]
    small = mo.astype(numbers[:, None] == numbers[None, :], alphas.dtype) * alphas[None, :] + below + below.T
    values, vectors = mo.linalg.eigh(small)
    own = slice(count - k, count) if which == "largest" else slice(0, k)
    return values[own], basis.T @ vectors[:, own]


def _tridiagonal(apply: Apply, start: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """A basis as rows, and the two diagonals of the operator in it."""
    dtype = start.dtype
    numbers = mo.arange(count)
    first = start / mo.sqrt(mo.sum(start * start))
    basis = mo.astype(numbers == 0, dtype)[:, None] * first[None, :]

    def turn(j: Any, state: Any) -> Any:
        basis, alphas, betas = state
        v = mo.take(basis, mo.reshape(j, (1,)), axis=0)[0]
        w = apply(v)
        here = mo.astype(numbers == j, dtype)
        alphas = alphas + here * mo.sum(w * v)
        for _ in range(2):
            w = w - (basis @ w) @ basis
        size = mo.sqrt(mo.sum(w * w))
        following = mo.astype(numbers == j + 1, dtype)
        basis = basis + following[:, None] * (w / mo.where(size == 0, mo.ones_like(size), size))[None, :]
        return basis, alphas, betas + here * size * mo.astype(j + 1 < count, dtype)

    zero = mo.zeros(count, dtype=dtype)
    found: tuple[Tensor, Tensor, Tensor] = mo.fori_loop(0, count, turn, (basis, zero, zero))
    return found


def lobpcg(a: Any, X: Any, /, *, M: Apply | None = None, maxiter: int = 40, largest: bool = True
           ) -> tuple[Tensor, Tensor]:
    """The extreme eigenvalues of a symmetric matrix by locally optimal block conjugate gradients.

    `X` is a start, one column for each eigenvalue; `M` a preconditioner of a matrix of columns.

    >>> a = mo.sparse.diags([mo.arange(1, 9, dtype=mo.float64)])
    >>> X = mo.random.normal(mo.random.key(1), (8, 2), dtype=mo.float64)
    >>> values, vectors = mo.sparse.lobpcg(a, X)
    >>> values.numpy().round(5).tolist()
    [8.0, 7.0]
    """
    apply, start = operator("lobpcg", a), mo.asarray(X)
    if start.ndim != 2 or 3 * start.shape[1] > start.shape[0]:
        raise fail(ShapeError, "lobpcg", f"a start of shape {tuple(start.shape)} is not a matrix of few columns",
                   "at most a third as many columns as rows; mo.linalg.eigh takes small matrices")
    width, improve = start.shape[1], M or (lambda r: r)
    sign = -1.0 if largest else 1.0

    def rayleigh(s: Tensor) -> tuple[Tensor, Tensor]:
        q = mo.linalg.qr(s).Q
        values, vectors = mo.linalg.eigh(sign * (q.T @ apply(q)))
        return values, q @ vectors

    def turn(_: Any, state: Any) -> Any:
        x, p = state
        ax = apply(x)
        r = ax - x * mo.sum(x * ax, axis=0)[None, :]
        w = improve(r)
        w = w - x @ (x.T @ w)
        _, vectors = rayleigh(mo.concat([x, w / _sizes(w), p / _sizes(p)], axis=1))
        best = vectors[:, :width]
        step = best - x @ (x.T @ best)
        return best, step

    _, vectors = rayleigh(start)
    first = vectors[:, :width]
    spare = mo.random.normal(mo.random.key(7), tuple(start.shape), dtype=start.dtype)
    x, _ = mo.fori_loop(0, maxiter, turn, (first, spare - first @ (first.T @ spare)))
    values, vectors = rayleigh(x)
    return sign * values, vectors


def _sizes(x: Tensor) -> Tensor:
    sizes = mo.sqrt(mo.sum(x * x, axis=0))
    return mo.where(sizes == 0, mo.ones_like(sizes), sizes)[None, :]
