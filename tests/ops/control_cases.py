"""Loops and branches: bodies over rows of a matrix."""

from __future__ import annotations

from case_values import of_kinds
from shaped_case import Shaped, one_matrix

from morpho.base.dtypes import bool_, float32, float64, int64
from morpho.ir.body import Body, parameter
from morpho.ir.node import Node, build, make
from morpho.ir.op import Spec
from morpho.ops.algebra import add, cast, constant, expand, mul, reshape
from morpho.ops.control import records as control

NUMBERS = of_kinds("iuf")


def _row(x: Node) -> Node:
    return reshape(build("slice", x, starts=(0, 0), sizes=(1, x.shape[1]), steps=(1, 1)), (x.shape[1],))


def _scan(x: Node) -> Node:
    spec = Spec((x.shape[1],), x.dtype)
    carry, row, factor = (parameter(number, spec) for number in range(3))
    new = add(mul(carry, factor), row)
    return control.scan(Body([new, mul(new, carry)]), [_row(x)], [x], [build("negative", _row(x))], x.shape[0])[1]


def _while(x: Node) -> Node:
    spec, number = Spec((x.shape[1],), x.dtype), Spec((), int64)
    carry, turn = parameter(0, spec), parameter(1, number)
    test = Body([build("less", turn, constant(3, int64))])
    body = Body([add(carry, carry), add(turn, constant(1, int64))])
    node = make(control.WHILE, (_row(x), constant(0, int64)), {"turn": body, "test": test, "carries": 2})
    return control.results(node)[0]


def _switch(x: Node) -> Node:
    leaf = parameter(0, x.spec)
    which = cast(constant(True, bool_), int64)
    branches = (Body([mul(leaf, leaf)]), Body([add(leaf, expand(constant(1, x.dtype), x.shape))]))
    return make(control.SWITCH, (which, x), {"branches": branches})


CONTROL = [
    Shaped("scan", "rows", NUMBERS, one_matrix, _scan, lengths=(0, 1, 3, 17, 64)),
    Shaped("while_loop", "doubling", (float32, float64, int64), one_matrix, _while, lengths=(0, 1, 3, 17),
           gradient=False),
    Shaped("switch", "second", NUMBERS, one_matrix, _switch, lengths=(0, 1, 3, 17)),
]
