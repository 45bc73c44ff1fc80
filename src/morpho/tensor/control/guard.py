"""Captured values of a loop that may be errors: computed before the loop, if it has at least one iteration.

`mo.while_loop(test, lambda x: x + mo.linalg.inv(a), x)` inverts `a` once. Where the test fails at once there is no turn
that asks for the inverse, and no error of a singular `a`. Values that cannot fail are computed in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from morpho.base.dims import Size, bounds
from morpho.base.dtypes import int64
from morpho.ir.body import Body, cut_out
from morpho.ir.node import Node, build, make, toposort
from morpho.ops.algebra import cast, size_value, zeros_like
from morpho.ops.control import records as control
from morpho.tensor.control.body_trace import closed


def where_turns(turns: Size, constants: Sequence[Node], own: Collection[int]) -> list[Node]:
    """The constants of a loop of so many turns, whose function asked for its `own` nodes, by serial."""
    if bounds(turns)[0] > 0:
        return list(constants)
    return guarded(constants, own, lambda: build("greater", size_value(turns, int64), size_value(0, int64)))


def where_asked(test: Body, carries: Sequence[Node], constants: Sequence[Node], own: Collection[int]) -> list[Node]:
    """The constants of a loop that ends by itself. What its test reads is computed whether it takes a turn or not."""
    number = len(carries)
    asked = {leaf["index"] for leaf in test.graph.parameters}
    always = [node for place, node in enumerate(constants, number) if place in asked]
    return guarded(constants, own, lambda: test.put([*carries, *constants])[0], always)


def guarded(constants: Sequence[Node], own: Collection[int], taken: Callable[[], Node],
            always: Sequence[Node] = ()) -> list[Node]:
    """Constants with those that may fail, and what is made of these, computed where `taken` is true, else zeros."""
    kept = {node.serial for node in toposort(always)}
    failing: set[int] = set()
    for node in toposort(constants):
        if node.serial in own and node.serial not in kept and (
                node.op.may_fault or any(child.serial in failing for child in node.inputs)):
            failing.add(node.serial)
    risky = [node for node in constants if node.serial in failing]
    if not risky:
        return list(constants)
    below = {node.serial for node in toposort(risky)}
    given = [node for node in constants if node.serial in below - failing]
    (made,), found = closed([(given, risky)], own)
    operands = [*given, *found]
    nothing = cut_out([zeros_like(node) for node in risky], operands)
    chosen = make(control.SWITCH, (cast(taken(), int64), *operands), {"branches": (nothing, made), "any_row": True})
    values = iter(control.results(chosen))
    return [next(values) if node.serial in failing else node for node in constants]
