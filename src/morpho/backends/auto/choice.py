"""Where a program runs: its roofline time on both sides, and the time to bring its operands there and its results back.

The choice depends on the program's sizes and on rates that were measured once in this process, never on how a run
went: a program stays where it is, and so do its bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from morpho.base.dtypes import bfloat16, float16
from morpho.base.units import format_bytes
from morpho.cost.estimate import node_cost, spec_bytes
from morpho.ir.graph import Graph
from morpho.ir.views import is_view

HALVES = (bfloat16, float16)
PRODUCTS = frozenset({"matmul", "gemm", "attention", "attention_backward", "conv"})


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured rates of a device, per second; `link_bytes_per_s` is 0 if operands lie in its own memory."""

    flops_per_s: float
    half_flops_per_s: float
    bytes_per_s: float
    launch_s: float
    link_bytes_per_s: float = 0.0
    call_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """The device of a program, what it was expected to take on each, and how much of it is computed there."""

    device: str
    seconds: Mapping[str, float]
    flops: int
    moved_bytes: int
    gpu_share: float  # of the operations

    @property
    def said(self) -> str:
        """In one line.

        >>> print(Choice("cpu", {"cpu": 1e-6, "cuda:0": 4e-5}, 1000, 4000, 0.0).said)
        auto: runs on cpu, expected 1 us on cpu, 40 us on cuda:0 with 4 kB moved; 0 % of 1e+03 operations on the GPU
        """
        times = ", ".join(f"{1e6 * seconds:.3g} us on {name}" for name, seconds in self.seconds.items())
        return (f"auto: runs on {self.device}, expected {times} with {format_bytes(self.moved_bytes)} moved; "
                f"{100 * self.gpu_share:.0f} % of {self.flops:.3g} operations on the GPU")


def expected_seconds(graph: Graph, rates: Rates) -> float:
    """The rooflines of its nodes, one after another; elementwise ones cost what they move."""
    total = rates.call_s
    for node in graph.nodes:
        if node.op.kind == "source" or is_view(node):
            continue
        cost = node_cost(node)
        half = node.op.name in PRODUCTS and node.dtype in HALVES
        speed = rates.half_flops_per_s if half else rates.flops_per_s
        total += rates.launch_s + max(cost.flops / speed, cost.bytes / rates.bytes_per_s)
    if rates.link_bytes_per_s:
        total += moved_bytes(graph) / rates.link_bytes_per_s
    return total


def moved_bytes(graph: Graph) -> int:
    """Operands and results of a program."""
    return sum(spec_bytes(node.spec) for node in (*graph.parameters, *graph.outputs))


def choose(graph: Graph, rates: Mapping[str, Rates]) -> Choice:
    """The device that is expected to take least; the first of equals."""
    seconds = {name: expected_seconds(graph, known) for name, known in rates.items()}
    device = min(seconds, key=lambda name: seconds[name])
    flops = [(node_cost(node).flops, node.op.kind == "host") for node in graph.nodes]
    total = sum(count for count, _ in flops)
    there = sum(count for count, host in flops if not host) if rates[device].link_bytes_per_s else 0
    return Choice(device, seconds, total, moved_bytes(graph), there / total if total else 0.0)
