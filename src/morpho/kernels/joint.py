"""Joint launches: steps that need nothing of each other, each too small for threads, run together on all of them.

Groups are gathered before memory is planned: a step moves up to an earlier one where nothing in between minds, and the
planner keeps apart what is alive at the same time. What was planned, or read from disk, is checked again on bytes.
Pieces of all steps of a group stand in one list, from which threads take. A piece writes outputs of its own, so bits do
not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from morpho.cost.crossovers import Crossovers
from morpho.kernels.place import Place
from morpho.kernels.program import HostStep, Program, Step
from morpho.passes.liveness import Updates

WORK_PER_THREAD = 1 << 20  # below this much work (columns x operations) a second thread costs more than it gives
LEAST_OF = {"one": 1 << 62, "many": 0}  # work above which a step is shared that must not be, or must
CHUNKS_PER_THREAD, TILES_PER_THREAD = 4, 64
COLUMNS_TOGETHER = 1024  # pieces of rows are whole numbers of these
# In units of the least work that is worth two threads:
WORTH = 0.5  # what a joint launch saves at least; a step of that least work, by itself, saves as much
LEAST_SHARE = 1 / 16  # of a step that is worth a piece; what is smaller moves out of the way of others
MOST_SHARE = 16.0  # of a group: what it holds at a time is bounded, and more of it would not be faster
MOST_STEPS = 64
AHEAD = 32  # steps that are looked through for others to join

Bytes = tuple[int, int]  # from, to before


# -- how steps are divided ---------------------------------------------------------------------------------------------
def least_work(step: Step, crossovers: Crossovers) -> int:
    """The work above which a step is divided among threads: products have a crossover of their own."""
    usual = crossovers.shared_points * step.work if step.is_product else WORK_PER_THREAD
    return LEAST_OF.get(step.threads, min(usual, LEAST_OF["one"]))


def pieces_per_thread(step: Step) -> int:
    """Into how many pieces per thread a step is divided: tiles of a product one by one, as they differ in size."""
    if step.epilogue is not None:
        return TILES_PER_THREAD
    return 1 if getattr(step.kernel, "transposed", False) else CHUNKS_PER_THREAD


def by_columns(step: Step, threads: int) -> bool:
    """Whether columns are divided and not rows, as the driver decides it."""
    return step.splits_columns and step.rows < threads * CHUNKS_PER_THREAD  # type: ignore[operator]


def extent(step: Step, threads: int) -> int:
    """How many rows, or columns, there are to divide."""
    return step.columns if by_columns(step, threads) else step.rows  # type: ignore[return-value]


def share_of(step: Step, crossovers: Crossovers) -> float:
    """The work of a step in units of the least that is worth two threads."""
    return step.rows * step.columns * step.work / max(least_work(step, crossovers), 1)  # type: ignore[operator]


def _runs_alone(step: Step | HostStep, threads: int, crossovers: Crossovers) -> bool:
    """Whether a step has known sizes and would not be divided: too little work, or nothing to divide."""
    if isinstance(step, HostStep) or step.threads != "auto":
        return False
    if not isinstance(step.rows, int) or not isinstance(step.columns, int):
        return False
    share = share_of(step, crossovers)
    return share >= LEAST_SHARE and (share <= 1 or extent(step, threads) <= 1)


def _is_worth(group: Sequence[Step], threads: int, crossovers: Crossovers) -> bool:
    """Whether several threads save enough; what cannot be divided takes one of them its time."""
    shares = [share_of(step, crossovers) for step in group]
    longest = max(share / min(extent(step, threads), threads) for share, step in zip(shares, group, strict=True))
    return len(group) > 1 and sum(shares) - max(sum(shares) / threads, longest) >= WORTH


# -- what steps touch --------------------------------------------------------------------------------------------------
class Touched:
    """Slots that some steps read, and bytes of slots that they write, with those that may be the same memory."""

    def __init__(self, program: Program, aliases: Iterable[tuple[int, int]] = ()) -> None:
        self.program = program
        self.aliases: dict[int, set[int]] = {}  # slot of a result -> slots of inputs it may be written over
        for result, source in aliases:
            self.aliases.setdefault(result, set()).add(source)
        self.reads: set[int] = set()
        self.writes: dict[int, list[Bytes]] = {}
        self.over: set[int] = set()  # inputs that may be written over
        self.faulty = False  # whether some check indices

    def add(self, step: Step) -> None:
        self.reads.update(place.slot for place in step.reads)
        for place in step.written:
            self.writes.setdefault(place.slot, []).append(_bytes_of(place))
            self.over |= self.aliases.get(place.slot, set())
        self.faulty |= _checks(step)

    def conflicts(self, step: Step) -> bool:
        """Whether the step writes what these read or write, or reads what they write."""
        if any(place.slot in self.writes or place.slot in self.over for place in step.reads):
            return True
        for place in step.written:
            if place.slot in self.reads or not self.reads.isdisjoint(self.aliases.get(place.slot, ())):
                return True
            first, last = _bytes_of(place)
            if any(first < end and start < last for start, end in self.writes.get(place.slot, ())):
                return True
        return False

    def keeps_back(self, step: Step) -> bool:
        """Whether the step must stay behind these: a fault is reported by the first step that finds it, and found
        before memory of the caller's is written."""
        return self.faulty and (_checks(step) or self.writes_results(step))

    def writes_results(self, step: Step) -> bool:
        return any(self.program.slots[place.slot].kind == "result" for place in step.written)


def _checks(step: Step) -> bool:
    """Whether its kernels check indices, also those that an earlier step has found right."""
    return any(getattr(kernel, "may_fault", False) for kernel in (step.kernel, step.epilogue))


def _bytes_of(place: Place) -> Bytes:
    """From the first to behind the last element of a place, within its slot."""
    first = last = place.offset
    for size, stride in zip(place.shape, place.strides, strict=True):
        if not isinstance(size, int) or not isinstance(stride, int):
            return 0, 1 << 62
        if size == 0:
            return 0, 0
        first, last = first + min((size - 1) * stride, 0), last + max((size - 1) * stride, 0)
    itemsize = place.dtype.itemsize
    known = isinstance(first, int) and isinstance(last, int)
    return (first * itemsize, (last + 1) * itemsize) if known else (0, 1 << 62)  # type: ignore[return-value]


def possible_aliases(program: Program, updates: Updates) -> set[tuple[int, int]]:
    """Results that may be written over inputs: states over their old values, and the only result, given as `out=`, over
    any argument."""
    inputs = {slot.index: number for number, slot in enumerate(program.slots)
              if slot.kind == "input" and number not in program.kept}
    found = {(program.outputs[output].slot, inputs[index]) for output, index in updates if index in inputs}
    if len(program.outputs) - len(updates) == 1:
        found |= {(program.outputs[0].slot, number) for number in inputs.values()}
    return found


# -- which steps -------------------------------------------------------------------------------------------------------
def join_steps(program: Program, threads: int, crossovers: Crossovers, updates: Updates, own_outputs: bool) -> None:
    """Put the steps of each group in a row and mark them: `together` of the first says how many, of the others 0."""
    if threads < 2:
        return
    aliases = possible_aliases(program, updates) if own_outputs else set()
    alone = {id(step) for step in program.steps if _runs_alone(step, threads, crossovers)}
    waiting, done = list(reversed(program.steps)), []
    while waiting:
        first = waiting[-1]
        if len(alone) > 1 and isinstance(first, Step) and id(first) in alone:
            before, group = _gathered(program, waiting, alone, crossovers, aliases)
            if _is_worth(group, threads, crossovers):
                taken = {id(step) for step in (*before, *group)}
                waiting = [step for step in waiting if id(step) not in taken]
                done += [*before, *group]
                _mark(group)
                continue
        done.append(waiting.pop())
    program.steps = done


def _gathered(program: Program, waiting: Sequence[Step | HostStep], alone: set[int], crossovers: Crossovers,
              aliases: set[tuple[int, int]]) -> tuple[list[Step], list[Step]]:
    """The next step and those soon after it that can run at the same time, and small ones that those need and that can
    run before all of them; `waiting` has the next one last."""
    before: list[Step] = []
    group: list[Step] = []
    chosen, passed = Touched(program, aliases), Touched(program, aliases)
    share = 0.0
    for step in waiting[:-AHEAD - 1:-1]:
        if isinstance(step, HostStep) or share >= MOST_SHARE or len(group) == MOST_STEPS:
            break
        # In a group faults keep their order; a step that may fault itself writes results elsewhere first.
        early = chosen.faulty and not step.may_fault and chosen.writes_results(step)
        ready = not chosen.conflicts(step) and not passed.conflicts(step) and not passed.keeps_back(step)
        if ready and id(step) in alone and not early:
            group.append(step)
            chosen.add(step)
            share += share_of(step, crossovers)
        elif ready and _is_tiny(step, crossovers) and not chosen.keeps_back(step):
            before.append(step)
        else:
            passed.add(step)
    return before, group


def _is_tiny(step: Step, crossovers: Crossovers) -> bool:
    """Whether a step of known sizes is too small to be a piece."""
    known = isinstance(step.rows, int) and isinstance(step.columns, int) and step.threads == "auto"
    return known and share_of(step, crossovers) < LEAST_SHARE


def _mark(group: Sequence[Step]) -> None:
    for step in group:
        step.together = 0
    group[0].together = len(group)


def groups(steps: Sequence[Step | HostStep]) -> Iterator[tuple[int, list[Step]]]:
    """The joint launches among steps: number of the first, and all of each."""
    for number, step in enumerate(steps):
        if isinstance(step, Step) and step.together > 1:
            yield number, [other for other in steps[number:number + step.together] if isinstance(other, Step)]


# -- checking ----------------------------------------------------------------------------------------------------------
def is_sound(program: Program) -> bool:
    """Whether groups are whole, of known sizes, and their steps apart where their values lie in memory now."""
    expected = 0  # steps still to come of a group
    for step in program.steps:
        together = step.together if isinstance(step, Step) else 1
        if (together == 0) != (expected > 0) or together < 0:
            return False
        expected = expected - 1 if expected else together - 1
    known = all(isinstance(size, int) for _, group in groups(program.steps) for step in group
                for size in (step.rows, step.columns))
    return not expected and known and all(_are_apart(program, group) for _, group in groups(program.steps))


def _are_apart(program: Program, group: Sequence[Step]) -> bool:
    """Whether no step writes bytes that another one reads or writes; what is read may be anywhere in its slot."""
    writes = [[_lies(program, place, _bytes_of(place)) for place in step.written] for step in group]
    reads = [[_lies(program, place, (0, program.slots[place.slot].nbytes)) for place in step.reads] for step in group]
    return not any(where == there and first < end and start < last
                   for one in range(len(group)) for other in range(len(group)) if one != other
                   for where, first, last in writes[one] for there, start, end in (*reads[other], *writes[other]))


def _lies(program: Program, place: Place, within: Bytes) -> tuple[int, int, int]:
    """Bytes of a slot; temporaries share one arena."""
    slot = program.slots[place.slot]
    return (-1, slot.offset + within[0], slot.offset + within[1]) if slot.kind == "temporary" else (place.slot, *within)


# -- pieces ------------------------------------------------------------------------------------------------------------
def pieces(group: Sequence[Step], threads: int, crossovers: Crossovers) -> list[tuple[int, int, int, int, int]]:
    """All pieces of a group, of the step with the most work first: step, rows from and to, columns from and to."""
    shares = [share_of(step, crossovers) for step in group]
    unit = sum(shares) / (threads * CHUNKS_PER_THREAD)
    found: list[tuple[int, int, int, int, int]] = []
    for number in sorted(range(len(group)), key=lambda n: -shares[n]):
        step = group[number]
        wanted = min(max(1, round(shares[number] / unit)), threads * pieces_per_thread(step))
        across, length = by_columns(step, threads), extent(step, threads)
        grain = -(-length // wanted)
        if across:
            grain = -(-grain // COLUMNS_TOGETHER) * COLUMNS_TOGETHER
        rows, columns = int(step.rows), int(step.columns)  # type: ignore[call-overload]
        for first in range(0, length, grain):
            last = min(first + grain, length)
            found.append((number, 0, rows, first, last) if across else (number, first, last, 0, columns))
    return found
