"""Continuous distributions by inversion: one uniform number each."""

from __future__ import annotations

import math
from typing import Any

from morpho.base.dtypes import DType, float32, float64
from morpho.base.errors import ShapeError, ValueFault, fail
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import special
from morpho.tensor.functions.linalg import cholesky
from morpho.tensor.functions.products.products import matmul
from morpho.tensor.functions.random.basic import normal
from morpho.tensor.functions.random.keys import check_held, float_dtype, open_unit, parameter, shape_with
from morpho.tensor.operands import as_node
from morpho.tensor.scalars import is_scalar

FAR = 35.0  # standard deviations from which on the share of a tail nears the least float64
FARTHEST = 1e100  # beyond, its logarithm overflows
NEWTON_STEPS = 3  # towards the root in a far tail: the first leaves 1e-4, each one after it the square of that


def _drawn(name: str, key: Any, shape: Any, dtype: Any, start: int, **parameters: Any) -> tuple[Tensor, DType]:
    """Numbers in (0, 1), and the dtype of the result."""
    target = float_dtype(name, dtype)
    check_held(name, target, **parameters)
    return open_unit(name, key, shape_with(name, shape, *parameters.values()), target, start), target


def _positive(name: str, **numbers: Any) -> None:
    for what, number in numbers.items():
        if is_scalar(number) and not number > 0:
            raise fail(ValueFault, name, f"{what} {number} is not positive")


def _placed(x: Tensor, loc: Any, scale: Any, target: DType) -> Tensor:
    """loc + scale * x in the dtype of the draw."""
    if not (is_scalar(scale) and scale == 1):
        x = x * (scale if is_scalar(scale) else ew.astype(scale, x.dtype))
    if not (is_scalar(loc) and loc == 0):
        x = x + (loc if is_scalar(loc) else ew.astype(loc, x.dtype))
    return ew.astype(x, target)


def exponential(key: Any, shape: Any = None, *, rate: Any = 1.0, dtype: Any = float32, start: int = 0) -> Tensor:
    """Exponentially distributed numbers of mean 1 / rate.

    >>> mo.random.exponential(mo.random.key(0), (3,)).shape
    (3,)
    """
    _positive("random.exponential", rate=rate)
    unit, target = _drawn("random.exponential", key, shape, dtype, start, rate=rate)
    found = ew.negative(ew.log(unit))
    return ew.astype(found / (rate if is_scalar(rate) else ew.astype(rate, found.dtype)), target)


def laplace(key: Any, shape: Any = None, *, loc: Any = 0.0, scale: Any = 1.0, dtype: Any = float32,
            start: int = 0) -> Tensor:
    """Numbers of Laplace's distribution.

    >>> mo.random.laplace(mo.random.key(0), (3,)).shape
    (3,)
    """
    _positive("random.laplace", scale=scale)
    unit, target = _drawn("random.laplace", key, shape, dtype, start, loc=loc, scale=scale)
    low = ew.less(unit, 0.5)
    side = ew.log(ew.where(low, unit, 1 - unit) * 2)
    return _placed(ew.where(low, side, ew.negative(side)), loc, scale, target)


def cauchy(key: Any, shape: Any = None, *, loc: Any = 0.0, scale: Any = 1.0, dtype: Any = float32,
           start: int = 0) -> Tensor:
    """Numbers of Cauchy's distribution.

    >>> mo.random.cauchy(mo.random.key(0), (3,)).shape
    (3,)
    """
    _positive("random.cauchy", scale=scale)
    unit, target = _drawn("random.cauchy", key, shape, dtype, start, loc=loc, scale=scale)
    return _placed(ew.tan((unit - 0.5) * math.pi), loc, scale, target)


def gumbel(key: Any, shape: Any = None, *, loc: Any = 0.0, scale: Any = 1.0, dtype: Any = float32,
           start: int = 0) -> Tensor:
    """Numbers of Gumbel's distribution.

    >>> mo.random.gumbel(mo.random.key(0), (3,)).shape
    (3,)
    """
    _positive("random.gumbel", scale=scale)
    unit, target = _drawn("random.gumbel", key, shape, dtype, start, loc=loc, scale=scale)
    return _placed(ew.negative(ew.log(ew.negative(ew.log(unit)))), loc, scale, target)


def logistic(key: Any, shape: Any = None, *, loc: Any = 0.0, scale: Any = 1.0, dtype: Any = float32,
             start: int = 0) -> Tensor:
    """Numbers of the logistic distribution.

    >>> mo.random.logistic(mo.random.key(0), (3,)).shape
    (3,)
    """
    _positive("random.logistic", scale=scale)
    unit, target = _drawn("random.logistic", key, shape, dtype, start, loc=loc, scale=scale)
    return _placed(ew.log(unit) - ew.log1p(ew.negative(unit)), loc, scale, target)


def lognormal(key: Any, shape: Any = None, *, mean: Any = 0.0, std: Any = 1.0, dtype: Any = float32,
              start: int = 0) -> Tensor:
    """exp of normally distributed numbers.

    >>> mo.random.lognormal(mo.random.key(0), (3,)).shape
    (3,)
    """
    sizes = shape_with("random.lognormal", shape, mean, std)
    return ew.exp(normal(key, sizes, mean=mean, std=std, dtype=dtype, start=start))


def weibull(key: Any, shape: Any = None, *, concentration: Any, scale: Any = 1.0, dtype: Any = float32,
            start: int = 0) -> Tensor:
    """Numbers of Weibull's distribution.

    >>> mo.random.weibull(mo.random.key(0), (3,), concentration=2.0).shape
    (3,)
    """
    _positive("random.weibull", concentration=concentration, scale=scale)
    unit, target = _drawn("random.weibull", key, shape, dtype, start, concentration=concentration, scale=scale)
    shape_ = concentration if is_scalar(concentration) else ew.astype(concentration, unit.dtype)
    return _placed(ew.pow(ew.negative(ew.log(unit)), ew.divide(1.0, shape_)), 0.0, scale, target)


def pareto(key: Any, shape: Any = None, *, concentration: Any, scale: Any = 1.0, dtype: Any = float32,
           start: int = 0) -> Tensor:
    """Numbers of Pareto's distribution, from `scale` on.

    >>> mo.random.pareto(mo.random.key(0), (3,), concentration=2.0).shape
    (3,)
    """
    _positive("random.pareto", concentration=concentration, scale=scale)
    unit, target = _drawn("random.pareto", key, shape, dtype, start, concentration=concentration, scale=scale)
    shape_ = concentration if is_scalar(concentration) else ew.astype(concentration, unit.dtype)
    return _placed(ew.exp(ew.negative(ew.log(unit)) / shape_), 0.0, scale, target)


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, *, mean: Any = 0.0, std: Any = 1.0,
                     dtype: Any = float32, start: int = 0) -> Tensor:
    """Normally distributed numbers of which only those between `lower` and `upper` are taken; the bounds are those of
    the result.

    >>> x = mo.random.truncated_normal(mo.random.key(0), -1.0, 2.0, (100,))
    >>> bool(x.min() >= -1.0), bool(x.max() <= 2.0)
    (True, True)
    """
    name = "random.truncated_normal"
    if is_scalar(lower) and is_scalar(upper) and not lower < upper:
        raise fail(ValueFault, name, f"lower {lower} is not below upper {upper}")
    _positive(name, std=std)
    target = float_dtype(name, dtype)
    unit = ew.astype(open_unit(name, key, shape_with(name, shape, lower, upper, mean, std), target, start), float64)
    held = float64 if target is float64 else float32
    low, high, centre, spread = (ew.astype(parameter(name, x, held), float64) for x in (lower, upper, mean, std))
    a, b = (low - centre) / spread, (high - centre) / spread
    turned = ew.greater(a, 0)  # in the upper tail shares are near 1: the lower one has their digits
    first, second = ew.where(turned, ew.negative(b), a), ew.where(turned, ew.negative(a), b)
    shares = special.ndtr(first), special.ndtr(second)
    found = special.ndtri(shares[0] + unit * (shares[1] - shares[0]))
    known = all(is_scalar(x) for x in (lower, upper, mean, std))
    if not known or min(abs(lower - mean), abs(upper - mean)) > FAR * std:
        far = ew.logical_and(ew.less(second, -FAR), ew.greater(second, -FARTHEST))
        found = ew.where(far, _far_normal(unit, first, ew.where(far, second, -FAR)), found)
    found = ew.where(turned, ew.negative(found), found) * spread + centre
    return ew.astype(ew.minimum(ew.maximum(found, low), high), target)


def _far_normal(unit: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The same in the lower tail, where shares are no floats any more, by their logarithms: log ndtr is concave, so
    that Newton's steps from the left come closer from the left."""
    low, high = special.log_ndtr(first), special.log_ndtr(second)
    wanted = high + ew.log(unit + (1 - unit) * ew.exp(low - high))
    found = ew.negative(ew.sqrt(-2 * wanted))
    for _ in range(NEWTON_STEPS):
        slope = math.sqrt(math.pi / 2) * special.erfcx(found * -math.sqrt(0.5))
        found = found - (special.log_ndtr(found) - wanted) * slope
    return found


def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = (), *, dtype: Any = float32) -> Tensor:
    """Normally distributed vectors of this mean and covariance, of shape (*shape, n).

    >>> mo.random.multivariate_normal(mo.random.key(0), mo.zeros(2), mo.eye(2), (5,)).shape
    (5, 2)
    """
    name = "random.multivariate_normal"
    target = float_dtype(name, dtype)
    centre, square = (ew.astype(Tensor.of_node(as_node(x, name)), target) for x in (mean, cov))
    if square.ndim != 2 or centre.ndim != 1 or square.shape != (centre.shape[0],) * 2:
        raise fail(ShapeError, name, f"a mean of shape {centre.shape} and a covariance of {square.shape} do not fit")
    sizes = shape_with(name, shape)
    drawn = normal(key, (*sizes, centre.shape[0]), dtype=target)
    return matmul(drawn, cholesky(square).mT) + centre
