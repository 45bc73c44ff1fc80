"""Matrices that need not be symmetric: eigenvalues, the Schur form, roots, logarithms; L D L^H of those that are.

The CPU calls LAPACK for all of them (`backends/kernels/linalg/lapack/`); here is what they mean, in NumPy. A function
of a matrix has its derivative from the same function of a block matrix of twice the size,
f([[A, E], [0, A]]) = [[f(A), L], [0, f(A)]]: it holds for repeated and defective eigenvalues too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import int64
from morpho.base.errors import DTypeError, ShapeError, ValueFault, fail
from morpho.ir.node import Node, build
from morpho.ir.op import ONE, Attributes, NoGradient, Op, Spec, register
from morpho.ops.algebra import add, cast, constant_like, div, mul, sub, where, zeros_like
from morpho.ops.batching import elementwise
from morpho.ops.complex.parts import COMPLEX_OF
from morpho.ops.linalg import schur as by_schur
from morpho.ops.linalg.gradients import Cotangents, adjoint, ones_where, scaled_columns
from morpho.ops.linalg.lapack import JOINT_GRADIENT, QUIET
from morpho.ops.sources import pick


def _square(name: str, spec: Spec) -> None:
    if spec.dtype not in COMPLEX_OF:
        raise fail(DTypeError, name, f"dtype {spec.dtype} is not taken", "convert to float32, float64 or complex")
    if len(spec.shape) < 2 or spec.shape[-1] != spec.shape[-2]:
        raise fail(ShapeError, name, f"shape {spec.shape} is not that of square matrices")


def _each(x: Any, function: Any) -> list[Any]:
    return [function(x[place]) for place in np.ndindex(*x.shape[:-2])]


# -- eig ---------------------------------------------------------------------------------------------------------------
def _infer_eig(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    (spec,) = inputs
    _square("eig", spec)
    return Spec(spec.shape[:-1], COMPLEX_OF[spec.dtype]), Spec(spec.shape, COMPLEX_OF[spec.dtype])


def _infer_eigvals(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    _square("eigvals", inputs[0])
    return Spec(inputs[0].shape[:-1], COMPLEX_OF[inputs[0].dtype])


def _told(name: str, function: Any, x: Any) -> Any:
    try:
        return function(x)
    except np.linalg.LinAlgError as error:
        raise fail(ValueFault, name, str(error).rstrip(".").lower()) from error


def _reference_eig(attributes: Attributes, x: Any) -> Any:
    return tuple(_told("eig", np.linalg.eig, x))


def _like(x: Node, slope: Node) -> Node:
    """The gradient of a real matrix is the real part."""
    return slope if x.dtype.is_complex else build("part", slope, index=0)


def _eig_rule(node: Node, cotangents: Cotangents) -> list[Node | None]:
    """V^-H (diag(dw) + (V^H dV - V^H V Re diag(V^H dV)) / conj(w_j - w_i)) V^H; equal eigenvalues divide by zero: such
    terms are left out, which is right where the function does not depend on the choice of their vectors."""
    of_values, of_vectors = cotangents
    values, vectors = pick(node, 0), pick(node, 1)
    inside: Node | None = None
    if of_vectors is not None:
        turned = adjoint(vectors)
        first = build("matmul", turned, of_vectors)
        eye = ones_where("equal", first)
        diagonal = mul(first, eye)
        real = build("complex", build("part", diagonal, index=0), zeros_like(build("part", diagonal, index=0)))
        first = sub(first, build("matmul", build("matmul", turned, vectors), real))
        shape = vectors.shape
        row = build("expand", build("reshape", values, shape=(*values.shape[:-1], 1, values.shape[-1])), shape=shape)
        column = build("expand", build("reshape", values, shape=(*values.shape, 1)), shape=shape)
        gap = build("conj", sub(row, column))
        none = build("equal", gap, zeros_like(gap))
        inside = where(none, zeros_like(first), div(first, where(none, constant_like(gap, 1), gap)))
    if of_values is not None:
        spread = scaled_columns(cast(ones_where("equal", vectors), vectors.dtype), of_values)
        inside = spread if inside is None else add(inside, spread)
    if inside is None:
        return [None]
    right = build("matmul", inside, adjoint(vectors))
    return [_like(node.inputs[0], build("solve", adjoint(vectors), right))]


def _eigvals_rule(node: Node, ct: Node) -> list[Node]:
    vectors = pick(build("eig", node.inputs[0]), 1)
    spread = scaled_columns(cast(ones_where("equal", vectors), vectors.dtype), ct)
    return [_like(node.inputs[0], build("solve", adjoint(vectors), build("matmul", spread, adjoint(vectors))))]


register(Op("eig", "host", _infer_eig, _eig_rule, _reference_eig, 64, "NumPy", JOINT_GRADIENT, arity=ONE,
            batch=elementwise))
register(Op("eigvals", "host", _infer_eigvals, _eigvals_rule,
            lambda attributes, x: _told("eigvals", np.linalg.eigvals, x), 64, "NumPy", QUIET, arity=ONE,
            batch=elementwise))


# -- schur, sqrtm, logm ------------------------------------------------------------------------------------------------
def _infer_schur(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    (spec,) = inputs
    _square("schur", spec)
    one = Spec(spec.shape, COMPLEX_OF[spec.dtype])
    return one, one


def _reference_schur(attributes: Attributes, x: Any) -> Any:
    found = _each(x.astype(np.complex128), by_schur.schur)
    return tuple(np.array([pair[n] for pair in found], np.complex128).reshape(x.shape) for n in range(2))


register(Op("schur", "host", _infer_schur,
            NoGradient("the Schur form is not unique; eig and functions of matrices have gradients", missing=True),
            _reference_schur, 256, "NumPy", QUIET, arity=ONE, batch=elementwise))


def _infer_function(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    _square(attributes["function"], inputs[0])
    return inputs[0]


def _reference_function(attributes: Attributes, x: Any) -> Any:
    found = _each(x, lambda matrix: by_schur.of_matrix(attributes["function"], matrix))
    return np.array(found, x.dtype).reshape(x.shape)


def block_slope(node: Node, ct: Node) -> list[Node]:
    """The upper right of f([[A^H, G], [0, A^H]])."""
    turned = adjoint(node.inputs[0])
    rank, n = len(turned.shape), turned.shape[-1]
    top = build("concatenate", turned, ct, axis=rank - 1)
    bottom = build("concatenate", zeros_like(ct), turned, axis=rank - 1)
    whole = build(node.op.name, build("concatenate", top, bottom, axis=rank - 2), **node.attributes)
    return [build("slice", whole, starts=(*[0] * (rank - 1), n), sizes=turned.shape, steps=(1,) * rank)]


register(Op("matrix_function", "host", _infer_function, block_slope, _reference_function, 512, "NumPy", QUIET,
            arity=ONE, batch=elementwise))


# -- ldl ---------------------------------------------------------------------------------------------------------------
def _infer_ldl(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    """The number of the row that each row of L is, L and D."""
    _square("ldl", inputs[0])
    return Spec(inputs[0].shape[:-1], int64), inputs[0], inputs[0]


def _reference_ldl(attributes: Attributes, x: Any) -> Any:
    found = _each(x, _bunch_kaufman)
    return (np.array([one[0] for one in found], np.int64).reshape(x.shape[:-1]),
            *[np.array([one[n] for one in found], x.dtype).reshape(x.shape) for n in (1, 2)])


def _bunch_kaufman(a: Any) -> tuple[Any, Any, Any]:
    """Rows p and columns p of a are L D L^H: pivots of one or two rows, chosen so that L stays small."""
    n = len(a)
    a = np.tril(a) + np.tril(a, -1).conj().T
    np.fill_diagonal(a, a.diagonal().real)
    order, lower, blocks = np.arange(n), np.eye(n, dtype=a.dtype), np.zeros_like(a)
    limit, k = (1 + 17**0.5) / 8, 0
    while k < n:
        size, other = _pivot(a, k, limit)
        if other is not None:
            place = k + size - 1
            for lines in (a, order, lower[:, :k]):
                lines[[place, other]] = lines[[other, place]]
            a[:, [place, other]] = a[:, [other, place]]
        own = slice(k, k + size)
        blocks[own, own] = a[own, own]
        if np.any(a[k + size:, own]):
            below = np.linalg.solve(a[own, own].conj().T, a[k + size:, own].conj().T).conj().T
            lower[k + size:, own] = below
            rest = a[k + size:, k + size:] - below @ a[k + size:, own].conj().T
            np.fill_diagonal(rest, rest.diagonal().real)  # or what rounding leaves there would grow
            a[k + size:, k + size:] = np.tril(rest) + np.tril(rest, -1).conj().T  # Hermitian, whatever was rounded
        k += size
    return order, lower, blocks


def _pivot(a: Any, k: int, limit: float) -> tuple[int, int | None]:
    """How many rows the next pivot has, and which row its last one is exchanged with."""
    n, own = len(a), abs(a[k, k])
    if k == n - 1:
        return 1, None
    r = k + 1 + int(np.argmax(np.abs(a[k + 1:, k])))
    largest = abs(a[r, k])
    if own >= limit * largest or largest == 0:
        return 1, None
    row = np.abs(a[r, k:].copy())
    row[r - k] = 0
    beside = row.max()
    if own * beside >= limit * largest**2:
        return 1, None
    return (1, r) if abs(a[r, r]) >= limit * beside else (2, r)


register(Op("ldl", "host", _infer_ldl,
            NoGradient("the pivots jump; det, solve and cholesky have gradients", missing=True), _reference_ldl, 128,
            "NumPy", QUIET, arity=ONE, batch=elementwise))
