"""The grammar of legal programs, checked after every pass in tests."""

from __future__ import annotations

from itertools import combinations

from morpho.program.co_schedule import groups, is_sound
from morpho.program.plan_memory import written
from morpho.program.program import Program, Step


class IllegalProgram(AssertionError):
    """A pass produced a program that breaks the grammar."""


def verify_program(program: Program, after: str, placed: bool = False) -> None:
    """Raise `IllegalProgram` naming the pass if a step reads what nothing wrote, or names no slot; where values are
    `placed`, also if two that are alive at once share memory."""
    problem = _unwritten(program) or (_misplaced(program) if placed else "")
    if problem:
        raise IllegalProgram(f"after {after}: {problem}")


def _unwritten(program: Program) -> str:
    known = {number for number, slot in enumerate(program.slots) if slot.kind == "input" and number not in program.kept}
    for step in (*program.prepare, *program.steps):
        places = [*step.reads, *written(step)]
        if any(not 0 <= place.slot < len(program.slots) for place in places):
            return f"{step.label} names a slot that is not there"
        own = {place.slot for place in written(step)}
        missing = {place.slot for place in step.reads if place.slot not in known} - own
        if missing:
            return f"{step.label} reads slot {min(missing)}, which no earlier step wrote"
        known |= own
    lost = [place.slot for place in program.outputs if place.slot not in known]
    return f"slot {lost[0]} is an output that nothing wrote" if lost else ""


def _misplaced(program: Program) -> str:
    if not is_sound(program):
        return "steps that run together need each other"
    moments = list(range(len(program.steps)))
    for first, group in groups(program.steps):
        moments[first:first + len(group)] = [first] * len(group)
    alive: dict[int, list[int]] = {}
    for moment, step in zip(moments, program.steps, strict=True):
        for place in (*step.reads, *written(step)):
            if program.slots[place.slot].kind == "temporary":
                alive.setdefault(place.slot, [moment, moment])[1] = moment
    for slot in alive:
        if program.slots[slot].offset + program.slots[slot].nbytes > program.arena_bytes and program.slots[slot].nbytes:
            return f"slot {slot} lies outside the arena"
    for one, other in combinations(alive, 2):
        if _share_bytes(program, one, other) and _overlap(program, alive[one], alive[other]):
            return f"slots {one} and {other} are alive at once in the same memory"
    return ""


def _share_bytes(program: Program, one: int, other: int) -> bool:
    a, b = program.slots[one], program.slots[other]
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def _overlap(program: Program, one: list[int], other: list[int]) -> bool:
    """Whether two values are alive at the same time; a step that works in place may end one and begin the other."""
    (_, end), (start, _) = sorted((one, other))
    step = program.steps[start]
    return end > start or (end == start and not (isinstance(step, Step) and step.in_place))
