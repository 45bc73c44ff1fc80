"""Ops that change no element, for gradients: `detach` lets none through, `mark` is a value of its own number.

Neither reaches a pass: a program to be run stands without them, so that equal ones are found in caches. A `mark` may
carry a gradient of the user's: `gradients` holds it by its number.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from morpho.ir.node import Node, build
from morpho.ir.op import ONE, Attributes, NoGradient, Op, Spec, register
from morpho.ops.batching import Rows, elementwise, in_front, row_leaf

gradients: dict[int, Callable[[Node], Sequence[Node | None]]] = {}  # of the further inputs of a mark
_numbers = count(1)


def _first(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    return inputs[0]


def _reference(attributes: Attributes, value: Any, *others: Any) -> Any:
    return value


def _mark_gradient(node: Node, cotangent: Node) -> Sequence[Node | None]:
    given = gradients.get(node["number"])
    if given is None:
        return [cotangent, *[None] * (len(node.inputs) - 1)]
    return [None, *given(cotangent)]


def mark(node: Node, *others: Node, gradient: Callable[[Node], Sequence[Node | None]] | None = None) -> Node:
    """The value of `node` under a number of its own, so that no other program is equal to it. A `gradient` gives those
    of `others`, and nothing flows into `node` then."""
    number = next(_numbers)
    made = build("mark", node, *others, number=number)
    if gradient is not None:
        gradients[number] = gradient
        weakref.finalize(made, gradients.pop, number, None)
    return made


def _batch_mark(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    """A mark of the batch; the gradient that it carries is batched with what it was made from."""
    given = gradients.get(node["number"])
    value, *others = rows.all(inputs, batched)
    if given is None:
        return mark(value, *others)

    def gradient(cotangent: Node) -> Sequence[Node | None]:
        row = row_leaf(cotangent.shape[1:], cotangent.dtype, cotangent.device)
        parts = given(row)
        inner = Rows({}, rows.size)
        inner.known = {**rows.known, row.serial: (cotangent, True)}
        wanted = iter(inner.of([part for part in parts if part is not None]))
        return [None if part is None else in_front(*next(wanted), rows.size) for part in parts]

    return mark(value, *others, gradient=gradient)


DETACH = register(Op("detach", "move", _first, NoGradient("none flows through it"), _reference, flops=0,
                     properties=frozenset({"identity", "stops"}), composition=lambda node: node.inputs[0], arity=ONE,
                     batch=elementwise))
MARK = register(Op("mark", "move", _first, _mark_gradient, _reference, flops=0,
                   properties=frozenset({"identity"}), composition=lambda node: node.inputs[0], arity=(1, math.inf),
                   batch=_batch_mark))
