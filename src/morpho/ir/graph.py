"""A `Graph`: the outputs of a program, with its walk and its users computed once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.base.dims import Dim
from morpho.base.dtypes import DType
from morpho.base.python.lazy import cached_property
from morpho.ir.node import Node, rebuild, toposort
from morpho.ir.op import Spec


class Graph:
    """An immutable program: `outputs` in order; everything else follows from them, unless `nodes` says in which order
    they are to be computed."""

    def __init__(self, outputs: tuple[Node, ...], nodes: list[Node] | None = None,
                 written: list[Node] | None = None) -> None:
        self.outputs = tuple(outputs)
        self.written = written  # the nodes in the order in which a function made them, where somebody knows
        if nodes is not None:
            self.nodes = nodes

    @cached_property
    def nodes(self) -> list[Node]:
        """Every node, inputs before users."""
        return toposort(self.outputs)

    @cached_property
    def users(self) -> dict[int, list[Node]]:
        """Serial to the nodes that read it."""
        found: dict[int, list[Node]] = {node.serial: [] for node in self.nodes}
        for node in self.nodes:
            for child in dict.fromkeys(node.inputs):
                found[child.serial].append(node)
        return found

    @cached_property
    def parameters(self) -> list[Node]:
        """The `parameter` leaves by number."""
        return sorted((n for n in self.nodes if n.op.name == "parameter"), key=lambda n: n["index"])

    @cached_property
    def specs(self) -> tuple[Spec, ...]:
        """Shape and dtype of every output."""
        return tuple(node.spec for node in self.outputs)

    def line(self, number: int) -> str:
        """The user's line of a node of the walk."""
        return self.nodes[number].origin

    def __len__(self) -> int:
        return len(self.nodes)

    def map(self, function: Callable[[Node], Node]) -> Graph:
        """A new graph with every node passed through `function` after its inputs; the walk is bottom-up."""
        done: dict[int, Node] = {}
        for node in self.nodes:
            done[node.serial] = function(rebuild(node, [done[child.serial] for child in node.inputs]))
        return Graph(tuple(done[node.serial] for node in self.outputs))

    def digest(self) -> str:
        """A hash of the structure that is the same in every process; the disk cache keys on it.

        Shapes and dtypes follow from leaves and attributes; the user's lines are no part of it. `Unkeyed` where an
        attribute has no text."""
        numbers: dict[int, int] = {}
        text = []
        for number, node in enumerate(self.nodes):
            numbers[node.serial] = number
            line = [node.op.name, node.device, *[str(numbers[child.serial]) for child in node.inputs]]
            attributes = node.attributes
            for name in sorted(attributes) if len(attributes) > 1 else attributes:
                line += (name, _text(attributes[name]))
            text.append(" ".join(line))
        text.append(repr([numbers[node.serial] for node in self.outputs]))
        return hashlib.sha256("\n".join(text).encode()).hexdigest()


class Unkeyed(TypeError):
    """An attribute of a kind that has no text by which two processes could compare it."""


def _text(value: Any) -> str:
    """An attribute as text that differs where the values differ: 1, 1.0 and True, -0.0 and 0.0, bounds of sizes."""
    kind = type(value)
    if kind is int or kind is bool or value is None:
        return repr(value)
    if kind is tuple:
        return "(" + ",".join([_text(item) for item in value]) + ")"
    if kind is DType:
        return str(value.name)
    if kind is str:
        return repr(value)
    if isinstance(value, tuple):  # a named one
        return kind.__name__ + _text(tuple(value))
    if isinstance(value, Dim):
        return f"Dim{value.terms!r}"
    if isinstance(value, float):
        return float(value).hex()
    if isinstance(value, complex):
        return f"{value.real.hex()}:{value.imag.hex()}"
    if isinstance(value, (np.integer, np.bool_)):
        return repr(value.item())
    if hasattr(value, "digest"):  # a body
        return str(value.digest())
    raise Unkeyed(f"an attribute of type {kind.__name__} has no text")
