"""A function compiled for one signature, and what tracing needs besides: dynamic sizes, captured tensors, faults."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from morpho.base.dims import Dim, evaluate
from morpho.base.errors import ArgumentError, fail
from morpho.base.shapes import is_contiguous
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, rebuild, toposort
from morpho.ir.op import Spec
from morpho.kernels.plan_memory import written
from morpho.kernels.program import HostStep, Program, Step
from morpho.runtime import evaluate as evaluation
from morpho.runtime.buffer import Buffer
from morpho.runtime.evaluate import Plan
from morpho.tensor.core import Tensor
from morpho.tensor.state import State, Trace


@dataclass(frozen=True)
class Prepared:
    """What was computed once from constants, and the tensors it was computed from."""

    layouts: list[Any]  # of the captured tensors; one that gets other elements gets another layout object
    storages: list[Any]  # held, so that nobody writes these elements in place
    buffers: list[Buffer | None]

    @property
    def addresses(self) -> list[int]:
        return [buffer.address if buffer is not None else 0 for buffer in self.buffers]

    def fits(self, captured: list[Tensor]) -> bool:
        return all(tensor._layout is layout for tensor, layout in zip(captured, self.layouts, strict=True))


NOTHING = Prepared([], [], [])


@dataclass
class Specialisation:
    """The function compiled for one signature."""

    plan: Plan
    structure: Any  # of the result
    outputs: int
    captured: list[Tensor]
    captured_layouts: list[tuple[Any, ...]]  # shape, strides and dtype they were compiled for
    states: list[State]
    updates: list[tuple[int, int]]  # (state, output) pairs
    aliases: dict[int, int]  # output -> input whose memory it may take
    bindings: list[tuple[str, int, int, int, int]]  # symbol, argument, axis, least, most
    overlap: bool
    direct: bool
    arguments: int = 0
    prepared: Prepared | None = None
    block: Any = None
    keep: list[Any] = field(default_factory=list)
    calls: int = 0

    @property
    def fits(self) -> bool:
        """Whether the tensors of the surroundings are laid out as they were when this was compiled."""
        return all(tensor.realise()._layout[1:4] == layout  # type: ignore[index]
                   for tensor, layout in zip(self.captured, self.captured_layouts, strict=True))


def dynamic_sizes(given: Mapping[str, Mapping[int, Any]], signature: inspect.Signature) -> dict[str, dict[int, Dim]]:
    result: dict[str, dict[int, Dim]] = {}
    for name, axes in given.items():
        if name not in signature.parameters:
            raise fail(ArgumentError, "compile", f"dynamic= names {name!r}, which is not a parameter of {signature}")
        if not isinstance(axes, Mapping):
            raise fail(ArgumentError, "compile", f"dynamic={{{name!r}: ...}} is not a dict of axis to mo.Dim")
        for axis, dim in axes.items():
            if not isinstance(dim, Dim):
                raise fail(ArgumentError, "compile", f"dynamic size {dim!r} is not a Dim", "use mo.Dim('n', 1, 4096)")
            result.setdefault(name, {})[axis] = dim
    _check_symbols([dim for axes in result.values() for dim in axes.values()])
    return result


def _check_symbols(dims: list[Dim]) -> None:
    """Every symbol must be the size of some axis by itself, with one pair of bounds."""
    known: dict[str, tuple[int, int]] = {}
    for dim in dims:
        for name, limits in dim.symbols.items():
            if known.setdefault(name, limits) != limits:
                raise fail(ArgumentError, "compile", f"the dynamic size {name} has bounds {known[name]} and {limits}",
                           "make one mo.Dim and use it for every axis of that size")
    plain = {name for dim in dims if dim.is_symbol for name in dim.symbols}
    for dim in dims:
        missing = [name for name in dim.symbols if name not in plain]
        if missing:
            raise fail(ArgumentError, "compile", f"the dynamic size {dim} needs an axis of size {missing[0]} itself",
                       "use a symbol of its own for this axis")


def with_sizes(graph: Graph, sizes: Mapping[str, int]) -> list[Node]:
    """The graph with numbers in place of dynamic sizes, for the reference backend."""

    def fix(value: Any) -> Any:
        if isinstance(value, Dim):
            return evaluate(value, sizes)
        if isinstance(value, Spec):
            return Spec(fix(value.shape), value.dtype)
        return tuple(fix(item) for item in value) if isinstance(value, tuple) else value

    from morpho.ir.node import make

    done: dict[int, Node] = {}
    for node in graph.nodes:
        attributes = {name: fix(value) for name, value in node.attributes.items()}
        done[node.serial] = make(node.op, [done[c.serial] for c in node.inputs], attributes)
    return [done[node.serial] for node in graph.outputs]


def capture(nodes: list[Node], trace: Trace) -> tuple[Graph, list[Tensor]]:
    """Tensors of the surroundings that the function uses become inputs after its own; those it names are read anew at
    every call."""
    done: dict[int, Node] = {}
    captured: list[Tensor] = []
    first = trace.next_parameter
    named = {leaf.serial: tensor for tensor, leaf in trace.captured.values()}
    for node in toposort(nodes):
        buffer = evaluation.realised(node)
        if buffer is not None:
            plain = is_contiguous(buffer.shape, buffer.strides)
            extra = {} if plain else {"strides": buffer.strides}
            done[node.serial] = build("parameter", index=first + len(captured), shape=buffer.shape, dtype=buffer.dtype,
                                      **extra)
            captured.append(named[node.serial] if node.serial in named else Tensor.of_buffer(buffer))
        else:
            done[node.serial] = rebuild(node, [done[child.serial] for child in node.inputs])
    return Graph(tuple(done[node.serial] for node in nodes)), captured


def written_after_faults(program: Program, slot: int) -> bool:
    """Whether nothing can fail once this slot is being written, so that a fault leaves the memory it takes unharmed."""
    first = next((n for n, step in enumerate(program.steps) if any(place.slot == slot for place in written(step))), 0)
    return not any(_may_fault(step) for step in program.steps[first:])


def _may_fault(step: Step | HostStep) -> bool:
    if isinstance(step, HostStep):
        return True
    return any(getattr(kernel, "gathers", False) for kernel in (step.kernel, step.epilogue))
