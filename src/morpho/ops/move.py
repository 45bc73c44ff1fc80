"""Movement: views that cost nothing (reshape, permute, expand, slice, window) and copies (concatenate, pad, update)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dims import Dim, Size, bounds, product, quotient_down
from morpho.base.errors import ArgumentError, AxisError, DTypeError, IndexFault, MorphoError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import ONE, TWO, Attributes, Op, Spec, register
from morpho.ops.algebra import add, constant, count, expand, mul, permute, reduce, reshape, zeros_like
from morpho.ops.batching import along_axes, along_axis, elementwise, padded, permuted, to_region, to_shape
from morpho.ops.order import remat_barrier

VIEW = frozenset({"view"})


def _infer_reshape(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    shape, dtype = inputs[0]
    new = attributes["shape"]
    if product(shape) != product(new):
        raise fail(ShapeError, "reshape", f"shape {shape} holds {product(shape)} elements, {new} holds {product(new)}")
    return Spec(new, dtype)


def _infer_permute(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    shape, dtype = inputs[0]
    axes = attributes["axes"]
    if sorted(axes) != list(range(len(shape))):
        raise fail(AxisError, "permute_dims", f"axes {axes} are not a permutation of {len(shape)} dimensions")
    return Spec(tuple(shape[axis] for axis in axes), dtype)


def _infer_expand(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    shape, dtype = inputs[0]
    new = attributes["shape"]
    if len(shape) != len(new) or any(old not in (1, size) for old, size in zip(shape, new, strict=True)):
        raise fail(ShapeError, "broadcast_to", f"shape {shape} does not broadcast to {new}")
    return Spec(new, dtype)


def _infer_slice(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    shape, dtype = inputs[0]
    starts, sizes, steps = attributes["starts"], attributes["sizes"], attributes["steps"]
    for axis, (start, size, step) in enumerate(zip(starts, sizes, steps, strict=True)):
        if size == 0:
            continue
        last = start + (size - 1) * step
        low, high = (start, last) if step > 0 else (last, start)  # in order if any is read; a dynamic size may be 0
        if bounds(size)[0] < 0 or bounds(low)[0] < 0 or bounds(shape[axis] - 1 - high)[0] < 0:
            raise _leaves_axis(f"positions {start}..{last}", axis, shape[axis])
    return Spec(sizes, dtype)


def _leaves_axis(positions: str, axis: int, size: Size) -> MorphoError:
    """The error of a slice; where the size is dynamic, it may do so for some sizes only."""
    if not isinstance(size, Dim):
        return fail(IndexFault, "slice", f"{positions} leave axis {axis} of size {size}")
    ranges = " and ".join(f"{name} is from {low} to {high}" for name, (low, high) in size.symbols.items())
    return fail(IndexFault, "slice", f"{positions} leave axis {axis} of size {size} for some sizes: {ranges}",
                "give mo.Dim a larger lower bound, if there are no smaller sizes")


def _numpy_slices(attributes: Attributes) -> tuple[Any, ...]:
    items = []
    for start, size, step in zip(attributes["starts"], attributes["sizes"], attributes["steps"], strict=True):
        stop = start + size * step
        items.append(slice(start, None if stop < 0 else stop, step) if size else slice(0, 0))
    return tuple(items)


def _expand_rule(node: Node, ct: Node) -> list[Node]:
    x = node.inputs[0]
    axes = tuple(i for i, (old, new) in enumerate(zip(x.shape, node.shape, strict=True)) if old == 1 and new != 1)
    if ct.op.name == "matmul" and axes and axes == tuple(range(len(ct.shape) - 2)):
        return [reshape(_product_of_all(ct), x.shape)]
    if ct.op.name == "multiply" and _is_by_windows(ct, axes):
        return [_sum_of_lines(ct, axes)]
    return [reduce("sum", ct, axes)]


LEAST_LINE = 512  # elements of a sum over windows that is worth products in memory


def _is_by_windows(product: Node, axes: tuple[int, ...]) -> bool:
    """Whether a long sum over places adds products of windows, whose own axes stay: the lanes of a sum go along all
    its axes, and places of windows lie apart in memory."""
    rank, length = len(product.shape), count(product, axes)
    if axes == tuple(range(rank - len(axes), rank)) or not isinstance(length, int) or length < LEAST_LINE:
        return False
    for node in product.inputs:
        while node.op.name in ("cast", "reshape", "expand"):
            node = node.inputs[0]
        if node.op.name == "window":
            return True
    return False


def _sum_of_lines(product: Node, axes: tuple[int, ...]) -> Node:
    """A sum of products, which are put into memory in the order in which they are added: the same bits."""
    rank = len(product.shape)
    order = (*(axis for axis in range(rank) if axis not in axes), *axes)
    lines = remat_barrier(mul(*(permute(node, order) for node in product.inputs)))
    total = reduce("sum", lines, tuple(range(rank - len(axes), rank)))
    return permute(total, tuple(order.index(axis) for axis in range(rank)))


def _product_of_all(product: Node) -> Node:
    """The sum of a batch of products, as one product with a longer sum: the gradient of a weight that a batch shares.
    (..., m, k) @ (..., k, n), summed -> (m, n)."""
    a, b = product.inputs
    rank = len(a.shape)
    wide = permute(a, (rank - 2, *range(rank - 2), rank - 1))  # (m, ..., k)
    return build("matmul", reshape(wide, (a.shape[-2], count(a, (*range(rank - 2), rank - 1)))),
                 reshape(b, (count(b, tuple(range(rank - 1))), b.shape[-1])))


def _permute_rule(node: Node, ct: Node) -> list[Node]:
    axes = node["axes"]
    if ct.op.name == "matmul" and axes == (*range(len(axes) - 2), len(axes) - 1, len(axes) - 2):
        a, b = ct.inputs  # a product is made the way round it is wanted: the transpose of AB is B'A'
        return [build("matmul", permute(b, axes), permute(a, axes))]
    return [permute(ct, tuple(axes.index(i) for i in range(len(axes))))]


def _slice_rule(node: Node, ct: Node) -> list[Node]:
    x = node.inputs[0]
    return [build("update", zeros_like(x), ct, starts=node["starts"], sizes=node["sizes"], steps=node["steps"])]


RESHAPE = register(Op("reshape", "move", _infer_reshape, lambda n, ct: [reshape(ct, n.inputs[0].shape)],
                      lambda a, x: np.reshape(x, a["shape"]), 0, properties=VIEW, arity=ONE, batch=to_shape))
PERMUTE = register(Op("permute", "move", _infer_permute, _permute_rule,
                      lambda a, x: np.transpose(x, a["axes"]), 0, properties=VIEW, arity=ONE, batch=permuted))
EXPAND = register(Op("expand", "move", _infer_expand, _expand_rule,
                     lambda a, x: np.broadcast_to(x, a["shape"]), 0, properties=VIEW, arity=ONE, batch=to_shape))
SLICE = register(Op("slice", "move", _infer_slice, _slice_rule, lambda a, x: x[_numpy_slices(a)], 0,
                    properties=VIEW, arity=ONE, batch=to_region))


# -- windows ---------------------------------------------------------------------------------------------------------
def window_count(size: Size, length: Size, step: int, dilation: Size, operation: str = "window") -> Size:
    """How many windows of `length` elements, `dilation` apart, fit an axis when one starts at every `step`-th."""
    span = (length - 1) * dilation + 1
    if bounds(size - span)[0] < 0:
        raise fail(ShapeError, operation, f"a window that spans {span} elements is larger than an axis of size {size}",
                   "pad it first")
    count = quotient_down(size - span, step)
    if count is None:
        raise fail(ShapeError, operation, f"how many windows of step {step} an axis of size {size} has is no "
                                          "polynomial of the dynamic sizes",
                   f"declare the axis as a multiple: n = mo.Dim('n', 1, 512), and {step} * n for it")
    return count + 1


def _infer_window(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    shape, dtype = inputs[0]
    new = list(shape)
    windows = (attributes["axes"], attributes["sizes"], attributes["steps"], attributes["dilations"])
    for axis, length, step, dilation in zip(*windows, strict=True):
        if min(length, step, dilation) < 1:
            raise fail(ArgumentError, "window", f"size {length}, step {step} and dilation {dilation} are not positive")
        new[axis] = window_count(shape[axis], length, step, dilation)
    return Spec((*new, *attributes["sizes"]), dtype)


def _reference_window(attributes: Attributes, x: Any) -> Any:
    shape: Any = _infer_window([Spec(x.shape, x.dtype)], attributes).shape
    steps = dict(zip(attributes["axes"], attributes["steps"], strict=True))
    strides = [stride * steps.get(axis, 1) for axis, stride in enumerate(x.strides)]
    strides += [x.strides[a] * d for a, d in zip(attributes["axes"], attributes["dilations"], strict=True)]
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def _window_rule(node: Node, ct: Node) -> list[Node]:
    """Overlap-add, one axis after the other: the windows of several axes are windows of windows."""
    shape = node.inputs[0].shape
    if (whole := _as_convolution(node, ct)) is not None:
        return [whole]
    windows = zip(node["axes"], node["sizes"], node["steps"], node["dilations"], strict=True)
    for axis, length, step, dilation in reversed(list(windows)):
        ct = _overlap_add(ct, axis, length, step, dilation, shape[axis])
    return [ct]


def _as_convolution(node: Node, ct: Node) -> Node | None:
    """The gradient of windows whose cotangent is a product of one factor by window and another by the place in it, or
    the first alone: windows of the first factor, apart by the steps and with a border of zeros, times the second one
    turned round. Nothing of the size of all windows is in memory. None where the cotangent has another form."""
    shape, axes = node.inputs[0].shape, node["axes"]
    rank = len(shape)
    inner = tuple(range(rank, rank + len(axes)))
    touching = all(step == length and apart == 1
                   for length, step, apart in zip(node["sizes"], node["steps"], node["dilations"], strict=True))
    if touching or not all(isinstance(shape[axis], int) for axis in axes):
        return None
    source = ct
    while source.op.name in ("cast", "reshape"):
        if source.op.name == "reshape" and not _same_but_units(source.inputs[0].shape, source.shape):
            return None
        source = source.inputs[0]
    if not source.dtype.is_float:
        return None
    factors = [_few(part, node.shape) for part in (source.inputs if source.op.name == "multiply" else (source,))]
    if any(part is None for part in factors):
        return None
    by_window = [part for part in factors if part is not None and all(part.shape[axis] == 1 for axis in inner)]
    by_place = [part for part in factors if part is not None and all(part.shape[axis] == 1 for axis in axes)]
    if not by_window or (len(factors) == 2 and (len(by_place) != 1 or by_place[0] is by_window[0])):
        return None
    counts = node.shape[:rank]
    first = expand(reshape(by_window[0], by_window[0].shape[:rank]), counts)
    spans = [(length - 1) * apart for length, apart in zip(node["sizes"], node["dilations"], strict=True)]
    border = {axis: span for axis, span in zip(axes, spans, strict=True)}
    steps = tuple(node["steps"][axes.index(d)] if d in border else 1 for d in range(rank))
    wide = tuple(size + border.get(d, 0) for d, size in enumerate(shape))
    starts = tuple(border.get(d, 0) for d in range(rank))
    placed = build("update", expand(constant(0, source.dtype), wide), first, starts=starts, sizes=counts, steps=steps)
    ones = (1,) * len(axes)
    seen = build("window", placed, axes=axes, sizes=node["sizes"], steps=ones, dilations=node["dilations"])
    if by_place and len(factors) == 2:
        second = by_place[0]
        ends = tuple(size - 1 if d in inner else 0 for d, size in enumerate(second.shape))
        turned = build("slice", second, starts=ends,
                       sizes=second.shape, steps=tuple(-1 if d in inner else 1 for d in range(len(second.shape))))
        seen = mul(seen, expand(turned, seen.shape))
    total = reshape(reduce("sum", seen, inner), shape)
    return total if total.dtype is ct.dtype else build("cast", total, dtype=ct.dtype)


def _same_but_units(shape: tuple[Size, ...], other: tuple[Size, ...]) -> bool:
    return [size for size in shape if size != 1] == [size for size in other if size != 1]


def _few(node: Node, shape: tuple[Size, ...]) -> Node | None:
    """The source of an expanded value, with the axes of `shape`, which are its own but for some of size 1."""
    if node.op.name != "expand":
        return None
    sizes, few = list(node.shape), list(node.inputs[0].shape)
    for axis, size in enumerate(shape):
        while axis < len(sizes) and sizes[axis] != size and sizes[axis] == 1:
            del sizes[axis], few[axis]
    while len(sizes) > len(shape) and sizes[-1] == 1:
        del sizes[-1], few[-1]
    return reshape(node.inputs[0], tuple(few)) if tuple(sizes) == tuple(shape) else None


def _overlap_add(ct: Node, axis: int, length: int, step: int, dilation: int, size: Size) -> Node:
    """The last axis of `ct` added back to where its windows lay along `axis`, which then has `size` elements."""
    rank = len(ct.shape) - 1
    count = ct.shape[axis]
    shape = tuple(size if d == axis else s for d, s in enumerate(ct.shape[:-1]))
    if dilation == 1 and step == length:  # windows side by side: nothing overlaps
        turned = permute(ct, (*range(axis + 1), rank, *range(axis + 1, rank)))
        flat = reshape(turned, tuple(count * length if d == axis else s for d, s in enumerate(ct.shape[:-1])))
        after = tuple(size - count * length if d == axis else 0 for d in range(rank))
        return flat if not any(after) else build("pad", flat, before=(0,) * rank, after=after, value=0.0)
    steps = tuple(step if d == axis else 1 for d in range(rank))
    total: Node | None = None
    for position in range(length):
        starts = tuple(position if d == rank else 0 for d in range(rank + 1))
        part = build("slice", ct, starts=starts, sizes=(*ct.shape[:-1], 1), steps=(1,) * (rank + 1))
        at = tuple(position * dilation if d == axis else 0 for d in range(rank))
        placed = build("update", expand(constant(0, ct.dtype), shape), reshape(part, ct.shape[:-1]), starts=at,
                       sizes=ct.shape[:-1], steps=steps)
        total = placed if total is None else add(total, placed)
    assert total is not None
    return total


WINDOW = register(Op("window", "move", _infer_window, _window_rule, _reference_window, 0, properties=VIEW, arity=ONE,
                     batch=along_axes))


# -- copies ----------------------------------------------------------------------------------------------------------
def _infer_concatenate(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    axis = attributes["axis"]
    first = inputs[0]
    total: Any = 0
    for spec in inputs:
        if spec.dtype is not first.dtype:
            raise fail(DTypeError, "concat", f"dtypes {first.dtype} and {spec.dtype} differ", "promote them first")
        rest = [size for i, size in enumerate(spec.shape) if i != axis]
        if len(spec.shape) != len(first.shape) or rest != [s for i, s in enumerate(first.shape) if i != axis]:
            raise fail(ShapeError, "concat", f"shapes {first.shape} and {spec.shape} differ outside axis {axis}")
        total = total + spec.shape[axis]
    return Spec((*first.shape[:axis], total, *first.shape[axis + 1:]), first.dtype)


def _concatenate_rule(node: Node, ct: Node) -> list[Node]:
    axis, position, pieces = node["axis"], 0, []
    rank = len(node.shape)
    for child in node.inputs:
        starts = tuple(position if i == axis else 0 for i in range(rank))
        pieces.append(build("slice", ct, starts=starts, sizes=child.shape, steps=(1,) * rank))
        position = position + child.shape[axis]
    return pieces


def _infer_pad(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    shape, dtype = inputs[0]
    if any(isinstance(width, int) and width < 0 for width in (*attributes["before"], *attributes["after"])):
        raise fail(ArgumentError, "pad", f"widths {attributes['before']} and {attributes['after']} are negative")
    sizes = zip(attributes["before"], shape, attributes["after"], strict=True)
    return Spec(tuple(before + size + after for before, size, after in sizes), dtype)


def _pad_rule(node: Node, ct: Node) -> list[Node]:
    x = node.inputs[0]
    return [build("slice", ct, starts=node["before"], sizes=x.shape, steps=(1,) * len(x.shape))]


def _infer_update(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    base, value = inputs
    inner = _infer_slice([base], attributes)
    if inner.shape != value.shape or base.dtype is not value.dtype:
        raise fail(ShapeError, "update", f"a region {inner.dtype}{inner.shape} is given {value.dtype}{value.shape}")
    return base


def _reference_update(attributes: Attributes, base: Any, value: Any) -> Any:
    result = np.array(base)
    result[_numpy_slices(attributes)] = value
    return result


def _update_rule(node: Node, ct: Node) -> list[Node]:
    region = {name: node[name] for name in ("starts", "sizes", "steps")}
    return [build("update", ct, zeros_like(node.inputs[1]), **region), build("slice", ct, **region)]


def _reference_pad(attributes: Attributes, x: Any) -> Any:
    widths = list(zip(attributes["before"], attributes["after"], strict=True))
    return np.pad(x, widths, constant_values=attributes["value"])


CONCATENATE = register(Op("concatenate", "move", _infer_concatenate, _concatenate_rule,
                          lambda a, *x: np.concatenate(x, axis=a["axis"]), 0, arity=(1, math.inf), batch=along_axis))
PAD = register(Op("pad", "move", _infer_pad, _pad_rule, _reference_pad, 0, arity=ONE, batch=padded))
UPDATE = register(Op("update", "move", _infer_update, _update_rule, _reference_update, 0, arity=TWO, batch=to_region))
COPY = register(Op("copy", "move", lambda inputs, a: inputs[0], lambda n, ct: [ct], lambda a, x: np.array(x), 0,
                   arity=ONE, batch=elementwise))
