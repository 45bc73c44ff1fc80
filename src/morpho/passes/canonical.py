"""One form for equal programs: commutative operands in one order, fused ops in plain ones, views at the leaves."""

from __future__ import annotations

import hashlib

from morpho.base.shapes import contiguous_strides, reshape_strides
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, in_place_of, rebuild
from morpho.ir.op import NoGradient
from morpho.ops.algebra import expand, reshape

_MOVES = frozenset({"reshape", "permute", "slice", "expand", "window"})
_SEEN = _MOVES | {"again"}  # what strides see through


def cse(graph: Graph) -> Graph:
    """Interning makes equal nodes one; this puts a+b and b+a in one order too. a-b and b-a stay apart."""

    done: dict[int, Node] = {}
    keys: dict[int, tuple[bool, bytes]] = {}  # constants last, then by structure: the same order in every process
    for node in graph.nodes:
        inputs = [done[child.serial] for child in node.inputs]
        if "commutative" in node.op.properties and not node.inputs[0].dtype.is_complex:  # complex products round apart
            inputs.sort(key=lambda child: keys[child.serial])
        new = done[node.serial] = rebuild(node, inputs)
        if new.serial not in keys:
            text = f"{new.op.name}{sorted(new.attributes.items())!r}{[keys[child.serial][1] for child in new.inputs]!r}"
            keys[new.serial] = _is_constant(new), hashlib.blake2b(text.encode(), digest_size=12).digest()
    return Graph(tuple(done[node.serial] for node in graph.outputs))


def _is_constant(node: Node) -> bool:
    while node.op.name in _MOVES:
        node = node.inputs[0]
    return node.op.name == "constant"


def inline_user(graph: Graph) -> Graph:
    """Ops with a composition that are not rows of one kernel become it at every level."""

    def expand_op(node: Node) -> Node:
        if node.op.composition is None or (node.op.kind == "fused" and "axes" in node.attributes):
            return node
        made: Node = in_place_of(node, node.op.composition)
        return made

    return graph.map(expand_op)


def inline(graph: Graph) -> Graph:
    """Fused ops become their compositions, which the fuser may join with their surroundings. Casts inside the
    composition keep the rounding points, so the bits do not depend on the grouping."""

    def expand_fused(node: Node) -> Node:
        return in_place_of(node, node.op.composition) if node.op.composition is not None else node

    return graph.map(expand_fused)


def inline_without_gradient(graph: Graph) -> Graph:
    """Ops that have no gradient of their own but a composition become it, and so get that of its parts."""

    def expand_op(node: Node) -> Node:
        if node.op.composition is None or not isinstance(node.op.vjp, NoGradient) or "stops" in node.op.properties:
            return node
        made: Node = in_place_of(node, node.op.composition)
        return made

    return graph.map(expand_op)


# -- views -----------------------------------------------------------------------------------------------------------
def _moved(view: Node, node: Node) -> Node | None:
    """The same view of another node of the same shape, or of a scalar's expansion."""
    if node.op.name == "expand" and node.inputs[0].shape == (1,) * len(node.shape):
        return expand(reshape(node.inputs[0], ()), view.shape)
    if node.shape == view.inputs[0].shape:
        return rebuild(view, (node,)) if view.inputs[0] is not node else view
    return None


def _is_free(node: Node) -> bool:
    """Whether a view of this node costs nothing: leaves, and views of leaves."""
    while node.op.name in _SEEN:
        node = node.inputs[0]
    return node.op.kind == "source"


def _keeps_strides(view: Node, node: Node) -> bool:
    """Whether the view stays a view on this operand: a reshape may not be one after a permute or an expand."""
    if view.op.name != "reshape" or node.op.kind == "source":
        return True
    strides = strides_of(node)
    return strides is not None and reshape_strides(view.inputs[0].shape, strides, view.shape) is not None


def strides_of(node: Node) -> tuple | None:  # type: ignore[type-arg]
    """Strides of a chain of views over a value that is computed contiguous, or that a leaf holds; None when a reshape
    among them needs a copy."""
    chain = []
    while node.op.name in _SEEN:
        chain.append(node)
        node = node.inputs[0]
    held = node.payload.strides if node.op.name == "data" else node.attributes.get("strides")
    strides = contiguous_strides(node.shape) if held is None else held
    for step in reversed(chain):
        found = view_strides(step, step.inputs[0].shape, strides)
        if found is None:
            return None
        strides = found
    return strides


def view_strides(view: Node, shape: tuple, strides: tuple) -> tuple | None:  # type: ignore[type-arg]
    """Strides of a view from those of what it looks at; None when a reshape needs a copy."""
    if view.op.name == "again":
        return strides
    if view.op.name == "reshape":
        return reshape_strides(shape, strides, view.shape)
    if view.op.name == "permute":
        return tuple(strides[axis] for axis in view["axes"])
    if view.op.name == "expand":
        return tuple(0 if old == 1 and new != 1 else s
                     for old, new, s in zip(shape, view.shape, strides, strict=True))
    if view.op.name == "window":
        steps = dict(zip(view["axes"], view["steps"], strict=True))
        inner = tuple(strides[axis] * apart for axis, apart in zip(view["axes"], view["dilations"], strict=True))
        return (*(s * steps.get(axis, 1) for axis, s in enumerate(strides)), *inner)
    return tuple(s * step for s, step in zip(strides, view["steps"], strict=True))


def sink_views(graph: Graph) -> Graph:
    """view(f(a, b)) becomes f(view(a), view(b)) when nothing else needs f(a, b), so the chain stays one kernel."""
    users = graph.users
    outputs = {node.serial for node in graph.outputs}
    done: dict[int, Node] = {}
    single = {node.serial for node in graph.nodes if len(users[node.serial]) == 1 and node.serial not in outputs}
    movable: dict[int, bool] = {}  # new serial -> the value has one user, so moving it duplicates nothing
    for node in graph.nodes:
        new = rebuild(node, [done[child.serial] for child in node.inputs])
        if node.op.name in _MOVES and movable.get(new.inputs[0].serial):
            new = _sink(new)
        done[node.serial] = new
        movable[new.serial] = node.serial in single
    return Graph(tuple(done[node.serial] for node in graph.outputs))


def _sink(view: Node) -> Node:
    inner = view.inputs[0]
    if inner.op.kind != "elementwise" or view.op.name in ("expand", "window"):
        return view  # these see a value several times: it is better computed once
    if not all(_is_free(child) and _keeps_strides(view, child) for child in inner.inputs):
        return view  # an operand that must be computed first is better left where it lies
    moved = [_moved(view, child) for child in inner.inputs]
    if any(child is None for child in moved):
        return view
    return build(inner.op.name, *[m for m in moved if m is not None], **inner.attributes)
