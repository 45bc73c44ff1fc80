"""Control flow: `scan`, `while_loop` and `switch`, operations that hold bodies.

A body is a program over parameters (`ir/body.py`) that stand, in order, for what the operation hands it:

| op | inputs | a body's parameters | its outputs |
|---|---|---|---|
| scan | carries, xs, constants | carries, a slice of each xs, constants, turn | carries, a slice of each ys |
| while_loop | carries, constants | carries, constants | `test`: one bool; `turn`: carries |
| switch | which branch, operands | operands | results, of the same specs in every branch |

The turn's number is a parameter where `counts` says so. Results are carries after the last turn, then the ys, stacked
along a new first axis. A loop has the bits of its turns written out one after another: nothing is computed otherwise
because it stands in a body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from morpho.base.dtypes import bool_, int64
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.ir.body import Body, parameter
from morpho.ir.node import Node, make
from morpho.ir.op import ANY, JOINT, Attributes, NoGradient, Op, Spec, register
from morpho.ops.algebra import add, constant_like, zeros_like
from morpho.ops.collective import come_after, of_a_body
from morpho.ops.control.transforms import batch_scan, batch_switch, batch_while, jvp_scan, jvp_switch, jvp_while
from morpho.ops.sources import pick

COUNTER = Spec((), int64)  # of a turn's number
PullBack = Callable[[Sequence[Node], Sequence[Node], Sequence[Node]], list[Node]]
_pull_back: list[PullBack] = []  # told by the floor that differentiates programs: rules here differentiate bodies


def set_pull_back(function: PullBack) -> None:
    """Say how the gradient of a body is made: `function(outputs, cotangents, leaves)` gives that of every leaf."""
    _pull_back[:] = [function]


# -- making ------------------------------------------------------------------------------------------------------------
def scan(turn: Body, carries: Sequence[Node], xs: Sequence[Node], constants: Sequence[Node], length: Any,
         reverse: bool = False, counts: bool = False) -> list[Node]:
    """The results of a scan: carries, then ys."""
    made = make(SCAN, (*carries, *xs, *constants),
                {"turn": turn, "carries": len(carries), "xs": len(xs), "length": length, "reverse": reverse,
                 "counts": counts})
    return results(made)


def results(node: Node) -> list[Node]:
    """Every output of a node."""
    return [pick(node, number) for number in range(len(node.outputs))]


def parts(node: Node) -> tuple[Sequence[Node], Sequence[Node], Sequence[Node]]:
    """Carries, xs and constants among the inputs of a scan."""
    first, second = node["carries"], node["carries"] + node["xs"]
    return node.inputs[:first], node.inputs[first:second], node.inputs[second:]


def slices(xs: Sequence[Node]) -> list[Spec]:
    """Specs of one iteration's slices of some values."""
    return [Spec(x.shape[1:], x.dtype) for x in xs]


def bodies_of(node: Node) -> list[Body]:
    """The bodies that an operation of control flow holds."""
    return [body for value in node.attributes.values() for body in (value if isinstance(value, tuple) else (value,))
            if isinstance(body, Body)]


def with_bodies(node: Node, function: Callable[[Body], Body]) -> Node:
    """The same operation with its bodies passed through a function."""
    def each(value: Any) -> Any:
        if isinstance(value, tuple) and value and isinstance(value[0], Body):
            return tuple(function(body) for body in value)
        return function(value) if isinstance(value, Body) else value

    return make(node.op, node.inputs, {name: each(value) for name, value in node.attributes.items()},
                device=node.device, origin=node.origin)


# -- shapes ------------------------------------------------------------------------------------------------------------
def _same(operation: str, wanted: Sequence[Spec], found: Sequence[Spec]) -> None:
    if len(wanted) != len(found):
        raise fail(ShapeError, operation, f"an iteration returns {len(found)} carried values, {len(wanted)} go in")
    for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if one != other:
            raise fail(ShapeError, operation,
                       f"carried value {number} goes in as {_told([one])} and comes out as {_told([other])}",
                       "an iteration must return values like its inputs: cast or reshape them, or begin with "
                       "another value")


def _infer_scan(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    carries, specs, length = attributes["carries"], attributes["turn"].specs, attributes["length"]
    for x in inputs[carries:carries + attributes["xs"]]:
        if not x.shape or x.shape[0] != length:
            raise fail(ShapeError, "scan", f"xs of shape {x.shape} has no first axis of {length}")
    _same("scan", inputs[:carries], specs[:carries])
    return (*specs[:carries], *(Spec((length, *spec.shape), spec.dtype) for spec in specs[carries:]))


def _infer_while(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    _same("while_loop", inputs[:attributes["carries"]], attributes["turn"].specs)
    if attributes["test"].specs != (Spec((), bool_),):
        raise fail(ArgumentError, "while_loop", f"the condition gives {attributes['test'].specs}, not one bool")
    return attributes["turn"].specs  # type: ignore[no-any-return]


def _infer_switch(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    if inputs[0].shape != () or not inputs[0].dtype.is_integer:
        raise fail(ArgumentError, "switch", f"the branch is chosen by one whole number, not {inputs[0].dtype}"
                                            f"{list(inputs[0].shape)}")
    first, *others = [branch.specs for branch in attributes["branches"]]
    for number, specs in enumerate(others):
        if specs != first:
            raise fail(ShapeError, "switch", f"branch 0 gives {_told(first)}, branch {number + 1} {_told(specs)}",
                       "all branches must give values of the same shapes and dtypes")
    return first  # type: ignore[no-any-return]


def _told(specs: Sequence[Spec]) -> str:
    return ", ".join(f"{spec.dtype}{list(spec.shape)}" for spec in specs) or "nothing"


def _no_reference(attributes: Attributes, *arrays: Any) -> Any:
    raise RuntimeError("control flow is evaluated through its bodies")


# -- gradients ---------------------------------------------------------------------------------------------------------
def _varies(spec: Spec) -> bool:
    return spec.dtype.is_float or spec.dtype.is_complex


def pulled_back(body: Body, given: Sequence[Spec], wanted: Sequence[int]) -> tuple[Body, set[int]]:
    """The gradient of a body: from its parameters and then a cotangent for each of its outputs that vary, those of the
    parameters `wanted`; and the groups that have collectives in it."""
    leaves = [parameter(number, spec) for number, spec in enumerate(given)]
    varying = [node for node in body.outputs if _varies(node.spec)]
    cotangents = [parameter(len(given) + number, node.spec) for number, node in enumerate(varying)]
    with of_a_body(sees_outside=False) as groups:
        found = _pull_back[0](varying, cotangents, [leaves[number] for number in wanted])
    return Body(found), groups


def _filled(cotangents: Sequence[Node | None], outputs: Sequence[Node]) -> list[Node]:
    """A cotangent for every output that varies, zeros where nobody asks."""
    return [zeros_like(output) if given is None else given
            for given, output in zip(cotangents, outputs, strict=True) if _varies(output.spec)]


def _vjp_scan(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    """The turns in reverse order, each computed again from the carries it began with, which a second form of the loop
    keeps (`passes/regions.py` makes the two one)."""
    carries, xs, constants = parts(node)
    turn, count = node["turn"], len(carries)
    given = [*[c.spec for c in carries], *slices(xs), *[c.spec for c in constants], *[COUNTER] * node["counts"]]
    kept = Body([*turn.outputs, *[parameter(number, c.spec) for number, c in enumerate(carries)]])
    made = scan(kept, carries, xs, constants, node["length"], node["reverse"], node["counts"])
    saved = made[len(turn.outputs):]  # (length, ...) each: the carries at the beginning of every turn
    outputs = made[:len(turn.outputs)]
    moving = [n for n in range(count) if _varies(given[n])]
    sliced = [count + n for n, x in enumerate(xs) if _varies(x.spec)]
    fixed = [count + len(xs) + n for n, c in enumerate(constants) if _varies(c.spec)]
    if not moving and not sliced and not fixed:
        return [None] * len(node.inputs)
    back, groups = pulled_back(turn, given, [*moving, *sliced, *fixed])
    filled = _filled(cotangents, outputs)
    after, stacked = filled[:len(moving)], filled[len(moving):]
    # A sum that begins with -0.0 has the bits of one that begins with its first term.
    sums = [constant_like(node.inputs[n], -0.0) for n in fixed]
    turned = _backward_turn(back, given, moving, sliced, fixed, [c.spec for c in carries], slices(xs),
                            [c.spec for c in constants], slices(stacked), node["counts"])
    found = scan(turned, [*after, *sums], [*saved, *xs, *stacked], constants, node["length"], not node["reverse"],
                 node["counts"])
    come_after(groups, found)
    gradients: list[Node | None] = [None] * len(node.inputs)
    for place, gradient in zip([*moving, *fixed, *sliced], found, strict=True):
        gradients[place] = gradient
    return gradients


def _backward_turn(back: Body, given: Sequence[Spec], moving: Sequence[int], sliced: Sequence[int],
                   fixed: Sequence[int], carries: Sequence[Spec], xs: Sequence[Spec], constants: Sequence[Spec],
                   stacked: Sequence[Spec], counts: bool) -> Body:
    """One turn of the backward loop. Its parameters: cotangents of the carries, sums for the constants; saved carries,
    xs, cotangents of ys; constants; the turn's number."""
    specs = [*[given[n] for n in moving], *[given[n] for n in fixed], *carries, *xs, *stacked, *constants,
             *[COUNTER] * counts]
    leaves = [parameter(number, spec) for number, spec in enumerate(specs)]
    at = 0

    def take(count: int) -> list[Node]:
        nonlocal at
        at += count
        return leaves[at - count:at]

    after, sums = take(len(moving)), take(len(fixed))
    began, seen, cotangents = take(len(carries)), take(len(xs)), take(len(stacked))
    rest = take(len(constants) + counts)
    found = back.put([*began, *seen, *rest, *after, *cotangents])
    to_carries, to_xs, to_constants = (found[:len(moving)], found[len(moving):len(moving) + len(sliced)],
                                       found[len(moving) + len(sliced):])
    added = [add(total, part) for total, part in zip(sums, to_constants, strict=True)]
    return Body([*to_carries, *added, *to_xs])


def _vjp_switch(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    """The gradient of the branch that was taken."""
    operands = node.inputs[1:]
    wanted = [n for n, operand in enumerate(operands) if _varies(operand.spec)]
    if not wanted:
        return [None] * len(node.inputs)
    given = [operand.spec for operand in operands]
    filled = _filled(cotangents, results(node))
    back = [pulled_back(branch, given, wanted) for branch in node["branches"]]
    found = results(make(SWITCH, (node.inputs[0], *operands, *filled), {"branches": tuple(body for body, _ in back)}))
    come_after(set().union(*[groups for _, groups in back]), found)
    gradients: list[Node | None] = [None] * len(node.inputs)
    for place, gradient in zip(wanted, found, strict=True):
        gradients[1 + place] = gradient
    return gradients


SCAN = register(Op("scan", "control", _infer_scan, _vjp_scan, _no_reference, properties=frozenset({JOINT}), arity=ANY,
                   batch=batch_scan, jvp=jvp_scan))
WHILE = register(Op("while_loop", "control", _infer_while,
                    NoGradient("the number of its turns is not known before it ran; mo.jvp goes through it, and "
                               "mo.fori_loop or mo.scan with a fixed number of turns have a gradient", missing=True),
                    _no_reference, arity=ANY, batch=batch_while, jvp=jvp_while))
SWITCH = register(Op("switch", "control", _infer_switch, _vjp_switch, _no_reference, properties=frozenset({JOINT}),
                     arity=(1, float("inf")), batch=batch_switch, jvp=jvp_switch))
