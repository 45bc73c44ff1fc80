"""Control flow: If, Loop, Scan.

What is known while tracing decides at once. Otherwise a branch is `mo.cond` and a loop `mo.while_loop` or `mo.scan`,
where the shapes of what they carry stay the same; if they do not, the value is asked for and the loop runs on the host.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import morpho as mo
from morpho.base.errors import MorphoError
from morpho.onnx.operators.registry import Family
from morpho.onnx.proto.dtypes import element_type
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import NeedsValue, is_static, tensor
from morpho.tensor.core import Tensor
from morpho.tensor.functions.searching.search import rows_of

FAMILY = Family("control flow")
MOST_UNROLLED = 1024  # turns that are followed while tracing, to see how many there are
LEAST_SCANNED = 4  # fewer are left written out
MOST_TURNS = 1 << 24  # of a loop whose end depends on data: a file may ask for any number
ENDLESS = "Loop"  # what the lookup is called that fails where such a loop has not ended


def _tensors(values: Any) -> tuple[Any, ...] | None:
    """Values as tensors; None where one cannot be."""
    if all(isinstance(value, Tensor | np.ndarray) and not (isinstance(value, np.ndarray) and value.dtype == object)
           for value in values):
        return tuple(tensor(value) for value in values)
    return None


@FAMILY.op("If")
def branch(call: Call, condition: Any) -> Any:
    if not call.walk.tracing or is_static(condition) or call.walk.known(condition) is not None:
        taken = bool(call.static(condition, "its condition").reshape(-1)[0])
        return tuple(call.body("then_branch" if taken else "else_branch")())

    def one(name: str) -> Any:
        found = _tensors(call.body(name)())
        if found is None:
            raise NeedsValue(condition, "If has branches that do not return tensors")
        return found

    try:
        return mo.cond(mo.reshape(condition, ()), lambda: one("then_branch"), lambda: one("else_branch"))
    except MorphoError as error:  # branches of different shapes
        raise NeedsValue(condition, f"If has branches that cannot be one operation: {error}") from None


@FAMILY.op("Loop")
def loop(call: Call, trips: Any = None, condition: Any = None, *carried: Any) -> Any:
    """Turns of a body until a count or its own condition ends them; further outputs are collected."""
    count = int(trips.reshape(-1)[0]) if trips is not None and is_static(trips) else None
    if (trips is None or (count or 0) > MOST_TURNS) and _is_true(condition) and _never_ends_itself(call):
        told = "never ends" if count is None else f"has {count}"
        raise call.error(f"a loop that has not ended after {MOST_TURNS} turns is given up, and this one {told}")
    if call.walk.tracing:
        return _traced_loop(call, trips, condition, carried)
    most = None if trips is None else int(call.static(trips, "its count").reshape(-1)[0])
    going = condition is None or bool(call.static(condition, "its condition").reshape(-1)[0])
    body, states, turn = call.body("body"), [*carried], 0
    rows: list[list[Any]] = []
    call.walk.count("host_loops")
    while going and (most is None or turn < most):
        if turn >= MOST_TURNS:
            raise call.error(f"the loop has not ended after {MOST_TURNS} turns")
        going_on, *results = body(mo.asarray(turn, dtype=mo.int64), np.asarray(True), *states)  # one program for all
        states, rows = results[:len(carried)], [*rows, results[len(carried):]]
        going = bool(call.static(going_on, "its condition").reshape(-1)[0])
        mo.realise(*(state for state in states if isinstance(state, Tensor)))
        turn += 1
    return (*states, *_collected(call, rows, len(call.node.outputs) - len(carried)))


def _is_true(condition: Any) -> bool:
    """Whether a loop's first condition is known to hold."""
    return condition is None or (is_static(condition) and bool(condition.reshape(-1)[0]))


def _collected(call: Call, rows: list[list[Any]], count: int) -> list[Any]:
    if not rows:
        return [_nothing(call, place, count) for place in range(count)]
    return [np.stack(column) if is_static(*column) else mo.stack([tensor(value) for value in column])
            for column in zip(*rows)]


def _nothing(call: Call, place: int, count: int) -> Any:
    """Empty result of a loop without iterations, as the body declares it."""
    outputs = call.need("body").outputs
    kind = outputs[len(outputs) - count + place].type
    dtype = (element_type(kind.element).dtype if kind and kind.element else None) or mo.float32
    shape = tuple(size if isinstance(size, int) else 0 for size in (kind.shape or ())) if kind else ()
    return mo.zeros((0, *shape), dtype=dtype)


def _traced_loop(call: Call, trips: Any, condition: Any, carried: Any) -> Any:
    """The loop as one operation of the graph, if what it carries are tensors whose shapes stay."""
    collected = len(call.node.outputs) - len(carried)
    states = _tensors(carried)
    asked = next((value for value in (trips, condition, *carried) if isinstance(value, Tensor)), None)
    if states is None:
        raise NeedsValue(asked, "Loop carries something else than tensors")
    body = call.body("body")
    always = _is_true(condition) and _never_ends_itself(call)

    def turn(index: Any, values: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
        going, *results = body(index, np.asarray(True), *values)
        after, rows = _tensors(results[:len(values)]), _tensors(results[len(values):])
        if after is None or rows is None:
            raise NeedsValue(asked, "Loop carries something else than tensors")
        return tensor(going), after, rows

    try:
        if always and is_static(trips) and trips is not None and int(trips.reshape(-1)[0]) > 0:
            def step(values: tuple[Any, ...], index: Any) -> Any:
                _, after, rows = turn(index, values)
                return after, rows

            last, rows = mo.scan(step, states, mo.arange(int(trips.reshape(-1)[0])))
            return (*last, *rows)
        known = _unrolled(call, trips, condition, carried, asked)
        if known is not None:
            return _scanned(turn, states, known) if known.turns >= LEAST_SCANNED else known.results(call)
        if collected:
            raise NeedsValue(asked, "Loop collects rows, and how many is known only when it runs")
        return _while(turn, trips, condition, states)
    except MorphoError as error:
        raise NeedsValue(asked, f"Loop cannot be one operation: {error}") from None


class Unrolled(NamedTuple):
    """A loop whose turns are known while tracing, written out."""

    turns: int
    states: list[Any]
    rows: list[list[Any]]

    def results(self, call: Call) -> tuple[Any, ...]:
        """The loop's outputs."""
        return (*self.states, *_collected(call, self.rows, len(call.node.outputs) - len(self.states)))


def _unrolled(call: Call, trips: Any, condition: Any, carried: Any, asked: Any) -> Unrolled | None:
    """The loop written out, where every condition follows from counters and shapes; None where one needs data."""
    if not is_static(trips, condition):
        return None
    most = MOST_UNROLLED + 1 if trips is None else min(int(trips.reshape(-1)[0]), MOST_UNROLLED + 1)
    going = condition is None or bool(condition.reshape(-1)[0])
    body, states, turns = call.body("body"), [*carried], 0
    rows: list[list[Any]] = []
    while going and turns < most:
        try:
            onward, *results = body(np.asarray(turns, np.int64), np.asarray(True), *states)
        except NeedsValue:
            return None
        if not is_static(onward):
            return None
        states, turns, going = results[:len(carried)], turns + 1, bool(onward.reshape(-1)[0])
        rows.append(results[len(carried):])
    return None if turns > MOST_UNROLLED else Unrolled(turns, states, rows)


def _scanned(turn: Any, states: tuple[Any, ...], known: Unrolled) -> tuple[Any, ...]:
    """The same as one loop of the graph: its condition is known to hold for so many turns."""
    def step(values: tuple[Any, ...], index: Any) -> Any:
        _, after, rows = turn(index, values)
        return after, rows

    last, rows = mo.scan(step, states, mo.arange(known.turns))
    return (*last, *rows)


def _while(turn: Any, trips: Any, condition: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    bound = mo.asarray(MOST_TURNS, dtype=mo.int64)
    asked = bound + 1 if trips is None else mo.astype(mo.reshape(tensor(trips), ()), mo.int64)
    most = mo.minimum(asked, bound)
    first = mo.asarray(True) if condition is None else mo.reshape(tensor(condition), ())

    def step(value: Any) -> Any:
        index, _, inner = value
        going, after, _ = turn(index, inner)
        return index + 1, mo.reshape(going, ()), after

    found = mo.while_loop(lambda value: mo.logical_and(value[1], value[0] < most), step,
                          (mo.asarray(0, dtype=mo.int64), first, states))
    endless = mo.logical_and(found[1], mo.logical_and(found[0] >= bound, asked > bound))
    ended = rows_of(ENDLESS, mo.ones((1, 1), dtype=mo.bool), mo.where(endless, bound, mo.zeros_like(bound)))
    return tuple(mo.where(mo.reshape(ended, ()), value, mo.zeros_like(value)) for value in found[2])


def _never_ends_itself(call: Call) -> bool:
    """Whether the body's condition is the one that it is given, or a constant that is true."""
    body = call.need("body")
    name, given = body.outputs[0].name, body.inputs[1].name if len(body.inputs) > 1 else ""
    made = {output: node for node in body.nodes for output in node.outputs}
    while name in made and made[name].op == "Identity":
        name = made[name].inputs[0]
    if name == given:
        return True
    constant = body.initializers.get(name)
    if constant is None and name in made and made[name].op == "Constant":
        constant = made[name].attributes.get("value")
    return constant is not None and bool(constant.array.reshape(-1)[0])


@FAMILY.op("Scan", since=9)
def scan(call: Call, *inputs: Any) -> Any:
    """States through a body for each slice of the scanned inputs."""
    scanned = call.need("num_scan_inputs")
    count = len(inputs) - scanned
    states, given = inputs[:count], [tensor(value) for value in inputs[count:]]
    axes, backwards = call.get("scan_input_axes", [0] * scanned), call.get("scan_input_directions", [0] * scanned)
    given = [mo.moveaxis(value, axis, 0) for value, axis in zip(given, axes)]
    given = [mo.flip(value, axis=0) if back else value for value, back in zip(given, backwards)]
    body = call.body("body")

    def step(carried: tuple[Any, ...], slices: tuple[Any, ...]) -> Any:
        found = _tensors(body(*carried, *slices))
        if found is None:
            raise call.error("its body returns something else than tensors")
        return found[:count], found[count:]

    last, rows = mo.scan(step, tuple(tensor(state) for state in states), tuple(given))
    out_axes = call.get("scan_output_axes", [0] * len(rows))
    out_back = call.get("scan_output_directions", [0] * len(rows))
    rows = [mo.flip(row, axis=0) if back else row for row, back in zip(rows, out_back)]
    return (*last, *(mo.moveaxis(row, 0, axis) for row, axis in zip(rows, out_axes)))


@FAMILY.op("Scan", since=1)
def scan_8(call: Call, lengths: Any, *inputs: Any) -> Any:
    """Scan of opset 8: the first axis is a batch, and each of its rows is scanned by itself."""
    if lengths is not None:
        raise call.error("lengths of sequences are not taken")
    scanned = call.need("num_scan_inputs")
    count, backwards = len(inputs) - scanned, call.get("directions", [0] * scanned)
    body, columns = call.body("body"), []
    for row in range(inputs[0].shape[0]):
        rows_of = [tensor(value)[row] for value in inputs]
        states, given = tuple(rows_of[:count]), rows_of[count:]
        given = [mo.flip(value, axis=0) if back else value for value, back in zip(given, backwards)]
        last, rows = mo.scan(lambda carried, slices: _parted(_tensors(body(*carried, *slices)), count), states,
                             tuple(given))
        columns.append((*last, *rows))
    return tuple(mo.stack(column) for column in zip(*columns))


def _parted(values: Any, count: int) -> Any:
    return values[:count], values[count:]
