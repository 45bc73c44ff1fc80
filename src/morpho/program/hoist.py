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
    moved = _movable(program, fixed)
    inputs = sum(slot.kind == "input" for slot in program.slots)
    program.prepare = [step for n, step in enumerate(program.steps) if n in moved and isinstance(step, Step)]
    program.steps = [step for n, step in enumerate(program.steps) if n not in moved]
    read = {place.slot for step in program.steps for place in step.reads}
    for slot in sorted({place.slot for step in program.prepare for place in written(step)}):
        program.slots[slot].kind, program.slots[slot].index = "input", inputs + len(program.kept)
        program.kept[slot] = slot in read


def _movable(program: Program, fixed: set[int]) -> set[int]:
    """The steps whose operands are `fixed`, or written by such steps alone.

    A slot written by several steps moves with all of them or not at all, and with it whatever reads it: one step that
    stays keeps its slots, and so their other writers and all readers, however far behind. So does one that stays and
    reads a slot before its last writer: a prepared slot is as it was left.
    """
    inside = {n for first in range(len(program.steps)) if (length := span(program.steps, first)) > 1
              for n in range(first, first + length)}
    moved = {n for n, step in enumerate(program.steps) if n not in inside and _can_move(program, step)}
    written_here = {place.slot for step in program.steps for place in written(step)}
    staying = {place.slot for n, step in enumerate(program.steps) if n not in moved for place in written(step)}
    last = {place.slot: n for n, step in enumerate(program.steps) for place in written(step)}
    while True:
        staying |= {place.slot for n, step in enumerate(program.steps) if n not in moved for place in step.reads
                    if last.get(place.slot, n) > n}
        stay = set()
        for number in sorted(moved):
            step = program.steps[number]
            own = {place.slot for place in written(step)}
            needs = {place.slot for place in step.reads} - fixed
            if needs - written_here or (needs | own) & staying:
                stay.add(number)
                staying |= own
        if not stay:
            return moved
        moved -= stay


def _can_move(program: Program, step: AnyStep) -> bool:
    if not isinstance(step, Step) or step.may_fault:  # an index is found wrong when the function is called
        return False
    if any(isinstance(n, Dim) for n in (*step.values, step.rows, step.columns)):
        return False
    return bool(step.reads) and all(program.slots[place.slot].kind == "temporary" for place in written(step))
