"""Co-scheduling: independent steps, each too small to be divided among threads, run concurrently as one launch.

Groups are gathered before memory is planned: a step moves up to an earlier one where nothing in between minds, and the
planner keeps apart what is alive at the same time. What was read from disk is checked again, on bytes (`is_sound`).
Pieces of all steps of a group stand in one list, every n-th of which is a thread's to begin with. A piece writes
outputs of its own, so bits do not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from morpho.base.dims import upper
from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.passes.memory.liveness import Updates
from morpho.program.program import AnyStep, Control, HostStep, Program, Step
from morpho.program.view import View

WORK_PER_THREAD = 1 << 20  # operations (columns x operations each) below which a second thread costs more than it gives
LEAST_OF = {"one": 1 << 62, "library": 1 << 62, "many": 0}  # work above which such a step is shared
CHUNKS_PER_THREAD, TILES_PER_THREAD = 4, 64  # pieces per thread: of loops, of products and attention
LONG_LOOP = 4  # turns for which threads are woken once
COLUMNS_TOGETHER = 1024  # columns: the granularity at which rows are cut into pieces
# In units of the least work that is worth two threads:
WORTH = 0.5  # what a co-scheduled launch saves at least; a step of that least work, by itself, saves as much
LEAST_SHARE = 1 / 16  # of a step that is worth a piece; what is smaller moves out of the way of others
MOST_SHARE = 16.0  # of a group: what it holds at a time is bounded, and more of it would not be faster
AHEAD = 32  # steps: the lookahead window in which independent ones are found, and so the most of a launch

Bytes = tuple[int, int]  # from, to before
Aliases = Mapping[int, frozenset[int]]  # slot of a result -> slots of inputs that may be the same memory


# -- how steps are divided ---------------------------------------------------------------------------------------------
def least_work(step: Step, thresholds: DispatchThresholds) -> int:
    """The work above which a step is divided among threads: products have a threshold of their own."""
    usual = _least_macs(step, thresholds) * step.work if step.is_product else WORK_PER_THREAD
    return LEAST_OF.get(step.threads, min(usual, LEAST_OF["one"]))


def _least_macs(step: Step, thresholds: DispatchThresholds) -> int:
    if not _is_known(step):
        return thresholds.parallel_macs
    return thresholds.least_shared_macs(step.kernel.on_matrix_unit, step.cost.bytes)


def _is_known(step: Step) -> bool:
    return isinstance(step.rows, int) and isinstance(step.columns, int)


def least_shared_work(step: Step, thresholds: DispatchThresholds) -> int:
    """The same for the driver, which also shares less among threads that are awake (`run_code.py`)."""
    found = least_work(step, thresholds)
    return found if step.is_product or found != WORK_PER_THREAD else WORK_PER_THREAD // 4


def share_of_thread(step: Step, thresholds: DispatchThresholds) -> int:
    """The work that is worth one more thread: a step has no more of them than that."""
    if step.is_product and step.threads not in LEAST_OF and _is_known(step):
        macs = upper(step.rows * step.columns)
        return macs * step.work // thresholds.sharers(macs, step.cost.bytes, step.kernel.on_matrix_unit)
    return least_shared_work(step, thresholds) // 2  # of which one thread takes some 6 us


def least_waking_work(step: Step, thresholds: DispatchThresholds, in_loop: bool) -> int:
    """The work for which threads that sleep are woken: less inside a loop, as the turns after that find them awake."""
    return least_shared_work(step, thresholds) if in_loop else least_work(step, thresholds)


def in_long_loops(steps: Sequence[AnyStep]) -> list[bool]:
    """Of every step, whether it stands in a loop of more than a few turns."""
    found, around = [], [False]
    for step in steps:
        if isinstance(step, Control) and step.kind == "loop":
            around.append(around[-1] or step.turns is None or upper(step.turns) >= LONG_LOOP)
        elif isinstance(step, Control) and step.kind == "end":
            around.pop()
        found.append(around[-1])
    return found


def pieces_per_thread(step: Step) -> int:
    """Into how many pieces per thread a step is divided: tiles of a product and of attention one by one, as they are
    few and large."""
    if step.epilogue is not None or step.kernel.one_by_one:
        return TILES_PER_THREAD
    return 1 if step.kernel.transposed else CHUNKS_PER_THREAD


def alternates(step: Step) -> bool:
    """Whether a thread begins with every n-th piece, not with pieces side by side: where pieces differ in size, as the
    last tiles of a product, and those of attention, whose last rows may see more keys than its first."""
    return step.epilogue is not None or step.kernel.uneven


def by_columns(step: Step, threads: int) -> bool:
    """Whether columns are divided and not rows, as the driver decides it."""
    return step.splits_columns and step.rows < threads * CHUNKS_PER_THREAD


def extent(step: Step, threads: int) -> int:
    """How many rows, or columns, there are to divide."""
    return step.columns if by_columns(step, threads) else step.rows  # type: ignore[return-value]


def share_of(step: Step, thresholds: DispatchThresholds) -> float:
    """The work of a step in units of the least that is worth two threads."""
    return upper(step.rows * step.columns) * step.work / max(least_work(step, thresholds), 1)


def _is_worth(group: Sequence[Step], threads: int, thresholds: DispatchThresholds) -> bool:
    """Whether several threads save enough; what cannot be divided takes one of them its time."""
    if len(group) < 2:
        return False
    shares = [share_of(step, thresholds) for step in group]
    longest = max(share / min(extent(step, threads), threads) for share, step in zip(shares, group, strict=True))
    return sum(shares) - max(sum(shares) / threads, longest) >= WORTH


# -- what steps touch --------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Seen:
    """A step, and what decides beside which others it may run."""

    step: Step
    reads: frozenset[int]  # slots
    writes: tuple[tuple[int, int, int], ...]  # slots, and bytes of them
    over: frozenset[int]  # inputs that may be the memory it writes
    checks: bool  # whether its kernels check indices, also those that an earlier step has found right
    results: bool  # whether it writes memory of the caller's
    share: float
    alone: bool  # whether it would run on one thread
    tiny: bool  # whether it is too small to be a piece


def _seen(program: Program, step: Step, threads: int, thresholds: DispatchThresholds, aliases: Aliases) -> Seen:
    known = isinstance(step.rows, int) and isinstance(step.columns, int) and step.threads == "auto"
    share = share_of(step, thresholds) if known else math.inf
    alone = known and share > 0 and share >= LEAST_SHARE and (share <= 1 or extent(step, threads) <= 1)
    return Seen(step, frozenset(place.slot for place in step.reads),
                tuple((place.slot, *_bytes_of(place)) for place in step.written),
                frozenset().union(*(aliases.get(place.slot, frozenset()) for place in step.written)),
                any(kernel.may_fault for kernel in step.kernels),
                any(program.slots[place.slot].kind == "result" for place in step.written),
                share, alone, share < LEAST_SHARE)


class Touched:
    """Slots that some steps read and write together."""

    def __init__(self) -> None:
        self.reads: set[int] = set()
        self.writes: dict[int, list[Bytes]] = {}
        self.over: set[int] = set()
        self.checks = False

    def add(self, seen: Seen) -> None:
        self.reads |= seen.reads
        self.over |= seen.over
        self.checks |= seen.checks
        for slot, first, last in seen.writes:
            self.writes.setdefault(slot, []).append((first, last))

    def conflicts(self, seen: Seen) -> bool:
        """Whether the step writes what these read or write, or reads what they write."""
        if not (seen.reads.isdisjoint(self.writes) and seen.reads.isdisjoint(self.over)
                and seen.over.isdisjoint(self.reads)):
            return True
        return any(slot in self.reads or any(first < end and start < last for start, end in self.writes.get(slot, ()))
                   for slot, first, last in seen.writes)

    def keeps_back(self, seen: Seen) -> bool:
        """Whether the step must stay behind these: a fault is reported by the first step that finds it, and found
        before memory of the caller's is written."""
        return self.checks and (seen.checks or seen.results)


def _bytes_of(place: View) -> Bytes:
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


def possible_aliases(program: Program, updates: Updates) -> Aliases:
    """Results that may be written over inputs: states over their old values, and the only result, given as `out=`, over
    any argument."""
    inputs = {slot.index: number for number, slot in enumerate(program.slots)
              if slot.kind == "input" and number not in program.kept}
    found: dict[int, frozenset[int]] = {}
    for output, index in updates:
        if index in inputs:
            result = program.outputs[output].slot
            found[result] = found.get(result, frozenset()) | {inputs[index]}
    if len(program.outputs) - len(updates) == 1:
        found[program.outputs[0].slot] = frozenset(inputs.values())
    return found


# -- which steps -------------------------------------------------------------------------------------------------------
def join_steps(program: Program, threads: int, thresholds: DispatchThresholds, updates: Updates,
               own_outputs: bool) -> None:
    """Put the steps of each group in a row and mark them: `together` of the first says how many, of the others 0."""
    if threads < 2 or program.loops:  # what runs in which turn is not seen here
        return
    aliases = possible_aliases(program, updates) if own_outputs else {}
    waiting: list[Seen | HostStep | Control] = [
        step if isinstance(step, HostStep | Control) else _seen(program, step, threads, thresholds, aliases)
        for step in reversed(program.steps)]
    done: list[AnyStep] = []
    while waiting:
        first = waiting[-1]
        if isinstance(first, Seen) and first.alone:
            before, group = _gathered(waiting, threads)
            steps = [seen.step for seen in group]
            if _is_worth(steps, threads, thresholds):
                taken = {id(seen) for seen in (*before, *group)}
                waiting = [seen for seen in waiting if id(seen) not in taken]
                done += [*(seen.step for seen in before), *steps]
                _mark(steps)
                continue
        waiting.pop()
        done.append(first.step if isinstance(first, Seen) else first)
    program.steps = done


def _gathered(waiting: Sequence[Seen | HostStep | Control], threads: int) -> tuple[list[Seen], list[Seen]]:
    """Small steps that can run first, and then, at the same time, the next one of `waiting`, which stands last, and
    those soon after it that need nothing else."""
    before: list[Seen] = []
    group: list[Seen] = []
    near: list[Seen] = []
    for found in waiting[:-AHEAD - 1:-1]:
        if not isinstance(found, Seen):
            break
        near.append(found)
    most = sum(seen.share for seen in near if seen.alone)
    if most * (1 - 1 / threads) < WORTH:
        return before, group
    chosen, passed = Touched(), Touched()
    share = 0.0
    for seen in near:
        if share >= MOST_SHARE:
            break
        ready = not chosen.conflicts(seen) and not passed.conflicts(seen) and not passed.keeps_back(seen)
        # In a group faults keep their order; a step that may fault itself writes results elsewhere first.
        early = chosen.checks and seen.results and not seen.step.may_fault
        if ready and seen.alone and not early:
            group.append(seen)
            chosen.add(seen)
            share += seen.share
        elif ready and seen.tiny and not chosen.keeps_back(seen):
            before.append(seen)
        else:
            passed.add(seen)
    return before, group


def _mark(group: Sequence[Step]) -> None:
    for step in group:
        step.together = 0
    group[0].together = len(group)


def groups(steps: Sequence[AnyStep]) -> Iterator[tuple[int, list[Step]]]:
    """The co-scheduled launches among steps: number of the first, and all of each."""
    for number, step in enumerate(steps):
        if isinstance(step, Step) and step.together > 1:
            yield number, [other for other in steps[number:number + step.together] if isinstance(other, Step)]


# -- checking ----------------------------------------------------------------------------------------------------------
def is_sound(program: Program) -> bool:
    """Whether groups are whole, of known sizes, and their steps apart where their values lie in memory now."""
    if any(step.together != 1 for step in program.prepare):
        return False
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


def _lies(program: Program, place: View, within: Bytes) -> tuple[int, int, int]:
    """Bytes of a slot, at most all it has; temporaries share one arena."""
    slot = program.slots[place.slot]
    first, last = within[0], min(within[1], slot.nbytes)
    return (-1, slot.offset + first, slot.offset + last) if slot.kind == "temporary" else (place.slot, first, last)


# -- pieces ------------------------------------------------------------------------------------------------------------
def pieces(group: Sequence[Step], threads: int, thresholds: DispatchThresholds) -> list[tuple[int, int, int, int, int]]:
    """All pieces of a group, of the step with the most work first: step, rows from and to, columns from and to."""
    shares = [share_of(step, thresholds) for step in group]
    unit = sum(shares) / (threads * CHUNKS_PER_THREAD)
    found: list[tuple[int, int, int, int, int]] = []
    for number in sorted(range(len(group)), key=lambda n: -shares[n]):
        step = group[number]
        wanted = min(max(1, round(shares[number] / unit)), threads * pieces_per_thread(step))
        across, length = by_columns(step, threads), extent(step, threads)
        grain = -(-length // wanted)
        if across:
            grain = -(-grain // COLUMNS_TOGETHER) * COLUMNS_TOGETHER
        rows, columns = upper(step.rows), upper(step.columns)
        for first in range(0, length, grain):
            last = min(first + grain, length)
            found.append((number, 0, rows, first, last) if across else (number, first, last, 0, columns))
    return found
