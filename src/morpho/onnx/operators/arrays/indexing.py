"""Elements by their places: Gather, Scatter, OneHot, TopK, NonZero, Unique, Compress."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.arrays.shape import over_codes
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import bounded, cast, dtype_of, is_static, scalar, tensor

FAMILY = Family("indexing")


def from_front(call: Call, indices: Any, size: Any) -> Any:
    """Indices counted from the front, or an error that names one outside the axis. What is computed from an index must
    be checked first: a take or scatter by the result knows neither the index nor its axis."""
    if is_static(indices) and isinstance(size, int):
        outside = indices[(indices < -size) | (indices >= size)]
        if outside.size:
            raise call.error(f"index {outside.flat[0]} is out of range for an axis of size {size}")
        return mo.asarray(np.where(indices < 0, indices + size, indices).astype(np.int64))
    indices = cast(tensor(indices), mo.int64)
    return mo.reshape(mo.take(mo.arange(size), mo.reshape(indices, (-1,))), indices.shape)


@FAMILY.op("Gather")
@over_codes
def gather(call: Call, x: Any, indices: Any) -> Any:
    axis = call.axis(call.get("axis", 0), len(x.shape))
    if is_static(indices) and is_static(x):
        try:
            return np.take(x, indices.astype(np.int64), axis=axis)
        except IndexError:
            from_front(call, indices, x.shape[axis])
            raise
    if is_static(indices) and indices.ndim == 0 and isinstance(x.shape[axis], int):
        place = int(indices)
        if -x.shape[axis] <= place < x.shape[axis]:
            return x[(slice(None),) * axis + (place,)]
    size = x.shape[axis]
    if is_static(indices) and isinstance(size, int):
        return _taken(tensor(x), from_front(call, indices, size), axis)
    return _taken(tensor(x), cast(tensor(indices), mo.int64), axis)


def _taken(x: Any, places: Any, axis: int) -> Any:
    flat = mo.take(x, mo.reshape(places, (-1,)), axis=axis)
    return mo.reshape(flat, (*x.shape[:axis], *places.shape, *x.shape[axis + 1:]))


@FAMILY.op("GatherElements")
@over_codes
def gather_elements(call: Call, x: Any, indices: Any) -> Any:
    axis = call.axis(call.get("axis", 0), len(x.shape))
    x, places = tensor(x), cast(tensor(indices), mo.int64)
    keys = tuple(slice(0, size) if place != axis else slice(None) for place, size in enumerate(places.shape))
    return mo.take_along_axis(x[keys], places, axis=axis)


@FAMILY.op("GatherND")
@over_codes
def gather_nd(call: Call, x: Any, indices: Any) -> Any:
    batch = call.get("batch_dims", 0)
    x, depth = tensor(x), indices.shape[-1]
    lead, inner = x.shape[:batch], x.shape[batch:]
    if depth > len(inner):
        raise call.error(f"indices of {depth} numbers do not fit {len(inner)} axes")
    place = flat_places(call, indices, inner[:depth])
    rest = inner[depth:]
    many = math.prod(lead)
    rows = mo.reshape(x, (many * math.prod(inner[:depth]), *rest))
    place = mo.reshape(place, (many, -1)) + mo.reshape(mo.arange(many), (many, 1)) * math.prod(inner[:depth])
    found = mo.take(rows, mo.reshape(place, (-1,)), axis=0)
    return mo.reshape(found, (*indices.shape[:-1], *rest))


def flat_places(call: Call, indices: Any, shape: Any) -> Any:
    """Places in a flattened tensor for index tuples along the last axis; -1 is the last along each."""
    place: Any = None
    for axis, size in enumerate(shape):
        index = from_front(call, indices[..., axis], size)
        place = index if place is None else place * size + index
    return mo.zeros(indices.shape[:-1], dtype=mo.int64) if place is None else place


REDUCTIONS = {"none": None, "add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@FAMILY.op("ScatterElements", "Scatter")
@over_codes
def scatter_elements(call: Call, x: Any, indices: Any, updates: Any) -> Any:
    axis = call.axis(call.get("axis", 0), len(x.shape))
    x, places, updates = tensor(x), cast(tensor(indices), mo.int64), tensor(updates)
    if places.shape != x.shape[:axis] + places.shape[axis:axis + 1] + x.shape[axis + 1:]:  # a corner of the others
        corner: Any = 0
        for at, (size, count) in enumerate(zip(x.shape, places.shape, strict=True)):
            along = mo.reshape(mo.arange(count), [count if other == at else 1 for other in range(len(places.shape))])
            corner = corner * size + (from_front(call, indices, size) if at == axis else along)
        return _scattered(call, x, corner, updates)
    how = REDUCTIONS[call.choice("reduction", "none", [*REDUCTIONS])]
    if how is None:
        return mo.scatter(x, places, updates, axis=axis)
    return mo.scatter_reduce(x, places, updates, reduce=how, axis=axis)


def _scattered(call: Call, x: Any, place: Any, updates: Any) -> Any:
    how = REDUCTIONS[call.choice("reduction", "none", [*REDUCTIONS])]
    flat, place, updates = (mo.reshape(value, (-1,)) for value in (x, place, updates))
    moved = mo.scatter(flat, place, updates, axis=0) if how is None else mo.scatter_reduce(
        flat, place, updates, reduce=how, axis=0)
    return mo.reshape(moved, x.shape)


@FAMILY.op("ScatterND")
@over_codes
def scatter_nd(call: Call, x: Any, indices: Any, updates: Any) -> Any:
    x, updates = tensor(x), tensor(updates)
    depth = indices.shape[-1]
    rest = math.prod(x.shape[depth:])
    place = mo.reshape(flat_places(call, indices, x.shape[:depth]), (-1, 1)) * rest
    place = place + mo.reshape(mo.arange(rest), (1, rest))
    return _scattered(call, x, place, updates)


@FAMILY.op("TensorScatter")
def tensor_scatter(call: Call, cache: Any, update: Any, starts: Any = None) -> Any:
    """Rows of an update written into a cache at a place of its own in each batch; `circular` wraps."""
    axis = call.axis(call.get("axis", -2), len(cache.shape))
    circular = call.choice("mode", "linear", ("linear", "circular")) == "circular"
    cache, update = tensor(cache), tensor(update)
    batch, length, size = cache.shape[0], update.shape[axis], cache.shape[axis]
    first = mo.zeros(batch, dtype=mo.int64) if starts is None else cast(tensor(starts), mo.int64)
    place = mo.reshape(first, (batch, 1)) + mo.reshape(mo.arange(length), (1, length))
    if circular:
        place = mo.remainder(place, size)
    shape = [batch if at == 0 else length if at == axis else 1 for at in range(len(cache.shape))]
    return mo.scatter(cache, mo.broadcast_to(mo.reshape(place, shape), update.shape), update, axis=axis)


@FAMILY.op("OneHot")
def one_hot(call: Call, indices: Any, depth: Any, values: Any) -> Any:
    count = int(call.static(depth, "its depth").reshape(-1)[0])
    rank = len(indices.shape) + 1
    axis = call.axis(call.get("axis", -1), rank)
    bounded([*indices.shape, count], call.op)
    indices = tensor(indices)
    places = cast(indices if not indices.dtype.is_float else mo.floor(indices), mo.int64)
    places = mo.expand_dims(mo.where(places < 0, places + count, places), axis=axis)
    hot = places == mo.reshape(mo.arange(count), [count if at == axis else 1 for at in range(rank)])
    values = tensor(values)
    return mo.where(hot, values[1], values[0])


@FAMILY.op("TopK")
def top_k(call: Call, x: Any, k: Any = None) -> Any:
    count = int(call.static(k, "k").reshape(-1)[0]) if k is not None else call.need("k")
    axis = call.axis(call.get("axis", -1), len(x.shape))
    x = tensor(x)
    size = x.shape[axis]
    if isinstance(size, int) and not 0 <= count <= size:
        raise call.error(f"k={count} is not within an axis of size {size}")
    order = mo.argsort(x, axis=axis, descending=bool(call.get("largest", 1)), stable=True)
    order = order[(slice(None),) * axis + (slice(0, count),)]
    return mo.take_along_axis(x, order, axis=axis), cast(order, mo.int64)


@FAMILY.op("NonZero")
def non_zero(call: Call, x: Any) -> Any:
    if is_static(x):
        return np.stack(np.nonzero(x)).astype(np.int64)
    return mo.stack([cast(place, mo.int64) for place in mo.nonzero(x)])


@FAMILY.op("Compress")
@over_codes
def compress(call: Call, x: Any, condition: Any) -> Any:
    axis = call.get("axis")
    keep = np.flatnonzero(call.static(condition, "its condition"))
    x = tensor(x) if axis is not None else mo.reshape(tensor(x), (-1,))
    return mo.take(x, mo.asarray(keep), axis=0 if axis is None else call.axis(axis, len(x.shape)))


@FAMILY.op("Unique")
def unique(call: Call, x: Any) -> Any:
    """Distinct elements or slices; how many there are depends on the data, so the value is asked for."""
    array, axis = call.static(x, "its operand"), call.get("axis")
    if dtype_of(x) is mo.bfloat16:
        found, *rest = unique(call, np.asarray(mo.astype(x, mo.float32).numpy()))
        return mo.astype(mo.asarray(found), mo.bfloat16), *rest
    if axis is None:
        array = array.reshape(-1)
    found, first, inverse, counts = np.unique(array, return_index=True, return_inverse=True, return_counts=True,
                                              axis=axis)
    inverse = inverse.reshape(-1)
    if not call.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        found, first, counts = np.take(found, order, axis=axis or 0), first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return found, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


@FAMILY.op("ReverseSequence")
def reverse_sequence(call: Call, x: Any, lengths: Any) -> Any:
    batch, time = call.get("batch_axis", 1), call.get("time_axis", 0)
    x = tensor(x)
    rank, size = len(x.shape), x.shape[time]
    lengths = mo.reshape(cast(tensor(lengths), mo.int64), [x.shape[batch] if at == batch else 1 for at in range(rank)])
    steps = mo.reshape(mo.arange(size), [size if at == time else 1 for at in range(rank)])
    place = mo.where(steps < lengths, lengths - 1 - steps, steps)
    return mo.take_along_axis(x, mo.broadcast_to(place, x.shape), axis=time)


@FAMILY.op("NonMaxSuppression")
def non_max_suppression(call: Call, boxes: Any, scores: Any, most: Any = None, overlap: Any = None,
                        threshold: Any = None) -> Any:
    """Boxes in the order of their scores, each unless it overlaps one that was taken; on the host."""
    call.walk.count("host_values")
    boxes, scores = call.static(boxes, "its boxes"), call.static(scores, "its scores")
    limit = 0 if most is None else int(call.static(most, "its count").reshape(-1)[0])
    share = 0.0 if overlap is None else float(call.static(overlap, "its share").reshape(-1)[0])
    least = None if threshold is None else float(call.static(threshold, "its threshold").reshape(-1)[0])
    chosen = []
    for batch in range(scores.shape[0]):
        corners = _corners(boxes[batch], call.get("center_point_box", 0))
        for kind in range(scores.shape[1]):
            chosen += [(batch, kind, box) for box in _suppressed(corners, scores[batch, kind], limit, share, least)]
    return np.asarray(chosen, np.int64).reshape(-1, 3)


def _corners(boxes: Any, centred: int) -> Any:
    if centred:
        middle, size = boxes[:, :2], boxes[:, 2:]
        return np.concatenate([middle - size / 2, middle + size / 2], axis=1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)


def _suppressed(corners: Any, scores: Any, limit: int, share: float, least: float | None) -> list[int]:
    order = [place for place in np.argsort(-scores, kind="stable") if least is None or scores[place] > least]
    areas = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    taken: list[int] = []
    for place in order:
        if len(taken) >= limit:
            break
        inner = np.prod(np.maximum(np.minimum(corners[place, 2:], corners[taken, 2:])
                                   - np.maximum(corners[place, :2], corners[taken, :2]), 0), axis=1)
        union = areas[place] + areas[taken] - inner
        if not np.any(inner > share * union):
            taken.append(int(place))
    return taken


@FAMILY.op("ArgMax", "ArgMin")
def arg_extreme(call: Call, x: Any) -> Any:
    axis = call.axis(call.get("axis", 0), len(x.shape))
    keep, last = bool(call.get("keepdims", 1)), call.get("select_last_index", 0)
    function = mo.argmax if call.node.op == "ArgMax" else mo.argmin
    x = tensor(x)
    if not last:
        return cast(function(x, axis=axis, keepdims=keep), mo.int64)
    return scalar(x.shape[axis] - 1, cast(x, mo.int64)) - cast(function(mo.flip(x, axis=axis), axis=axis,
                                                                        keepdims=keep), mo.int64)
