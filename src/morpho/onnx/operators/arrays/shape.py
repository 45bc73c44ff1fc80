"""Shapes: Reshape, Transpose, Concat, Slice, Pad, Expand and their kin."""

from __future__ import annotations

import math
from functools import wraps
from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.arrays.casting import converted
from morpho.onnx.operators.registry import Family
from morpho.onnx.proto.dtypes import element_type
from morpho.onnx.run.call import Call
from morpho.onnx.run.coded import Coded
from morpho.onnx.run.values import (
    MOST_STATIC,
    bounded,
    cast,
    dtype_of,
    is_static,
    same_size,
    scalar,
    sizes,
    space,
    tensor,
)

FAMILY = Family("shape")


def over_codes(function: Any) -> Any:
    """An operator that moves elements, of coded types as well: it moves their codes."""
    @wraps(function)
    def apply(call: Call, x: Any, *rest: Any) -> Any:
        if not isinstance(x, Coded):
            return function(call, x, *rest)
        moved = function(call, x.codes, *(item.codes if isinstance(item, Coded) else item for item in rest))
        if isinstance(moved, tuple):
            return tuple(Coded(part, x.kind) for part in moved)
        return Coded(moved, x.kind)

    return apply


@FAMILY.op("Shape")
def shape_of(call: Call, x: Any) -> Any:
    shape = [*x.shape]
    start, end = call.get("start", 0), call.get("end", None)
    rank = len(shape)
    start = min(max(start + rank if start < 0 else start, 0), rank)
    end = rank if end is None else min(max(end + rank if end < 0 else end, 0), rank)
    return sizes(shape[start:end])


@FAMILY.op("Size")
def size_of(call: Call, x: Any) -> Any:
    count = math.prod(x.shape)
    return np.asarray(count, np.int64 if isinstance(count, int) else object)


@FAMILY.op("Reshape")
@over_codes
def reshape(call: Call, x: Any, shape: Any = None) -> Any:
    wanted = call.integers(shape, "its shape") if shape is not None else [*call.need("shape")]
    if not call.get("allowzero", 0):
        if any(same_size(size, 0) and axis >= len(x.shape) for axis, size in enumerate(wanted)):
            raise call.error(f"the shape {wanted} copies a size that {tuple(x.shape)} does not have")
        wanted = [x.shape[axis] if same_size(size, 0) else size for axis, size in enumerate(wanted)]
    if sum(isinstance(size, int) and size == -1 for size in wanted) > 1:
        raise call.error(f"the shape {wanted} has two sizes of -1")
    return reshaped(call, x, wanted)


def reshaped(call: Call, x: Any, wanted: list[Any]) -> Any:
    """Another shape, in which one size may be -1."""
    if any(isinstance(size, int) and size == -1 for size in wanted):
        known = math.prod(size for size in wanted if not (isinstance(size, int) and size == -1))
        total = math.prod(x.shape)
        if isinstance(known, int) and isinstance(total, int) and (known == 0 or total % known):
            raise call.error(f"{tuple(x.shape)} does not become {tuple(wanted)}: {total} elements are no multiple of "
                             f"{known}")
        rest = total // known
        wanted = [rest if isinstance(size, int) and size == -1 else size for size in wanted]
    if all(isinstance(size, int) for size in (*wanted, *x.shape)) and math.prod(wanted) != math.prod(x.shape):
        raise call.error(f"{tuple(x.shape)} does not become {tuple(wanted)}: {math.prod(x.shape)} elements are not "
                         f"{math.prod(wanted)}")
    return space(x).reshape(x, tuple(wanted))


@FAMILY.op("Flatten")
@over_codes
def flatten(call: Call, x: Any) -> Any:
    axis = call.get("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    if not 0 <= axis <= len(x.shape):
        raise call.error(f"axis {axis} is out of range for {len(x.shape)} dimensions")
    return space(x).reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@FAMILY.op("Transpose")
@over_codes
def transpose(call: Call, x: Any) -> Any:
    order = call.get("perm", [*range(len(x.shape))][::-1])
    if sorted(order) != [*range(len(x.shape))]:
        raise call.error(f"perm={order} is no order of {len(x.shape)} axes")
    return np.transpose(x, order) if is_static(x) else mo.permute_dims(x, tuple(order))


@FAMILY.op("Squeeze")
@over_codes
def squeeze(call: Call, x: Any, axes: Any = None) -> Any:
    chosen = call.axes((x, axes), 1)
    if chosen is None:
        chosen = [axis for axis, size in enumerate(x.shape) if same_size(size, 1)]
    chosen = [call.axis(axis, len(x.shape)) for axis in chosen]
    if wrong := [axis for axis in chosen if x.shape[axis] != 1]:
        raise call.error(f"axis {wrong[0]} of {tuple(x.shape)} is not 1")
    return space(x).reshape(x, tuple(size for axis, size in enumerate(x.shape) if axis not in chosen))


@FAMILY.op("Unsqueeze")
@over_codes
def unsqueeze(call: Call, x: Any, axes: Any = None) -> Any:
    chosen = call.axes((x, axes), 1)
    if chosen is None:
        raise call.error("it has no axes")
    rank = len(x.shape) + len(chosen)
    places = {call.axis(axis, rank) for axis in chosen}
    if len(places) != len(chosen):
        raise call.error(f"axes {chosen} name one twice")
    left = iter(x.shape)
    return space(x).reshape(x, tuple(1 if axis in places else next(left) for axis in range(rank)))


@FAMILY.op("Concat")
def concat(call: Call, *parts: Any) -> Any:
    if parts and isinstance(parts[0], Coded):
        return Coded(joined(call, [part.codes for part in parts], call.get("axis", 1)), parts[0].kind)
    return joined(call, parts, call.get("axis", 1))


def joined(call: Call, parts: Any, axis: int) -> Any:
    """Tensors one after the other along an axis."""
    if not parts:
        raise call.error("it has no inputs")
    if len(parts) == 1:
        return parts[0]
    axis = call.axis(axis, len(parts[0].shape))
    if is_static(*parts):
        if len({len(part.shape) for part in parts}) > 1:
            raise call.error(f"the shapes {', '.join(str(part.shape) for part in parts)} do not fit")
        if any(part.dtype == object for part in parts):
            parts = [part.astype(object) for part in parts]
        return np.concatenate(parts, axis=axis)
    return mo.concat([tensor(part) for part in parts], axis=axis)


@FAMILY.op("Split")
@over_codes
def split(call: Call, x: Any, lengths: Any = None) -> Any:
    axis = call.axis(call.get("axis", 0), len(x.shape))
    parts = call.integers(lengths, "its lengths") if lengths is not None else call.get("split")
    size = x.shape[axis]
    if parts is None:
        count = call.get("num_outputs", len(call.node.outputs))
        each = -(-size // count) if isinstance(size, int) else size // count
        parts = [each] * count
        if isinstance(size, int):
            parts = [max(0, min(each, size - each * place)) for place in range(count)]
    if isinstance(size, int) and all(isinstance(part, int) for part in parts) and sum(parts) != size:
        raise call.error(f"lengths {parts} do not add up to {size}")
    return tuple(pieces(x, axis, parts))


def pieces(x: Any, axis: int, lengths: Any) -> list[Any]:
    """Slices of given lengths along an axis."""
    found, at = [], 0
    for length in lengths:
        found.append(x[(slice(None),) * axis + (slice(at, at + length),)])
        at = at + length
    return found


@FAMILY.op("Slice")
@over_codes
def cut(call: Call, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    """Attributes before opset 10, inputs from then on."""
    if call.version < 10:
        first, last, chosen, step = call.need("starts"), call.need("ends"), call.get("axes"), None
    else:
        first, last = call.integers(starts, "starts"), call.integers(ends, "ends")
        chosen = None if axes is None else call.integers(axes, "axes")
        step = None if steps is None else call.integers(steps, "steps")
    chosen = [*range(len(first))] if chosen is None else chosen
    step = [1] * len(first) if step is None else step
    if not len(first) == len(last) == len(chosen) == len(step):
        raise call.error("starts, ends, axes and steps have different lengths")
    keys: list[Any] = [slice(None)] * len(x.shape)
    for begin, end, axis, stride in zip(first, last, chosen, step):
        axis = call.axis(axis, len(x.shape))
        keys[axis] = _key(call, begin, end, stride, x.shape[axis])
    return x[tuple(keys)]


def _key(call: Call, begin: Any, end: Any, stride: int, size: Any) -> slice:
    """A slice as Python has it, of numbers that may lie far outside."""
    if stride == 0:
        raise call.error("a step is 0")
    if not all(isinstance(item, int) for item in (begin, end, size)):
        far = [isinstance(item, int) and item > 1 << 31 for item in (begin, end)]  # behind the last position
        if far[stride < 0]:
            raise call.error("a slice that may be empty is cut for each size")
        if stride < 0:
            if isinstance(begin, int) and begin < 0 and not size >= -begin:
                begin = 0
            return slice(None if far[0] else begin, end, stride)
        return slice(begin, None if far[1] else end, stride)
    if stride > 0:
        begin, end, _ = slice(begin, end, stride).indices(size)
        return slice(begin, max(begin, end), stride)
    begin = min(max(begin + size if begin < 0 else begin, 0), size - 1)  # before the first is the first, unlike Python
    end = max(end + size if end < 0 else end, -1)
    if size == 0 or end >= begin:
        return slice(0, 0, 1)
    return slice(begin, None if end < 0 else end, stride)


@FAMILY.op("Expand")
@over_codes
def expand(call: Call, x: Any, shape: Any) -> Any:
    wanted = bounded(call.integers(shape, "its shape"), call.op)
    return broadcast(call, x, wanted)


def broadcast(call: Call, x: Any, wanted: Any) -> Any:
    """Broadcast both ways: sizes of 1 on either side."""
    rank = max(len(wanted), len(x.shape))
    ours, theirs = [1] * (rank - len(x.shape)) + [*x.shape], [1] * (rank - len(wanted)) + [*wanted]
    target = [a if b in (a, 1) or not same_size(a, 1) else b for a, b in zip(ours, theirs)]
    for a, b in zip(target, theirs):
        if b not in (a, 1) and not same_size(b, 1) and not same_size(a, b):
            raise call.error(f"{tuple(x.shape)} does not broadcast to {tuple(wanted)}")
    bounded(target, call.op)
    if is_static(x) and all(isinstance(size, int) for size in target) and math.prod(target) <= MOST_STATIC:
        return np.broadcast_to(x, target).copy()
    return mo.broadcast_to(tensor(x), target)


@FAMILY.op("Tile")
@over_codes
def tile(call: Call, x: Any, repeats: Any, axis: Any = None) -> Any:
    counts = call.integers(repeats, "its repeats")
    if call.version < 6 and axis is not None:
        at = call.integers(axis, "its axis")[0]
        counts = [counts[0] if place == at else 1 for place in range(len(x.shape))]
    if len(counts) != len(x.shape):
        raise call.error(f"{len(counts)} repeats are given for {len(x.shape)} axes")
    target = bounded([size * count for size, count in zip(x.shape, counts)], call.op)
    if is_static(x) and all(isinstance(size, int) for size in target) and math.prod(target) <= MOST_STATIC:
        return np.tile(x, counts)
    return mo.tile(tensor(x), tuple(counts))


@FAMILY.op("ConstantOfShape")
def constant_of_shape(call: Call, shape: Any) -> Any:
    wanted = bounded(call.integers(shape, "its shape"), call.op)
    value = call.get("value", np.zeros(1, np.float32))
    if isinstance(value, Coded):
        codes = call.static(value.codes, "its value")
        return Coded(mo.full(wanted, int(codes.reshape(-1)[0]), dtype=mo.uint8), value.kind)
    if is_static(value) and all(isinstance(size, int) for size in wanted) and math.prod(wanted) <= MOST_STATIC:
        return np.full(wanted, value.reshape(-1)[0], value.dtype)
    value = tensor(value)
    return mo.broadcast_to(mo.reshape(value, ()), wanted)


@FAMILY.op("Range")
def number_range(call: Call, start: Any, limit: Any, delta: Any) -> Any:
    dtype = dtype_of(start)
    if any(isinstance(value, np.ndarray) and value.dtype == object for value in (start, limit, delta)):
        first, last, step = (call.integers(value, "its bounds")[0] for value in (start, limit, delta))
        return mo.arange(first, last, step, dtype=dtype)
    first, last, step = (call.static(value, "its bounds").reshape(()).item() for value in (start, limit, delta))
    if step == 0:
        raise call.error("its step is 0")
    count = max(math.ceil((last - first) / step), 0)
    bounded([count], call.op)
    if count <= MOST_STATIC and dtype.is_integer:
        return (first + np.arange(count) * step).astype(dtype.numpy)
    steps = mo.arange(count, dtype=mo.float64 if dtype.is_float else mo.int64)
    return cast(steps * step + first, dtype)


@FAMILY.op("EyeLike")
def eye_like(call: Call, x: Any) -> Any:
    if len(x.shape) != 2:
        raise call.error(f"it takes a matrix, not {tuple(x.shape)}")
    code = call.get("dtype")
    eye = mo.eye(x.shape[0], x.shape[1], k=call.get("k", 0), dtype=mo.float32)
    return converted(call, eye, element_type(code)) if code is not None else cast(eye, dtype_of(x))


@FAMILY.op("Trilu")
def triangle(call: Call, x: Any, k: Any = None) -> Any:
    offset = 0 if k is None else int(call.integers(k, "its diagonal")[0])
    upper = call.get("upper", 1)
    rows, columns = x.shape[-2:]
    offset = max(min(offset, 1 << 30), -(1 << 30))
    place = mo.reshape(mo.arange(columns), (1, columns)) - mo.reshape(mo.arange(rows), (rows, 1))
    x = tensor(x)
    return mo.where(place >= offset if upper else place <= offset, x, scalar(0, x))


@FAMILY.op("Pad")
@over_codes
def pad(call: Call, x: Any, widths: Any = None, value: Any = None, axes: Any = None) -> Any:
    """Attributes before opset 11; a negative width cuts."""
    mode = call.choice("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    if call.version < 11:
        pads, value = call.get("pads", call.get("paddings")), scalar(call.get("value", 0.0), tensor(x))
    else:
        pads = call.integers(widths, "its widths")
    rank = len(x.shape)
    chosen = [*range(rank)] if axes is None else [call.axis(int(axis), rank) for axis in call.integers(axes, "axes")]
    if len(pads) != 2 * len(chosen):
        raise call.error(f"{len(pads)} widths are given for {len(chosen)} axes")
    before, after = [0] * rank, [0] * rank
    for axis, low, high in zip(chosen, pads, pads[len(chosen):]):
        before[axis], after[axis] = low, high
    return padded(call, tensor(x), before, after, mode, value)


def padded(call: Call, x: Any, before: list[Any], after: list[Any], mode: str = "constant", value: Any = None) -> Any:
    """A border around a tensor; negative widths cut."""
    sides = [*before, *after]
    if any(isinstance(width, int) and width < 0 for width in sides):
        x = x[tuple(slice(max(-low, 0), size + min(high, 0)) for low, high, size in zip(before, after, x.shape))]
        before, after = [max(low, 0) for low in before], [max(high, 0) for high in after]
    bounded([size + low + high for size, low, high in zip(x.shape, before, after)], call.op)
    if all(isinstance(width, int) and width == 0 for width in (*before, *after)):
        return x
    if mode == "constant":
        fill: Any = 0
        if value is not None:
            fill = value.reshape(-1)[0].item() if is_static(value) else None
        if fill is not None:
            return mo.pad(x, tuple(zip(before, after)), value=fill)
        mask = mo.pad(mo.ones(x.shape, dtype=mo.bool), tuple(zip(before, after)))
        return mo.where(mask, mo.pad(x, tuple(zip(before, after))), mo.reshape(tensor(value), ()))
    return mo.pad(x, tuple(zip(before, after)), mode=mode)


@FAMILY.op("DepthToSpace")
def depth_to_space(call: Call, x: Any) -> Any:
    block, (count, channels, height, width) = call.need("blocksize"), x.shape
    x = tensor(x)
    if call.get("mode", "DCR") == "DCR":
        x = mo.reshape(x, (count, block, block, channels // block ** 2, height, width))
        x = mo.permute_dims(x, (0, 3, 4, 1, 5, 2))
    else:
        x = mo.reshape(x, (count, channels // block ** 2, block, block, height, width))
        x = mo.permute_dims(x, (0, 1, 4, 2, 5, 3))
    return mo.reshape(x, (count, channels // block ** 2, height * block, width * block))


@FAMILY.op("SpaceToDepth")
def space_to_depth(call: Call, x: Any) -> Any:
    block, (count, channels, height, width) = call.need("blocksize"), x.shape
    x = mo.reshape(tensor(x), (count, channels, height // block, block, width // block, block))
    if call.get("mode", "DCR") == "DCR":
        x = mo.permute_dims(x, (0, 3, 5, 1, 2, 4))
    else:
        x = mo.permute_dims(x, (0, 1, 3, 5, 2, 4))
    return mo.reshape(x, (count, channels * block ** 2, height // block, width // block))


@FAMILY.op("CenterCropPad")
def center_crop_pad(call: Call, x: Any, shape: Any) -> Any:
    wanted = call.integers(shape, "its shape")
    rank = len(x.shape)
    axes = [call.axis(axis, rank) for axis in call.get("axes", [*range(rank)])]
    before, after = [0] * rank, [0] * rank
    for axis, size in zip(axes, wanted):
        extra = size - x.shape[axis]
        low = extra // 2 if extra >= 0 else -(-extra // 2)
        before[axis], after[axis] = low, extra - low
    return padded(call, tensor(x), before, after)
