"""Integrals: exponential, trigonometric, Fresnel, elliptic, Dawson's, Owen's, Faddeeva's, and Bessel's K.

Each is computed in float64 and rounded once to the dtype of its arguments. Slopes are formulas of their own, not
differentiated series.

>>> mo.special.expi([1.0]).tolist(), mo.grad(mo.special.exp1)(mo.asarray(1.0)).item()
([1.895117...], -0.367879...)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.scipy import coefficients as table
from morpho.tensor.autodiff.autograd import is_differentiated
from morpho.tensor.autodiff.custom import with_slopes as sloped

EULER = 0.57721566490153286061


def wide(name: str, *values: Any) -> tuple[list[mo.Tensor], Any]:
    """The arguments as float64 of one shape, and the dtype of the result."""
    tensors = [mo.asarray(value, dtype=mo.float64) if isinstance(value, int | float) else mo.asarray(value)
               for value in values]
    if any(tensor.dtype.is_complex for tensor in tensors):
        raise fail(mo.errors.DTypeError, name, "it takes real numbers", "take the real part")
    kinds = [tensor.dtype if tensor.dtype.is_float else mo.float32
             for tensor, value in zip(tensors, values, strict=True) if not isinstance(value, int | float)]
    dtype = mo.result_type(*kinds) if kinds else mo.float32
    return [tensor.astype(mo.float64) for tensor in mo.broadcast_arrays(*tensors)], dtype


def with_slopes(function: Callable[..., Any], *slopes: Callable[..., Any] | None) -> Callable[..., Any]:
    """A function of float64 tensors with a formula for its slope with respect to each argument; None: there is none."""

    def call(*values: Any) -> Any:
        return sloped("special", function(*values), values, slopes)

    return call


def plain(name: str, function: Callable[..., Any], *slopes: Callable[..., Any] | None,
          doc: str = "") -> Callable[..., mo.Tensor]:
    """A public function of real tensors: float64 inside, rounded once."""
    inner = with_slopes(function, *slopes) if slopes else function
    fixed = [number for number, slope in enumerate(slopes) if slope is None]

    def call(*values: Any) -> Any:
        if len(values) != call.arity:  # type: ignore[attr-defined]
            count = call.arity  # type: ignore[attr-defined]
            raise fail(ArgumentError, name, f"{name}() takes {count} positional argument{'s' * (count != 1)} but "
                                            f"{len(values)} {'was' if len(values) == 1 else 'were'} given")
        refuse_slopes(name, [values[number] for number in fixed])
        tensors, dtype = wide(name, *values)
        return inner(*tensors).astype(dtype)

    call.arity = len(slopes) or 1  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc or function.__doc__
    return call


def refuse_slopes(name: str, values: Sequence[Any]) -> None:
    if any(isinstance(value, mo.Tensor) and value.dtype.is_float and is_differentiated(value) for value in values):
        raise fail(ArgumentError, name, "it has no gradient with respect to its parameters",
                   "take parameter.detach() where the gradient may end")


def chebyshev(t: mo.Tensor, coefficients: Sequence[float]) -> mo.Tensor:
    """A sum of Chebyshev polynomials of t in -1..1, from the highest down, by Clenshaw's rule."""
    twice = t + t
    before, now = mo.zeros_like(t), mo.zeros_like(t) + coefficients[0]
    for coefficient in coefficients[1:-1]:
        before, now = now, twice * now - before + coefficient
    return t * now - before + coefficients[-1]


def on(x: mo.Tensor, low: float, high: float, coefficients: Sequence[float]) -> mo.Tensor:
    """The function of a table on an interval; x beyond is taken to its ends."""
    return chebyshev((mo.clip(x, low, high) * 2 - (low + high)) / (high - low), coefficients)


def pieces(x: mo.Tensor, first: Any, *rest: tuple[float, Any]) -> Any:
    """`first`, and from each bound on the next value."""
    value = first
    for bound, following in rest:
        value = mo.where(x < bound, value, following)
    return value


def at_nan(x: mo.Tensor, value: mo.Tensor) -> mo.Tensor:
    return mo.where(mo.isnan(x), x, value)


# -- exponential integrals -----------------------------------------------------------------------------------------
def _ein(x: mo.Tensor) -> mo.Tensor:
    return mo.where(x < 2, on(x, -2, 2, table.EIN_LOW), on(x, 2, 6, table.EIN_HIGH))


def _scaled_e1(x: mo.Tensor) -> mo.Tensor:
    """x exp(x) E1(x), for x from 2 on."""
    return on(2 / mo.maximum(x, 2.0), 0, 1, table.E1_TAIL)


def _exp1(x: mo.Tensor) -> mo.Tensor:
    """The integral of exp(-t) / t from x on; of numbers below 0, NaN."""
    safe = mo.where(x > 0, x, 1.0)
    low = x * _ein(-x) - (EULER + mo.log(safe))
    high = mo.exp(-x) * _scaled_e1(x) / mo.maximum(x, 2.0)
    value = mo.where(x <= 2, low, mo.where(x == mo.inf, 0.0, high))
    value = mo.where(x == 0, mo.inf, mo.where(x < 0, mo.nan, value))
    return at_nan(x, value)


def _expi(x: mo.Tensor) -> mo.Tensor:
    """The integral of exp(t) / t up to x, its principal value above 0."""
    size = mo.maximum(mo.abs(x), 5e-324)
    low = EULER + mo.log(size) + x * _ein(x)
    u = 1 / mo.maximum(x, 6.0)
    scaled = pieces(x, on(u, 1 / 12, 1 / 6, table.EI_6), (12.0, on(u, 1 / 24, 1 / 12, table.EI_12)),
                    (24.0, on(u, 1e-9, 1 / 24, table.EI_24)))
    power = mo.exp(mo.maximum(x, 6.0) - mo.log(mo.maximum(x, 6.0)))
    power = mo.where(x < 700, mo.exp(mo.clip(x, 6.0, 700.0)) * u, power)
    value = mo.where(x < 6, low, power * scaled)
    value = mo.where(x < 0, mo.where(x >= -2, low, -_exp1(size)), value)
    return at_nan(x, mo.where(x == 0, -mo.inf, value))


exp1 = plain("exp1", _exp1, lambda x: -mo.exp(-x) / x)
expi = plain("expi", _expi, lambda x: mo.exp(x) / x)


def expn(n: Any, x: Any) -> mo.Tensor:
    """The integral of exp(-x t) / t**n over t from 1 on; n is a whole number, or an array of them that is known."""
    orders = np.asarray(n.numpy() if isinstance(n, mo.Tensor) else n)
    if not np.all(orders == np.floor(orders)):
        raise fail(ArgumentError, "expn", "n is a whole number")
    (wide_x,), dtype = wide("expn", x)
    if orders.ndim == 0:
        return _expn(int(orders))(wide_x).astype(dtype)
    wide_x = mo.broadcast_to(wide_x, np.broadcast_shapes(orders.shape, tuple(wide_x.shape)))
    value = mo.zeros_like(wide_x)
    for order in np.unique(orders):
        value = mo.where(mo.asarray(orders == order), _expn(int(order))(wide_x), value)
    return value.astype(dtype)


def _expn(n: int) -> Callable[[mo.Tensor], mo.Tensor]:
    if n < 0:
        return lambda x: x * mo.nan
    if n == 0:
        return lambda x: mo.exp(-x) / x
    if n == 1:
        return with_slopes(_exp1, lambda x: -mo.exp(-x) / x)

    def value_of(x: mo.Tensor) -> mo.Tensor:
        """By recurrence up to 2, and from there on by a continued fraction from its far end."""
        power = mo.exp(-x)
        small = mo.clip(x, 0.0, 2.0)
        low = _exp1(mo.maximum(small, 1e-300))
        for order in range(1, n):
            low = (mo.exp(-small) - small * low) / order
        low = mo.where(x == 0, 1.0 / (n - 1), low)
        wide_x = mo.maximum(x, 2.0)
        steps = 40
        fraction = wide_x + (n + 2.0 * steps)
        for k in range(steps, 0, -1):
            fraction = wide_x + (n + 2.0 * (k - 1)) - (k * (n + k - 1.0)) / fraction
        value = mo.where(x <= 2, low, mo.where(x == mo.inf, 0.0, power / fraction))
        return at_nan(x, mo.where(x < 0, mo.inf, value))

    return with_slopes(value_of, lambda x: -_expn(n - 1)(x))


# -- sine, cosine and Fresnel integrals ----------------------------------------------------------------------------
def _sine_tail(x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
    u = 25 / mo.square(mo.maximum(x, 5.0))
    size = mo.maximum(x, 5.0)
    return on(u, 0, 1, table.SI_F) / size, on(u, 0, 1, table.SI_G) / mo.square(size)


def _si(x: mo.Tensor) -> mo.Tensor:
    size = mo.abs(x)
    f, g = _sine_tail(size)
    finite = mo.where(mo.isfinite(size), size, 0.0)
    high = math.pi / 2 - f * mo.cos(finite) - g * mo.sin(finite)
    value = mo.where(size < 5, size * on(size * size, 0, 25, table.SI_LOW), high)
    return at_nan(x, mo.copysign(mo.where(size == mo.inf, math.pi / 2, value), x))


def _ci(x: mo.Tensor) -> mo.Tensor:
    safe = mo.where(x > 0, x, 1.0)
    f, g = _sine_tail(safe)
    finite = mo.where(mo.isfinite(safe), safe, 0.0)
    square = mo.minimum(safe * safe, 25.0)
    low = EULER + mo.log(safe) + square * on(square, 0, 25, table.CI_LOW)
    value = mo.where(x < 5, low, mo.where(x == mo.inf, 0.0, f * mo.sin(finite) - g * mo.cos(finite)))
    return at_nan(x, mo.where(x == 0, -mo.inf, mo.where(x < 0, mo.nan, value)))


_si_sloped = plain("sici", _si, lambda x: mo.where(x == 0, 1.0, mo.sin(x) / mo.where(x == 0, 1.0, x)))
_ci_sloped = plain("sici", _ci, lambda x: mo.cos(x) / x)


def sici(x: Any) -> tuple[mo.Tensor, mo.Tensor]:
    """The sine and the cosine integral, the second one for x > 0."""
    return _si_sloped(x), _ci_sloped(x)


def _even_share(x: mo.Tensor) -> mo.Tensor:
    """(Shi(x), Chi(x)) small: x * (ein(x) + ein(-x)) / 2."""
    return x * (_ein(x) + _ein(-x)) * 0.5


def _shi(x: mo.Tensor) -> mo.Tensor:
    size = mo.abs(x)
    value = mo.where(size <= 2, _even_share(mo.minimum(size, 2.0)), 0.5 * (_expi(size) + _exp1(size)))
    return at_nan(x, mo.copysign(value, x))


def _chi(x: mo.Tensor) -> mo.Tensor:
    small = mo.clip(x, 0.0, 2.0)
    safe = mo.maximum(small, 5e-324)
    low = EULER + mo.log(safe) + small * (_ein(small) - _ein(-small)) * 0.5
    value = mo.where(x <= 2, low, 0.5 * (_expi(x) - _exp1(x)))
    return at_nan(x, mo.where(x == 0, -mo.inf, mo.where(x < 0, mo.nan, value)))


_shi_sloped = plain("shichi", _shi, lambda x: mo.where(x == 0, 1.0, mo.sinh(x) / mo.where(x == 0, 1.0, x)))
_chi_sloped = plain("shichi", _chi, lambda x: mo.cosh(x) / x)


def shichi(x: Any) -> tuple[mo.Tensor, mo.Tensor]:
    """The hyperbolic sine and cosine integrals, the second one for x > 0."""
    return _shi_sloped(x), _chi_sloped(x)


_FRESNEL_END = 8 ** 0.25


def _fresnel(x: mo.Tensor, part: str) -> mo.Tensor:
    size = mo.abs(x)
    small = mo.minimum(size, _FRESNEL_END)
    fourth = mo.square(mo.square(small))
    wide_x = mo.maximum(size, _FRESNEL_END)
    u = 8 / mo.square(mo.square(wide_x))
    f, g = on(u, 0, 1, table.FRESNEL_F) / wide_x, on(u, 0, 1, table.FRESNEL_G) / (wide_x * wide_x * wide_x)
    angle = _quarter_turns(mo.minimum(wide_x, 1e7))
    sine, cosine = mo.sin(angle), mo.cos(angle)
    if part == "S":
        low, high = on(fourth, 0, 8, table.FRESNEL_S) * (small * small * small), 0.5 - f * cosine - g * sine
    else:
        low, high = on(fourth, 0, 8, table.FRESNEL_C) * small, 0.5 + f * sine - g * cosine
    value = mo.where(size < _FRESNEL_END, low, mo.where(size == mo.inf, 0.5, high))
    return at_nan(x, mo.copysign(value, x))


def _quarter_turns(x: mo.Tensor) -> mo.Tensor:
    """pi x**2 / 2 without whole turns: of x**2 both its rounded value and the rest are taken modulo 4."""
    whole = mo.floor(x)
    share = x - whole  # exact; x**2 = whole**2 + 2 whole share + share**2
    turns = mo.remainder(whole * whole, 4.0) + mo.remainder(2 * whole * share, 4.0) + share * share
    return mo.remainder(turns, 4.0) * (math.pi / 2)


_fresnel_s = plain("fresnel", lambda x: _fresnel(x, "S"), lambda x: mo.sin(_quarter_turns(mo.abs(x))))
_fresnel_c = plain("fresnel", lambda x: _fresnel(x, "C"), lambda x: mo.cos(_quarter_turns(mo.abs(x))))


def fresnel(x: Any) -> tuple[mo.Tensor, mo.Tensor]:
    """The integrals of sin(pi t**2 / 2) and of cos(pi t**2 / 2) from 0 to x."""
    return _fresnel_s(x), _fresnel_c(x)


# -- Dawson's integral and what comes of it ------------------------------------------------------------------------
def _dawsn(x: mo.Tensor) -> mo.Tensor:
    """exp(-x**2) times the integral of exp(t**2) from 0 to x."""
    size = mo.abs(x)
    square = mo.minimum(size * size, 1e300)
    low = size * on(square, 0, 9, table.DAWSON_LOW)
    safe = mo.maximum(size, 1.0)
    middle = on(square, 9, 36, table.DAWSON_MIDDLE) / safe
    high = on(1 / mo.maximum(square, 36.0), 1e-9, 1 / 36, table.DAWSON_HIGH) / safe
    return at_nan(x, mo.copysign(pieces(size, low, (3.0, middle), (6.0, high)), x))


dawsn: Callable[..., Any] = plain("dawsn", _dawsn, lambda x: 1 - 2 * x * dawsn(x))


def _erfi(x: mo.Tensor) -> mo.Tensor:
    """-i erf(i x)."""
    power = mo.exp(x * x)
    return mo.where(mo.isfinite(power), (2 / math.sqrt(math.pi)) * power * _dawsn(x), mo.copysign(mo.inf, x))


erfi = plain("erfi", _erfi, lambda x: (2 / math.sqrt(math.pi)) * mo.exp(x * x))


def _spence(x: mo.Tensor) -> mo.Tensor:
    """The integral of log(t) / (1 - t) from 1 to x, which is the dilogarithm of 1 - x."""
    def near(y: mo.Tensor) -> mo.Tensor:
        z = 1 - y
        return z * on(z, -0.5, 0.5, table.SPENCE)

    low_x, high_x = mo.clip(x, 1e-300, 0.5), mo.maximum(x, 1.5)
    low = math.pi**2 / 6 - mo.log(low_x) * mo.log1p(-low_x) - near(1 - low_x)
    inverse = 1 / high_x
    log_x = mo.log(high_x)
    inner = mo.where(inverse < 0.5, math.pi**2 / 6 + log_x * mo.log1p(-mo.minimum(inverse, 0.5))
                     - near(1 - mo.minimum(inverse, 0.5)), near(inverse))
    high = -inner - 0.5 * log_x * log_x
    value = pieces(x, low, (0.5, near(x)), (1.5, high))
    value = mo.where(x == 0, math.pi**2 / 6, mo.where(x < 0, mo.nan, value))
    return at_nan(x, mo.where(x == mo.inf, -mo.inf, value))


def _spence_slope(x: mo.Tensor) -> mo.Tensor:
    near = mo.abs(x - 1) < 1e-8
    safe = mo.where(near, 2.0, x)
    return mo.where(near, -1.0 + 0.5 * (x - 1), mo.log(safe) / (1 - safe))


spence = plain("spence", _spence, _spence_slope)

_NODES, _WEIGHTS = (0.5 * (1 + np.polynomial.legendre.leggauss(40)[0]), 0.5 * np.polynomial.legendre.leggauss(40)[1])


def _owens(h: mo.Tensor, a: mo.Tensor) -> mo.Tensor:
    """1 / (2 pi) times the integral of exp(-h**2 (1 + t**2) / 2) / (1 + t**2) from 0 to a."""
    def inner(h: mo.Tensor, a: mo.Tensor) -> mo.Tensor:  # for a in 0..1, by Gauss's rule
        end = mo.minimum(a, 9 / mo.maximum(h, 1e-300))
        t = end[..., None] * mo.asarray(_NODES)
        square = 1 + t * t
        values = mo.exp(-0.5 * mo.square(h[..., None]) * (t * t)) / square
        return mo.sum(values * mo.asarray(_WEIGHTS), axis=-1) * end * mo.exp(-0.5 * h * h) / (2 * math.pi)

    h, size = mo.abs(h), mo.abs(a)
    small = mo.minimum(size, 1.0)
    inverse = 1 / mo.maximum(size, 1.0)
    scaled = mo.where(h == 0, 0.0, h * mo.where(h == 0, 1.0, mo.minimum(size, 1e300)))
    above, beyond = mo.special.ndtr(-h), mo.special.ndtr(-scaled)
    large = 0.5 * (above + beyond) - above * beyond - inner(mo.where(size > 1, scaled, 0.0), inverse)
    value = mo.where(size <= 1, inner(h, small), large)
    return at_nan(h + a, mo.copysign(value, a))


def _owens_h(h: mo.Tensor, a: mo.Tensor) -> mo.Tensor:
    return -mo.exp(-0.5 * h * h) * mo.erf(a * h * math.sqrt(0.5)) / (2 * math.sqrt(2 * math.pi))


def _owens_a(h: mo.Tensor, a: mo.Tensor) -> mo.Tensor:
    square = 1 + a * a
    return mo.exp(-0.5 * h * h * square) / (2 * math.pi * square)


owens_t = plain("owens_t", _owens, _owens_h, _owens_a)


# -- Faddeeva's function -------------------------------------------------------------------------------------------
def _weideman(count: int) -> tuple[float, np.ndarray[Any, Any]]:
    """The rational approximation of J. A. C. Weideman, SIAM J. Numer. Anal. 31 (1994): scale and coefficients."""
    points = np.arange(-2 * count + 1, 2 * count)
    scale = math.sqrt(count / math.sqrt(2))
    t = scale * np.tan(points * math.pi / (4 * count))
    values = np.concatenate([[0.0], np.exp(-t * t) * (scale * scale + t * t)])
    return scale, np.real(np.fft.fft(np.fft.fftshift(values)))[1:count + 1][::-1] / (4 * count)


def wofz(z: Any) -> mo.Tensor:
    """Faddeeva's function exp(-z**2) erfc(-i z) of complex numbers."""
    z = mo.asarray(z)
    dtype = mo.complex128 if z.dtype in (mo.float64, mo.complex128) else mo.complex64
    z = z.astype(mo.complex128)
    below = mo.imag(z) < 0
    upper = mo.where(below, -z, z)
    scale, row = _weideman(64)
    ratio = (scale + 1j * upper) / (scale - 1j * upper)
    total = mo.zeros_like(ratio) + complex(row[0])
    for coefficient in row[1:]:
        total = total * ratio + float(coefficient)
    distance = scale - 1j * upper
    value = 2 * total / (distance * distance) + (1 / math.sqrt(math.pi)) / distance
    value = mo.where(below, 2 * mo.exp(-z * z) - value, value)
    return value.astype(dtype)


def voigt_profile(x: Any, sigma: Any, gamma: Any) -> Any:
    """The convolution of a normal density of deviation sigma and a Cauchy density of width gamma."""
    (x, sigma, gamma), dtype = wide("voigt_profile", x, sigma, gamma)
    root = sigma * math.sqrt(2)
    return (mo.real(wofz((x + 1j * gamma) / root)) / (sigma * math.sqrt(2 * math.pi))).astype(dtype)


def lambertw(z: Any, k: int = 0, tol: float = 1e-8) -> mo.Tensor:
    """w with w exp(w) = z, of branch k, as complex numbers: by Halley's steps."""
    z = mo.asarray(z)
    dtype = mo.complex128 if z.dtype in (mo.float64, mo.complex128) else mo.complex64
    return _lambert(int(k))(z.astype(mo.complex128)).astype(dtype)


def _lambert(k: int) -> Callable[[mo.Tensor], mo.Tensor]:
    def value_of(z: mo.Tensor) -> mo.Tensor:
        zero = z == 0
        safe = mo.where(zero, 1.0, z)
        log_z = mo.log(safe) + 2j * math.pi * k
        far = log_z - mo.log(mo.where(log_z == 0, 1.0, log_z))
        root = mo.sqrt(2 * (math.e * z + 1))
        near_branch = mo.abs(z + math.exp(-1)) < 0.3
        if k == 0:
            start = mo.where(near_branch, -1 + root - root * root / 3,
                             mo.where(mo.abs(z) < 0.6, z * (1 + 1.4 * z) / (1 + 2.4 * z), far))
            middle = mo.logical_and(mo.abs(z) >= 0.6, mo.abs(z) < 3)
            start = mo.where(middle, mo.log1p(mo.abs(z)) * mo.exp(1j * mo.angle(z) * 0.6), start)
        elif k == -1:
            start = mo.where(mo.logical_and(near_branch, mo.imag(z) >= 0), -1 - root - root * root / 3, far)
            real = mo.logical_and(mo.imag(z) == 0, mo.logical_and(mo.real(z) < 0, mo.real(z) > -0.25))
            line = mo.log(mo.where(real, -mo.real(z), 0.1))
            start = mo.where(real, (line - mo.log(-line)).astype(mo.complex128), start)
        else:
            start = far
        w = start
        for _ in range(12):
            power = mo.exp(w)
            miss = w * power - z
            next_w = w + 1
            flat = next_w == 0
            next_w = mo.where(flat, 1.0, next_w)
            step = miss / (power * next_w - (w + 2) * miss / (2 * next_w))
            w = mo.where(mo.logical_or(flat, mo.logical_not(mo.isfinite(mo.abs(step)))), w, w - step)
        at_zero = 0.0 if k == 0 else -mo.inf
        return mo.where(zero, at_zero, w)

    def slope(z: mo.Tensor) -> mo.Tensor:
        w = value_of(z)
        return 1 / (mo.exp(w) * (1 + w))

    return with_slopes(value_of, slope)


# -- Bessel's functions K ------------------------------------------------------------------------------------------
def _k0e(x: mo.Tensor) -> mo.Tensor:
    """exp(x) K0(x)."""
    small = mo.clip(x, 5e-324, 2.0)
    low = (on(small * small, 0, 4, table.K0_LOW) - mo.log(small / 2) * mo.special.i0(small)) * mo.exp(small)
    high = on(2 / mo.maximum(x, 2.0), 0, 1, table.K0_TAIL) / mo.sqrt(mo.maximum(x, 2.0))
    return _for_positive(x, mo.where(x <= 2, low, high))


def _k1e(x: mo.Tensor) -> mo.Tensor:
    """exp(x) K1(x)."""
    small = mo.clip(x, 5e-324, 2.0)
    low = (on(small * small, 0, 4, table.K1_LOW) / small + mo.log(small / 2) * mo.special.i1(small)) * mo.exp(small)
    high = on(2 / mo.maximum(x, 2.0), 0, 1, table.K1_TAIL) / mo.sqrt(mo.maximum(x, 2.0))
    return _for_positive(x, mo.where(x <= 2, low, high))


def _for_positive(x: mo.Tensor, value: mo.Tensor) -> mo.Tensor:
    return at_nan(x, mo.where(x == 0, mo.inf, mo.where(x < 0, mo.nan, mo.where(x == mo.inf, 0.0, value))))


k0e: Callable[..., Any] = plain("k0e", _k0e, lambda x: k0e(x) - k1e(x))
k1e: Callable[..., Any] = plain("k1e", _k1e, lambda x: k1e(x) - k0e(x) - k1e(x) / x)
k0: Callable[..., Any] = plain("k0", lambda x: mo.exp(-x) * _k0e(x), lambda x: -mo.exp(-x) * k1e(x),
                                 doc="Bessel's K of order 0.")
k1: Callable[..., Any] = plain("k1", lambda x: mo.exp(-x) * _k1e(x), lambda x: -mo.exp(-x) * (k0e(x) + k1e(x) / x),
           doc="Bessel's K of order 1.")


def kn(n: int, x: Any) -> Any:
    """Bessel's K of a whole order, by its recurrence."""
    (x,), dtype = wide("kn", x)
    before, now = k0(x), k1(x)
    for order in range(1, abs(int(n))):
        before, now = now, before + (2.0 * order) / x * now
    return (before if n == 0 else now).astype(dtype)


# -- elliptic integrals --------------------------------------------------------------------------------------------
def _means(m: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
    """The arithmetic-geometric mean of 1 and sqrt(1 - m), and the sum that gives E."""
    a, b = mo.ones_like(m), mo.sqrt(mo.maximum(1 - m, 1e-320))
    total, power = m * 0.5, 0.5
    for _ in range(9):
        half = 0.5 * (a - b)
        a, b = 0.5 * (a + b), mo.sqrt(a * b)
        power *= 2
        total = total + power * half * half
    return a, total


def _ellipk(m: mo.Tensor) -> mo.Tensor:
    """The complete elliptic integral of the first kind of the parameter m = k**2."""
    value = math.pi / (2 * _means(m)[0])
    return at_nan(m, mo.where(m == 1, mo.inf, mo.where(m > 1, mo.nan, value)))


def _ellipe(m: mo.Tensor) -> mo.Tensor:
    """The complete elliptic integral of the second kind of the parameter m = k**2."""
    mean, total = _means(m)
    value = math.pi / (2 * mean) * (1 - total)
    return at_nan(m, mo.where(m == 1, 1.0, mo.where(m > 1, mo.nan, value)))


def _ellipk_slope(m: mo.Tensor) -> mo.Tensor:
    safe = mo.where(mo.abs(m) < 1e-4, 0.5, m)
    value = (ellipe(safe) - (1 - safe) * ellipk(safe)) / (2 * safe * (1 - safe))
    return mo.where(mo.abs(m) < 1e-4, math.pi / 2 * (0.25 + m * (9 / 32 + m * (75 / 256))), value)


def _ellipe_slope(m: mo.Tensor) -> mo.Tensor:
    safe = mo.where(mo.abs(m) < 1e-4, 0.5, m)
    value = (ellipe(safe) - ellipk(safe)) / (2 * safe)
    return mo.where(mo.abs(m) < 1e-4, -math.pi / 2 * (0.25 + m * (3 / 32 + m * (15 / 256))), value)


ellipk: Callable[..., Any] = plain("ellipk", _ellipk, _ellipk_slope)
ellipe: Callable[..., Any] = plain("ellipe", _ellipe, _ellipe_slope)


def ellipkm1(p: Any) -> mo.Tensor:
    """`ellipk(1 - p)`, also where p is small."""
    (p,), dtype = wide("ellipkm1", p)
    a, b = mo.ones_like(p), mo.sqrt(p)
    for _ in range(10):
        a, b = 0.5 * (a + b), mo.sqrt(a * b)
    return (math.pi / (2 * a)).astype(dtype)


def agm(a: Any, b: Any) -> Any:
    """The arithmetic-geometric mean of positive numbers."""
    (a, b), dtype = wide("agm", a, b)
    for _ in range(12):
        a, b = 0.5 * (a + b), mo.sqrt(a * b)
    return a.astype(dtype)
