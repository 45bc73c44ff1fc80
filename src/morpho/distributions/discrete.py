"""Discrete distributions under PyTorch's names."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.distributions.base import Distribution, register_kl, tensor, together


class _Logits(Distribution):
    """By probabilities, or by their logits."""

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        if (probs is None) == (logits is None):
            raise mo.errors.ArgumentError(f"[{type(self).__name__}] one of probs and logits is wanted")
        if logits is None:
            self.probs = tensor(probs)
            self.logits = mo.log(self.probs) - mo.log1p(-self.probs)
        else:
            self.logits = tensor(logits)
            self.probs = mo.sigmoid(self.logits)
        super().__init__(self.probs.shape)


class Bernoulli(_Logits):
    """1 with a probability, else 0."""

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return (mo.random.uniform(key, shape) < self.probs).astype(self.probs.dtype)

    def log_prob(self, value: Any) -> mo.Tensor:
        return tensor(value) * self.logits - mo.softplus(self.logits)

    def entropy(self) -> mo.Tensor:
        return mo.softplus(self.logits) - self.probs * self.logits

    @property
    def mean(self) -> mo.Tensor:
        return self.probs

    @property
    def variance(self) -> mo.Tensor:
        return self.probs * (1 - self.probs)


class Geometric(_Logits):
    """Failures before the first success."""

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return mo.floor(-mo.random.exponential(key, shape) / mo.log1p(-self.probs))

    def log_prob(self, value: Any) -> mo.Tensor:
        return mo.special.xlog1py(tensor(value), -self.probs) + mo.log(self.probs)

    def entropy(self) -> mo.Tensor:
        return Bernoulli(logits=self.logits).entropy() / self.probs

    @property
    def mean(self) -> mo.Tensor:
        return 1 / self.probs - 1

    @property
    def variance(self) -> mo.Tensor:
        return (1 / self.probs - 1) / self.probs


class Binomial(_Logits):
    """Successes in `total_count` trials."""

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        super().__init__(probs, logits)
        self.total_count, self.logits, self.probs = together(total_count, self.logits, self.probs)
        self.batch_shape = tuple(self.probs.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        drawn = mo.random.binomial(key, self.total_count.astype(mo.int64), self.probs, shape)
        return drawn.astype(self.probs.dtype)

    def log_prob(self, value: Any) -> mo.Tensor:
        value, n = tensor(value), self.total_count
        ways = mo.lgamma(n + 1) - mo.lgamma(value + 1) - mo.lgamma(n - value + 1)
        return ways + value * self.logits - n * mo.softplus(self.logits)

    @property
    def mean(self) -> mo.Tensor:
        return self.total_count * self.probs

    @property
    def variance(self) -> mo.Tensor:
        return self.mean * (1 - self.probs)


class NegativeBinomial(_Logits):
    """Successes before `total_count` failures."""

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        super().__init__(probs, logits)
        self.total_count, self.logits, self.probs = together(total_count, self.logits, self.probs)
        self.batch_shape = tuple(self.probs.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        first, second = mo.random.split(key)
        rate = mo.random.gamma(first, self.total_count, shape) * mo.exp(self.logits)
        return mo.random.poisson(second, rate).astype(self.probs.dtype)

    def log_prob(self, value: Any) -> mo.Tensor:
        value, n = tensor(value), self.total_count
        ways = mo.lgamma(n + value) - mo.lgamma(value + 1) - mo.lgamma(n)
        return ways - n * mo.softplus(self.logits) - value * mo.softplus(-self.logits)

    @property
    def mean(self) -> mo.Tensor:
        return self.total_count * mo.exp(self.logits)

    @property
    def variance(self) -> mo.Tensor:
        return self.mean / (1 - self.probs)


class Poisson(Distribution):
    """Counts of a rate."""

    def __init__(self, rate: Any, validate_args: Any = None) -> None:
        self.rate = tensor(rate)
        super().__init__(self.rate.shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return mo.random.poisson(key, self.rate, shape).astype(self.rate.dtype)

    def log_prob(self, value: Any) -> mo.Tensor:
        value = tensor(value)
        return mo.xlogy(value, self.rate) - self.rate - mo.lgamma(value + 1)

    @property
    def mean(self) -> mo.Tensor:
        return self.rate

    @property
    def variance(self) -> mo.Tensor:
        return self.rate


class Categorical(Distribution):
    """A class number, drawn by probabilities or logits."""

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        if (probs is None) == (logits is None):
            raise mo.errors.ArgumentError(f"[{type(self).__name__}] one of probs and logits is wanted")
        if logits is None:
            probs = tensor(probs)
            self.probs = probs / mo.sum(probs, axis=-1, keepdims=True)
            self.logits = mo.log(self.probs)
        else:
            self.logits = mo.log_softmax(tensor(logits), axis=-1)
            self.probs = mo.exp(self.logits)
        self.count = self.probs.shape[-1]
        super().__init__(self.probs.shape[:-1])

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return mo.random.categorical(key, mo.broadcast_to(self.logits, (*shape, self.count)))

    def log_prob(self, value: Any) -> mo.Tensor:
        value = mo.asarray(value).astype(mo.int64)
        lines = mo.broadcast_to(self.logits, (*mo.broadcast_arrays(value, self.logits[..., 0])[0].shape, self.count))
        places = mo.broadcast_to(value, lines.shape[:-1])[..., None]
        return mo.take_along_axis(lines, places, axis=-1)[..., 0]

    def entropy(self) -> mo.Tensor:
        return -mo.sum(mo.xlogy(self.probs, self.probs), axis=-1)

    @property
    def mean(self) -> mo.Tensor:
        return mo.sum(self.probs * mo.nan, axis=-1)

    @property
    def variance(self) -> mo.Tensor:
        return self.mean


class OneHotCategorical(Categorical):
    """A class as a row with a single 1, drawn by probabilities or logits."""

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        super().__init__(probs, logits)
        self.event_shape = (self.count,)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        return mo.one_hot(super()._draw(key, shape), self.count)

    def log_prob(self, value: Any) -> mo.Tensor:
        return mo.sum(tensor(value) * mo.where(self.probs > 0, self.logits, 0.0), axis=-1)

    @property
    def mean(self) -> mo.Tensor:
        return self.probs

    @property
    def variance(self) -> mo.Tensor:
        return self.probs * (1 - self.probs)


class Multinomial(Distribution):
    """Counts of the classes of `total_count` draws."""

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        self.total_count, self._one = int(total_count), Categorical(probs, logits)
        self.probs, self.logits = self._one.probs, self._one.logits
        super().__init__(self._one.batch_shape, self.probs.shape[-1:])

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        drawn = mo.random.categorical(key, mo.broadcast_to(self.logits, (self.total_count, *shape, *self.event_shape)))
        return mo.sum(mo.one_hot(drawn, self.event_shape[0]), axis=0)

    def log_prob(self, value: Any) -> mo.Tensor:
        value = tensor(value)
        ways = mo.lgamma(mo.sum(value, axis=-1) + 1) - mo.sum(mo.lgamma(value + 1), axis=-1)
        return ways + mo.sum(mo.xlogy(value, self.probs), axis=-1)

    @property
    def mean(self) -> mo.Tensor:
        return self.total_count * self.probs

    @property
    def variance(self) -> mo.Tensor:
        return self.total_count * self.probs * (1 - self.probs)


@register_kl(Bernoulli, Bernoulli)
def _bernoullis(p: Bernoulli, q: Bernoulli) -> mo.Tensor:
    return p.probs * (mo.softplus(-q.logits) - mo.softplus(-p.logits)) + (1 - p.probs) * (
        mo.softplus(q.logits) - mo.softplus(p.logits))


@register_kl(Categorical, Categorical)
def _categoricals(p: Categorical, q: Categorical) -> mo.Tensor:
    return mo.sum(mo.xlogy(p.probs, p.probs / q.probs), axis=-1)


@register_kl(Poisson, Poisson)
def _poissons(p: Poisson, q: Poisson) -> mo.Tensor:
    return p.rate * (mo.log(p.rate) - mo.log(q.rate)) - (p.rate - q.rate)


@register_kl(Geometric, Geometric)
def _geometrics(p: Geometric, q: Geometric) -> mo.Tensor:
    return -p.entropy() - mo.log1p(-q.probs) / p.probs - q.logits


class MixtureSameFamily(Distribution):
    """Draws from one of several distributions of a family, the last batch axis of `component_distribution`, chosen by a
    Categorical."""

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution,
                 validate_args: Any = None) -> None:
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        count = component_distribution.batch_shape[-1:]
        if count != (mixture_distribution.count,):
            raise mo.errors.ShapeError(f"[MixtureSameFamily] {mixture_distribution.count} weights for components of "
                                       f"shape {component_distribution.batch_shape}")
        super().__init__(component_distribution.batch_shape[:-1], component_distribution.event_shape)

    def _weighted(self, values: mo.Tensor) -> mo.Tensor:
        """The sum over the components, whose axis stands before those of an event."""
        rank = len(self.event_shape)
        weights = mo.reshape(self.mixture_distribution.probs,
                             (*self.mixture_distribution.probs.shape, *(1 for _ in range(rank))))
        return mo.sum(weights * values, axis=-1 - rank)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        pair, rank = mo.random.split(key), len(self.event_shape)
        count = self.mixture_distribution.count
        weights = mo.broadcast_to(self.mixture_distribution.logits, (*shape, count))
        chosen = mo.random.categorical(pair[0], weights)
        values = self.component_distribution._draw(pair[1], (*shape, count))
        places = mo.reshape(chosen, (*chosen.shape, 1, *(1 for _ in range(rank))))
        places = mo.broadcast_to(places, (*chosen.shape, 1, *self.event_shape))
        return mo.squeeze(mo.take_along_axis(values, places, axis=-1 - rank), axis=-1 - rank)

    def log_prob(self, value: Any) -> mo.Tensor:
        value = mo.expand_dims(tensor(value), axis=-1 - len(self.event_shape))
        return mo.logsumexp(self.component_distribution.log_prob(value) + self.mixture_distribution.logits, axis=-1)

    def cdf(self, value: Any) -> mo.Tensor:
        value = mo.expand_dims(tensor(value), axis=-1)
        return mo.sum(self.component_distribution.cdf(value) * self.mixture_distribution.probs, axis=-1)

    @property
    def mean(self) -> mo.Tensor:
        return self._weighted(self.component_distribution.mean)

    @property
    def variance(self) -> mo.Tensor:
        means = self.component_distribution.mean
        middle = mo.expand_dims(self.mean, axis=-1 - len(self.event_shape))
        return self._weighted(self.component_distribution.variance) + self._weighted((means - middle) ** 2)
