"""Carried matrices that a loop fills row by row: turn t sets row t, so that the rows from t on are zeros still.

A product that sums over the rows of such a matrix, with a column of the same matrix on its left, as a Cholesky
factorisation does, has zero times zero from row t on: it need not read them. One of them is added all the same: a sum
that is -0.0 becomes 0.0, as it would by all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from morpho.ir.body import Body
from morpho.ir.node import Node
from morpho.ir.views import look_through
from morpho.program.view import View

SPREADS = ("reshape", "expand")


def rows_filled(turn: Body, init: Sequence[View | float | int | bool], counter: int) -> list[int]:
    """The carried values of a body that begin as zeros and of which turn t, whose number is the parameter `counter`,
    sets row t and nothing else."""
    return [number for number, first in enumerate(init)
            if not isinstance(first, View) and first == 0 and math.copysign(1, first) > 0
            and _sets_row(turn.outputs[number], number, counter)]


def _sets_row(output: Node, number: int, counter: int) -> bool:
    if output.op.name != "scatter" or output["mode"] != "set" or output["axis"] != 0:
        return False
    base, index, _ = output.inputs
    return _is_parameter(base, number) and _is_parameter(_spread(index), counter)


def is_column(node: Node, matrix: Node) -> bool:
    """Whether a row of numbers is one column of a matrix, whichever: element k is one of the matrix's row k."""
    column = node.inputs[0] if node.op.name == "reshape" else node
    if column.op.name != "group" or column.shape != (matrix.shape[0], 1) or column["axes"]:
        return False
    (found,) = column["body"].outputs if len(column["body"].outputs) == 1 else (None,)
    if found is None or found.op.name != "gather" or found["axis"] != 1:
        return False
    base, index = found.inputs[:2]
    return (base.op.name == "parameter" and column.inputs[base["index"]] is matrix and index.op.name == "parameter"
            and _spread(column.inputs[index["index"]]).shape == ())


def _spread(node: Node) -> Node:
    """The number that is repeated in all elements."""
    return look_through(node, lambda view: view.op.name in SPREADS)[0]


def _is_parameter(node: Node, number: int) -> bool:
    return bool(node.op.name == "parameter" and node["index"] == number)
