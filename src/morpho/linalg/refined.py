"""Solves of mixed precision: factors of a lower precision, corrections in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import morpho as mo
from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.python.blas import routine_address
from morpho.base.shapes import broadcast
from morpho.ir.node import build
from morpho.linalg import blocked
from morpho.ops.linalg.refined import ENOUGH
from morpho.ops.sources import pick

Tensor = mo.Tensor
LOWER = (mo.float32, mo.bfloat16, mo.float16)


class Refined(NamedTuple):
    """The solution, the number of corrections, and the largest backward error |b - a x| / (|a| |x| + |b|) of a column.

    >>> mo.linalg.solve_refined(mo.eye(2, dtype="float64"), mo.ones(2, dtype="float64")).x.tolist()
    [1.0, 1.0]
    """

    x: Tensor
    iterations: Tensor
    backward_error: Tensor


def solve_refined(x1: Any, x2: Any, /, *, factor_dtype: Any = "float32", maxiter: int = 30,
                  algorithm: str = "auto") -> Refined:
    """The x with x1 @ x = x2 in float64 from factors of a lower precision, corrected until the backward error is that
    of float64 (or `maxiter` corrections were made: a matrix that is singular to the lower precision does not converge).

    LAPACK factorises, of stacks of matrices too; `algorithm="native"` has one matrix factorised in blocks on Morpho's
    products, with the same bits for any number of threads.

    >>> a = mo.asarray([[4.0, 1.0], [1.0, 3.0]], dtype="float64")
    >>> mo.linalg.solve_refined(a, mo.asarray([1.0, 2.0], dtype="float64")).backward_error.item() < 1e-15
    True
    """
    a = x1 if isinstance(x1, Tensor) else mo.asarray(x1)
    b: Tensor = x2 if isinstance(x2, Tensor) else mo.asarray(x2)
    if a.dtype is not mo.float64 or b.dtype is not mo.float64:
        raise fail(ArgumentError, "solve_refined", f"{a.dtype} and {b.dtype} are not float64",
                   "mo.linalg.solve solves in other dtypes")
    low = mo.zeros(0, dtype=factor_dtype).dtype
    if low not in LOWER:
        raise fail(ArgumentError, "solve_refined", f"factors in {factor_dtype} are not of a lower precision",
                   "float32, or bfloat16 and float16, whose numbers are factorised in float32")
    if maxiter < 0:
        raise fail(ArgumentError, "solve_refined", f"maxiter is {maxiter}", "a number of corrections, 0 or more")
    vector = b.ndim == 1
    b = b[:, None] if vector else b
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != a.shape[-2] or b.shape[-2] != a.shape[-1]:
        raise fail(ShapeError, "solve_refined", f"shapes {tuple(a.shape)} and {tuple(b.shape)} do not align")
    by_lapack = not blocked.choice("solve_refined", algorithm) and routine_address("sgetrf")
    found = (_by_lapack if by_lapack and a.device.startswith("cpu") else _in_blocks)(a, b, low, maxiter)
    return Refined(found.x[..., 0], found.iterations, found.backward_error) if vector else found


def _by_lapack(a: Tensor, b: Tensor, low: DType, maxiter: int) -> Refined:
    """One kernel: LAPACK's factors and solves, and residuals in float64."""
    batch = broadcast("solve_refined", a.shape, b.shape, inner=2)
    a, b = (mo.broadcast_to(x, (*batch, *x.shape[-2:])) if x.shape[:-2] != batch else x for x in (a, b))
    size = mo.max(mo.sum(mo.abs(a), axis=-1), axis=-1)
    made = build("solve_refined", a.node, size.node, b.node, dtype=low, most=maxiter)
    return Refined(*[Tensor.of_node(pick(made, number)) for number in range(3)])


def _in_blocks(a: Tensor, b: Tensor, low: DType, maxiter: int) -> Refined:
    """On Morpho's own products, as a native loop."""
    a = blocked.matrix_of("solve_refined", a)
    if b.ndim != 2:
        raise fail(ShapeError, "solve_refined", f"{b.ndim - 2} axes of right sides for one matrix",
                   "mo.vmap takes stacks of them")
    both, order = blocked.lu(mo.astype(mo.astype(a, low), mo.float32))

    def correction(r: Tensor) -> Tensor:
        """By the factors, of a residual scaled to the range of float32."""
        scale = mo.max(mo.abs(r), axis=0, keepdims=True)
        scale = mo.where(scale == 0, mo.ones_like(scale), scale)
        right = mo.take(mo.astype(r / scale, mo.float32), order, axis=0)
        found = blocked.solve_upper(both, blocked.solve_lower(both, right, unit=True))
        return mo.astype(found, mo.float64) * scale

    size = mo.max(mo.sum(mo.abs(a), axis=1))
    of_b = mo.max(mo.abs(b), axis=0)

    def error(x: Tensor, r: Tensor) -> Tensor:
        below = size * mo.max(mo.abs(x), axis=0) + of_b
        return mo.max(mo.max(mo.abs(r), axis=0) / mo.where(below == 0, mo.ones_like(below), below))

    def turn(state: Any) -> Any:
        count, x, r, _ = state
        x = x + correction(r)
        r = b - a @ x
        return count + 1, x, r, error(x, r)

    start = correction(b)
    r = b - a @ start
    count, x, _, last = mo.while_loop(lambda s: (s[0] < maxiter) & (s[3] > ENOUGH), turn,
                                      (mo.zeros((), dtype=mo.int64), start, r, error(start, r)))
    return Refined(x, count, last)
