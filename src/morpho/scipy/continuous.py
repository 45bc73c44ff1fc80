"""Continuous distributions as SciPy names and calls them: `mo.stats.norm.logpdf(x, loc, scale)`.

Arguments are x, the shapes, loc and scale. Results are float64 for float64 arguments, else float32; everything but the
shapes of incomplete functions has gradients.

>>> from morpho.scipy import stats
>>> stats.norm.logpdf([0.0, 1.0]).tolist(), stats.beta.cdf(0.5, 2.0, 3.0).item()
([-0.918938..., -1.418938...], 0.6875)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.scipy.integrals import wide

Function = Callable[..., Any]
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Family:
    """A distribution in standard form: functions of x and its shapes."""

    name: str
    shapes: str
    logpdf: Function
    cdf: Function | None
    sf: Function | None = None
    ppf: Function | None = None
    support: Function = field(default=lambda *shapes: (-math.inf, math.inf))
    moments: Function | None = None  # mean and variance
    logcdf: Function | None = None


class Distribution:
    """pdf, cdf and the rest of one family, with `loc` and `scale`; called with parameters it is a frozen one."""

    def __init__(self, family: Family) -> None:
        self.family, self.name = family, family.name
        self.shapes = family.shapes.split()

    def _parameters(self, what: str, args: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
        words = [*self.shapes, "loc", "scale"]
        if len(args) > len(words):
            raise fail(ArgumentError, f"{self.name}.{what}", f"{what}() takes at most {len(words) + 1} positional "
                                                             f"arguments but {len(args) + 1} were given")
        values = dict(zip(words, args, strict=False))
        for key, value in options.items():
            if key not in words or key in values:
                raise fail(ArgumentError, f"{self.name}.{what}", f"{what}() got an unexpected keyword argument {key!r}",
                           f"it takes (x, {', '.join(words)})")
            values[key] = value
        missing = [word for word in self.shapes if word not in values]
        if missing:
            raise fail(ArgumentError, f"{self.name}.{what}", f"{what}() misses the argument {missing[0]!r}",
                       f"it takes (x, {', '.join(words)})")
        return [*(values[word] for word in self.shapes), values.get("loc", 0.0), values.get("scale", 1.0)]

    def _at(self, what: str, x: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        parameters = self._parameters(what, args, options)
        tensors, dtype = wide(f"{self.name}.{what}", x, *parameters)
        x, *shapes, loc, scale = tensors
        return (x - loc) / scale, shapes, scale, dtype

    def _inside(self, y: Any, shapes: list[Any]) -> tuple[Any, Any, Any]:
        """y where it lies in the support, else a number that does; whether it lies below or above."""
        low, high = self.family.support(*shapes)
        below, above = y < low, y > high
        middle = _number_in(low, high, y)
        return mo.where(mo.logical_or(below, above), middle, y), below, above

    def logpdf(self, x: Any, *args: Any, **options: Any) -> Any:
        y, shapes, scale, dtype = self._at("logpdf", x, args, options)
        inner, below, above = self._inside(y, shapes)
        value = mo.where(mo.logical_or(below, above), -mo.inf, self.family.logpdf(inner, *shapes)) - mo.log(scale)
        return _checked(value, y, scale).astype(dtype)

    def pdf(self, x: Any, *args: Any, **options: Any) -> Any:
        y, shapes, scale, dtype = self._at("pdf", x, args, options)
        inner, below, above = self._inside(y, shapes)
        value = mo.where(mo.logical_or(below, above), 0.0, mo.exp(self.family.logpdf(inner, *shapes))) / scale
        return _checked(value, y, scale).astype(dtype)

    def _share(self, what: str) -> Function:
        if self.family.cdf is None:
            raise fail(ArgumentError, f"{self.name}.{what}", "this distribution has no closed form for it here")
        return self.family.cdf

    def cdf(self, x: Any, *args: Any, **options: Any) -> Any:
        y, shapes, scale, dtype = self._at("cdf", x, args, options)
        inner, below, above = self._inside(y, shapes)
        value = mo.where(below, 0.0, mo.where(above, 1.0, self._share("cdf")(inner, *shapes)))
        return _checked(value, y, scale).astype(dtype)

    def sf(self, x: Any, *args: Any, **options: Any) -> Any:
        """1 - cdf, to its own last digits."""
        y, shapes, scale, dtype = self._at("sf", x, args, options)
        inner, below, above = self._inside(y, shapes)
        share = 1 - self._share("sf")(inner, *shapes) if self.family.sf is None else self.family.sf(inner, *shapes)
        value = mo.where(below, 1.0, mo.where(above, 0.0, share))
        return _checked(value, y, scale).astype(dtype)

    def logcdf(self, x: Any, *args: Any, **options: Any) -> Any:
        if self.family.logcdf is None:
            return mo.log(self.cdf(x, *args, **options))
        y, shapes, scale, dtype = self._at("logcdf", x, args, options)
        inner, below, above = self._inside(y, shapes)
        value = mo.where(below, -mo.inf, mo.where(above, 0.0, self.family.logcdf(inner, *shapes)))
        return _checked(value, y, scale).astype(dtype)

    def logsf(self, x: Any, *args: Any, **options: Any) -> Any:
        if self.name == "norm":
            y, _, scale, dtype = self._at("logsf", x, args, options)
            return _checked(mo.special.log_ndtr(-y), y, scale).astype(dtype)
        return mo.log(self.sf(x, *args, **options))

    def ppf(self, q: Any, *args: Any, **options: Any) -> Any:
        """x with cdf(x) = q."""
        return self._quantile("ppf", q, args, options, upper=False)

    def isf(self, q: Any, *args: Any, **options: Any) -> Any:
        """x with sf(x) = q."""
        return self._quantile("isf", q, args, options, upper=True)

    def _quantile(self, what: str, q: Any, args: tuple[Any, ...], options: dict[str, Any], upper: bool) -> Any:
        if self.family.ppf is None:
            raise fail(ArgumentError, f"{self.name}.{what}", "this distribution has no quantiles here")
        parameters = self._parameters(what, args, options)
        (q, *shapes, loc, scale), dtype = wide(f"{self.name}.{what}", q, *parameters)
        outside = mo.logical_or(q < 0, q > 1)
        share = mo.where(outside, 0.5, 1 - q if upper else q)
        low, high = self.family.support(*shapes)
        ends = mo.logical_or(share == 0, share == 1)
        value = self.family.ppf(mo.where(ends, 0.5, share), *shapes)
        value = mo.where(share == 0, low, mo.where(share == 1, high, value))
        return mo.where(outside, mo.nan, value * scale + loc).astype(dtype)

    def median(self, *args: Any, **options: Any) -> Any:
        return self.ppf(0.5, *args, **options)

    def interval(self, confidence: Any, *args: Any, **options: Any) -> tuple[Any, Any]:
        rest = (1 - mo.asarray(confidence)) / 2
        return self.ppf(rest, *args, **options), self.ppf(1 - rest, *args, **options)

    def stats(self, *args: Any, moments: str = "mv", **options: Any) -> tuple[Any, ...]:
        return tuple(self.mean(*args, **options) if letter == "m" else self.var(*args, **options) for letter in moments)

    def _moment(self, number: int, what: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self.family.moments is None:
            raise fail(ArgumentError, f"{self.name}.{what}", "this distribution has no closed form for it here")
        (*shapes, loc, scale), dtype = wide(f"{self.name}.{what}", *self._parameters(what, args, options))
        value = self.family.moments(*shapes)[number]
        return (value * scale * scale if number else value * scale + loc).astype(dtype)

    def mean(self, *args: Any, **options: Any) -> Any:
        return self._moment(0, "mean", args, options)

    def var(self, *args: Any, **options: Any) -> Any:
        return self._moment(1, "var", args, options)

    def std(self, *args: Any, **options: Any) -> Any:
        return mo.sqrt(self.var(*args, **options))

    def rvs(self, *args: Any, size: Any = 1, random_state: Any = None, **options: Any) -> Any:
        """Draws by quantiles of uniform numbers, from the stream of `mo.manual_seed` or a generator."""
        rng = mo.random if random_state is None else mo.random.default_rng(random_state)
        share = rng.random(None if size == 1 else size)
        return self.ppf(mo.clip(share, 1e-12, 1 - 1e-7), *args, **options)

    def nll(self, x: Any, *args: Any, **options: Any) -> Any:
        return -mo.sum(self.logpdf(x, *args, **options))

    def __call__(self, *args: Any, **options: Any) -> Frozen:
        self._parameters(self.name, args, options)
        return Frozen(self, args, options)

    def __repr__(self) -> str:
        return f"<distribution {self.name}>"


class Frozen:
    """A distribution with its parameters: `norm(0, 2).pdf(x)`."""

    def __init__(self, dist: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.dist, self.args, self.kwds = dist, args, options

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.dist, name)
        if not callable(method):
            return method
        if name in ("mean", "var", "std", "median", "stats", "rvs", "entropy"):
            def call(*args: Any, **options: Any) -> Any:
                return method(*self.args, **dict(zip(("size", "random_state"), args, strict=False)), **self.kwds,
                              **options)

            return call
        return lambda x, *args, **options: method(x, *self.args, *args, **self.kwds, **options)


def _number_in(low: Any, high: Any, like: mo.Tensor) -> Any:
    low, high = mo.zeros_like(like) + low, mo.zeros_like(like) + high
    bounded = mo.logical_and(mo.isfinite(low), mo.isfinite(high))
    middle = mo.where(bounded, 0.5 * (low + high), mo.where(mo.isfinite(low), low + 1.0, mo.zeros_like(like)))
    return middle


def _checked(value: Any, y: Any, scale: Any) -> Any:
    return mo.where(mo.isnan(y), y, mo.where(scale > 0, value, mo.nan))


# -- families ------------------------------------------------------------------------------------------------------
S = mo.special
POSITIVE: Function = lambda *shapes: (0.0, math.inf)
UNIT: Function = lambda *shapes: (0.0, 1.0)


def _xlogy(x: Any, y: Any) -> Any:
    return S.xlogy(x, y)


def _but_at_zero(x: Any, logpdf: Function) -> Any:
    """A density that is 0 at 0, where its formula has no value."""
    return mo.where(x == 0, -mo.inf, logpdf(mo.where(x == 0, 1.0, x)))


def _t_logpdf(x: Any, df: Any) -> Any:
    return (S.lgamma(0.5 * (df + 1)) - S.lgamma(0.5 * df) - 0.5 * mo.log(df * math.pi)
            - 0.5 * (df + 1) * mo.log1p(x * x / df))


def _gamma_logpdf(x: Any, a: Any) -> Any:
    return _xlogy(a - 1, x) - x - S.lgamma(a)


def _beta_logpdf(x: Any, a: Any, b: Any) -> Any:
    return _xlogy(a - 1, x) + S.xlog1py(b - 1, -x) - S.betaln(a, b)


def _f_logpdf(x: Any, n: Any, d: Any) -> Any:
    return (0.5 * n * mo.log(n) + 0.5 * d * mo.log(d) + _xlogy(0.5 * n - 1, x) - 0.5 * (n + d) * mo.log(d + n * x)
            - S.betaln(0.5 * n, 0.5 * d))


def _log_difference(a: Any, b: Any) -> Any:
    """log(ndtr(b) - ndtr(a)), from the tail where both lie in one."""
    turned = a > 0
    low, high = mo.where(turned, -b, a), mo.where(turned, -a, b)
    top, bottom = S.log_ndtr(high), S.log_ndtr(low)
    return top + mo.log1p(-mo.exp(bottom - top))


def _truncated_cdf(x: Any, a: Any, b: Any) -> Any:
    return mo.where(x <= a, 0.0, mo.exp(_log_difference(a, mo.maximum(x, a + 1e-300)) - _log_difference(a, b)))


def _truncated_ppf(q: Any, a: Any, b: Any) -> Any:
    low = S.ndtri(S.ndtr(a) + q * (S.ndtr(b) - S.ndtr(a)))
    high = -S.ndtri(S.ndtr(-a) - q * (S.ndtr(-a) - S.ndtr(-b)))
    return mo.clip(mo.where(a > 0, high, low), a, b)


def _truncated_moments(a: Any, b: Any) -> Any:
    first, last = mo.exp(-0.5 * a * a) / math.sqrt(2 * math.pi), mo.exp(-0.5 * b * b) / math.sqrt(2 * math.pi)
    share = mo.exp(_log_difference(a, b))
    mean = (first - last) / share
    ends = mo.where(mo.isfinite(a), a, 0.0) * first - mo.where(mo.isfinite(b), b, 0.0) * last
    return mean, 1 + ends / share - mean * mean


def _vonmises_logpdf(x: Any, kappa: Any) -> Any:
    return kappa * (mo.cos(x) - 1) - math.log(2 * math.pi) - mo.log(S.i0e(kappa))


FAMILIES = [
    Family("norm", "", lambda x: -0.5 * x * x - HALF_LOG_2PI, lambda x: S.ndtr(x), lambda x: S.ndtr(-x),
           lambda q: S.ndtri(q), moments=lambda: (0.0, 1.0), logcdf=lambda x: S.log_ndtr(x)),
    Family("uniform", "", lambda x: mo.zeros_like(x), lambda x: x, lambda x: 1 - x, lambda q: q, UNIT,
           lambda: (0.5, 1 / 12)),
    Family("expon", "", lambda x: -x, lambda x: -mo.expm1(-x), lambda x: mo.exp(-x), lambda q: -mo.log1p(-q), POSITIVE,
           lambda: (1.0, 1.0)),
    Family("laplace", "", lambda x: -mo.abs(x) - math.log(2),
           lambda x: mo.where(x > 0, 1 - 0.5 * mo.exp(-mo.abs(x)), 0.5 * mo.exp(-mo.abs(x))),
           lambda x: mo.where(x > 0, 0.5 * mo.exp(-mo.abs(x)), 1 - 0.5 * mo.exp(-mo.abs(x))),
           lambda q: mo.where(q > 0.5, -mo.log(2 * (1 - q)), mo.log(2 * q)), moments=lambda: (0.0, 2.0)),
    Family("logistic", "", lambda x: -mo.abs(x) - 2 * mo.log1p(mo.exp(-mo.abs(x))), lambda x: mo.sigmoid(x),
           lambda x: mo.sigmoid(-x), lambda q: mo.log(q) - mo.log1p(-q), moments=lambda: (0.0, math.pi**2 / 3),
           logcdf=lambda x: -mo.softplus(-x)),
    Family("cauchy", "", lambda x: -math.log(math.pi) - mo.log1p(x * x),
           lambda x: mo.atan2(mo.ones_like(x), -x) / math.pi,
           lambda x: mo.atan2(mo.ones_like(x), x) / math.pi, lambda q: mo.tan(math.pi * (q - 0.5)),
           moments=lambda: (math.nan, math.nan)),
    Family("gumbel_r", "", lambda x: -x - mo.exp(-x), lambda x: mo.exp(-mo.exp(-x)), lambda x: -mo.expm1(-mo.exp(-x)),
           lambda q: -mo.log(-mo.log(q)), moments=lambda: (0.57721566490153286, math.pi**2 / 6)),
    Family("gumbel_l", "", lambda x: x - mo.exp(x), lambda x: -mo.expm1(-mo.exp(x)), lambda x: mo.exp(-mo.exp(x)),
           lambda q: mo.log(-mo.log1p(-q)), moments=lambda: (-0.57721566490153286, math.pi**2 / 6)),
    Family("halfnorm", "", lambda x: -0.5 * x * x - HALF_LOG_2PI + math.log(2), lambda x: mo.erf(x * math.sqrt(0.5)),
           lambda x: mo.erfc(x * math.sqrt(0.5)), lambda q: S.ndtri(0.5 * (1 + q)), POSITIVE,
           lambda: (math.sqrt(2 / math.pi), 1 - 2 / math.pi)),
    Family("halfcauchy", "", lambda x: math.log(2 / math.pi) - mo.log1p(x * x), lambda x: mo.atan(x) * (2 / math.pi),
           lambda x: mo.atan2(mo.ones_like(x), x) * (2 / math.pi), lambda q: mo.tan(0.5 * math.pi * q), POSITIVE,
           lambda: (math.inf, math.inf)),
    Family("rayleigh", "", lambda x: mo.log(x) - 0.5 * x * x, lambda x: -mo.expm1(-0.5 * x * x),
           lambda x: mo.exp(-0.5 * x * x), lambda q: mo.sqrt(-2 * mo.log1p(-q)), POSITIVE,
           lambda: (math.sqrt(math.pi / 2), 2 - math.pi / 2)),
    Family("t", "df", _t_logpdf, lambda x, df: S.stdtr(df, x), lambda x, df: S.stdtr(df, -x),
           lambda q, df: S.stdtrit(df, q),
           moments=lambda df: (mo.where(df > 1, 0.0, mo.inf).astype(df.dtype),
                               mo.where(df > 2, df / mo.where(df > 2, df - 2, 1.0), mo.inf))),
    Family("chi2", "df", lambda x, df: _gamma_logpdf(0.5 * x, 0.5 * df) - math.log(2),
           lambda x, df: S.gammainc(0.5 * df, 0.5 * x), lambda x, df: S.gammaincc(0.5 * df, 0.5 * x),
           lambda q, df: 2 * S.gammaincinv(0.5 * df, q), POSITIVE, lambda df: (df, 2 * df)),
    Family("gamma", "a", _gamma_logpdf, lambda x, a: S.gammainc(a, x), lambda x, a: S.gammaincc(a, x),
           lambda q, a: S.gammaincinv(a, q), POSITIVE, lambda a: (a, a)),
    Family("invgamma", "a", lambda x, a: _but_at_zero(x, lambda x: -(a + 1) * mo.log(x) - S.lgamma(a) - 1 / x),
           lambda x, a: S.gammaincc(a, 1 / x), lambda x, a: S.gammainc(a, 1 / x),
           lambda q, a: 1 / S.gammainccinv(a, q), POSITIVE,
           lambda a: (1 / (a - 1), 1 / ((a - 1) * (a - 1) * (a - 2)))),
    Family("beta", "a b", _beta_logpdf, lambda x, a, b: S.betainc(a, b, x), lambda x, a, b: S.betainc(b, a, 1 - x),
           lambda q, a, b: S.betaincinv(a, b, q), UNIT,
           lambda a, b: (a / (a + b), a * b / (mo.square(a + b) * (a + b + 1)))),
    Family("f", "dfn dfd", _f_logpdf, lambda x, n, d: S.fdtr(n, d, x), lambda x, n, d: S.fdtrc(n, d, x),
           lambda q, n, d: S.fdtri(n, d, q), POSITIVE,
           lambda n, d: (d / (d - 2), 2 * d * d * (n + d - 2) / (n * mo.square(d - 2) * (d - 4)))),
    Family("lognorm", "s", lambda x, s: _but_at_zero(
        x, lambda x: -0.5 * mo.square(mo.log(x) / s) - mo.log(s * x) - HALF_LOG_2PI),
           lambda x, s: S.ndtr(mo.log(x) / s), lambda x, s: S.ndtr(-mo.log(x) / s), lambda q, s: mo.exp(s * S.ndtri(q)),
           POSITIVE, lambda s: (mo.exp(0.5 * s * s), mo.expm1(s * s) * mo.exp(s * s))),
    Family("pareto", "b", lambda x, b: mo.log(b) - (b + 1) * mo.log(x), lambda x, b: -mo.expm1(-b * mo.log(x)),
           lambda x, b: mo.exp(-b * mo.log(x)), lambda q, b: mo.exp(-mo.log1p(-q) / b), lambda b: (1.0, math.inf),
           lambda b: (mo.where(b > 1, b / mo.where(b > 1, b - 1, 1.0), mo.inf),
                      mo.where(b > 2, b / mo.where(b > 2, mo.square(b - 1) * (b - 2), 1.0), mo.inf))),
    Family("weibull_min", "c", lambda x, c: mo.log(c) + _xlogy(c - 1, x) - mo.pow(x, c),
           lambda x, c: -mo.expm1(-mo.pow(x, c)), lambda x, c: mo.exp(-mo.pow(x, c)),
           lambda q, c: mo.pow(-mo.log1p(-q), 1 / c), POSITIVE,
           lambda c: (mo.exp(S.lgamma(1 + 1 / c)), mo.exp(S.lgamma(1 + 2 / c)) - mo.exp(2 * S.lgamma(1 + 1 / c)))),
    Family("truncnorm", "a b", lambda x, a, b: -0.5 * x * x - HALF_LOG_2PI - _log_difference(a, b), _truncated_cdf,
           lambda x, a, b: 1 - _truncated_cdf(x, a, b), _truncated_ppf, lambda a, b: (a, b), _truncated_moments),
    Family("triang", "c", lambda x, c: mo.log(2 * mo.where(x < c, x / mo.where(c > 0, c, 1.0),
                                                           (1 - x) / mo.where(c < 1, 1 - c, 1.0))),
           lambda x, c: mo.where(x < c, x * x / mo.where(c > 0, c, 1.0),
                                 1 - mo.square(1 - x) / mo.where(c < 1, 1 - c, 1.0)),
           None, lambda q, c: mo.where(q < c, mo.sqrt(c * q), 1 - mo.sqrt((1 - c) * (1 - q))), UNIT,
           lambda c: ((1 + c) / 3, (1 - c + c * c) / 18)),
    Family("gennorm", "beta", lambda x, b: mo.log(0.5 * b) - S.lgamma(1 / b) - mo.pow(mo.abs(x), b),
           lambda x, b: 0.5 + 0.5 * mo.sign(x) * S.gammainc(1 / b, mo.pow(mo.abs(x), b)), None,
           lambda q, b: mo.sign(q - 0.5) * mo.pow(S.gammaincinv(1 / b, mo.abs(2 * q - 1)), 1 / b),
           moments=lambda b: (mo.zeros_like(b), mo.exp(S.lgamma(3 / b) - S.lgamma(1 / b)))),
    Family("vonmises", "kappa", _vonmises_logpdf, None),
    Family("wrapcauchy", "c", lambda x, c: mo.log((1 - c * c) / (2 * math.pi * (1 + c * c - 2 * c * mo.cos(x)))),
           lambda x, c: mo.where(x < math.pi, mo.atan((1 + c) / (1 - c) * mo.tan(0.5 * x)) / math.pi,
                                 1 - mo.atan((1 + c) / (1 - c) * mo.tan(0.5 * (2 * math.pi - x))) / math.pi),
           support=lambda c: (0.0, 2 * math.pi)),
]
DISTRIBUTIONS = {family.name: Distribution(family) for family in FAMILIES}
