"""Control flow in the reference backend: a Python loop over the turns of a body."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from morpho.base.dims import evaluate
from morpho.ir.body import Body
from morpho.ir.node import Node

RunGraph = Callable[..., list[Any]]  # (outputs, leaf, sizes): their values


def run(node: Node, arrays: list[Any], sizes: Mapping[str, int], run_graph: RunGraph) -> Any:
    """The results of a node: a tuple, or the only one."""

    def call(body: Body, given: Sequence[Any]) -> list[Any]:
        return run_graph(body.outputs, lambda leaf: given[leaf["index"]], sizes)

    found = {"scan": _scan, "while_loop": _while, "switch": _switch}[node.op.name](node, arrays, sizes, call)
    return tuple(found) if len(found) > 1 else found[0]


Call = Callable[[Body, Sequence[Any]], list[Any]]


def _scan(node: Node, arrays: list[Any], sizes: Mapping[str, int], call: Call) -> list[Any]:
    carries, xs = node["carries"], arrays[node["carries"]:node["carries"] + node["xs"]]
    state, constants = list(arrays[:carries]), arrays[carries + node["xs"]:]
    length = evaluate(node["length"], sizes)
    rows: list[list[Any]] = [[] for _ in node.outputs[carries:]]
    for number in reversed(range(length)) if node["reverse"] else range(length):
        counter = [np.asarray(number, np.int64)] if node["counts"] else []
        found = call(node["turn"], [*state, *[x[number] for x in xs], *constants, *counter])
        state = found[:carries]
        for row, value in zip(rows, found[carries:], strict=True):
            row.append(value)
    stacked = []
    for row, spec in zip(rows, node.outputs[carries:], strict=True):
        shape = tuple(evaluate(size, sizes) for size in spec.shape)
        ordered = row[::-1] if node["reverse"] else row
        stacked.append(np.stack(ordered) if row else np.zeros(shape, spec.dtype.compute.numpy))
    return [*state, *stacked]


def _while(node: Node, arrays: list[Any], sizes: Mapping[str, int], call: Call) -> list[Any]:
    state, constants = list(arrays[:node["carries"]]), arrays[node["carries"]:]
    while bool(call(node["test"], [*state, *constants])[0]):
        state = call(node["turn"], [*state, *constants])
    return state


def _switch(node: Node, arrays: list[Any], sizes: Mapping[str, int], call: Call) -> list[Any]:
    branches = node["branches"]
    which = min(max(int(arrays[0]), 0), len(branches) - 1)
    return call(branches[which], arrays[1:])
