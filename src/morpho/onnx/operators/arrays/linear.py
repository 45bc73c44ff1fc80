"""Matrix products: MatMul, Gemm, Einsum, Det."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import scalar, tensor

FAMILY = Family("products")


@FAMILY.op("MatMul")
def matmul(call: Call, a: Any, b: Any) -> Any:
    return product(tensor(a), tensor(b))


def product(a: Any, b: Any) -> Any:
    """A product in the dtype of its operands."""
    if a.dtype.is_integer and a.dtype.itemsize <= 1:
        return mo.astype(mo.matmul(a, b, dtype=mo.int32), a.dtype)
    return mo.matmul(a, b)


@FAMILY.op("Gemm")
def gemm(call: Call, a: Any, b: Any, c: Any = None) -> Any:
    a, b = tensor(a), tensor(b)
    if call.get("transA", 0):
        a = mo.matrix_transpose(a)
    if call.get("transB", 0):
        b = mo.matrix_transpose(b)
    return affine(a, b, None if c is None else tensor(c), call.get("alpha", 1.0), call.get("beta", 1.0))


def affine(a: Any, b: Any, c: Any, alpha: float = 1.0, beta: float = 1.0) -> Any:
    """alpha a b + beta c."""
    found = product(a, b)
    if alpha != 1.0:
        found = found * scalar(alpha, found)
    if c is None or beta == 0.0:
        return found
    return found + (c if beta == 1.0 else c * scalar(beta, c))


@FAMILY.op("Einsum")
def einsum(call: Call, *operands: Any) -> Any:
    return mo.einsum(call.need("equation").replace(" ", ""), *map(tensor, operands))


@FAMILY.op("Det")
def determinant(call: Call, x: Any) -> Any:
    return mo.linalg.det(tensor(x))
