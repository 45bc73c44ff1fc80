"""Shapes: views that move no byte (reshape, transpose, slices, broadcasting) and the few functions that copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.base.dims import Size
from morpho.base.errors import ArgumentError, AxisError, ShapeError, fail
from morpho.base.shapes import as_shape, broadcast, normalise_axes, normalise_axis, resolve_reshape
from morpho.ir.node import Node, build
from morpho.ops import algebra
from morpho.ops.scan import flip as flip_node
from morpho.tensor.core import Tensor
from morpho.tensor.operands import as_node, promoted


def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    """The same elements in another shape, one size of which may be -1. A view where strides allow, else one counted
    copy; `copy=True` always copies."""
    node = as_node(x, "reshape")
    result = algebra.reshape(node, resolve_reshape(node.shape, as_shape(shape, "reshape")))
    return Tensor.of_node(build("copy", result) if copy else result)


def permute_dims(x: Any, /, axes: Sequence[int]) -> Tensor:
    """The axes in another order."""
    node = as_node(x, "permute_dims")
    numbers = tuple(normalise_axis(axis, len(node.shape), "permute_dims") for axis in axes)
    if sorted(numbers) != list(range(len(node.shape))):
        raise fail(AxisError, "permute_dims", f"axes {tuple(axes)} are not a permutation of {len(node.shape)} dimensions")
    return Tensor.of_node(algebra.permute(node, numbers))


def matrix_transpose(x: Any, /) -> Tensor:
    """The last two axes exchanged."""
    node = as_node(x, "matrix_transpose")
    rank = len(node.shape)
    if rank < 2:
        raise fail(ShapeError, "matrix_transpose", f"shape {node.shape} is not a matrix")
    return permute_dims(x, (*range(rank - 2), rank - 1, rank - 2))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to new positions, the others keeping their order."""
    rank = len(as_node(x, "moveaxis").shape)
    sources = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    if len(sources) != len(targets):
        raise fail(AxisError, "moveaxis", f"{len(sources)} axes cannot move to {len(targets)} places")
    moved = {normalise_axis(t, rank, "moveaxis"): normalise_axis(s, rank, "moveaxis")
             for s, t in zip(sources, targets, strict=True)}
    if len(moved) != len(sources) or len(set(moved.values())) != len(sources):
        raise fail(AxisError, "moveaxis", "an axis is named twice")
    rest = iter([axis for axis in range(rank) if axis not in moved.values()])
    return permute_dims(x, [moved[i] if i in moved else next(rest) for i in range(rank)])


def broadcast_to(x: Any, /, shape: Any) -> Tensor:
    """x repeated along new or size-1 axes, without a copy."""
    node, sizes = as_node(x, "broadcast_to"), as_shape(shape, "broadcast_to")
    if broadcast("broadcast_to", node.shape, sizes) != sizes:
        raise fail(ShapeError, "broadcast_to", f"shape {node.shape} does not broadcast to {sizes}")
    return Tensor.of_node(algebra.expand(node, sizes))


def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """All of them broadcast to their common shape."""
    shape = broadcast("broadcast_arrays", *[as_node(a, "broadcast_arrays").shape for a in arrays])
    return [broadcast_to(a, shape) for a in arrays]


def expand_dims(x: Any, /, *, axis: Any = 0) -> Tensor:
    """New axes of size 1."""
    node = as_node(x, "expand_dims")
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    numbers = normalise_axes(tuple(axes), len(node.shape) + len(axes), "expand_dims")
    left = iter(node.shape)
    rank = len(node.shape) + len(numbers)
    return Tensor.of_node(algebra.reshape(node, tuple(1 if i in numbers else next(left) for i in range(rank))))


def squeeze(x: Any, /, axis: Any) -> Tensor:
    """Axes of size 1 taken away."""
    node = as_node(x, "squeeze")
    numbers = normalise_axes(axis, len(node.shape), "squeeze")
    for number in numbers:
        if node.shape[number] != 1:
            raise fail(ShapeError, "squeeze", f"axis {number} has size {node.shape[number]}, not 1")
    return Tensor.of_node(algebra.reshape(node, tuple(s for i, s in enumerate(node.shape) if i not in numbers)))


def flip(x: Any, /, *, axis: Any = None) -> Tensor:
    """Axes read backwards."""
    node = as_node(x, "flip")
    for number in normalise_axes(axis, len(node.shape), "flip"):
        node = flip_node(node, number)
    return Tensor.of_node(node)


def slice_node(node: Node, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[int]) -> Node:
    """A region with a step per axis; the whole is the node itself."""
    if all(s == 0 for s in starts) and tuple(sizes) == node.shape and all(s == 1 for s in steps):
        return node
    return build("slice", node, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


# -- copies ----------------------------------------------------------------------------------------------------------
def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along an axis; `axis=None` flattens them first."""
    if not arrays:
        raise fail(ArgumentError, "concat", "there is nothing to join")
    nodes = promoted("concat", *arrays)
    if axis is None:
        nodes, axis = [algebra.reshape(n, resolve_reshape(n.shape, (-1,))) for n in nodes], 0
    number = normalise_axis(axis, len(nodes[0].shape), "concat")
    return Tensor.of_node(nodes[0] if len(nodes) == 1 else build("concatenate", *nodes, axis=number))


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis."""
    if not arrays:
        raise fail(ArgumentError, "stack", "there is nothing to join")
    shapes = {as_node(a, "stack").shape for a in arrays}
    if len(shapes) != 1:
        raise fail(ShapeError, "stack", f"shapes {' and '.join(str(s) for s in sorted(shapes))} differ")
    number = normalise_axis(axis, len(as_node(arrays[0], "stack").shape) + 1, "stack")
    return concat([expand_dims(a, axis=number) for a in arrays], axis=number)


def pad(x: Any, /, widths: Any, *, value: Any = 0) -> Tensor:
    """x with a border of one value: `widths` is one number, or a (before, after) pair per axis."""
    node = as_node(x, "pad")
    pairs = [(widths, widths)] * len(node.shape) if isinstance(widths, int) else [tuple(w) for w in widths]
    if len(pairs) != len(node.shape) or any(len(p) != 2 or min(p) < 0 for p in pairs):
        raise fail(ArgumentError, "pad", f"widths {widths} do not fit {len(node.shape)} dimensions")
    if all(p == (0, 0) for p in pairs):
        return Tensor.of_node(node)
    before, after = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    kinds: dict[str, Any] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
    return Tensor.of_node(build("pad", node, before=before, after=after, value=kinds[node.dtype.kind](value)))
