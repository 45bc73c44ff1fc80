"""Evaluation: abstract the graph, look up or make its execution plan, allocate, run.

Plans are keyed by the identity of the abstracted graph: interning makes equal programs the same object, so a repeated
expression finds its plan by a tuple of serial numbers.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import morpho.ops  # noqa: F401  (fills the registry)
from morpho.backends.code import elementwise
from morpho.backends.code.compiler import code
from morpho.backends.code.emit import FAULT_INTERRUPT
from morpho.backends.driver import host_call, interrupts, threads
from morpho.backends.driver.executable import Executable
from morpho.backends.registry import HOST
from morpho.base import settings
from morpho.base.dims import Size
from morpho.base.errors import ArgumentError, DeviceError, MorphoError, fail
from morpho.base.shapes import contiguous_strides, is_contiguous
from morpho.base.target import current_target
from morpho.base.units import format_bytes
from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.cost.estimate import bytes_avoided, graph_cost
from morpho.ir.deferred import DeferredGraph
from morpho.ir.graph import Graph
from morpho.ir.node import Node, has_symbols, make
from morpho.ir.op import REGISTRY
from morpho.ir.op import changes as registry_changes
from morpho.ops import collective
from morpho.passes.fusion import candidates
from morpho.passes.memory.liveness import Updates
from morpho.passes.pipeline import MEMORY, Report, optimise, switched_off
from morpho.passes.remat.remat import Budget
from morpho.program.pipeline import ProgramContext, Rows, finish
from morpho.program.program import HostStep, Program
from morpho.program.view import View
from morpho.runtime import thresholds
from morpho.runtime.code_cache.cache import BoundedCache
from morpho.runtime.memory.buffer import Buffer, allocate
from morpho.runtime.memory.pool import pool
from morpho.runtime.plans import on_device, stored_plan
from morpho.runtime.plans.abstraction import abstract
from morpho.runtime.plans.faults import MATRICES, host_fault, index_fault, matrix_fault
from morpho.runtime.plans.stored_plan import StoredPlan
from morpho.runtime.trace.spans import is_first_value, span
from morpho.runtime.tuner import background

log = logging.getLogger("morpho")
candidates.NATIVE.update(name for name in REGISTRY if elementwise.supported(name))


@dataclass
class Counts:
    """Process-wide counters that tests and `explain` read."""

    realisations: int = 0
    plans: int = 0
    optimised: int = 0  # graphs taken through the passes
    kernels_run: int = 0
    host_steps: int = 0
    fallbacks: int = 0
    copies: int = 0
    syncs: int = 0  # realisations forced by data-dependent shapes or Python values
    cuts: int = 0  # lazy programs computed because they had become too deep
    said: set[str] = field(default_factory=set)
    growing: int = 0  # programs compiled by lazy evaluation, each longer than the one before
    longest: int = 0  # operations of the last of them


counts = Counts()
watchers: list[Callable[[Any], None]] = []  # told every plan that is made
EMPTY: Mapping[int, Buffer] = MappingProxyType({})
clock = threading.local()  # .seconds: a list that gets the time of every step run in this thread, or None; .sizes then


@dataclass(frozen=True)
class Made:
    """Result of the passes and the lowering."""

    optimised: Graph
    program: Program
    report: Report
    milliseconds: dict[str, float]


@dataclass
class ExecutionPlan:
    """A compiled graph."""

    graph: Graph  # the abstracted graph: held, because its identity is the key
    program: Program
    executable: Executable | None  # None for another device than the CPU
    report: Report
    milliseconds: dict[str, float]
    before: dict[str, float]  # the code cache's counters around this plan
    after: dict[str, float]
    remake: Callable[..., Made]
    chosen: settings.Settings  # that it was made under
    made: Made | None  # None of a plan from disk, until someone looks inside
    known: dict[str, int]  # figures a plan from disk brings along
    prepare: Executable | None = None  # what runs once on the constants
    lines: dict[int, str] = field(default_factory=dict)  # of the graph's nodes, by serial, when it was planned
    device: str = HOST  # that runs it
    constants: Collection[int] = ()  # inputs that seldom change

    @property
    def native(self) -> bool:
        """Whether it is code of the CPU, which the native entry calls."""
        return self.device == HOST

    @property
    def native_code(self) -> Executable:
        """The code of a plan for the CPU."""
        assert self.executable is not None, "another device runs it"
        return self.executable

    @property
    def optimised(self) -> Graph:
        """The graph after the passes."""
        return self._inside().optimised

    @property
    def lowered(self) -> Program:
        """The program with its kernels as data, which a plan from disk has as code alone."""
        return self._inside().program

    def _inside(self) -> Made:
        """A plan from disk goes through the passes when someone looks inside, no sooner."""
        if self.made is None:
            with settings.of(self.chosen):
                self.made = self.remake()
        return self.made

    def texts(self) -> dict[str, str]:
        """The graph in words as it was traced and after each pass, under the settings and the budget it was compiled
        with, whatever the caller's are."""
        with settings.of(self.chosen):
            return self.remake(keep_texts=True).report.texts

    def figures(self) -> dict[str, int]:
        """Operations, and bytes through memory and spared, as `stats` shows them."""
        if not self.known:
            cost = graph_cost(self.optimised)
            self.known = {"bytes_avoided": bytes_avoided(self.optimised), "flops": cost.flops,
                          "bytes_moved": cost.bytes}
        return self.known

    @property
    def workspace_bytes(self) -> int:
        """The most memory one call needs for temporaries and scratch."""
        return self.program.arena_bytes + (0 if self.executable is None else self.executable.scratch_bytes)


# -- plans -----------------------------------------------------------------------------------------------------------
PLAN_BYTES = 64 << 20  # bytes of plans kept in memory
MANY_GROWING = 20  # evaluations in a row, each of a longer program, after which the user is told
MOST_BYTES = 1 << 46  # of an arena: no machine has more
_plans: BoundedCache[tuple[Any, ...], ExecutionPlan] = BoundedCache(PLAN_BYTES, "plans")


def plan_bytes(plan: ExecutionPlan) -> int:
    """Roughly what a plan keeps in memory: tables and nodes."""
    return 8192 + 2048 * (len(plan.program.steps) + len(plan.graph.nodes))


def plan_key(graph: Graph, own_outputs: bool) -> tuple[Any, ...]:
    chosen = settings.get()
    return (tuple(node.serial for node in graph.outputs), own_outputs, chosen.code_key(), threads.wanted_threads(),
            thresholds.current(), registry_changes())


def plan_for(graph: Graph, inputs: int, own_outputs: bool = False) -> ExecutionPlan:
    """The plan of an abstracted graph, made once."""
    def make() -> ExecutionPlan:
        _look_for_growth(len(graph.nodes))
        return make_plan(_of_numbers(graph), own_outputs, inputs)

    return _plans.get_or_create(plan_key(graph, own_outputs), make, plan_bytes)


def _look_for_growth(nodes: int) -> None:
    """Say once that a loop carries a lazy tensor on, so that each turn compiles a longer program than the last."""
    counts.growing = counts.growing + 1 if nodes > counts.longest else 0
    counts.longest = nodes
    if counts.growing == MANY_GROWING and "growing" not in counts.said:
        counts.said.add("growing")
        log.warning("each of the last %d evaluations compiled a longer program than the one before, now of %d "
                    "operations: call x.realise() on a tensor that a loop carries on, or compile the loop's body",
                    MANY_GROWING, nodes)


def _of_numbers(graph: Graph) -> Graph:
    """The graph itself; an error where it has a size that is no number, as nothing says which one it is here."""
    for node in filter(has_symbols, graph.nodes):
        raise fail(ArgumentError, node.op.name, f"a size of {node.dtype}{node.shape} is a mo.Dim, which is a number "
                                                "only while a compiled function runs",
                   "give a number here; inside a function compiled with dynamic=, use its argument's x.shape[axis] "
                   "and ask for no values", line=node.origin)
    return graph


def make_plan(graph: Graph, own_outputs: bool, inputs: int, device: str = HOST,
              guards: Sequence[Sequence[Size]] = (), whole: bool = False, constants: Collection[int] = (),
              on_disk: bool = False, updates: Updates = (), budget: Budget | None = None) -> ExecutionPlan:
    """Optimise, lower, plan memory, compile. `whole` refuses host steps; `constants` are inputs that seldom change;
    with `on_disk` the finished plan is looked for on disk first, and kept there; `updates` are (output, input) pairs
    where the output is to take the input's memory, if it can; with a `budget` a call needs no more memory than that.
    For another device than the CPU nothing is compiled here: its backend does that (`on_device.py`)."""
    with span("compile", f"{len(graph)} nodes") as told:
        plan = _make_plan(graph, own_outputs, inputs, device, guards, whole, constants, on_disk, updates, budget)
        told |= {"nodes": len(graph), "steps": len(plan.program.steps), "stored": plan.made is None,
                 "llvm": int(plan.after["compiled"] - plan.before["compiled"]), "first": is_first_value()}
        return plan


def _make_plan(graph: Graph, own_outputs: bool, inputs: int, device: str, guards: Sequence[Sequence[Size]], whole: bool,
               constants: Collection[int], on_disk: bool, updates: Updates, budget: Budget | None) -> ExecutionPlan:
    counts.plans += 1
    # Others may write the same program elsewhere. Of a kept graph nobody has looked at a node yet.
    lines = {} if isinstance(graph, DeferredGraph) else {node.serial: node.origin for node in graph.nodes}
    before = code.counters.snapshot()
    started = time.perf_counter()
    native = device == HOST
    key = stored_plan.plan_key(graph, own_outputs, inputs, constants, updates, budget) if on_disk and native else None
    found = stored_plan.load(key, graph, inputs) if key is not None else None
    looked = time.perf_counter()
    remake = partial(_make, graph, own_outputs, inputs, constants, settings.get(), updates, budget,
                     thresholds.current())
    made = None
    whole_plan: Any = found
    if not native and budget is None:  # the program that runs there: the CPU's is made when somebody asks for it
        whole_plan = on_device.own_program(graph, device)
    if whole_plan is None:
        whole_plan = made = _compiled(remake, len(graph), whole) if native else remake()
    program, report = whole_plan.program, whole_plan.report
    _refuse(program, whole)
    lowered = time.perf_counter()
    executable = Executable(program, program.steps, thresholds.current(), guards) if native else None
    prepare = Executable(program, program.prepare, thresholds.current()) if program.prepare and native else None
    ended = time.perf_counter()
    milliseconds = {"passes": 0.0, "lower": 0.0} if made is None else dict(made.milliseconds)
    milliseconds["code"] = milliseconds.get("code", 0.0) + 1e3 * (ended - lowered)
    milliseconds["plan"] = 1e3 * (looked - started)
    plan = ExecutionPlan(graph, program, executable, report, milliseconds, before, code.counters.snapshot(), remake,
                settings.get(), made, {} if found is None else found.figures, prepare, lines, device, constants)
    for watcher in watchers:
        watcher(plan)
    if plan.chosen.tune == "background":
        background.note(plan)
    if key is not None and found is None and program.is_kept:
        stored_plan.save(key, graph, StoredPlan(program, report, plan.figures()))
        milliseconds["plan"] += 1e3 * (time.perf_counter() - ended)
    return plan


def _compiled(make: Callable[..., Made], nodes: int, whole: bool) -> Made:
    """Make a program, its kernels compiled from the moment each is known."""
    from morpho.backends.code.compiler.compilation import Compilation

    with Compilation(nodes) as compilation:
        made = make(compilation.offer)
        _refuse(made.program, whole)  # before the wait for LLVM
        started = time.perf_counter()
        compilation.finish()
        made.milliseconds["code"] = 1e3 * (time.perf_counter() - started)
        return made


def _make(graph: Graph, own_outputs: bool, inputs: int, constants: Collection[int], chosen: settings.Settings,
          updates: Updates, budget: Budget | None, dispatch: DispatchThresholds,
          announce: Callable[[Any], None] | None = None, keep_texts: bool = False) -> Made:
    from morpho.backends.lowering.lower_graph import build_program  # a plan from disk needs no lowering

    counts.optimised += 1
    started = time.perf_counter()

    def lower(fused: Graph, announce: Callable[[Any], None] | None = None) -> tuple[Program, ProgramContext, Rows]:
        program = build_program(fused, own_outputs, inputs, current_target(), constants, dispatch, announce)
        # What runs together is alive together: not where values are computed again to save memory.
        thrifty = budget is not None or any(node.op.name == "remat_barrier" for node in fused.nodes)
        apart = MEMORY in switched_off(chosen.passes_off)
        context = ProgramContext(threads.wanted_threads(), dispatch, constants, updates, own_outputs,
                                 concurrent=chosen.co_schedule and chosen.level > 0 and not thrifty,
                                 reuse=chosen.level > 0 and not apart, apart=apart)
        return program, context, finish(program, context)

    def needed(fused: Graph) -> int:
        found = lower(fused)[1].footprint
        assert found is not None
        return found.total

    optimised, report = optimise(graph, chosen.level, chosen.passes_off, keep_texts, updates, budget, needed)
    middle = time.perf_counter()
    program, _, report.program = lower(optimised, announce)
    return Made(optimised, program, report, {"passes": 1e3 * (middle - started),
                                             "lower": 1e3 * (time.perf_counter() - middle)})


def _refuse(program: Program, whole: bool) -> None:
    """Say what cannot be run: more memory than any machine has, or host steps in a function that is to be whole."""
    from morpho.base.errors import CompileError

    if program.arena_bytes > MOST_BYTES:
        raise fail(ArgumentError, "compile", f"at the upper bounds of its dynamic sizes the function needs "
                                             f"{format_bytes(program.arena_bytes)} for temporaries",
                   "give mo.Dim a smaller upper bound")
    for step in program.steps if whole else ():
        if isinstance(step, HostStep):
            raise fail(CompileError, "compile", f"{step.label} runs on the host and splits the function",
                       "leave out whole=True, or compute it outside", line=step.origin)


def prepare(plan: ExecutionPlan, inputs: Sequence[int], known: Mapping[int, Buffer] = EMPTY) -> list[Buffer | None]:
    """Run what depends on constants alone. The memory of each kept slot, None where only the preparation needed it.
    Slots that are `known` are taken as they are."""
    if plan.prepare is None:
        return []
    program, executable = plan.program, plan.prepare
    made = [known[slot] if slot in known else allocate(
        (int(_static(program.slots[slot].elements)),), program.slots[slot].dtype) for slot in program.kept]
    if known:
        left = [step for step in program.prepare if any(place.slot not in known for place in step.written)]
        if not left:
            return [buffer if read else None for buffer, read in zip(made, program.kept.values(), strict=True)]
        executable = Executable(program, left, thresholds.current())
    results = sum(slot.kind == "result" for slot in program.slots)
    scratch = executable.scratch_needed({})
    block = pool().acquire(program.arena_bytes + scratch) if program.arena_bytes + scratch else None
    counts.kernels_run += len(executable.steps)
    executable.run([*inputs, *[buffer.address for buffer in made], *[0] * results], {},
                     block.address if block is not None else 0)
    return [buffer if read else None for buffer, read in zip(made, program.kept.values(), strict=True)]


# -- running ---------------------------------------------------------------------------------------------------------
def run_plan(plan: ExecutionPlan, inputs: Sequence[int], results: Sequence[int], sizes: Mapping[str, int],
             outputs: Sequence[Node] | None = None) -> None:
    """Run with the addresses of inputs and results. `outputs` is the program as the user wrote it, for its lines."""
    executable = plan.native_code
    total = plan.program.arena_bytes + executable.scratch_needed(sizes)
    block = pool().acquire(total) if total else None
    arena = block.address if block is not None else 0
    pointers, seconds = [*inputs, *results], getattr(clock, "seconds", None)
    if seconds is not None:
        clock.sizes = sizes
    counts.kernels_run += executable.native_steps
    status = executable.run(pointers, sizes, arena) if seconds is None else \
        executable.run_timed(pointers, sizes, arena, seconds)
    if status:
        raise fault_of(plan, status, outputs)


def fault_of(plan: ExecutionPlan, status: int, outputs: Sequence[Node] | None = None) -> BaseException:
    """The error behind the status of a run in this thread. `outputs` as of `run_plan`."""
    if status & FAULT_INTERRUPT:
        return interrupts.raised()
    given, lines = (plan.graph.outputs, plan.lines) if outputs is None else (outputs, {})
    step = plan.native_code.faulty(status)
    if isinstance(step, HostStep):
        error = plan.native_code.host_error(status)
        return host_fault(given, step, lines, error) if isinstance(error, MorphoError) else error
    code = status & 0xFFFFFFFF
    return matrix_fault(given, step, code, lines) if code in MATRICES else index_fault(given, step, lines, realise)


def _count_host_step(step: HostStep) -> None:
    counts.host_steps += 1
    if step.fallback:
        _say_fallback(step)


host_call.tell(_count_host_step)


def _say_fallback(step: HostStep) -> None:
    counts.fallbacks += 1
    if step.label not in counts.said:
        counts.said.add(step.label)
        log.warning("%s has no native code here and runs in NumPy (said once; counted in stats)", step.label)


def realise(outputs: Sequence[Node]) -> list[Buffer]:
    """Compute nodes; views of realised data come back as views, without moving a byte."""
    with span("realise", outputs[0].op.name if outputs else "") as told:
        told["line"] = outputs[0].origin if outputs else ""
        return _realise(outputs)


def _realise(outputs: Sequence[Node]) -> list[Buffer]:
    counts.realisations += 1
    device = device_of(outputs)
    graph, buffers = abstract(outputs, lift=device == HOST)
    if sum(node.op.kind == "collective" for node in graph.nodes) > 1:
        graph = Graph(tuple(collective.in_common_order(graph.nodes, graph.outputs)))
    if device != HOST:
        return on_device.realise(_of_numbers(graph), buffers, device)
    plan = plan_for(graph, len(buffers))
    counts.copies += plan.program.copies
    results = [allocate((int(_static(slot.elements)),), slot.dtype) for slot in plan.program.slots
               if slot.kind == "result"]
    run_plan(plan, [b.address for b in buffers], [b.address for b in results], {}, outputs)
    return [_output(plan.program, place, buffers, results) for place in plan.program.outputs]


def _static(size: Size) -> int:
    assert isinstance(size, int)
    return size


def _output(program: Program, place: View, inputs: Sequence[Buffer], results: Sequence[Buffer]) -> Buffer:
    slot = program.slots[place.slot]
    base = inputs[slot.index] if slot.kind == "input" else results[slot.index]
    address = base.address + _static(place.offset) * place.dtype.itemsize
    strides: Any = place.strides  # of an axis of one element they may be any; native guards know the usual ones
    if is_contiguous(place.shape, strides):
        strides = contiguous_strides(place.shape)
    return Buffer(base.storage, address, place.shape, strides, place.dtype, base.writable)  # type: ignore[arg-type]


def device_of(outputs: Sequence[Node]) -> str:
    """The device that computes a program: where its values lie, else that of the settings. What lies in the CPU's
    memory is computed by the device of the settings, where that shares it."""
    found = next((node.device for node in outputs if node.device), "")
    for node in outputs:
        if node.device not in ("", found):
            raise fail(DeviceError, "realise", f"values on {found} and on {node.device} are needed by one evaluation",
                       "evaluate the values of one device at a time")
    return on_device.running(found)


_data_numbers = itertools.count(1)


def leaf(buffer: Buffer, placed: bool = True) -> Node:
    """A data leaf: keyed by a serial number, never by an address. One that nobody has `placed` goes with any device."""
    from morpho.ops.sources import DATA

    return make(DATA, (), {"number": next(_data_numbers), "shape": buffer.shape, "dtype": buffer.dtype}, payload=buffer,
                device=buffer.device if placed else "")

