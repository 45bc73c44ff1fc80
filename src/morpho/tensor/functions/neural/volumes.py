"""Convolutions of volumes: the planes that a window reaches over are channels of one `conv2d`."""

from __future__ import annotations

from typing import Any

from morpho.base.dims import product
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.tensor.core import Tensor
from morpho.tensor.functions.move import flip, moveaxis, pad, permute_dims, reshape, stack
from morpho.tensor.functions.neural.convolution import by_parts, conv2d
from morpho.tensor.functions.neural.spatial import batched, padding_widths, per_axis
from morpho.tensor.operands import as_node


@by_parts
@batched(3)
def conv3d(x: Any, weight: Any, bias: Any = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
           groups: int = 1) -> Tensor:
    """The convolution of volumes x[N, C, D, H, W] by weight[O, C / groups, KD, KH, KW], plus bias[O] where given; see
    `conv2d`.

    >>> mo.conv3d(mo.ones((1, 1, 3, 3, 3)), mo.ones((1, 1, 3, 3, 3))).item()
    27.0
    """
    return convolved("conv3d", x, weight, bias, stride, padding, dilation, groups)


def convolved(name: str, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
              groups: int) -> Tensor:
    """`conv3d` for a caller of this name."""
    volumes, kernels = Tensor.of_node(as_node(x, name)), Tensor.of_node(as_node(weight, name))
    if kernels.ndim != 5 or any(not isinstance(size, int) or size == 0 for size in kernels.shape[2:]):
        raise fail(ShapeError, name, f"a weight of shape {kernels.shape} is not [O, C, KD, KH, KW]")
    if volumes.ndim != 5 or volumes.shape[1] != kernels.shape[1] * groups:
        raise fail(ShapeError, name, f"shape {tuple(volumes.shape)} is not [N, {kernels.shape[1] * groups}, D, H, W]")
    steps, apart = (per_axis(name, what, given, 3, 1) for what, given in (("stride", stride), ("dilation", dilation)))
    spans = tuple((int(size) - 1) * gap + 1 for size, gap in zip(kernels.shape[2:], apart, strict=True))
    widths = padding_widths(name, padding, spans, steps)
    planes = _planes(name, pad(volumes, ((0, 0), (0, 0), widths[0], (0, 0), (0, 0))), spans[0], steps[0], apart[0])
    count, depth = planes.shape[0], planes.shape[3]  # (N, C, KD, OD, H, W)
    images = permute_dims(planes, (0, 3, 1, 2, 4, 5))
    images = reshape(images, (product((count, depth)), product(planes.shape[1:3]), *volumes.shape[3:]))
    filters = reshape(kernels, (kernels.shape[0], -1, *kernels.shape[3:]))
    y = conv2d(images, filters, bias, stride=steps[1:], padding=widths[1:], dilation=apart[1:], groups=groups)
    return moveaxis(reshape(y, (count, depth, *y.shape[1:])), 1, 2)


def _planes(name: str, x: Tensor, span: int, step: int, apart: int) -> Tensor:
    """(N, C, D, H, W) -> (N, C, KD, OD, H, W): for every element of the window's depth the planes it meets."""
    depth = x.shape[2]
    if not isinstance(depth, int) or depth < span:
        raise fail(ShapeError, name, f"a window over {span} planes does not fit {depth}", "use padding")
    last = (depth - span) // step * step + 1
    return stack([x[:, :, start:start + last:step] for start in range(0, span, apart)], axis=2)


@by_parts
@batched(3)
def conv_transpose3d(x: Any, weight: Any, bias: Any = None, *, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """The transposed convolution of volumes x[N, C, D, H, W] by weight[C, O / groups, KD, KH, KW]; see
    `conv_transpose2d`. The convolution of x with zeros put between its elements by the kernel read backwards.

    >>> mo.conv_transpose3d(mo.ones((1, 1, 1, 1, 1)), mo.ones((1, 1, 2, 2, 2)), stride=2).shape
    (1, 1, 2, 2, 2)
    """
    name = "conv_transpose3d"
    volumes, kernels = Tensor.of_node(as_node(x, name)), Tensor.of_node(as_node(weight, name))
    if volumes.ndim != 5 or kernels.ndim != 5 or volumes.shape[1] != kernels.shape[0]:
        raise fail(ShapeError, name, f"shapes {volumes.shape} and {kernels.shape} are not [N, C, D, H, W] and "
                                     "[C, O, KD, KH, KW]")
    if groups < 1 or kernels.shape[0] % groups:
        raise fail(ArgumentError, name, f"{kernels.shape[0]} channels do not divide into {groups} groups")
    steps, apart = (per_axis(name, what, given, 3, 1) for what, given in (("stride", stride), ("dilation", dilation)))
    extra = per_axis(name, "output_padding", output_padding, 3, 0)
    widths = per_axis(name, "padding", padding, 3, 0)
    spans = tuple((int(size) - 1) * gap + 1 for size, gap in zip(kernels.shape[2:], apart, strict=True))
    cut = []
    for d in range(3):
        if extra[d] and extra[d] >= max(steps[d], apart[d]):
            raise fail(ArgumentError, name, f"output_padding {extra[d]} is not smaller than stride {steps[d]} or "
                                            f"dilation {apart[d]}")
        volumes = _spread(volumes, 2 + d, steps[d])
        before, after = spans[d] - 1 - widths[d], spans[d] - 1 - widths[d] + extra[d]
        cut.append((max(-before, 0), max(-after, 0)))
        if volumes.shape[2 + d] + before + after < spans[d]:
            raise fail(ShapeError, name, f"nothing is left along axis {2 + d}", "pad less")
        borders = [(0, 0)] * 5
        borders[2 + d] = (max(before, 0), max(after, 0))
        volumes = pad(volumes, borders)
    for d, (front, back) in enumerate(cut):
        if front or back:
            where = [slice(None)] * 5
            where[2 + d] = slice(front, volumes.shape[2 + d] - back)
            volumes = volumes[tuple(where)]
    channels, outputs = kernels.shape[:2]
    turned = reshape(flip(kernels, axis=(2, 3, 4)), (groups, channels // groups, outputs, *kernels.shape[2:]))
    turned = reshape(permute_dims(turned, (0, 2, 1, 3, 4, 5)), (groups * outputs, channels // groups,
                                                                *kernels.shape[2:]))
    return convolved(name, volumes, turned, bias, 1, 0, apart, groups)


def _spread(x: Tensor, axis: int, step: int) -> Tensor:
    """step - 1 zeros between the elements of an axis."""
    if step == 1:
        return x
    shape = tuple(x.shape)
    apart = reshape(x, (*shape[:axis + 1], 1, *shape[axis + 1:]))
    borders = [(0, 0)] * (len(shape) + 1)
    borders[axis + 1] = (0, step - 1)
    wide = reshape(pad(apart, borders), (*shape[:axis], shape[axis] * step, *shape[axis + 1:]))
    where = [slice(None)] * len(shape)
    where[axis] = slice(0, shape[axis] * step - (step - 1))
    return wide[tuple(where)]
