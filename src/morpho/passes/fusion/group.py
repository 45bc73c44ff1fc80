"""The `group` op: several nodes that become one kernel. Its body is a small graph over parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.base.dims import Shape
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, make, toposort
from morpho.ir.op import ANY, Attributes, NoGradient, Op, Spec, register


class Body:
    """The inside of a group. Nodes are interned, so two bodies are equal when their outputs are the same objects."""

    __slots__ = ("graph", "outputs")

    def __init__(self, outputs: tuple[Node, ...]) -> None:
        self.outputs = outputs
        self.graph = Graph(outputs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Body) and self.outputs == other.outputs

    def __hash__(self) -> int:
        return hash(tuple(node.serial for node in self.outputs))

    def __repr__(self) -> str:
        return f"Body({self.graph.digest()[:16]})"

    def __str__(self) -> str:
        numbers: dict[int, str] = {}
        lines: list[str] = []
        for node in self.graph.nodes:
            if node.op.name == "parameter":
                numbers[node.serial] = f"in{node['index']}"
                continue
            if node.op.name == "constant":
                numbers[node.serial] = f"{node['value']:.6g}" if node.dtype.is_float else str(node["value"])
                continue
            arguments = ", ".join(numbers[child.serial] for child in node.inputs)
            if node.op.name in ("expand", "reshape"):
                numbers[node.serial] = numbers[node.inputs[0].serial]
                continue
            numbers[node.serial] = f"t{len(lines)}"
            lines.append(f"t{len(lines)} = {node.op.name}({arguments})")
        return "\n".join(lines) or ", ".join(numbers[n.serial] for n in self.outputs)


def _infer(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    return tuple(node.spec for node in attributes["body"].outputs)


def _no_reference(attributes: Attributes, *arrays: Any) -> Any:
    raise RuntimeError("a group is evaluated through its body")


GROUP = register(Op("group", "fused", _infer, NoGradient("made after differentiation"), _no_reference, arity=ANY))


def make_group(outputs: Sequence[Node], inputs: Sequence[Node], space: Shape, axes: tuple[int, ...]) -> Node:
    """Cut the nodes between `inputs` and `outputs` out as one group node."""
    leaf: dict[int, Node] = {}
    for number, node in enumerate(inputs):
        leaf[node.serial] = build("parameter", index=number, shape=node.shape, dtype=node.dtype)
    done: dict[int, Node] = dict(leaf)
    for node in toposort(outputs, set(leaf)):
        done[node.serial] = make(node.op, [done[child.serial] for child in node.inputs], node.attributes)
    body = Body(tuple(done[node.serial] for node in outputs))
    made = make(GROUP, inputs, {"body": body, "space": space, "axes": axes})
    made.origin = outputs[-1].origin
    return made


def row_shape(space: Shape, axes: tuple[int, ...]) -> Shape:
    """The shape of a value with one element per row of a space."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(space))
