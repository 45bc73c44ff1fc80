"""Casts between half floats and float32, moved to where fewer bytes are moved by views and copies around them.

Every rewrite keeps all values: a half float becomes a float32 exactly, and what is only looked at may be rounded before
or after. Widened late: view(float32(y)) is float32(view(y)), and so is a concatenation. Narrowed early: where a float32
value is only looked at by views that are then rounded, it is rounded first. float32(y) rounded again is y.
"""

from __future__ import annotations

from morpho.base.dtypes import bfloat16, float16, float32
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, rebuild

MOVES = frozenset({"reshape", "permute", "slice"})
HALVES = (bfloat16, float16)


def moved_casts(graph: Graph) -> Graph:
    """The graph with its casts where they cost least."""
    early = _narrowed(graph)
    done: dict[int, Node] = {}
    for node in graph.nodes:
        new = rebuild(node, [done[child.serial] for child in node.inputs])
        done[node.serial] = _better(new, early.get(node.serial), done)
    return Graph(tuple(done[node.serial] for node in graph.outputs))


def _better(new: Node, base: tuple[Node, list[Node]] | None, done: dict[int, Node]) -> Node:
    """A node whose inputs are final, in its better place."""
    if base is not None:  # a rounded view of a value that is only looked at
        value, chain = base
        found = _rounded(done[value.serial], new)
        for view in chain:
            found = rebuild(view, [found])
        return found
    if new.op.name in MOVES and _widens(new.inputs[0]):
        (inner,) = new.inputs
        return build("cast", rebuild(new, [inner.inputs[0]]), **inner.attributes)
    if new.op.name == "concatenate" and all(map(_widens, new.inputs)):
        low = [child.inputs[0] for child in new.inputs]
        if len({child.dtype for child in low}) == 1:
            return build("cast", rebuild(new, low), **new.inputs[0].attributes)
    if new.op.name == "cast" and new.dtype in HALVES and _widens(new.inputs[0]):
        inner = new.inputs[0].inputs[0]
        return inner if inner.dtype is new.dtype else new
    return new


def _rounded(value: Node, cast: Node) -> Node:
    """A value by the cast of another one; what was widened from that dtype is what it was."""
    if _widens(value) and value.inputs[0].dtype is cast.dtype:
        return value.inputs[0]
    return build("cast", value, **cast.attributes)


def _widens(node: Node) -> bool:
    return node.op.name == "cast" and node.dtype is float32 and node.inputs[0].dtype in HALVES


def _narrowed(graph: Graph) -> dict[int, tuple[Node, list[Node]]]:
    """Casts of views, by serial: the value that all views on the way look at, and those views, innermost first.
    Everybody who looks at that value rounds it to the same dtype."""
    users, outputs = graph.users, {node.serial for node in graph.outputs}
    found: dict[int, tuple[Node, list[Node]]] = {}
    for value in graph.nodes:
        if value.op.name in MOVES or value.dtype is not float32 or value.op.kind == "source" or len(value.outputs) > 1:
            continue
        casts: dict[int, tuple[Node, list[Node]]] = {}
        stack: list[tuple[Node, list[Node]]] = [(value, [])]
        dtypes = set()
        while stack:
            node, chain = stack.pop()
            inside = node.serial not in outputs and bool(users[node.serial])
            for user in users[node.serial]:
                if user.op.name in MOVES:
                    stack.append((user, [*chain, user]))
                elif user.op.name == "cast" and user.dtype in HALVES and chain:
                    casts[user.serial] = value, chain
                    dtypes.add(user.dtype)
                else:
                    inside = False
            if not inside:
                break
        else:
            if len(dtypes) == 1:
                found |= casts
    return found
