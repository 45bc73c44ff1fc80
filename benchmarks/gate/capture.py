"""A compiled function up to the moment when its graph would be optimised, lowered and compiled; no further."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from unittest import mock

from benchmarks.gate.targets import GateTarget, lowering_for
from morpho.base import settings
from morpho.cost.crossovers import usual
from morpho.ir.graph import Graph
from morpho.kernels.program import Program
from morpho.runtime import evaluate
from morpho.tensor import tracing


@dataclass(frozen=True)
class Traced:
    """A graph as `mo.compile` hands it on: which inputs are constants, which results take the memory of inputs."""

    graph: Graph
    inputs: int
    constants: Collection[int]
    updates: Collection[tuple[int, int]]
    budget: Any

    def lowered(self, target: GateTarget, **chosen: Any) -> Program:
        """The program for a machine, under settings such as `passes_off`."""
        with lowering_for(target, **chosen):
            made = evaluate._make(self.graph, True, self.inputs, self.constants, settings.get(), False, self.updates,
                                  self.budget, usual(target.isa.vector_bits))
        return made.program


class _Caught(BaseException):
    """Carries what was traced past every `except Exception`."""


def trace(call: Callable[[], Any]) -> Traced:
    """What the first compiled function that `call` calls is traced to."""
    found: list[Traced] = []

    def catch(graph: Graph, own_outputs: bool, inputs: int, guards: Any = (), *, whole: bool = False,
              constants: Collection[int] = (), on_disk: bool = False, updates: Any = (), budget: Any = None) -> Any:
        found.append(Traced(graph, inputs, constants, updates, budget))
        raise _Caught

    with mock.patch.object(tracing, "make_plan", catch):
        try:
            call()
        except _Caught:
            return found[0]
    raise ValueError("no compiled function was called")
