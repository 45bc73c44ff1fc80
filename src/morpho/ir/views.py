"""View algebra: what views look at, and how it lies in memory as they show it.

A view moves no byte: it has a root, the value that is computed or held, and a chain of nodes between. `pick`, one
output of several, is a value of its own for most questions; `remat_barrier` shows its first input and waits for the
others; `part` shows one of the two numbers that a complex one is, and strides behind it count such numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morpho.base.dims import Shape, Size, half_of
from morpho.base.shapes import contiguous_strides, reshape_strides
from morpho.ir.node import Node

Strides = tuple[Size, ...]
Mapping = tuple[int | None, ...]  # for each dimension of a value, the axis of a space it runs along
MOVES = frozenset({"reshape", "permute", "slice", "expand", "window"})
CHANNELS_LAST = (0, 2, 3, 1)  # the axes of images [image, channel, row, column] with their channels last
_STRIDED = MOVES | {"remat_barrier", "part", "as_real"}
_SPREADS = frozenset({"expand", "reshape"})  # every element of the result is one of the input


# -- which nodes are looked through ----------------------------------------------------------------------------------
def is_view(node: Node) -> bool:
    """Whether a node has the memory of its first input, `pick` included."""
    return "view" in node.op.properties


def is_channels_last(node: Node) -> bool:
    """Whether a node shows images with their channels last."""
    return node.op.name == "permute" and node["axes"] == CHANNELS_LAST


def shows(node: Node) -> bool:
    """Whether a node shows its first input, whole or in part: a view that is no `pick`."""
    return "view" in node.op.properties and node.op.name != "pick"


def is_strided(node: Node) -> bool:
    """Whether strides say what a node shows of its input."""
    return node.op.name in _STRIDED


def look_through(node: Node, seen: Callable[[Node], bool] = shows) -> tuple[Node, list[Node]]:
    """The first node below that is not `seen` through, and those on the way, outermost first.

    >>> x = build("parameter", index=0, shape=(2, 3), dtype=float32)
    >>> root, chain = look_through(build("reshape", build("permute", x, axes=(1, 0)), shape=(6,)))
    >>> root is x, [view.op.name for view in chain]
    (True, ['reshape', 'permute'])
    """
    chain: list[Node] = []
    while seen(node):
        chain.append(node)
        node = node.inputs[0]
    return node, chain


def root_of(node: Node) -> Node:
    """Value below a chain of views; one output of several is a value of its own."""
    while "view" in node.op.properties and node.op.name != "pick":
        node = node.inputs[0]
    return node


def maker_of(node: Node) -> Node:
    """The node that computes or holds the memory a value lies in: as `root_of`, through `pick` too."""
    while "view" in node.op.properties:
        node = node.inputs[0]
    return node


def literal(node: Node) -> Any:
    """The number that all elements are by the program's text, or None."""
    while node.op.name in _SPREADS:
        node = node.inputs[0]
    return node["value"] if node.op.name == "constant" else None


# -- how it lies -----------------------------------------------------------------------------------------------------
def strides_of(node: Node) -> Strides | None:
    """Strides of a chain of views over a value that is computed contiguous, or that a leaf holds; None when a reshape
    among them needs a copy."""
    node, chain = look_through(node, is_strided)
    held = node.payload.strides if node.op.name == "data" else node.attributes.get("strides")
    strides = contiguous_strides(node.shape) if held is None else held
    for step in reversed(chain):
        found = view_strides(step, step.inputs[0].shape, strides)
        if found is None:
            return None
        strides = found
    return strides


def view_strides(view: Node, shape: Shape, strides: Strides) -> Strides | None:
    """Strides of a view from those of what it looks at; None when a reshape needs a copy."""
    if view.op.name == "remat_barrier":
        return strides
    if view.op.name == "reshape":
        return reshape_strides(shape, strides, view.shape)
    if view.op.name == "permute":
        return tuple(strides[axis] for axis in view["axes"])
    if view.op.name == "part":
        return tuple(2 * stride for stride in strides)
    if view.op.name == "as_real":
        return (*(2 * stride for stride in strides), 1)
    if view.op.name == "as_complex":  # pairs that lie side by side
        halves = [half_of(stride) for stride in strides[:-1]]
        return None if strides[-1] != 1 or None in halves else tuple(half for half in halves if half is not None)
    if view.op.name == "expand":
        return tuple(0 if old == 1 and new != 1 else s
                     for old, new, s in zip(shape, view.shape, strides, strict=True))
    if view.op.name == "window":
        steps = dict(zip(view["axes"], view["steps"], strict=True))
        inner = tuple(strides[axis] * apart for axis, apart in zip(view["axes"], view["dilations"], strict=True))
        return (*(s * steps.get(axis, 1) for axis, s in enumerate(strides)), *inner)
    return tuple(s * step for s, step in zip(strides, view["steps"], strict=True))


def reshaped(mapping: Mapping, old: Shape, new: Shape) -> Mapping | None:
    """The axes of a row value after its size-1 dimensions moved; None when the reshape does more than that."""
    axes = [(size, axis) for size, axis in zip(old, mapping, strict=True) if size != 1]
    if [size for size, _ in axes] != [size for size in new if size != 1]:
        return None
    left = iter(axes)
    return tuple(None if size == 1 else next(left)[1] for size in new)
