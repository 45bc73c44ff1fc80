"""Base of distributions, and the table of divergences between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.nn.random import next_key


def tensor(value: Any) -> mo.Tensor:
    value = mo.asarray(value)
    return value if value.dtype.is_float else value.astype(mo.float32)


def together(*values: Any) -> list[mo.Tensor]:
    """Parameters as tensors of one shape."""
    return list(mo.broadcast_arrays(*[tensor(value) for value in values]))


class Distribution:
    """A batch of distributions of one family."""

    has_rsample = False

    def __init__(self, batch_shape: Any = (), event_shape: Any = ()) -> None:
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)

    def _draw(self, key: mo.Tensor, shape: tuple[int, ...]) -> mo.Tensor:
        raise NotImplementedError

    def _extended(self, sample_shape: Any) -> tuple[int, ...]:
        sizes = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return (*sizes, *self.batch_shape)

    def rsample(self, sample_shape: Any = (), key: mo.Tensor | None = None) -> mo.Tensor:
        """Draws through which gradients flow to the parameters."""
        if not self.has_rsample:
            raise fail(ArgumentError, "rsample", f"{type(self).__name__} has no draws with a gradient", "use sample()")
        return self._draw(next_key() if key is None else key, self._extended(sample_shape))

    def sample(self, sample_shape: Any = (), key: mo.Tensor | None = None) -> mo.Tensor:
        """Draws without a gradient."""
        return mo.stop_gradient(self._draw(next_key() if key is None else key, self._extended(sample_shape)))

    def sample_n(self, n: int) -> mo.Tensor:
        return self.sample((n,))

    def log_prob(self, value: Any) -> mo.Tensor:
        raise NotImplementedError

    @property
    def mean(self) -> mo.Tensor:
        raise NotImplementedError

    @property
    def variance(self) -> mo.Tensor:
        raise NotImplementedError

    @property
    def stddev(self) -> mo.Tensor:
        return mo.sqrt(self.variance)

    def entropy(self) -> mo.Tensor:
        raise fail(ArgumentError, "entropy", f"{type(self).__name__} has no entropy in closed form")

    def cdf(self, value: Any) -> mo.Tensor:
        raise fail(ArgumentError, "cdf", f"{type(self).__name__} has no distribution function in closed form")

    def perplexity(self) -> mo.Tensor:
        return mo.exp(self.entropy())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}: {tuple(value.shape)}" for name, value in vars(self).items()
                          if isinstance(value, mo.Tensor))
        return f"{type(self).__name__}({shown})"


class Independent(Distribution):
    """A distribution whose last batch axes are one event."""

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int) -> None:
        shape, count = base_distribution.batch_shape, reinterpreted_batch_ndims
        super().__init__(shape[:len(shape) - count], (*shape[len(shape) - count:], *base_distribution.event_shape))
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, count
        self.has_rsample = base_distribution.has_rsample

    def rsample(self, sample_shape: Any = (), key: mo.Tensor | None = None) -> mo.Tensor:
        return self.base_dist.rsample(sample_shape, key)

    def sample(self, sample_shape: Any = (), key: mo.Tensor | None = None) -> mo.Tensor:
        return self.base_dist.sample(sample_shape, key)

    def _summed(self, value: mo.Tensor) -> mo.Tensor:
        count = self.reinterpreted_batch_ndims
        return mo.sum(value, axis=tuple(range(-count, 0))) if count else value

    def log_prob(self, value: Any) -> mo.Tensor:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> mo.Tensor:
        return self._summed(self.base_dist.entropy())

    @property
    def mean(self) -> mo.Tensor:
        return self.base_dist.mean

    @property
    def variance(self) -> mo.Tensor:
        return self.base_dist.variance


_DIVERGENCES: dict[tuple[type, type], Callable[[Any, Any], mo.Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable[[Any, Any], mo.Tensor]], Any]:
    """Enter a function for the divergence between two families."""
    def enter(function: Callable[[Any, Any], mo.Tensor]) -> Callable[[Any, Any], mo.Tensor]:
        _DIVERGENCES[type_p, type_q] = function
        return function

    return enter


def kl_divergence(p: Distribution, q: Distribution) -> mo.Tensor:
    """The divergence of q from p, in closed form."""
    for first in type(p).__mro__:
        for second in type(q).__mro__:
            if (first, second) in _DIVERGENCES:
                return _DIVERGENCES[first, second](p, q)
    raise fail(ArgumentError, "kl_divergence", f"there is no closed form for {type(p).__name__} and {type(q).__name__}",
               "take the mean of p.log_prob(x) - q.log_prob(x) over draws x of p")


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> mo.Tensor:
    return p._summed(kl_divergence(p.base_dist, q.base_dist))


def shape_of(*values: mo.Tensor) -> tuple[int, ...]:
    return np.broadcast_shapes(*[tuple(value.shape) for value in values])
