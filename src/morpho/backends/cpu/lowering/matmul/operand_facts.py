"""What is known of operands while a graph is lowered: which are constant, which are shared, what users asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from morpho.backends.cpu.lowering.builder import Builder
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.program.co_schedule import LEAST_OF
from morpho.program.program import HostStep
from morpho.program.view import View

PRODUCTS = ("matmul", "gemm")  # nodes with a right operand that may be packed


class OperandFacts(Builder):
    """A builder that knows the graph and its target."""

    def __init__(self, graph: Graph, own_outputs: bool, inputs: int, target: Target, constants: Collection[int],
                 thresholds: DispatchThresholds) -> None:
        super().__init__(inputs, own_outputs)
        self.graph, self.target, self.constants, self.thresholds = graph, target, constants, thresholds
        self.right_operands: Counter[int] | None = None  # how many products have a node, by serial, on their right
        self.fixed: set[int] = set()  # slots that only constants decide, as far as steps were looked at
        self.looked_at = 0

    def thresholds_of(self, node: Node) -> DispatchThresholds:
        """Those for a product of which its user may have said how many threads it shall have."""
        points = LEAST_OF.get(node.attributes.get("threads", "auto"))
        return self.thresholds if points is None else replace(self.thresholds, parallel_macs=points)

    def is_shared(self, node: Node) -> bool:
        """Whether more than two products have this right operand: it is packed once for all of them."""
        if self.right_operands is None:
            self.right_operands = Counter(product.inputs[1].serial for product in self.graph.nodes
                                          if product.op.name in PRODUCTS and len(product.inputs) > 1)
        return self.right_operands[node.inputs[1].serial] > 2

    def is_fixed(self, place: View) -> bool:
        """Whether a value is there before the first call: a constant, or made of constants alone (`hoist.py`)."""
        for step in self.program.steps[self.looked_at:]:
            if isinstance(step, HostStep):
                continue
            targets = {place.slot for place in step.written}
            if step.reads and all(self.is_constant(read.slot) for read in step.reads):
                self.fixed |= targets
            else:
                self.fixed -= targets
        self.looked_at = len(self.program.steps)
        return self.is_constant(place.slot)

    def is_constant(self, number: int) -> bool:
        slot = self.program.slots[number]
        return number in self.fixed or (slot.kind == "input" and slot.index in self.constants)
