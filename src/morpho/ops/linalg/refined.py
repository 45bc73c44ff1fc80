"""Solves in float64 from factors of a lower precision, corrected until the backward error is that of float64.

Inputs are the matrices, the largest sum of sizes of a row of each, and the right sides; results are the solutions, how
many corrections were made, and the backward error. The CPU calls LAPACK for the factors; here is what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, bfloat16, float64, int64
from morpho.base.errors import ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import THREE, Attributes, Op, Spec, register
from morpho.ops.algebra import neg
from morpho.ops.batching import elementwise
from morpho.ops.linalg.gradients import Cotangents, adjoint
from morpho.ops.linalg.lapack import JOINT_GRADIENT
from morpho.ops.linalg.triangular import _reference_lu, _reference_solve
from morpho.ops.sources import pick
from morpho.ops.special import round_bfloat16

ENOUGH = 2.0**-52


def _infer(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    a, size, b = inputs
    batch = a.shape[:-2]
    if any(spec.dtype is not float64 for spec in inputs):
        raise fail(ShapeError, "solve_refined", "operands are not float64")
    if len(a.shape) < 2 or a.shape[-1] != a.shape[-2] or b.shape[:-1] != a.shape[:-1] or size.shape != batch:
        raise fail(ShapeError, "solve_refined", f"shapes {a.shape}, {size.shape} and {b.shape} do not align")
    return b, Spec(batch, int64), Spec(batch, float64)


def _reference(attributes: Attributes, a: Any, size: Any, b: Any) -> Any:
    found = np.empty_like(b), np.empty(a.shape[:-2], np.int64), np.empty(a.shape[:-2])
    with np.errstate(all="ignore"):
        for place in np.ndindex(*a.shape[:-2]):
            found[0][place], found[1][place], found[2][place] = _refined(attributes, a[place], size[place], b[place])
    return found


def _refined(attributes: Attributes, a: Any, size: Any, b: Any) -> tuple[Any, int, Any]:
    low = _rounded(a, attributes["dtype"])
    order, lower, upper = _reference_lu({}, low)
    x, rest, count = np.zeros_like(b), b, -1
    while True:
        scale = np.abs(rest).max(0, initial=0.0)
        scale = np.where(scale == 0, 1.0, scale)
        right = (rest / scale).astype(np.float32)[order]
        right = _reference_solve({"upper": False, "unit": True}, lower, right)
        if np.any(np.diagonal(upper) == 0):
            return np.full_like(b, np.nan), count + 1, np.nan
        x = x + _reference_solve({"upper": True, "unit": False}, upper, right) * scale
        rest = b - a @ x
        below = size * np.abs(x).max(0, initial=0.0) + np.abs(b).max(0, initial=0.0)
        error = (np.abs(rest).max(0, initial=0.0) / np.where(below == 0, 1.0, below)).max(initial=0.0)
        count += 1
        if not error > ENOUGH or count >= attributes["most"]:
            return x, count, error


def _rounded(a: Any, dtype: DType) -> Any:
    if dtype is bfloat16:
        return np.asarray(round_bfloat16(a.astype(np.float32)))
    return a.astype(dtype.numpy).astype(np.float32)


def _rule(node: Node, cotangents: Cotangents) -> list[Node | None]:
    """That of a solve; corrections and errors have none."""
    ct = cotangents[0]
    if ct is None:
        return [None, None, None]
    moved = build("solve", adjoint(node.inputs[0]), ct)
    return [neg(build("matmul", moved, adjoint(pick(node, 0)))), None, moved]


register(Op("solve_refined", "host", _infer, _rule, _reference, 64, "corrected to a bound, by LAPACK's order",
            JOINT_GRADIENT, arity=THREE, batch=elementwise))
