"""Loops and branches as Scan, Loop and If."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from morpho.ir.node import Node
from morpho.onnx.export.builder import Builder
from morpho.onnx.export.lowering import Lowering, emits
from morpho.onnx.export.message import kind_of, value_message


def _inner(to: Lowering, body: Any, parameters: list[str]) -> tuple[Lowering, list[str]]:
    inner = Lowering(Builder(to.builder), parameters)
    return inner, inner.run(body.graph)


def _graph(to: Lowering, inner: Lowering, inputs: list[Any], outputs: list[tuple[str, Any]]) -> dict[str, Any]:
    to.missing += inner.missing
    results = [value_message(inner.builder.node("Identity", [name]), kind_of(spec.dtype), spec.shape)
               for name, spec in outputs]
    return {"node": inner.builder.nodes, "name": to.builder.fresh("body"),
            "initializer": inner.builder.initializers, "input": inputs, "output": results}


@emits("scan")
def _scan(to: Lowering, node: Node, inputs: list[str]) -> list[str]:
    """Scan: carries, slices, and what the body finds around it, which ONNX lets it see by name."""
    carries, sliced, turn = node["carries"], node["xs"], node["turn"]
    if node["counts"] and (sliced or node["reverse"]):
        to.missing["scan that counts its turns"] += 1
        return [""] * len(node.outputs)
    if not sliced:
        return _counted(to, node, inputs)
    build = to.builder
    names = [build.fresh("carry") for _ in range(carries)] + [build.fresh("slice") for _ in range(sliced)]
    inner, results = _inner(to, turn, [*names, *inputs[carries + sliced:]])
    declared = [value_message(name, kind_of(child.dtype), child.shape if at < carries else child.shape[1:])
                for at, (name, child) in enumerate(zip(names, node.inputs))]
    body = _graph(to, inner, declared, [*zip(results, turn.specs)])
    back = int(node["reverse"])
    found = build.node("Scan", inputs[:carries + sliced], len(node.outputs), body=body, num_scan_inputs=sliced,
                       scan_input_directions=[back] * sliced,
                       scan_output_directions=[back] * (len(node.outputs) - carries))
    return [found] if isinstance(found, str) else found


def _counted(to: Lowering, node: Node, inputs: list[str]) -> list[str]:
    """A loop over a number of turns."""
    carries, turn, build = node["carries"], node["turn"], to.builder
    names = [build.fresh("carry") for _ in range(carries)]
    index, going = build.fresh("turn"), build.fresh("going")
    inner, results = _inner(to, turn, [*names, *inputs[carries:], index])
    scalar = [value_message(index, kind_of(mo.int64), ()), value_message(going, kind_of(mo.bool), ())]
    declared = scalar + [value_message(name, kind_of(child.dtype), child.shape)
                         for name, child in zip(names, node.inputs)]
    body = _graph(to, inner, declared, [*zip(results, turn.specs)])
    onward = inner.builder.node("Identity", [going])
    body["output"] = [value_message(onward, kind_of(mo.bool), ()), *body["output"]]
    count = build.scalar(node["length"], mo.int64)
    found = build.node("Loop", [count, "", *inputs[:carries]], len(node.outputs), body=body)
    return [found] if isinstance(found, str) else found


@emits("while_loop")
def _while(to: Lowering, node: Node, inputs: list[str]) -> list[str]:
    carries, build = node["carries"], to.builder
    first = Lowering(build, inputs)
    condition = first.run(node["test"].graph)[0]
    to.missing += first.missing
    names = [build.fresh("carry") for _ in range(carries)]
    inner, results = _inner(to, node["turn"], [*names, *inputs[carries:]])
    again = Lowering(inner.builder, [*results[:carries], *inputs[carries:]])
    test = again.run(node["test"].graph)[0]
    to.missing += again.missing
    index, going = build.fresh("turn"), build.fresh("going")
    declared = [value_message(index, kind_of(mo.int64), ()), value_message(going, kind_of(mo.bool), ()),
                *(value_message(name, kind_of(child.dtype), child.shape) for name, child in zip(names, node.inputs))]
    body = _graph(to, inner, declared, [*zip(results, node["turn"].specs)])
    onward = inner.builder.node("Identity", [test])
    body["output"] = [value_message(onward, kind_of(mo.bool), ()), *body["output"]]
    found = build.node("Loop", ["", condition, *inputs[:carries]], len(node.outputs), body=body)
    return [found] if isinstance(found, str) else found


@emits("switch")
def _switch(to: Lowering, node: Node, inputs: list[str]) -> list[str]:
    """If, or a chain of them: branch k where the index is k, the last one otherwise."""
    return _chain(to, node, inputs, 0)


def _chain(to: Lowering, node: Node, inputs: list[str], at: int) -> list[str]:
    branches, build = node["branches"], to.builder
    bodies = []
    for place in (at, at + 1):
        if place == at + 1 and place < len(branches) - 1:
            inner = Lowering(Builder(build), [])
            results = _chain(inner, node, inputs, place)
        else:
            inner, results = _inner(to, branches[place], inputs[1:])
        bodies.append(_graph(to, inner, [], [*zip(results, node.outputs)]))
    chosen = build.node("LessOrEqual", [inputs[0], build.array(np.asarray(at, np.int64))])
    found = build.node("If", [chosen], len(node.outputs), then_branch=bodies[0], else_branch=bodies[1])
    return [found] if isinstance(found, str) else found
