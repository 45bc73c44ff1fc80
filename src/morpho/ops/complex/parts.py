"""Complex numbers and their parts in memory: `complex` lays two real values side by side, `part` looks at one of them.

Programs that compute with complex numbers are made of their parts by a pass (`passes/complex/`); these two are what is
left of them then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import complex64, complex128, float32, float64
from morpho.base.errors import DTypeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import ONE, TWO, Attributes, Op, Spec, register
from morpho.ops.algebra import cast, zeros_like
from morpho.ops.batching import elementwise

COMPLEX_OF = {float32: complex64, float64: complex128, complex64: complex64, complex128: complex128}
REAL_OF = {float32: float32, float64: float64, complex64: float32, complex128: float64}


def _infer_complex(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    real, imag = inputs
    if real != imag or real.dtype not in (float32, float64):
        raise fail(DTypeError, "complex", f"parts {real.dtype}{real.shape} and {imag.dtype}{imag.shape} do not pair")
    return Spec(real.shape, COMPLEX_OF[real.dtype])


def _reference_complex(attributes: Attributes, real: Any, imag: Any) -> Any:
    result = np.empty(np.shape(real), np.complex64 if real.dtype == np.float32 else np.complex128)
    result.real, result.imag = real, imag  # not real + 1j * imag: an infinite part would make the other NaN
    return result


def _infer_part(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    shape, dtype = inputs[0]
    if not dtype.is_complex:
        raise fail(DTypeError, "part", f"dtype {dtype} is not complex")
    return Spec(shape, REAL_OF[dtype])


def _part_rule(node: Node, ct: Node) -> list[Node]:
    return [build("complex", zeros_like(ct), ct) if node["index"] else cast(ct, node.inputs[0].dtype)]


def part(node: Node, index: int) -> Node:
    """The real (0) or imaginary (1) part of complex numbers in memory: a view of every second number.

    >>> z = build("parameter", index=0, shape=(3,), dtype=complex64)
    >>> part(z, 1).dtype, part(z, 1).shape
    (float32, (3,))
    """
    return build("part", node, index=index)


def _infer_as_real(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    found = _infer_part(inputs, attributes)
    return Spec((*found.shape, 2), found.dtype)


def _infer_as_complex(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    shape, dtype = inputs[0]
    if dtype not in (float32, float64) or not shape or shape[-1] != 2:
        raise fail(DTypeError, "as_complex", f"{dtype}{shape} are no pairs of parts")
    return Spec(shape[:-1], COMPLEX_OF[dtype])


def as_real(node: Node) -> Node:
    """Complex numbers as pairs along a new last axis: the same memory."""
    return build("as_real", node)


def as_complex(node: Node) -> Node:
    """Pairs along the last axis as complex numbers: the same memory."""
    return build("as_complex", node)


COMPLEX = register(Op("complex", "move", _infer_complex, lambda n, ct: [build("real", ct), build("imag", ct)],
                      _reference_complex, 0, arity=TWO, batch=elementwise))
PART = register(Op("part", "move", _infer_part, _part_rule, lambda a, x: x.imag if a["index"] else x.real, 0,
                   properties=frozenset({"view"}), arity=ONE, batch=elementwise))
AS_REAL = register(Op("as_real", "move", _infer_as_real, lambda n, ct: [as_complex(ct)],
                      lambda a, x: np.ascontiguousarray(x).view(x.real.dtype).reshape(*x.shape, 2), 0,
                      properties=frozenset({"view"}), arity=ONE, batch=elementwise))
AS_COMPLEX = register(Op("as_complex", "move", _infer_as_complex, lambda n, ct: [as_real(ct)],
                         lambda a, x: _reference_complex(a, x[..., 0], x[..., 1]), 0,
                         properties=frozenset({"view"}), arity=ONE, batch=elementwise))
