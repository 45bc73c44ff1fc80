"""Cholesky, LU, QR and solves with a choice of algorithm; few singular values."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.linalg import blocked
from morpho.tensor.functions import linalg as plain
from morpho.tensor.functions.linalg import LUResult, QRResult, SVDResult

Tensor = mo.Tensor


def cholesky(x: Any, /, *, upper: bool = False, algorithm: str = "auto") -> Tensor:
    """The triangular factor L of a positive definite x = L L^H, or its upper counterpart. `algorithm="native"`
    factorises large matrices in blocks on Morpho's products: the same bits for any number of threads.

    >>> mo.linalg.cholesky(mo.asarray([[4.0, 2.0], [2.0, 5.0]]))
    Tensor([[2., 0.],
            [1., 2.]], dtype=float32)
    """
    if not blocked.choice("cholesky", algorithm):
        return plain.cholesky(x, upper=upper)
    lower = blocked.cholesky(blocked.matrix_of("cholesky", x))
    return mo.matrix_transpose(lower) if upper else lower


def lu(x: Any, /, *, algorithm: str = "auto") -> LUResult:
    """x = P L U: Gaussian elimination, whose pivots are the first of the largest in their column. Of m x n matrices L
    is m x k and U k x n, with k the smaller of both. `algorithm="native"` factorises large square matrices in blocks on
    Morpho's products.

    >>> p, l, u = mo.linalg.lu(mo.asarray([[1.0, 2.0], [2.0, 2.0]]))
    >>> l.tolist(), u.tolist(), (p @ l @ u).tolist()
    ([[1.0, 0.0], [0.5, 1.0]], [[2.0, 2.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 2.0]])
    """
    if not blocked.choice("lu", algorithm):
        found = x if isinstance(x, Tensor) else mo.asarray(x)
        sizes = found.shape[-2:]
        known = found.ndim >= 2 and all(isinstance(size, int) for size in sizes)
        return plain.lu(found) if not known or sizes[0] == sizes[1] else _rectangular(found)
    a = blocked.matrix_of("lu", x)
    both, order = blocked.lu(a)
    exchange = mo.astype(mo.arange(a.shape[0])[:, None] == order[None, :], a.dtype)
    return LUResult(exchange, mo.tril(both, k=-1) + mo.eye(int(a.shape[0]), dtype=a.dtype), mo.triu(both))


def _rectangular(a: Tensor) -> LUResult:
    """Of a wide matrix: its square part's factors, and L^-1 P^T of what is beside it. A tall matrix gets columns for
    which nothing is exchanged or eliminated: zeros to find P, then those of P (so that U has an inverse for gradients).
    """
    rows, columns = (int(size) for size in a.shape[-2:])
    if rows < columns:
        p, lower, upper = plain.lu(a[..., :rows])
        beside = mo.matrix_transpose(p) @ mo.astype(a[..., rows:], lower.dtype)
        rest = plain.solve_triangular(lower, beside, unitriangular=True)
        return LUResult(p, lower, mo.concat([upper, rest], axis=-1))
    nothing = mo.zeros((*a.shape[:-1], rows - columns), dtype=a.dtype)
    p = plain.lu(mo.concat([a, nothing], axis=-1)).P
    _, lower, upper = plain.lu(mo.concat([a, p[..., columns:]], axis=-1))
    return LUResult(p, lower[..., :columns], upper[..., :columns, :columns])


def qr(x: Any, /, *, mode: str = "reduced", algorithm: str = "auto") -> QRResult:
    """x = Q R with orthonormal columns in Q and an upper triangular R. `algorithm="native"` (reduced only) computes
    large matrices in panels on Morpho's products.

    >>> q, r = mo.linalg.qr(mo.asarray([[3.0], [4.0]]))
    >>> abs(r.item())
    5.0
    """
    if not blocked.choice("qr", algorithm):
        return plain.qr(x, mode=mode)
    if mode != "reduced":
        raise fail(ArgumentError, "qr", f'mode {mode!r} has no native algorithm', 'mode="reduced" has one')
    return QRResult(*blocked.qr(blocked.matrix_of("qr", x, square=False)))


def solve(x1: Any, x2: Any, /, *, algorithm: str = "auto") -> Tensor:
    """The x with x1 @ x = x2; x2 is a vector or a stack of matrices. `algorithm="native"` solves large systems in
    blocks on Morpho's products.

    >>> mo.linalg.solve(mo.asarray([[2.0, 0.0], [0.0, 4.0]]), mo.asarray([2.0, 8.0])).tolist()
    [1.0, 2.0]
    """
    if not blocked.choice("solve", algorithm):
        return plain.solve(x1, x2)
    a, b, vector = _pair("solve", x1, x2)
    found = blocked.solve(a, b)
    return found[:, 0] if vector else found


def solve_triangular(x1: Any, x2: Any, /, *, upper: bool = False, unitriangular: bool = False,
                     algorithm: str = "auto") -> Tensor:
    """The x with x1 @ x = x2, where x1 is lower triangular, or `upper`: its other triangle is not looked at. With
    `unitriangular` its diagonal is not either, and taken to be ones. `algorithm="native"` solves large ones in blocks.

    >>> mo.linalg.solve_triangular(mo.asarray([[2.0, 9.0], [1.0, 4.0]]), mo.asarray([2.0, 9.0])).tolist()
    [1.0, 2.0]
    """
    if not blocked.choice("solve_triangular", algorithm):
        return plain.solve_triangular(x1, x2, upper=upper, unitriangular=unitriangular)
    a, b, vector = _pair("solve_triangular", x1, x2)
    found = (blocked.solve_upper if upper else blocked.solve_lower)(a, b, unitriangular)
    return found[:, 0] if vector else found


def _pair(name: str, x1: Any, x2: Any) -> tuple[Tensor, Tensor, bool]:
    a = blocked.matrix_of(name, x1)
    b: Tensor = x2 if isinstance(x2, Tensor) else mo.asarray(x2)
    vector = b.ndim == 1
    b = b[:, None] if vector else b
    if b.ndim != 2 or b.shape[0] != a.shape[0]:
        raise fail(ShapeError, name, f"shapes {tuple(a.shape)} and {tuple(b.shape)} do not align")
    return a, mo.astype(b, a.dtype), vector


def svd_lowrank(x: Any, k: int, /, *, oversample: int = 8, iterations: int = 2, key: Any = None) -> SVDResult:
    """The k largest singular values and their vectors, from a random subspace (Halko, Martinsson and Tropp): products
    with x and its transpose, and the SVD of a small matrix.

    `iterations` powers of x x^T sharpen what falls slowly. With the same key the same result.

    >>> a = mo.diag(mo.asarray([4.0, 3.0, 2.0, 1.0], dtype="float64"))
    >>> mo.linalg.svd_lowrank(a, 2).S.numpy().round(6).tolist()
    [4.0, 3.0]
    """
    a = x if isinstance(x, Tensor) else mo.asarray(x)
    if a.ndim != 2 or not 1 <= k <= min(a.shape):
        raise fail(ShapeError, "svd_lowrank", f"{k} singular values of shape {tuple(a.shape)}")
    width = min(k + max(0, oversample), *a.shape)
    turned = mo.matrix_transpose(a) if a.dtype.kind != "c" else mo.conj(mo.matrix_transpose(a))
    real = {mo.complex64: mo.float32, mo.complex128: mo.float64}.get(a.dtype, a.dtype)
    start = mo.random.normal(mo.random.key(0) if key is None else key, (a.shape[1], width), dtype=real)
    q = plain.qr(a @ mo.astype(start, a.dtype)).Q
    for _ in range(iterations):
        q = plain.qr(a @ plain.qr(turned @ q).Q).Q
    inside = (mo.matrix_transpose(q) if a.dtype.kind != "c" else mo.conj(mo.matrix_transpose(q))) @ a
    u, s, vh = plain.svd(inside, full_matrices=False)
    return SVDResult((q @ u)[:, :k], s[:k], vh[:k])
