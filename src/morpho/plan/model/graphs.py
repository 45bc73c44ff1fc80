"""A card from any Morpho function: its graph is cut wherever a single value crosses, between heavy operations.

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
    return tuple(_layer(position, part, crossing, inputs) for position, (part, crossing) in enumerate(_parts(graph)))


def _parts(graph: Graph) -> list[tuple[list[Node], int]]:
    """Runs of nodes with one value alive after each, and how many elements that is."""
    nodes = [node for node in graph.nodes if node.op.kind != "source"]
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
        if len(alive) == 1 and _heavy(run) and position + 1 < len(nodes):
            parts.append((run, upper(product(next(iter(alive.values())).shape))))
            run = []
    if run:
        if parts and not _heavy(run):
            before, _ = parts.pop()
            run = before + run
        parts.append((run, sum(upper(product(output.shape)) for output in graph.outputs)))
    return parts


def _heavy(run: list[Node]) -> bool:
    return any(node.op.kind in HEAVY for node in run)


def _layer(position: int, part: list[Node], crossing: int, inputs: set[int]) -> Layer:
    costs = [node_cost(node) for node in part]
    weights = {child.serial: child for node in part for child in node.inputs
               if child.op.kind == "source" and child.serial not in inputs and child.shape}
    flops, moved = sum(cost.flops for cost in costs), sum(cost.bytes for cost in costs)
    heaviest = max(range(len(part)), key=lambda at: costs[at].flops)
    scratch = max((spec_bytes(node.spec) for node in part), default=0)
    held = sum(spec_bytes(weight.spec) for weight in weights.values())
    return Layer(f"layer {position}", part[heaviest].op.name, flops, moved, flops, moved, held,
                 prefill_cut_elements=crossing, decode_cut_elements=crossing, workspace_bytes=2 * scratch,
                 key=f"{part[heaviest].op.name} {flops} {moved}")
