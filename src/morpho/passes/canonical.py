"""Canonicalisation: commutative operands in one order, composite ops inlined, views pushed to the leaves."""

from __future__ import annotations

import hashlib

from morpho.base.dtypes import float32, float64
from morpho.base.shapes import reshape_strides
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, in_place_of, rebuild
from morpho.ir.op import NoGradient
from morpho.ir.views import MOVES, is_channels_last, is_strided, look_through, strides_of
from morpho.ops.algebra import expand, reshape


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
    return look_through(node, lambda view: view.op.name in MOVES)[0].op.name == "constant"


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
    return look_through(node, is_strided)[0].op.kind == "source"


def _keeps_strides(view: Node, node: Node) -> bool:
    """Whether the view stays a view on this operand: a reshape may not be one after a permute or an expand."""
    if view.op.name != "reshape" or node.op.kind == "source":
        return True
    strides = strides_of(node)
    return strides is not None and reshape_strides(view.inputs[0].shape, strides, view.shape) is not None


def sink_views(graph: Graph) -> Graph:
    """view(f(a, b)) becomes f(view(a), view(b)) when nothing else needs f(a, b), so the chain stays one kernel."""
    users = graph.users
    outputs = {node.serial for node in graph.outputs}
    done: dict[int, Node] = {}
    single = {node.serial for node in graph.nodes if len(users[node.serial]) == 1 and node.serial not in outputs}
    movable: dict[int, bool] = {}  # new serial -> the value has one user, so moving it duplicates nothing
    for node in graph.nodes:
        new = rebuild(node, [done[child.serial] for child in node.inputs])
        if node.op.name in MOVES and movable.get(new.inputs[0].serial):
            new = _sink(new, movable)
        done[node.serial] = new
        movable[new.serial] = node.serial in single
    return Graph(tuple(done[node.serial] for node in graph.outputs))


def _sink(view: Node, movable: dict[int, bool]) -> Node:
    inner = view.inputs[0]
    if inner.op.kind != "elementwise" or view.op.name in ("expand", "window"):
        return view  # these see a value several times: it is better computed once
    convolved = [is_channels_last(view) and _is_convolved(child, movable) for child in inner.inputs]
    if not all(found or (_is_free(child) and _keeps_strides(view, child))
               for found, child in zip(convolved, inner.inputs, strict=True)):
        return view  # an operand that must be computed first is better left where it lies
    moved = [_moved(view, child) for child in inner.inputs]
    if any(child is None for child in moved):
        return view
    sunk = [_sink(node, movable) if found else node for found, node in zip(convolved, moved, strict=True) if node]
    return build(inner.op.name, *sunk, **inner.attributes)


def _is_convolved(node: Node, movable: dict[int, bool]) -> bool:
    """Whether a value that nothing else needs is a convolution and what is done to its elements: a convolution can
    write its channels last."""
    if not movable.get(node.serial) or node.dtype not in (float32, float64):
        return False
    if node.op.name == "conv":
        return True
    return node.op.kind == "elementwise" and any(_is_convolved(child, movable) for child in node.inputs) and all(
        _is_free(child) or _is_convolved(child, movable) for child in node.inputs)
