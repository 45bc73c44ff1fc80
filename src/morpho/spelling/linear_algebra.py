"""Small functions of `mo.linalg` and `mo.special` under NumPy's, SciPy's and PyTorch's names."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail

Factored = namedtuple("Factored", "LU pivots")
Checked = namedtuple("Checked", "result info")


def tensorsolve(a: Any, b: Any, axes: Any = None, *, dims: Any = None) -> mo.Tensor:
    a, b = mo.asarray(a), mo.asarray(b)
    axes = dims if axes is None else axes
    if axes is not None:
        order = [axis for axis in range(a.ndim) if axis not in [one % a.ndim for one in axes]]
        a = mo.permute_dims(a, (*order, *[one % a.ndim for one in axes]))
    rest = a.shape[b.ndim:]
    made = mo.linalg.solve(mo.reshape(a, (-1, math.prod(rest))), mo.reshape(b, (-1, 1)))
    return mo.reshape(made, rest)


def tensorinv(a: Any, ind: int = 2) -> mo.Tensor:
    a = mo.asarray(a)
    rows = math.prod(a.shape[:ind])
    return mo.reshape(mo.linalg.inv(mo.reshape(a, (rows, -1))), (*a.shape[ind:], *a.shape[:ind]))


def lu(A: Any, *, pivot: bool = True) -> Any:
    """P, L and U with A = P L U."""
    if not pivot:
        raise fail(ArgumentError, "linalg.lu", "pivot=False is not taken: without exchanges the factors grow without "
                                               "bound", "leave pivot out")
    return mo.linalg.lu(A)


def lstsq(input: Any, b: Any, rcond: Any = None, *, driver: str | None = None) -> Any:
    """Least squares; every `driver` of PyTorch's gives the solution of least norm."""
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise fail(ArgumentError, "linalg.lstsq", f"driver={driver!r} is not gels, gelsy, gelsd or gelss")
    found = mo.linalg.lstsq(input, b) if rcond is None else mo.linalg.lstsq(input, b, rcond)
    if driver is None:
        return found
    empty = mo.zeros((0,), dtype=found[3].dtype)  # what a driver of LAPACK does not compute
    rank = mo.zeros((0,), dtype=mo.int64) if driver == "gels" else found[2]
    singular = found[3] if driver in ("gelsd", "gelss") else empty
    x = mo.asarray(input)
    residuals = found[1] if x.shape[-2] > x.shape[-1] and driver != "gelsy" else empty
    return type(found)(found[0], residuals, rank, singular)


def lu_factor(A: Any, *, pivot: bool = True) -> Factored:
    """The factors in one matrix, and for each row the one that it is exchanged with, counted from 1 as PyTorch's are
    (SciPy's are counted from 0)."""
    if not pivot:
        raise fail(ArgumentError, "linalg.lu_factor", "pivot=False is not taken", "leave pivot out")
    P, L, U = mo.linalg.lu(A)
    k = min(L.shape[-1], U.shape[-2])
    L = mo.tril(L, k=-1)
    wide = [(0, 0)] * (L.ndim - 1)
    if U.shape[-1] > k:
        L = mo.pad(L, [*wide, (0, U.shape[-1] - k)])
    if L.shape[-2] > k:
        U = mo.pad(U, [*wide[:-1], (0, L.shape[-2] - k), (0, 0)])
    rows = np.argmax(np.abs(np.swapaxes(P.numpy(), -1, -2)), axis=-1)
    return Factored(L + U, mo.asarray(_exchanges(rows, k) + 1))


def _exchanges(rows: np.ndarray, count: int) -> np.ndarray:
    """The row that each of the first ones is exchanged with, one after another, for an order of all rows."""
    lines = rows.reshape(-1, rows.shape[-1])
    result = np.zeros((len(lines), count), np.int32)
    for line, wanted in zip(result, lines, strict=True):
        now = list(range(len(wanted)))
        for number in range(count):
            line[number] = now.index(int(wanted[number]))
            now[number], now[line[number]] = now[line[number]], now[number]
    return result.reshape(*rows.shape[:-1], count)


def _order(pivots: Any, count: int, back: bool = False) -> mo.Tensor:
    """The order of rows that exchanges, counted from 1, make; or the one that undoes it."""
    steps = mo.asarray(pivots).numpy() - 1
    lines = steps.reshape(-1, steps.shape[-1])
    orders = np.tile(np.arange(count), (len(lines), 1))
    for order, line in zip(orders, lines, strict=True):
        for number, other in enumerate(line.tolist()):
            order[number], order[other] = order[other], order[number]
    orders = np.argsort(orders, axis=-1) if back else orders
    return mo.asarray(orders.reshape(*steps.shape[:-1], count))


def lu_solve(LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> mo.Tensor:
    """X with A X = B, of the factors of `lu_factor`; X A = B with left=False, of the adjoint of A with adjoint=True."""
    LU, B = mo.asarray(LU), mo.asarray(B)
    if not left:
        turned = lu_solve(LU, pivots, mo.conj(mo.matrix_transpose(B)), adjoint=not adjoint)
        return mo.conj(mo.matrix_transpose(turned))
    solve = mo.linalg.solve_triangular
    if adjoint:
        turned = mo.conj(mo.matrix_transpose(LU))
        found = solve(turned, solve(turned, B, upper=False), upper=True, unitriangular=True)
        return mo.take_along_axis(found, _order(pivots, B.shape[-2], back=True)[..., None], axis=-2)
    B = mo.take_along_axis(B, _order(pivots, B.shape[-2])[..., None], axis=-2)
    return solve(LU, solve(LU, B, upper=False, unitriangular=True), upper=True)


def vander(x: Any, *, N: int | None = None) -> mo.Tensor:
    """Powers of each number in a row, from the first on; `mo.vander`, which is NumPy's, begins with the last."""
    x = mo.atleast_1d(mo.asarray(x))
    count = x.shape[-1] if N is None else N
    lines = mo.broadcast_to(mo.expand_dims(x, axis=-1), (*x.shape, max(count - 1, 0)))
    return mo.cumulative_prod(mo.concat([mo.ones((*x.shape, 1), dtype=x.dtype), lines], axis=-1), axis=-1)


def solve_ex(A: Any, B: Any, *, check_errors: bool = False) -> Checked:
    return Checked(mo.linalg.solve(A, B), mo.zeros(mo.asarray(A).shape[:-2], dtype=mo.int32))


def inv_ex(A: Any, *, check_errors: bool = False) -> Checked:
    return Checked(mo.linalg.inv(A), mo.zeros(mo.asarray(A).shape[:-2], dtype=mo.int32))


def cholesky_ex(A: Any, *, upper: bool = False, check_errors: bool = False) -> Checked:
    return Checked(mo.linalg.cholesky(A, upper=upper), mo.zeros(mo.asarray(A).shape[:-2], dtype=mo.int32))


# -- special functions -------------------------------------------------------------------------------------------------
def gammasgn(x: Any) -> mo.Tensor:
    x = mo.asarray(x)
    x = x if x.dtype.is_float else x.astype(mo.float64)
    below = mo.remainder(mo.floor(x), 2.0)
    return mo.where(x > 0, 1.0, mo.where(below == 0, 1.0, -1.0)).astype(x.dtype)


def gamma(x: Any) -> mo.Tensor:
    """The gamma function, as exp of its logarithm: its error grows with its size."""
    x = mo.asarray(x)
    x = x if x.dtype.is_float else x.astype(mo.float64)
    pole = mo.logical_and(x <= 0, x == mo.floor(x))
    value = mo.exp(mo.special.lgamma(mo.where(pole, 1.0, x))) * gammasgn(x)
    return mo.where(pole, mo.where(x == 0, mo.copysign(mo.inf, x), mo.nan), value)


def factorial(n: Any, exact: bool = False) -> Any:
    return math.factorial(int(n)) if exact else mo.where(mo.asarray(n) < 0, 0.0, gamma(mo.asarray(n) + 1.0))


def poch(z: Any, m: Any) -> mo.Tensor:
    return gamma(mo.asarray(z) + m) / gamma(z)


def binom(n: Any, k: Any) -> mo.Tensor:
    n, k = mo.asarray(n), mo.asarray(k)
    return mo.exp(mo.special.lgamma(n + 1.0) - mo.special.lgamma(k + 1.0) - mo.special.lgamma(n - k + 1.0))


def comb(N: Any, k: Any, *, exact: bool = False, repetition: bool = False) -> Any:
    if repetition:
        return comb(N + k - 1, k, exact=exact)
    return math.comb(int(N), int(k)) if exact else binom(N, k)


def perm(N: Any, k: Any, exact: bool = False) -> Any:
    return math.perm(int(N), int(k)) if exact else poch(mo.asarray(N) - k + 1.0, k)


def exp10(x: Any) -> mo.Tensor:
    return mo.pow(10.0, mo.asarray(x))


def cosm1(x: Any) -> mo.Tensor:
    return -2 * mo.square(mo.sin(mo.asarray(x) / 2))


def radian(d: Any, m: Any, s: Any) -> mo.Tensor:
    return mo.deg2rad(mo.asarray(d) + mo.asarray(m) / 60 + mo.asarray(s) / 3600)


def huber(delta: Any, r: Any) -> mo.Tensor:
    r = mo.asarray(r)
    size = mo.abs(r)
    return mo.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta))


def pseudo_huber(delta: Any, r: Any) -> mo.Tensor:
    delta = mo.asarray(delta)
    return delta * delta * (mo.sqrt(1 + mo.square(mo.asarray(r) / delta)) - 1)


def boxcox(x: Any, lmbda: Any) -> mo.Tensor:
    x, lmbda = mo.asarray(x), mo.asarray(lmbda)
    safe = mo.where(lmbda == 0, 1.0, lmbda)
    return mo.where(lmbda == 0, mo.log(x), mo.expm1(safe * mo.log(x)) / safe)


def inv_boxcox(y: Any, lmbda: Any) -> mo.Tensor:
    y, lmbda = mo.asarray(y), mo.asarray(lmbda)
    safe = mo.where(lmbda == 0, 1.0, lmbda)
    return mo.where(lmbda == 0, mo.exp(y), mo.exp(mo.log1p(safe * y) / safe))


# -- PyTorch's polynomials (input, n): first values, and the next of the last two by their degree ---------------------
_SERIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    **{f"chebyshev_polynomial_{kind}": (first, lambda x, k, one, other: 2 * x * one - other) for kind, first in {
        "t": lambda x: x, "u": lambda x: 2 * x, "v": lambda x: 2 * x - 1, "w": lambda x: 2 * x + 1}.items()},
    "hermite_polynomial_h": (lambda x: 2 * x, lambda x, k, one, other: 2 * x * one - 2 * k * other),
    "hermite_polynomial_he": (lambda x: x, lambda x, k, one, other: x * one - k * other),
    "laguerre_polynomial_l": (lambda x: 1 - x,
                              lambda x, k, one, other: ((2 * k + 1 - x) * one - k * other) / (k + 1)),
    "legendre_polynomial_p": (lambda x: x, lambda x, k, one, other: ((2 * k + 1) * x * one - k * other) / (k + 1)),
}
POLYNOMIALS = (*_SERIES, *[f"shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"])
MOST_DEGREES = 1000


def _polynomial(name: str) -> Callable[..., Any]:
    first, following = _SERIES[name.removeprefix("shifted_")]

    def polynomial(input: Any, n: Any) -> mo.Tensor:
        x = input if isinstance(input, mo.Tensor) else mo.asarray(input)
        x = x if x.dtype.is_inexact else x.astype(mo.float32)
        x = 2 * x - 1 if name.startswith("shifted_") else x
        degrees = mo.trunc(mo.asarray(n)).astype(mo.int64)
        x, degrees = mo.broadcast_arrays(x, degrees)
        last = int(degrees.max()) if degrees.size else 0
        if last > MOST_DEGREES:
            raise fail(ArgumentError, name, f"degree {last} is above {MOST_DEGREES}", "use its closed form")
        other, one = mo.ones_like(x), first(x)
        result = mo.where(degrees < 0, 0.0, other)
        for k in range(1, last + 1):
            result = mo.where(degrees == k, one, result)
            other, one = one, following(x, k, one, other)
        return result

    polynomial.__name__ = polynomial.__qualname__ = name
    return polynomial


globals().update({name: _polynomial(name) for name in POLYNOMIALS})


# -- Hermitian transforms of several axes ------------------------------------------------------------------------------
_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def hfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> mo.Tensor:
    x = mo.asarray(input)
    return mo.fft.irfftn(mo.conj(x), s=s, axes=dim, norm=_OPPOSITE[norm or "backward"])


def ihfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> mo.Tensor:
    return mo.conj(mo.fft.rfftn(mo.asarray(input), s=s, axes=dim, norm=_OPPOSITE[norm or "backward"]))


def hfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> mo.Tensor:
    return hfftn(input, s, dim, norm)


def ihfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> mo.Tensor:
    return ihfftn(input, s, dim, norm)
