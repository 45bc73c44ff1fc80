"""A card from any Morpho function: its graph is cut wherever a single value crosses, between heavy operations; where
that leaves most of the work in one piece (every layer reads a mask, branches are long), wherever two cross, and so on
up to `MOST_CROSSING`.

Nothing runs: tensors are lazy, so calling the function only builds the graph. The arguments are its inputs; every other
tensor it uses is a weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.base.dims import product, upper
from morpho.base.errors import ArgumentError, fail
from morpho.cost.estimate import node_cost, spec_bytes
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.plan.model.layer import Layer
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor

MOST_CROSSING = 4  # values that may cross a cut
MOST_SHARE = 0.5  # of the work in one layer, before cuts with more values are looked for
HEAVY = ("contract", "index")  # kinds of operations that make a layer: products, attention, convolutions, look-ups


def trace(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Graph, set[int]]:
    """The graph of a call, and the serials of the nodes that are its arguments."""
    original = getattr(function, "function", function)  # a compiled function keeps the one it was made of
    inputs = [argument if isinstance(argument, Tensor) else asarray(np.asarray(argument)) for argument in arguments]
    result = original(*inputs)
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    if not outputs or not all(isinstance(output, Tensor) for output in outputs):
        raise fail(ArgumentError, "plan", "the function does not return tensors", "return a tensor or a tuple of them")
    return Graph(tuple(output.node for output in outputs)), {value.node.serial for value in inputs}


def layers_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Layer, ...]:
    """The layers of a traced function; see `ModelCard.from_graph`."""
    graph, inputs = trace(function, arguments)
    moving = _moving(graph, inputs)
    parts = _parts(graph, moving, 1)
    if not parts:
        raise fail(ArgumentError, "plan", "the function computes nothing", "give one with operations on its arguments")
    for crossing in range(2, MOST_CROSSING + 1):
        if _largest_share(parts) <= MOST_SHARE:
            break
        finer = _parts(graph, moving, crossing)
        parts = finer if _largest_share(finer) < _largest_share(parts) else parts
    return tuple(_layer(position, part, elements, moving | inputs) for position, (part, elements) in enumerate(parts))


def _moving(graph: Graph, inputs: set[int]) -> set[int]:
    """Nodes that are computed from the arguments. The rest is known before a call: weights, and what is made of them
    alone (a norm folded into factors), which every stage makes for itself."""
    found = set(inputs)
    for node in graph.nodes:
        if any(child.serial in found for child in node.inputs):
            found.add(node.serial)
    return found - inputs


def _parts(graph: Graph, moving: set[int], crossing: int) -> list[tuple[list[Node], int]]:
    """Runs of nodes with at most so many values alive after each, and how many elements those have."""
    nodes = [node for node in graph.nodes if node.serial in moving]
    place = {node.serial: position for position, node in enumerate(nodes)}
    last = {node.serial: max((place[user.serial] for user in graph.users[node.serial]), default=place[node.serial])
            for node in nodes}
    for output in graph.outputs:
        last[output.serial] = len(nodes)
    parts: list[tuple[list[Node], int]] = []
    run: list[Node] = []
    alive: dict[int, Node] = {}
    for position, node in enumerate(nodes):
        run.append(node)
        alive[node.serial] = node
        alive = {serial: value for serial, value in alive.items() if last[serial] > position}
        if len(alive) <= crossing and _heavy(run) and position + 1 < len(nodes):
            parts.append((run, sum(upper(product(value.shape)) for value in alive.values())))
            run = []
    if run:
        if parts and not _heavy(run):
            before, _ = parts.pop()
            run = before + run
        parts.append((run, sum(upper(product(output.shape)) for output in graph.outputs)))
    return parts


def _largest_share(parts: list[tuple[list[Node], int]]) -> float:
    """How much of all bytes moved the largest part has: what limits how evenly stages can share the work."""
    moved = [sum(node_cost(node).bytes for node in part) for part, _ in parts]
    return max(moved) / max(sum(moved), 1)


def _heavy(run: list[Node]) -> bool:
    return any(node.op.kind in HEAVY for node in run)


def _layer(position: int, part: list[Node], crossing: int, flowing: set[int]) -> Layer:
    costs = [node_cost(node) for node in part]
    weights = _weights(part, flowing)
    flops, moved = sum(cost.flops for cost in costs), sum(cost.bytes for cost in costs)
    heaviest = max(range(len(part)), key=lambda at: costs[at].flops)
    scratch = max((spec_bytes(node.spec) for node in part), default=0)
    held = sum(spec_bytes(weight.spec) for weight in weights)
    return Layer(f"layer {position}", part[heaviest].op.name, flops, moved, flops, moved, held,
                 prefill_cut_elements=crossing, decode_cut_elements=crossing, workspace_bytes=2 * scratch,
                 key=f"{part[heaviest].op.name} {flops} {moved}")


def _weights(part: list[Node], flowing: set[int]) -> list[Node]:
    """The stored tensors that a part needs, directly or through what is made of them alone."""
    found: dict[int, Node] = {}
    seen: set[int] = set()
    todo = [child for node in part for child in node.inputs]
    while todo:
        node = todo.pop()
        if node.serial in flowing or node.serial in seen:
            continue
        seen.add(node.serial)
        if node.op.kind == "source" and node.shape:
            found[node.serial] = node
        todo.extend(node.inputs)
    return list(found.values())
