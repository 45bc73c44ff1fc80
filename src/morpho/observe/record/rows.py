"""Addresses of native events made into rows: which program and step each is, what it computes and what it costs."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from morpho.backends.driver.abi import StepField
from morpho.backends.driver.executable import Executable
from morpho.base.dims import Size, evaluate, upper
from morpho.cost.estimate import Profile
from morpho.ir.op import Cost
from morpho.observe.record.totals import Sum, Totals
from morpho.observe.trace.model import OpRow
from morpho.program.program import HostStep, Slot, Step
from morpho.tensor.eager import EAGER
from morpho.tensor.jit.native.entries import entries

ROW_BYTES = 8 * int(StepField.SIZE)
FEW_HELPED = 5  # calls that helpers came to in time, before their waiting at the end says something
JOINT_KIND = "collective"
SLOW = 0.5  # of the roofline: a transpose that reaches more of it costs little
LARGE_BYTES = 4096  # of an array that one function hands to another


class Addresses:
    """The programs that may have run, by where their tables lie."""

    def __init__(self, executables: Iterable[Executable], totals: Totals | None = None) -> None:
        found = {int(one.step_table.ctypes.data): one for one in executables}
        self._starts = sorted(found)
        self._executables = [found[start] for start in self._starts]
        self.programs = {int(one.words.ctypes.data): one for one in self._executables}
        self.names = program_names()
        self.sizes = self._seen_sizes(totals)

    def _seen_sizes(self, totals: Totals | None) -> dict[int, dict[str, int]]:
        """The mean of every dynamic size over a program's calls: of one by the event of the program, of others by steps
        whose rows x columns are a multiple of it (a product's are those of its tiles, and do not follow its rows)."""
        seen: dict[int, dict[str, list[float]]] = {}

        def add(executable: Executable, size: Size, found: Sum) -> None:
            if isinstance(size, int) or len(size.symbols) != 1:
                return
            (name,) = size.symbols
            at = [evaluate(size, {name: n}) for n in (0, 1, 2)]
            if at[1] > at[0] and at[2] - at[1] == at[1] - at[0]:  # a line over the symbol
                sums = seen.setdefault(id(executable), {}).setdefault(name, [0.0, 0.0])
                sums[0] += (found.numbers - found.calls * at[0]) / (at[1] - at[0])
                sums[1] += found.calls

        for (_, table), found in totals.programs.items() if totals is not None else ():
            one = self.programs.get(table)
            if one is not None and one.symbols:
                add(one, one.table.sizes[int(one.moving[0])], found)
        for (_, pointer), found in totals.steps.items() if totals is not None else ():
            place = self.step(pointer)
            step = place[0].steps[place[1]] if place is not None else None
            if place is not None and isinstance(step, Step) and step.together == 1:
                add(place[0], step.rows * step.columns, found)
        return {program: {name: max(1, round(total / calls)) for name, (total, calls) in sizes.items() if calls}
                for program, sizes in seen.items()}

    def step(self, pointer: int) -> tuple[Executable, int] | None:
        """The program and the number of the step whose row lies at an address."""
        place = bisect.bisect_right(self._starts, pointer) - 1
        if place < 0:
            return None
        executable = self._executables[place]
        number = (pointer - self._starts[place]) // ROW_BYTES
        return (executable, number) if number < len(executable.steps) else None

    def name(self, executable: Executable) -> str:
        """The compiled function of a program, or that it was lazy evaluation's."""
        return self.names.get(id(executable), "eager")


def program_names() -> dict[int, str]:
    """The names of compiled functions by the identity of their programs."""
    names: dict[int, str] = {}
    for made in list(entries.live):
        for chosen in list(made.specialisations.values()):
            for executable in (chosen.plan.executable, chosen.plan.prepare):
                if executable is not None:
                    name = str(getattr(made, "__name__", "compiled"))
                    names[id(executable)] = "eager" if name == EAGER else name
    return names


def op_row(addresses: Addresses, pointer: int, found: Sum, seconds: Callable[[int], float], peak: Profile) -> OpRow:
    """The row of one step over all its calls."""
    place = addresses.step(pointer)
    if place is None:
        return OpRow("a program that is gone", calls=found.calls, seconds=seconds(found.ticks))
    executable, number = place
    step = executable.steps[number]
    group = [other for other in executable.steps[number:number + max(getattr(step, "together", 1), 1)]
             if isinstance(other, Step)]
    row = OpRow(_name(step, group), getattr(step, "origin", ""), addresses.name(executable), _kind(step),
                _sizes(step), found.calls, seconds(found.ticks), threads=_threads(executable, step),
                shared_s=seconds(found.shared_ticks))
    row.takes, row.gives = _arrays(executable.inputs), _arrays(executable.results)
    row.tail_s = row.shared_s * found.sure_tail if row.shared_s and found.helped >= FEW_HELPED else 0.0
    row.busy_s = seconds(found.ticks - found.shared_ticks + found.busy_ticks)
    if isinstance(step, Step):
        _add_cost(row, group or [step], found, peak, addresses.sizes.get(id(executable), {}))
    return row


def _arrays(slots: Iterable[Slot]) -> str:
    """Dtypes and elements of arrays that are worth keeping out of memory."""
    return ", ".join(sorted({f"{slot.dtype} {slot.elements}" for slot in slots if slot.nbytes >= LARGE_BYTES}))


def _threads(executable: Executable, step: Any) -> int:
    """Threads of the engine that a step could have: none but the caller where a library divides the work itself."""
    return 1 if isinstance(step, Step) and step.threads == "library" else executable.threads


def _name(step: Any, group: list[Step]) -> str:
    if len(group) > 1:
        return " | ".join(dict.fromkeys(other.label for other in group))
    return str(step.label)


def _kind(step: Any) -> str:
    if not isinstance(step, HostStep):
        return "kernel"
    return "collective" if step.node.op.kind == JOINT_KIND else "host"


def _sizes(step: Any) -> str:
    if not isinstance(step, Step):
        return ""
    return " x ".join(map(str, step.sizes or (step.rows, step.columns)))


def _add_cost(row: OpRow, group: list[Step], found: Sum, peak: Profile, sizes: Mapping[str, int]) -> None:
    """Flops, bytes and the roofline of all calls, at the mean of dynamic sizes; where that is not known, in proportion
    to the rows and columns that were seen."""
    first = group[0]
    most = upper(first.rows) * upper(first.columns)
    costs = _costs_at(group, sizes)
    scale = found.numbers / most if costs is None and most and len(group) == 1 else found.calls
    compute_s = memory_s = 0.0
    for step, cost in zip(group, costs or [step.traffic_at(upper) for step in group], strict=True):
        row.flops += cost.flops * scale
        row.bytes += cost.bytes * scale
        compute_s += cost.flops * step.width * scale / peak.flops_per_s
        memory_s += cost.bytes * scale / peak.bytes_per_s
        row.limit_s += peak.seconds(cost._replace(flops=int(cost.flops * step.width))) * scale
    row.bound = "compute" if compute_s > memory_s else "memory"
    row.product = any(step.is_product for step in group)
    row.gathers = any(step.kernel.gathered for step in group)
    row.parts = _parts(group)
    row.apart = any(step.lies_apart() for step in group) or (
        row.share < SLOW and any(step.reads_across() for step in group))
    written = next((place for place in first.written), None)
    row.dtype = str(written.dtype) if written is not None else ""


def _parts(group: list[Step]) -> int:
    """The rows of a step that are worked on one after the other each: of a running sum, a sort."""
    (first, *more) = group
    if more or first.splits_columns or first.is_product or not isinstance(first.rows, int):
        return 0
    return first.rows


def _costs_at(group: list[Step], sizes: Mapping[str, int]) -> list[Cost] | None:
    """The costs of steps at these sizes; None where one of their sizes is not among them."""
    try:
        return [step.traffic_at(lambda size: evaluate(size, sizes)) for step in group]
    except KeyError:
        return None
