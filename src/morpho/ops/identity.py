"""Ops that change no element, for gradients: `detach` lets none through, `mark` is a value of its own number, `custom`
has the values of a function with the user's own derivative.

None reaches a pass: a program to be run stands without them (`meant`), so that equal ones are found in caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from morpho.ir.node import Node, build
from morpho.ir.op import JOINT, ONE, Attributes, NoGradient, Op, Spec, register
from morpho.ops.batching import Rows, elementwise, in_front, row_leaf
from morpho.ops.sources import pick

_numbers = count(1)
# Of arguments, linear in the rest; None stands for zero.
Linear = Callable[[Sequence[Node], Sequence[Node | None]], Sequence[Node | None]]


def meant(node: Node) -> Node | None:
    """The node whose value an op of this file has; None for other ops."""
    if "identity" in node.op.properties:
        return node.inputs[0]
    if node.op.name == "pick" and "identity" in node.inputs[0].op.properties:
        found: Node = node.inputs[0].inputs[node["index"]]
        return found
    return None


def _first(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    return inputs[0]


def _reference(attributes: Attributes, value: Any, *others: Any) -> Any:
    return value


def mark(node: Node) -> Node:
    """The value of `node` under a number of its own, so that no other program is equal to it."""
    return build("mark", node, number=next(_numbers))


def _batch_mark(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    return mark(inputs[0])


DETACH = register(Op("detach", "move", _first, NoGradient("none flows through it"), _reference, flops=0,
                     properties=frozenset({"identity", "stops"}), composition=lambda node: node.inputs[0], arity=ONE,
                     batch=elementwise))
MARK = register(Op("mark", "move", _first, lambda node, ct: [ct], _reference, flops=0,
                   properties=frozenset({"identity"}), composition=lambda node: node.inputs[0], arity=ONE,
                   batch=_batch_mark))


# -- derivatives of the user's -----------------------------------------------------------------------------------------
class Derivative:
    """How a function is differentiated: at given arguments, `pull` takes cotangents of its results to those of its
    arguments, `push` takes tangents of its arguments to those of its results."""

    __slots__ = ("pull", "push")

    def __init__(self, pull: Linear, push: Linear) -> None:
        self.pull, self.push = pull, push


def custom(results: Sequence[Node], arguments: Sequence[Node], derivative: Derivative) -> list[Node]:
    """The results, whose derivative with respect to the arguments is the given one."""
    made = build("custom", *results, *arguments, results=len(results), derivative=derivative)
    return [pick(made, index) for index in range(len(results))]


def _infer_custom(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    return tuple(inputs[:attributes["results"]])


def _reference_custom(attributes: Attributes, *arrays: Any) -> Any:
    results = attributes["results"]
    return arrays[0] if results == 1 else tuple(arrays[:results])


def _vjp_custom(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    results = node["results"]
    return [None] * results + list(node["derivative"].pull(node.inputs[results:], cotangents))


def _jvp_custom(node: Node, tangents: Sequence[Node | None], push: Any) -> Sequence[Node | None]:
    results = node["results"]
    return node["derivative"].push(node.inputs[results:], tangents[results:])  # type: ignore[no-any-return]


def _batch_custom(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    """The derivative is batched together with what it finds in its surroundings."""
    derivative: Derivative = node["derivative"]

    def on_rows(linear: Linear) -> Linear:
        def call(arguments: Sequence[Node], given: Sequence[Node | None]) -> list[Node | None]:
            whole = [*arguments, *given]
            leaves = [None if one is None else row_leaf(one.shape[1:], one.dtype, one.device) for one in whole]
            parts = linear([leaf for leaf in leaves[:len(arguments)] if leaf is not None], leaves[len(arguments):])
            inner = Rows({leaf.serial: one for leaf, one in zip(leaves, whole, strict=True)
                          if leaf is not None and one is not None}, rows.size)
            inner.known |= rows.known
            found = iter(inner.of([part for part in parts if part is not None]))
            return [None if part is None else in_front(*next(found), rows.size) for part in parts]

        return call

    made = Derivative(on_rows(derivative.pull), on_rows(derivative.push))
    return build("custom", *rows.all(inputs, batched), results=node["results"], derivative=made)


CUSTOM = register(Op("custom", "move", _infer_custom, _vjp_custom, _reference_custom, flops=0,
                     properties=frozenset({"identity", JOINT}), composition=lambda node: node.inputs[0],
                     arity=(1, math.inf), batch=_batch_custom, jvp=_jvp_custom))
