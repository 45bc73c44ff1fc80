"""A scan whose elements go their own ways as one kernel (`loops/sequential/lane_loop.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable

from morpho.backends.kernels.loops.sequential.lane_loop import LaneLoop
from morpho.backends.kernels.loops.sequential.register_loop import Carry, RegisterLoop, Store
from morpho.backends.lowering.control.scalarise import Scalars
from morpho.backends.lowering.lowering import Lowering, place_of
from morpho.base.dims import Shape, Size, product
from morpho.base.shapes import is_contiguous, reshape_strides
from morpho.ir.body import Body
from morpho.ir.node import Node
from morpho.ir.views import Strides
from morpho.ops.control.records import COUNTER, parts
from morpho.passes.loops.moving_slices import Turns
from morpho.program.program import Step
from morpho.program.view import View, part_of

LINE_BYTES = 64
MOST_ALIKE = 8  # of 64 sets of lines: so many lines of 32 elements share at most four
LEAST_FAR = 1 << 18  # bytes of slices that are not copied first
Lane = tuple[int, ...]  # the instructions of an element: two for a complex number


def lower_lane_loop(low: Lowering, node: Node) -> None:
    """A whole scan as one kernel, a row for every element of what is carried."""
    carries, xs, constants = parts(node)
    count, turns = len(carries), node["length"]
    init = [low.number_or_place(carry) for carry in carries]
    sources = [_within_reach(low, place_of(low, x), node) for x in xs]
    fixed = [[_side_by_side(low, place, 0, node) for place in _parts_of(place_of(low, constant))]
             for constant in constants]
    homes = [_homes(low, value, carry, node) for value, carry in zip(init, carries, strict=True)]
    stacked = [low.new_slot(spec.shape, spec.dtype) for spec in node.outputs[count:]]
    lanes = LaneOperands(carries[0].shape, turns, node["reverse"])
    scalars = lanes.scalars
    own = [[lanes.add(home) for home in both] for both in homes]
    given: list[Lane] = [tuple(scalars.add("carry", home.dtype, (), (number, part)) for part, home in enumerate(both))
                         for number, both in enumerate(homes)]
    given += [(lanes.loaded(lanes.add_moving(place)),) for place in sources]
    given += [tuple(lanes.loaded(lanes.add(place)) for place in both) for both in fixed]
    if node["counts"]:
        given.append((scalars.add("counter", COUNTER.dtype),))
    turns_of = Turns(node)

    def picked(part: Node) -> int:
        """The instruction that reads an element of a carried value by the turn's number."""
        form = turns_of.picked(part)
        assert form is not None, "other loops are no `LaneLoop`"
        return scalars.add("pick", part.dtype, (), (own[part.inputs[0]["index"]][0], form.factor, form.constant))

    results = turn_of(scalars, node["turn"], given, picked)
    rows = [lanes.add_moving(place) for place in stacked]
    loop = RegisterLoop(
        tuple(scalars.instructions), tuple(scalars.operands),
        tuple(Carry(old, new, operand, 0) for n in range(count)
              for old, new, operand in zip(given[n], results[n], own[n], strict=True)),
        tuple(Store(value, row, 0) for (value,), row in zip(results[count:], rows, strict=True)),
        backwards=node["reverse"])
    kernel = LaneLoop(loop, tuple(lanes.apart), tuple(
        operand for value, both in zip(init, own, strict=True) for operand in both if not isinstance(value, View)))
    low.program.steps.append(Step(
        kernel, tuple(scalars.views), (*[number for both in own for number in both], *rows),
        kernel.record.values(turns=turns, strides=lanes.strides), product(carries[0].shape), turns,
        f"{node.op.name} by element", node.origin, threads="one" if kernel.picks else "auto"))
    low.views[node.serial] = [*[_joined(low, both, carry, node) for both, carry in zip(homes, carries, strict=True)],
                              *stacked]


def _parts_of(place: View) -> list[View]:
    """Real and imaginary parts of complex numbers; others as they are."""
    return [part_of(place, index) for index in range(2)] if place.dtype.is_complex else [place]


def _homes(low: Lowering, value: View | float | int | bool, carry: Node, node: Node) -> list[View]:
    """Memory for a carried value, its parts apart, with the first value in it."""
    if isinstance(value, View) and carry.dtype.is_complex:
        first: list[View | float | int | bool] = [*_parts_of(value)]
    else:
        first = [value]
    dtype = part_of(value, 0).dtype if isinstance(value, View) and carry.dtype.is_complex else carry.dtype
    homes = [low.new_slot(carry.shape, dtype) for _ in first]
    for one, home in zip(first, homes, strict=True):
        low.copy(one, home, node)
    return homes


def _joined(low: Lowering, homes: list[View], carry: Node, node: Node) -> View:
    """A carried value after the loop."""
    if len(homes) == 1:
        return homes[0]
    place = low.new_slot(carry.shape, carry.dtype)
    for part, home in zip(_parts_of(place), homes, strict=True):
        low.copy(home, part, node)
    return place


class LaneOperands:
    """The operands of the kernel, each as the one element that a lane sees."""

    def __init__(self, shape: Shape, turns: Size, backwards: bool) -> None:
        self.scalars, self.shape, self.turns, self.backwards = Scalars(), shape, turns, backwards
        self.strides: list[Size] = []
        self.apart: list[int] = []

    def add(self, place: View, stride: Size = 0) -> int:
        """A place with an element for every lane, or a number for all; it moves by so much at every turn."""
        self.strides.append(-stride if self.backwards else stride)
        self.apart.append(_apart(place.shape, place.strides) if place.shape == self.shape else 0)
        return self.scalars.operand(place, stride != 0)

    def add_moving(self, place: View) -> int:
        """A place of which each turn sees a slice."""
        start = place.offset + (self.turns - 1) * place.strides[0] if self.backwards else place.offset
        return self.add(View(place.slot, start, place.shape[1:], place.strides[1:], place.dtype), place.strides[0])

    def loaded(self, operand: int) -> int:
        """The instruction that reads an operand."""
        return self.scalars.add("load", self.scalars.operands[operand].dtype, (), (operand, 0))


def _apart(shape: Shape, strides: Strides) -> int:
    """How far the elements of a place lie apart, in the order of its axes; 0 where that is not one number."""
    line = reshape_strides(shape, strides, (product(shape),))
    return line[0] if line is not None and isinstance(line[0], int) and line[0] > 0 else 0


def _within_reach(low: Lowering, place: View, node: Node) -> View:
    """Slices whose elements lie side by side. Where turns do instead, and a copy would leave the near caches, elements
    are read where they are, a line of the cache for each: unless many of those lines take the same place there."""
    size, apart = place.dtype.itemsize, _apart(place.shape[1:], place.strides[1:])
    if (abs(place.strides[0]) == 1 < apart and product(place.shape) * size >= LEAST_FAR
            and math.gcd(apart * size // LINE_BYTES, 64) <= MOST_ALIKE):
        return place
    return _side_by_side(low, place, 1, node)


def _side_by_side(low: Lowering, place: View, first: int, node: Node) -> View:
    """A place whose elements lie side by side from axis `first` on; a copy where they do not."""
    if is_contiguous(place.shape[first:], place.strides[first:]):
        return place
    fresh = low.new_slot(place.shape, place.dtype)
    low.copy(place, fresh, node)
    return fresh


def turn_of(scalars: Scalars, body: Body, given: list[Lane], picked: Callable[[Node], int]) -> list[Lane]:
    """The outputs of a turn of one element; `given` are the instructions that its inputs are, `picked` finds that of a
    gather."""
    known: dict[int, Lane] = {}
    for node in body.graph.nodes:
        inputs = [known[child.serial] for child in node.inputs]
        if node.op.name == "parameter":
            known[node.serial] = given[node["index"]]
        elif node.op.name == "constant":
            known[node.serial] = (scalars.constant(node["value"], node.dtype),)
        elif node.op.name == "iota":
            known[node.serial] = (scalars.add("lane", node.dtype),)
        elif node.op.name == "gather":
            known[node.serial] = (picked(node),)
        elif node.op.name == "part":
            known[node.serial] = inputs[0][node["index"]:][:1]
        elif node.op.kind == "elementwise" or node.op.name == "complex":
            numbers = [number for one in inputs for number in one]
            known[node.serial] = tuple(numbers) if node.op.name == "complex" else (
                scalars.add(node.op.name, node.dtype, numbers),)
        else:  # from a number to its repetition, or to another shape of the same elements
            known[node.serial] = inputs[0]
    return [known[output.serial] for output in body.outputs]
