"""Rematerialisation: `remat_barrier`, a value read anew once others are there, and `checkpoint`, a mark of a region.

`remat_barrier(x, after...)` has the value and the memory of x, and control dependencies on its other inputs. It is
another node than x, so what is computed from it is computed a second time, and not before those inputs are there.
`checkpoint` stands behind the results of a region whose gradient computes the region again; its inputs are those
results and then everything the region is made from. It says nothing but that: gradients look at it, and the first
thing the passes do is to take it away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, rebuild
from morpho.ir.op import Attributes, NoGradient, Op, Spec, register
from morpho.ir.views import root_of
from morpho.ops.batching import elementwise
from morpho.ops.sources import pick

NUMBERS = frozenset({"constant", "iota", "dimension"})


def remat_barrier(x: Node, *after: Node) -> Node:
    """x for a second computation, after other values; numbers that no memory holds are what they are.

    >>> x = build("parameter", index=0, shape=(3,), dtype=float32)
    >>> remat_barrier(x) is x, remat_barrier(x).shape
    (False, (3,))
    """
    return x if root_of(x).op.name in NUMBERS else build("remat_barrier", x, *after)


def mark(results: Sequence[Node], made_from: Sequence[Node]) -> list[Node]:
    """The results of a region that is computed again where its gradient is."""
    marked = build("checkpoint", *results, *made_from, results=len(results))
    return [pick(marked, index) for index in range(len(results))]


def unmarked(graph: Graph, marks: frozenset[str] = frozenset({"checkpoint"})) -> tuple[Graph, dict[int, Node]]:
    """The graph without marks, and what each of its nodes became, by serial. `marks` are ops with several outputs, the
    values of their first inputs."""
    done: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op.name in marks:
            new = done[node.inputs[0].serial]
        elif node.op.name == "pick" and node.inputs[0].op.name in marks:
            new = done[node.inputs[0].inputs[node["index"]].serial]
        else:
            new = rebuild(node, [done[child.serial] for child in node.inputs])
        done[node.serial] = new
    return Graph(tuple(done[node.serial] for node in graph.outputs)), done


def _infer_mark(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    return tuple(inputs[:attributes["results"]])


def _reference_mark(attributes: Attributes, *arrays: Any) -> Any:
    results = attributes["results"]
    return arrays[0] if results == 1 else tuple(arrays[:results])


REMAT_BARRIER = register(Op("remat_barrier", "move", lambda inputs, a: inputs[0],
                            lambda n, ct: [ct, *[None] * (len(n.inputs) - 1)], lambda a, x, *after: x, 0,
                            properties=frozenset({"view"}), arity=(1, math.inf), batch=elementwise,
                            jvp=lambda n, tangents, push: tangents[:1]))
CHECKPOINT = register(Op("checkpoint", "move", _infer_mark, NoGradient("gradients look through it"), _reference_mark, 0,
                         properties=frozenset({"view"}), arity=(1, math.inf), batch=elementwise,
                    jvp=lambda n, tangents, push: tangents[:n["results"]]))
