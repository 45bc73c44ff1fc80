"""Orthogonal polynomials, spherical harmonics, Bessel functions of whole order, numbers, small functions.

Degrees and orders are whole numbers that are known; everything is computed in float64 and rounded once, and has
gradients.

>>> mo.special.eval_legendre(2, [0.5]).tolist(), mo.special.bernoulli(4).tolist()
([-0.125], [1.0, -0.5, 0.166666..., 0.0, -0.033333...])
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.scipy.hypergeometric import _inverse_gamma
from morpho.scipy.integrals import at_nan, plain, wide, with_slopes


def _whole(name: str, what: str, value: Any, least: int = 0) -> int:
    number = value.item() if hasattr(value, "item") else value
    if number != int(number) or number < least:
        raise fail(ArgumentError, name, f"{what}={number} is not a whole number from {least} on")
    return int(number)


# -- numbers -------------------------------------------------------------------------------------------------------
def bernoulli(n: Any) -> mo.Tensor:
    """Bernoulli's numbers B0 ... Bn, with B1 = -1/2."""
    row = [Fraction(1)]
    for m in range(1, max(_whole("bernoulli", "n", n), 2) + 1):
        row.append(-sum((math.comb(m + 1, k) * row[k] for k in range(m)), Fraction(0)) / (m + 1))
    return mo.asarray(np.array([float(one) for one in row]), dtype=mo.float64)


def euler(n: Any) -> mo.Tensor:
    """Euler's numbers E0 ... En."""
    row = [1]
    for m in range(1, max(_whole("euler", "n", n), 2) + 1):
        row.append(0 if m % 2 else -sum(math.comb(m, k) * row[k] for k in range(0, m, 2)))
    return mo.asarray(np.array([float(one) for one in row]), dtype=mo.float64)


def factorial2(n: Any, exact: bool = False) -> Any:
    """n (n - 2) (n - 4) ..."""
    if exact:
        return math.prod(range(int(n), 0, -2))
    n = mo.asarray(n).astype(mo.float64)
    odd = mo.remainder(n, 2.0) == 1
    half = mo.exp(mo.special.lgamma(n / 2 + 1) + n / 2 * math.log(2))
    return mo.where(n < 0, 0.0, mo.round(mo.where(odd, half * math.sqrt(2 / math.pi), half)))


def factorialk(n: int, k: int, exact: bool = True) -> int:
    return math.prod(range(int(n), 0, -int(k)))


def stirling2(N: int, K: int, *, exact: bool = True) -> Any:
    """How many partitions of N things in K parts there are."""
    total = sum((-1) ** (K - j) * math.comb(K, j) * j**N for j in range(K + 1))
    return total // math.factorial(K)


# -- polynomials ---------------------------------------------------------------------------------------------------
def _by_recurrence(name: str, n: Any, x: Any, first: Callable[[Any], Any],
                   step: Callable[[int, Any, Any, Any], Any]) -> mo.Tensor:
    degree = _whole(name, "n", n)
    (x,), dtype = wide(name, x)
    before, now = mo.ones_like(x), first(x)
    for k in range(1, degree):
        before, now = now, step(k, x, now, before)
    return (before if degree == 0 else now).astype(dtype)


def _family(name: str, first: Callable[[Any], Any], step: Callable[[int, Any, Any, Any], Any]) -> Callable[..., Any]:
    def call(n: Any, x: Any) -> Any:
        return _by_recurrence(name, n, x, first, step)

    call.__name__ = call.__qualname__ = name
    return call


eval_legendre = _family("eval_legendre", lambda x: x,
                        lambda k, x, now, old: ((2 * k + 1) * x * now - k * old) / (k + 1))
eval_chebyt = _family("eval_chebyt", lambda x: x, lambda k, x, now, old: 2 * x * now - old)
eval_chebyu = _family("eval_chebyu", lambda x: 2 * x, lambda k, x, now, old: 2 * x * now - old)
eval_chebys = _family("eval_chebys", lambda x: x, lambda k, x, now, old: x * now - old)
eval_hermite = _family("eval_hermite", lambda x: 2 * x, lambda k, x, now, old: 2 * x * now - 2 * k * old)
eval_hermitenorm = _family("eval_hermitenorm", lambda x: x, lambda k, x, now, old: x * now - k * old)
eval_laguerre = _family("eval_laguerre", lambda x: 1 - x,
                        lambda k, x, now, old: ((2 * k + 1 - x) * now - k * old) / (k + 1))


def eval_chebyc(n: Any, x: Any) -> Any:
    return 2 * eval_chebyt(n, mo.asarray(x) / 2)


def _shifted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(n: Any, x: Any) -> Any:
        return function(n, 2 * mo.asarray(x) - 1)

    call.__name__ = call.__qualname__ = name
    return call


eval_sh_legendre = _shifted("eval_sh_legendre", eval_legendre)
eval_sh_chebyt = _shifted("eval_sh_chebyt", eval_chebyt)
eval_sh_chebyu = _shifted("eval_sh_chebyu", eval_chebyu)


def eval_genlaguerre(n: Any, alpha: Any, x: Any) -> mo.Tensor:
    return _by_recurrence("eval_genlaguerre", n, x, lambda x: 1 + alpha - x, lambda k, x, now, old: (
        (2 * k + 1 + alpha - x) * now - (k + alpha) * old) / (k + 1))


def assoc_laguerre(x: Any, n: Any, k: Any = 0.0) -> mo.Tensor:
    return eval_genlaguerre(n, k, x)


def eval_gegenbauer(n: Any, alpha: Any, x: Any) -> mo.Tensor:
    return _by_recurrence("eval_gegenbauer", n, x, lambda x: 2 * alpha * x, lambda k, x, now, old: (
        2 * (k + alpha) * x * now - (k + 2 * alpha - 1) * old) / (k + 1))


def eval_jacobi(n: Any, alpha: Any, beta: Any, x: Any) -> mo.Tensor:
    a, b = alpha, beta

    def step(k: int, x: Any, now: Any, old: Any) -> Any:
        m = k + 1
        c = 2 * m + a + b
        return ((c - 1) * (c * (c - 2) * x + a * a - b * b) * now - 2 * (m + a - 1) * (m + b - 1) * c * old) / (
            2 * m * (m + a + b) * (c - 2))

    return _by_recurrence("eval_jacobi", n, x, lambda x: (a + 1) + (a + b + 2) * (x - 1) / 2, step)


def _roots(name: str, points: Callable[[int], Any]) -> Callable[..., Any]:
    def call(n: Any, mu: bool = False) -> Any:
        """Nodes and weights of Gauss's quadrature; with `mu` the integral of the weight too."""
        nodes, weights = (np.asarray(one, np.float64) for one in points(_whole(name, "n", n, 1)))
        pair = mo.asarray(nodes, dtype=mo.float64), mo.asarray(weights, dtype=mo.float64)
        return (*pair, float(weights.sum())) if mu else pair

    call.__name__ = call.__qualname__ = name
    return call


def _chebyshev_nodes(n: int) -> Any:
    return np.polynomial.chebyshev.chebgauss(n)[0][::-1], np.full(n, math.pi / n)


def _second_nodes(n: int) -> Any:
    angles = np.arange(n, 0, -1) * math.pi / (n + 1)
    return np.cos(angles), math.pi / (n + 1) * np.sin(angles) ** 2


roots_legendre = _roots("roots_legendre", np.polynomial.legendre.leggauss)
roots_hermite = _roots("roots_hermite", np.polynomial.hermite.hermgauss)
roots_hermitenorm = _roots("roots_hermitenorm", np.polynomial.hermite_e.hermegauss)
roots_laguerre = _roots("roots_laguerre", np.polynomial.laguerre.laggauss)
roots_chebyt = _roots("roots_chebyt", _chebyshev_nodes)
roots_chebyu = _roots("roots_chebyu", _second_nodes)


# -- Legendre's functions and spherical harmonics ------------------------------------------------------------------
def _legendre_table(m: int, n: int, z: mo.Tensor, normalized: bool) -> dict[tuple[int, int], mo.Tensor]:
    """P_l^k(z) for k up to m and l up to n, with the sign (-1)**k; normalised as spherical harmonics are."""
    sine = mo.sqrt(mo.maximum((1 - z) * (1 + z), 0.0))
    table: dict[tuple[int, int], mo.Tensor] = {}
    start = mo.full_like(z, math.sqrt(0.25 / math.pi) if normalized else 1.0)
    for k in range(m + 1):
        if k:
            start = start * sine * (-math.sqrt((2 * k + 1) / (2 * k)) if normalized else -(2.0 * k - 1))
        if k > n:
            break
        table[k, k] = before = start
        now = mo.zeros_like(z)
        for length in range(k + 1, n + 1):
            if normalized:
                scale = math.sqrt((4 * length * length - 1) / (length * length - k * k))
                old = math.sqrt(((length - 1) ** 2 - k * k) / (4 * (length - 1) ** 2 - 1)) if length > k + 1 else 0.0
                now, before = scale * (z * before - old * (now if length > k + 1 else 0.0)), before
            else:
                share = (2 * length - 1) * z * before
                now, before = (share - (length + k - 1) * (now if length > k + 1 else 0.0)) / (length - k), before
            table[k, length] = now
            before, now = now, before
    return table


def lpmn_values(m: Any, n: Any, z: Any, is_normalized: bool) -> mo.Tensor:
    """Associated Legendre functions of orders 0..m and degrees 0..n, of shape (m + 1, n + 1, *z.shape)."""
    m, n = _whole("lpmn_values", "m", m), _whole("lpmn_values", "n", n)
    (z,), dtype = wide("lpmn_values", z)
    table = _legendre_table(m, n, z, is_normalized)
    zero = mo.zeros_like(z)
    return mo.stack([mo.stack([table.get((k, length), zero) for length in range(n + 1)]) for k in range(m + 1)]
                    ).astype(dtype)


def lpmn(m: Any, n: Any, z: Any) -> tuple[mo.Tensor, mo.Tensor]:
    """Associated Legendre functions of orders 0..m and degrees 0..n at numbers z inside of -1..1, and their slopes."""
    orders, degrees = _whole("lpmn", "m", m), _whole("lpmn", "n", n)
    (z,), dtype = wide("lpmn", z)
    table = _legendre_table(orders, degrees, z, False)
    zero = mo.zeros_like(z)
    square = (1 - z) * (1 + z)
    rows, slopes = [], []
    for k in range(orders + 1):
        rows.append(mo.stack([table.get((k, length), zero) for length in range(degrees + 1)]))
        slopes.append(mo.stack([
            ((length + k) * table.get((k, length - 1), zero) - length * z * table[k, length]) / square
            if (k, length) in table else zero for length in range(degrees + 1)]))
    return mo.stack(rows).astype(dtype), mo.stack(slopes).astype(dtype)


def lpmv(m: Any, v: Any, x: Any) -> mo.Tensor:
    """The associated Legendre function of order m and whole degree v."""
    order, degree = _whole("lpmv", "m", m), _whole("lpmv", "v", v)
    (x,), dtype = wide("lpmv", x)
    value = _legendre_table(order, degree, x, False).get((order, degree))
    return (mo.zeros_like(x) if value is None else value).astype(dtype)


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: Any = None, n_max: int | None = None) -> mo.Tensor:
    """Spherical harmonics of degree n and order m at the polar angle theta and the azimuth phi, as complex numbers."""
    degrees, orders = (np.asarray(one.numpy() if isinstance(one, mo.Tensor) else one).astype(np.int64)
                       for one in (n, m))
    (theta, phi), dtype = wide("sph_harm_y", theta, phi)
    shape = np.broadcast_shapes(degrees.shape, orders.shape, tuple(theta.shape))
    theta, phi = mo.broadcast_to(theta, shape), mo.broadcast_to(phi, shape)
    degrees, orders = np.broadcast_to(degrees, shape), np.broadcast_to(orders, shape)
    table = _legendre_table(int(np.abs(orders).max(initial=0)), int(degrees.max(initial=0)), mo.cos(theta), True)
    value = mo.zeros_like(theta)
    for length, order in {*zip(degrees.ravel().tolist(), orders.ravel().tolist(), strict=True)}:
        if abs(order) <= length:
            part = table[abs(order), length] * ((-1.0) ** order if order < 0 else 1.0)
            here = (degrees == length) & (orders == order)
            value = part if here.all() else mo.where(mo.asarray(here), part, value)
    angle = mo.asarray(orders.astype(np.float64)) * phi
    made = value * mo.cos(angle) + 1j * (value * mo.sin(angle))
    return made.astype(mo.complex128 if dtype is mo.float64 else mo.complex64)


# -- Bessel functions of whole order -------------------------------------------------------------------------------
def _bessel_row(orders: int, x: mo.Tensor) -> list[mo.Tensor]:
    """J_0 ... J_orders: upwards from J_0 and J_1 where x is larger than the order, else downwards from far above."""
    size = mo.abs(x)
    up = [mo.special.bessel_j0(size), mo.special.bessel_j1(size)]
    safe = mo.maximum(size, 1e-300)
    for k in range(1, orders):
        up.append(2.0 * k / safe * up[k] - up[k - 1])
    start = 2 * ((orders + int(math.sqrt(60 * (orders + 4)))) // 2 + 8)
    small = mo.clip(size, 1e-4, float(orders + 1))
    after, now, total = mo.zeros_like(small), mo.full_like(small, 1e-250), mo.zeros_like(small)
    down: dict[int, mo.Tensor] = {}
    for k in range(start, 0, -1):
        if k % 2 == 0:
            total = total + 2 * now
        after, now = now, 2.0 * k / small * now - after
        large = mo.abs(now) > 1e120
        shrink = mo.where(large, mo.full_like(now, 1e-120), 1.0)
        after, now, total = after * shrink, now * shrink, total * shrink
        for order in down:
            down[order] = down[order] * shrink
        if k - 1 <= orders:
            down[k - 1] = now
    total = total + now
    row = []
    for k in range(orders + 1):
        series = mo.exp(k * mo.log(safe / 2) - math.lgamma(k + 1)) * (1 - mo.square(size) / (4 * (k + 1)))
        low = mo.where(size < 1e-4, series if k else 1 - mo.square(size) / 4, down[k] / total)
        value = mo.where(size > max(k, 1), up[k], low)
        row.append(value if k % 2 == 0 else mo.copysign(1.0, x) * value)
    return row


def _jn(n: int) -> Callable[[mo.Tensor], mo.Tensor]:
    def slope(x: mo.Tensor) -> mo.Tensor:
        return -_jn(1)(x) if n == 0 else 0.5 * (_jn(n - 1)(x) - _jn(n + 1)(x))

    return with_slopes(lambda x: at_nan(x, _bessel_row(max(n, 1), x)[n]), slope)


def jn(n: Any, x: Any) -> mo.Tensor:
    """Bessel's J of a whole order."""
    number = n.item() if hasattr(n, "item") else n
    order = _whole("jn", "n", abs(number))
    (x,), dtype = wide("jn", x)
    return (_jn(order)(x) * (-1.0 if number < 0 and order % 2 else 1.0)).astype(dtype)


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> mo.Tensor:
    """J_0(z) ... J_v(z), stacked along a new first axis."""
    order = _whole("bessel_jn", "v", v)
    return mo.stack([jn(k, z) for k in range(order + 1)])


def spherical_jn(n: Any, z: Any, derivative: bool = False) -> mo.Tensor:
    """The spherical Bessel function of the first kind."""
    order = _whole("spherical_jn", "n", n)
    (z,), dtype = wide("spherical_jn", z)
    value = _spherical(order)(z)
    if derivative:
        safe = mo.where(z == 0, 1.0, z)
        slope = -_spherical(1)(z) if order == 0 else _spherical(order - 1)(z) - (order + 1) / safe * value
        value = mo.where(z == 0, 1 / 3 if order == 1 else 0.0, slope)
    return value.astype(dtype)


def _spherical(n: int) -> Callable[[mo.Tensor], mo.Tensor]:
    def value_of(z: mo.Tensor) -> mo.Tensor:
        size = mo.abs(z)
        safe = mo.maximum(size, 1e-300)
        up = [mo.sin(size) / safe, (mo.sin(size) / safe - mo.cos(size)) / safe]
        for k in range(1, n):
            up.append((2.0 * k + 1) / safe * up[k] - up[k - 1])
        square = mo.minimum(size, float(n + 2)) ** 2
        total, term = mo.ones_like(size), mo.ones_like(size)
        for k in range(1, 26 + n):
            term = term * square * (-0.5 / (k * (2 * n + 2 * k + 1)))
            total = total + term
        scale = mo.exp(n * mo.log(safe) - sum(math.log(2 * k + 1) for k in range(1, n + 1))) if n else 1.0
        value = mo.where(size > max(n, 1), up[n], scale * total)
        return value if n % 2 == 0 else mo.copysign(1.0, z) * value

    def slope(z: mo.Tensor) -> mo.Tensor:
        if n == 0:
            return -_spherical(1)(z)
        return (n * _spherical(n - 1)(z) - (n + 1) * _spherical(n + 1)(z)) / (2 * n + 1)

    return with_slopes(value_of, slope)


# -- small functions -----------------------------------------------------------------------------------------------
def rgamma(x: Any) -> mo.Tensor:
    """1 / gamma(x), 0 at its poles."""
    (x,), dtype = wide("rgamma", x)
    return _inverse_gamma(x).astype(dtype)


def loggamma(z: Any) -> mo.Tensor:
    """The logarithm of the gamma function; NaN below 0, as SciPy's of real numbers."""
    z = mo.asarray(z)
    return mo.where(z < 0, mo.nan, mo.special.lgamma(z))


def zetac(x: Any) -> Any:
    """zeta(x) - 1, for x > 1."""
    x = mo.asarray(x)
    return mo.special.zeta(x, 2.0)


exprel: Callable[..., Any] = plain("exprel", lambda x: mo.where(x == 0, 1.0, mo.expm1(x) / mo.where(x == 0, 1.0, x)),
               lambda x: mo.where(mo.abs(x) < 1e-3, 0.5 + x / 3 + x * x / 8,
                                  (mo.exp(x) - exprel(x)) / mo.where(x == 0, 1.0, x)), doc="(exp(x) - 1) / x.")


def powm1(x: Any, y: Any) -> mo.Tensor:
    """x**y - 1, also where that is small."""
    return mo.expm1(mo.asarray(y) * mo.log(mo.asarray(x)))


def boxcox1p(x: Any, lmbda: Any) -> mo.Tensor:
    x, lmbda = mo.log1p(mo.asarray(x)), mo.asarray(lmbda)
    safe = mo.where(lmbda == 0, 1.0, lmbda)
    return mo.where(lmbda == 0, x, mo.expm1(safe * x) / safe)


def inv_boxcox1p(y: Any, lmbda: Any) -> mo.Tensor:
    y, lmbda = mo.asarray(y), mo.asarray(lmbda)
    safe = mo.where(lmbda == 0, 1.0, lmbda)
    return mo.expm1(mo.where(lmbda == 0, y, mo.log1p(safe * y) / safe))


def _degrees(name: str, function: Callable[[Any], Any], exact: float) -> Callable[..., Any]:
    def call(x: Any) -> mo.Tensor:
        (x,), dtype = wide(name, x)
        rest = mo.remainder(x, 360.0)
        value = function(rest * (math.pi / 180))
        place = mo.remainder(rest, 180.0)
        value = mo.where(place == exact, 0.0, value)
        return (mo.where(place == 90 - exact, mo.inf, value) if name in ("tandg", "cotdg") else value).astype(dtype)

    call.__name__ = call.__qualname__ = name
    return call


sindg, tandg = _degrees("sindg", mo.sin, 0.0), _degrees("tandg", mo.tan, 0.0)
cosdg, cotdg = _degrees("cosdg", mo.cos, 90.0), _degrees("cotdg", lambda x: 1 / mo.tan(x), 90.0)
