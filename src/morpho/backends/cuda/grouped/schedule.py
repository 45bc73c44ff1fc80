"""Which steps run as one launch: maps by equal kernels that do not depend on one another, moved to the same moment.

Steps are moved twice. Small ones are put off to the last one of their kind that still comes before anybody needs them
(updates of an optimiser wait for the last gradient). Larger ones are brought forward to the first one of their kind
(casts of weights), as long as what they write takes little memory. No value changes: a step has the operands it had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from morpho.backends.cuda.codegen.maps import MapKernel
from morpho.backends.cuda.codegen.select import device_kernel
from morpho.backends.cuda.grouped.kernel import NOWHERE, GroupKernel, blocks_of
from morpho.backends.cuda.grouped.step import MOST_WORDS, TABLE, GroupStep
from morpho.base.dims import Size, product
from morpho.program.program import AnyStep, Program, Step, span
from morpho.program.view import View

SMALL_BYTES = 1 << 20  # of the operands of a step that may wait
EARLY_BYTES = 32 << 20  # that a step which is brought forward writes
MOST_EARLY_BYTES = 256 << 20  # of all of them together


@dataclass
class Unit:
    """Steps that run at one moment, and the kernel that all of them have, where they may be joined by others."""

    steps: list[Step]
    kernel: MapKernel | None
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for step in self.steps:
            self.reads |= {place.slot for place in step.reads}
            self.writes |= {place.slot for place in step.written}

    def has_room(self) -> bool:
        """Whether a launch holds the numbers of one more."""
        assert self.kernel is not None
        return len(self.steps) < TABLE and _spec(self.kernel, len(self.steps) + 1).words <= MOST_WORDS

    def join(self, other: Unit) -> None:
        """Let it run the steps of another one too."""
        self.steps += other.steps
        self.reads |= other.reads
        self.writes |= other.writes


def grouped(program: Program) -> None:
    """Rewrite a program whose memory is not planned yet: its steps outside loops and branches."""
    found: list[AnyStep] = []
    straight: list[Step] = []
    inside = frozenset(n for n, slot in enumerate(program.slots) if slot.kind == "temporary")
    at = 0
    while at < len(program.steps):
        step, count = program.steps[at], span(program.steps, at)
        if isinstance(step, Step):
            straight.append(step)
        else:
            found += [*arranged(straight, inside), *program.steps[at:at + count]]
            straight = []
        at += count
    program.steps = [*found, *arranged(straight, inside)]


def arranged(steps: Sequence[Step], inside: frozenset[int]) -> list[Step]:
    """Steps without loops and branches among them, some of them as one; `inside`: the slots of temporaries."""
    units = [Unit([step], _map_of(step)) for step in steps]
    units = gathered(units[::-1], lambda unit: _bytes(unit.steps[0].views) <= SMALL_BYTES)[::-1]
    left = MOST_EARLY_BYTES

    def early(unit: Unit) -> bool:
        nonlocal left
        nbytes = sum(_bytes(step.written) for step in unit.steps)
        if len(unit.steps) > 1 or nbytes > min(EARLY_BYTES, left):
            return False
        left -= nbytes
        return True

    return [made(unit, inside) for unit in gathered(units, early)]


def gathered(units: Sequence[Unit], may: Callable[[Unit], bool]) -> list[Unit]:
    """Units in order, each that may joined to the nearest one before it that has the same kernel, where nothing in
    between touches what it touches. Conflicts are the same backwards: reversed units are put off instead."""
    last_read: dict[int, int] = {}
    last_write: dict[int, int] = {}
    found: list[Unit] = []
    places: dict[MapKernel, list[int]] = {}
    for unit in units:
        at = len(found)
        if unit.kernel is not None and may(unit):
            ready = max([*(last_write.get(slot, -1) for slot in unit.reads | unit.writes),
                         *(last_read.get(slot, -1) for slot in unit.writes)], default=-1)
            known = places.setdefault(unit.kernel, [])
            at = next((n for n in reversed(known) if n > ready and found[n].has_room()), at)
            if at == len(found):
                known.append(at)
        if at == len(found):
            found.append(Unit(list(unit.steps), unit.kernel, set(unit.reads), set(unit.writes)))
        else:
            found[at].join(unit)
        for table, slots in ((last_read, unit.reads), (last_write, unit.writes)):
            table.update({slot: max(at, table.get(slot, -1)) for slot in slots})
    return found


def made(unit: Unit, inside: frozenset[int] = frozenset()) -> Step:
    """A unit's steps as one."""
    if len(unit.steps) == 1:
        return unit.steps[0]
    assert unit.kernel is not None
    spec, head = _spec(unit.kernel, len(unit.steps)), unit.steps[0]
    views: list[View | None] = []
    firsts, numbers, writes = [0], [], []
    work: Size = 0
    for step in unit.steps:
        assert isinstance(step.rows, int) and isinstance(step.columns, int)
        pieces, blocks = blocks_of(spec, step.rows, step.columns)
        writes += [len(views) + at for at in step.writes]
        views += step.views
        numbers += [step.rows, step.columns, pieces, *step.values]
        firsts.append(firsts[-1] + blocks)
        work = work + step.rows * step.columns
    firsts = [*firsts[:-1], *[NOWHERE] * (TABLE - spec.count)]
    zeros = [0] * (MOST_WORDS - spec.words)
    return GroupStep(spec, tuple(views), tuple(writes), (*firsts, *numbers, *zeros), 1, work, head.label, head.origin,
                     in_place=all(step.in_place for step in unit.steps), choice=f"{spec.count} at once",
                     held=frozenset(unit.reads & inside))


def _spec(kernel: MapKernel, count: int) -> GroupKernel:
    return GroupKernel(kernel.loop, kernel.places, kernel.numbers, count)


def _map_of(step: Step) -> MapKernel | None:
    """The kernel of a step that others may join: a map of known sizes that looks nothing up."""
    known = all(isinstance(n, int) and n > 0 for n in (step.rows, step.columns))
    if not known or not all(isinstance(n, int) for n in step.values) or step.may_fault or step.checked:
        return None
    if step.kernel.gathered or step.epilogue is not None or step.prologue is not None:
        return None
    if not all(isinstance(place.offset, int) and product(place.shape) != 0 for place in step.written):
        return None
    kernel = device_kernel(step)
    return replace(kernel, turns=1) if isinstance(kernel, MapKernel) else None


def _bytes(views: Sequence[View | None]) -> int:
    """Of all of them, each once."""
    return sum(int(product(place.shape)) * place.dtype.itemsize for place in set(views) if place is not None)
