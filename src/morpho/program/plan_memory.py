"""Lifetimes of a program's temporaries, in-place reuse, and their places in the arena."""

from __future__ import annotations

from morpho.passes.memory.arena import Lifetime, plan
from morpho.program.co_schedule import groups
from morpho.program.program import AnyStep, Program, Step
from morpho.program.view import View


def plan_memory(program: Program, reuse: bool = True, apart: bool = False) -> None:
    """Give every temporary an offset in one arena, writing over dying inputs where that is safe.

    `apart`: no two share memory, at whatever times they are alive, so that one written too early or too late shows.
    """
    moments, beside = _moments(program)
    last = _last_uses(program, moments)
    first_writes: dict[int, int] = {}  # slot -> the moment of the first step that writes it
    for number, step in enumerate(program.steps):
        for place in written(step):
            first_writes.setdefault(place.slot, moments[number])
    shared: dict[int, int] = {}  # slot -> the slot whose memory it takes over
    if reuse:
        for number, step in enumerate(program.steps):
            if isinstance(step, Step) and step.in_place:
                _reuse(program, step, moments[number], last, shared, first_writes, beside.get(number, set()))
    firsts: dict[int, int] = {}
    for number, step in enumerate(program.steps):
        for place in written(step):
            firsts.setdefault(_root(place.slot, shared), moments[number])
    slots = [i for i, slot in enumerate(program.slots) if slot.kind == "temporary" and i not in shared and i in firsts]
    lasts = {i: last.get(i, firsts[i]) for i in slots}
    for slot in shared:
        root = _root(slot, shared)
        lasts[root] = max(lasts[root], last.get(slot, lasts[root]))
    lifetimes = [Lifetime(program.slots[i].nbytes, firsts[i], lasts[i]) for i in slots]
    if not lifetimes:
        return
    found = plan([Lifetime(each.nbytes, 0, len(program.steps)) for each in lifetimes] if apart else lifetimes)
    program.arena_bytes, program.liveness_bytes = found.total, plan(lifetimes).bound if apart else found.bound
    for i, offset in zip(slots, found.offsets, strict=True):
        program.slots[i].offset = offset
    for slot in shared:
        program.slots[slot].offset = program.slots[_root(slot, shared)].offset
        program.reused_bytes += program.slots[slot].nbytes


def _root(slot: int, shared: dict[int, int]) -> int:
    while slot in shared:
        slot = shared[slot]
    return slot


def written(step: AnyStep) -> list[View]:
    return step.written


def _moments(program: Program) -> tuple[list[int], dict[int, set[int]]]:
    """When each step runs: co-scheduled ones at the same moment. And what the others of its launch touch."""
    moments = list(range(len(program.steps)))
    beside: dict[int, set[int]] = {}
    for first, group in groups(program.steps):
        touched = [{place.slot for place in (*step.reads, *written(step))} for step in group]
        for offset in range(len(group)):
            moments[first + offset] = first
            beside[first + offset] = set().union(*touched[:offset], *touched[offset + 1:])
    return moments, beside


def _last_uses(program: Program, moments: list[int]) -> dict[int, int]:
    last: dict[int, int] = {}
    for number, step in enumerate(program.steps):
        for place in (*step.reads, *written(step)):
            last[place.slot] = moments[number]
    return last


def _reuse(program: Program, step: Step, number: int, last: dict[int, int], shared: dict[int, int],
           first_writes: dict[int, int], beside: set[int]) -> None:
    """Let outputs of an elementwise step take the memory of inputs that die here and are read in the same order.

    The step must be the first to write the output: an update or a concatenation writes its result in several steps,
    and the earlier ones would write over an input that is still to be read. So would a step that reads what it wrote
    before, a product that is followed. Nothing that runs at the same time may touch either (`beside`).
    """
    taken: set[int] = set()
    within = {place.slot for place in step.reads} & {place.slot for place in written(step)}
    for output in written(step):
        if first_writes[output.slot] != number or output.slot in beside | within:
            continue
        if program.slots[output.slot].kind != "temporary" or output.slot in shared or output.offset != 0:
            continue
        for source in step.reads:
            slot = program.slots[source.slot]
            views = {(p.offset, p.strides, p.shape) for p in step.reads if p.slot == source.slot}
            if (slot.kind == "temporary" and last[source.slot] == number
                    and source.slot not in taken | step.operands | beside
                    and len(views) == 1 and source.offset == 0 and source.is_contiguous and output.is_contiguous
                    and slot.nbytes == program.slots[output.slot].nbytes and source.shape == output.shape
                    and slot.dtype.itemsize == output.dtype.itemsize):
                shared[output.slot] = source.slot
                taken.add(source.slot)
                break
