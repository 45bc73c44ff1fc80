"""Cholesky, LU, QR and solves with a choice of algorithm; solves refined from float32; few singular values."""

from __future__ import annotations

from typing import Any, NamedTuple

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.linalg import blocked
from morpho.tensor.functions import linalg as plain
from morpho.tensor.functions.linalg import LUResult, QRResult, SVDResult

Tensor = mo.Tensor


class Refined(NamedTuple):
    """The solution, the number of corrections, and the largest backward error of a column.

    >>> mo.linalg.solve_refined(mo.eye(2, dtype="float64"), mo.ones(2, dtype="float64")).x.tolist()
    [1.0, 1.0]
    """

    x: Tensor
    iterations: Tensor
    backward_error: Tensor


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
    """x = P L U of square matrices: Gaussian elimination, whose pivots are the first of the largest in their column.
    `algorithm="native"` factorises large matrices in blocks on Morpho's products.

    >>> p, l, u = mo.linalg.lu(mo.asarray([[1.0, 2.0], [2.0, 2.0]]))
    >>> l.tolist(), u.tolist(), (p @ l @ u).tolist()
    ([[1.0, 0.0], [0.5, 1.0]], [[2.0, 2.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 2.0]])
    """
    if not blocked.choice("lu", algorithm):
        return plain.lu(x)
    a = blocked.matrix_of("lu", x)
    both, order = blocked.lu(a)
    exchange = mo.astype(mo.arange(a.shape[0])[:, None] == order[None, :], a.dtype)
    return LUResult(exchange, mo.tril(both, k=-1) + mo.eye(int(a.shape[0]), dtype=a.dtype), mo.triu(both))


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


def solve_refined(x1: Any, x2: Any, /, *, factor_dtype: Any = "float32", maxiter: int = 30) -> Refined:
    """The x with x1 @ x = x2 in float64 from factors of a lower precision, corrected until the backward error is that
    of float64 (or `maxiter` corrections were made: a matrix that is singular to the lower precision does not converge).

    >>> a = mo.asarray([[4.0, 1.0], [1.0, 3.0]], dtype="float64")
    >>> mo.linalg.solve_refined(a, mo.asarray([1.0, 2.0], dtype="float64")).backward_error.item() < 1e-15
    True
    """
    a = x1 if isinstance(x1, Tensor) else mo.asarray(x1)
    b: Tensor = x2 if isinstance(x2, Tensor) else mo.asarray(x2)
    if a.dtype is not mo.float64 or b.dtype is not mo.float64:
        raise fail(ArgumentError, "solve_refined", f"{a.dtype} and {b.dtype} are not float64",
                   "mo.linalg.solve solves in other dtypes")
    if mo.zeros(0, dtype=factor_dtype).dtype not in (mo.float32, mo.bfloat16, mo.float16):
        raise fail(ArgumentError, "solve_refined", f"factors in {factor_dtype} are not of a lower precision",
                   "float32, or bfloat16 and float16, whose numbers are factorised in float32")
    a, b, vector = _pair("solve_refined", a, b)
    low = mo.astype(mo.astype(a, factor_dtype), mo.float32)
    both, order = blocked.lu(low)

    def correction(r: Tensor) -> Tensor:
        """By the factors, of a residual scaled to the range of float32."""
        scale = mo.max(mo.abs(r), axis=0, keepdims=True)
        scale = mo.where(scale == 0, mo.ones_like(scale), scale)
        right = mo.take(mo.astype(r / scale, mo.float32), order, axis=0)
        found = blocked.solve_upper(both, blocked.solve_lower(both, right, unit=True))
        return mo.astype(found, mo.float64) * scale

    size = mo.max(mo.sum(mo.abs(a), axis=1))
    of_b = mo.max(mo.abs(b), axis=0)

    def error(x: Tensor, r: Tensor) -> Tensor:
        below = size * mo.max(mo.abs(x), axis=0) + of_b
        return mo.max(mo.max(mo.abs(r), axis=0) / mo.where(below == 0, mo.ones_like(below), below))

    def turn(state: Any) -> Any:
        count, x, r, _ = state
        x = x + correction(r)
        r = b - a @ x
        return count + 1, x, r, error(x, r)

    enough = 2.0**-52
    start = correction(b)
    r = b - a @ start
    count, x, _, last = mo.while_loop(lambda s: (s[0] < maxiter) & (s[3] > enough), turn,
                                      (mo.zeros((), dtype=mo.int64), start, r, error(start, r)))
    return Refined(x[:, 0] if vector else x, count, last)


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
