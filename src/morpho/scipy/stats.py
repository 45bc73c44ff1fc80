"""`mo.stats`: SciPy's distributions (`norm`, `beta`, `poisson`, ...), summaries, ranks, tests and density estimates.

>>> from morpho.scipy import stats
>>> stats.rankdata([10, 30, 20, 20]).tolist(), stats.zscore([1.0, 2.0, 3.0]).tolist()
([1.0, 4.0, 2.5, 2.5], [-1.224744..., 0.0, 1.224744...])
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.scipy import continuous, discrete

ModeResult = namedtuple("ModeResult", "mode count")
DescribeResult = namedtuple("DescribeResult", "nobs minmax mean variance skewness kurtosis")
TestResult = namedtuple("TestResult", "statistic pvalue")
LinregressResult = namedtuple("LinregressResult", "slope intercept rvalue pvalue stderr")
_DISTRIBUTIONS = {**continuous.DISTRIBUTIONS, **discrete.DISTRIBUTIONS}


def __getattr__(name: str) -> Any:
    if name in _DISTRIBUTIONS:
        return _DISTRIBUTIONS[name]
    raise AttributeError(f"module 'morpho.scipy.stats' has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted([*_DISTRIBUTIONS, *(name for name in globals() if name[0].islower() and name not in _HIDDEN)])


_HIDDEN = {"math", "namedtuple", "mo", "fail", "continuous", "discrete", "annotations"}


def _flat(a: Any, axis: Any) -> tuple[Any, int]:
    a = mo.asarray(a)
    a = a if a.dtype.is_float else a.astype(mo.float32)
    return (mo.ravel(a), 0) if axis is None else (a, axis)


# -- summaries -----------------------------------------------------------------------------------------------------
def sem(a: Any, axis: Any = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Any:
    """The standard error of the mean."""
    a, axis = _flat(a, axis)
    _policy("sem", nan_policy)
    return mo.std(a, axis=axis, correction=ddof, keepdims=keepdims) / math.sqrt(a.shape[axis])


def _policy(name: str, nan_policy: str) -> None:
    if nan_policy != "propagate":
        raise fail(ArgumentError, name, f"nan_policy {nan_policy!r} is not taken", "remove NaN first: x[~mo.isnan(x)]")


def _moment_about_mean(a: Any, order: int, axis: int) -> Any:
    return mo.mean(mo.pow(a - mo.mean(a, axis=axis, keepdims=True), order), axis=axis)


def moment(a: Any, order: int = 1, axis: Any = 0, nan_policy: str = "propagate", *, center: Any = None) -> Any:
    a, axis = _flat(a, axis)
    if center is None:
        return _moment_about_mean(a, order, axis)
    return mo.mean(mo.pow(a - center, order), axis=axis)


def skew(a: Any, axis: Any = 0, bias: bool = True, nan_policy: str = "propagate") -> Any:
    a, axis = _flat(a, axis)
    value = _moment_about_mean(a, 3, axis) / mo.pow(_moment_about_mean(a, 2, axis), 1.5)
    n = a.shape[axis]
    return value if bias else value * math.sqrt(n * (n - 1)) / (n - 2)


def kurtosis(a: Any, axis: Any = 0, fisher: bool = True, bias: bool = True, nan_policy: str = "propagate") -> Any:
    a, axis = _flat(a, axis)
    value = _moment_about_mean(a, 4, axis) / mo.square(_moment_about_mean(a, 2, axis))
    n = a.shape[axis]
    if not bias:
        value = 3 + ((n * n - 1) * value - 3 * (n - 1) ** 2) / ((n - 2) * (n - 3))
    return value - 3 if fisher else value


def describe(a: Any, axis: Any = 0, ddof: int = 1, bias: bool = True, nan_policy: str = "propagate") -> Any:
    a, axis = _flat(a, axis)
    return DescribeResult(a.shape[axis], (mo.min(a, axis=axis), mo.max(a, axis=axis)), mo.mean(a, axis=axis),
                          mo.var(a, axis=axis, correction=ddof), skew(a, axis, bias), kurtosis(a, axis, True, bias))


def zscore(a: Any, axis: Any = 0, ddof: int = 0, nan_policy: str = "propagate") -> Any:
    a = mo.asarray(a)
    a = a if a.dtype.is_float else a.astype(mo.float32)
    return (a - mo.mean(a, axis=axis, keepdims=True)) / mo.std(a, axis=axis, correction=ddof, keepdims=True)


def gmean(a: Any, axis: Any = 0, dtype: Any = None, weights: Any = None) -> Any:
    a, axis = _flat(a, axis)
    return mo.exp(mo.average(mo.log(a), axis=axis, weights=weights))


def hmean(a: Any, axis: Any = 0, dtype: Any = None, weights: Any = None) -> Any:
    a, axis = _flat(a, axis)
    return 1 / mo.average(1 / a, axis=axis, weights=weights)


def iqr(x: Any, axis: Any = None, rng: Any = (25, 75)) -> Any:
    x, axis = _flat(x, axis)
    return mo.percentile(x, rng[1], axis=axis) - mo.percentile(x, rng[0], axis=axis)


def entropy(pk: Any, qk: Any = None, base: Any = None, axis: int = 0) -> Any:
    """The entropy of shares, or their divergence from `qk`; both are normalised first."""
    pk, axis = _flat(pk, axis)
    pk = pk / mo.sum(pk, axis=axis, keepdims=True)
    if qk is None:
        value = mo.sum(mo.special.entr(pk), axis=axis)
    else:
        qk = _flat(qk, axis)[0]
        value = mo.sum(mo.special.rel_entr(pk, qk / mo.sum(qk, axis=axis, keepdims=True)), axis=axis)
    return value if base is None else value / math.log(base)


def mode(a: Any, axis: Any = 0, nan_policy: str = "propagate", keepdims: bool = False) -> Any:
    """The most frequent number along an axis, the smallest of those, and how often it occurs."""
    a = mo.asarray(a)
    _policy("mode", nan_policy)
    a, axis = (mo.ravel(a), 0) if axis is None else (a, axis)
    line = mo.moveaxis(mo.sort(a, axis=axis), axis, -1)
    counts = mo.sum(mo.equal(line[..., :, None], line[..., None, :]), axis=-1)
    place = mo.argmax(counts, axis=-1, keepdims=True)
    values, count = mo.take_along_axis(line, place, axis=-1), mo.take_along_axis(counts, place, axis=-1)
    if keepdims:
        return ModeResult(mo.moveaxis(values, -1, axis), mo.moveaxis(count, -1, axis))
    return ModeResult(values[..., 0], count[..., 0])


def rankdata(a: Any, method: str = "average", *, axis: Any = None, nan_policy: str = "propagate") -> Any:
    """Ranks from 1; equal numbers share the average of theirs, or as `method` says."""
    a = mo.asarray(a)
    a, axis = (mo.ravel(a), 0) if axis is None else (a, axis)
    line = mo.moveaxis(a, axis, -1)
    if method == "ordinal":
        ranks = mo.argsort(mo.argsort(line, axis=-1, stable=True), axis=-1) + 1
        return mo.moveaxis(ranks, -1, axis)
    ordered, order = mo.sort(line, axis=-1), mo.argsort(line, axis=-1, stable=True)
    new = mo.concat([mo.ones_like(ordered[..., :1], dtype=mo.int64),
                     (ordered[..., 1:] != ordered[..., :-1]).astype(mo.int64)], axis=-1)
    dense = mo.cumulative_sum(new, axis=-1)
    count = line.shape[-1]
    places = mo.broadcast_to(mo.arange(count), line.shape)
    first = mo.cummax(mo.where(new == 1, places, 0), axis=-1)
    ends = mo.concat([new[..., 1:], mo.ones_like(new[..., :1])], axis=-1)
    last = mo.flip(mo.cummin(mo.flip(mo.where(ends == 1, places, count), axis=-1), axis=-1), axis=-1)
    kinds = {"average": (first + last).astype(mo.float64) * 0.5 + 1, "min": first + 1, "max": last + 1, "dense": dense}
    if method not in kinds:
        raise fail(ArgumentError, "rankdata", f"method {method!r} is unknown",
                   f"use one of {', '.join(kinds)}, ordinal")
    inverse = mo.argsort(order, axis=-1)
    return mo.moveaxis(mo.take_along_axis(kinds[method], inverse, axis=-1), -1, axis)


# -- relations and tests -------------------------------------------------------------------------------------------
def _two_sided(t: Any, df: Any) -> Any:
    return 2 * mo.special.stdtr(df, -mo.abs(t))


def pearsonr(x: Any, y: Any) -> Any:
    x, y = (_flat(one, None)[0].astype(mo.float64) for one in (x, y))
    if x.shape != y.shape:
        raise fail(ShapeError, "pearsonr", f"{x.shape[0]} and {y.shape[0]} numbers are no pairs")
    x, y = x - mo.mean(x), y - mo.mean(y)
    r = mo.clip(mo.sum(x * y) / mo.sqrt(mo.sum(x * x) * mo.sum(y * y)), -1.0, 1.0)
    df = x.shape[0] - 2.0
    return TestResult(r, _two_sided(r * mo.sqrt(df / ((1 - r) * (1 + r))), df))


def spearmanr(a: Any, b: Any) -> Any:
    return pearsonr(rankdata(a), rankdata(b))


def linregress(x: Any, y: Any) -> Any:
    """The line through points by least squares: slope, intercept, correlation, p-value, standard error of the slope."""
    x, y = (_flat(one, None)[0].astype(mo.float64) for one in (x, y))
    mean_x, mean_y, df = mo.mean(x), mo.mean(y), x.shape[0] - 2.0
    sxx, syy = mo.sum(mo.square(x - mean_x)), mo.sum(mo.square(y - mean_y))
    sxy = mo.sum((x - mean_x) * (y - mean_y))
    slope, r = sxy / sxx, mo.clip(sxy / mo.sqrt(sxx * syy), -1.0, 1.0)
    error = mo.sqrt((1 - r * r) * syy / sxx / df)
    return LinregressResult(slope, mean_y - slope * mean_x, r, _two_sided(slope / error, df), error)


def ttest_1samp(a: Any, popmean: Any, axis: Any = 0) -> Any:
    a, axis = _flat(a, axis)
    t = (mo.mean(a, axis=axis) - popmean) / sem(a, axis)
    return TestResult(t, _two_sided(t, a.shape[axis] - 1.0))


def ttest_ind(a: Any, b: Any, axis: Any = 0, equal_var: bool = True) -> Any:
    (a, place), (b, _) = _flat(a, axis), _flat(b, axis)
    n, m = a.shape[place], b.shape[place]
    first, second = mo.var(a, axis=place, correction=1), mo.var(b, axis=place, correction=1)
    if equal_var:
        df: Any = n + m - 2.0
        spread = ((n - 1) * first + (m - 1) * second) / df * (1 / n + 1 / m)
    else:
        spread = first / n + second / m
        df = mo.square(spread) / (mo.square(first / n) / (n - 1) + mo.square(second / m) / (m - 1))
    t = (mo.mean(a, axis=place) - mo.mean(b, axis=place)) / mo.sqrt(spread)
    return TestResult(t, _two_sided(t, df))


def ttest_rel(a: Any, b: Any, axis: Any = 0) -> Any:
    return ttest_1samp(mo.asarray(a) - mo.asarray(b), 0.0, axis)


def chisquare(f_obs: Any, f_exp: Any = None, ddof: int = 0, axis: int = 0) -> Any:
    f_obs, axis = _flat(f_obs, axis)
    f_exp = mo.mean(f_obs, axis=axis, keepdims=True) if f_exp is None else _flat(f_exp, axis)[0]
    value = mo.sum(mo.square(f_obs - f_exp) / f_exp, axis=axis)
    return TestResult(value, mo.special.chdtrc(f_obs.shape[axis] - 1.0 - ddof, value))


# -- density estimates ---------------------------------------------------------------------------------------------
class gaussian_kde:
    """A density estimated from points by normal kernels; `dataset` is (dimensions, points) or a line of numbers.

    >>> float(mo.stats.gaussian_kde(mo.asarray([1.0, 2.0, 3.0]))(2.0)[0])
    0.327...
    """

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        self.dataset = mo.atleast_2d(mo.asarray(dataset)).astype(mo.float64)
        self.d, self.n = self.dataset.shape
        weights = mo.ones(self.n, dtype=mo.float64) if weights is None else mo.asarray(weights).astype(mo.float64)
        self.weights = weights / mo.sum(weights)
        self.neff = 1 / mo.sum(mo.square(self.weights))
        self.set_bandwidth(bw_method)

    def scotts_factor(self) -> Any:
        return self.neff ** (-1.0 / (self.d + 4))

    def silverman_factor(self) -> Any:
        return (self.neff * (self.d + 2) / 4) ** (-1.0 / (self.d + 4))

    def set_bandwidth(self, bw_method: Any = None) -> None:
        if bw_method is None or bw_method == "scott":
            self.factor: Any = self.scotts_factor()
        elif bw_method == "silverman":
            self.factor = self.silverman_factor()
        elif isinstance(bw_method, int | float):
            self.factor = float(bw_method)
        elif callable(bw_method):
            self.factor = bw_method(self)
        else:
            raise fail(ArgumentError, "gaussian_kde", f"bw_method {bw_method!r} is unknown",
                       "use 'scott', 'silverman', a number or a function")
        mean = mo.sum(self.dataset * self.weights, axis=1, keepdims=True)
        centred = self.dataset - mean
        own = (centred * self.weights) @ centred.T / (1 - mo.sum(mo.square(self.weights)))
        self.covariance = own * self.factor**2
        self._factor = mo.linalg.cholesky(self.covariance)

    def logpdf(self, x: Any) -> Any:
        points = mo.atleast_2d(mo.asarray(x)).astype(mo.float64)
        if points.shape[0] != self.d:
            if self.d == 1 or points.shape != (1, self.d):
                raise fail(ShapeError, "gaussian_kde", f"points of {points.shape[0]} dimensions, data of {self.d}")
            points = points.T
        own = mo.linalg.solve_triangular(self._factor, self.dataset, upper=False)
        others = mo.linalg.solve_triangular(self._factor, points, upper=False)
        square = mo.sum(mo.square(others[:, :, None] - own[:, None, :]), axis=0)
        scale = 0.5 * self.d * math.log(2 * math.pi) + mo.sum(mo.log(mo.diagonal(self._factor)))
        return mo.logsumexp(mo.log(self.weights) - 0.5 * square, axis=1) - scale

    def pdf(self, x: Any) -> Any:
        return mo.exp(self.logpdf(x))

    evaluate = __call__ = pdf

    def resample(self, size: Any = None, seed: Any = None) -> Any:
        rng = mo.random.default_rng(seed) if seed is not None else mo.random.default_rng(int(mo.random.randint(2**31)))
        count = int(self.neff) if size is None else int(size)
        places = rng.choice(self.n, count, p=self.weights)
        return mo.take(self.dataset, places, axis=1) + self._factor @ rng.normal(size=(self.d, count))

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        width = mo.sqrt(self.covariance[0, 0])
        ends = [mo.special.ndtr((mo.asarray(end) - self.dataset[0]) / width) for end in (low, high)]
        return mo.sum(self.weights * (ends[1] - ends[0]))


def binned_statistic(x: Any, values: Any, statistic: str = "mean", bins: Any = 10, range: Any = None) -> Any:
    """Sums, counts or means of values by the bin of x: (statistic, edges)."""
    x, values = mo.asarray(x), mo.asarray(values)
    counts, edges = mo.histogram(x, bins, range=range)
    if statistic == "count":
        return counts, edges
    sums, _ = mo.histogram(x, edges, weights=values)
    if statistic not in ("sum", "mean"):
        raise fail(ArgumentError, "binned_statistic", f"statistic {statistic!r} is not taken", "use sum, mean or count")
    return (sums if statistic == "sum" else sums / counts), edges
