"""Continuous distributions under PyTorch's names."""

from __future__ import annotations

import math
from typing import Any

import morpho as mo
from morpho.distributions.base import Distribution, register_kl, tensor, together

LOG_ROOT = 0.5 * math.log(2 * math.pi)
EULER = 0.5772156649015329


class Normal(Distribution):
    """The normal distribution."""

    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        self.loc, self.scale = together(loc, scale)
        super().__init__(self.loc.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return self.loc + self.scale * mo.random.normal(key, shape, dtype=self.loc.dtype)

    def log_prob(self, value: Any) -> mo.Tensor:
        return -0.5 * mo.square((tensor(value) - self.loc) / self.scale) - mo.log(self.scale) - LOG_ROOT

    def entropy(self) -> mo.Tensor:
        return 0.5 + LOG_ROOT + mo.log(self.scale)

    def cdf(self, value: Any) -> mo.Tensor:
        return 0.5 * (1 + mo.erf((tensor(value) - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Any) -> mo.Tensor:
        return self.loc + self.scale * math.sqrt(2) * mo.erfinv(2 * tensor(value) - 1)

    @property
    def mean(self) -> mo.Tensor:
        return self.loc

    @property
    def variance(self) -> mo.Tensor:
        return mo.square(self.scale)


class LogNormal(Normal):
    """exp of a normal variable."""

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return mo.exp(super()._draw(key, shape))

    def log_prob(self, value: Any) -> mo.Tensor:
        line = mo.log(tensor(value))
        return super().log_prob(line) - line

    def entropy(self) -> mo.Tensor:
        return super().entropy() + self.loc

    def cdf(self, value: Any) -> mo.Tensor:
        return super().cdf(mo.log(tensor(value)))

    @property
    def mean(self) -> mo.Tensor:
        return mo.exp(self.loc + mo.square(self.scale) / 2)

    @property
    def variance(self) -> mo.Tensor:
        square = mo.square(self.scale)
        return mo.expm1(square) * mo.exp(2 * self.loc + square)


class HalfNormal(Distribution):
    """The size of a normal variable around 0."""

    has_rsample = True

    def __init__(self, scale: Any, validate_args: Any = None) -> None:
        self.scale = tensor(scale)
        super().__init__(self.scale.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return mo.abs(mo.random.normal(key, shape)) * self.scale

    def log_prob(self, value: Any) -> mo.Tensor:
        value = tensor(value)
        line = Normal(0.0, self.scale).log_prob(value) + math.log(2)
        return mo.where(value >= 0, line, -mo.inf)

    def entropy(self) -> mo.Tensor:
        return Normal(0.0, self.scale).entropy() - math.log(2)

    @property
    def mean(self) -> mo.Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> mo.Tensor:
        return mo.square(self.scale) * (1 - 2 / math.pi)


class _Placed(Distribution):
    """Families with a place and a scale, drawn by a function of `mo.random`."""

    has_rsample = True
    drawn = ""

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        self.loc, self.scale = together(loc, scale)
        super().__init__(self.loc.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return self.loc + self.scale * getattr(mo.random, self.drawn)(key, shape)

    def _unit(self, value: Any) -> mo.Tensor:
        return (tensor(value) - self.loc) / self.scale

    @property
    def mean(self) -> mo.Tensor:
        return self.loc


class Laplace(_Placed):
    """The double exponential distribution."""

    drawn = "laplace"

    def log_prob(self, value: Any) -> mo.Tensor:
        return -mo.abs(self._unit(value)) - mo.log(2 * self.scale)

    def entropy(self) -> mo.Tensor:
        return 1 + mo.log(2 * self.scale)

    @property
    def variance(self) -> mo.Tensor:
        return 2 * mo.square(self.scale)


class Cauchy(_Placed):
    """The Cauchy distribution, which has no moments."""

    drawn = "cauchy"

    def log_prob(self, value: Any) -> mo.Tensor:
        return -mo.log1p(mo.square(self._unit(value))) - mo.log(self.scale) - math.log(math.pi)

    def entropy(self) -> mo.Tensor:
        return math.log(4 * math.pi) + mo.log(self.scale)

    @property
    def mean(self) -> mo.Tensor:
        return self.loc * mo.nan

    @property
    def variance(self) -> mo.Tensor:
        return self.loc * mo.nan


class HalfCauchy(Cauchy):
    """The size of a Cauchy variable around 0."""

    def __init__(self, scale: Any, validate_args: Any = None) -> None:
        super().__init__(0.0, scale)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return mo.abs(super()._draw(key, shape))

    def log_prob(self, value: Any) -> mo.Tensor:
        return mo.where(tensor(value) >= 0, super().log_prob(value) + math.log(2), -mo.inf)

    def entropy(self) -> mo.Tensor:
        return super().entropy() - math.log(2)


class Gumbel(_Placed):
    """The distribution of the largest of many."""

    drawn = "gumbel"

    def log_prob(self, value: Any) -> mo.Tensor:
        unit = self._unit(value)
        return -(unit + mo.exp(-unit)) - mo.log(self.scale)

    def entropy(self) -> mo.Tensor:
        return mo.log(self.scale) + 1 + EULER

    @property
    def mean(self) -> mo.Tensor:
        return self.loc + self.scale * EULER

    @property
    def variance(self) -> mo.Tensor:
        return mo.square(self.scale) * (math.pi ** 2 / 6)


class Uniform(Distribution):
    """Evenly between two numbers."""

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: Any = None) -> None:
        self.low, self.high = together(low, high)
        super().__init__(self.low.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return self.low + (self.high - self.low) * mo.random.uniform(key, shape)

    def log_prob(self, value: Any) -> mo.Tensor:
        value = tensor(value)
        inside = mo.logical_and(value >= self.low, value < self.high)
        return mo.where(inside, -mo.log(self.high - self.low), -mo.inf)

    def entropy(self) -> mo.Tensor:
        return mo.log(self.high - self.low)

    def cdf(self, value: Any) -> mo.Tensor:
        return mo.clip((tensor(value) - self.low) / (self.high - self.low), 0, 1)

    @property
    def mean(self) -> mo.Tensor:
        return (self.low + self.high) / 2

    @property
    def variance(self) -> mo.Tensor:
        return mo.square(self.high - self.low) / 12


class Gamma(Distribution):
    """The gamma distribution by its concentration and rate."""

    def __init__(self, concentration: Any, rate: Any, validate_args: Any = None) -> None:
        self.concentration, self.rate = together(concentration, rate)
        super().__init__(self.rate.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return mo.random.gamma(key, self.concentration, shape) / self.rate

    def log_prob(self, value: Any) -> mo.Tensor:
        value, a = tensor(value), self.concentration
        return mo.xlogy(a, self.rate) + mo.xlogy(a - 1, value) - self.rate * value - mo.lgamma(a)

    def entropy(self) -> mo.Tensor:
        a = self.concentration
        return a - mo.log(self.rate) + mo.lgamma(a) + (1 - a) * mo.digamma(a)

    @property
    def mean(self) -> mo.Tensor:
        return self.concentration / self.rate

    @property
    def variance(self) -> mo.Tensor:
        return self.concentration / mo.square(self.rate)


class Exponential(Gamma):
    """The exponential distribution by its rate."""

    has_rsample = True

    def __init__(self, rate: Any, validate_args: Any = None) -> None:
        super().__init__(mo.ones_like(tensor(rate)), rate)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return mo.random.exponential(key, shape) / self.rate

    def cdf(self, value: Any) -> mo.Tensor:
        return -mo.expm1(-self.rate * tensor(value))


class Chi2(Gamma):
    """The chi-square distribution by its degrees of freedom."""

    def __init__(self, df: Any, validate_args: Any = None) -> None:
        self.df = tensor(df)
        super().__init__(self.df / 2, mo.full_like(self.df, 0.5))


class InverseGamma(Gamma):
    """1 over a gamma variable."""

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return 1 / super()._draw(key, shape)

    def log_prob(self, value: Any) -> mo.Tensor:
        value = tensor(value)
        return super().log_prob(1 / value) - 2 * mo.log(value)

    def entropy(self) -> mo.Tensor:
        a = self.concentration
        return a + mo.log(self.rate) + mo.lgamma(a) - (1 + a) * mo.digamma(a)

    @property
    def mean(self) -> mo.Tensor:
        return mo.where(self.concentration > 1, self.rate / (self.concentration - 1), mo.inf)

    @property
    def variance(self) -> mo.Tensor:
        a = self.concentration
        return mo.where(a > 2, mo.square(self.rate) / (mo.square(a - 1) * (a - 2)), mo.inf)


class Beta(Distribution):
    """The beta distribution."""

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: Any = None) -> None:
        self.concentration1, self.concentration0 = together(concentration1, concentration0)
        super().__init__(self.concentration1.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return mo.random.beta(key, self.concentration1, self.concentration0, shape)

    def log_prob(self, value: Any) -> mo.Tensor:
        value, a, b = tensor(value), self.concentration1, self.concentration0
        return mo.xlogy(a - 1, value) + mo.special.xlog1py(b - 1, -value) - mo.special.betaln(a, b)

    def entropy(self) -> mo.Tensor:
        a, b = self.concentration1, self.concentration0
        return (mo.special.betaln(a, b) - (a - 1) * mo.digamma(a) - (b - 1) * mo.digamma(b)
                + (a + b - 2) * mo.digamma(a + b))

    @property
    def mean(self) -> mo.Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self) -> mo.Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (mo.square(total) * (total + 1))


class Dirichlet(Distribution):
    """Shares that sum to 1."""

    def __init__(self, concentration: Any, validate_args: Any = None) -> None:
        self.concentration = tensor(concentration)
        super().__init__(self.concentration.shape[:-1], self.concentration.shape[-1:])

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        drawn = mo.random.gamma(key, self.concentration, (*shape, *self.event_shape))
        return drawn / mo.sum(drawn, axis=-1, keepdims=True)

    def log_prob(self, value: Any) -> mo.Tensor:
        a = self.concentration
        return (mo.sum(mo.xlogy(a - 1, tensor(value)), axis=-1) + mo.lgamma(mo.sum(a, axis=-1))
                - mo.sum(mo.lgamma(a), axis=-1))

    @property
    def mean(self) -> mo.Tensor:
        return self.concentration / mo.sum(self.concentration, axis=-1, keepdims=True)

    @property
    def variance(self) -> mo.Tensor:
        total = mo.sum(self.concentration, axis=-1, keepdims=True)
        return self.concentration * (total - self.concentration) / (mo.square(total) * (total + 1))


class StudentT(Distribution):
    """Student's distribution."""

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: Any = None) -> None:
        self.df, self.loc, self.scale = together(df, loc, scale)
        super().__init__(self.df.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return self.loc + self.scale * mo.random.student_t(key, self.df, shape)

    def log_prob(self, value: Any) -> mo.Tensor:
        unit, n = (tensor(value) - self.loc) / self.scale, self.df
        rest = (mo.log(self.scale) + 0.5 * mo.log(n) + 0.5 * math.log(math.pi) + mo.lgamma(n / 2)
                - mo.lgamma((n + 1) / 2))
        return -0.5 * (n + 1) * mo.log1p(unit * unit / n) - rest

    @property
    def mean(self) -> mo.Tensor:
        return mo.where(self.df > 1, self.loc, mo.nan)

    @property
    def variance(self) -> mo.Tensor:
        known = mo.square(self.scale) * self.df / mo.where(self.df > 2, self.df - 2, 1.0)
        return mo.where(self.df > 2, known, mo.where(self.df > 1, mo.inf, mo.nan))


class FisherSnedecor(Distribution):
    """The quotient of two chi-square variables over their degrees of freedom."""

    def __init__(self, df1: Any, df2: Any, validate_args: Any = None) -> None:
        self.df1, self.df2 = together(df1, df2)
        super().__init__(self.df1.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        first, second = mo.random.split(key)
        return (mo.random.chisquare(first, self.df1, shape) / self.df1) / (
            mo.random.chisquare(second, self.df2, shape) / self.df2)

    def log_prob(self, value: Any) -> mo.Tensor:
        value, a, b = tensor(value), self.df1 / 2, self.df2 / 2
        share = self.df1 / self.df2
        return (a * mo.log(share) + (a - 1) * mo.log(value) - (a + b) * mo.log1p(share * value)
                - mo.special.betaln(a, b))

    @property
    def mean(self) -> mo.Tensor:
        return mo.where(self.df2 > 2, self.df2 / (self.df2 - 2), mo.nan)

    @property
    def variance(self) -> mo.Tensor:
        a, b = self.df1, self.df2
        return mo.where(b > 4, 2 * b * b * (a + b - 2) / (a * mo.square(b - 2) * (b - 4)), mo.nan)


class _Inverse(Distribution):
    """Families drawn by the inverse of their distribution function."""

    has_rsample = True


class Pareto(_Inverse):
    """A power law from `scale` on."""

    def __init__(self, scale: Any, alpha: Any, validate_args: Any = None) -> None:
        self.scale, self.alpha = together(scale, alpha)
        super().__init__(self.scale.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return self.scale * mo.exp(mo.random.exponential(key, shape) / self.alpha)

    def log_prob(self, value: Any) -> mo.Tensor:
        value = tensor(value)
        line = mo.log(self.alpha) + self.alpha * mo.log(self.scale) - (self.alpha + 1) * mo.log(value)
        return mo.where(value >= self.scale, line, -mo.inf)

    def entropy(self) -> mo.Tensor:
        return mo.log(self.scale / self.alpha) + 1 + 1 / self.alpha

    @property
    def mean(self) -> mo.Tensor:
        return mo.where(self.alpha > 1, self.alpha * self.scale / (self.alpha - 1), mo.inf)

    @property
    def variance(self) -> mo.Tensor:
        a = self.alpha
        return mo.where(a > 2, mo.square(self.scale) * a / (mo.square(a - 1) * (a - 2)), mo.inf)


class Weibull(_Inverse):
    """A power of an exponential variable."""

    def __init__(self, scale: Any, concentration: Any, validate_args: Any = None) -> None:
        self.scale, self.concentration = together(scale, concentration)
        super().__init__(self.scale.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return self.scale * mo.random.exponential(key, shape) ** (1 / self.concentration)

    def log_prob(self, value: Any) -> mo.Tensor:
        unit, k = tensor(value) / self.scale, self.concentration
        return mo.log(k / self.scale) + (k - 1) * mo.log(unit) - unit ** k

    def entropy(self) -> mo.Tensor:
        return EULER * (1 - 1 / self.concentration) + mo.log(self.scale / self.concentration) + 1

    @property
    def mean(self) -> mo.Tensor:
        return self.scale * mo.exp(mo.lgamma(1 + 1 / self.concentration))

    @property
    def variance(self) -> mo.Tensor:
        k = self.concentration
        return mo.square(self.scale) * (mo.exp(mo.lgamma(1 + 2 / k)) - mo.exp(2 * mo.lgamma(1 + 1 / k)))


class Kumaraswamy(_Inverse):
    """Like the beta distribution, with a distribution function in closed form."""

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: Any = None) -> None:
        self.concentration1, self.concentration0 = together(concentration1, concentration0)
        super().__init__(self.concentration1.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        rest = mo.exp(-mo.random.exponential(key, shape) / self.concentration0)
        return (1 - rest) ** (1 / self.concentration1)

    def log_prob(self, value: Any) -> mo.Tensor:
        value, a, b = tensor(value), self.concentration1, self.concentration0
        return mo.log(a * b) + (a - 1) * mo.log(value) + (b - 1) * mo.log1p(-value ** a)

    @property
    def mean(self) -> mo.Tensor:
        return self._moment(1)

    @property
    def variance(self) -> mo.Tensor:
        return self._moment(2) - mo.square(self._moment(1))

    def _moment(self, n: int) -> mo.Tensor:
        a, b = self.concentration1, self.concentration0
        return b * mo.exp(mo.special.betaln(1 + n / a, b))


class MultivariateNormal(Distribution):
    """Normal vectors by a covariance, a precision or a triangular factor."""

    has_rsample = True

    def __init__(self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
                 validate_args: Any = None) -> None:
        self.loc = tensor(loc)
        if scale_tril is None:
            matrix = tensor(covariance_matrix) if covariance_matrix is not None else \
                mo.linalg.inv(tensor(precision_matrix))
            scale_tril = mo.linalg.cholesky(matrix)
        self.scale_tril = tensor(scale_tril)
        lead = mo.broadcast_arrays(self.loc, self.scale_tril[..., 0])[0].shape
        super().__init__(lead[:-1], lead[-1:])

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        drawn = mo.random.normal(key, (*shape, *self.event_shape, 1))
        return self.loc + mo.matmul(self.scale_tril, drawn)[..., 0]

    def _size(self) -> mo.Tensor:
        return mo.sum(mo.log(mo.linalg.diagonal(self.scale_tril)), axis=-1)

    def log_prob(self, value: Any) -> mo.Tensor:
        gap = (tensor(value) - self.loc)[..., None]
        factor = mo.broadcast_to(self.scale_tril, (*gap.shape[:-2], *self.scale_tril.shape[-2:]))
        unit = mo.linalg.solve_triangular(factor, gap, upper=False)
        count = self.event_shape[0]
        return -0.5 * mo.sum(mo.square(unit), axis=(-2, -1)) - self._size() - count * LOG_ROOT

    def entropy(self) -> mo.Tensor:
        return self.event_shape[0] * (0.5 + LOG_ROOT) + self._size()

    @property
    def covariance_matrix(self) -> mo.Tensor:
        return mo.matmul(self.scale_tril, mo.matrix_transpose(self.scale_tril))

    @property
    def mean(self) -> mo.Tensor:
        return self.loc

    @property
    def variance(self) -> mo.Tensor:
        return mo.sum(mo.square(self.scale_tril), axis=-1)


# -- divergences ---------------------------------------------------------------------------------------------------
@register_kl(Normal, Normal)
def _normals(p: Normal, q: Normal) -> mo.Tensor:
    ratio = mo.square(p.scale / q.scale)
    return 0.5 * (ratio + mo.square((p.loc - q.loc) / q.scale) - 1 - mo.log(ratio))


@register_kl(Laplace, Laplace)
def _laplaces(p: Laplace, q: Laplace) -> mo.Tensor:
    ratio, gap = p.scale / q.scale, mo.abs(p.loc - q.loc)
    return -mo.log(ratio) + gap / q.scale + ratio * mo.exp(-gap / p.scale) - 1


@register_kl(Gamma, Gamma)
def _gammas(p: Gamma, q: Gamma) -> mo.Tensor:
    a, b = p.concentration, q.concentration
    return (b * mo.log(p.rate / q.rate) + mo.lgamma(b) - mo.lgamma(a) + (a - b) * mo.digamma(a)
            + (q.rate - p.rate) * (a / p.rate))


@register_kl(Beta, Beta)
def _betas(p: Beta, q: Beta) -> mo.Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    return (mo.special.betaln(c, d) - mo.special.betaln(a, b) + (a - c) * mo.digamma(a) + (b - d) * mo.digamma(b)
            + (c + d - a - b) * mo.digamma(a + b))


@register_kl(Dirichlet, Dirichlet)
def _dirichlets(p: Dirichlet, q: Dirichlet) -> mo.Tensor:
    a, b = p.concentration, q.concentration
    total = mo.sum(a, axis=-1)
    rest = mo.sum((a - b) * (mo.digamma(a) - mo.digamma(total)[..., None]), axis=-1)
    return (mo.lgamma(total) - mo.lgamma(mo.sum(b, axis=-1)) - mo.sum(mo.lgamma(a) - mo.lgamma(b), axis=-1) + rest)


@register_kl(Uniform, Uniform)
def _uniforms(p: Uniform, q: Uniform) -> mo.Tensor:
    outside = mo.logical_or(q.low > p.low, q.high < p.high)
    return mo.where(outside, mo.inf, mo.log((q.high - q.low) / (p.high - p.low)))


@register_kl(MultivariateNormal, MultivariateNormal)
def _vectors(p: MultivariateNormal, q: MultivariateNormal) -> mo.Tensor:
    ratio = mo.linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    gap = mo.linalg.solve_triangular(q.scale_tril, (q.loc - p.loc)[..., None], upper=False)
    squares = mo.sum(mo.square(ratio), axis=(-2, -1)) + mo.sum(mo.square(gap), axis=(-2, -1))
    return q._size() - p._size() + 0.5 * (squares - p.event_shape[0])
