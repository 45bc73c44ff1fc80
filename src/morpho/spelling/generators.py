"""`mo.random.default_rng(seed)`: NumPy's Generator with its methods, on streams of Morpho's own.

The numbers are not NumPy's bits: a generator is a key that is split for every draw. Results are tensors of float64 and
int64, as NumPy's are.

>>> rng = mo.random.default_rng(7)
>>> again = mo.random.default_rng(7)
>>> rng.normal(size=3).tolist() == again.normal(size=3).tolist(), rng.integers(0, 5, (2, 2)).shape
(True, (2, 2))
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail

F64 = mo.float64


def _shape(size: Any, *parameters: Any) -> tuple[int, ...]:
    if size is None:
        return np.broadcast_shapes(*[np.shape(_array(one)) for one in parameters])
    return (int(size),) if isinstance(size, int | np.integer) else tuple(int(one) for one in size)


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, mo.Tensor) else value


def _t(value: Any) -> Any:
    return value if isinstance(value, int | float) else mo.asarray(value, dtype=F64)


class Generator:
    """Draws of a stream of its own; see `mo.random.default_rng`."""

    def __init__(self, seed: Any = None) -> None:
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        if not isinstance(seed, int | np.integer):
            seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._key = mo.random.key(int(seed))

    def next_key(self) -> mo.Tensor:
        pair = mo.random.split(self._key)
        self._key = pair[0]
        return pair[1]

    @property
    def bit_generator(self) -> Generator:
        return self

    def spawn(self, n_children: int) -> list[Generator]:
        children = []
        for key in mo.random.split(self.next_key(), n_children):
            child = object.__new__(Generator)
            child._key = key
            children.append(child)
        return children

    # -- uniform and integers ------------------------------------------------------------------------------------------
    def random(self, size: Any = None, dtype: Any = F64, out: Any = None) -> mo.Tensor:
        made = mo.random.uniform(self.next_key(), _shape(size), dtype=dtype)
        if out is None:
            return made
        out[...] = made
        return out

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> mo.Tensor:
        low, high = _t(low), _t(high)
        return self.random(_shape(size, low, high)) * (high - low) + low

    def integers(self, low: Any, high: Any = None, size: Any = None, dtype: Any = mo.int64,
                 endpoint: bool = False) -> mo.Tensor:
        low, high = (0, low) if high is None else (low, high)
        return mo.random.randint(self.next_key(), _shape(size), int(low), int(high) + endpoint, dtype=dtype)

    def bytes(self, length: int) -> bytes:
        return mo.random.bits(self.next_key(), (length,), dtype=mo.uint8).numpy().tobytes()

    # -- normal and what comes of it -----------------------------------------------------------------------------------
    def standard_normal(self, size: Any = None, dtype: Any = F64, out: Any = None) -> mo.Tensor:
        return mo.random.normal(self.next_key(), _shape(size), dtype=dtype)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> mo.Tensor:
        loc, scale = _t(loc), _t(scale)
        return self.standard_normal(_shape(size, loc, scale)) * scale + loc

    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None) -> mo.Tensor:
        return mo.exp(self.normal(mean, sigma, size))

    def multivariate_normal(self, mean: Any, cov: Any, size: Any = None, **checks: Any) -> mo.Tensor:
        return mo.random.multivariate_normal(self.next_key(), _t(mean), _t(cov), _shape(size) if size is not None
                                             else (),
                                             dtype=F64)

    def wald(self, mean: Any, scale: Any, size: Any = None) -> mo.Tensor:
        mean, scale = _t(mean), _t(scale)
        shape = _shape(size, mean, scale)
        square = mo.square(self.standard_normal(shape))
        root = mo.sqrt(4 * mean * scale * square + mo.square(mean * square))
        x = mean + mean * mean * square / (2 * scale) - mean / (2 * scale) * root
        return mo.where(self.random(shape) <= mean / (mean + x), x, mean * mean / x)

    def rayleigh(self, scale: Any = 1.0, size: Any = None) -> mo.Tensor:
        scale = _t(scale)
        return scale * mo.sqrt(2 * self.standard_exponential(_shape(size, scale)))

    # -- gamma and its family ------------------------------------------------------------------------------------------
    def standard_gamma(self, shape: Any, size: Any = None, dtype: Any = F64, out: Any = None) -> mo.Tensor:
        shape = _t(shape)
        return mo.random.gamma(self.next_key(), shape, _shape(size, shape), dtype=dtype)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None) -> mo.Tensor:
        shape, scale = _t(shape), _t(scale)
        return self.standard_gamma(shape, _shape(size, shape, scale)) * scale

    def beta(self, a: Any, b: Any, size: Any = None) -> mo.Tensor:
        a, b = _t(a), _t(b)
        return mo.random.beta(self.next_key(), a, b, _shape(size, a, b), dtype=F64)

    def chisquare(self, df: Any, size: Any = None) -> mo.Tensor:
        df = _t(df)
        return 2 * self.standard_gamma(df / 2, _shape(size, df))

    def noncentral_chisquare(self, df: Any, nonc: Any, size: Any = None) -> mo.Tensor:
        df, nonc = _t(df), _t(nonc)
        shape = _shape(size, df, nonc)
        return 2 * self.standard_gamma(df / 2 + self.poisson(nonc / 2, shape).astype(F64), shape)

    def f(self, dfnum: Any, dfden: Any, size: Any = None) -> mo.Tensor:
        shape = _shape(size, _t(dfnum), _t(dfden))
        return (self.chisquare(dfnum, shape) / _t(dfnum)) / (self.chisquare(dfden, shape) / _t(dfden))

    def noncentral_f(self, dfnum: Any, dfden: Any, nonc: Any, size: Any = None) -> mo.Tensor:
        shape = _shape(size, _t(dfnum), _t(dfden), _t(nonc))
        return (self.noncentral_chisquare(dfnum, nonc, shape) / _t(dfnum)) / (self.chisquare(dfden, shape) / _t(dfden))

    def standard_t(self, df: Any, size: Any = None) -> mo.Tensor:
        df = _t(df)
        return mo.random.student_t(self.next_key(), df, _shape(size, df), dtype=F64)

    def dirichlet(self, alpha: Any, size: Any = None) -> mo.Tensor:
        alpha = mo.asarray(alpha, dtype=F64)
        drawn = self.standard_gamma(alpha, (*(_shape(size) if size is not None else ()), *alpha.shape))
        return drawn / mo.sum(drawn, axis=-1, keepdims=True)

    # -- by the inverse of their distribution --------------------------------------------------------------------------
    def standard_exponential(self, size: Any = None, dtype: Any = F64, method: str = "zig",
                             out: Any = None) -> mo.Tensor:
        return mo.random.exponential(self.next_key(), _shape(size), dtype=dtype)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> mo.Tensor:
        scale = _t(scale)
        return self.standard_exponential(_shape(size, scale)) * scale

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> mo.Tensor:
        return self._placed("laplace", loc, scale, size)

    def logistic(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> mo.Tensor:
        return self._placed("logistic", loc, scale, size)

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> mo.Tensor:
        return self._placed("gumbel", loc, scale, size)

    def _placed(self, name: str, loc: Any, scale: Any, size: Any) -> mo.Tensor:
        loc, scale = _t(loc), _t(scale)
        return getattr(mo.random, name)(self.next_key(), _shape(size, loc, scale), dtype=F64) * scale + loc

    def standard_cauchy(self, size: Any = None) -> mo.Tensor:
        return mo.random.cauchy(self.next_key(), _shape(size), dtype=F64)

    def pareto(self, a: Any, size: Any = None) -> mo.Tensor:
        a = _t(a)
        return mo.expm1(self.standard_exponential(_shape(size, a)) / a)

    def power(self, a: Any, size: Any = None) -> mo.Tensor:
        a = _t(a)
        return (-mo.expm1(-self.standard_exponential(_shape(size, a)))) ** (1 / a)

    def weibull(self, a: Any, size: Any = None) -> mo.Tensor:
        a = _t(a)
        return self.standard_exponential(_shape(size, a)) ** (1 / a)

    def triangular(self, left: Any, mode: Any, right: Any, size: Any = None) -> mo.Tensor:
        left, mode, right = _t(left), _t(mode), _t(right)
        share, place = self.random(_shape(size, left, mode, right)), (mode - left) / (right - left)
        low = left + mo.sqrt(share * (right - left) * (mode - left))
        return mo.where(share < place, low, right - mo.sqrt((1 - share) * (right - left) * (right - mode)))

    def vonmises(self, mu: Any, kappa: Any, size: Any = None) -> mo.Tensor:
        """By a table of the distribution: angles are right to some 1e-4."""
        angles = mo.linspace(-math.pi, math.pi, 20001, dtype=F64)
        density = mo.exp(float(kappa) * (mo.cos(angles) - 1))
        total = mo.cumulative_trapezoid(density, angles, initial=0.0)
        drawn = mo.interp(self.random(_shape(size)), total / total[-1], angles)
        return mo.remainder(drawn + float(mu) + math.pi, 2 * math.pi) - math.pi

    # -- counts --------------------------------------------------------------------------------------------------------
    def poisson(self, lam: Any = 1.0, size: Any = None) -> mo.Tensor:
        lam = _t(lam)
        return mo.random.poisson(self.next_key(), lam, _shape(size, lam))

    def binomial(self, n: Any, p: Any, size: Any = None) -> mo.Tensor:
        return mo.random.binomial(self.next_key(), n, _t(p), _shape(size, n, p))

    def negative_binomial(self, n: Any, p: Any, size: Any = None) -> mo.Tensor:
        n, p = _t(n), _t(p)
        shape = _shape(size, n, p)
        return self.poisson(self.standard_gamma(n, shape) * ((1 - p) / p), shape)

    def geometric(self, p: Any, size: Any = None) -> mo.Tensor:
        p = _t(p)
        return mo.random.geometric(self.next_key(), p, _shape(size, p))

    def logseries(self, p: Any, size: Any = None) -> mo.Tensor:
        p = _t(p)
        shape = _shape(size, p)
        first, second = self.random(shape), self.random(shape)
        q = -mo.expm1(mo.log1p(-p) * second) if isinstance(p, mo.Tensor) else -mo.expm1(math.log1p(-p) * second)
        number = mo.floor(1 + mo.log(1 - first) / mo.log(q))
        return mo.where(1 - first >= p, 1.0, mo.maximum(number, 1.0)).astype(mo.int64)

    def zipf(self, a: Any, size: Any = None) -> mo.Tensor:
        """From a table of the first 100 000 numbers; the rest of the distribution falls on the last."""
        weights = mo.arange(1, 100001).astype(F64) ** (-float(a))
        total = mo.cumulative_sum(weights) / mo.special.zeta(float(a), 1.0).astype(F64)
        return mo.minimum(mo.searchsorted(total, self.random(_shape(size))) + 1, 100000)

    def hypergeometric(self, ngood: int, nbad: int, nsample: int, size: Any = None) -> mo.Tensor:
        shape = _shape(size)
        ranks = mo.argsort(self.random((*shape, int(ngood) + int(nbad))), axis=-1)
        return mo.sum(ranks[..., :int(nsample)] < int(ngood), axis=-1)

    def multinomial(self, n: int, pvals: Any, size: Any = None) -> mo.Tensor:
        return mo.random.multinomial(self.next_key(), int(n), _t(pvals), _shape(size) if size is not None else ())

    def multivariate_hypergeometric(self, colors: Any, nsample: int, size: Any = None,
                                    method: str = "marginals") -> mo.Tensor:
        counts = [int(one) for one in _array(colors)]
        kinds = mo.repeat(mo.arange(len(counts)), mo.asarray(counts))
        shape = _shape(size) if size is not None else ()
        order = mo.argsort(self.random((*shape, sum(counts))), axis=-1)[..., :int(nsample)]
        return mo.sum(mo.one_hot(mo.take(kinds, order), len(counts), dtype=mo.int64), axis=-2)

    # -- choices -------------------------------------------------------------------------------------------------------
    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None, axis: int = 0,
               shuffle: bool = True) -> mo.Tensor:
        words = None
        if not isinstance(a, int | np.integer | mo.Tensor) and np.asarray(a).dtype.kind in "USO":
            words, a = np.asarray(a), len(a)  # texts and objects stay what they are: the index is drawn
        a = int(a) if isinstance(a, int | np.integer) else mo.asarray(a)
        shares = None if p is None else mo.asarray(p, dtype=F64)
        if shares is not None and abs(float(mo.sum(shares)) - 1) > 1e-6:
            raise fail(ArgumentError, "choice", "probabilities do not sum to 1")
        result = mo.random.choice(self.next_key(), a, _shape(size) if size is not None else (), replace=replace,
                                  p=shares, axis=axis)
        return result if words is None else words[result.numpy()]

    def permutation(self, x: Any, axis: int = 0) -> mo.Tensor:
        x = mo.arange(int(x)) if isinstance(x, int | np.integer) else mo.asarray(x)
        return mo.random.permutation(self.next_key(), x, axis=axis)

    def permuted(self, x: Any, axis: Any = None, out: Any = None) -> mo.Tensor:
        x = mo.asarray(x)
        if axis is None:
            return mo.reshape(self.permutation(mo.ravel(x)), x.shape)
        order = mo.argsort(self.random(x.shape), axis=axis)
        return mo.take_along_axis(x, order, axis=axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Assign a permutation of the rows to the tensor."""
        if not isinstance(x, mo.Tensor):
            raise fail(ArgumentError, "shuffle", f"a {type(x).__name__} is not a tensor", "use permutation(x)")
        x[...] = self.permutation(x, axis)


def default_rng(seed: Any = None) -> Generator:
    """A generator of random numbers with NumPy's methods; `None` starts anywhere."""
    return seed if isinstance(seed, Generator) else Generator(seed)
