"""The gamma distribution, by Marsaglia and Tsang's rejection, and those that are made of it.

Turns go on until every element has been accepted: what an element draws depends on the key, its number and the turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dtypes import DType, float32, float64
from morpho.base.errors import ArgumentError, ShapeError, ValueFault, fail
from morpho.ops.index import require
from morpho.tensor.autodiff.autograd import is_differentiated
from morpho.tensor.control.loops import while_loop
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.functions.create import zeros
from morpho.tensor.functions.move import broadcast_to
from morpho.tensor.functions.neural.activations import softmax
from morpho.tensor.functions.random.basic import normal
from morpho.tensor.functions.random.keys import float_dtype, fold_in, open_unit, parameter, shape_with, split, with_keys
from morpho.tensor.operands import as_node
from morpho.tensor.scalars import is_scalar

FIRST_TURN = 1  # the key of turn 0 is for what every element needs once


def check_parameters(name: str, **parameters: Any) -> None:
    """Positive where they are known, and nothing that a gradient is asked of."""
    for what, value in parameters.items():
        if is_scalar(value) and not value > 0:
            raise fail(ValueFault, name, f"{what} {value} is not positive")
        if isinstance(value, Tensor) and value.dtype.is_float and is_differentiated(value):
            raise fail(ArgumentError, name, f"a draw has no gradient with respect to {what}",
                       f"take {what}.detach() where the gradient may end")


def _log_gamma(name: str, key: Any, alpha: Any, sizes: Any, wide: DType) -> Tensor:
    """Logarithms of gamma numbers, which do not underflow for small alpha: x = d (1 + c z)**3, d = alpha - 1/3; alpha
    below 1 is raised by 1, and the number multiplied by u**(1 / alpha)."""
    full = with_keys(name, key, sizes)
    given = broadcast_to(parameter(name, alpha, wide), full)
    small = ew.less(given, 1)
    d = ew.where(small, given + 1, given) - 1 / 3
    c = 1 / (3 * ew.sqrt(d))

    def turn(state: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        number, found, done = state
        here = fold_in(key, number)
        z = normal(here, sizes, dtype=wide)
        u = open_unit(name, fold_in(here, 1), sizes, wide, 0)
        root = 1 + c * z
        cube = root * root * root
        inside = ew.greater(root, 0)
        log_cube = 3 * ew.log(ew.where(inside, root, 1.0))
        fits = ew.less(ew.log(u), 0.5 * z * z + d * (1 - cube + log_cube))
        taken = ew.logical_and(ew.logical_and(inside, fits), ew.logical_not(done))
        return number + 1, ew.where(taken, ew.log(d) + log_cube, found), ew.logical_or(done, taken)

    first = (Tensor.of_node(as_node(FIRST_TURN, name)), zeros(full, dtype=wide), ew.isnan(given))
    found = while_loop(lambda state: ew.logical_not(reduce.all(state[2])), turn, first)[1]
    boost = ew.log(open_unit(name, fold_in(key, 0), sizes, wide, 0)) / given
    found = ew.where(small, found + boost, found)
    return ew.where(ew.greater(given, 0), found, float("nan"))


def gamma(key: Any, alpha: Any, shape: Any = None, *, rate: Any = 1.0, dtype: Any = float32) -> Tensor:
    """Gamma distributed numbers of shape parameter alpha, divided by `rate`.

    >>> mo.random.gamma(mo.random.key(0), 2.0, (3,)).shape
    (3,)
    """
    name = "random.gamma"
    target = float_dtype(name, dtype)
    check_parameters(name, alpha=alpha, rate=rate)
    sizes = shape_with(name, shape, alpha, rate)
    found = ew.exp(_log_gamma(name, key, alpha, sizes, target.compute))
    scaled = found if is_scalar(rate) and rate == 1 else found / (
        rate if is_scalar(rate) else ew.astype(rate, found.dtype))
    return ew.astype(scaled, target)


def chisquare(key: Any, df: Any, shape: Any = None, *, dtype: Any = float32) -> Tensor:
    """Sums of squares of `df` normal numbers; df need not be whole.

    >>> mo.random.chisquare(mo.random.key(0), 3.0, (3,)).shape
    (3,)
    """
    check_parameters("random.chisquare", df=df)
    return gamma(key, df / 2 if is_scalar(df) else ew.divide(df, 2), shape, dtype=dtype) * 2


def student_t(key: Any, df: Any, shape: Any = None, *, dtype: Any = float32) -> Tensor:
    """Numbers of Student's distribution with `df` degrees of freedom.

    >>> mo.random.student_t(mo.random.key(0), 3.0, (3,)).shape
    (3,)
    """
    name = "random.student_t"
    check_parameters(name, df=df)
    target = float_dtype(name, dtype)
    sizes, wide = shape_with(name, shape, df), target.compute
    first, second = split(key)
    half = df / 2 if is_scalar(df) else ew.divide(ew.astype(df, wide), 2)
    scale = gamma(second, half, sizes, dtype=wide) / half
    return ew.astype(normal(first, sizes, dtype=wide) / ew.sqrt(scale), target)


def beta(key: Any, a: Any, b: Any, shape: Any = None, *, dtype: Any = float32) -> Tensor:
    """Beta distributed numbers.

    >>> mo.random.beta(mo.random.key(0), 2.0, 3.0, (3,)).shape
    (3,)
    """
    name = "random.beta"
    target = float_dtype(name, dtype)
    check_parameters(name, a=a, b=b)
    sizes, (first, second) = shape_with(name, shape, a, b), split(key)
    one, two = (_log_gamma(name, k, p, sizes, target.compute) for k, p in ((first, a), (second, b)))
    return ew.astype(ew.reciprocal(1 + ew.exp(two - one)), target)


def dirichlet(key: Any, alpha: Any, shape: Any = None, *, dtype: Any = float32) -> Tensor:
    """Vectors of shares that sum to 1, of shape (*shape, n) for n parameters in the last axis of `alpha`.

    >>> mo.random.dirichlet(mo.random.key(0), [1.0, 2.0, 3.0], (5,)).shape
    (5, 3)
    """
    name = "random.dirichlet"
    target = float_dtype(name, dtype)
    check_parameters(name, alpha=alpha)
    given = Tensor.of_node(as_node(alpha, name))
    if given.ndim < 1:
        raise fail(ShapeError, name, "a number is no vector of parameters")
    if not isinstance(alpha, Tensor) and not (np.asarray(alpha) > 0).all():
        raise fail(ValueFault, name, "a concentration is not positive")
    given = Tensor.of_node(require(name, given.node, ew.greater(given, 0).node))
    sizes = (*(given.shape[:-1] if shape is None else shape_with(name, shape)), given.shape[-1])
    wide = float64 if target is float64 else float32
    return ew.astype(softmax(_log_gamma(name, key, given, shape_with(name, sizes, given), wide), axis=-1), target)
