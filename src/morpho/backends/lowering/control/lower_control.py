"""Loops and branches as steps: the steps of a body stand between marks (`program.Control`), compiled once.

Values that are carried from turn to turn have one buffer where a turn reads the old one before it writes the new one,
else two that are exchanged. Slices of what a scan goes over, and of what it stacks, are cursors: nothing is copied.
What a turn computes from values outside the loop alone is computed before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from morpho.backends.kernels.loops.sequential.register_loop import Carry, RegisterLoop, Store
from morpho.backends.lowering.control.filling import rows_filled
from morpho.backends.lowering.control.scalarise import Scalars, offsets_of
from morpho.backends.lowering.lowering import Lowering, place_of
from morpho.base.dims import Size, product
from morpho.ir.body import Body
from morpho.ir.node import Node
from morpho.ir.views import is_view, look_through
from morpho.ops.control.records import COUNTER, parts
from morpho.program.plan_memory import written
from morpho.program.program import AnyStep, Control, Cursor, HostStep, Program, Step
from morpho.program.view import View

FAR_APART = 1 << 12  # bytes between elements of a slice: a page
UNKNOWN_TURNS = 1 << 16  # of a loop that ends by itself, for estimates


@dataclass
class Region:
    """A body while its steps are written: where they begin, and the memory of its results."""

    low: Lowering
    node: Node
    first: int  # step
    outside: set[int]  # slots that were there before
    results: list[View] = field(default_factory=list)

    def steps(self) -> list[AnyStep]:
        return self.low.program.steps[self.first:]


def _number(low: Lowering) -> int:
    """A number that no other loop or branch of the program has."""
    return 1 + max((step.number for step in low.program.steps if isinstance(step, Control)), default=-1)


# -- scan --------------------------------------------------------------------------------------------------------------
def lower_scan_loop(low: Lowering, node: Node) -> None:
    carries, xs, constants = parts(node)
    turns, backwards, turn = node["length"], node["reverse"], node["turn"]
    init = [low.number_or_place(carry) for carry in carries]
    sources = [_turns_apart(low, place_of(low, x), node) for x in xs]
    fixed = [place_of(low, constant) for constant in constants]
    homes = [low.new_slot(carry.shape, carry.dtype) for carry in carries]
    counter = low.new_slot((), COUNTER.dtype) if node["counts"] else None
    moving = [_cursor(low, source, turns, backwards) for source in sources]
    stacked = [low.new_slot(spec.shape, spec.dtype) for spec in node.outputs[len(carries):]]
    rows = [_cursor(low, place, turns, backwards) for place in stacked]
    slices = [_shown(cursor) for cursor in moving]
    given = [*homes, *slices, *fixed, *([counter] if counter is not None else [])]
    kept = {place.slot for place in (*homes, *slices, *([counter] if counter is not None else ()))}
    filled = rows_filled(turn, init, len(given) - 1) if counter is not None and not backwards else []
    region = _body(low, node, turn, given, kept, len(carries), dict.fromkeys(filled, counter))
    loop = Loop(region, homes, [_shown(cursor) for cursor in rows])
    loop.settle_results()
    loop.write(Control("loop", _number(low), "scan", node.origin, turns, tuple([*moving, *rows]), value=counter,
                       backwards=backwards), init, [*sources, *stacked])
    low.views[node.serial] = [*homes, *stacked]


def _turns_apart(low: Lowering, place: View, node: Node) -> View:
    """Input of a scan with each of its slices in one piece. Where the slices lie closer together than what a turn
    reads, as in a batch of rows (`mo.vmap`), each would touch a line of the cache, or a page, for every row: one copy
    beforehand goes through memory in order."""
    if not all(isinstance(size, int) for size in place.shape):
        return place
    strides = [abs(stride) for size, stride in zip(place.shape[1:], place.strides[1:], strict=True) if size != 1]
    bytes_apart = max(strides, default=0) * place.dtype.itemsize
    if place.shape[0] < 2 or bytes_apart < FAR_APART or abs(place.strides[0]) >= max(strides):
        return place
    fresh = low.new_slot(place.shape, place.dtype)
    low.copy(place, fresh, node)
    return fresh


def _cursor(low: Lowering, source: View, turns: Size, backwards: bool) -> Cursor:
    """A slot that shows one slice of a value after the other, from the last one on where the loop runs backwards."""
    slot = low.new_slot(source.shape[1:], source.dtype, "cursor")
    stride = source.strides[0]
    start = source.offset + (turns - 1) * stride if backwards else source.offset
    base = View(source.slot, start, source.shape[1:], source.strides[1:], source.dtype)
    return Cursor(slot.slot, base, -stride if backwards else stride)


def _shown(cursor: Cursor) -> View:
    return View(cursor.slot, 0, cursor.base.shape, cursor.base.strides, cursor.base.dtype)


def _body(low: Lowering, node: Node, body: Body, given: Sequence[View], kept: set[int], carries: int = 0,
          filled: Mapping[int, View | None] | None = None) -> Region:
    """The steps of a body whose parameters lie in these places; `kept` of them change from turn to turn. The first
    ones are `carries`, which a turn may pass on as they are; those `filled` have as many rows as that place says."""
    outside = set(range(len(low.program.slots))) - kept
    region = Region(low, node, len(low.program.steps), outside)
    inner = low.inside(body.graph, outside, frozenset(place.slot for place in given[:carries]))
    for leaf in body.graph.parameters:
        inner.views[leaf.serial] = [given[leaf["index"]]]
        rows = (filled or {}).get(leaf["index"])
        if rows is not None:
            inner.rows_there[leaf.serial] = rows
    early = [_copied_early(inner, output, node) if number >= carries or output.attributes.get("index") != number
             or output.op.name != "parameter" else given[number] for number, output in enumerate(body.outputs)]
    inner.lower_nodes()
    region.results = [place_of(inner, output) if place is None else place
                      for output, place in zip(body.outputs, early, strict=True)]
    return region


def _copied_early(inner: Lowering, output: Node, node: Node) -> View | None:
    """A result that shows a parameter, as it was when the turn began."""
    root, _ = look_through(output, lambda view: is_view(view) and view.op.name != "pick")
    if root.op.name != "parameter":
        return None
    place = inner.new_slot(output.shape, output.dtype)
    inner.copy(inner.view(output), place, node)
    return place


@dataclass
class Loop:
    """The memory of a loop's carried values (`homes`) and of one row of each that it stacks."""

    region: Region
    homes: list[View]
    rows: list[View]
    others: dict[int, tuple[Cursor, Cursor]] = field(default_factory=dict)  # by number of a value that has two buffers

    def settle_results(self) -> None:
        """Let steps write results where they are to lie; what cannot is copied at the end of a turn."""
        region, low = self.region, self.region.low
        targets = [*self.homes, *self.rows]
        taken: set[int] = set()
        for number, (result, target) in enumerate(zip(region.results, targets, strict=True)):
            if number < len(self.homes) and _is_all(result, target):
                continue  # passed on as it is, or written over; another view of the same memory is copied
            slot = low.program.slots[result.slot]
            own = (result.slot not in region.outside and slot.kind == "temporary" and result.slot not in taken
                   and all(result.slot != home.slot for home in self.homes)
                   and result.offset == 0 and result.is_contiguous and product(result.shape) == slot.elements)
            if not own:
                fresh = low.new_slot(target.shape, target.dtype)
                low.copy(result, fresh, region.node)
                region.results[number] = fresh
            taken.add(region.results[number].slot)
        self._move_invariant(taken)
        for number, target in enumerate(targets):
            if number >= len(self.homes):
                _rename(region.steps(), {region.results[number].slot: target.slot})
            elif region.results[number].slot != target.slot:
                self._carry(number, region.results[number].slot)

    def _move_invariant(self, results: set[int]) -> None:
        """Steps that read nothing of the loop's run before it; not those that may fail, if there is no turn, nor those
        that write a part of a carried value: each turn makes it anew."""
        region = self.region
        results = results | {home.slot for home in self.homes}
        moved: list[AnyStep] = []
        kept: list[AnyStep] = []
        writers = Counter(place.slot for step in region.steps() for place in written(step))
        for step in region.steps():
            writes = {place.slot for place in written(step)}
            if (isinstance(step, Step) and not step.may_fault and not writes & results
                    and all(writers[slot] == 1 and slot not in region.outside for slot in writes)
                    and _plain(region.low.program, writes)
                    and all(place.slot in region.outside for place in step.reads)):
                moved.append(step)
                region.outside |= writes
            else:
                kept.append(step)
        region.low.program.steps[region.first:] = [*moved, *kept]
        region.first += len(moved)

    def _carry(self, number: int, new: int) -> None:
        """Write a carried value over the old one where that is not read any more; else into a second buffer."""
        region, home, low = self.region, self.homes[number], self.region.low
        steps = region.steps()
        if _dies_before(steps, home, new):
            _rename(steps, {new: home.slot})
            return
        second = low.new_slot(home.shape, home.dtype)
        pair = [Cursor(low.new_slot(home.shape, home.dtype, "cursor").slot, place) for place in (home, second)]
        self.others[number] = (pair[0], pair[1])
        _rename(steps, {home.slot: pair[0].slot, new: pair[1].slot})

    def write(self, control: Control, init: Sequence[View | float | int | bool], touched: Sequence[View]) -> None:
        """The marks around the steps, and the first values before them."""
        region, low = self.region, self.region.low
        program, node = low.program, region.node
        body = program.steps[region.first:]
        del program.steps[region.first:]
        for number, (value, home) in enumerate(zip(init, self.homes, strict=True)):
            pair = self.others.get(number)
            odd = isinstance(control.turns, int) and control.turns % 2 == 1
            low.copy(value, pair[1].base if pair is not None and odd else home, node)
        control.carried = tuple(self.others.values())
        buffers = [*self.homes, *[pair[1].base for pair in self.others.values()]]
        cursors = [*control.moving, *[cursor for pair in self.others.values() for cursor in pair]]
        control.written = [*buffers, *_written_first(touched, program), *[_shown(cursor) for cursor in cursors],
                           *([control.value] if control.value is not None else [])]
        outer = {place.slot: place for step in body for place in (*step.reads, *written(step))
                 if place.slot in region.outside}
        reads = [*buffers, *touched, *outer.values(), *([control.value] if control.value is not None else [])]
        end = Control("end", control.number, control.label, node.origin, reads=reads)
        program.steps += [control, *body, end]


def _written_first(touched: Sequence[View], program: Program) -> list[View]:
    """Of the values that a loop goes over, those that it writes: the others were there before."""
    known = {place.slot for step in program.steps for place in written(step)}
    return [place for place in touched
            if program.slots[place.slot].kind == "temporary" and place.slot not in known]


def _is_all(result: View, home: View) -> bool:
    """Whether a result lies in a carried value's memory as that does."""
    return (result.slot == home.slot and result.offset == 0 and result.shape == home.shape and result.is_contiguous
            and not result.borders and result.part == home.part)


def _plain(program: Program, slots: set[int]) -> bool:
    return all(program.slots[slot].kind == "temporary" for slot in slots)


def _dies_before(steps: Sequence[AnyStep], home: View, new: int) -> bool:
    """Whether nothing reads the old value once the new one is being written; at the same time only where each element
    is read before it is written."""
    reads = [n for n, step in enumerate(steps) if any(place.slot == home.slot for place in step.reads)]
    writes = [n for n, step in enumerate(steps) if any(place.slot == new for place in written(step))]
    if not reads or not writes:
        return bool(writes)
    if reads[-1] != writes[0]:
        return reads[-1] < writes[0]
    step = steps[writes[0]]
    if not isinstance(step, Step) or not step.in_place or home.slot in step.operands:
        return False
    target = next(place for place in step.written if place.slot == new)
    return all(place.offset == target.offset and place.strides == target.strides and place.shape == target.shape
               and place.dtype.itemsize == target.dtype.itemsize for place in step.reads if place.slot == home.slot)


def _rename(steps: Sequence[AnyStep], names: dict[int, int]) -> None:
    """Let steps use other slots, also those of loops inside."""
    def new(place: View) -> View:
        return replace(place, slot=names[place.slot]) if place.slot in names else place

    def moved(cursor: Cursor) -> Cursor:
        return replace(cursor, base=new(cursor.base))

    for step in steps:
        if isinstance(step, Step):
            step.views = tuple(None if place is None else new(place) for place in step.views)
        elif isinstance(step, HostStep):
            step.inputs, step.outputs = (tuple(map(new, places)) for places in (step.inputs, step.outputs))
        elif isinstance(step, Control):
            step.reads, step.written = [new(p) for p in step.reads], [new(p) for p in step.written]
            step.value = None if step.value is None else new(step.value)
            step.moving = tuple(moved(cursor) for cursor in step.moving)
            step.carried = tuple((moved(one), moved(other)) for one, other in step.carried)


# -- in registers ------------------------------------------------------------------------------------------------------
def lower_register_loop(low: Lowering, node: Node) -> None:
    """A whole loop as one kernel."""
    count, is_scan = node["carries"], node.op.name == "scan"
    turns: Size = node["length"] if is_scan else 0
    backwards = is_scan and node["reverse"]
    sliced = node["xs"] if is_scan else 0
    init = [low.number_or_place(carry) for carry in node.inputs[:count]]
    sources = [_known(low, place_of(low, x), 1, node) for x in node.inputs[count:count + sliced]]
    fixed = [_known(low, place_of(low, constant), 0, node) for constant in node.inputs[count + sliced:]]
    homes = [low.new_slot(carry.shape, carry.dtype) for carry in node.inputs[:count]]
    for value, home in zip(init, homes, strict=True):
        low.copy(value, home, node)
    stacked = [low.new_slot(spec.shape, spec.dtype) for spec in node.outputs[count:]]
    scalars = Scalars()
    strides: list[Size] = []

    def operand(place: View, stride: Size = 0) -> int:
        strides.append(-stride if backwards else stride)
        return scalars.operand(place, stride != 0)

    def moving(place: View) -> int:
        start = place.offset + (turns - 1) * place.strides[0] if backwards else place.offset
        return operand(View(place.slot, start, place.shape[1:], place.strides[1:], place.dtype), place.strides[0])

    own = [operand(home) for home in homes]
    carried = [_carried(scalars, place, number) for number, place in enumerate(homes)]
    given: list[Any] = [*carried, *[moving(place) for place in sources], *[operand(place) for place in fixed]]
    if is_scan and node["counts"]:
        given.append(np.array(scalars.add("counter", COUNTER.dtype), np.int64))
    test = int(scalars.run(node["test"], given)[0]) if not is_scan else None
    results = scalars.run(node["turn"], given)
    carries = [Carry(int(one), int(new), own[number], offset)
               for number, (old, after) in enumerate(zip(carried, results, strict=False))
               for one, new, offset in zip(old.ravel(), after.ravel(), offsets_of(homes[number]), strict=True)]
    rows = [moving(place) for place in stacked]
    stores = [Store(int(value), row, offset) for row, after in zip(rows, results[count:], strict=True)
              for value, offset in zip(after.ravel(), offsets_of(scalars.views[row]), strict=True)]
    kernel = RegisterLoop(tuple(scalars.instructions), tuple(scalars.operands), tuple(carries), tuple(stores), test,
                          backwards)
    writes = (*own, *rows)
    label = f"{node.op.name} in registers"
    low.program.steps.append(Step(
        kernel, tuple(scalars.views), writes, kernel.record.values(turns=turns, strides=strides), 1,
        turns if is_scan else UNKNOWN_TURNS, label, node.origin, threads="one"))
    low.views[node.serial] = [*homes, *stacked]


def _known(low: Lowering, place: View, first: int, node: Node) -> View:
    """A place whose strides from axis `first` on are numbers: they become part of the code. A copy where they are not,
    as of a turned array of dynamic size."""
    if all(isinstance(stride, int) for stride in place.strides[first:]):
        return place
    fresh = low.new_slot(place.shape, place.dtype)
    low.copy(place, fresh, node)
    return fresh


def _carried(scalars: Scalars, place: View, number: int) -> np.ndarray:
    """The scalars of a carried value."""
    count = product(place.shape)
    assert isinstance(count, int)
    found = [scalars.add("carry", place.dtype, (), (number, element)) for element in range(count)]
    return np.array(found, np.int64).reshape(place.shape)


# -- while_loop --------------------------------------------------------------------------------------------------------
def lower_while(low: Lowering, node: Node) -> None:
    count = node["carries"]
    init = [low.number_or_place(carry) for carry in node.inputs[:count]]
    fixed = [place_of(low, constant) for constant in node.inputs[count:]]
    homes = [low.new_slot(carry.shape, carry.dtype) for carry in node.inputs[:count]]
    kept = {place.slot for place in homes}
    test = _body(low, node, node["test"], [*homes, *fixed], kept)
    number = _number(low)
    low.program.steps.append(Control("test", number, "while_loop", node.origin, value=test.results[0],
                                     reads=[test.results[0]]))
    region = _body(low, node, node["turn"], [*homes, *fixed], kept, count)
    region.first, region.outside = test.first, test.outside
    loop = Loop(region, homes, [])
    loop.settle_results()
    loop.write(Control("loop", number, "while_loop", node.origin), init, [])
    low.views[node.serial] = homes


# -- switch ------------------------------------------------------------------------------------------------------------
def lower_switch(low: Lowering, node: Node) -> None:
    which = place_of(low, node.inputs[0])
    operands = [place_of(low, operand) for operand in node.inputs[1:]]
    targets = [low.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
    number, program = _number(low), low.program
    program.steps.append(Control("branch", number, "switch", node.origin, value=which, reads=[which]))
    for branch in node["branches"]:
        program.steps.append(Control("case", number, "switch", node.origin))
        region = _body(low, node, branch, operands, set())
        for result, target in zip(region.results, targets, strict=True):
            low.copy(result, target, node)
    program.steps.append(Control("join", number, "switch", node.origin))
    low.views[node.serial] = targets

