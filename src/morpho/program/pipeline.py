"""The pipeline over lowered programs: passes that are named, timed and verified like those over graphs.

| pass | what it does |
|---|---|
| hoist | steps that read constants alone run once, before the first call |
| co_schedule | independent small kernels run concurrently |
| memory | temporaries get places in one arena, in place of dying inputs where that is safe |
| footprint | the bytes of one call are counted |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.passes import pipeline
from morpho.passes.memory.liveness import Updates
from morpho.program.co_schedule import join_steps
from morpho.program.footprint import Footprint, footprint
from morpho.program.hoist import hoist
from morpho.program.plan_memory import plan_memory
from morpho.program.program import Program
from morpho.program.verify import verify_program

Rows = dict[str, dict[str, float]]  # by pass: steps before and after, milliseconds


@dataclass
class ProgramContext:
    """Input of the passes besides the program, and the footprint that the last of them finds."""

    threads: int
    thresholds: DispatchThresholds
    constants: Collection[int] = ()  # inputs that seldom change
    updates: Updates = ()  # (output, input) pairs where the output may take the input's memory
    own_outputs: bool = False
    concurrent: bool = True  # whether independent small kernels may run together
    reuse: bool = True  # whether a result may be written over an input that dies
    apart: bool = False  # no two values share memory, so that one written too early or too late shows
    footprint: Footprint | None = None


@dataclass(frozen=True)
class ProgramPass:
    """One pass, which changes the program in place."""

    name: str
    run: Callable[[Program, ProgramContext], None]


def _hoist(program: Program, context: ProgramContext) -> None:
    hoist(program, context.constants)


def _co_schedule(program: Program, context: ProgramContext) -> None:
    if context.concurrent:
        join_steps(program, context.threads, context.thresholds, context.updates, context.own_outputs)


def _memory(program: Program, context: ProgramContext) -> None:
    plan_memory(program, context.reuse, context.apart)


def _footprint(program: Program, context: ProgramContext) -> None:
    context.footprint = footprint(program, context.updates, context.threads)


PASSES = (ProgramPass("hoist", _hoist), ProgramPass("co_schedule", _co_schedule), ProgramPass("memory", _memory),
          ProgramPass("footprint", _footprint))


def finish(program: Program, context: ProgramContext) -> Rows:
    """Run the passes over a lowered program; returns what each did."""
    rows: Rows = {}
    placed = False
    for each in PASSES:
        started, before = time.perf_counter(), len(program.steps)
        each.run(program, context)
        rows[each.name] = {"before": before, "after": len(program.steps), "ms": 1e3 * (time.perf_counter() - started)}
        placed = placed or each.name == "memory"
        if pipeline.checking:
            verify_program(program, each.name, placed)
    return rows
