"""Few eigenvalues of large symmetric matrices: Lanczos and LOBPCG, as native loops."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.sparse.arrays import Tensor
from morpho.sparse.checks import op
from morpho.sparse.krylov import Apply, operator


def _rows(name: str, a: Any, v0: Any) -> int:
    if hasattr(a, "shape"):
        return int(a.shape[0])
    if v0 is None:
        raise fail(ArgumentError, name, "of a function the number of rows is not known", "give a start with v0 or X")
    return int(v0.shape[0])


def lanczos(a: Any, /, *, k: int = 6, steps: int | None = None, v0: Any = None, key: Any = None,
            which: str = "largest", tol: float | None = None, maxiter: int | None = None
            ) -> tuple[Tensor, Tensor]:
    """The k largest or smallest eigenvalues of a symmetric (Hermitian) matrix, and their vectors as columns.

    A basis of max(2 k + 1, 32) vectors is made, each orthogonal to all before it, twice; the small problem is
    `mo.linalg.eigh`'s. What it finds is where the next basis begins (thick restart), until |a x - value x| is at most
    `tol` times the largest value found, for every pair: the 3/4th power of the dtype's epsilon where nothing is said.
    Pairs that are not as good after `maxiter` bases (10 for each row) are NaN.

    With `steps` there is one basis of so many vectors, whatever it finds: more steps, better values, and gradients.

    >>> a = mo.sparse.diags([mo.arange(1, 101, dtype=mo.float64)])
    >>> values, vectors = mo.sparse.lanczos(a, k=2)
    >>> values.numpy().round(6).tolist()
    [99.0, 100.0]
    """
    apply, rows = operator("lanczos", a), _rows("lanczos", a, v0)
    if which not in ("largest", "smallest"):
        raise fail(ArgumentError, "lanczos", f"which={which!r} is unknown", '"largest" or "smallest"')
    if not 1 <= k <= rows:
        raise fail(ArgumentError, "lanczos", f"{k} eigenvalues of a matrix of {rows} rows")
    most = 10 * rows if maxiter is None else maxiter
    if most < 1:
        raise fail(ArgumentError, "lanczos", f"maxiter {most} is less than one")
    if steps is not None and steps < k:
        raise fail(ArgumentError, "lanczos", f"{steps} steps for {k} eigenvalues", "2 k + 1 steps and more find some")
    key = mo.random.key(0) if key is None else key
    start = _normal(key, (rows,), getattr(a, "dtype", None)) if v0 is None else mo.asarray(v0)
    count = min(rows, steps if steps is not None else max(2 * k + 1, 32))
    own = slice(count - k, count) if which == "largest" else slice(0, k)
    start = mo.where(mo.any(start != 0), start, mo.ones_like(start))
    basis, small = _begun(start, count)
    if steps is not None or count == rows:
        basis, small = _continued(apply, basis, small, 0, count, key)
        values, vectors = mo.linalg.eigh(_whole(small[:count]))
        return values[own], basis[:count].T @ vectors[:, own]

    keep = k + (count - k) // 2
    kept = slice(count - keep, count) if which == "largest" else slice(0, keep)
    own = slice(keep - k, keep) if which == "largest" else slice(0, k)
    eps = mo.finfo(small.dtype).eps
    bound = eps**0.75 if tol is None else tol
    numbers = mo.arange(count)

    def cycle(state: Any) -> Any:
        turn, basis, small, _, _ = state
        basis, small = _continued(apply, basis, small, keep, count, mo.random.fold_in(key, turn))
        values, vectors = mo.linalg.eigh(_whole(small[:count]))
        values, vectors = values[kept], vectors[:, kept]
        left = mo.abs(small[count, count - 1] * vectors[count - 1, :])
        basis = mo.concat([vectors.T @ basis[:count], basis[count:], mo.zeros_like(basis[:count - keep])])
        wide = mo.concat([mo.astype(values, small.dtype), mo.zeros(count - keep, dtype=small.dtype)])
        diagonal = mo.astype(numbers[:, None] == numbers[None, :], small.dtype) * wide[None, :]
        small = mo.concat([diagonal, mo.zeros_like(small[count:])])
        largest = mo.max(mo.abs(values))
        worth = mo.maximum(largest * bound, mo.full((), mo.finfo(left.dtype).smallest_normal, dtype=left.dtype))
        return turn + 1, basis, small, values[own], left[own] / worth

    basis, small = _continued(apply, basis, small, 0, keep, key)
    nothing = mo.full(k, mo.inf, dtype=mo.abs(small).dtype)
    _, basis, _, values, error = mo.while_loop(
        lambda s: (s[0] <= most) & mo.any(s[4] > 1), cycle,
        (mo.ones((), dtype=mo.int64), basis, small, mo.zeros_like(nothing), nothing))
    good = error <= 1
    unknown = mo.full((), mo.nan, dtype=basis.dtype)
    return mo.where(good, values, mo.nan), mo.where(good[None, :], basis[:keep][own].T, unknown)


def _normal(key: Any, shape: tuple[Any, ...], dtype: Any) -> Tensor:
    """Random numbers of a floating dtype, complex ones too."""
    if dtype is None or dtype not in (mo.complex64, mo.complex128):
        real: Tensor = mo.random.normal(key, shape, dtype=dtype)
        return real
    parts = (mo.random.normal(mo.random.fold_in(key, part), shape, dtype=mo.finfo(dtype).dtype) for part in (0, 1))
    found: Tensor = op("complex", *parts)
    return found


def _begun(start: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """A basis as rows, of which there is one, and the operator's upper triangle in it, with a row for what is left."""
    first = start / mo.sqrt(mo.sum(mo.abs(start) ** 2))
    basis = mo.astype(mo.arange(count + 1) == 0, start.dtype)[:, None] * first[None, :]
    return basis, mo.zeros((count + 1, count), dtype=start.dtype)


def _continued(apply: Apply, basis: Tensor, small: Tensor, begin: int, end: int, key: Any) -> tuple[Tensor, Tensor]:
    """The basis with vectors `begin` + 1 to `end`. Where the space is closed, it goes on in a new direction."""
    dtype, (most, count) = basis.dtype, small.shape
    numbers = mo.arange(most)
    eps = mo.finfo(dtype).eps

    def outside(w: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
        along = mo.zeros(most, dtype=dtype)
        for _ in range(2):
            part = mo.conj(basis) @ w
            w, along = w - part @ basis, along + part
        return w, along

    def turn(j: Any, state: Any) -> Any:
        basis, small = state
        image = apply(mo.take(basis, mo.reshape(j, (1,)), axis=0)[0])
        w, along = outside(image, basis)
        size = _length(w)
        closed = size <= 16 * eps * _length(image)
        fresh = mo.cond(closed, lambda: outside(_normal(mo.random.fold_in(key, j), w.shape, dtype), basis)[0],
                        lambda: w)
        scale = _length(fresh)
        following = mo.astype(numbers == j + 1, dtype)
        basis = basis + following[:, None] * (fresh / mo.where(scale == 0, mo.ones_like(scale), scale))[None, :]
        column = along * mo.astype(numbers <= j, dtype) + following * mo.where(closed, mo.zeros_like(size), size)
        return basis, small + column[:, None] * mo.astype(numbers[:count] == j, dtype)[None, :]

    found: tuple[Tensor, Tensor] = mo.fori_loop(begin, end, turn, (basis, small))
    return found


def _length(x: Tensor) -> Tensor:
    return mo.sqrt(mo.sum(mo.abs(x) ** 2))


def _whole(upper: Tensor) -> Tensor:
    """The Hermitian matrix of an upper triangle."""
    above = mo.triu(upper, k=1)
    return mo.triu(upper) + mo.conj(above).T


def lobpcg(a: Any, X: Any, /, B: Any = None, M: Apply | None = None, *, maxiter: int = 40, largest: bool = True,
           tol: float | None = None) -> tuple[Tensor, Tensor]:
    """The extreme eigenvalues of a symmetric (Hermitian) matrix by locally optimal block conjugate gradients.

    `X` is a start, one column for each eigenvalue; `M` a preconditioner of a matrix of columns. With `B`, which is
    positive definite, the values are those of the pencil, a x = value B x, and vectors are orthonormal in B. With `tol`
    it ends when |a x - value B x| is at most `tol` |B x| times the largest value found, for every pair; pairs that are
    not as good after `maxiter` turns are NaN. Without, it makes `maxiter` turns and returns what they give, which says
    nothing of how good that is.

    >>> a = mo.sparse.diags([mo.arange(1, 9, dtype=mo.float64)])
    >>> X = mo.random.normal(mo.random.key(1), (8, 2), dtype=mo.float64)
    >>> values, vectors = mo.sparse.lobpcg(a, X)
    >>> values.numpy().round(5).tolist()
    [8.0, 7.0]
    """
    apply, start = operator("lobpcg", a), mo.asarray(X)
    metric: Apply = (lambda x: x) if B is None else operator("lobpcg", B)
    if start.ndim != 2 or 3 * start.shape[1] > start.shape[0]:
        raise fail(ShapeError, "lobpcg", f"a start of shape {tuple(start.shape)} is not a matrix of few columns",
                   "at most a third as many columns as rows; mo.linalg.eigh takes small matrices")
    if tol is not None and not tol > 0:
        raise fail(ArgumentError, "lobpcg", f"tol={tol!r} is not above 0")
    start = mo.astype(start, mo.result_type(start.dtype, apply(start).dtype, metric(start).dtype))
    width, improve = start.shape[1], M or (lambda r: r)
    sign = -1.0 if largest else 1.0

    def rayleigh(s: Tensor) -> tuple[Tensor, Tensor]:
        q = mo.linalg.qr(s).Q
        small = sign * (_adjoint(q) @ apply(q))
        if B is None:
            values, vectors = mo.linalg.eigh(small)
            return values, q @ vectors
        factor = mo.linalg.cholesky(_adjoint(q) @ metric(q))
        half = mo.linalg.solve_triangular(factor, small)
        values, vectors = mo.linalg.eigh(_adjoint(mo.linalg.solve_triangular(factor, _adjoint(half))))
        return values, q @ mo.linalg.solve_triangular(_adjoint(factor), vectors, upper=True)

    def along(x: Tensor, y: Tensor) -> Tensor:
        return _adjoint(x) @ metric(y)

    def left(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ax, bx = apply(x), metric(x)
        values = mo.real(mo.sum(mo.conj(x) * ax, axis=0))
        return ax - bx * values[None, :], values, bx

    def good(x: Tensor) -> Tensor:
        r, values, bx = left(x)
        sizes = tol * mo.max(mo.abs(values))
        return _sizes(r) <= (sizes if B is None else sizes * _sizes(bx))

    def unit(x: Tensor) -> Tensor:
        sizes = _sizes(x)
        return x / mo.where(sizes == 0, mo.ones_like(sizes), sizes)[None, :]

    def turn(_: Any, state: Any) -> Any:
        x, p = state
        w = improve(left(x)[0])
        w = w - x @ along(x, w)
        _, vectors = rayleigh(mo.concat([x, unit(w), unit(p)], axis=1))
        best = vectors[:, :width]
        step = best - x @ along(x, best)
        return best, step

    _, vectors = rayleigh(start)
    first = vectors[:, :width]
    spare = _normal(mo.random.key(7), tuple(start.shape), start.dtype)
    begin = (first, spare - first @ along(first, spare))
    if tol is None:
        x, _ = mo.fori_loop(0, maxiter, turn, begin)
        values, vectors = rayleigh(x)
        return sign * values, vectors

    _, (x, _) = mo.while_loop(lambda s: (s[0] < maxiter) & ~mo.all(good(s[1][0])),
                              lambda s: (s[0] + 1, turn(s[0], s[1])), (mo.zeros((), dtype=mo.int64), begin))
    values, vectors = rayleigh(x)
    found = good(vectors)
    unknown = mo.full((), mo.nan, dtype=vectors.dtype)
    return mo.where(found, sign * values, mo.nan), mo.where(found[None, :], vectors, unknown)


def _adjoint(x: Tensor) -> Tensor:
    return mo.conj(x).T if x.dtype.kind == "c" else x.T


def _sizes(x: Tensor) -> Tensor:
    """The lengths of columns."""
    return mo.sqrt(mo.sum(mo.real(mo.conj(x) * x), axis=0))
