"""A function compiled for one signature, and what tracing needs besides: dynamic sizes, captured tensors, faults."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from morpho.base.dims import Affine
from morpho.base.shapes import is_contiguous
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, make, rebuild, toposort
from morpho.ops.identity import meant
from morpho.passes.memory.arena import aligned
from morpho.program.footprint import Footprint
from morpho.runtime.memory.buffer import Buffer
from morpho.runtime.plans.abstraction import realised
from morpho.runtime.plans.evaluate import ExecutionPlan
from morpho.tensor.autodiff.grad_mode import check_own
from morpho.tensor.core import Tensor
from morpho.tensor.jit.dynamic import Needed
from morpho.tensor.state.native_states import States
from morpho.tensor.state.trace import Trace


class Binding(NamedTuple):
    """Where the number of a symbol is found: an axis of an argument whose size is that line of it."""

    line: Affine
    argument: int
    axis: int
    least: int
    most: int


@dataclass(frozen=True)
class Prepared:
    """Values computed once from constants, and the tensors they were computed from."""

    layouts: list[Any]  # of the captured tensors
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

    plan: ExecutionPlan
    structure: Any  # of the result
    outputs: int
    captured: list[Tensor]
    captured_layouts: list[tuple[Any, ...]]  # shape, strides and dtype they were compiled for
    states: States
    updates: list[tuple[int, int]]  # (state, output) pairs
    aliases: dict[int, int]  # output -> input whose memory it may take
    bindings: list[Binding]
    overlap: bool
    direct: bool
    staged: list[bool]  # per output but updates: a fault may come after its first element was written
    needed: list[Needed]  # dynamic sizes that must not be 0
    least: dict[str, int]  # bounds within which that is sure, for the native entry
    footprint: Footprint
    arguments: int = 0  # tensors among them
    given: list[Any] | None = None  # what a plain call gives by position: LEAF, or what gives the very object
    gather: Callable[..., Any] | None = None  # finds the tensors of other calls, for the native entry
    prepared: Prepared | None = None
    block: Any = None
    keep: list[Any] = field(default_factory=list)
    calls: int = 0
    seconds: list[float] = field(default_factory=list)  # of each step, when `measure` was called
    sizes: dict[str, int] = field(default_factory=dict)  # of the dynamic axes then
    assumed: dict[int, Any] = field(default_factory=dict)  # `Assumption`s that this was compiled for
    notes: list[str] = field(default_factory=list)  # what tracing decided, for `explain`
    signature: int = -1  # its number among the function's
    given_table: Any = None  # the addresses of what is `given`, for the native entry
    used: int = 0  # by a call through Python, in the order of all
    counted: dict[str, int] = field(default_factory=dict)  # sizes that are data, and the most that each can be
    served: ExecutionPlan | None = None  # what the native entry runs for another device, see `entry_plan`
    watched: list[Any] = field(default_factory=list)  # weak references to objects without which this is no use
    # 1 while a call of the native entry runs in `block`; in one that gave up the interpreter lock, how many tensors it
    # writes, and a table of them.
    busy: Any = field(default_factory=ctypes.c_int64 * 3)

    @property
    def entry_plan(self) -> ExecutionPlan:
        """Plan that the native entry runs: the plan itself, or the one launch of a program of another device."""
        return self.served or self.plan

    @property
    def staging_bytes(self) -> int:
        """Memory for results that are moved to the caller's when nothing faulted."""
        program = self.entry_plan.program
        return sum(aligned(program.slots[place.slot].nbytes)
                   for place, staged in zip(program.outputs, self.staged, strict=False) if staged)

    @property
    def is_busy(self) -> bool:
        """Whether a call of the native entry runs, in this thread or another."""
        return bool(self.busy[0])

    @property
    def written(self) -> list[int]:
        """The addresses of the tensors that a call of the native entry is writing to now, in another thread."""
        count, table = self.busy[1], self.busy[2]
        return list((ctypes.c_int64 * count).from_address(table)) if count else []

    @property
    def kept_bytes(self) -> int:
        """Memory that the native entry keeps between calls."""
        return self.entry_plan.workspace_bytes + self.staging_bytes

    @property
    def fits(self) -> bool:
        """Whether the tensors of the surroundings are laid out, and the states lie, as when this was compiled."""
        return self.states.fits and all(layout_of(tensor) == layout
                   for tensor, layout in zip(self.captured, self.captured_layouts, strict=True))


def layout_of(tensor: Tensor) -> tuple[Any, ...]:
    """Properties of a tensor that code is compiled for, besides its address; borrowed memory is never packed."""
    found = tensor.elements()
    return found.shape, found.strides, found.dtype, found.writable, found.device


def _as_written(nodes: list[Node]) -> list[Node]:
    """Every node below, in the order in which the function made them (`passes/loops/roll.py` looks for its turns). What
    does not depend on its arguments may be older than it, and stands before whoever reads it first."""
    below, moving = toposort(nodes), set()
    for node in below:
        if node.op.name == "parameter" or any(child.serial in moving for child in node.inputs):
            moving.add(node.serial)
    seen: set[int] = set()
    own = sorted((node for node in below if node.serial in moving and node.inputs), key=lambda node: node.serial)
    return [child for node in (*own, *nodes) for child in toposort([node], seen)]


def capture(nodes: list[Node], trace: Trace) -> tuple[Graph, list[Tensor]]:
    """Tensors of the surroundings that the function uses become inputs after its own; those it names are read anew at
    every call."""
    done: dict[int, Node] = {}
    captured: list[Tensor] = []
    first = trace.next_parameter
    named = {leaf.serial: tensor for tensor, leaf in trace.captured.values()}
    below = _as_written(nodes)
    check_own(below, trace)
    elements = {node.serial: buffer for node in below if (buffer := realised(node)) is not None}
    read = {node.serial for node in nodes}
    for node in reversed(below):
        if node.serial in read and node.serial not in elements:
            read.update(child.serial for child in node.inputs)
    for node in below:
        if node.serial not in read:
            continue  # what elements that are read as they are were computed from
        buffer = elements.get(node.serial)
        if buffer is not None:
            plain = is_contiguous(buffer.shape, buffer.strides)
            extra = {} if plain else {"strides": buffer.strides}
            done[node.serial] = build("parameter", index=first + len(captured), shape=buffer.shape, dtype=buffer.dtype,
                                      **extra)
            captured.append(named[node.serial] if node.serial in named else Tensor.of_buffer(buffer))
        elif node.op.name == "parameter":  # without the number of its trace: equal functions are one program
            attributes = {name: value for name, value in node.attributes.items() if name != "trace"}
            done[node.serial] = make(node.op, (), attributes, origin=node.origin)
        elif (same := meant(node)) is not None:
            done[node.serial] = done[same.serial]
        else:
            done[node.serial] = rebuild(node, [done[child.serial] for child in node.inputs])
    graph = Graph(tuple(done[node.serial] for node in nodes))
    used = {node.serial for node in graph.nodes}
    graph.written = list(dict.fromkeys(node for node in done.values() if node.serial in used))
    return graph, captured
