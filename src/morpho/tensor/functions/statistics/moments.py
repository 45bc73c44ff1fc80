"""Weighted means, ranges, covariances and correlations."""

from __future__ import annotations

from typing import Any

from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.tensor.autodiff.precision import rounded_once, widened
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import linalg, reduce
from morpho.tensor.functions.move import broadcast_to, concat, matrix_transpose, reshape
from morpho.tensor.functions.products.products import matmul
from morpho.tensor.operands import as_node
from morpho.tensor.scalars import DEFAULT_FLOAT, is_scalar


def _numbers(name: str, x: Any) -> Tensor:
    node = widened(as_node(x, name))
    found = Tensor.of_node(node)
    return found if node.dtype.kind in "fc" else ew.astype(found, DEFAULT_FLOAT)


def average(x: Any, /, *, axis: Any = None, weights: Any = None, keepdims: bool = False) -> Tensor:
    """The mean, or the sum of weighted elements divided by that of the weights, which have the shape of x or of its
    one axis.

    >>> mo.average([1.0, 2.0, 6.0], weights=[1.0, 1.0, 2.0]).item()
    3.75
    """
    values = _numbers("average", x)
    if weights is None:
        return reduce.mean(values, axis=axis, keepdims=keepdims)
    given = _numbers("average", weights)
    if given.shape != values.shape:
        axes = reduce.reduced_axes(axis, values.ndim, "average")
        if len(axes) != 1 or given.shape != (values.shape[axes[0]],) or axis is None:
            raise fail(ShapeError, "average", f"weights of shape {given.shape} do not fit {values.shape} along axis "
                                              f"{axis}")
        given = reshape(given, tuple(-1 if d == axes[0] else 1 for d in range(values.ndim)))
    given = broadcast_to(given, values.shape)
    total = reduce.sum(values * given, axis=axis, keepdims=keepdims)
    return total / reduce.sum(given, axis=axis, keepdims=keepdims)


def ptp(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest element less the smallest one.

    >>> mo.ptp([3.0, 9.0, 5.0]).item()
    6.0
    """
    return ew.subtract(reduce.max(x, axis=axis, keepdims=keepdims), reduce.min(x, axis=axis, keepdims=keepdims))


@rounded_once
def cov(x: Any, y: Any = None, /, *, rowvar: bool = True, correction: float = 1.0, fweights: Any = None,
        aweights: Any = None) -> Tensor:
    """The covariances of variables, which are the rows of x (its columns with `rowvar=False`), and of y's.

    `correction` is taken off the number of observations; `fweights` count repeated ones, `aweights` weigh them.

    >>> mo.cov([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    rows = _variables("cov", x, rowvar)
    if y is not None:
        rows = concat([rows, _variables("cov", y, rowvar)], axis=0)
    found = _covariance(rows, correction, fweights, aweights)
    return found if rows.shape[0] != 1 else reshape(found, ())


def _variables(name: str, x: Any, rowvar: bool) -> Tensor:
    rows = _numbers(name, x)
    if rows.ndim > 2:
        raise fail(ShapeError, name, f"shape {rows.shape} has more than two axes")
    if rows.ndim < 2:
        return reshape(rows, (1, -1))
    return rows if rowvar else matrix_transpose(rows)


def _weights(name: str, what: str, weights: Any, rows: Tensor) -> Tensor:
    found = Tensor.of_node(as_node(weights, name))
    if found.ndim != 1 or found.shape[0] != rows.shape[1]:
        raise fail(ShapeError, name, f"{what} of shape {found.shape} do not fit {rows.shape[1]} observations")
    if what == "fweights" and not found.dtype.is_integer:
        raise fail(DTypeError, name, f"fweights are {found.dtype}, not integers: they count", "use aweights")
    return ew.astype(found, rows.dtype)


def _covariance(rows: Tensor, correction: Any, fweights: Any, aweights: Any) -> Tensor:
    if not is_scalar(correction) or isinstance(correction, complex):
        raise fail(ArgumentError, "cov", f"correction {correction!r} is not a number")
    count: Any = rows.shape[1]
    weights = None if fweights is None else _weights("cov", "fweights", fweights, rows)
    if weights is not None:
        count = reduce.sum(weights)
    divisor = ew.subtract(count, float(correction))
    if aweights is not None:
        given = _weights("cov", "aweights", aweights, rows)
        weights = given if weights is None else given * weights
        total = reduce.sum(weights)
        divisor = total - float(correction) * reduce.sum(weights * given) / total
    elif weights is not None:
        divisor = count - float(correction)
    if weights is None:
        centred = rows - reduce.mean(rows, axis=1, keepdims=True)
        weighted = centred
    else:
        centred = rows - reduce.sum(rows * weights, axis=1, keepdims=True) / reduce.sum(weights)
        weighted = centred * weights
    product = matmul(centred, ew.conj(matrix_transpose(weighted)))
    return product / ew.astype(Tensor.of_node(as_node(divisor, "cov")), ew.real(product).dtype)


@rounded_once
def corrcoef(x: Any, y: Any = None, /, *, rowvar: bool = True) -> Tensor:
    """The correlations of variables, which are the rows of x (its columns with `rowvar=False`), and of y's; kept
    within -1..1.

    >>> mo.corrcoef([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    rows = _variables("corrcoef", x, rowvar)
    if y is not None:
        rows = concat([rows, _variables("corrcoef", y, rowvar)], axis=0)
    found = _covariance(rows, 1.0, None, None)
    spread = ew.sqrt(ew.real(linalg.diagonal(found)))
    scaled = found / reshape(spread, (-1, 1)) / reshape(spread, (1, -1))
    scaled = scaled if scaled.dtype.is_complex else ew.clip(scaled, -1.0, 1.0)
    return scaled if rows.shape[0] != 1 else reshape(scaled, ())
