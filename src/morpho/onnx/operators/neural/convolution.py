"""Convolutions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import morpho as mo
from morpho.ir.node import build
from morpho.onnx.operators.arrays.shape import padded
from morpho.onnx.operators.media.images import sampled
from morpho.onnx.operators.neural.windows import Windows, counts, windows
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import tensor
from morpho.tensor.core import Tensor

FAMILY = Family("convolution")
MOST_TAPS = 25  # of a kernel that is written out
CONV = {1: mo.conv1d, 2: mo.conv2d, 3: mo.conv3d}
TRANSPOSED = {1: mo.conv_transpose1d, 2: mo.conv_transpose2d, 3: mo.conv_transpose3d}


@FAMILY.op("Conv")
def conv(call: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    x, weight = tensor(x), tensor(weight)
    rank = len(x.shape) - 2
    if rank not in CONV:
        raise call.error(f"{rank} spatial axes are not taken; 1 to 3 are")
    made = windows(call, x.shape[2:], weight.shape[2:])
    if [*weight.shape[2:]] != made.kernel:
        raise call.error(f"kernel_shape {made.kernel} is not that of the weight, {tuple(weight.shape)}")
    return convolved(call, x, weight, None if bias is None else tensor(bias), made, call.get("group", 1))


def convolved(call: Call, x: Any, weight: Any, bias: Any, made: Windows, groups: int) -> Any:
    """A convolution whose padding may differ before and after."""
    if _is_depthwise(x, weight, made, groups):
        return _depthwise(call, x, weight, bias, made)
    padding: Any = tuple(made.before)
    if made.before != made.after:
        x = padded(call, x, [0, 0, *made.before], [0, 0, *made.after])
        padding = 0
    rank = len(made.kernel)
    flat = (lambda values: values[0]) if rank == 1 else tuple
    padding = padding if isinstance(padding, int) else flat(padding)
    return CONV[rank](x, weight, bias, stride=flat(made.strides), padding=padding, dilation=flat(made.dilations),
                      groups=groups)


def _is_depthwise(x: Any, weight: Any, made: Windows, groups: int) -> bool:
    """Whether each channel has a small kernel of its own, and sizes are known."""
    alone = groups == x.shape[1] == weight.shape[0] and weight.shape[1] == 1 and groups > 1
    return bool(alone and x.dtype is mo.float32 and 1 < math.prod(made.kernel) <= MOST_TAPS
                and all(isinstance(size, int) for size in x.shape))


def _depthwise(call: Call, x: Any, weight: Any, bias: Any, made: Windows) -> Any:
    """The sum over taps of shifted images, each times the tap's weight of its channel: lanes run along the image, where
    a convolution's run along its channels, of which there is one. The border is written once, not in pieces."""
    rank = len(made.kernel)
    if any((*made.before, *made.after)):
        x = padded(call, x, [0, 0, *made.before], [0, 0, *made.after])
        x = Tensor.of_node(build("copy", x.node))
    steps = counts(call, x.shape[2:], made._replace(before=[0] * rank, after=[0] * rank))
    total: Any = None
    for tap in itertools.product(*map(range, made.kernel)):
        cuts = tuple(slice(at * gap, at * gap + (count - 1) * stride + 1, stride)
                     for at, gap, count, stride in zip(tap, made.dilations, steps, made.strides))
        share = mo.reshape(weight[(slice(None), 0, *tap)], (1, -1, *[1] * rank))
        part = x[(slice(None), slice(None), *cuts)] * share
        total = part if total is None else total + part
    return total if bias is None else total + mo.reshape(bias, (1, -1, *[1] * rank))


@FAMILY.op("ConvTranspose")
def conv_transpose(call: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    """Computed without padding; the border that padding removes is cut off, and what is missing is filled up."""
    x, weight = tensor(x), tensor(weight)
    rank, sizes = len(x.shape) - 2, x.shape[2:]
    if rank not in TRANSPOSED:
        raise call.error(f"{rank} spatial axes are not taken; 1 to 3 are")
    strides, dilations = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
    extra, pads = call.get("output_padding", [0] * rank), call.get("pads", [0] * 2 * rank)
    reach = [(size - 1) * step + 1 for size, step in zip(weight.shape[2:], dilations)]
    full = [(size - 1) * stride + each for size, stride, each in zip(sizes, strides, reach)]
    before, after = pads[:rank], pads[rank:]
    wanted = call.get("output_shape")
    how = call.choice("auto_pad", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if wanted is None and how.startswith("SAME"):  # padding only: kernels smaller than their stride leave less
        wanted = [min(size * stride, each + more) for size, stride, each, more in zip(sizes, strides, full, extra)]
    if wanted is not None:
        total = [each + more - size for each, more, size in zip(full, extra, wanted[-rank:])]
        halves = [int(each / 2) for each in total]  # towards zero, also where more is added than removed
        rest = [each - half for each, half in zip(total, halves)]
        before, after = (halves, rest) if how == "SAME_UPPER" else (rest, halves)
        before, after = ([max(low, 0) for low in before], [each - max(low, 0) for each, low in zip(total, before)])
    flat = (lambda values: values[0]) if rank == 1 else tuple
    y = TRANSPOSED[rank](x, weight, None, stride=flat(strides), dilation=flat(dilations), groups=call.get("group", 1))
    y = padded(call, y, [0, 0, *(-low for low in before)], [0, 0, *(more - high for more, high in zip(extra, after))])
    return y if bias is None else y + mo.reshape(tensor(bias), (-1, *[1] * rank))


@FAMILY.op("CausalConvWithState")
def causal_conv(call: Call, x: Any, weight: Any, bias: Any = None, past: Any = None) -> Any:
    x, weight = tensor(x), tensor(weight)
    reach = weight.shape[-1] - 1
    past = mo.zeros((*x.shape[:2], reach), dtype=x.dtype) if past is None else tensor(past)
    whole = mo.concat([past, x], axis=2)
    y = mo.conv1d(whole, weight, None if bias is None else tensor(bias), groups=x.shape[1])
    if call.choice("activation", "none", ("none", "silu", "swish")) != "none":
        y = mo.silu(y)
    return y, whole[:, :, whole.shape[2] - reach:]


@FAMILY.op("Col2Im")
def col2im(call: Call, x: Any, image: Any, block: Any) -> Any:
    """Columns added up where they overlap, for any number of axes."""
    sizes, kernel = call.integers(image, "its image"), call.integers(block, "its block")
    rank = len(sizes)
    strides, dilations = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
    pads = call.get("pads", [0] * 2 * rank)
    full = [size + low + high for size, low, high in zip(sizes, pads, pads[rank:])]
    steps = [(size - (each - 1) * gap - 1) // stride + 1
             for size, each, gap, stride in zip(full, kernel, dilations, strides)]
    x = tensor(x)
    count, channels = x.shape[0], x.shape[1] // math.prod(kernel)
    place: Any = None
    for axis in range(rank):
        shape = [1] * 2 * rank
        shape[axis] = kernel[axis]
        inside = mo.reshape(mo.arange(kernel[axis]) * dilations[axis], shape)
        shape = [1] * 2 * rank
        shape[rank + axis] = steps[axis]
        index = inside + mo.reshape(mo.arange(steps[axis]) * strides[axis], shape)
        place = index if place is None else place * full[axis] + index
    place = mo.reshape(mo.broadcast_to(place, (*kernel, *steps)), (1, -1))
    values = mo.reshape(x, (count * channels, -1))
    summed = mo.scatter_add(mo.zeros((count * channels, math.prod(full)), dtype=x.dtype),
                            mo.broadcast_to(place, values.shape), values, axis=1)
    summed = mo.reshape(summed, (count, channels, *full))
    return padded(call, summed, [0, 0, *(-low for low in pads[:rank])], [0, 0, *(-high for high in pads[rank:])])


@FAMILY.op("DeformConv")
def deform_conv(call: Call, x: Any, weight: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """A convolution that reads each tap at a place of its own, between pixels: sampled, then multiplied."""
    x, weight, offset = tensor(x), tensor(weight), tensor(offset)
    made = windows(call, x.shape[2:], weight.shape[2:])
    groups, offset_groups = call.get("group", 1), call.get("offset_group", 1)
    count, channels, height, width = x.shape
    rows, columns = offset.shape[2:]
    taps = math.prod(made.kernel)
    offset = mo.reshape(offset, (count, offset_groups, *made.kernel, 2, rows, columns))
    base = []
    for axis, steps in enumerate((rows, columns)):
        shape = [1] * 6
        shape[2 + axis] = made.kernel[axis]
        taps_at = mo.reshape(mo.arange(made.kernel[axis]) * made.dilations[axis], shape)
        shape = [1] * 6
        shape[4 + axis] = steps
        base.append(mo.reshape(mo.arange(steps) * made.strides[axis] - made.before[axis], shape) + taps_at)
    places = [mo.reshape(mo.astype(base[axis], x.dtype) + offset[:, :, :, :, axis],
                         (count * offset_groups, taps * rows, columns)) for axis in (0, 1)]
    image = mo.reshape(x, (count * offset_groups, channels // offset_groups, height, width))
    found = sampled(call, image, places, "linear", "zeros", False)
    found = mo.reshape(found, (count, offset_groups, channels // offset_groups, taps, rows, columns))
    if mask is not None:
        found = found * mo.reshape(tensor(mask), (count, offset_groups, 1, taps, rows, columns))
    found = mo.reshape(found, (count, groups, channels // groups * taps, rows * columns))
    kernel = mo.reshape(weight, (groups, weight.shape[0] // groups, channels // groups * taps))
    y = mo.reshape(mo.matmul(kernel, found), (count, weight.shape[0], rows, columns))
    return y if bias is None else y + mo.reshape(tensor(bias), (-1, 1, 1))
