"""From a graph to steps for a GPU: the CPU's lowering, whose loop kernels say what is computed and not how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from morpho.backends.cuda.attention.lower import AttentionLowering
from morpho.backends.cuda.casts import moved_casts
from morpho.backends.cuda.gemm.conv_lower import ConvLowering
from morpho.backends.cuda.sparse.transposed import TransposedLowering
from morpho.base.dims import Size
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import defaults_for
from morpho.cost.tuned_choices import NO_CHOICES, Choices
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.passes.pipeline import optimise
from morpho.program.plan_memory import plan_memory
from morpho.program.program import Program


class CudaLowering(AttentionLowering, ConvLowering, TransposedLowering):
    """Products, convolutions, attention, long sorts and transposed sparse products have kernels of their own here."""

    def lower_lapack(self, node: Node) -> None:
        """A step of the host: the routine's address is one of the host."""
        self.lower_host(node, fallback=True)

    model = ""  # of the GPU, for the names of problems

    def problem_key(self, node: Node, kind: str, dtype: str, sizes: Sequence[Size], more: str = "") -> str:
        """The CPU's, and the GPU: choices hold for one kind of device."""
        return f"{super().problem_key(node, kind, dtype, sizes, more)} on {self.model}"

    def inside(self, graph: Graph, outside: set[int], own: frozenset[int]) -> CudaLowering:
        """The lowering of a body of a loop or a branch."""
        inner = CudaLowering(graph, False, 0, self.target, self.constants, self.thresholds)
        inner.program, inner.fixed, inner.model = self.program, self.fixed | outside, self.model
        inner.looked_at, inner.own = len(self.program.steps), own
        return inner


def lowered(graph: Graph, level: int, target: Target, model: str = "", choices: Choices = NO_CHOICES) -> Program:
    """The program of a graph."""
    optimised, _ = optimise(moved_casts(graph) if level > 0 else graph, level, "")
    return program_of(optimised, level, target, model, choices)


def program_of(optimised: Graph, level: int, target: Target, model: str, choices: Choices) -> Program:
    """The program of a graph that has been through the passes, with the tuner's choices for a model of GPU."""
    inputs = 1 + max((node["index"] for node in optimised.parameters), default=-1)
    lowering = CudaLowering(optimised, True, inputs, target, (), replace(defaults_for(0), choices=choices))
    lowering.model = model
    program = lowering.build(None)
    plan_memory(program, reuse=level > 0, apart=False)
    return program
