"""From a graph to steps for a GPU: the CPU's lowering, whose loop kernels say what is computed and not how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from morpho.backends.cuda.attention.decode.lower import DecodeLowering
from morpho.backends.cuda.blocks.segments import SegmentLowering
from morpho.backends.cuda.casts import moved_casts
from morpho.backends.cuda.gemm.conv_lower import ConvLowering
from morpho.backends.cuda.gemm.quantised.lower import QuantisedLowering
from morpho.backends.cuda.grouped.schedule import grouped
from morpho.backends.cuda.sparse.transposed import TransposedLowering
from morpho.backends.cuda.tiles.scans import ScanLowering
from morpho.backends.cuda.tiles.scatters import CountLowering
from morpho.base.dims import Size
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import defaults_for
from morpho.cost.tuned_choices import NO_CHOICES, Choices
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.passes.pipeline import Report, optimise
from morpho.program.plan_memory import plan_memory
from morpho.program.program import Program


class CudaLowering(DecodeLowering, ConvLowering, QuantisedLowering, TransposedLowering, ScanLowering,
                   CountLowering, SegmentLowering):
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
    return optimised_and_lowered(graph, level, target, model, choices)[0]


def optimised_and_lowered(graph: Graph, level: int, target: Target, model: str = "",
                          choices: Choices = NO_CHOICES) -> tuple[Program, Report]:
    """The program of a graph, and what the passes did."""
    optimised, report = optimise(moved_casts(graph) if level > 0 else graph, level, "")
    return program_of(optimised, level, target, model, choices, _inputs(graph)), report


def _inputs(graph: Graph) -> int:
    return 1 + max((node["index"] for node in graph.parameters), default=-1)


def program_of(optimised: Graph, level: int, target: Target, model: str, choices: Choices,
               inputs: int | None = None) -> Program:
    """The program of a graph that has been through the passes, with the tuner's choices for a model of GPU."""
    taken = _inputs(optimised) if inputs is None else inputs  # passes may drop the last of a graph's parameters
    lowering = CudaLowering(optimised, True, taken, target, (), replace(defaults_for(0), choices=choices))
    lowering.model = model
    program = lowering.build(None)
    if level > 0:
        grouped(program)
    plan_memory(program, reuse=level > 0, apart=False)
    return program
