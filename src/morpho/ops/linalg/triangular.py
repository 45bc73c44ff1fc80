"""Triangular matrices: LU factorisation with row exchanges, and solves with one triangle. Small ones are native; larger
and complex ones are LAPACK's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import int64
from morpho.base.errors import DTypeError, ShapeError, ValueFault, fail
from morpho.ir.node import Node, build
from morpho.ir.op import ONE, TWO, Attributes, Op, Spec, register
from morpho.ops.algebra import add, expand, mul, neg, reshape
from morpho.ops.batching import elementwise
from morpho.ops.complex.parts import COMPLEX_OF
from morpho.ops.linalg.gradients import Cotangents, adjoint, ones_where
from morpho.ops.linalg.lapack import JOINT_GRADIENT, QUIET, SMALL
from morpho.ops.sources import pick


def _check_square(name: str, spec: Spec) -> None:
    if spec.dtype not in COMPLEX_OF:
        raise fail(DTypeError, name, f"dtype {spec.dtype} is not taken", "convert to float32, float64 or complex")
    if len(spec.shape) < 2 or spec.shape[-1] != spec.shape[-2]:
        raise fail(ShapeError, name, f"shape {spec.shape} is not that of square matrices")


# -- solve_triangular --------------------------------------------------------------------------------------------------
def _infer_solve(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    """Both are stacks of matrices with equal batch axes here; vectors and broadcasting are settled before."""
    a, b = inputs
    _check_square("solve_triangular", a)
    if b.dtype is not a.dtype or b.shape[:-1] != a.shape[:-1]:
        raise fail(ShapeError, "solve_triangular", f"{a.dtype}{a.shape} and {b.dtype}{b.shape} do not align")
    return b


def _reference_solve(attributes: Attributes, a: Any, b: Any) -> Any:
    """Each x is taken off all rows that are still to be solved."""
    n, found = a.shape[-1], np.array(b)
    diagonal = np.diagonal(a, axis1=-2, axis2=-1)
    if not attributes["unit"] and np.any(diagonal == 0):
        raise fail(ValueFault, "solve_triangular", "singular matrix")
    with np.errstate(all="ignore"):
        for j in reversed(range(n)) if attributes["upper"] else range(n):
            if not attributes["unit"]:
                found[..., j, :] /= diagonal[..., j, None]
            rest = slice(0, j) if attributes["upper"] else slice(j + 1, n)
            found[..., rest, :] -= a[..., rest, j, None] * found[..., None, j, :]
    return found


def _solve_rule(node: Node, ct: Node) -> list[Node]:
    upper, unit = node["upper"], node["unit"]
    moved = build("solve_triangular", adjoint(node.inputs[0]), ct, upper=not upper, unit=unit)
    slope = neg(build("matmul", moved, adjoint(node)))
    order = ("less" if upper else "greater") + ("" if unit else "_equal")
    return [mul(slope, ones_where(order, slope)), moved]


register(Op("solve_triangular", "host", _infer_solve, _solve_rule, _reference_solve, 32, SMALL, QUIET,
            arity=TWO, batch=elementwise))


# -- lu ----------------------------------------------------------------------------------------------------------------
def _infer_lu(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    """The number of the row that each row of L U is, L, and U."""
    _check_square("lu", inputs[0])
    return Spec(inputs[0].shape[:-1], int64), inputs[0], inputs[0]


def _sizes(x: Any) -> Any:
    """Magnitudes as LAPACK compares them: of complex numbers the sum of the sizes of their parts."""
    return np.abs(x.real) + np.abs(x.imag) if x.dtype.kind == "c" else np.abs(x)


def _reference_lu(attributes: Attributes, x: Any) -> Any:
    """Gaussian elimination; the pivot of a column is the first of its largest elements."""
    n = x.shape[-1]
    both = np.array(x).reshape(int(np.prod(x.shape[:-2])), n, n)
    order = np.broadcast_to(np.arange(n), both.shape[:-1]).copy()
    with np.errstate(all="ignore"):
        for matrix, rows in zip(both, order, strict=True):
            for k in range(n):
                pivot = k + int(np.argmax(_sizes(matrix[k:, k])))
                for lines in (matrix, rows):
                    lines[[k, pivot]] = lines[[pivot, k]]
                if matrix[k, k] != 0:
                    matrix[k + 1:, k] /= matrix[k, k]
                matrix[k + 1:, k + 1:] -= matrix[k + 1:, k, None] * matrix[None, k, k + 1:]
    both = both.reshape(x.shape)
    return order.reshape(x.shape[:-1]), np.tril(both, -1) + np.eye(n, dtype=x.dtype), np.triu(both)


def permutation(order: Node, like: Node) -> Node:
    """P with x = P L U: row order[j] of it has its one in column j."""
    shape = like.shape
    rows = build("iota", shape=shape, axis=len(shape) - 2, dtype=int64)
    wanted = expand(reshape(order, (*order.shape[:-1], 1, order.shape[-1])), shape)
    return build("cast", build("equal", rows, wanted), dtype=like.dtype)


def _lu_rule(node: Node, cotangents: Cotangents) -> list[Node | None]:
    """P L^-H (strictly lower half of L^H dL + upper half of dU U^H) U^-H."""
    _, of_lower, of_upper = cotangents
    lower, upper = pick(node, 1), pick(node, 2)
    middle = None
    if of_lower is not None:
        found = build("matmul", adjoint(lower), of_lower)
        middle = mul(found, ones_where("greater", found))
    if of_upper is not None:
        found = build("matmul", of_upper, adjoint(upper))
        found = mul(found, ones_where("less_equal", found))
        middle = found if middle is None else add(middle, found)
    if middle is None:
        return [None]
    left = build("solve_triangular", adjoint(lower), middle, upper=True, unit=True)
    both = adjoint(build("solve_triangular", upper, adjoint(left), upper=True, unit=False))
    return [build("matmul", permutation(pick(node, 0), lower), both)]


register(Op("lu", "host", _infer_lu, _lu_rule, _reference_lu, 64, SMALL, JOINT_GRADIENT,
            arity=ONE, batch=elementwise))
