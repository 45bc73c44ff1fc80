"""Convolution of images by small kernels, and its gradients, which are convolutions themselves.

One op for everything: x[N, C, H, W] and weight[O, C / groups, KH, KW]. Padding is part of it, since the kernel packs
its operand anyway and reads zeros where there is nothing; it may be negative, which leaves elements out. So a
transposed convolution, the gradient of the input and that of the weight are the same op with other numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from morpho.base.dims import Shape, Size, product
from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.ir.node import Node, build, make
from morpho.ir.op import TWO, Attributes, Op, Spec, register
from morpho.ops.algebra import constant, expand, permute, reshape
from morpho.ops.batching import Rows
from morpho.ops.move import window_count

Pair = tuple[Size, Size]


def _infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    x, weight = inputs
    groups = attributes["groups"]
    if x.dtype is not weight.dtype or not x.dtype.is_float:
        raise fail(DTypeError, "conv", f"dtypes {x.dtype} and {weight.dtype} are not taken")
    if len(x.shape) != 4 or len(weight.shape) != 4:
        raise fail(ShapeError, "conv", f"shapes {x.shape} and {weight.shape} are not images and kernels of 4 axes")
    if weight.shape[1] * groups != x.shape[1]:
        raise fail(ShapeError, "conv", f"{x.shape[1]} channels do not fit kernels of {weight.shape[1]} in {groups} "
                                       "groups")
    if isinstance(weight.shape[0], int) and weight.shape[0] % groups:
        raise fail(ShapeError, "conv", f"{weight.shape[0]} kernels are not divisible by {groups} groups")
    return Spec((x.shape[0], weight.shape[0], *_sizes(x.shape, weight.shape, attributes)), x.dtype)


def _sizes(x: Shape, weight: Shape, attributes: Attributes) -> list[Size]:
    """Rows and columns of the result."""
    return [window_count(x[2 + d] + attributes["before"][d] + attributes["after"][d], weight[2 + d],
                         attributes["steps"][d], attributes["dilations"][d], "conv") for d in (0, 1)]


def _reference(attributes: Attributes, x: Any, weight: Any) -> Any:
    """Padded, seen as windows, and multiplied: the plain meaning."""
    windows = window_matrix(attributes, x, weight.shape)
    groups = attributes["groups"]
    kernels = weight.reshape(groups, weight.shape[0] // groups, windows.shape[3])
    with np.errstate(all="ignore"):
        found = np.matmul(kernels[None], np.swapaxes(windows, 2, 3))
    return found.reshape(x.shape[0], weight.shape[0], *_sizes(x.shape, weight.shape, attributes))


def window_matrix(attributes: Attributes, x: Any, weight: Sequence[int]) -> Any:
    """[image, group, pixel, channel * row * column of the kernel]: what a convolution multiplies by its weights."""
    groups = attributes["groups"]
    for axis in (2, 3):
        before, after = attributes["before"][axis - 2], attributes["after"][axis - 2]
        widths = [(max(before, 0), max(after, 0)) if d == axis else (0, 0) for d in range(4)]
        x = np.pad(x, widths)
        x = np.take(x, np.arange(max(-before, 0), x.shape[axis] - max(-after, 0)), axis)
    lengths, steps, apart = tuple(weight[2:]), attributes["steps"], attributes["dilations"]
    counts: list[Any] = [window_count(x.shape[2 + d], lengths[d], steps[d], apart[d]) for d in (0, 1)]
    rows = (np.arange(counts[0]) * steps[0])[:, None] + np.arange(lengths[0]) * apart[0]
    columns = (np.arange(counts[1]) * steps[1])[:, None] + np.arange(lengths[1]) * apart[1]
    seen = x[:, :, rows[:, None, :, None], columns[None, :, None, :]]  # N, C, OH, OW, KH, KW
    count, channels = x.shape[:2]
    seen = seen.reshape(count, groups, channels // groups, *counts, *lengths).transpose(0, 1, 3, 4, 2, 5, 6)
    return seen.reshape(count, groups, counts[0] * counts[1], (channels // groups) * lengths[0] * lengths[1])


# -- gradients ---------------------------------------------------------------------------------------------------------
def transposed(x: Node, weight: Node, sizes: Pair, before: Pair, steps: tuple[int, int], dilations: Pair,
               groups: int) -> Node:
    """Transposed convolution: spread `x` by the kernels `weight`[C of x, O / groups, KH, KW] over images of `sizes`:
    the gradient of a convolution's input, and a transposed convolution. Zeros between the elements of x, then an
    ordinary one; or, where the zeros add nothing to a chain of sums, a convolution for each of the places between two
    elements."""
    channels, per_group = weight.shape[0], weight.shape[1]
    lengths = weight.shape[2:]
    kernels = _flipped(weight)
    kernels = reshape(kernels, (groups, channels // groups, per_group, *lengths))
    kernels = reshape(permute(kernels, (0, 2, 1, 3, 4)), (per_group * groups, channels // groups, *lengths))
    front = tuple((lengths[d] - 1) * dilations[d] - before[d] for d in (0, 1))
    known = (*x.shape[2:], *sizes, *front, *lengths, *dilations)
    if steps != (1, 1) and x.dtype.compute is x.dtype and all(isinstance(size, int) for size in known):
        return _by_phases(x, kernels, sizes, front, steps, dilations, groups)  # type: ignore[arg-type]
    behind = tuple(sizes[d] - 1 + before[d] - (x.shape[2 + d] - 1) * steps[d] for d in (0, 1))
    return build("conv", _dilated(x, steps), kernels, before=front, after=behind, steps=(1, 1), dilations=dilations,
                 groups=groups)


class Phase(NamedTuple):
    """Along one axis: every `step`-th element of the result, from `start` on, and the places of the kernel that do not
    fall between elements of x there: `taken` from `first` on, `every`-th each, that lie `apart` in x, the first of them
    `before` its first element."""

    start: int
    elements: int
    first: int
    taken: int
    every: int
    apart: int
    before: int


def _phases(size: int, length: int, front: int, step: int, dilation: int) -> list[Phase]:
    """Phases of an axis whose kernel touches x.

    >>> [tuple(phase) for phase in _phases(4, 3, 1, 2, 1)]
    [(0, 2, 1, 1, 2, 1, 0), (1, 2, 0, 2, 2, 1, 0)]
    """
    every = step // gcd(step, dilation)
    found = []
    for start in range(min(step, size)):
        taken = [place for place in range(length) if (start + place * dilation - front) % step == 0]
        if taken:
            found.append(Phase(start, (size - 1 - start) // step + 1, taken[0], len(taken), every,
                               every * dilation // step, (front - start - taken[0] * dilation) // step))
    return found


def _by_phases(x: Node, kernels: Node, sizes: tuple[int, int], front: tuple[int, int], steps: tuple[int, int],
               dilations: tuple[int, int], groups: int) -> Node:
    """A convolution for every phase of the result, and zeros where no place of a kernel touches x."""
    result = expand(constant(0, x.dtype), (x.shape[0], kernels.shape[0], *sizes))
    rows, columns = (_phases(sizes[d], kernels.shape[2 + d], front[d], steps[d], dilations[d])  # type: ignore[arg-type]
                     for d in (0, 1))
    for both in itertools.product(rows, columns):
        part = build("slice", kernels, starts=(0, 0, *(p.first for p in both)),
                     sizes=(*kernels.shape[:2], *(p.taken for p in both)), steps=(1, 1, *(p.every for p in both)))
        after = tuple(p.elements - 1 + (p.taken - 1) * p.apart - (x.shape[2 + d] - 1) - p.before
                      for d, p in enumerate(both))
        found = build("conv", x, part, before=tuple(p.before for p in both), after=after, steps=(1, 1),
                      dilations=tuple(p.apart for p in both), groups=groups)
        result = build("update", result, found, starts=(0, 0, *(p.start for p in both)), sizes=found.shape,
                       steps=(1, 1, *steps))
    return result


def _dilated(x: Node, steps: tuple[int, int]) -> Node:
    """`steps` - 1 zeros between neighbours along the last two axes."""
    if steps == (1, 1):
        return x
    shape = (*x.shape[:2], (x.shape[2] - 1) * steps[0] + 1, (x.shape[3] - 1) * steps[1] + 1)
    return build("update", expand(constant(0, x.dtype), shape), x, starts=(0,) * 4, sizes=x.shape, steps=(1, 1, *steps))


def _flipped(weight: Node) -> Node:
    if weight.shape[2:] == (1, 1) or product(weight.shape) == 0:
        return weight
    starts = (0, 0, weight.shape[2] - 1, weight.shape[3] - 1)
    return build("slice", weight, starts=starts, sizes=weight.shape, steps=(1, 1, -1, -1))


def _weight_gradient(node: Node, ct: Node) -> Node:
    """Channels take the place of images: the images convolved by the cotangents, steps and dilations exchanged."""
    x, weight = node.inputs
    groups = node["groups"]
    count, channels = x.shape[0], x.shape[1]
    images = permute(reshape(x, (count, groups, channels // groups, *x.shape[2:])), (2, 1, 0, 3, 4))
    images = reshape(images, (channels // groups, count * groups, *x.shape[2:]))
    after = tuple((weight.shape[2 + d] - 1) * node["dilations"][d] + (ct.shape[2 + d] - 1) * node["steps"][d] + 1
                  - x.shape[2 + d] - node["before"][d] for d in (0, 1))
    found = build("conv", images, permute(ct, (1, 0, 2, 3)), before=node["before"], after=after,
                  steps=node["dilations"], dilations=node["steps"], groups=groups)
    return permute(found, (1, 0, 2, 3))


def _vjp(node: Node, ct: Node) -> list[Node]:
    x, weight = node.inputs
    spread = transposed(ct, weight, x.shape[2:], node["before"],  # type: ignore[arg-type]
                        node["steps"], node["dilations"], node["groups"])
    return [spread, _weight_gradient(node, ct)]


def _batch(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    """Rows are more images where all have the same kernels, and more groups of channels where each has its own."""
    size, (x, weight) = rows.size, inputs
    if not batched[1]:
        flat = reshape(x, (size * x.shape[1], *x.shape[2:]))
        found = make(node.op, (flat, weight), node.attributes)
        return reshape(found, (size, x.shape[1], *found.shape[1:]))
    if not isinstance(size, int):
        raise fail(ShapeError, "vmap", f"a convolution by {size} sets of kernels, a number known only at the call",
                   "give mo.compile a fixed number of rows")
    kernels = reshape(weight, (size * weight.shape[1], *weight.shape[2:]))
    attributes = dict(node.attributes)
    if batched[0] or node["groups"] != 1:  # the channels of each row side by side
        x, _ = rows.all(inputs, batched)
        attributes["groups"] = node["groups"] * size
        x = reshape(permute(x, (1, 0, 2, 3, 4)), (x.shape[1], size * x.shape[2], *x.shape[3:]))
    found = make(node.op, (x, kernels), attributes)
    return permute(reshape(found, (found.shape[0], size, weight.shape[1], *found.shape[2:])), (1, 0, 2, 3, 4))


CONV = register(Op("conv", "contract", _infer, _vjp, _reference, 2,
                   "one FMA chain per output, k = (channel, row, column) ascending", arity=TWO, autocast="convolution",
                   batch=_batch))
