"""Convolutions of lines and images, and transposed ones. Each is one kernel with what follows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from morpho.base.checks import as_whole
from morpho.base.dims import Size, product
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ops.algebra import add, cast, expand, mul, reduce, reshape
from morpho.ops.neural.convolution import transposed
from morpho.ops.order import remat_barrier
from morpho.tensor.autodiff.precision import EXAMPLES, lowered
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions.move import reshape as reshape_tensor
from morpho.tensor.functions.neural.spatial import (
    Widths,
    as_given,
    as_images,
    batched,
    both,
    check_window,
    padding_widths,
    per_axis,
)
from morpho.tensor.operands import as_node, check_widening
from morpho.tensor.recorded import recorded


def by_parts(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A convolution that takes complex numbers too, by four of their real and imaginary parts."""

    @wraps(function)
    def convolution(x: Any, weight: Any, bias: Any = None, **settings: Any) -> Tensor:
        if not any(getattr(getattr(one, "dtype", None), "kind", "") == "c" for one in (x, weight)):
            return function(x, weight, bias, **settings)
        x, weight = (Tensor.of_node(as_node(one, function.__name__)) for one in (x, weight))
        (a, b), (c, d) = ((ew.real(one), ew.imag(one)) for one in (x, weight))
        ac, bd, ad, bc = (function(one, other, None, **settings) for one, other in ((a, c), (b, d), (a, d), (b, c)))
        total = Tensor.of_node(build("complex", (ac - bd).node, (ad + bc).node))
        if bias is None:
            return total
        rank = weight.ndim - 2
        return total + reshape_tensor(Tensor.of_node(as_node(bias, function.__name__)), (-1, *[1] * rank))

    return convolution


@by_parts
@recorded
@batched(1)
def conv1d(x: Any, weight: Any, bias: Any = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
           groups: int = 1) -> Tensor:
    """The convolution of lines x[N, C, L] by weight[O, C / groups, K], plus bias[O] where given; see `conv2d`.

    >>> import morpho as mo
    >>> mo.conv1d(mo.asarray([[[1.0, 2.0, 4.0]]]), mo.asarray([[[1.0, -1.0]]])).numpy()
    array([[[-1., -2.]]], dtype=float32)
    """
    return _conv("conv1d", 1, x, weight, bias, stride, padding, dilation, groups)


@by_parts
@recorded
@batched(2)
def conv2d(x: Any, weight: Any, bias: Any = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
           groups: int = 1) -> Tensor:
    """The convolution of images x[N, C, H, W] by weight[O, C / groups, KH, KW], plus bias[O] where given.

    `padding` is a number of zeros, a number or a (before, after) pair per axis, "valid" (none) or "same" (as many as
    keep the size, at stride 1).

    >>> import morpho as mo
    >>> mo.conv2d(mo.ones((1, 1, 3, 3)), mo.ones((1, 1, 3, 3)), padding="same").numpy()[0, 0]
    array([[4., 6., 4.],
           [6., 9., 6.],
           [4., 6., 4.]], dtype=float32)
    """
    return _conv("conv2d", 2, x, weight, bias, stride, padding, dilation, groups)


@by_parts
@recorded
@batched(1)
def conv_transpose1d(x: Any, weight: Any, bias: Any = None, *, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """The transposed convolution of lines x[N, C, L] by weight[C, O / groups, K]; see `conv_transpose2d`.

    >>> import morpho as mo
    >>> mo.conv_transpose1d(mo.asarray([[[1.0, 2.0]]]), mo.ones((1, 1, 2)), stride=2).numpy()
    array([[[1., 1., 2., 2.]]], dtype=float32)
    """
    return _conv_transpose("conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding, dilation, groups)


@by_parts
@recorded
@batched(2)
def conv_transpose2d(x: Any, weight: Any, bias: Any = None, *, stride: Any = 1, padding: Any = 0,
                     output_padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """The transposed convolution of images x[N, C, H, W] by weight[C, O / groups, KH, KW], plus bias[O] where given:
    the gradient of `conv2d` with respect to its input. Its result has (H - 1) * stride - 2 * padding
    + dilation * (KH - 1) + output_padding + 1 rows.

    >>> import morpho as mo
    >>> mo.conv_transpose2d(mo.ones((1, 1, 1, 2)), mo.ones((1, 1, 2, 2)), stride=2).shape
    (1, 1, 2, 4)
    """
    return _conv_transpose("conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding, dilation, groups)


# -- arguments -------------------------------------------------------------------------------------------------------
def _operands(name: str, rank: int, x: Any, weight: Any, bias: Any) -> tuple[Node, Node, Node | None]:
    check_widening(name, as_node(x, name), as_node(weight, name))
    nodes = lowered(name, "convolution", x, weight, *([] if bias is None else [bias]))
    if not nodes[0].dtype.is_float:
        raise fail(DTypeError, name, f"dtype {nodes[0].dtype} is not taken", "convert with astype")
    if len(nodes[1].shape) != rank + 2:
        raise fail(ShapeError, name, f"a weight of shape {nodes[1].shape} does not have {rank + 2} axes")
    images, kernels = as_images(name, nodes[0], rank), as_images(name, nodes[1], rank)
    if any(not isinstance(size, int) or size == 0 for size in kernels.shape[2:]):
        raise fail(ShapeError, name, f"a kernel of size {nodes[1].shape[2:]} is empty or dynamic")
    return images, kernels, nodes[2] if len(nodes) > 2 else None


def _group_count(name: str, groups: Any) -> int:
    number = as_whole(groups)
    if number is None or number < 1:
        raise fail(ArgumentError, name, f"groups={groups!r} is not a positive integer")
    return number


def _check_channels(name: str, groups: int, channels: Size, taken: Size, count: Size, what: str) -> None:
    """`taken` channels per group must be those of x, and `count`, the axis that is divided, must be divisible."""
    if not isinstance(channels, int) or not isinstance(count, int):
        raise fail(ShapeError, name, "the numbers of channels must be known", "make only the batch dynamic")
    if channels % groups or count % groups:
        odd = f"{channels} channels of x" if channels % groups else f"{count} channels of the weight"
        raise fail(ShapeError, name, f"{odd} are not divisible into {groups} groups")
    if channels != taken:
        raise fail(ShapeError, name, f"x has {channels} channels, {what} takes {taken}")


def _with_bias(name: str, node: Node, bias: Node | None) -> Node:
    """Images or lines plus a number per channel; lines as they are given back, so that what follows joins the sum."""
    if bias is None:
        return node
    if bias.shape != (node.shape[1],):
        raise fail(ShapeError, name, f"a bias of shape {bias.shape} does not fit {node.shape[1]} channels")
    return add(node, expand(reshape(bias, (1, node.shape[1], *(1 for _ in node.shape[2:]))), node.shape))


# -- convolutions ----------------------------------------------------------------------------------------------------
def _conv(name: str, rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
          groups: Any) -> Tensor:
    images, kernels, addend = _operands(name, rank, x, weight, bias)
    groups = _group_count(name, groups)
    _check_channels(name, groups, images.shape[1], kernels.shape[1] * groups, kernels.shape[0],
                    f"a weight of shape {kernels.shape} in {groups} groups")
    steps = both(per_axis(name, "stride", stride, rank, 1), rank, 1)
    apart = both(per_axis(name, "dilation", dilation, rank, 1), rank, 1)
    spans = tuple((kernels.shape[2 + d] - 1) * apart[d] + 1 for d in (0, 1))
    widths = both(padding_widths(name, padding, spans[2 - rank:], steps[2 - rank:]), rank, (0, 0))
    for d in (0, 1):
        check_window(name, images.shape[2 + d], widths[d], spans[d], steps[d])
    result = _convolved(images, kernels, widths, steps, apart, groups)
    return Tensor.of_node(_with_bias(name, as_given(result, rank), addend))


def _convolved(x: Node, weight: Node, widths: Widths, steps: Any, apart: Any, groups: int) -> Node:
    """The cheapest form of a convolution; the order of the sums is that of docs/numerics.md."""
    if weight.shape[2:] == (1, 1) and steps == (1, 1) and groups == 1 and not any(map(any, widths)):
        return _pointwise(x, weight)
    if groups > 1 and weight.shape[1] == 1:
        return _depthwise(x, weight, widths, steps, apart)
    before, after = tuple(w[0] for w in widths), tuple(w[1] for w in widths)
    return build("conv", x, weight, before=before, after=after, steps=steps, dilations=apart, groups=groups)


def _pointwise(x: Node, weight: Node) -> Node:
    """A kernel of one element: a product of matrices per image."""
    count, channels = x.shape[:2]
    kernels = expand(reshape(weight, (1, weight.shape[0], channels)), (count, weight.shape[0], channels))
    found = build("matmul", kernels, reshape(x, (count, channels, product(x.shape[2:]))))
    return reshape(found, (count, weight.shape[0], *x.shape[2:]))


def _depthwise(x: Node, weight: Node, widths: Widths, steps: Any, apart: Any) -> Node:
    """One channel per group: windows times weights, summed over the windows; half floats in float32."""
    count, channels = x.shape[:2]
    times = weight.shape[0] // channels
    lengths = weight.shape[2:]
    images = padded(x, widths, 0.0)
    if images is not x and lengths[0] > 1:  # written once: looking for borders on four sides takes longer
        images = remat_barrier(images)
    windows = build("window", images, axes=(2, 3), sizes=lengths, steps=steps, dilations=apart)
    sizes = windows.shape[2:4]
    shape = (count, channels, times, *sizes, *lengths)
    seen = expand(reshape(windows, (count, channels, 1, *sizes, *lengths)), shape)
    kernels = expand(reshape(weight, (1, channels, times, 1, 1, *lengths)), shape)
    wide = x.dtype.compute
    total = reduce("sum", mul(cast(seen, wide), cast(kernels, wide)), (5, 6))
    return cast(reshape(total, (count, channels * times, *sizes)), x.dtype)


def padded(x: Node, widths: Widths, value: float | int) -> Node:
    """Images with a border of one value."""
    if not any(map(any, widths)):
        return x
    before, after = (0, 0, *(w[0] for w in widths)), (0, 0, *(w[1] for w in widths))
    return build("pad", x, before=before, after=after, value=value)


def _conv_transpose(name: str, rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any,
                    output_padding: Any, dilation: Any, groups: Any) -> Tensor:
    images, kernels, addend = _operands(name, rank, x, weight, bias)
    groups = _group_count(name, groups)
    _check_channels(name, groups, images.shape[1], kernels.shape[0], kernels.shape[0],
                    f"a weight of shape {kernels.shape}")
    steps = both(per_axis(name, "stride", stride, rank, 1), rank, 1)
    apart = both(per_axis(name, "dilation", dilation, rank, 1), rank, 1)
    extra = both(per_axis(name, "output_padding", output_padding, rank, 0), rank, 0)
    spans = tuple((kernels.shape[2 + d] - 1) * apart[d] + 1 for d in (0, 1))
    if isinstance(padding, str):
        raise fail(ArgumentError, name, f"padding={padding!r} has no meaning here", "give the widths")
    widths = both(padding_widths(name, padding, spans[2 - rank:], steps[2 - rank:]), rank, (0, 0))
    for d in (0, 1):
        if extra[d] >= max(steps[d], apart[d]) and extra[d]:
            raise fail(ArgumentError, name, f"output_padding {extra[d]} is not smaller than stride {steps[d]} or "
                                            f"dilation {apart[d]}")
    sizes = tuple((images.shape[2 + d] - 1) * steps[d] - sum(widths[d]) + spans[d] + extra[d] for d in (0, 1))
    if any(isinstance(size, int) and size < 1 for size in sizes) or 0 in images.shape[2:]:
        raise fail(ShapeError, name, f"the result would have size {sizes[2 - rank:]}", "pad less")
    before = tuple(w[0] for w in widths)
    if kernels.shape[2:] == steps and groups == 1 and apart == (1, 1) and not any(map(any, widths)) and not any(extra):
        result = _side_by_side(images, kernels)
    else:
        result = transposed(images, kernels, sizes, before, steps, apart, groups)
    return Tensor.of_node(_with_bias(name, as_given(result, rank), addend))


def _side_by_side(x: Node, weight: Node) -> Node:
    """A transposed convolution whose kernels lie side by side in the result: each pixel becomes a block of its own, by
    a product of matrices, with none of the zeros that a convolution of spread pixels multiplies."""
    (count, channels, *sizes), (_, made, *lengths) = x.shape, weight.shape
    rows = made * product(tuple(lengths))
    kernels = build("permute", reshape(weight, (channels, rows)), axes=(1, 0))
    kernels = expand(reshape(kernels, (1, rows, channels)), (count, rows, channels))
    found = build("matmul", kernels, reshape(x, (count, channels, product(tuple(sizes)))))
    blocks = build("permute", reshape(found, (count, made, *lengths, *sizes)), axes=(0, 1, 4, 2, 5, 3))
    return reshape(blocks, (count, made, *(size * length for size, length in zip(sizes, lengths, strict=True))))


EXAMPLES["convolution"] = (conv2d, [(2, 16, 24, 24), (16, 16, 3, 3)])
