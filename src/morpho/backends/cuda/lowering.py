"""From a graph to steps for a GPU: the CPU's lowering, whose loop kernels say what is computed and not how."""

from __future__ import annotations

from morpho.backends.cuda.attention.decode.lower import DecodeLowering
from morpho.backends.cuda.casts import moved_casts
from morpho.backends.cuda.gemm.lower import ProductLowering
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import defaults_for
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.passes.pipeline import optimise
from morpho.program.plan_memory import plan_memory
from morpho.program.program import Program


class CudaLowering(DecodeLowering, ProductLowering):
    """Products and attention have kernels of their own here."""

    def lower_lapack(self, node: Node) -> None:
        """A step of the host: the routine's address is one of the host."""
        self.lower_host(node, fallback=True)

    def inside(self, graph: Graph, outside: set[int], own: frozenset[int]) -> CudaLowering:
        """The lowering of a body of a loop or a branch."""
        inner = CudaLowering(graph, False, 0, self.target, self.constants, self.thresholds)
        inner.program, inner.fixed = self.program, self.fixed | outside
        inner.looked_at, inner.own = len(self.program.steps), own
        return inner


def lowered(graph: Graph, level: int, target: Target) -> Program:
    """The program of a graph."""
    inputs = 1 + max((node["index"] for node in graph.parameters), default=-1)
    optimised, _ = optimise(moved_casts(graph) if level > 0 else graph, level, "")
    program = CudaLowering(optimised, True, inputs, target, (), defaults_for(0)).build(None)
    plan_memory(program, reuse=level > 0, apart=False)
    return program
