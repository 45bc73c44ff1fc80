"""Contractions: matrix products. Batch axes are equal here; broadcasting is an `expand` before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import int8, int32, uint8
from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.base.python.blas import within_budget
from morpho.ir.node import Node, build
from morpho.ir.op import TWO, Attributes, NoGradient, Op, Spec, register
from morpho.ops import special
from morpho.ops.algebra import permute, reshape
from morpho.ops.batching import Rows, elementwise
from morpho.ops.complex.gradients import holomorphic


def _infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    a, b = inputs
    if a.dtype is not b.dtype or a.dtype.kind == "b":
        raise fail(DTypeError, "matmul", f"dtypes {a.dtype} and {b.dtype} are not taken")
    if len(a.shape) < 2 or len(a.shape) != len(b.shape) or a.shape[:-2] != b.shape[:-2]:
        raise fail(ShapeError, "matmul", f"batch shapes of {a.shape} and {b.shape} differ")
    if a.shape[-1] != b.shape[-2]:
        raise fail(ShapeError, "matmul", f"shapes {a.shape} and {b.shape} do not align: {a.shape[-1]} != {b.shape[-2]}")
    return Spec((*a.shape[:-1], b.shape[-1]), a.dtype)


def transpose(node: Node) -> Node:
    """The last two axes exchanged."""
    rank = len(node.shape)
    return permute(node, (*range(rank - 2), rank - 1, rank - 2))


def _vjp(node: Node, ct: Node) -> list[Node]:
    a, b = node.inputs
    return [build("matmul", ct, transpose(b)), build("matmul", transpose(a), ct)]


def _reference(attributes: Attributes, a: Any, b: Any) -> Any:
    if a.shape[-1] == 1 and a.dtype.kind == "f":  # NumPy's zeros would depend on how it was compiled
        return special.multiply_from_zero(a, b)
    with np.errstate(all="ignore"):
        return np.matmul(a, b)


def _batch(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    """With one matrix for all rows it is one product of more rows, and with one for all their vectors too, the other
    way round: each result is the same chain. Terms of complex chains have an order: there vectors are columns."""
    a, b = inputs
    if len(node.shape) == 2 and not batched[1]:
        flat = reshape(a, (a.shape[0] * a.shape[1], a.shape[2]))
        return reshape(build("matmul", flat, b), (*a.shape[:2], b.shape[1]))
    if len(node.shape) == 2 and not batched[0] and b.shape[2] == 1:
        lines = reshape(b, b.shape[:2])
        vectors = (transpose(build("matmul", a, transpose(lines))) if a.dtype.is_complex else
                   build("matmul", lines, transpose(a)))
        return reshape(vectors, (*vectors.shape, 1))
    return elementwise(node, inputs, batched, rows)


MATMUL = register(Op("matmul", "contract", _infer, holomorphic(_vjp), _reference, 2,
                     "one FMA chain per output, k ascending", arity=TWO, autocast="product", batch=_batch))


def _reference_blas(attributes: Attributes, a: Any, b: Any) -> Any:
    with within_budget():
        return _reference(attributes, a, b)


BLAS = register(Op("matmul_blas", "host", _infer, holomorphic(_vjp), _reference_blas, 2,
                   "NumPy's BLAS: its own order of additions", arity=TWO, autocast="product", batch=elementwise))


def _infer_int8(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    if any(spec.dtype not in (int8, uint8) for spec in inputs):
        raise fail(DTypeError, "matmul", f"dtypes {inputs[0].dtype} and {inputs[1].dtype} are not of one byte")
    return Spec(_infer([Spec(spec.shape, int32) for spec in inputs], attributes).shape, int32)


def _reference_int8(attributes: Attributes, a: Any, b: Any) -> Any:
    return np.matmul(a.astype(np.int32), b.astype(np.int32))


# Made by a rule from a product of bytes widened to int32.
MATMUL_INT8 = register(Op("matmul_int8", "contract", _infer_int8, NoGradient("integers do not vary"), _reference_int8,
                          2, "exact, wraps as int32", arity=TWO, batch=elementwise))
