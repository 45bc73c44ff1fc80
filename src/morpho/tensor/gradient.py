"""Gradients as ordinary nodes: the pull-back of a program, from each op's `vjp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from morpho.base.errors import ArgumentError, DTypeError, fail
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.op import NoGradient
from morpho.ops.algebra import add, constant_like, zeros_like
from morpho.passes.canonical import inline_without_gradient
from morpho.tensor.core import Tensor
from morpho.tensor.regions import Regions


def pull_back(outputs: Sequence[Node], cotangents: Sequence[Node], leaves: Sequence[Node]) -> list[Node]:
    """The gradient of sum(output * cotangent) with respect to each leaf; zeros where nothing depends on it."""
    regions = Regions(inline_without_gradient(Graph(tuple(outputs))))
    graph = regions.graph
    leaves = [regions.became.get(leaf.serial, leaf) for leaf in leaves]
    needed: set[int] = {leaf.serial for leaf in leaves}
    for node in graph.nodes:
        if any(child.serial in needed for child in node.inputs):
            needed.add(node.serial)
    gradients: dict[int, Node] = {}
    for node, cotangent in zip(graph.outputs, cotangents, strict=True):
        _accumulate(gradients, node, cotangent)
    wanted = {leaf.serial for leaf in leaves}
    for node in reversed(graph.nodes):
        gradient = gradients.get(node.serial)
        if gradient is None or node.serial not in needed or not node.inputs or node.serial in wanted:
            continue
        if node.op.name == "pick":
            node = node.inputs[0]  # the record that says why is that of the op with several results
        if isinstance(node.op.vjp, NoGradient):
            if node.op.vjp.missing:
                raise fail(ArgumentError, "grad", f"{node.op.name} has no gradient: {node.op.vjp.reason}",
                           "detach it, or give the op a vjp", line=node.origin)
            continue  # zero by nature: integers, booleans, steps
        reached = regions.reached(node, gradient)  # what a checkpoint does not keep is computed again
        for child, part in zip(node.inputs, node.op.vjp(reached, gradient), strict=True):
            if part is not None and child.serial in needed:
                _accumulate(gradients, child, part)
    return [gradients.get(leaf.serial, zeros_like(leaf)) for leaf in leaves]


def _accumulate(gradients: dict[int, Node], node: Node, part: Node) -> None:
    known = gradients.get(node.serial)
    gradients[node.serial] = part if known is None else add(known, part)


def grad(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a function's scalar result with respect to its first argument.

    >>> import morpho as mo
    >>> mo.grad(lambda x: (x * x).sum())(mo.asarray([1.0, 2.0])).numpy()
    array([2., 4.], dtype=float32)
    """

    def gradient(x: Any, *rest: Any, **named: Any) -> Tensor:
        from morpho.tensor.create import asarray

        tensor = asarray(x)
        if not tensor.dtype.is_float:
            raise fail(DTypeError, "grad", f"dtype {tensor.dtype} has no gradient", "convert with astype")
        if tensor._layout is None and tensor.node.op.kind != "source":
            tensor = tensor.realise()
        result = function(tensor, *rest, **named)
        if not isinstance(result, Tensor) or result.shape != ():
            raise fail(ArgumentError, "grad", "the function does not return a 0-dimensional tensor",
                       "reduce it with sum() or mean()")
        return Tensor.of_node(pull_back([result.node], [constant_like(result.node, 1)], [tensor.node])[0])

    return gradient
