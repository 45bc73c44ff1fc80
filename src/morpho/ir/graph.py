"""A `Graph`: the outputs of a program, with its walk and its users computed once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property

from morpho.ir.node import Node, rebuild, toposort


class Graph:
    """An immutable program: `outputs` in order; everything else follows from them."""

    def __init__(self, outputs: tuple[Node, ...]) -> None:
        self.outputs = tuple(outputs)

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

    def __len__(self) -> int:
        return len(self.nodes)

    def map(self, function: Callable[[Node], Node]) -> Graph:
        """A new graph with every node passed through `function` after its inputs; the walk is bottom-up."""
        done: dict[int, Node] = {}
        for node in self.nodes:
            done[node.serial] = function(rebuild(node, [done[child.serial] for child in node.inputs]))
        return Graph(tuple(done[node.serial] for node in self.outputs))

    def digest(self) -> str:
        """A hash of the structure that is the same in every process; the disk cache keys on it."""
        numbers: dict[int, int] = {}
        text = []
        for number, node in enumerate(self.nodes):
            numbers[node.serial] = number
            inputs = ",".join(str(numbers[child.serial]) for child in node.inputs)
            text.append(f"{node.op.name}({inputs}){sorted(node.attributes.items())!r}{node.outputs!r}{node.device}")
        text.append(repr([numbers[node.serial] for node in self.outputs]))
        return hashlib.sha256("\n".join(text).encode()).hexdigest()
