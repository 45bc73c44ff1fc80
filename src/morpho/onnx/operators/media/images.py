"""Images: resizing, sampling on grids, regions of interest."""

from __future__ import annotations

import io
import itertools
import math
from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.proto.errors import refuse
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import Array, bounded, cast, scalar, tensor

FAMILY = Family("images")
COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
               "tf_half_pixel_for_nn", "tf_crop_and_resize")


@FAMILY.op("Resize", since=11)
def resize(call: Call, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    x = tensor(x)
    rank = len(x.shape)
    axes = [call.axis(axis, rank) for axis in call.get("axes", [*range(rank)])]
    mode = call.get("coordinate_transformation_mode", "half_pixel")
    given = None if roi is None else call.static(roi, "its region").astype(np.float64).reshape(-1)
    region = given if mode == "tf_crop_and_resize" and given is not None and given.size else None
    factors = None if scales is None else call.static(scales, "its scales").astype(np.float64).reshape(-1)
    if factors is not None and factors.size:
        if factors.size != len(axes):
            raise call.error(f"{factors.size} scales are given for {len(axes)} axes")
        targets = [math.floor(x.shape[axis] * (1.0 if region is None else region[at + len(axes)] - region[at]) * factor)
                   for at, (axis, factor) in enumerate(zip(axes, factors))]
    elif sizes is not None:
        targets = [int(size) for size in call.integers(sizes, "its sizes")]
        factors, targets = _for_sizes(call, [x.shape[axis] for axis in axes], targets)
    else:
        raise call.error("neither scales nor sizes are given")
    bounded(targets, call.op)
    for at, (axis, factor, target) in enumerate(zip(axes, factors, targets)):
        ends = None if region is None else (region[at], region[at + len(axes)])
        x = resized(call, x, axis, float(factor), target, mode, ends)
    return x


def _for_sizes(call: Call, sizes: list[int], targets: list[int]) -> tuple[Any, list[int]]:
    """Scales for wanted sizes, of which one holds for all where the ratio of sides is kept."""
    policy = call.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    ratios = [target / size for target, size in zip(targets, sizes)]
    if policy == "stretch":
        return np.asarray(ratios), targets
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return np.full(len(sizes), ratio), [math.floor(ratio * size + 0.5) for size in sizes]


@FAMILY.op("Resize", since=10)
def resize_10(call: Call, x: Any, scales: Any) -> Any:
    return _upsampled(call, tensor(x), [float(each) for each in call.static(scales, "its scales")])


@FAMILY.op("Upsample")
def upsample(call: Call, x: Any, scales: Any = None) -> Any:
    factors = call.need("scales") if scales is None else call.static(scales, "its scales").tolist()
    return _upsampled(call, tensor(x), [float(each) for each in factors])


def _upsampled(call: Call, x: Any, factors: list[float]) -> Any:
    if len(factors) != len(x.shape):
        raise call.error(f"{len(factors)} scales are given for {len(x.shape)} axes")
    call.attributes.setdefault("nearest_mode", "floor")
    for axis, factor in enumerate(factors):
        target = math.floor(x.shape[axis] * factor)
        bounded([target], call.op)
        x = resized(call, x, axis, factor, target, "asymmetric", None)
    return x


def resized(call: Call, x: Any, axis: int, factor: float, target: int, mode: str, ends: Any) -> Any:
    """One axis in another size: sums of elements at given places with given weights."""
    size = x.shape[axis]
    if not isinstance(size, int):
        raise call.error("sizes of images must be known")
    if factor == 1.0 and target == size and ends is None:
        return x
    if factor <= 0:
        raise call.error(f"the scale {factor} is not positive")
    places = coordinates(call, size, factor, target, mode, ends)
    how = call.choice("mode", "nearest", ("nearest", "linear", "cubic"))
    if how == "nearest":
        index = np.clip(_nearest(call, places, factor), 0, size - 1).astype(np.int64)
        y = _taken(x, index, axis)
    else:
        y = _weighted(call, x, axis, places, factor, how, size)
    if ends is not None:
        outside = (places < 0) | (places > size - 1)
        shape = [target if at == axis else 1 for at in range(len(x.shape))]
        y = mo.where(mo.asarray(outside.reshape(shape)), scalar(call.get("extrapolation_value", 0.0), y), y)
    return y


def _taken(x: Any, index: Array, axis: int) -> Any:
    """Elements at places that are known: repeated ones where each stands equally often."""
    times, rest = divmod(len(index), x.shape[axis])
    if not rest and np.array_equal(index, np.repeat(np.arange(x.shape[axis]), times)):
        return mo.repeat(x, times, axis=axis)
    return mo.take(x, mo.asarray(index), axis=axis)


def coordinates(call: Call, size: int, factor: float, target: int, mode: str, ends: Any) -> Array:
    """Where each place of the result lies in the input."""
    at = np.arange(target, dtype=np.float64)
    if mode == "half_pixel":
        return (at + 0.5) / factor - 0.5
    if mode == "half_pixel_symmetric":
        shift = size / 2 * (1 - target / (factor * size))
        return shift + (at + 0.5) / factor - 0.5
    if mode == "pytorch_half_pixel":
        return (at + 0.5) / factor - 0.5 if target > 1 else np.zeros(target)
    if mode == "align_corners":
        # The ends meet, as in ONNX Runtime and PyTorch; the ONNX reference divides by the length before it is rounded.
        return at * (size - 1) / (target - 1) if target > 1 else np.zeros(target)
    if mode == "asymmetric":
        return at / factor
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / factor
    if mode == "tf_crop_and_resize" and ends is not None:
        start, end = ends
        if target > 1:
            return np.asarray(start * (size - 1) + at * (end - start) * (size - 1) / (target - 1))
        return np.full(target, 0.5 * (start + end) * (size - 1))
    raise call.error(f"coordinate_transformation_mode={mode!r} is none of {', '.join(COORDINATES)}")


def _nearest(call: Call, places: Array, factor: float) -> Array:
    options = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    how = call.choice("nearest_mode", "round_prefer_floor", options)
    if how == "floor":
        return np.floor(places)
    if how == "ceil":
        return np.ceil(places)
    return np.ceil(places - 0.5) if how == "round_prefer_floor" else np.floor(places + 0.5)


def cubic(distance: Array, a: float) -> Array:
    """Keys' kernel."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _weighted(call: Call, x: Any, axis: int, places: Array, factor: float, how: str, size: int) -> Any:
    stretch = min(factor, 1.0) if call.get("antialias", 0) else 1.0
    support = (1 if how == "linear" else 2) / stretch
    first = np.floor(places - support).astype(np.int64) + 1
    taps = math.ceil(2 * support)
    index = first[:, None] + np.arange(taps)
    distance = (index - places[:, None]) * stretch
    weights = np.maximum(1 - np.abs(distance), 0)
    if how == "cubic":
        weights = cubic(distance, call.get("cubic_coeff_a", -0.75))
    if call.get("exclude_outside", 0):
        weights = np.where((index < 0) | (index >= size), 0.0, weights)
    weights = weights / weights.sum(axis=1, keepdims=True)
    index = np.clip(index, 0, size - 1)
    dtype = x.dtype
    work = cast(x, mo.float32) if not dtype.is_float or dtype.itemsize < 4 else x
    shape = [len(places) if at == axis else 1 for at in range(len(x.shape))]
    total: Any = None
    for tap in range(taps):
        weight = mo.asarray(weights[:, tap].astype(work.dtype.numpy).reshape(shape))
        part = mo.take(work, mo.asarray(index[:, tap]), axis=axis) * weight
        total = part if total is None else total + part
    if dtype.is_integer:
        info = mo.iinfo(dtype)
        total = mo.clip(mo.round(total), float(info.min), float(info.max))
    return cast(total, dtype)


# -- grids -------------------------------------------------------------------------------------------------------------
@FAMILY.op("GridSample")
def grid_sample(call: Call, x: Any, grid: Any) -> Any:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(call.get("mode", "linear"), call.get("mode", "linear"))
    border = call.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    x, grid = tensor(x), tensor(grid)
    corners = bool(call.get("align_corners", 0))
    places = []
    for axis, size in enumerate(x.shape[2:]):
        at = cast(grid[..., grid.shape[-1] - 1 - axis], mo.float32)
        places.append((at + 1.0) * ((size - 1) / 2) if corners else ((at + 1.0) * size - 1.0) / 2)
    return sampled(call, x, places, mode, border, corners)


def sampled(call: Call, x: Any, places: list[Any], mode: str, border: str, corners: bool) -> Any:
    """Values of (batch, channels, ...) between elements; `places` has a tensor (batch, ...) of pixels for each axis."""
    sizes, dtype = x.shape[2:], x.dtype
    work = cast(x, mo.float32) if not dtype.is_float or dtype.itemsize < 4 else x
    flat = mo.reshape(work, (*x.shape[:2], math.prod(sizes)))
    taps = [_taps(call, at, size, mode, border, corners) for at, size in zip(places, sizes)]
    total: Any = None
    for corner in itertools.product(*taps):
        index, weight = None, None
        for (place, share), size in zip(corner, sizes):
            index = place if index is None else index * size + place
            weight = share if weight is None else share if share is None else weight * share
        assert index is not None
        spread = mo.reshape(index, (x.shape[0], 1, -1))
        spread = mo.broadcast_to(spread, (x.shape[0], x.shape[1], spread.shape[2]))
        part = mo.take_along_axis(flat, spread, axis=2)
        part = part if weight is None else part * cast(mo.reshape(weight, (x.shape[0], 1, -1)), work.dtype)
        total = part if total is None else total + part
    return cast(mo.reshape(total, (*x.shape[:2], *places[0].shape[1:])), dtype)


def _taps(call: Call, at: Any, size: int, mode: str, border: str, corners: bool) -> list[tuple[Any, Any]]:
    """(index, weight) of the elements that a place lies between, along one axis."""
    if border == "border" and mode != "cubic":
        at = mo.clip(at, 0.0, float(size - 1))
    elif border == "reflection" and mode != "cubic":
        at = mo.clip(_reflected(at, size, corners), 0.0, float(size - 1))
    if mode == "nearest":
        index = mo.round(at)
        return [(_index(index, size), _inside(index, size) if border == "zeros" else mo.ones(at.shape))]
    low = mo.floor(at)
    if mode == "linear":
        part = at - low
        found = [(low, 1.0 - part), (low + 1.0, part)]
    elif mode == "cubic":
        found = [(low + shift, _cubic(at - (low + shift))) for shift in (-1.0, 0.0, 1.0, 2.0)]
        if border == "reflection":
            found = [(_reflected(index, size, corners), weight) for index, weight in found]
    else:
        raise call.error(f"mode={mode!r} is none of linear, nearest, cubic")
    if border == "zeros":
        found = [(index, weight * _inside(index, size)) for index, weight in found]
    return [(_index(index, size), weight) for index, weight in found]


def _index(index: Any, size: int) -> Any:
    return mo.astype(mo.clip(mo.where(mo.isnan(index), 0.0, index), 0.0, float(size - 1)), mo.int64)


def _inside(index: Any, size: int) -> Any:
    return mo.astype((index >= 0.0) & (index <= float(size - 1)), mo.float32)


def _cubic(distance: Any, a: float = -0.75) -> Any:
    d = mo.abs(distance)
    far = mo.where(d < 2.0, (((d - 5.0) * d + 8.0) * d - 4.0) * a, 0.0)
    return mo.where(d <= 1.0, ((a + 2) * d - (a + 3)) * d * d + 1.0, far)


def _reflected(at: Any, size: int, corners: bool) -> Any:
    """Places folded back at the borders: pixel centres, or their outer edges."""
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return mo.zeros(at.shape)
    folded = mo.remainder(at - low, mo.asarray(2 * span, dtype=at.dtype))
    return mo.minimum(folded, 2 * span - folded) + low


@FAMILY.op("AffineGrid")
def affine_grid(call: Call, theta: Any, size: Any) -> Any:
    sizes, theta = call.integers(size, "its size")[2:], tensor(theta)
    lines = []
    for count in sizes:
        steps = np.linspace(-1, 1, count) if call.get("align_corners", 0) else (np.arange(count) * 2 + 1) / count - 1
        lines.append(steps)
    grid = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*reversed(grid), np.ones_like(grid[0])], axis=-1).reshape(-1, len(sizes) + 1)
    found = mo.matmul(cast(mo.asarray(points), theta.dtype), mo.matrix_transpose(theta))
    return mo.reshape(found, (theta.shape[0], *sizes, len(sizes)))


@FAMILY.op("RoiAlign")
def roi_align(call: Call, x: Any, rois: Any, batch: Any) -> Any:
    """Pooled samples inside regions. How many samples there are depends on the regions: their values are asked for."""
    x = tensor(x)
    boxes = call.static(rois, "its regions").astype(np.float64) * call.get("spatial_scale", 1.0)
    owners = call.static(batch, "its batch indices").astype(np.int64)
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"
    half = call.choice("coordinate_transformation_mode", default, ("half_pixel", "output_half_pixel")) == "half_pixel"
    rows, columns, ratio = call.get("output_height", 1), call.get("output_width", 1), call.get("sampling_ratio", 0)
    largest = call.choice("mode", "avg", ("avg", "max")) == "max"
    found = []
    for box, owner in zip(boxes, owners):
        left, top, right, bottom = box - (0.5 if half else 0.0)
        high, wide = (bottom - top, right - left) if half else (max(bottom - top, 1.0), max(right - left, 1.0))
        down = ratio if ratio > 0 else max(math.ceil(high / rows), 1)
        across = ratio if ratio > 0 else max(math.ceil(wide / columns), 1)
        ys = top + (np.arange(rows * down) + 0.5) * high / (rows * down)
        xs = left + (np.arange(columns * across) + 0.5) * wide / (columns * across)
        corners = _bilinear(x[int(owner)], ys, xs, largest)
        parts = mo.reshape(corners, (-1, x.shape[1], rows, down, columns, across))
        found.append(mo.max(parts, axis=(0, 3, 5)) if largest else mo.mean(parts, axis=(3, 5))[0])
    return mo.stack(found) if found else mo.zeros((0, x.shape[1], rows, columns), dtype=x.dtype)


def _bilinear(image: Any, ys: Array, xs: Array, apart: bool) -> Any:
    """Samples of an image at the crossings of lines; with `apart` the four weighted neighbours by themselves."""
    sides = []
    for places, size in ((ys, image.shape[1]), (xs, image.shape[2])):
        inside = (places >= -1) & (places <= size)
        at = np.clip(places, 0, size - 1)
        low = np.minimum(np.floor(at).astype(np.int64), size - 1)
        high = np.minimum(low + 1, size - 1)
        sides.append([(low, (1 - (at - low)) * inside), (high, (at - low) * inside)])
    found = []
    for (row, down), (column, across) in itertools.product(*sides):
        picked = mo.take(mo.take(image, mo.asarray(row), axis=1), mo.asarray(column), axis=2)
        found.append(picked * mo.asarray((down[:, None] * across).astype(image.dtype.numpy)))
    stacked = mo.stack(found)
    return stacked if apart else mo.sum(stacked, axis=0, keepdims=True)


@FAMILY.op("ImageDecoder")
def image_decoder(call: Call, data: Any) -> Any:
    """The pixels of a compressed image, by Pillow, on the host."""
    try:
        from PIL import Image
    except ImportError:
        raise refuse("ImageDecoder needs Pillow", "pip install pillow") from None
    octets = call.static(data, "its data").astype(np.uint8).tobytes()
    order = call.choice("pixel_format", "RGB", ("RGB", "BGR", "Grayscale"))
    call.walk.count("host_values")
    try:
        picture = Image.open(io.BytesIO(octets))
        bounded([picture.width, picture.height, 3], call.op)
        pixels = np.asarray(picture.convert("L" if order == "Grayscale" else "RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise call.error(f"the image cannot be read: {error}") from None
    if order == "Grayscale":
        return pixels[:, :, None].copy()
    return np.ascontiguousarray(pixels[:, :, ::-1] if order == "BGR" else pixels)
