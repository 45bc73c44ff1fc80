"""Images rearranged: pixels from channels, windows as columns and back, and samples at places between pixels."""

from __future__ import annotations

import itertools
import math
from typing import Any

from morpho.base.dims import Dim
from morpho.base.dtypes import int64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.base.shapes import as_integer
from morpho.ir.node import Node, build
from morpho.ir.op import REGISTRY
from morpho.ops.algebra import constant, expand, permute, reshape
from morpho.tensor.autodiff.precision import rounded_once
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions.neural.spatial import Numbers, Widths, padding_widths, per_axis
from morpho.tensor.operands import as_node, promoted


def _channels(name: str, x: Any) -> Node:
    node = as_node(x, name)
    if len(node.shape) < 3:
        raise fail(ShapeError, name, f"shape {node.shape} is not [..., C, H, W]")
    return node


def pixel_shuffle(x: Any, upscale_factor: int, /) -> Tensor:
    """Channels as pixels: x[..., C * r * r, H, W] -> (..., C, H * r, W * r).

    >>> mo.pixel_shuffle(mo.reshape(mo.arange(4), (1, 4, 1, 1)), 2).tolist()
    [[[[0, 1], [2, 3]]]]
    """
    node, r = _channels("pixel_shuffle", x), as_integer(upscale_factor, "pixel_shuffle", "upscale_factor")
    *batch, channels, rows, columns = node.shape
    if r < 1 or isinstance(channels, Dim) or channels % (r * r):
        raise fail(ShapeError, "pixel_shuffle", f"{channels} channels are not a multiple of {r} * {r}")
    n = len(batch)
    apart = reshape(node, (*batch, channels // (r * r), r, r, rows, columns))
    turned = permute(apart, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return Tensor.of_node(reshape(turned, (*batch, channels // (r * r), rows * r, columns * r)))


def pixel_unshuffle(x: Any, downscale_factor: int, /) -> Tensor:
    """Pixels as channels: x[..., C, H * r, W * r] -> (..., C * r * r, H, W).

    >>> mo.pixel_unshuffle(mo.reshape(mo.arange(4), (1, 1, 2, 2)), 2).shape
    (1, 4, 1, 1)
    """
    node, r = _channels("pixel_unshuffle", x), as_integer(downscale_factor, "pixel_unshuffle", "downscale_factor")
    *batch, channels, rows, columns = node.shape
    if r < 1 or any(isinstance(size, Dim) or size % r for size in (rows, columns)):
        raise fail(ShapeError, "pixel_unshuffle", f"images of {rows} x {columns} are not a multiple of {r}")
    n = len(batch)
    apart = reshape(node, (*batch, channels, rows // r, r, columns // r, r))
    turned = permute(apart, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return Tensor.of_node(reshape(turned, (*batch, channels * r * r, rows // r, columns // r)))


def channel_shuffle(x: Any, groups: int, /) -> Tensor:
    """Channels of groups in turn: the first of each, then the second of each.

    >>> mo.channel_shuffle(mo.reshape(mo.arange(4), (1, 4, 1, 1)), 2).reshape(-1).tolist()
    [0, 2, 1, 3]
    """
    node, count = as_node(x, "channel_shuffle"), as_integer(groups, "channel_shuffle", "groups")
    if len(node.shape) < 3 or count < 1 or isinstance(node.shape[1], Dim) or node.shape[1] % count:
        raise fail(ShapeError, "channel_shuffle",
                   f"the channels of shape {node.shape} do not divide into {count} groups")
    batch, channels, *rest = node.shape
    apart = reshape(node, (batch, count, channels // count, *rest))
    turned = permute(apart, (0, 2, 1, *range(3, 3 + len(rest))))
    return Tensor.of_node(reshape(turned, node.shape))


# -- windows as columns -----------------------------------------------------------------------------------------------
def _windows(name: str, kernel_size: Any, dilation: Any, padding: Any,
             stride: Any) -> tuple[Numbers, Numbers, Numbers, Widths]:
    lengths = per_axis(name, "kernel_size", kernel_size, 2, 1)
    apart, steps = per_axis(name, "dilation", dilation, 2, 1), per_axis(name, "stride", stride, 2, 1)
    spans = tuple((k - 1) * gap + 1 for k, gap in zip(lengths, apart, strict=True))
    return lengths, apart, steps, padding_widths(name, padding, spans, steps)


def _seen(name: str, padded: Node, lengths: Numbers, apart: Numbers, steps: Numbers) -> Node:
    for d in (0, 1):
        span = (lengths[d] - 1) * apart[d] + 1
        if isinstance(padded.shape[2 + d], Dim) or padded.shape[2 + d] < span:
            raise fail(ShapeError, name, f"a window over {span} elements does not fit {padded.shape[2 + d]}")
    return build("window", padded, axes=(2, 3), sizes=lengths, steps=steps, dilations=apart)


def unfold(x: Any, /, kernel_size: Any, *, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The windows of images x[N, C, H, W] as columns: (N, C * KH * KW, windows).

    >>> mo.unfold(mo.ones((1, 2, 4, 4)), 3).shape
    (1, 18, 4)
    """
    name = "unfold"
    node = as_node(x, name)
    if len(node.shape) != 4:
        raise fail(ShapeError, name, f"shape {node.shape} is not [N, C, H, W]")
    lengths, apart, steps, widths = _windows(name, kernel_size, dilation, padding, stride)
    if any(map(any, widths)):
        zero = 0.0 if node.dtype.is_float else 0
        node = build("pad", node, before=(0, 0, *(w[0] for w in widths)), after=(0, 0, *(w[1] for w in widths)),
                     value=zero)
    seen = _seen(name, node, lengths, apart, steps)
    count, channels, rows, columns = seen.shape[:4]
    turned = permute(seen, (0, 1, 4, 5, 2, 3))
    return Tensor.of_node(reshape(turned, (count, channels * lengths[0] * lengths[1], rows * columns)))


def fold(x: Any, /, output_size: Any, kernel_size: Any, *, dilation: Any = 1, padding: Any = 0,
         stride: Any = 1) -> Tensor:
    """Columns (N, C * KH * KW, windows) added up to images of `output_size`: what `unfold` took apart, overlapping
    elements as often as they were taken.

    >>> mo.fold(mo.ones((1, 4, 4)), (3, 3), 2).numpy()[0, 0]
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]], dtype=float32)
    """
    name = "fold"
    node = as_node(x, name)
    if len(node.shape) != 3 or not node.dtype.is_float:
        raise fail(ShapeError if node.dtype.is_float else DTypeError, name,
                   f"{node.dtype}{node.shape} is not floats of [N, C * KH * KW, windows]")
    sizes = per_axis(name, "output_size", output_size, 2, 1)
    lengths, apart, steps, widths = _windows(name, kernel_size, dilation, padding, stride)
    taken = lengths[0] * lengths[1]
    if isinstance(node.shape[1], Dim) or node.shape[1] % taken:
        raise fail(ShapeError, name, f"{node.shape[1]} rows are not channels of windows of {lengths}")
    channels = node.shape[1] // taken
    whole = (node.shape[0], channels, *(size + sum(w) for size, w in zip(sizes, widths, strict=True)))
    seen = _seen(name, expand(constant(0, node.dtype), whole), lengths, apart, steps)
    if node.shape[2] != seen.shape[2] * seen.shape[3]:
        raise fail(ShapeError, name,
                   f"{node.shape[2]} columns are not the {seen.shape[2]} x {seen.shape[3]} windows of "
                                     f"images of {sizes}")
    apart_ = reshape(node, (node.shape[0], channels, *lengths, *seen.shape[2:4]))
    (found,) = REGISTRY["window"].vjp(seen, permute(apart_, (0, 1, 4, 5, 2, 3)))  # type: ignore[operator]
    if any(map(any, widths)):
        found = build("slice", found, starts=(0, 0, *(w[0] for w in widths)),
                      sizes=(node.shape[0], channels, *sizes), steps=(1,) * 4)
    return Tensor.of_node(found)


# -- samples ----------------------------------------------------------------------------------------------------------
@rounded_once
def grid_sample(x: Any, grid: Any, /, *, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: bool = False) -> Tensor:
    """Images x[N, C, H, W] at the places grid[N, OH, OW, 2], of which (-1, -1) is the upper left end and (1, 1) the
    lower right: (N, C, OH, OW). Volumes x[N, C, D, H, W] at grid[N, OD, OH, OW, 3] likewise.

    mode: "bilinear" between four pixels (eight of a volume), the "nearest" one, or "bicubic" between sixteen of an
        image.
    padding_mode: beyond the borders "zeros", the pixel of the "border", or a "reflection".
    align_corners: the ends are the middles of the outer pixels, otherwise their outer borders.

    >>> x = mo.reshape(mo.arange(4.0), (1, 1, 2, 2))
    >>> mo.grid_sample(x, mo.zeros((1, 1, 1, 2))).item()
    1.5
    """
    name = "grid_sample"
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise fail(ArgumentError, name, f"mode {mode!r} is unknown", "use 'bilinear', 'nearest' or 'bicubic'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise fail(ArgumentError, name, f"padding_mode {padding_mode!r} is unknown",
                   "use 'zeros', 'border' or 'reflection'")
    images, places = (Tensor.of_node(node) for node in promoted(name, x, grid, floating=True))
    rank = images.ndim - 2
    if rank not in (2, 3) or places.ndim != images.ndim or places.shape[-1] != rank or \
            images.shape[0] != places.shape[0]:
        raise fail(ShapeError, name, f"shapes {images.shape} and {places.shape} are neither [N, C, H, W] and "
                                     "[N, OH, OW, 2] nor [N, C, D, H, W] and [N, OD, OH, OW, 3]")
    if 0 in images.shape[2:] or any(isinstance(size, Dim) for size in images.shape[2:]):
        raise fail(ShapeError, name, f"images of {images.shape[2:]} have no pixels to sample")
    if mode == "bicubic" and rank == 3:
        raise fail(ArgumentError, name, "mode 'bicubic' is of images, not of volumes", "use 'bilinear'")
    sizes = tuple(int(size) for size in reversed(images.shape[2:]))
    at = [_scaled(ew.astype(places[..., d], images.dtype.compute), sizes[d], align_corners) for d in range(rank)]
    if mode == "bicubic":
        return ew.astype(_by_cubics(images, at, sizes, padding_mode, align_corners), images.dtype)
    at = [_inside(part, size, padding_mode, align_corners) for part, size in zip(at, sizes, strict=True)]
    if mode == "nearest":
        found = _pixels(images, [ew.round(part) for part in at], sizes)
        return ew.astype(found, images.dtype)
    low = [ew.floor(part) for part in at]
    share = [part - base for part, base in zip(at, low, strict=True)]
    total = None
    for corner in itertools.product((0, 1), repeat=rank):
        steps = corner[::-1]  # x goes fastest
        weight = math.prod([part if step else 1 - part for part, step in zip(share[1:], steps[1:], strict=True)],
                           start=share[0] if steps[0] else 1 - share[0])
        part = _pixels(images, [base + step for base, step in zip(low, steps, strict=True)], sizes) * weight[:, None]
        total = part if total is None else total + part
    assert total is not None
    return ew.astype(total, images.dtype)


def _by_cubics(images: Tensor, at: list[Tensor], sizes: Numbers, padding_mode: str, align_corners: bool) -> Any:
    """Between four pixels of four rows, each of which is brought back from beyond the borders by itself."""
    if padding_mode != "reflection":  # beyond these all are zeros, or the same
        at = [ew.clip(part, -3.0, size + 2.0) for part, size in zip(at, sizes, strict=True)]
    at = [ew.where(ew.isfinite(part), part, -3.0) for part in at]
    low = [ew.floor(part) for part in at]
    shares = [_keys(part - base) for part, base in zip(at, low, strict=True)]
    taps = [[_inside(base + (k - 1), size, padding_mode, align_corners) for k in range(4)]
            for base, size in zip(low, sizes, strict=True)]
    total: Any = None
    for j in range(4):
        line: Any = None
        for i in range(4):
            part = _pixels(images, [taps[0][i], taps[1][j]], sizes) * shares[0][i][:, None]
            line = part if line is None else line + part
        line = line * shares[1][j][:, None]
        total = line if total is None else total + line
    return total


def _keys(t: Tensor) -> list[Tensor]:
    """The shares of the pixels at -1, 0, 1 and 2 of a place t between 0 and 1, by Keys' cubics with a = -0.75."""
    def near(d: Tensor) -> Tensor:
        return (1.25 * d - 2.25) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((-0.75 * d + 3.75) * d - 6) * d + 3

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _scaled(u: Tensor, size: int, align_corners: bool) -> Tensor:
    """Places of -1..1 as numbers of pixels."""
    return (u + 1) * ((size - 1) / 2) if align_corners else ((u + 1) * size - 1) / 2


def _inside(x: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """Numbers of pixels, brought back from beyond the borders as the mode has it."""
    if padding_mode == "reflection":
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        length = high - low
        if length == 0:
            return x * 0
        rest = ew.remainder(ew.abs(x - low), 2 * length)
        x = ew.where(ew.greater(rest, length), 2 * length - rest, rest) + low
    if padding_mode != "zeros":
        x = ew.clip(x, 0.0, size - 1.0)
    return ew.where(ew.isfinite(x), ew.clip(x, -2.0, size + 1.0), -2.0)


def _pixels(images: Tensor, at: list[Tensor], sizes: Numbers) -> Tensor:
    """Pixels at whole places, in the wide dtype; zeros beyond the borders."""
    inside, place = None, None
    for part, size in reversed([*zip(at, sizes, strict=True)]):
        here = ew.logical_and(ew.greater_equal(part, 0), ew.less(part, size))
        number = ew.astype(ew.clip(part, 0, size - 1), int64)
        inside = here if inside is None else ew.logical_and(here, inside)
        place = number if place is None else place * size + number
    assert inside is not None and place is not None
    count, channels = images.shape[:2]
    out = tuple(place.shape[1:])
    flat = reshape(place.node, (count, 1, math.prod(out)))
    index = expand(flat, (count, channels, math.prod(out)))
    lines = reshape(images.node, (count, channels, math.prod(sizes)))
    found = Tensor.of_node(reshape(build("gather", lines, index, axis=2, called="grid_sample"),
                                   (count, channels, *out)))
    return ew.where(inside[:, None], ew.astype(found, images.dtype.compute), 0.0)
