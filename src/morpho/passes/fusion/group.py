"""The `group` op: several nodes that become one kernel. Its body is a small graph over parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.base.dims import Shape
from morpho.ir.body import cut_out
from morpho.ir.node import Node, make
from morpho.ir.op import ANY, Attributes, NoGradient, Op, Spec, register


def _infer(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    return attributes["body"].specs  # type: ignore[no-any-return]


def _no_reference(attributes: Attributes, *arrays: Any) -> Any:
    raise RuntimeError("a group is evaluated through its body")


GROUP = register(Op("group", "fused", _infer, NoGradient("made after differentiation"), _no_reference, arity=ANY))


def make_group(outputs: Sequence[Node], inputs: Sequence[Node], space: Shape, axes: tuple[int, ...]) -> Node:
    """Cut the nodes between `inputs` and `outputs` out as one group node."""
    body = cut_out(outputs, inputs)
    made = make(GROUP, inputs, {"body": body, "space": space, "axes": axes})
    made.origin = outputs[-1].origin
    return made


def row_shape(space: Shape, axes: tuple[int, ...]) -> Shape:
    """The shape of a value with one element per row of a space."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(space))
