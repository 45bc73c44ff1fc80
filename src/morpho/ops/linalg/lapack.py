"""Host operations: LAPACK, which runs in NumPy as a step of native programs.

Each is an ordinary node, so it is lazy and fused around; only the operation itself leaves native code. Small real
matrices do not: the CPU has kernels for them. Operations whose result shape depends on data (`unique`, `nonzero`,
boolean masks) are not here: they realise at once, in `tensor/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.base.dims import Shape, smaller
from morpho.base.dtypes import DType
from morpho.base.errors import DTypeError, ShapeError, ValueFault, fail
from morpho.ir.node import Node, make
from morpho.ir.op import (
    JOINT,
    ONE,
    TWO,
    Arity,
    Attributes,
    Batching,
    Forward,
    Gradient,
    Infer,
    NoGradient,
    Op,
    Reference,
    Spec,
    register,
)
from morpho.ops.algebra import reshape
from morpho.ops.batching import Rows, elementwise
from morpho.ops.complex.parts import COMPLEX_OF, REAL_OF
from morpho.ops.linalg import gradients as rules

SMALL = "fixed order up to 32 x 32, NumPy above"
QUIET = frozenset({"quiet"})  # the reference keeps NumPy's warnings to itself
JOINT_GRADIENT = QUIET | {JOINT}


def _host(name: str, infer: Infer, vjp: Gradient | NoGradient, reference: Reference, flops: int = 8,
          arity: Arity = ONE, properties: frozenset[str] = frozenset(), batch: Batching = elementwise,
          jvp: Forward | None = None, numerics: str = "NumPy",
          composition: Callable[[Node], Node] | None = None) -> Op:
    return register(Op(name, "host", infer, vjp, reference, flops, numerics, properties, composition, arity=arity,
                       batch=batch, jvp=jvp))


def _batch_pinv(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    """The limits of the singular values lie along the last of the axes of the stack."""
    x, *limits = rows.all(inputs, batched)
    placed = [reshape(limit, (rows.size, *[1] * (len(x.shape) - 2 - len(limit.shape)), *limit.shape[1:]))
              for limit in limits]
    return make(node.op, (x, *placed), node.attributes)


# -- LAPACK: shapes --------------------------------------------------------------------------------------------------
def _matrix(name: str, spec: Spec, square: bool = False) -> tuple[Shape, Any, Any, DType]:
    """Batch shape, rows, columns and dtype of a stack of matrices."""
    shape, dtype = spec
    if dtype not in COMPLEX_OF:
        raise fail(DTypeError, name, f"dtype {dtype} is not taken", "convert to float32, float64 or complex")
    if len(shape) < 2:
        raise fail(ShapeError, name, f"shape {shape} is not a matrix")
    if square and shape[-1] != shape[-2]:
        raise fail(ShapeError, name, f"shape {shape} is not square: {shape[-2]} != {shape[-1]}")
    return shape[:-2], shape[-2], shape[-1], dtype


def _square(name: str) -> Infer:
    def infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
        _matrix(name, inputs[0], square=True)
        return inputs[0]

    return infer


def _infer_det(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    batch, _, _, dtype = _matrix("det", inputs[0], square=True)
    return Spec(batch, dtype)


def _infer_slogdet(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    batch, _, _, dtype = _matrix("slogdet", inputs[0], square=True)
    return Spec(batch, dtype), Spec(batch, REAL_OF[dtype])


def _infer_pinv(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    batch, rows, columns, dtype = _matrix("pinv", inputs[0])
    return Spec((*batch, columns, rows), dtype)


def _infer_qr(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    batch, rows, columns, dtype = _matrix("qr", inputs[0])
    inner = rows if attributes["mode"] == "complete" else smaller(rows, columns)
    return Spec((*batch, rows, inner), dtype), Spec((*batch, inner, columns), dtype)


def _infer_svd(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    batch, rows, columns, dtype = _matrix("svd", inputs[0])
    inner = smaller(rows, columns)
    left, right = (rows, columns) if attributes["full_matrices"] else (inner, inner)
    return (Spec((*batch, rows, left), dtype), Spec((*batch, inner), REAL_OF[dtype]),
            Spec((*batch, right, columns), dtype))


def _infer_svdvals(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    batch, rows, columns, dtype = _matrix("svdvals", inputs[0])
    return Spec((*batch, smaller(rows, columns)), REAL_OF[dtype])


def _infer_eigh(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    batch, rows, _, dtype = _matrix("eigh", inputs[0], square=True)
    return Spec((*batch, rows), REAL_OF[dtype]), Spec((*batch, rows, rows), dtype)


def _infer_eigvalsh(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    batch, rows, _, dtype = _matrix("eigvalsh", inputs[0], square=True)
    return Spec((*batch, rows), REAL_OF[dtype])


def _infer_solve(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    """Both are stacks of matrices with equal batch axes here; vectors and broadcasting are settled before."""
    a, b = inputs
    batch, rows, _, dtype = _matrix("solve", a, square=True)
    if b.dtype is not dtype or b.shape[:-2] != batch or b.shape[-2] != rows:
        raise fail(ShapeError, "solve", f"{a.dtype}{a.shape} and {b.dtype}{b.shape} do not align")
    return b


# -- LAPACK: meaning -------------------------------------------------------------------------------------------------
def _lapack(name: str, function: Callable[..., Any]) -> Reference:
    """NumPy's error about a singular or indefinite matrix, said as ours. What may fail warns of nothing by itself."""

    def call(attributes: Attributes, *arrays: Any) -> Any:
        try:
            return function(attributes, *arrays)
        except np.linalg.LinAlgError as error:
            raise fail(ValueFault, name, str(error).rstrip(".").lower()) from error

    def quietly(attributes: Attributes, *arrays: Any) -> Any:
        with np.errstate(all="ignore"):
            return call(attributes, *arrays)

    return quietly if name in ("det", "slogdet", "pinv") else call


def _reference_cholesky(attributes: Attributes, x: Any) -> Any:
    if x.size == 0:
        return x
    lower = np.linalg.cholesky(x)
    return np.conj(np.swapaxes(lower, -1, -2)) if attributes["upper"] else lower


def _reference_pinv(attributes: Attributes, x: Any, *rtol: Any) -> Any:
    if rtol:
        return np.linalg.pinv(x, rtol[0])
    return np.linalg.pinv(x, max(x.shape[-2:]) * np.finfo(x.dtype).eps)


def _signs(columns: Any) -> Any:
    """-1 for columns to be turned round, so that the first of their elements that is at least half as large as their
    largest is positive: signs do then not depend on who computes. Complex vectors stay as LAPACK has them."""
    if columns.size == 0:
        return np.ones((*columns.shape[:-2], 1, columns.shape[-1]), columns.dtype)
    size = np.abs(columns)
    first = np.argmax(size >= size.max(-2, keepdims=True) / 2, -2)
    return np.where(np.take_along_axis(columns, first[..., None, :], -2) < 0, -1, 1).astype(columns.dtype)


def _reference_svd(attributes: Attributes, x: Any) -> Any:
    left, values, right = np.linalg.svd(x, full_matrices=attributes["full_matrices"])
    if x.dtype.kind == "c":
        return left, values, right
    signs, inner = _signs(left), values.shape[-1]
    turned = right.copy()
    turned[..., :inner, :] *= np.swapaxes(signs, -1, -2)[..., :inner, :]
    return left * signs, values, turned


def _reference_eigh(attributes: Attributes, x: Any) -> Any:
    values, vectors = np.linalg.eigh(x)
    return values, vectors if x.dtype.kind == "c" else vectors * _signs(vectors)


# -- LAPACK: records -------------------------------------------------------------------------------------------------
_host("cholesky", _square("cholesky"), rules.cholesky_rule, _lapack("cholesky", _reference_cholesky), 64,
      properties=QUIET, numerics=SMALL)
_host("det", _infer_det, rules.det_rule, _lapack("det", lambda a, x: np.linalg.det(x)), 64, properties=QUIET,
      numerics=SMALL)
_host("slogdet", _infer_slogdet, rules.slogdet_rule, _lapack("slogdet", lambda a, x: tuple(np.linalg.slogdet(x))),
      64, properties=JOINT_GRADIENT, numerics=SMALL)
_host("inv", _square("inv"), rules.inv_rule, _lapack("inv", lambda a, x: np.linalg.inv(x)), 64, properties=QUIET,
      numerics=SMALL)
_host("pinv", _infer_pinv, rules.pinv_rule, _lapack("pinv", _reference_pinv), 64, (1, 2),
      properties=QUIET, batch=_batch_pinv, jvp=rules.pinv_forward, numerics="that of svd and matmul",
      composition=rules.pinv_parts)
_host("qr", _infer_qr, rules.qr_rule, _lapack("qr", lambda a, x: tuple(np.linalg.qr(x, mode=a["mode"]))), 64,
      properties=JOINT_GRADIENT, numerics=SMALL)
_host("svd", _infer_svd, rules.svd_rule, _lapack("svd", _reference_svd), 64, properties=JOINT_GRADIENT, numerics=SMALL)
_host("svdvals", _infer_svdvals, rules.svdvals_rule,
      _lapack("svdvals", lambda a, x: np.linalg.svd(x, compute_uv=False)), 64, properties=QUIET, numerics=SMALL)
_host("eigh", _infer_eigh, rules.eigh_rule, _lapack("eigh", _reference_eigh), 64, properties=JOINT_GRADIENT,
      numerics=SMALL)
_host("eigvalsh", _infer_eigvalsh, rules.eigvalsh_rule, _lapack("eigvalsh", lambda a, x: np.linalg.eigvalsh(x)), 64,
      properties=QUIET, numerics=SMALL)
_host("solve", _infer_solve, rules.solve_rule, _lapack("solve", lambda a, x, b: np.linalg.solve(x, b)), 64, TWO,
      properties=QUIET, numerics=SMALL)
