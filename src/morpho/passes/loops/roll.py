"""Loops found again: a Python `for` over a traced body leaves the same operations many times over; they become a scan.

The nodes of a program in order are looked through for a period: a stretch in which every node is the one a period
before it, with the inputs of the turn before. What comes from the turn before is carried, what is the same for all
turns is a constant, a slice that moves by the same step is one of the xs, a whole number that does is computed from the
turn's number. Nothing is computed otherwise: the loop has the bits of its turns.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from morpho.base.dims import product
from morpho.base.dtypes import DType, int64
from morpho.ir.body import Body, parameter
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, make, rebuild
from morpho.ir.op import Spec
from morpho.ir.views import look_through
from morpho.ops.algebra import add, cast, constant, mul, permute, reshape, zeros_like
from morpho.ops.control import records as control

LEAST_TURNS = 8
LEAST_NODES = 64  # of a program that is looked through
MOST_PERIOD = 4000  # nodes of a turn
MANY_TURNS = 64  # from which also what would be one kernel becomes a loop
FEW_ELEMENTS = 64  # of the values of a turn, for which a loop is one kernel
MOST_SWEEPS = 4  # loops in loops
MOST_BACK = 3  # turns that a value may come from
MOVING = frozenset({"slice", "constant"})  # whose attributes may change from turn to turn


def roll(graph: Graph) -> tuple[Graph, list[int]]:
    """The graph with its repetitions as loops, and how many turns each has."""
    found: list[int] = []
    for _ in range(MOST_SWEEPS):
        if len(graph.nodes) < LEAST_NODES:
            break
        written = graph.written if graph.written is not None else sorted(graph.nodes, key=lambda node: node.serial)
        run = _longest(Graph(graph.outputs, written))  # in the order of the user's turns
        if run is None:
            break
        graph = run.replaced()
        found.append(run.turns)
    return graph, found


def _label(node: Node) -> tuple[Any, ...]:
    """Label of a node that is equal in every iteration."""
    attributes: Any = tuple(sorted(node.attributes.items(), key=lambda item: item[0]))
    if node.op.name == "constant":
        attributes = node.dtype
    elif node.op.name == "slice":
        attributes = (node["sizes"], node["steps"])
    try:
        hash(attributes)
    except TypeError:
        attributes = repr(attributes)
    return (node.op.name, node.outputs, attributes, len(node.inputs))


def _longest(graph: Graph) -> Run | None:
    """The repetition that saves most nodes."""
    numbers: dict[Any, int] = {}
    labels = [numbers.setdefault(_label(node), len(numbers)) for node in graph.nodes]
    places: dict[int, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(label, []).append(place)
    periods: Counter[int] = Counter()
    for some in places.values():
        if len(some) >= LEAST_TURNS:
            steps = Counter(b - a for a, b in itertools.pairwise(some))
            for period, count in steps.most_common(2):
                if count >= LEAST_TURNS - 2 and period <= MOST_PERIOD:
                    periods[period] += count
    best: Run | None = None
    for period, _ in periods.most_common(4):
        for start, end in _stretches(labels, period):
            run = _run_at(graph, start, end, period)
            if run is not None and (best is None or run.saves > best.saves):
                best = run
    return best


def _stretches(labels: Sequence[int], period: int) -> list[tuple[int, int]]:
    """Where labels repeat with a period for long enough."""
    found, start = [], None
    for place in range(len(labels) - period + 1):
        same = place < len(labels) - period and labels[place] == labels[place + period]
        if same and start is None:
            start = place
        elif not same and start is not None:
            if place + period - start >= LEAST_TURNS * period:
                found.append((start, place + period))
            start = None
    return found


def _run_at(graph: Graph, start: int, end: int, period: int) -> Run | None:
    """A repetition within a stretch, from one of its first turns on."""
    for shift in range(0, min(2 * period, end - start), 1):
        turns = (end - start - shift) // period
        if turns < LEAST_TURNS:
            return None
        run = Run(graph, start + shift, period, turns)
        if run.holds():
            return run if run.pays() else None
        if shift >= 64:  # the order in a turn is what the walk made it: some beginning within it fits early
            return None
    return None


@dataclass
class Run:
    """`turns` repetitions of `period` nodes from node `start` on."""

    graph: Graph
    start: int
    period: int
    turns: int
    inputs: list[list[tuple[str, Any]]] = field(default_factory=list)  # per node of a turn, per input: kind and what
    # (node of a turn, how many turns later its value is read) -> what is read before there is one
    carried: dict[tuple[int, int], Node] = field(default_factory=dict)
    moving: dict[int, Any] = field(default_factory=dict)  # node of a turn -> first number or start, and its step

    @property
    def saves(self) -> int:
        return self.period * (self.turns - 1)

    def node(self, turn: int, place: int) -> Node:
        return self.graph.nodes[self.start + turn * self.period + place]

    @property
    def place(self) -> dict[int, int]:
        if not hasattr(self.graph, "_places"):
            self.graph._places = {n.serial: i for i, n in enumerate(self.graph.nodes)}  # type: ignore[attr-defined]
        return self.graph._places  # type: ignore[attr-defined, no-any-return]

    # -- does it hold? -------------------------------------------------------------------------------------------------
    def holds(self) -> bool:
        """Whether every turn is the one before, a period later."""
        self.inputs, self.carried, self.moving = [], {}, {}
        for place in range(self.period):
            first = self.node(MOST_BACK, place)
            if first.op.name == "parameter" or (first.op.name in MOVING and not self._moves(place)):
                return False
            kinds = []
            for number in range(len(first.inputs)):
                kind = self._kind(place, number)
                if kind is None:
                    return False
                kinds.append(kind)
            self.inputs.append(kinds)
        return True

    def _kind(self, place: int, number: int) -> tuple[str, Any] | None:
        """Where an input comes from: the same turn, one of the turns before, or around the loop."""
        late = self.node(MOST_BACK, place).inputs[number]
        at = self.place[late.serial] - (self.start + MOST_BACK * self.period)
        if at < -MOST_BACK * self.period or at >= self.period:  # outside: the same for all
            same = all(self.node(t, place).inputs[number] is late for t in range(self.turns))
            return ("constant", late) if same and at < 0 else None
        back = 0 if at >= 0 else -(at // self.period)  # turns
        source = at + back * self.period
        for turn in range(self.turns):
            child = self.node(turn, place).inputs[number]
            if turn >= back:
                if self.place[child.serial] != self.start + (turn - back) * self.period + source:
                    return None
            elif (self.place[child.serial] >= self.start or child.spec != late.spec
                  or self.carried.setdefault((source, back - turn), child) is not child):
                return None
        return ("inside", source) if back == 0 else ("carried", (source, back))

    def _moves(self, place: int) -> bool:
        """Whether the attributes of a slice or number are the same at every turn, or move by the same step."""
        nodes = [self.node(turn, place) for turn in range(self.turns)]
        if nodes[0].op.name == "constant":
            values = [node["value"] for node in nodes]
            if all(_same_number(value, values[0]) for value in values):
                return True
            if not all(_is_whole(value, nodes[0].dtype) for value in values):
                return False
            values = [int(value) for value in values]
            step = values[1] - values[0]
            self.moving[place] = (values[0], step)
            return all(b - a == step for a, b in itertools.pairwise(values))
        starts = [node["starts"] for node in nodes]
        if all(one == starts[0] for one in starts):
            return True
        if not all(isinstance(n, int) for one in starts for n in one):
            return False
        steps = [b - a for a, b in zip(starts[0], starts[1], strict=True)]
        axes = [axis for axis, step in enumerate(steps) if step]
        if len(axes) != 1 or nodes[0]["sizes"][axes[0]] != 1:
            return False
        if any(node.inputs[0] is not nodes[0].inputs[0] for node in nodes):
            return False
        self.moving[place] = (axes[0], steps[axes[0]])
        return all([b - a for a, b in zip(one, other, strict=True)] == steps
                   for one, other in itertools.pairwise(starts))

    def pays(self) -> bool:
        """Whether the turns would not be one kernel anyway, or too long a one."""
        if not self.carried:
            return False
        body = [self.node(0, place) for place in range(self.period)]
        if any(node.op.kind in ("host", "random", "collective") for node in body):
            return False
        several = any(node.op.kind not in ("elementwise", "source") and "view" not in node.op.properties
                      for node in body)
        sizes = [product(node.shape) for node in body]
        small = all(isinstance(size, int) for size in sizes) and max(sizes) <= FEW_ELEMENTS
        return several or self.turns >= MANY_TURNS or (small and self.turns >= 2 * LEAST_TURNS)

    # -- the loop ------------------------------------------------------------------------------------------------------
    def replaced(self) -> Graph:
        """The graph with a scan in place of the turns."""
        end = self.start + self.turns * self.period
        nodes = self.graph.nodes
        inside = {node.serial: n - self.start for n, node in enumerate(nodes[self.start:end], self.start)}
        later = nodes[end:]
        wanted: set[int] = set()
        for node in later:
            wanted |= {inside[child.serial] for child in node.inputs if child.serial in inside}
        wanted |= {inside[node.serial] for node in self.graph.outputs if node.serial in inside}
        last = (self.turns - 1) * self.period
        stacked = sorted({number % self.period for number in wanted if number < last})
        ends = sorted({number % self.period for number in wanted if number >= last}
                      - set(stacked) - {source for source, _ in self.carried})
        found = self._scan(stacked, ends)
        done = {node.serial: node for node in nodes[:self.start]}

        def value(child: Node) -> Node:
            return found(inside[child.serial]) if child.serial in inside else done[child.serial]

        for node in later:
            done[node.serial] = self._joined(node, inside, value) or \
                rebuild(node, [value(child) for child in node.inputs])
        made = Graph(tuple(value(node) for node in self.graph.outputs))
        order = {node.serial: n for n, node in enumerate(done.values())}
        made.written = sorted(made.nodes, key=lambda node: order.get(node.serial, self.start))
        return made

    def _joined(self, node: Node, inside: dict[int, int], value: Callable[[Node], Node]) -> Node | None:
        """Rows of what the loop stacks put side by side again: what it stacked, beside what else there is."""
        if node.op.name != "concatenate" or len(node.inputs) < self.turns:
            return None
        numbers = [inside.get(look_through(child, _is_reshape)[0].serial, -1) for child in node.inputs]
        at = next((n for n, number in enumerate(numbers) if 0 <= number < self.period), None)
        axis = node["axis"]
        if at is None or numbers[at:at + self.turns] != [numbers[at] + t * self.period for t in range(self.turns)]:
            return None
        one = node.inputs[at]
        if one.shape[axis] != 1 or numbers[at] not in self._rows:
            return None
        rank = len(one.shape)
        order = (*range(1, axis + 1), 0, *range(axis + 1, rank + 1))
        shape = tuple(self.turns if d == axis else size for d, size in enumerate(one.shape))
        rows = reshape(self._rows[numbers[at]], (self.turns, *one.shape))
        whole = reshape(permute(rows, order), shape)
        parts = [*map(value, node.inputs[:at]), whole, *map(value, node.inputs[at + self.turns:])]
        return whole if len(parts) == 1 else build("concatenate", *parts, axis=axis)

    def _scan(self, stacked: Sequence[int], ends: Sequence[int]) -> Callable[[int], Node]:
        """The loop; a function from the number of a node in it to its value."""
        template = [self.node(1, place) for place in range(self.period)]
        sources = sorted(self.carried)
        firsts = [self.carried[key] for key in sources]
        firsts += [zeros_like(template[place]) for place in ends]
        slots = {key: parameter(n, firsts[n].spec) for n, key in enumerate(sources)}
        sliced = [place for place, node in enumerate(template) if place in self.moving and node.op.name == "slice"]
        xs = [self._rows_of(place) for place in sliced]
        count = len(firsts)
        rows = {place: parameter(count + n, Spec(x.shape[1:], x.dtype)) for n, (place, x)
                in enumerate(zip(sliced, xs, strict=True))}
        constants = list(dict.fromkeys(what for kinds in self.inputs for kind, what in kinds if kind == "constant"))
        fixed = {node.serial: make(node.op, (), {**node.attributes}) if node.op.name == "constant" else
                 parameter(count + len(xs) + n, node.spec) for n, node in enumerate(constants)}
        number = parameter(count + len(xs) + len(constants), control.COUNTER)
        done: list[Node] = []
        counts = any(node.op.name == "constant" for place, node in enumerate(template) if place in self.moving)
        for place, node in enumerate(template):
            if place in rows:
                done.append(reshape(rows[place], node.shape))
                continue
            if place in self.moving:
                start, step = self.moving[place]
                done.append(cast(add(mul(number, constant(step, int64)), constant(start, int64)), node.dtype))
                continue
            children = [done[what] if kind == "inside" else slots[what] if kind == "carried" else fixed[what.serial]
                        for kind, what in self.inputs[place]]
            done.append(make(node.op, children, node.attributes, origin=node.origin))
        outputs = [*[done[source] if back == 1 else slots[source, back - 1] for source, back in sources],
                   *[done[place] for place in ends],
                   *[done[place] for place in stacked]]
        results = control.scan(Body(outputs), firsts, xs, constants, self.turns, False, counts)
        after = {place: results[len(sources) + n] for n, place in enumerate(ends)}
        after |= {source: results[n] for n, (source, back) in enumerate(sources) if back == 1}
        self._rows = {place: results[count + n] for n, place in enumerate(stacked)}
        last = (self.turns - 1) * self.period

        def found(number: int) -> Node:
            turn, place = divmod(number, self.period)
            if number >= last and place in after:
                return after[place]
            whole = self._rows[place]
            rank = len(whole.shape)
            starts, sizes = (turn, *[0] * (rank - 1)), (1, *whole.shape[1:])
            row = build("slice", whole, starts=starts, sizes=sizes, steps=(1,) * rank)
            return reshape(row, whole.shape[1:])

        return found

    def _rows_of(self, place: int) -> Node:
        """Rows that a moving slice reads in all iterations."""
        first = self.node(0, place)
        axis, step = self.moving[place]
        sizes = tuple(self.turns if d == axis else size for d, size in enumerate(first["sizes"]))
        steps = tuple(step if d == axis else s for d, s in enumerate(first["steps"]))
        whole = build("slice", first.inputs[0], starts=first["starts"], sizes=sizes, steps=steps)
        rank = len(whole.shape)
        return permute(whole, (axis, *[d for d in range(rank) if d != axis]))


def _is_whole(value: Any, dtype: DType) -> bool:
    """Whether a number is a whole one that its dtype, and a conversion to it, hold exactly."""
    exact = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}
    return type(value) is int or (type(value) is float and value.is_integer() and abs(value) <= exact[dtype.name]
                                  and repr(value) != "-0.0")


def _is_reshape(node: Node) -> bool:
    return node.op.name == "reshape"


def _same_number(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)

