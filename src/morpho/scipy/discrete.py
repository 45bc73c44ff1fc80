"""Discrete and multivariate distributions as SciPy names and calls them.

>>> from morpho.scipy import stats
>>> stats.poisson.pmf([0, 1], 2.0).tolist(), stats.binom.cdf(3, 10, 0.5).item()
([0.135335..., 0.270670...], 0.171875)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.scipy.continuous import Frozen
from morpho.scipy.integrals import wide

S = mo.special
Function = Callable[..., Any]


@dataclass(frozen=True)
class Counts:
    name: str
    shapes: str
    logpmf: Function
    cdf: Function | None
    support: Function
    moments: Function


class Discrete:
    """pmf, cdf and the rest of one family of counts, with `loc`; called with parameters it is a frozen one."""

    def __init__(self, family: Counts) -> None:
        self.family, self.name, self.shapes = family, family.name, family.shapes.split()

    def _at(self, what: str, k: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        words = [*self.shapes, "loc"]
        values = dict(zip(words, args, strict=False))
        strange = [key for key in options if key not in words or key in values]
        if len(args) > len(words) or strange or any(word not in {**values, **options} for word in self.shapes):
            raise fail(ArgumentError, f"{self.name}.{what}", f"these are not the arguments of {what}()",
                       f"it takes (k, {', '.join(self.shapes)}, loc=0)")
        values = {"loc": 0.0, **values, **options}
        (k, *shapes, loc), dtype = wide(f"{self.name}.{what}", k, *[values[word] for word in words])
        return k - loc, shapes, dtype

    def _log(self, k: Any, shapes: list[Any]) -> Any:
        low, high = self.family.support(*shapes)
        outside = mo.logical_or(mo.logical_or(k < low, k > high), k != mo.floor(k))
        inner = mo.where(outside, mo.zeros_like(k) + low, k)
        return mo.where(mo.isnan(k), k, mo.where(outside, -mo.inf, self.family.logpmf(inner, *shapes)))

    def logpmf(self, k: Any, *args: Any, **options: Any) -> Any:
        k, shapes, dtype = self._at("logpmf", k, args, options)
        return self._log(k, shapes).astype(dtype)

    def pmf(self, k: Any, *args: Any, **options: Any) -> Any:
        k, shapes, dtype = self._at("pmf", k, args, options)
        return mo.exp(self._log(k, shapes)).astype(dtype)

    def cdf(self, k: Any, *args: Any, **options: Any) -> Any:
        share = self.family.cdf
        if share is None:
            raise fail(ArgumentError, f"{self.name}.cdf", "this distribution has no closed form for it here",
                       "add up pmf over the numbers")
        k, shapes, dtype = self._at("cdf", k, args, options)
        low, high = self.family.support(*shapes)
        whole = mo.floor(k)
        inner = mo.minimum(mo.maximum(whole, low), high)
        value = mo.where(whole < low, 0.0, mo.where(whole >= high, 1.0, share(inner, *shapes)))
        return mo.where(mo.isnan(k), k, value).astype(dtype)

    def sf(self, k: Any, *args: Any, **options: Any) -> Any:
        return 1 - self.cdf(k, *args, **options)

    def logcdf(self, k: Any, *args: Any, **options: Any) -> Any:
        return mo.log(self.cdf(k, *args, **options))

    def logsf(self, k: Any, *args: Any, **options: Any) -> Any:
        return mo.log(self.sf(k, *args, **options))

    def mean(self, *args: Any, **options: Any) -> Any:
        return self._moment(0, args, options)

    def var(self, *args: Any, **options: Any) -> Any:
        return self._moment(1, args, options)

    def std(self, *args: Any, **options: Any) -> Any:
        return mo.sqrt(self.var(*args, **options))

    def _moment(self, number: int, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        minus_loc, shapes, dtype = self._at("mean", 0.0, args, options)
        value = self.family.moments(*shapes)[number]
        return (value if number else value - minus_loc).astype(dtype)

    def __call__(self, *args: Any, **options: Any) -> Frozen:
        return Frozen(self, args, options)

    def __repr__(self) -> str:
        return f"<distribution {self.name}>"


def _log_binomial(n: Any, k: Any) -> Any:
    return -mo.log(n + 1) - S.betaln(n - k + 1, k + 1)


def _binom_cdf(k: Any, n: Any, p: Any) -> Any:
    return S.betainc(mo.maximum(n - k, 1e-300), k + 1, 1 - p)


COUNTS = [
    Counts("poisson", "mu", lambda k, mu: S.xlogy(k, mu) - mu - S.lgamma(k + 1),
           lambda k, mu: S.gammaincc(k + 1, mu), lambda mu: (0.0, math.inf), lambda mu: (mu, mu)),
    Counts("bernoulli", "p", lambda k, p: S.xlogy(k, p) + S.xlog1py(1 - k, -p),
           lambda k, p: mo.where(k < 1, 1 - p, 1.0),
           lambda p: (0.0, 1.0), lambda p: (p, p * (1 - p))),
    Counts("binom", "n p", lambda k, n, p: _log_binomial(n, k) + S.xlogy(k, p) + S.xlog1py(n - k, -p), _binom_cdf,
           lambda n, p: (0.0, n), lambda n, p: (n * p, n * p * (1 - p))),
    Counts("nbinom", "n p", lambda k, n, p: S.lgamma(k + n) - S.lgamma(k + 1) - S.lgamma(n) + n * mo.log(p)
           + S.xlog1py(k, -p), lambda k, n, p: S.betainc(n, k + 1, p), lambda n, p: (0.0, math.inf),
           lambda n, p: (n * (1 - p) / p, n * (1 - p) / (p * p))),
    Counts("geom", "p", lambda k, p: S.xlog1py(k - 1, -p) + mo.log(p), lambda k, p: -mo.expm1(k * mo.log1p(-p)),
           lambda p: (1.0, math.inf), lambda p: (1 / p, (1 - p) / (p * p))),
    Counts("betabinom", "n a b", lambda k, n, a, b: _log_binomial(n, k) + S.betaln(k + a, n - k + b) - S.betaln(a, b),
           None, lambda n, a, b: (0.0, n),
           lambda n, a, b: (n * a / (a + b), n * a * b * (a + b + n) / (mo.square(a + b) * (a + b + 1)))),
    Counts("randint", "low high", lambda k, low, high: -mo.log(high - low) + 0 * k,
           lambda k, low, high: (k - low + 1) / (high - low), lambda low, high: (low, high - 1),
           lambda low, high: (0.5 * (low + high - 1), (mo.square(high - low) - 1) / 12)),
    Counts("hypergeom", "M n N", lambda k, M, n, N: _log_binomial(n, k) + _log_binomial(M - n, N - k)
           - _log_binomial(M, N), None,
           lambda M, n, N: (mo.maximum(0.0, N - (M - n)), mo.minimum(n, N)),
           lambda M, n, N: (N * n / M, N * n / M * (M - n) / M * (M - N) / (M - 1))),
]
DISTRIBUTIONS: dict[str, Any] = {family.name: Discrete(family) for family in COUNTS}


# -- of several numbers --------------------------------------------------------------------------------------------
class MultivariateNormal:
    """The normal distribution of vectors; also `multivariate_normal(mean, cov).logpdf(x)`."""

    name = "multivariate_normal"

    def logpdf(self, x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
        x = mo.asarray(x)
        dtype = x.dtype if x.dtype.is_float else mo.float32
        x, cov = x.astype(mo.float64), mo.asarray(cov).astype(mo.float64)
        centre = mo.asarray(0.0 if mean is None else mean)
        size: Any = cov.shape[-1] if cov.ndim else centre.shape[-1] if centre.ndim else 1
        if cov.ndim == 0:
            cov = cov * mo.eye(size, dtype=mo.float64)
        elif cov.ndim == 1:
            cov = mo.diag(cov)
        if x.ndim == 0:
            x = x[None]
        elif size == 1 and x.shape[-1] != 1:
            x = x[..., None]
        if x.shape[-1] != size or cov.shape[-2] != size:
            raise fail(ShapeError, self.name, f"x of shape {tuple(x.shape)} and a covariance of {tuple(cov.shape)} do "
                                              "not fit")
        centred = x - centre.astype(mo.float64)
        factor = mo.linalg.cholesky(cov)
        rows = mo.linalg.solve_triangular(factor, mo.matrix_transpose(mo.reshape(centred, (-1, size))), upper=False)
        square = mo.reshape(mo.sum(rows * rows, axis=0), centred.shape[:-1])
        log_det = 2 * mo.sum(mo.log(mo.diagonal(factor)))
        return (-0.5 * (size * math.log(2 * math.pi) + log_det + square)).astype(dtype)

    def pdf(self, x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
        return mo.exp(self.logpdf(x, mean, cov))

    def rvs(self, mean: Any = None, cov: Any = 1, size: Any = 1, random_state: Any = None) -> Any:
        rng = mo.random if random_state is None else mo.random.default_rng(random_state)
        cov = mo.asarray(cov)
        cov = mo.eye(1) * cov if cov.ndim == 0 else cov
        mean = mo.zeros(cov.shape[-1]) if mean is None else mean
        return rng.multivariate_normal(mean, cov, None if size == 1 else size)

    def __call__(self, mean: Any = None, cov: Any = 1, allow_singular: bool = False, seed: Any = None) -> Frozen:
        return Frozen(self, (mean, cov), {})


class Dirichlet:
    """The Dirichlet distribution of shares."""

    name = "dirichlet"

    def logpdf(self, x: Any, alpha: Any) -> Any:
        x, alpha = mo.asarray(x), mo.asarray(alpha)
        dtype = x.dtype if x.dtype.is_float else mo.float32
        x, alpha = x.astype(mo.float64), alpha.astype(mo.float64)
        if x.shape[0] == alpha.shape[0] - 1:  # SciPy's: the last share is what is left
            x = mo.concat([x, 1 - mo.sum(x, axis=0, keepdims=True)], axis=0)
        weights = mo.reshape(alpha, (-1, *[1] * (x.ndim - 1)))
        scale = mo.sum(S.lgamma(alpha)) - S.lgamma(mo.sum(alpha))
        return (mo.sum(S.xlogy(weights - 1, x), axis=0) - scale).astype(dtype)

    def pdf(self, x: Any, alpha: Any) -> Any:
        return mo.exp(self.logpdf(x, alpha))

    def mean(self, alpha: Any) -> Any:
        return mo.asarray(alpha) / mo.sum(mo.asarray(alpha))

    def var(self, alpha: Any) -> Any:
        total = mo.sum(mo.asarray(alpha))
        share = mo.asarray(alpha) / total
        return share * (1 - share) / (total + 1)

    def __call__(self, alpha: Any, seed: Any = None) -> Frozen:
        return Frozen(self, (alpha,), {})


class Multinomial:
    """Counts of n draws among kinds of probabilities p."""

    name = "multinomial"

    def logpmf(self, x: Any, n: Any, p: Any) -> Any:
        p = mo.asarray(p)
        dtype = p.dtype if p.dtype.is_float else mo.float32
        x, p = mo.asarray(x).astype(mo.float64), p.astype(mo.float64)
        value = S.lgamma(mo.asarray(n).astype(mo.float64) + 1) + mo.sum(S.xlogy(x, p) - S.lgamma(x + 1), axis=-1)
        return mo.where(mo.sum(x, axis=-1) == n, value, -mo.inf).astype(dtype)

    def pmf(self, x: Any, n: Any, p: Any) -> Any:
        return mo.exp(self.logpmf(x, n, p))

    def __call__(self, n: Any, p: Any) -> Frozen:
        return Frozen(self, (n, p), {})


DISTRIBUTIONS |= {"multivariate_normal": MultivariateNormal(), "dirichlet": Dirichlet(), "multinomial": Multinomial()}
