"""`mo.ndimage`: SciPy's filters and interpolation of images, on tensors, with gradients.

Orders of interpolation are 0 to 5, 3 unless said otherwise. Borders are SciPy's modes.

>>> from morpho.scipy import ndimage
>>> ndimage.map_coordinates([[0.0, 1.0], [2.0, 3.0]], [[0.5], [0.5]], order=1).tolist()
[1.5]
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail

_PAD = {"reflect": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap", "constant": "constant",
        "grid-wrap": "wrap", "grid-mirror": "symmetric", "grid-constant": "constant"}


def _image(input: Any) -> Any:
    x = mo.asarray(input)
    return x if x.dtype.is_inexact else x.astype(mo.float64 if x.dtype.itemsize > 4 else mo.float32)


def _weights(weights: Any) -> Any:
    return mo.asarray(weights, dtype=mo.float64) if isinstance(weights, list | tuple) else mo.asarray(weights)


def _mode(name: str, mode: str) -> str:
    if mode not in _PAD:
        raise fail(ArgumentError, name, f"mode {mode!r} is unknown", f"use one of {', '.join(_PAD)}")
    return mode


# -- interpolation -------------------------------------------------------------------------------------------------
def _fixed(index: Any, size: int, mode: str) -> Any:
    """An integer index taken into 0..size-1 as the mode says."""
    if mode in ("wrap", "grid-wrap"):
        return mo.remainder(index, size)
    if mode == "mirror":
        period = max(2 * (size - 1), 1)
        index = mo.remainder(index, period)
        return mo.minimum(mo.where(index >= size, period - index, index), size - 1)
    if mode in ("reflect", "grid-mirror"):
        index = mo.remainder(index, 2 * size)
        return mo.where(index >= size, 2 * size - 1 - index, index)
    return mo.clip(index, 0, size - 1)


_POLES = {  # of the recursive filter that turns samples into coefficients of B-splines, by their order
    2: (math.sqrt(8) - 3,), 3: (math.sqrt(3) - 2,),
    4: (math.sqrt(664 - math.sqrt(438976)) + math.sqrt(304) - 19,
        math.sqrt(664 + math.sqrt(438976)) - math.sqrt(304) - 19),
    5: (math.sqrt(67.5 - math.sqrt(4436.25)) + math.sqrt(26.25) - 6.5,
        math.sqrt(67.5 + math.sqrt(4436.25)) - math.sqrt(26.25) - 6.5)}
_ENDS = {"grid-wrap": "wrap", "reflect": "reflect", "grid-mirror": "reflect", "nearest": "reflect"}  # else "mirror"
_BORDER = 12  # samples added where the samples outside are no mirror image: their weight is below 1e-6 by then


def _starts(pole: float, size: int, ends: str) -> tuple[np.ndarray, np.ndarray]:
    """The weights of all samples in the first value of the forward filter, and of its results in the last value of the
    backward one."""
    powers = pole ** np.arange(size)
    last = np.zeros(size)
    if ends == "mirror":
        whole = pole ** (2 * size - 2)
        first = powers + whole / np.where(powers == 0, 1, powers) * (powers != 0)
        first[0], first[-1] = 1, powers[-1]
        last[-1], last[-2] = pole / (pole * pole - 1), pole * pole / (pole * pole - 1)
        return first / (1 - whole), last
    if ends == "reflect":
        first = (powers + pole ** (2 * size - 1 - np.arange(size))) * (pole / (1 - pole ** (2 * size)))
        first[0] += 1
        last[-1] = pole / (pole - 1)
        return first, last
    first = np.roll(powers[::-1], 1)
    last = np.roll(powers, -1) * pole if size > 1 else last
    last = np.concatenate([powers[1:], [1.0]])
    return first / (1 - pole ** size), -pole / (1 - pole ** size) * last


def spline_filter1d(input: Any, order: int = 3, axis: int = -1, output: Any = None, mode: str = "mirror") -> Any:
    """Coefficients of the B-spline through the samples along an axis, in float64."""
    if order not in range(6):
        raise fail(ArgumentError, "spline_filter1d", f"order={order} is not one of 0 to 5")
    x = mo.asarray(input)
    x = x if x.dtype.is_complex else x.astype(mo.float64)
    ends = _ENDS.get(_mode("spline_filter1d", mode), "mirror")
    size = x.shape[axis]
    if order < 2 or size < 2:
        return x
    rows = mo.moveaxis(x, axis, 0)
    column = (slice(None), *[None] * (rows.ndim - 1))
    for pole in _POLES[order]:
        first, last = (mo.asarray(one)[column] for one in _starts(pole, int(size), ends))
        rows = rows * ((1 - pole) * (1 - 1 / pole))

        def forward(state: Any, row: Any, pole: float = pole) -> Any:
            state = row + pole * state
            return state, state

        def backward(state: Any, row: Any, pole: float = pole) -> Any:
            state = pole * (state - row)
            return state, state

        start = mo.sum(rows * first, axis=0)
        rows = mo.concat([start[None], mo.scan(forward, start, rows[1:])[1]], axis=0)
        end = mo.sum(rows * last, axis=0)
        rest = mo.scan(backward, end, mo.flip(rows[:-1], axis=0))[1]
        rows = mo.concat([mo.flip(rest, axis=0), end[None]], axis=0)
    return mo.moveaxis(rows, 0, axis)


def spline_filter(input: Any, order: int = 3, output: Any = None, mode: str = "mirror") -> Any:
    """Coefficients of the B-spline through the samples along all axes, in float64."""
    x = mo.asarray(input)
    for axis in range(x.ndim):
        x = spline_filter1d(x, order, axis, None, mode)
    return x


def _basis(order: int, t: Any) -> Any:
    """The B-spline of an order at t."""
    terms = [(-1) ** j * math.comb(order + 1, j) / math.factorial(order)
             * mo.maximum(t + ((order + 1) / 2 - j), 0.0) ** order for j in range(order + 2)]
    return functools.reduce(operator.add, terms)


def _splines(row: Any, order: int) -> list[tuple[Any, Any]]:
    """The places whose coefficients make the value at each coordinate, and their weights."""
    low = (mo.floor(row) if order % 2 else mo.floor(row + 0.5)) - order // 2
    start = low.astype(mo.int64)
    return [(start + k, _basis(order, row - (low + k))) for k in range(order + 1)]


def map_coordinates(input: Any, coordinates: Any, output: Any = None, order: int = 3, mode: str = "constant",
                    cval: float = 0.0, prefilter: bool = True) -> Any:
    """The image at coordinates, one row for each axis: order 0 is the nearest sample, 1 is linear, 2 to 5 are splines,
    whose coefficients are computed first unless `prefilter` says that the image holds them."""
    x = _image(input)
    own = mo.asarray(input).dtype
    rows = [mo.asarray(one) for one in coordinates]
    rows = [one if one.dtype.is_float and order < 2 else one.astype(mo.float64) for one in rows]
    if len(rows) != x.ndim:
        raise fail(ShapeError, "map_coordinates", f"{len(rows)} rows of coordinates for {x.ndim} axes")
    if order not in range(6):
        raise fail(ArgumentError, "map_coordinates", f"order={order} is not one of 0 to 5")
    mode = _mode("map_coordinates", mode)
    border = 0
    if order > 1 and prefilter:
        if mode in ("nearest", "grid-constant"):
            border = _BORDER
            x = _padded(x, [border] * x.ndim, [border] * x.ndim, mode, cval)
        x = spline_filter(x, order, mode=mode)
        rows = [row + border for row in rows]
    parts: list[list[tuple[Any, Any, Any]]] = []
    for row, size in zip(rows, x.shape, strict=True):
        if mode == "wrap":  # SciPy's: the first and the last element are one
            row = mo.remainder(row, size - 1.0) if size > 1 else row * 0
        if mode == "nearest":
            row = mo.clip(row, 0.0, size - 1.0)
        outside = mo.logical_or(row < 0, row > size - 1.0)
        low = mo.floor(row + 0.5) if order == 0 else mo.floor(row)
        first = low.astype(mo.int64)
        choices = [(first, mo.ones_like(row))]
        if order == 1:
            share = row - low
            choices = [(first, 1 - share), (first + 1, share)]
        elif order > 1:
            choices = _splines(row, order)
        edge = "mirror" if order > 1 and mode in ("constant", "wrap") else mode
        found = []
        for index, weight in choices:
            inside = mo.logical_not(outside) if mode == "constant" else mo.ones_like(outside)
            if mode == "grid-constant":
                inside = mo.logical_and(index >= 0, index < size)
            found.append((_fixed(index, size, edge), weight, inside))
        parts.append(found)
    total: Any = None
    for corner in itertools.product(*parts):
        weight = functools.reduce(operator.mul, [one[1] for one in corner])
        inside = functools.reduce(mo.logical_and, [one[2] for one in corner])
        value = mo.where(inside, x[tuple(one[0] for one in corner)], cval) * weight
        total = value if total is None else total + value
    if not own.is_inexact:
        return mo.round(total).astype(own)
    return total.astype(own)


def shift(input: Any, shift: Any, output: Any = None, order: int = 3, mode: str = "constant", cval: float = 0.0,
          prefilter: bool = True) -> Any:
    x = mo.asarray(input)
    steps = [shift] * x.ndim if isinstance(shift, int | float) else list(shift)
    grid = mo.meshgrid(*[mo.arange(size).astype(mo.float64) - step for size, step in zip(x.shape, steps, strict=True)],
                       indexing="ij")
    return map_coordinates(x, grid, order=order, mode=mode, cval=cval, prefilter=prefilter)


def zoom(input: Any, zoom: Any, output: Any = None, order: int = 3, mode: str = "constant", cval: float = 0.0,
         prefilter: bool = True, *, grid_mode: bool = False) -> Any:
    x = mo.asarray(input)
    if grid_mode:
        raise fail(ArgumentError, "zoom", "grid_mode=True is not taken", "leave it out")
    factors = [zoom] * x.ndim if isinstance(zoom, int | float) else list(zoom)
    shape: list[Any] = list(x.shape)
    sizes = [round(size * factor) for size, factor in zip(shape, factors, strict=True)]
    lines = [mo.arange(new).astype(mo.float64) * ((size - 1) / (new - 1) if new > 1 else 1.0)
             for size, new in zip(shape, sizes, strict=True)]
    lines = [mo.minimum(line, size - 1.0) for line, size in zip(lines, shape, strict=True)]
    places = mo.meshgrid(*lines, indexing="ij")
    return map_coordinates(x, places, order=order, mode=mode, cval=cval, prefilter=prefilter)


def affine_transform(input: Any, matrix: Any, offset: Any = 0.0, output_shape: Any = None, output: Any = None,
                     order: int = 3, mode: str = "constant", cval: float = 0.0, prefilter: bool = True) -> Any:
    """The image at matrix @ place + offset, for every place of the result."""
    x, matrix = mo.asarray(input), mo.asarray(matrix)
    matrix = matrix if matrix.dtype.is_float else matrix.astype(mo.float64)
    if matrix.ndim == 1:
        matrix = mo.diag(matrix)
    elif matrix.shape[1] == x.ndim + 1:
        matrix, offset = matrix[:x.ndim, :x.ndim], matrix[:x.ndim, x.ndim]
    shape = tuple(x.shape) if output_shape is None else tuple(output_shape)
    grid = mo.stack([mo.ravel(one) for one in mo.meshgrid(*[mo.arange(size).astype(matrix.dtype) for size in shape],
                                                          indexing="ij")])
    move = mo.asarray(offset, dtype=matrix.dtype)
    places = matrix @ grid + (move[:, None] if move.ndim else move)
    return map_coordinates(x, [mo.reshape(row, shape) for row in mo.unstack(places)], order=order, mode=mode,
                           cval=cval, prefilter=prefilter)


# -- filters -------------------------------------------------------------------------------------------------------
def _padded(x: Any, before: Sequence[int], after: Sequence[int], mode: str, cval: float) -> Any:
    """The image with borders, also where they are wider than it."""
    kind = _PAD[mode]
    widths = list(zip(before, after, strict=True))
    if kind == "constant":
        return mo.pad(x, widths, mode="constant", value=cval)
    for axis, (low, high) in enumerate(widths):
        if low or high:
            places = mo.arange(-low, x.shape[axis] + high)
            name = {"symmetric": "reflect", "reflect": "mirror", "edge": "nearest", "wrap": "wrap"}[kind]
            x = mo.take(x, _fixed(places, x.shape[axis], name), axis=axis)
    return x


def correlate1d(input: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect", cval: float = 0.0,
                origin: int = 0) -> Any:
    x, weights = _image(input), _weights(weights)
    axis %= x.ndim
    size = weights.shape[0]
    low = size // 2 + origin
    before, after = [0] * x.ndim, [0] * x.ndim
    before[axis], after[axis] = low, size - 1 - low
    wide = _padded(x, before, after, _mode("correlate1d", mode), cval)
    count = x.shape[axis]
    total: Any = None
    for number in range(size):
        part = wide[(slice(None),) * axis + (slice(number, number + count),)] * weights[number].astype(x.dtype)
        total = part if total is None else total + part
    return total


def convolve1d(input: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect", cval: float = 0.0,
               origin: int = 0) -> Any:
    weights = _weights(weights)
    size = weights.shape[0]
    return correlate1d(input, mo.flip(weights, axis=0), axis, None, mode, cval, -origin - (size % 2 == 0))


def correlate(input: Any, weights: Any, output: Any = None, mode: str = "reflect", cval: float = 0.0) -> Any:
    x, weights = _image(input), _weights(weights)
    return _windows(x, weights.shape, mode, cval, lambda rows: functools.reduce(operator.add, [
        row * weight.astype(x.dtype) for row, weight in zip(rows, mo.unstack(mo.ravel(weights)), strict=True)]))


def convolve(input: Any, weights: Any, output: Any = None, mode: str = "reflect", cval: float = 0.0) -> Any:
    x, weights = _image(input), _weights(weights)
    flipped = mo.flip(weights)
    return _windows(x, weights.shape, mode, cval, lambda rows: functools.reduce(operator.add, [
        row * weight.astype(x.dtype) for row, weight in zip(rows, mo.unstack(mo.ravel(flipped)), strict=True)]), True)


def _windows(x: Any, shape: Sequence[int], mode: str, cval: float, gather: Callable[[list[Any]], Any],
             is_flipped: bool = False) -> Any:
    """The result of `gather` on the images that the places of a window see."""
    if len(shape) != x.ndim:
        raise fail(ShapeError, "filter", f"a window of {len(shape)} axes for an image of {x.ndim}")
    low = [(size - 1) // 2 if is_flipped else size // 2 for size in shape]
    wide = _padded(x, low, [size - 1 - one for size, one in zip(shape, low, strict=True)], _mode("filter", mode), cval)
    rows = [wide[tuple(slice(start, start + size) for start, size in zip(place, x.shape, strict=True))]
            for place in itertools.product(*[range(size) for size in shape])]
    return gather(rows)


def _sizes(x: Any, size: Any) -> list[int]:
    return [size] * x.ndim if isinstance(size, int) else list(size)


def uniform_filter1d(input: Any, size: int, axis: int = -1, output: Any = None, mode: str = "reflect",
                     cval: float = 0.0, origin: int = 0) -> Any:
    x = _image(input)
    return correlate1d(x, mo.full((size,), 1 / size, dtype=mo.float64), axis, None, mode, cval, origin)


def uniform_filter(input: Any, size: Any = 3, output: Any = None, mode: str = "reflect", cval: float = 0.0) -> Any:
    x = _image(input)
    for axis, one in enumerate(_sizes(x, size)):
        x = uniform_filter1d(x, one, axis, None, mode, cval)
    return x


def gaussian_filter1d(input: Any, sigma: float, axis: int = -1, order: int = 0, output: Any = None,
                      mode: str = "reflect", cval: float = 0.0, truncate: float = 4.0, *, radius: Any = None) -> Any:
    width = int(truncate * float(sigma) + 0.5) if radius is None else int(radius)
    places = np.arange(-width, width + 1)
    weights = np.exp(-0.5 * (places / sigma) ** 2)
    weights /= weights.sum()
    if order:
        powers = np.zeros(order + 1)
        powers[0] = 1
        slope, curve = np.diag(np.arange(1, order + 1), 1), np.diag(np.full(order, -1 / (sigma * sigma)), -1)
        for _ in range(order):
            powers = (slope + curve) @ powers
        weights = weights * (places[:, None] ** np.arange(order + 1) @ powers)
    return correlate1d(input, weights[::-1].copy(), axis, None, mode, cval)


def gaussian_filter(input: Any, sigma: Any, order: Any = 0, output: Any = None, mode: str = "reflect",
                    cval: float = 0.0, truncate: float = 4.0, *, radius: Any = None, axes: Any = None) -> Any:
    x = _image(input)
    sigmas = [sigma] * x.ndim if isinstance(sigma, int | float) else list(sigma)
    orders = [order] * x.ndim if isinstance(order, int) else list(order)
    for axis, (one, times) in enumerate(zip(sigmas, orders, strict=True)):
        if one > 1e-15:
            x = gaussian_filter1d(x, one, axis, times, None, mode, cval, truncate, radius=radius)
    return x


def laplace(input: Any, output: Any = None, mode: str = "reflect", cval: float = 0.0) -> Any:
    x = _image(input)
    return functools.reduce(operator.add, [correlate1d(x, [1.0, -2.0, 1.0], axis, None, mode, cval)
                                           for axis in range(x.ndim)])


def _edges(x: Any, axis: int, middle: Sequence[float], mode: str, cval: float) -> Any:
    x = _image(x)
    axis %= x.ndim
    made = correlate1d(x, [-1.0, 0.0, 1.0], axis, None, mode, cval)
    for other in range(x.ndim):
        if other != axis:
            made = correlate1d(made, middle, other, None, mode, cval)
    return made


def sobel(input: Any, axis: int = -1, output: Any = None, mode: str = "reflect", cval: float = 0.0) -> Any:
    return _edges(input, axis, (1.0, 2.0, 1.0), mode, cval)


def prewitt(input: Any, axis: int = -1, output: Any = None, mode: str = "reflect", cval: float = 0.0) -> Any:
    return _edges(input, axis, (1.0, 1.0, 1.0), mode, cval)


def _ranked(name: str, choose: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def function(input: Any, size: Any = None, footprint: Any = None, output: Any = None, mode: str = "reflect",
                 cval: float = 0.0) -> Any:
        x = mo.asarray(input)
        if footprint is not None:
            mask = np.asarray(footprint.numpy() if isinstance(footprint, mo.Tensor) else footprint).astype(bool)
            places = mask.ravel().tolist()
            return _windows(x, mask.shape, mode, cval, lambda rows: choose(
                [row for row, place in zip(rows, places, strict=True) if place]))
        if size is None:
            raise fail(ArgumentError, name, "neither size= nor footprint= says how large the window is")
        return _windows(x, _sizes(x, size), mode, cval, choose)

    function.__name__ = function.__qualname__ = name
    return function


maximum_filter = _ranked("maximum_filter", lambda rows: functools.reduce(mo.maximum, rows))
minimum_filter = _ranked("minimum_filter", lambda rows: functools.reduce(mo.minimum, rows))
median_filter = _ranked("median_filter", lambda rows: mo.sort(mo.stack(rows), axis=0)[len(rows) // 2])


def center_of_mass(input: Any) -> tuple[Any, ...]:
    x = _image(input)
    total = mo.sum(x)
    grids = mo.meshgrid(*[mo.arange(size).astype(x.dtype) for size in x.shape], indexing="ij")
    return tuple(mo.sum(x * grid) / total for grid in grids)


def rotate(input: Any, angle: float, axes: Any = (1, 0), reshape: bool = True, output: Any = None, order: int = 3,
           mode: str = "constant", cval: float = 0.0, prefilter: bool = True) -> Any:
    """A plane of the image turned by an angle in degrees."""
    x = mo.asarray(input)
    if x.ndim != 2:
        raise fail(ShapeError, "rotate", f"an image of {x.ndim} axes is not a plane")
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    first, second = sorted(axis % 2 for axis in axes)
    matrix = np.array([[cosine, sine], [-sine, cosine]])
    sizes = np.array(x.shape)[[first, second]]
    shape = sizes
    if reshape:
        corners = matrix @ [[0, 0, sizes[0], sizes[0]], [0, sizes[1], 0, sizes[1]]]
        shape = (np.ptp(corners, axis=1) + 0.5).astype(int)
    offset = (sizes - 1) / 2 - matrix @ ((shape - 1) / 2)
    return affine_transform(x, matrix, offset, tuple(int(size) for size in shape), None, order, mode, cval)
