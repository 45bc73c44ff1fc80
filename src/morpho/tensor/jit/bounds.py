"""Lower bounds of kernels: the least time that their bytes, their operations and one launch take on this machine.

Memory beyond the last-level cache gives what `runtime.measure` found, that cache what a sweep over a part of it gives.
Data in caches of cores come at most as fast as fused multiply-adds can take them, four bytes each. Matrix units (AMX)
multiply 16 times as many pairs of half floats, and 32 times as many of bytes, as vectors multiply float32.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import NamedTuple

from morpho.backends.driver import threads
from morpho.base.dims import Size, evaluate, upper
from morpho.base.dtypes import float32
from morpho.base.machine import machine
from morpho.base.target import current_isa
from morpho.base.units import format_bytes
from morpho.cost.estimate import Profile
from morpho.ir.graph import Graph
from morpho.ir.node import build
from morpho.program.program import Program, Step
from morpho.runtime.memory.pool import pool
from morpho.runtime.plans.evaluate import clock, make_plan, run_plan
from morpho.tensor.jit.compiled_function import CompiledFunction

MATRIX_UNITS = {2: 16, 1: 32}  # products of so many bytes, as a multiple of float32 on vectors
WORTH = 0.05  # share of all bounds from which on merging two kernels is named
SWEEP_BYTES, SWEEPS = 16 << 20, 4  # of the last-level cache
LAUNCHES = 200


class StepBound(NamedTuple):
    """Seconds that a kernel needs at least, by what it needs them for."""

    memory_s: float
    arithmetic_s: float
    launch_s: float
    bytes: int
    flops: int

    @property
    def seconds(self) -> float:
        return max(self.memory_s, self.arithmetic_s, self.launch_s)

    @property
    def reason(self) -> str:
        names = {"memory": self.memory_s, "arithmetic": self.arithmetic_s, "launch": self.launch_s}
        return max(names, key=lambda name: names[name])


@cache
def launch_seconds() -> float:
    """The least time of a kernel over one element, as `measure` times it."""
    plan = make_plan(Graph((build("negative", build("parameter", index=0, shape=(1,), dtype=float32)),)), True, 1)
    times: list[float] = []
    block = pool().acquire(128)
    ctypes.memset(block.address, 0, 128)
    for _ in range(LAUNCHES):
        clock.seconds = []
        try:
            run_plan(plan, [block.address], [block.address + 64], {})
        finally:
            times += clock.seconds
            clock.seconds = None
    return min(times)


@cache
def _shared_cache_rate(count: int) -> float:
    from morpho.runtime.measure import read_bandwidth

    return max(read_bandwidth(count, min(SWEEP_BYTES, machine().l3_bytes)) for _ in range(SWEEPS))


def _bytes_per_s(touched_bytes: int, profile: Profile) -> float:
    """The fastest that data of a program's size can come."""
    count = threads.wanted_threads()
    if touched_bytes <= machine().l2_bytes * count:
        return max(profile.bytes_per_s, 2 * profile.flops_per_s)
    if touched_bytes <= machine().l3_bytes:
        return max(profile.bytes_per_s, _shared_cache_rate(count))
    return profile.bytes_per_s


def step_bounds(compiled: CompiledFunction) -> list[StepBound | None]:
    """The bound of each step of the last signature; None for steps of the host and loops."""
    from morpho.runtime.measure import machine_profile

    chosen = compiled.current
    assert chosen is not None
    program, sizes = chosen.plan.program, chosen.sizes
    profile, launch = machine_profile(), launch_seconds()

    def number(size: Size) -> int:
        return evaluate(size, sizes) if sizes else upper(size)

    bytes_per_s = _bytes_per_s(sum(slot.nbytes for slot in program.slots), profile)
    bounds: list[StepBound | None] = []
    for step in program.steps:
        if not isinstance(step, Step):
            bounds.append(None)
            continue
        cost = step.cost_at(number)
        flops_per_s = profile.flops_per_s / step.width
        first = next((place for place in step.views if place is not None), None)
        if step.is_product and first is not None and current_isa().name == "amx":
            flops_per_s = profile.flops_per_s * MATRIX_UNITS.get(first.dtype.itemsize, 1)
        bounds.append(StepBound(cost.bytes / bytes_per_s, cost.flops / flops_per_s, launch, cost.bytes, cost.flops))
    return bounds


def bound_lines(compiled: CompiledFunction) -> list[str]:
    """The bounds as a table, with measured times once `measure` has run, and what other fusions could gain."""
    chosen = compiled.current
    assert chosen is not None
    if not chosen.plan.native:
        return ["bounds", "  known of programs of the CPU only"]
    steps, bounds, seconds = chosen.plan.program.steps, step_bounds(compiled), chosen.seconds
    lines = ["bounds", "        memory  arithmetic      launch    at least" + "    measured  share" * bool(seconds)]
    for place, (step, bound) in enumerate(zip(steps, bounds, strict=True)):
        if bound is None:
            continue
        columns = (bound.memory_s, bound.arithmetic_s, bound.launch_s, bound.seconds)
        times = "".join(f" {1e6 * each:8.1f} us" for each in columns)
        if seconds:
            times += f" {1e6 * seconds[place]:8.1f} us {100 * bound.seconds / seconds[place]:4.0f} %"
        lines.append(f"  {place:3d}{times}  {step.label}: {format_bytes(bound.bytes)}, {bound.flops:.3g} operations, "
                     f"by {bound.reason}")
    known = [(place, bound) for place, bound in enumerate(bounds) if bound is not None]
    total = sum(bound.seconds for _, bound in known)
    measured = sum(seconds[place] for place, _ in known) if seconds else 0.0
    share = f"; measured {1e6 * measured:.1f} us, {100 * total / measured:.0f} %" if measured else ""
    lines.append(f"  all kernels: at least {1e6 * total:.1f} us with {threads.wanted_threads()} threads{share}")
    return lines + _fusion_lines(chosen.plan.program, dict(known), total)


def _fusion_lines(program: Program, bounds: dict[int, StepBound], total: float) -> list[str]:
    """The most that merging a kernel with one that reads its result could gain: the launch, and the value's way through
    memory twice."""
    writers: dict[int, int] = {}
    gains: list[tuple[float, int, int]] = []
    for place, step in enumerate(program.steps):
        if isinstance(step, Step) and place in bounds:
            for view in step.reads:
                if (writer := writers.get(view.slot)) is not None:
                    rate = bounds[place].memory_s / max(bounds[place].bytes, 1)
                    gain = 2 * program.slots[view.slot].nbytes * rate + bounds[place].launch_s
                    together = max(bounds[writer].memory_s + bounds[place].memory_s - gain + bounds[place].launch_s,
                                   bounds[writer].arithmetic_s + bounds[place].arithmetic_s, bounds[place].launch_s)
                    gains.append((bounds[writer].seconds + bounds[place].seconds - together, writer, place))
        for view in step.written:
            writers[view.slot] = place
            if not (isinstance(step, Step) and place in bounds):
                del writers[view.slot]
    worth = sorted((each for each in gains if each[0] > WORTH * total), reverse=True)
    if not worth:
        return ["  no merge of two kernels that share a value could gain 5 % of that"]
    return [f"  merging {writer} and {reader} could gain {1e6 * gain:.1f} us at most, if they could be one kernel"
            for gain, writer, reader in worth[:5]]
