"""Gradients of the operations that NumPy does: sorting, Fourier transforms, and the factorisations of LAPACK.

A cotangent of a complex value has the real inner product Re(conj(a) b) with a tangent (docs/numerics.md), so the
formulas are those for real matrices with the conjugate transpose in place of the transpose. Eigenvectors and singular
vectors are differentiated as far as they are determined: up to a factor of their own, and where no two values are
equal. Of matrices that are read as Hermitian the lower triangle, which is what is read, has the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numpy import finfo

from morpho.base.dims import larger, smaller
from morpho.base.dtypes import int64
from morpho.base.errors import ArgumentError, fail
from morpho.ir.body import Body, parameter
from morpho.ir.node import Node, build
from morpho.ops.algebra import (
    add,
    cast,
    conj,
    constant,
    constant_like,
    expand,
    mul,
    neg,
    permute,
    reduce,
    reshape,
    size_value,
    sub,
    where,
    zeros_like,
)
from morpho.ops.sources import pick

Cotangents = Sequence[Node | None]


def adjoint(node: Node) -> Node:
    """The conjugate transpose of matrices."""
    return conj(_transposed(node))


def _transposed(node: Node) -> Node:
    rank = len(node.shape)
    return permute(node, (*range(rank - 2), rank - 1, rank - 2))


def _product(*matrices: Node) -> Node:
    found = matrices[0]
    for matrix in matrices[1:]:
        found = build("matmul", found, matrix)
    return found


def _along(values: Node, matrix: Node, row: bool) -> Node:
    """A vector for each matrix, spread over its rows or over its columns, in its dtype."""
    shape = (*values.shape[:-1], 1, values.shape[-1]) if row else (*values.shape, 1)
    return expand(cast(reshape(values, shape), matrix.dtype), matrix.shape)


def scaled_columns(matrix: Node, values: Node) -> Node:
    """matrix @ diag(values)."""
    return mul(matrix, _along(values, matrix, True))


def _scaled_rows(matrix: Node, values: Node) -> Node:
    return mul(matrix, _along(values, matrix, False))


def ones_where(name: str, matrix: Node) -> Node:
    """Ones where row and column compare so, zeros elsewhere."""
    rows, columns = (build("iota", shape=matrix.shape, axis=len(matrix.shape) - k, dtype=int64) for k in (2, 1))
    return cast(build(name, rows, columns), matrix.dtype)


def _half(matrix: Node) -> Node:
    return constant_like(matrix, 0.5)


def _hermitian(matrix: Node) -> Node:
    return mul(_half(matrix), add(matrix, adjoint(matrix)))


def _in_lower(matrix: Node) -> Node:
    """A Hermitian cotangent gathered in the lower triangle."""
    below, diagonal = ones_where("greater_equal", matrix), ones_where("equal", matrix)
    return mul(matrix, sub(add(below, below), diagonal))


def _less_identity(matrix: Node) -> Node:
    """1 - matrix."""
    return sub(ones_where("equal", matrix), matrix)


def _zeros_for(cotangent: Node | None, node: Node, index: int) -> Node:
    return zeros_like(pick(node, index)) if cotangent is None else cotangent


# -- equations ---------------------------------------------------------------------------------------------------------
def inv_rule(node: Node, ct: Node) -> list[Node]:
    inverse = adjoint(node)
    return [neg(_product(inverse, ct, inverse))]


def _cofactors(x: Node) -> Node:
    """The cofactors of matrices of up to three rows, which singular matrices have too."""
    rank, n = len(x.shape), x.shape[-1]

    def element(i: int, j: int) -> Node:
        starts = (*[0] * (rank - 2), i % n, j % n)
        return build("slice", x, starts=starts, sizes=(*x.shape[:-2], 1, 1), steps=(1,) * rank)

    def cofactor(i: int, j: int) -> Node:
        if n == 1:
            return constant_like(element(0, 0), 1)
        if n == 2:
            found = element(i + 1, j + 1)
            return found if i == j else neg(found)
        return sub(mul(element(i + 1, j + 1), element(i + 2, j + 2)), mul(element(i + 1, j + 2), element(i + 2, j + 1)))

    rows = [[cofactor(i, j) for j in range(n)] for i in range(n)]
    lines = [row[0] if n == 1 else build("concatenate", *row, axis=rank - 1) for row in rows]
    return lines[0] if n == 1 else build("concatenate", *lines, axis=rank - 2)


MOST_PAIRED = 64  # rows of matrices whose products of all singular values but two are formed, n^3 numbers on the way


def _cofactors_of_factors(x: Node) -> Node:
    """The conjugate cofactors of matrices of any size, singular ones too: with A = U S V^H they are U P V^H times the
    conjugate determinants of U and V^H, where P has the products of all singular values but one."""
    factors = build("svd", x, full_matrices=False)
    left, values, right = (pick(factors, n) for n in range(3))
    products = _products_without(values, 1)
    turned = mul(build("det", left), build("det", right))
    if not x.dtype.is_complex:  # 1 or -1, which does not move
        turned = build("detach", turned)
    scale = expand(reshape(conj(turned), (*turned.shape, 1, 1)), x.shape)
    cofactors = mul(scale, _product(scaled_columns(left, products), right))
    if not isinstance(x.shape[-1], int) or x.shape[-1] > MOST_PAIRED:
        return cofactors
    # Slopes of factors are infinite where two singular values are equal, as two zeros are; those of cofactors are not.
    # So cofactors stand still here, and move with x by their own derivative, which is exact for all singular values.
    moved = conj(_product(adjoint(left), sub(x, build("detach", x)), adjoint(right)))
    pairs = cast(_products_without(values, 2), x.dtype)
    diagonal = cast(_on_diagonal(x.shape), x.dtype)
    column = _product(pairs, reduce("sum", mul(diagonal, moved), (len(x.shape) - 1,)))
    turning = sub(mul(diagonal, expand(column, x.shape)), mul(pairs, _transposed(moved)))
    return add(build("detach", cofactors), mul(scale, _product(left, turning, right)))


def _on_diagonal(shape: Sequence[Any]) -> Node:
    return build("equal", *(build("iota", shape=tuple(shape), axis=len(shape) - k, dtype=int64) for k in (2, 1)))


def _products_without(values: Node, left_out: int) -> Node:
    """Products of all values but one, (..., n); or but two, (..., n, n) with zeros on the diagonal."""
    *batch, n = values.shape
    shape = (*batch, *[n] * left_out, n)
    last = build("iota", shape=shape, axis=len(shape) - 1, dtype=int64)
    factors = expand(reshape(values, (*batch, *[1] * left_out, n)), shape)
    for axis in range(len(batch), len(shape) - 1):
        is_left_out = build("equal", build("iota", shape=shape, axis=axis, dtype=int64), last)
        factors = where(is_left_out, constant_like(factors, 1), factors)
    products = reshape(reduce("prod", factors, (len(shape) - 1,)), shape[:-1])
    return products if left_out == 1 else where(_on_diagonal(shape[:-1]), zeros_like(products), products)


def det_rule(node: Node, ct: Node) -> list[Node]:
    """The determinant times the inverse; where a matrix of the stack is singular, or nearly so, cofactors."""
    x = node.inputs[0]
    if x.shape[-1] in (1, 2, 3):
        return [mul(expand(reshape(ct, (*ct.shape, 1, 1)), x.shape), conj(_cofactors(x)))]
    is_singular = build("equal", node, zeros_like(node))
    if isinstance(x.shape[-1], int):
        is_singular = build("logical_or", is_singular, _is_nearly_singular(x, node, x.shape[-1]))
    which = cast(reshape(reduce("any", is_singular, tuple(range(len(node.shape)))), ()), int64)
    matrix, value = parameter(0, x.spec), parameter(1, node.spec)
    branches = (Body([conj(value), adjoint(build("inv", matrix))]),
                Body([constant_like(value, 1), _cofactors_of_factors(matrix)]))
    chosen = build("switch", which, x, node, branches=branches, any_row=True)
    scale = reshape(mul(ct, pick(chosen, 0)), (*ct.shape, 1, 1))
    return [mul(expand(scale, x.shape), pick(chosen, 1))]


def _is_nearly_singular(x: Node, value: Node, n: int) -> Node:
    """Where a determinant is so small beside the products of its rows, and of its columns, that derivatives of the
    inverse cancel to fewer than half of their digits. Random matrices have exp(-n / 2) of those products."""
    rank = len(x.shape)
    size = build("absolute", value)
    limit = 0.5 * math.log(float(finfo(value.dtype.numpy).eps))
    squares = build("square", build("absolute", x))
    bounds = []
    for axis in (rank - 1, rank - 2):
        logs = build("log", reduce("sum", squares, (axis,)))
        bounds.append(reshape(reduce("sum", logs, (2 * rank - 3 - axis,)), size.shape))
    least = mul(build("minimum", *bounds), constant_like(size, 0.5))
    return build("less", build("log", size), add(least, constant_like(size, limit - 0.5 * n)))


def slogdet_rule(node: Node, cotangents: Cotangents) -> list[Node | None]:
    """With w = tr(A^-1 dA) the logarithm changes by Re w, and the sign, of complex numbers, by i sign Im w. A singular
    matrix of the stack has no slope: NaN, and the others keep theirs."""
    x, (of_sign, ct) = node.inputs[0], cotangents
    scale = None if ct is None else cast(ct, x.dtype)
    if of_sign is not None and x.dtype.is_complex:
        turned = build("imag", mul(of_sign, conj(pick(node, 0))))
        turned = build("complex", zeros_like(turned), turned)
        scale = turned if scale is None else add(scale, turned)
    if scale is None:
        return [None]
    size = pick(node, 1)
    is_singular = expand(reshape(build("equal", size, constant_like(size, -math.inf)), (*size.shape, 1, 1)), x.shape)
    rows, columns = (build("iota", shape=x.shape, axis=len(x.shape) - k, dtype=int64) for k in (2, 1))
    identity = cast(build("equal", rows, columns), x.dtype)
    inverse = where(is_singular, constant_like(x, math.nan), build("inv", where(is_singular, identity, x)))
    return [mul(expand(reshape(scale, (*scale.shape, 1, 1)), x.shape), adjoint(inverse))]


def solve_rule(node: Node, ct: Node) -> list[Node]:
    moved = build("solve", adjoint(node.inputs[0]), ct)
    return [neg(build("matmul", moved, adjoint(node))), moved]


def pinv_rule(node: Node, ct: Node) -> list[Node | None]:
    """Golub and Pereyra (1973), for a rank that does not change."""
    x, p = node.inputs[0], node
    turned, back = adjoint(p), adjoint(ct)
    parts = add(_product(_less_identity(_product(x, p)), back, p, turned),
                _product(turned, p, back, _less_identity(_product(p, x))))
    return [sub(parts, _product(turned, ct, turned)), *[None] * (len(node.inputs) - 1)]


def pinv_forward(node: Node, tangents: Sequence[Node | None], push: object) -> list[Node | None]:
    """The same formula, along a direction."""
    x, p, along = node.inputs[0], node, tangents[0]
    if along is None:
        return [None]
    turned, back = adjoint(p), adjoint(along)
    parts = add(_product(p, turned, back, _less_identity(_product(x, p))),
                _product(_less_identity(_product(p, x)), back, turned, p))
    return [sub(parts, _product(p, along, p))]


def pinv_parts(node: Node) -> Node:
    """V diag(1 / s) U^H, without singular values up to the limit (NumPy's: the sides' longer one times epsilon)."""
    x, *limit = node.inputs
    *batch, rows, columns = x.shape
    if 0 in (rows, columns):
        return expand(reshape(constant(0, x.dtype), (1,) * len(x.shape)), node.shape)
    factors = build("svd", x, full_matrices=False)
    left, values, right = (pick(factors, n) for n in range(3))
    if limit:
        share = expand(cast(reshape(limit[0], (*limit[0].shape, 1)), values.dtype), (*batch, 1))
    else:
        epsilon = constant(float(finfo(values.dtype.numpy).eps), values.dtype)
        longer = size_value(larger(rows, columns), values.dtype)
        share = expand(reshape(mul(longer, epsilon), (1,) * (len(batch) + 1)), (*batch, 1))
    rank = len(values.shape)  # a zero behind them: a size that is not known may be none
    padded = build("pad", values, before=(0,) * rank, after=(0,) * len(batch) + (1,), value=0.0)
    largest = reduce("max", padded, (rank - 1,))
    counts = build("greater", values, expand(mul(share, largest), values.shape))
    inverses = where(counts, build("reciprocal", where(counts, values, constant_like(values, 1))), zeros_like(values))
    return _product(adjoint(right), _scaled_rows(adjoint(left), inverses))


# -- factorisations ----------------------------------------------------------------------------------------------------
def cholesky_rule(node: Node, ct: Node) -> list[Node]:
    """Murray (2016): S = L^-H P L^-1 with P the lower half of L^H dL, its diagonal halved; then the Hermitian part."""
    factor, slope = (adjoint(node), adjoint(ct)) if node["upper"] else (node, ct)
    below, diagonal = ones_where("greater_equal", factor), ones_where("equal", factor)
    inner = _product(adjoint(factor), mul(slope, below))
    inner = mul(inner, sub(below, mul(_half(factor), diagonal)))
    inverse = build("inv", factor)
    return [_hermitian(_product(adjoint(inverse), inner, inverse))]


def eigh_rule(node: Node, cotangents: Cotangents) -> list[Node | None]:
    """V (diag(dw) + F * (V^H dV)) V^H with F = 1 / (w_j - w_i), and 0 where the two are equal."""
    values, vectors = pick(node, 0), pick(node, 1)
    of_values, of_vectors = cotangents
    middle = None
    if of_values is not None:
        middle = mul(ones_where("equal", vectors), _along(of_values, vectors, True))
    if of_vectors is not None:
        turned = mul(_inverse_differences(values, vectors), _product(adjoint(vectors), of_vectors))
        middle = turned if middle is None else add(middle, turned)
    if middle is None:
        return [None]
    return [_in_lower(_hermitian(_product(vectors, middle, adjoint(vectors))))]


def _inverse_differences(values: Node, like: Node) -> Node:
    """1 / (v_j - v_i), and 0 where there is no difference."""
    square = (*values.shape, values.shape[-1])
    apart = sub(expand(reshape(values, (*values.shape[:-1], 1, values.shape[-1])), square),
                expand(reshape(values, (*values.shape, 1)), square))
    none = build("equal", apart, zeros_like(apart))
    found = where(none, zeros_like(apart), build("reciprocal", where(none, constant_like(apart, 1), apart)))
    return cast(found, like.dtype)


def eigvalsh_rule(node: Node, ct: Node) -> list[Node]:
    vectors = pick(build("eigh", node.inputs[0]), 1)
    return [_in_lower(_product(scaled_columns(vectors, ct), adjoint(vectors)))]


def svdvals_rule(node: Node, ct: Node) -> list[Node]:
    factors = build("svd", node.inputs[0], full_matrices=False)
    return [_product(scaled_columns(pick(factors, 0), ct), pick(factors, 2))]


def svd_rule(node: Node, cotangents: Cotangents) -> list[Node | None]:
    """Wan and Zhang (2019), the last part for complex numbers: A = U S V^H has U_ij and V_ij turned by 1 / (s_j^2 -
    s_i^2), and what of dU and dV lies outside of U and V divided by s."""
    x, (of_u, of_s, of_vh) = node.inputs[0], cotangents
    reduced = build("svd", x, full_matrices=False)
    if (of_u is not None or of_vh is not None) and any(
            pick(node, i).shape != pick(reduced, i).shape for i in (0, 2)):
        raise fail(ArgumentError, "svd", "singular vectors beyond the least of rows and columns have no gradient",
                   "use full_matrices=False", line=node.origin)
    u, s, vh = (pick(reduced, index) for index in range(3))
    v, inverse = adjoint(vh), build("reciprocal", s)
    if x.shape[-1] == x.shape[-2]:  # nothing lies outside of U and V, nor of those of the value 0
        inverse = where(build("equal", s, zeros_like(s)), zeros_like(s), inverse)
    square = _product(adjoint(u), u)  # for its shape and dtype
    middle = mul(ones_where("equal", square), _along(zeros_like(s) if of_s is None else of_s, square, True))
    outside: list[Node] = []
    differences = _inverse_differences(build("square", s), square)
    if of_u is not None:
        inner = _product(adjoint(u), of_u)
        turned = mul(differences, inner)
        middle = add(middle, scaled_columns(add(turned, adjoint(turned)), s))
        outside.append(_product(scaled_columns(sub(of_u, _product(u, inner)), inverse), vh))
    if of_vh is not None:
        of_v = adjoint(of_vh)
        inner = _product(vh, of_v)
        turned = mul(differences, inner)
        middle = add(middle, _scaled_rows(add(turned, adjoint(turned)), s))
        outside.append(_product(u, _scaled_rows(adjoint(sub(of_v, _product(v, inner))), inverse)))
        if x.dtype.is_complex:
            own = mul(ones_where("equal", square), inner)
            middle = add(middle, mul(_half(square), _scaled_rows(sub(adjoint(own), own), inverse)))
    found = _product(u, middle, vh)
    for part in outside:
        found = add(found, part)
    return [found]


def qr_rule(node: Node, cotangents: Cotangents) -> list[Node | None]:
    """(dQ + Q C) R^-H with C the Hermitian matrix that has the lower triangle of R dR^H - dQ^H Q; the columns of a wide
    matrix beyond a square are Q^H times those of A."""
    x, (of_q, of_r) = node.inputs[0], cotangents
    rows, columns = x.shape[-2:]
    inner = smaller(rows, columns)
    if pick(node, 0).shape[-1] != inner:
        if of_q is not None:
            raise fail(ArgumentError, "qr", "the columns of Q beyond those of the matrix have no gradient",
                       "use mode='reduced'", line=node.origin)
        of_r = None if of_r is None else _columns(of_r, -2, 0, inner)
        node = build("qr", x, mode="reduced")
    q, r = pick(node, 0), pick(node, 1)
    of_q = zeros_like(q) if of_q is None else of_q
    of_r = zeros_like(r) if of_r is None else of_r
    if columns == inner:
        return [_qr_square(q, r, of_q, of_r)]
    rest = _columns(of_r, -1, inner, columns)
    of_q = add(of_q, _product(_columns(x, -1, inner, columns), adjoint(rest)))
    first = _qr_square(q, _columns(r, -1, 0, inner), of_q, _columns(of_r, -1, 0, inner))
    return [build("concatenate", first, _product(q, rest), axis=len(x.shape) - 1)]


def _columns(matrix: Node, axis: int, start: Any, stop: Any) -> Node:
    """Rows (axis -2) or columns (axis -1) of matrices from one number to another."""
    rank = len(matrix.shape)
    number = rank + axis
    return build("slice", matrix, starts=tuple(start if i == number else 0 for i in range(rank)),
                 sizes=tuple(stop - start if i == number else size for i, size in enumerate(matrix.shape)),
                 steps=(1,) * rank)


def _qr_square(q: Node, r: Node, of_q: Node, of_r: Node) -> Node:
    mixed = sub(_product(r, adjoint(of_r)), _product(adjoint(of_q), q))
    lower = mul(mixed, ones_where("greater", mixed))
    diagonal = mul(_hermitian(mixed), ones_where("equal", mixed))
    whole = add(of_q, _product(q, add(add(lower, adjoint(lower)), diagonal)))
    return adjoint(build("solve", r, adjoint(whole)))  # whole @ R^-H
