"""Hoisting: steps that depend on captured constants alone run once, before the first call, and keep their results.

So weights are packed once. The results take slots after the function's own inputs; the caller fills them by running
`program.prepare`, and again whenever a constant has changed.
"""

from __future__ import annotations

from collections.abc import Collection

from morpho.base.dims import Dim
from morpho.program.plan_memory import written
from morpho.program.program import AnyStep, Program, Step, span


def hoist(program: Program, constants: Collection[int]) -> None:
    """Move the steps whose operands are the inputs `constants`, or results of such steps, to `program.prepare`."""
    fixed = {index for index, slot in enumerate(program.slots) if slot.kind == "input" and slot.index in constants}
    if not fixed:
        return
    writers: dict[int, list[int]] = {}
    for number, step in enumerate(program.steps):
        for place in written(step):
            writers.setdefault(place.slot, []).append(number)
    moved: set[int] = set()
    inside = {n for first in range(len(program.steps)) if (length := span(program.steps, first)) > 1
              for n in range(first, first + length)}
    for number, step in enumerate(program.steps):
        if number not in inside and _can_move(program, step, fixed):
            moved.add(number)
            fixed |= {place.slot for place in written(step) if max(writers[place.slot]) <= number}
    _drop_half_written(program, moved, writers)
    inputs = sum(slot.kind == "input" for slot in program.slots)
    program.prepare = [step for n, step in enumerate(program.steps) if n in moved and isinstance(step, Step)]
    program.steps = [step for n, step in enumerate(program.steps) if n not in moved]
    read = {place.slot for step in program.steps for place in step.reads}
    for slot in sorted({place.slot for step in program.prepare for place in written(step)}):
        program.slots[slot].kind, program.slots[slot].index = "input", inputs + len(program.kept)
        program.kept[slot] = slot in read


def _can_move(program: Program, step: AnyStep, fixed: set[int]) -> bool:
    if not isinstance(step, Step) or step.may_fault:  # an index is found wrong when the function is called
        return False
    if any(isinstance(n, Dim) for n in (*step.values, step.rows, step.columns)):
        return False
    if any(program.slots[place.slot].kind != "temporary" for place in written(step)):
        return False
    own = {place.slot for place in written(step)}
    return bool(step.reads) and all(place.slot in fixed or place.slot in own for place in step.reads)


def _drop_half_written(program: Program, moved: set[int], writers: dict[int, list[int]]) -> None:
    """A slot written by several steps moves with all of them or not at all; so does what reads it."""
    while True:
        broken = {slot for slot, numbers in writers.items() if 0 < len(moved & set(numbers)) < len(numbers)}
        stay = {n for n in moved if any(place.slot in broken for place in (*program.steps[n].reads,
                                                                           *written(program.steps[n])))}
        if not stay:
            return
        moved -= stay
        broken_slots = {place.slot for n in stay for place in written(program.steps[n])}
        moved -= {n for n in moved if any(place.slot in broken_slots for place in program.steps[n].reads)}
