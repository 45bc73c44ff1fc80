"""Loops and branches on many rows at once, and in forward mode: the `batch` and `jvp` rules of control flow.

A body is batched, or given tangents, as any program is; only which carried values get rows or tangents is found by
trying until no more do: what a turn makes of one goes into the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from morpho.base.dtypes import int64
from morpho.ir.body import Body, parameter
from morpho.ir.node import Node, build, make
from morpho.ir.op import Spec
from morpho.ops.algebra import cast, constant_like, expand, permute, reduce, reshape, where, zeros_like
from morpho.ops.batching import Rows, batch_of, in_front
from morpho.ops.collective import come_after, of_a_body
from morpho.ops.sources import pick

Tangent = Node | None
Push = Callable[..., list[Tangent]]


def _results(node: Node) -> list[Node]:
    return [pick(node, number) for number in range(len(node.outputs))]


# -- rows --------------------------------------------------------------------------------------------------------------
def _leaves(specs: Sequence[Spec], has: Sequence[bool], size: Any) -> dict[int, Node]:
    """For each parameter of a body that has rows, by serial, one with them."""
    return {parameter(n, spec).serial: parameter(n, Spec((size, *spec.shape), spec.dtype))
            for n, (spec, one) in enumerate(zip(specs, has, strict=True)) if one}


def _swapped(node: Node) -> Node:
    """The first two axes exchanged: rows before turns, or turns before rows."""
    return permute(node, (1, 0, *range(2, len(node.shape))))


def _fronts(found: Sequence[tuple[Node, bool]], size: Any) -> list[Node]:
    return [in_front(*one, size) for one in found]


def batch_scan(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> list[Node]:
    carries, count = node["carries"], node["carries"] + node["xs"]
    outputs = node["turn"].outputs
    given = [Spec(child.shape[1:] if carries <= n < count else child.shape, child.dtype)
             for n, child in enumerate(node.inputs)]
    has = list(batched)
    while True:
        found = batch_of(outputs, _leaves(given, has, rows.size), rows.size)
        more = [one or output for one, (_, output) in zip(has[:carries], found, strict=False)]
        if more == has[:carries]:
            break
        has[:carries] = more
    turn = [in_front(*one, rows.size) if n >= carries or has[n] else one[0] for n, one in enumerate(found)]
    begin = [in_front(one, batched[n], rows.size) if has[n] else one for n, one in enumerate(inputs[:carries])]
    xs = [_swapped(one) if batched[carries + n] else one for n, one in enumerate(inputs[carries:count])]
    made = _results(make(node.op, (*begin, *xs, *inputs[count:]), {**node.attributes, "turn": Body(turn)}))
    last = [in_front(one, has[n], rows.size) for n, one in enumerate(made[:carries])]
    return [*last, *[_swapped(one) for one in made[carries:]]]


def batch_while(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> list[Node]:
    """Where the test depends on the row, turns go on until none wants more, and a row that wants none keeps what it
    has."""
    carries, size = node["carries"], rows.size
    given, has = [child.spec for child in node.inputs], list(batched)
    while True:
        leaves = _leaves(given, has, size)
        (test,) = batch_of(node["test"].outputs, leaves, size)
        found = batch_of(node["turn"].outputs, leaves, size)
        more = [one or output or test[1] for one, (_, output) in zip(has[:carries], found, strict=True)]
        if more == has[:carries]:
            break
        has[:carries] = more
    wants, turn = test[0], [in_front(*one, size) if has[n] else one[0] for n, one in enumerate(found)]
    if test[1]:
        for n, one in enumerate(turn):
            goes_on = reshape(wants, (size, *[1] * (len(one.shape) - 1)))
            turn[n] = where(expand(goes_on, one.shape), one, parameter(n, one.spec))
        wants = reshape(reduce("any", wants, (0,)), ())
    begin = [in_front(one, batched[n], size) if has[n] else one for n, one in enumerate(inputs[:carries])]
    made = make(node.op, (*begin, *inputs[carries:]),
                {**node.attributes, "test": Body([wants]), "turn": Body(turn)})
    return [in_front(one, has[n], size) for n, one in enumerate(_results(made))]


def batch_switch(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> list[Node]:
    """Where the rows choose for themselves, all branches are computed and each row takes its own; but of one for
    `any_row` the last that any asks for."""
    size, branches = rows.size, node["branches"]
    if batched[0] and node.attributes.get("any_row"):
        inputs, batched = [reshape(reduce("max", inputs[0], (0,)), ()), *inputs[1:]], [False, *batched[1:]]
    if not batched[0]:
        leaves = _leaves([child.spec for child in node.inputs[1:]], batched[1:], size)
        bodies = tuple(Body(_fronts(batch_of(branch.outputs, leaves, size), size)) for branch in branches)
        return _results(make(node.op, inputs, {**node.attributes, "branches": bodies}))
    which = cast(inputs[0], int64)
    chosen: list[Node] = []
    for number, branch in enumerate(branches):
        leaves = {parameter(n, child.spec).serial: in_front(one, has, size)
                  for n, (child, one, has) in enumerate(zip(node.inputs[1:], inputs[1:], batched[1:], strict=True))}
        found = _fronts(batch_of(branch.outputs, leaves, size), size)
        if number == 0:
            chosen = found
            continue
        here = build("greater_equal", which, constant_like(which, number))
        chosen = [where(expand(reshape(here, (size, *[1] * (len(one.shape) - 1))), one.shape), one, other)
                  for one, other in zip(found, chosen, strict=True)]
    return chosen


# -- tangents ----------------------------------------------------------------------------------------------------------
class _Numbered:
    """Parameters of a new body, in the order they are asked for."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, specs: Sequence[Spec]) -> list[Node]:
        first, self.count = self.count, self.count + len(specs)
        return [parameter(first + n, spec) for n, spec in enumerate(specs)]


def _specs(nodes: Sequence[Node]) -> list[Spec]:
    return [node.spec for node in nodes]


def _of_slices(nodes: Sequence[Node]) -> list[Spec]:
    return [Spec(node.shape[1:], node.dtype) for node in nodes]


def _some(nodes: Sequence[Any], has: Sequence[bool]) -> list[Any]:
    return [node for node, one in zip(nodes, has, strict=True) if one]


def _spread(found: Sequence[Node], has: Sequence[bool]) -> list[Tangent]:
    """Tangents at the places that have one, None elsewhere."""
    items = iter(found)
    return [next(items) if one else None for one in has]


def _filled(tangents: Sequence[Tangent], nodes: Sequence[Node], has: Sequence[bool]) -> list[Node]:
    return [zeros_like(node) if tangent is None else tangent
            for tangent, node, one in zip(tangents, nodes, has, strict=True) if one]


def jvp_scan(node: Node, tangents: Sequence[Tangent], push: Push) -> list[Tangent]:
    carries, count = node["carries"], node["carries"] + node["xs"]
    begin, xs, fixed = node.inputs[:carries], node.inputs[carries:count], node.inputs[count:]
    has = [tangent is not None for tangent in tangents]
    while True:
        number = _Numbered()
        c, dc = number(_specs(begin)), number(_some(_specs(begin), has[:carries]))
        x, dx = number(_of_slices(xs)), number(_some(_of_slices(xs), has[carries:count]))
        f, df = number(_specs(fixed)), number(_some(_specs(fixed), has[count:]))
        counter = number([Spec((), int64)] if node["counts"] else [])
        values = node["turn"].put([*c, *x, *f, *counter])
        moving = [leaf.serial for leaf in _some([*c, *x, *f], has)]
        with of_a_body(sees_outside=False) as groups:
            found = push(values, dict(zip(moving, [*dc, *dx, *df], strict=True)))
        more = [one or part is not None for one, part in zip(has[:carries], found, strict=False)]
        if more == has[:carries]:
            break
        has[:carries] = more
    stacked = [part is not None for part in found[carries:]]
    turn = [*values[:carries], *_filled(found[:carries], values[:carries], has[:carries]),
            *_some(found[carries:], stacked)]
    given = (*begin, *_filled(tangents[:carries], begin, has[:carries]),
             *xs, *_some(tangents[carries:count], has[carries:count]), *fixed, *_some(tangents[count:], has[count:]))
    attributes = {**node.attributes, "turn": Body(turn), "carries": carries + len(dc), "xs": len(x) + len(dx)}
    made = _results(make(node.op, given, attributes))[carries:]
    come_after(groups, made)
    return [*_spread(made[:len(dc)], has[:carries]), *_spread(made[len(dc):], stacked)]


def jvp_while(node: Node, tangents: Sequence[Tangent], push: Push) -> list[Tangent]:
    carries = node["carries"]
    begin, fixed = node.inputs[:carries], node.inputs[carries:]
    has = [tangent is not None for tangent in tangents]
    while True:
        number = _Numbered()
        c, dc = number(_specs(begin)), number(_some(_specs(begin), has[:carries]))
        f, df = number(_specs(fixed)), number(_some(_specs(fixed), has[carries:]))
        values = node["turn"].put([*c, *f])
        moving = [leaf.serial for leaf in _some([*c, *f], has)]
        with of_a_body(sees_outside=False) as groups:
            found = push(values, dict(zip(moving, [*dc, *df], strict=True)))
        more = [one or part is not None for one, part in zip(has[:carries], found, strict=True)]
        if more == has[:carries]:
            break
        has[:carries] = more
    turn = Body([*values, *_filled(found, values, has[:carries])])
    given = (*begin, *_filled(tangents[:carries], begin, has[:carries]),
             *fixed, *_some(tangents[carries:], has[carries:]))
    made = make(node.op, given, {**node.attributes, "turn": turn, "test": Body(node["test"].put([*c, *f])),
                                 "carries": carries + len(dc)})
    come_after(groups, _results(made))
    return _spread(_results(made)[carries:], has[:carries])


def jvp_switch(node: Node, tangents: Sequence[Tangent], push: Push) -> list[Tangent]:
    """The tangent of the branch that is taken."""
    operands, along = node.inputs[1:], tangents[1:]
    has = [tangent is not None for tangent in along]
    number = _Numbered()
    x, dx = number(_specs(operands)), number(_some(_specs(operands), has))
    moving = dict(zip([leaf.serial for leaf in _some(x, has)], dx, strict=True))
    values = [branch.put(x) for branch in node["branches"]]
    with of_a_body(sees_outside=False) as groups:
        found = [push(value, moving) for value in values]
    some = [any(part is not None for part in parts) for parts in zip(*found, strict=True)]
    if not any(some):
        return [None] * len(some)
    bodies = tuple(Body(_filled(parts, value, some)) for parts, value in zip(found, values, strict=True))
    made = make(node.op, (node.inputs[0], *operands, *_some(along, has)), {**node.attributes, "branches": bodies})
    come_after(groups, _results(made))
    return _spread(_results(made), some)
