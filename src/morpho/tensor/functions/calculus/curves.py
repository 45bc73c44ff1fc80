"""Curves given by points: values between them, areas under them, their slopes."""

from __future__ import annotations

from typing import Any

from morpho.base.dtypes import int64, uint64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault, fail
from morpho.base.shapes import normalise_axis
from morpho.tensor.autodiff.precision import rounded_once
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.functions.move import concat, moveaxis, reshape, tile
from morpho.tensor.functions.searching.search import searchsorted, take
from morpho.tensor.functions.searching.sorting import argsort
from morpho.tensor.operands import as_node, promoted, promoted_arrays
from morpho.tensor.scalars import is_scalar


@rounded_once
def interp(x: Any, xp: Any, fp: Any, /, *, left: Any = None, right: Any = None, period: float | None = None) -> Tensor:
    """The values at x of the lines between points (xp, fp), xp rising; beyond the ends their values, or `left` and
    `right`. With a `period` x and xp are angles of that circle, in any order.

    >>> mo.interp([0.5, 1.5, 9.0], [0.0, 1.0, 2.0], [0.0, 10.0, 40.0]).tolist()
    [5.0, 25.0, 40.0]
    """
    at, points, values = (Tensor.of_node(node) for node in promoted("interp", x, xp, fp, floating=True))
    if points.dtype.is_complex:
        raise fail(DTypeError, "interp", "points that are complex have no order")
    if points.ndim != 1 or values.shape != points.shape or points.shape[0] == 0:
        raise fail(ShapeError, "interp", f"points of shape {points.shape} and values of {values.shape} are not one "
                                         "line each, of one length")
    if period is not None:
        if not is_scalar(period) or not abs(period) > 0:
            raise fail(ValueFault, "interp", f"period {period!r} is not a number but 0")
        at, points, values = _around(at, points, values, abs(float(period)))
    upper = ew.clip(searchsorted(points, at, side="right"), 1, max(int(points.shape[0]) - 1, 1))
    lower = ew.astype(upper - 1, int64)
    if points.shape[0] == 1:
        found = ew.where(ew.isnan(at), at, take(values, ew.astype(at * 0, int64), axis=0)) if values.size else at
    else:
        x0, x1, y0, y1 = (take(line, index, axis=0) for line in (points, values) for index in (lower, upper))
        width = x1 - x0
        share = (at - x0) / ew.where(ew.equal(width, 0), 1.0, width)
        found = ew.where(ew.equal(at, x1), y1, y0 + (y1 - y0) * share)
    first, last = points[0], points[-1]
    if period is None:
        found = ew.where(ew.less(at, first), values[0] if left is None else left, found)
        found = ew.where(ew.greater(at, last), values[-1] if right is None else right, found)
    return ew.astype(found, values.dtype)


def _around(at: Tensor, points: Tensor, values: Tensor, period: float) -> tuple[Tensor, Tensor, Tensor]:
    at, points = ew.remainder(at, period), ew.remainder(points, period)
    order = argsort(points)
    points, values = take(points, order, axis=0), take(values, order, axis=0)
    points = concat([points[-1:] - period, points, points[:1] + period])
    return at, points, concat([values[-1:], values, values[:1]])


def _last(name: str, y: Any, x: Any, axis: Any) -> tuple[Tensor, Tensor | None, int]:
    """y and the steps between its points, the axis last."""
    values = Tensor.of_node(promoted(name, y, floating=True)[0])
    number = normalise_axis(axis, values.ndim, name)
    values = moveaxis(values, number, -1)
    if x is None:
        return values, None, number
    points = Tensor.of_node(promoted(name, x, floating=True)[0])
    if points.ndim != 1:
        points = moveaxis(points, number, -1)
    if points.shape[-1] != values.shape[-1]:
        raise fail(ShapeError, name, f"{points.shape[-1]} points do not fit {values.shape[-1]} values")
    return values, points[..., 1:] - points[..., :-1], number


def _areas(name: str, y: Any, x: Any, dx: Any, axis: Any) -> tuple[Tensor, int]:
    values, steps, number = _last(name, y, x, axis)
    pairs = values[..., 1:] + values[..., :-1]
    return (pairs * (dx if steps is None else steps)) * 0.5, number


@rounded_once
def trapezoid(y: Any, x: Any = None, /, *, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """The area under lines between points along an axis: at x, or `dx` apart.

    >>> mo.trapezoid([1.0, 2.0, 4.0], [0.0, 1.0, 3.0]).item()
    7.5
    """
    return reduce.sum(_areas("trapezoid", y, x, dx, axis)[0], axis=-1)


@rounded_once
def cumulative_trapezoid(y: Any, x: Any = None, /, *, dx: Any = 1.0, axis: int = -1, initial: Any = None) -> Tensor:
    """The area under lines between points up to each of them, without the first, which `initial` puts in front.

    >>> mo.cumulative_trapezoid([1.0, 2.0, 4.0], initial=0.0).tolist()
    [0.0, 1.5, 4.5]
    """
    areas, number = _areas("cumulative_trapezoid", y, x, dx, axis)
    found = reduce.cumulative_sum(areas, axis=-1)
    if initial is not None:
        found = concat([found[..., :1] * 0 + initial, found], axis=-1)
    return moveaxis(found, -1, number)


@rounded_once
def gradient(y: Any, /, spacing: Any = 1.0, *, axis: int | None = None) -> Any:
    """Slopes by central differences, one-sided at the ends, along an axis, or along each as a list: points `spacing`
    apart, or at the positions of a line. (`mo.grad` is the gradient of a function.)

    >>> mo.gradient([1.0, 4.0, 9.0, 16.0]).tolist()
    [3.0, 4.0, 6.0, 7.0]
    """
    values = Tensor.of_node(promoted("gradient", y, floating=True)[0])
    axes = range(values.ndim) if axis is None else [normalise_axis(axis, values.ndim, "gradient")]
    found = [_slope(values, spacing, number) for number in axes]
    return found[0] if len(found) == 1 else found


def _slope(values: Tensor, spacing: Any, axis: int) -> Tensor:
    y = moveaxis(values, axis, -1)
    if y.shape[-1] < 2:
        raise fail(ShapeError, "gradient", f"{y.shape[-1]} points along axis {axis} have no slope")
    if is_scalar(spacing) or not Tensor.of_node(as_node(spacing, "gradient")).shape:
        inner = (y[..., 2:] - y[..., :-2]) / (spacing * 2)
        ends = [(y[..., 1:2] - y[..., :1]) / spacing, (y[..., -1:] - y[..., -2:-1]) / spacing]
    else:
        x = Tensor.of_node(promoted("gradient", spacing, floating=True)[0])
        if x.shape != y.shape[-1:]:
            raise fail(ShapeError, "gradient", f"positions of shape {x.shape} do not fit {y.shape[-1]} points")
        steps = x[1:] - x[:-1]
        before, after = steps[:-1], steps[1:]
        inner = (y[..., 2:] * before ** 2 - y[..., :-2] * after ** 2 + y[..., 1:-1] * (after ** 2 - before ** 2)) / (
            before * after * (before + after))
        ends = [(y[..., 1:2] - y[..., :1]) / steps[:1], (y[..., -1:] - y[..., -2:-1]) / steps[-1:]]
    return moveaxis(concat([ends[0], inner, ends[1]], axis=-1), -1, axis)


def kron(a: Any, b: Any, /) -> Tensor:
    """The Kronecker product: every element of a times all of b.

    >>> mo.kron([1, 10], [1, 2]).tolist()
    [1, 2, 10, 20]
    """
    left, right = (Tensor.of_node(node) for node in promoted_arrays("kron", a, b))
    rank = max(left.ndim, right.ndim)
    one, two = ((1,) * (rank - x.ndim) + tuple(x.shape) for x in (left, right))
    apart = reshape(left, tuple(size for pair in one for size in (pair, 1)))
    product = apart * reshape(right, tuple(size for pair in two for size in (1, pair)))
    return reshape(product, tuple(m * n for m, n in zip(one, two, strict=True)))


def vander(x: Any, /, n: int | None = None, *, increasing: bool = False) -> Tensor:
    """Powers of a vector as columns, falling unless `increasing`.

    >>> mo.vander([2, 3], 3).tolist()
    [[4, 2, 1], [9, 3, 1]]
    """
    from morpho.base.shapes import as_integer
    from morpho.tensor.functions.create import ones_like

    values = Tensor.of_node(as_node(x, "vander"))
    if not values.dtype.is_inexact and values.dtype is not uint64:
        values = ew.astype(values, int64)  # as NumPy's: small integers have no room for their powers
    if values.ndim != 1:
        raise fail(ShapeError, "vander", f"shape {values.shape} is not a vector")
    count = as_integer(values.shape[0] if n is None else n, "vander", "n")
    if count < 1:
        raise fail(ArgumentError, "vander", f"{count} columns cannot be made")
    columns = concat([ones_like(values)[:, None], tile(values[:, None], (1, count - 1))], axis=1)
    powers = reduce.cumulative_prod(columns, axis=1, dtype=values.dtype)
    from morpho.tensor.functions.move import flip

    return powers if increasing else flip(powers, axis=1)


@rounded_once
def polyval(p: Any, x: Any, /) -> Tensor:
    """The value of a polynomial at x, by Horner's rule; `p` has its coefficients, the highest power first.

    >>> mo.polyval([3.0, 0.0, 1.0], 5.0).item()
    76.0
    """
    coefficients, points = (Tensor.of_node(node) for node in promoted("polyval", p, x))
    if len(coefficients.shape) != 1 or not isinstance(coefficients.shape[0], int):
        raise fail(ShapeError, "polyval", f"coefficients of shape {coefficients.shape} are no line")
    found = points * 0 if coefficients.shape[0] else ew.where(True, 0, points)  # no coefficients: 0, also of infinities
    for number in range(coefficients.shape[0]):
        found = found * points + coefficients[number]
    return found
