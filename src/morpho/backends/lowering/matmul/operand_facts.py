"""Facts about operands while a graph is lowered: which are constant, which are shared, what users asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from morpho.backends.kernels.loops.loop_spec import LoopCall
from morpho.backends.lowering.builder import Builder
from morpho.base.dims import Size
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.cost.tuned_choices import Choice, Problem, bucket
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.views import is_view, look_through
from morpho.program.co_schedule import LEAST_OF
from morpho.program.program import HostStep
from morpho.program.view import View

PRODUCTS = ("matmul", "gemm")  # nodes with a right operand that may be packed


def tuned_words(choice: Choice) -> str:
    """Words of `explain()` for a step for which the tuner chose; empty if it did not."""
    return "" if choice.is_default else f"from the tuner: {choice.said()}"


class OperandFacts(Builder):
    """A builder that knows the graph and its target."""

    def __init__(self, graph: Graph, own_outputs: bool, inputs: int, target: Target, constants: Collection[int],
                 thresholds: DispatchThresholds) -> None:
        super().__init__(inputs, own_outputs)
        self.graph, self.target, self.constants, self.thresholds = graph, target, constants, thresholds
        self.right_operands: Counter[int] | None = None  # how many products have a node, by serial, on their right
        self.fixed: set[int] = set()  # slots that only constants decide, as far as steps were looked at
        self.looked_at = 0
        self.rows_there: dict[int, View] = {}  # of a node: where the number of its rows lies that are not zeros yet

    def thresholds_of(self, node: Node) -> DispatchThresholds:
        """Those for a product of which its user may have said how many threads it shall have."""
        points = LEAST_OF.get(node.attributes.get("threads", "auto"))
        return self.thresholds if points is None else replace(self.thresholds, parallel_macs=points)

    def problem_key(self, node: Node, kind: str, dtype: str, sizes: Sequence[Size], more: str = "") -> str:
        """The name of a problem that the tuner may have a choice for: sizes in buckets, what is known of the operands,
        threads and instruction set. Sizes within a bucket share a choice: any choice is right for any size."""
        extent = "x".join(str(bucket(size)) for size in sizes)
        return f"{kind} {dtype} {extent} {more}{' ' if more else ''}t{self.target.threads} {self.target.isa.name}"

    def operand_word(self, node: Node) -> str:
        """How a right operand comes: there before the first call or not, and which views look at it."""
        root, views = look_through(node, is_view)
        fixed = root.op.name == "parameter" and root["index"] in self.constants
        return "+".join(["fixed" if fixed else "given", *(view.op.name for view in views)])

    def tuned(self, node: Node, problem: Problem) -> DispatchThresholds:
        """Those for a problem, which is remembered for whoever tunes this program; a number of threads that its user
        has named stays."""
        self.program.problems.setdefault(problem.key, problem)
        found = self.thresholds_of(node).chosen(problem.key)
        points = LEAST_OF.get(found.choice.threads)
        asked = node.attributes.get("threads", "auto") != "auto"
        return found if points is None or asked else replace(found, parallel_macs=points)

    def offer(self, key: str, ways: Sequence[str]) -> None:
        """Rows of the dispatch table that could have been taken for a problem."""
        self.program.problems[key] = replace(self.program.problems[key], ways=tuple(ways))

    def threads_for(self, node: Node, chosen: str) -> str:
        """Threads of a step: as its user has said, else as the tuner has."""
        asked: str = node.attributes.get("threads", "auto")
        return chosen or "auto" if asked == "auto" else asked

    def loop_threads(self, lowered: LoopCall, node: Node, label: str) -> str:
        """Whether the threads share a loop, where the tuner has a choice."""
        if self.target.threads < 2:
            return "auto"
        dtype = node.outputs[0].dtype.name
        key = self.problem_key(node, f"loop {label}"[:60].strip(), dtype, (lowered.rows, lowered.columns))
        return self.tuned(node, Problem(key, "loop", node, threads=self.target.threads)).choice.threads or "auto"

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
