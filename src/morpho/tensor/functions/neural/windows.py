"""Pooling with partial windows at the end (`ceil_mode`), with the places of the largest elements, and of volumes."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from morpho.base.dims import Dim
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, expand, reshape
from morpho.tensor.convert import unplaced
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions.neural.spatial import batched, padding_widths, per_axis, pooled
from morpho.tensor.functions.reduce import argmax
from morpho.tensor.operands import as_node

MOST_TAPS = 16  # elements of a window that are compared one after another
AXIS_BITS = 5  # of the number of an element along each axis
AXES = {1: "N, C, L", 2: "N, C, H, W", 3: "N, C, D, H, W"}


class Pooled(NamedTuple):
    """Largest elements, and where they stand among those of their channel, read as a vector."""

    values: Tensor
    indices: Tensor


class Windows:
    """Windows over the spatial axes of x[N, C, ...], the last ones of which may be partial."""

    def __init__(self, name: str, rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
                 ceil_mode: bool, floats: bool) -> None:
        self.name, self.rank, self.x = name, rank, as_node(x, name)
        if not (self.x.dtype.is_float or (self.x.dtype.is_integer and not floats)):
            raise fail(DTypeError, name, f"dtype {self.x.dtype} is not taken", "convert with astype")
        if len(self.x.shape) != rank + 2:
            raise fail(ShapeError, name, f"shape {self.x.shape} is not [{AXES[rank]}]")
        self.lengths = per_axis(name, "kernel_size", kernel_size, rank, 1)
        self.steps = self.lengths if stride is None else per_axis(name, "stride", stride, rank, 1)
        self.apart = per_axis(name, "dilation", dilation, rank, 1)
        spans = tuple((k - 1) * gap + 1 for k, gap in zip(self.lengths, self.apart, strict=True))
        self.widths = padding_widths(name, padding, spans, self.steps)
        self.sizes, self.counts, self.extra = [], [], []
        for d in range(rank):
            size = self.x.shape[2 + d]
            if isinstance(size, Dim):
                raise fail(ShapeError, name, f"the windows over the dynamic size {size} are not known",
                           "make only the batch dynamic")
            before, after = self.widths[d]
            if max(before, after) > spans[d] // 2:
                raise fail(ArgumentError, name, f"padding {max(before, after)} is more than half of a window of "
                                                f"{spans[d]}", "a window must not lie in the padding alone")
            room = size + before + after - spans[d]
            count = (math.ceil if ceil_mode else math.floor)(room / self.steps[d]) + 1
            if count < 1 or size == 0:  # with `ceil_mode` the only window may be a partial one
                raise fail(ShapeError, name, f"a kernel that spans {spans[d]} elements is larger than the padded input "
                                             f"of {size + before + after}", "pad more, or use a smaller kernel")
            if ceil_mode and (count - 1) * self.steps[d] >= size + before:  # it would begin in the padding
                count -= 1
            self.sizes.append(size)
            self.counts.append(count)
            self.extra.append(max((count - 1) * self.steps[d] + spans[d] - size - before - after, 0))

    def seen(self, value: float | int) -> Node:
        """The windows as axes behind the others, borders filled with a value."""
        before = (0, 0, *(w[0] for w in self.widths))
        after = (0, 0, *(w[1] + more for w, more in zip(self.widths, self.extra, strict=True)))
        node = self.x
        if any(before) or any(after):
            node = build("pad", node, before=before, after=after, value=value)
        found = build("window", node, axes=tuple(range(2, 2 + self.rank)), sizes=self.lengths, steps=self.steps,
                      dilations=self.apart)
        sizes = (*self.x.shape[:2], *self.counts, *self.lengths)
        if found.shape != sizes:
            found = build("slice", found, starts=(0,) * len(sizes), sizes=sizes, steps=(1,) * len(sizes))
        return found

    def reduced(self, how: str, seen: Node) -> Node:
        axes = tuple(range(2 + self.rank, 2 + 2 * self.rank))
        return reshape(pooled(how, seen, axes), seen.shape[:2 + self.rank])

    def elements(self, with_padding: bool) -> np.ndarray:
        """How many elements each window holds; what lies beyond the padding never counts."""
        sides = []
        for d in range(self.rank):
            before, after = self.widths[d]
            starts = np.arange(self.counts[d]) * self.steps[d] - before
            ends = np.minimum(starts + self.lengths[d], self.sizes[d] + (after if with_padding else 0))
            sides.append(ends - (starts if with_padding else np.maximum(starts, 0)))
        found = sides[0]
        for side in sides[1:]:
            found = np.multiply.outer(found, side)
        return np.maximum(found, 1)

    def places(self, seen: Node) -> Tensor:
        """The first place of the largest element of each window, in its channel read as a vector."""
        place = Tensor.of_node(expand(unplaced(0).node, seen.shape[:2 + self.rank]))
        for d, number in enumerate(self.first_largest(seen)):
            starts = np.arange(self.counts[d]) * self.steps[d] - self.widths[d][0]
            starts = starts.reshape(-1, *[1] * (self.rank - 1 - d))
            at = ew.clip(number * self.apart[d] + unplaced(starts.astype(number.dtype.numpy)), 0, self.sizes[d] - 1)
            place = place * self.sizes[d] + at
        return place

    def first_largest(self, seen: Node) -> list[Tensor]:
        """Where in each window its largest element, or NaN, stands first: a number for each axis."""
        if math.prod(self.lengths) > MOST_TAPS:
            flat = reshape(seen, (*seen.shape[:2 + self.rank], math.prod(self.lengths)))
            number = argmax(Tensor.of_node(flat), axis=-1)
            return [ew.remainder(ew.floor_divide(number, math.prod(self.lengths[d + 1:])), self.lengths[d])
                    for d in range(self.rank)]
        # Windows laid out next to each other to be searched took ten times as long as their elements one after another.
        elements = {at: self.element(seen, at) for at in np.ndindex(*self.lengths)}
        largest, found = functools.reduce(ew.maximum, elements.values()), unplaced(np.int32(0))
        for at, here in reversed(elements.items()):
            code = functools.reduce(lambda code, number: code << AXIS_BITS | number, at)
            is_largest = ew.equal(here, largest)
            if self.x.dtype.is_float:
                is_largest = ew.logical_or(is_largest, ew.isnan(here))
            found = ew.where(is_largest, unplaced(np.int32(code)), found)
        axes = [ew.bitwise_right_shift(found, AXIS_BITS * (self.rank - 1 - d)) for d in range(self.rank)]
        return [ew.bitwise_and(number, (1 << AXIS_BITS) - 1) for number in axes]

    def element(self, seen: Node, at: tuple[int, ...]) -> Tensor:
        """The same element of every window."""
        shape = seen.shape[:2 + self.rank]
        part = build("slice", seen, starts=(0,) * len(shape) + at, sizes=(*shape, *(1,) * self.rank),
                     steps=(1,) * len(seen.shape))
        return Tensor.of_node(reshape(part, shape))


def pooled_max(name: str, rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
               ceil_mode: bool, return_indices: bool) -> Any:
    """The largest element of each window, with its place where asked for."""
    windows = Windows(name, rank, x, kernel_size, stride, padding, dilation, ceil_mode, floats=False)
    dtype = windows.x.dtype
    least: float | int = -np.inf if dtype.is_float else int(np.iinfo(dtype.numpy).min)
    seen = windows.seen(least)
    values = Tensor.of_node(windows.reduced("max", seen))
    return Pooled(values, windows.places(seen)) if return_indices else values


def pooled_mean(name: str, rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
                with_padding: bool) -> Tensor:
    """The mean of each window."""
    windows = Windows(name, rank, x, kernel_size, stride, padding, 1, ceil_mode, floats=True)
    dtype = windows.x.dtype
    total = windows.reduced("sum", cast(windows.seen(0.0), dtype.compute))
    counts = unplaced(windows.elements(with_padding).astype(dtype.compute.numpy)).node
    shaped = expand(reshape(counts, (1, 1, *counts.shape)), total.shape)
    return Tensor.of_node(cast(build("divide", total, shaped), dtype))


@batched(3)
def max_pool3d(x: Any, /, kernel_size: Any, *, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window of volumes x[N, C, D, H, W]; see `max_pool2d`.

    >>> mo.max_pool3d(mo.reshape(mo.arange(8.0), (1, 1, 2, 2, 2)), 2).item()
    7.0
    """
    return pooled_max("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@batched(3)
def avg_pool3d(x: Any, /, kernel_size: Any, *, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
    """The mean of each window of volumes x[N, C, D, H, W]; see `avg_pool2d`.

    >>> mo.avg_pool3d(mo.reshape(mo.arange(8.0), (1, 1, 2, 2, 2)), 2).item()
    3.5
    """
    return pooled_mean("avg_pool3d", 3, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


