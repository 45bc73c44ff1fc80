"""Gradients of complex numbers: that of a real function is the direction in which it grows fastest.

With a cotangent a and a tangent b the change is Re(conj(a) b), the inner product of the plane; so the gradient of f(z)
for z = x + iy is df/dx + i df/dy, and where an op has a complex derivative the cotangent is multiplied by its conjugate
(docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from morpho.base.dtypes import DType
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, conj, constant_like, div, mul, sub, where, zeros_like


def real_as(a: Node, dtype: DType) -> Node:
    """A cotangent in the dtype of what it is one of: of a real number it is real."""
    return cast(build("real", a) if a.dtype.is_complex and not dtype.is_complex else a, dtype)


def holomorphic(rule: Callable[[Node, Any], Sequence[Node | None]]) -> Callable[[Node, Any], list[Node | None]]:
    """The gradient of an op that has a complex derivative, from the rule for real numbers: cotangents are multiplied by
    the conjugate of the derivative (docs/numerics.md)."""

    def call(node: Node, ct: Any) -> list[Node | None]:
        if not node.dtype.is_complex:
            return list(rule(node, ct))
        return [None if part is None else conj(part) for part in rule(node, conj(ct))]

    return call


def absolute_rule(node: Node, ct: Node) -> list[Node]:
    x = node.inputs[0]
    return [mul(cast(ct, x.dtype), build("sign", x))]


def sign_rule(node: Node, ct: Node) -> list[Node | None]:
    """z / |z| of a complex number turns with it; of a real one it is a step."""
    z = node.inputs[0]
    if not z.dtype.is_complex:
        return [None]
    along = cast(build("real", mul(ct, conj(node))), z.dtype)
    size = build("absolute", z)
    none = build("equal", size, zeros_like(size))
    turned = div(sub(ct, mul(node, along)), cast(where(none, constant_like(size, 1), size), z.dtype))
    return [where(none, zeros_like(z), turned)]
