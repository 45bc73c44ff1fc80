"""Leaves: constants, parameters of a compiled function, realised data, index numbers, dynamic sizes; and `pick`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.ir.node import Node
from morpho.ir.op import NONE, ONE, Attributes, NoGradient, Op, Spec, register

_LEAF = NoGradient("a leaf has no inputs")


def _given(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    return Spec(attributes["shape"], attributes["dtype"])


def _scalar(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    return Spec((), attributes["dtype"])


def _reference_constant(attributes: Attributes) -> Any:
    dtype = attributes["dtype"]
    return np.asarray(attributes["value"], dtype=dtype.compute.numpy)


def _reference_iota(attributes: Attributes) -> Any:
    shape, axis = attributes["shape"], attributes["axis"]
    line = np.arange(shape[axis], dtype=np.int64).astype(attributes["dtype"].compute.numpy)
    view = [1] * len(shape)
    view[axis] = shape[axis]
    return np.broadcast_to(line.reshape(view), shape)


def _no_reference(attributes: Attributes) -> Any:
    raise RuntimeError("a leaf takes its value from the evaluator")


def _reference_pick(attributes: Attributes, value: Any) -> Any:
    return value[attributes["index"]]


def _infer_pick(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    return attributes["spec"]  # type: ignore[no-any-return]


def pick(node: Node, index: int) -> Node:
    """One output of a node that has several."""
    from morpho.ir.node import build

    if len(node.outputs) == 1:
        return node
    return build("pick", node, index=index, spec=node.outputs[index])


def _batch_pick(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Any) -> Node:
    return pick(inputs[0], node["index"])


CONSTANT = register(Op("constant", "source", _scalar, _LEAF, _reference_constant, flops=0, arity=NONE))
PARAMETER = register(Op("parameter", "source", _given, _LEAF, _no_reference, flops=0, arity=NONE))
DATA = register(Op("data", "source", _given, _LEAF, _no_reference, flops=0, arity=NONE))
IOTA = register(Op("iota", "source", _given, _LEAF, _reference_iota, flops=0, arity=NONE))
DIMENSION = register(Op("dimension", "source", _scalar, _LEAF, _no_reference, flops=0, arity=NONE))
PICK = register(Op("pick", "move", _infer_pick, NoGradient("the gradient belongs to the node it picks from"),
                   _reference_pick, flops=0, properties=frozenset({"view"}), arity=ONE, batch=_batch_pick))
