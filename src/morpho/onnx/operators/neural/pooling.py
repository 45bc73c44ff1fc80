"""Pooling: the windows of a tensor gathered along new axes, or Morpho's own kernels where they fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.arrays.shape import padded
from morpho.onnx.operators.neural.windows import Windows, counts, windows
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import scalar, tensor

FAMILY = Family("pooling")
MAX = {1: mo.max_pool1d, 2: mo.max_pool2d, 3: mo.max_pool3d}
AVERAGE = {1: mo.avg_pool1d, 2: mo.avg_pool2d, 3: mo.avg_pool3d}


def gathered(call: Call, x: Any, made: Windows, steps: list[Any], fill: Any) -> Any:
    """All windows: each spatial axis becomes (place, tap). The border holds `fill`."""
    rank = len(made.kernel)
    ends = [max((step - 1) * stride + reach - size - low, high) for step, stride, reach, size, low, high in
            zip(steps, made.strides, made.extent, x.shape[2:], made.before, made.after)]
    x = padded(call, x, [0, 0, *made.before], [0, 0, *ends], value=np.asarray(fill))
    for axis in range(rank):
        at = 2 + 2 * axis
        taps = [x[(slice(None),) * at + (slice(tap * gap, tap * gap + (steps[axis] - 1) * stride + 1, stride),)]
                for tap, gap, stride in ((tap, made.dilations[axis], made.strides[axis])
                                         for tap in range(made.kernel[axis]))]
        x = mo.stack(taps, axis=at + 1)
    return x


def taps_last(x: Any, rank: int) -> Any:
    """Windows with their taps as the last axis."""
    order = [0, 1, *(2 + 2 * axis for axis in range(rank)), *(3 + 2 * axis for axis in range(rank))]
    x = mo.permute_dims(x, tuple(order))
    return mo.reshape(x, (*x.shape[:2 + rank], math.prod(x.shape[2 + rank:])))


def _flat(values: list[int]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


@FAMILY.op("MaxPool")
def max_pool(call: Call, x: Any) -> Any:
    x = tensor(x)
    rank, ceiling = len(x.shape) - 2, bool(call.get("ceil_mode", 0))
    made = windows(call, x.shape[2:])
    steps = counts(call, x.shape[2:], made, ceiling)
    with_places = len(call.node.outputs) > 1 and bool(call.node.outputs[1])
    symmetric = made.before == made.after and all(2 * low <= size for low, size in zip(made.before, made.kernel))
    if rank in MAX and symmetric and not ceiling and not with_places and x.dtype.is_float:
        return MAX[rank](x, _flat(made.kernel), stride=_flat(made.strides), padding=_flat(made.before),
                         dilation=_flat(made.dilations))
    lowest = -np.inf if x.dtype.is_float else mo.iinfo(x.dtype).min
    taps = taps_last(gathered(call, x, made, steps, lowest), rank)
    y = mo.max(taps, axis=-1)
    return (y, _places(call, x, made, steps, taps)) if with_places else y


def _places(call: Call, x: Any, made: Windows, steps: list[Any], taps: Any) -> Any:
    """Where in the flattened input each maximum stands."""
    spatial = x.shape[2:]
    order = range(len(spatial)) if not call.get("storage_order", 0) else reversed(range(len(spatial)))
    place: Any = np.zeros((1,) * len(spatial), np.int64)
    grids = np.meshgrid(*(np.arange(size) for size in spatial), indexing="ij")
    for axis in order:
        place = place * spatial[axis] + grids[axis]
    places = gathered(call, mo.asarray(place)[None, None], made, steps, 0)
    places = mo.broadcast_to(taps_last(places, len(spatial)), taps.shape)
    best = mo.argmax(taps, axis=-1, keepdims=True)
    found = mo.squeeze(mo.take_along_axis(places, best, axis=-1), axis=-1)
    many = x.shape[0] * x.shape[1]
    first = mo.reshape(mo.arange(many) * math.prod(spatial), (*x.shape[:2], *[1] * len(spatial)))
    return found + first


@FAMILY.op("AveragePool")
def average_pool(call: Call, x: Any) -> Any:
    x = tensor(x)
    rank, ceiling = len(x.shape) - 2, bool(call.get("ceil_mode", 0))
    made, with_border = windows(call, x.shape[2:]), bool(call.get("count_include_pad", 0))
    steps = counts(call, x.shape[2:], made, ceiling)
    if rank in AVERAGE and not any((*made.before, *made.after)) and not ceiling and max(made.dilations) == 1:
        return AVERAGE[rank](x, _flat(made.kernel), stride=_flat(made.strides))
    taps = taps_last(gathered(call, x, made, steps, 0), rank)
    counted = np.ones(x.shape[2:], np.float32)
    if with_border:
        counted = np.pad(counted, [*zip(made.before, made.after)], constant_values=1)
        bare = made._replace(before=[0] * rank, after=[0] * rank)
    else:
        bare = made
    shares = taps_last(gathered(call, mo.asarray(counted)[None, None], bare, steps, 0), rank)
    return mo.sum(taps, axis=-1) / mo.astype(mo.sum(shares, axis=-1), x.dtype)


@FAMILY.op("LpPool")
def lp_pool(call: Call, x: Any) -> Any:
    x = tensor(x)
    rank, p = len(x.shape) - 2, call.get("p", 2)
    made = windows(call, x.shape[2:])
    taps = gathered(call, x, made, counts(call, x.shape[2:], made, bool(call.get("ceil_mode", 0))), 0)
    return _norm(taps_last(taps, rank), p, -1)


def _norm(x: Any, p: int, axis: Any, keepdims: bool = False) -> Any:
    size = mo.abs(x)
    if p == 1:
        return mo.sum(size, axis=axis, keepdims=keepdims)
    if p == 2:
        return mo.sqrt(mo.sum(mo.square(x), axis=axis, keepdims=keepdims))
    return mo.pow(mo.sum(mo.pow(size, scalar(p, x)), axis=axis, keepdims=keepdims), scalar(1 / p, x))


@FAMILY.op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(call: Call, x: Any) -> Any:
    x = tensor(x)
    axes = tuple(range(2, len(x.shape)))
    function = mo.mean if call.node.op == "GlobalAveragePool" else mo.max
    return function(x, axis=axes, keepdims=True)


@FAMILY.op("GlobalLpPool")
def global_lp_pool(call: Call, x: Any) -> Any:
    x = tensor(x)
    return _norm(x, call.get("p", 2), tuple(range(2, len(x.shape))), keepdims=True)


@FAMILY.op("MaxUnpool")
def max_unpool(call: Call, x: Any, places: Any, shape: Any = None) -> Any:
    x, places = tensor(x), mo.astype(tensor(places), mo.int64)
    rank = len(x.shape) - 2
    strides, pads = call.get("strides", [1] * rank), call.get("pads", [0] * 2 * rank)
    inner = [*x.shape[:2], *((size - 1) * stride - low - high + kernel for size, stride, low, high, kernel in
                             zip(x.shape[2:], strides, pads, pads[rank:], call.need("kernel_shape")))]
    wanted = call.integers(shape, "its shape") if shape is not None else inner
    empty = mo.zeros(math.prod(inner), dtype=x.dtype)
    flat = mo.scatter(empty, mo.reshape(places, (-1,)), mo.reshape(x, (-1,)), axis=0)
    found = mo.reshape(flat, tuple(inner))
    return padded(call, found, [0] * len(inner), [size - there for size, there in zip(wanted, inner)])
