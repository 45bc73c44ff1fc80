"""`mo.linalg`: the linear algebra extension of the Array API. Real matrices of at most 32 rows and columns are
factorised natively, larger and complex ones by LAPACK, called by its address; products and norms are native.

Half floats are factorised in float32 and rounded once.
"""

from __future__ import annotations

import builtins
import math
from numbers import Real
from typing import Any, NamedTuple

from morpho.base.dims import larger, smaller
from morpho.base.dtypes import float32
from morpho.base.errors import ArgumentError, AxisError, ShapeError, fail
from morpho.base.shapes import as_integer, broadcast
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, expand, reshape, size_value, sub
from morpho.ops.algebra import mul as multiply
from morpho.ops.linalg.triangular import permutation
from morpho.ops.sources import pick
from morpho.tensor.autodiff.precision import rounded_once
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.functions.create import eye
from morpho.tensor.functions.move import matrix_transpose, moveaxis, slice_node
from morpho.tensor.functions.products.products import matmul, outer, tensordot, vecdot
from morpho.tensor.namespace import finfo
from morpho.tensor.operands import as_node, promoted
from morpho.tensor.recorded import recorded
from morpho.tensor.scalars import DEFAULT_FLOAT
from morpho.tensor.tools.foreign_calls import hint_calls
from morpho.tensor.tools.foreign_names import module_attribute

__all__ = ["cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "lstsq", "lu", "matmul",
           "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve",
           "solve_triangular", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm"]


def __dir__() -> list[str]:
    return __all__


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class LstsqResult(NamedTuple):
    """The x of least length among those with the least |a x - b|, the squares of that, the rank and singular values."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class LUResult(NamedTuple):
    """A permutation P, a lower triangular L with ones on its diagonal, and an upper triangular U."""

    P: Tensor
    L: Tensor
    U: Tensor


class QRResult(NamedTuple):
    """An orthonormal Q and an upper triangular R."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """Sign and logarithm of the magnitude of a determinant."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Left vectors, singular values in descending order, right vectors as rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


# -- factorisations -------------------------------------------------------------------------------------------
def _lapack(name: str, *operands: Any, **attributes: Any) -> list[Tensor]:
    """Run a host operation; half floats go through float32, integers become floats."""
    nodes = promoted(name, *operands, floating=True)
    narrow = nodes[0].dtype
    halves = narrow.itemsize == 2
    wide = [cast(node, float32) if halves else node for node in nodes]
    made = build(name, *wide, **attributes)
    outputs = [pick(made, i) for i in range(len(made.outputs))]
    return [Tensor.of_node(cast(node, narrow) if halves and node.dtype.is_float else node) for node in outputs]


def cholesky(x: Any, /, *, upper: bool = False) -> Tensor:
    """The triangular factor L of a positive definite x = L L^H, or its upper counterpart.

    >>> mo.linalg.cholesky(mo.asarray([[4.0, 2.0], [2.0, 5.0]]))
    Tensor([[2., 0.],
            [1., 2.]], dtype=float32)
    """
    return _lapack("cholesky", x, upper=bool(upper))[0]


def det(x: Any, /) -> Tensor:
    """The determinant of square matrices.

    >>> mo.linalg.det(mo.asarray([[2.0, 0.0], [1.0, 3.0]])).item()
    6.0
    """
    return _lapack("det", x)[0]


def slogdet(x: Any, /) -> SlogdetResult:
    """Sign and log-magnitude of the determinant, without overflow.

    >>> sign, logarithm = mo.linalg.slogdet(mo.asarray([[0.0, 1.0], [1.0, 0.0]]))
    >>> sign.item(), logarithm.item()
    (-1.0, 0.0)
    """
    return SlogdetResult(*_lapack("slogdet", x))


def inv(x: Any, /) -> Tensor:
    """The inverse of square matrices.

    >>> mo.linalg.inv(mo.asarray([[2.0, 0.0], [0.0, 4.0]]))
    Tensor([[0.5 , 0.  ],
            [0.  , 0.25]], dtype=float32)
    """
    return _lapack("inv", x)[0]


def pinv(x: Any, /, *, rtol: Any = None) -> Tensor:
    """The Moore-Penrose inverse; singular values below `rtol` times the largest count as zero.

    >>> mo.linalg.pinv(mo.asarray([[2.0], [0.0]]))
    Tensor([[0.5, 0. ]], dtype=float32)
    """
    return _lapack("pinv", x, *([] if rtol is None else [rtol]))[0]


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """x = Q R.

    >>> q, r = mo.linalg.qr(mo.asarray([[0.0, 2.0], [1.0, 3.0]]))
    >>> (q @ r).numpy().round(4)
    array([[0., 2.],
           [1., 3.]], dtype=float32)
    """
    if mode not in ("reduced", "complete"):
        raise fail(ArgumentError, "qr", f"mode {mode!r} is unknown", "use 'reduced' or 'complete'")
    return QRResult(*_lapack("qr", x, mode=mode))


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """x = U diag(S) Vh.

    >>> u, s, vh = mo.linalg.svd(mo.asarray([[3.0, 0.0], [0.0, 4.0]]))
    >>> s
    Tensor([4., 3.], dtype=float32)
    """
    return SVDResult(*_lapack("svd", x, full_matrices=bool(full_matrices)))


def svdvals(x: Any, /) -> Tensor:
    """The singular values, largest first.

    >>> mo.linalg.svdvals(mo.asarray([[3.0, 0.0], [0.0, 4.0]]))
    Tensor([4., 3.], dtype=float32)
    """
    return _lapack("svdvals", x)[0]


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric (Hermitian) matrices.

    >>> values, vectors = mo.linalg.eigh(mo.asarray([[2.0, 0.0], [0.0, 1.0]]))
    >>> values
    Tensor([1., 2.], dtype=float32)
    """
    return EighResult(*_lapack("eigh", x))


def eigvalsh(x: Any, /) -> Tensor:
    """Eigenvalues of symmetric (Hermitian) matrices, ascending.

    >>> mo.linalg.eigvalsh(mo.asarray([[2.0, 0.0], [0.0, 1.0]]))
    Tensor([1., 2.], dtype=float32)
    """
    return _lapack("eigvalsh", x)[0]


def lu(x: Any, /) -> LUResult:
    """x = P L U of square matrices: Gaussian elimination, whose pivots are the first of the largest in their column.

    >>> p, l, u = mo.linalg.lu(mo.asarray([[1.0, 2.0], [2.0, 2.0]]))
    >>> l.tolist(), u.tolist(), (p @ l @ u).tolist()
    ([[1.0, 0.0], [0.5, 1.0]], [[2.0, 2.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 2.0]])
    """
    order, lower, upper = _lapack("lu", x)
    return LUResult(Tensor.of_node(permutation(order.node, lower.node)), lower, upper)


def solve(x1: Any, x2: Any, /) -> Tensor:
    """The x with x1 @ x = x2; x2 is a vector or a stack of matrices.

    >>> mo.linalg.solve(mo.asarray([[2.0, 0.0], [0.0, 4.0]]), mo.asarray([2.0, 8.0])).tolist()
    [1.0, 2.0]
    """
    return _solved("solve", x1, x2)


def solve_triangular(x1: Any, x2: Any, /, *, upper: bool = False, unitriangular: bool = False) -> Tensor:
    """The x with x1 @ x = x2, where x1 is lower triangular, or `upper`: its other triangle is not looked at. With
    `unitriangular` its diagonal is not either, and taken to be ones.

    >>> mo.linalg.solve_triangular(mo.asarray([[2.0, 9.0], [1.0, 4.0]]), mo.asarray([2.0, 9.0])).tolist()
    [1.0, 2.0]
    """
    return _solved("solve_triangular", x1, x2, upper=bool(upper), unit=bool(unitriangular))


def _solved(name: str, x1: Any, x2: Any, **attributes: Any) -> Tensor:
    a, b = promoted(name, x1, x2, floating=True)
    vector = len(b.shape) == 1
    b = reshape(b, (*b.shape, 1)) if vector else b
    if len(a.shape) < 2 or not b.shape or a.shape[-1] != b.shape[-2]:
        raise fail(ShapeError, name, f"shapes {a.shape} and {as_node(x2, name).shape} do not align")
    batch = broadcast(name, a.shape, b.shape, inner=2)
    operands = [Tensor.of_node(expand(n, (*batch, *n.shape[-2:]))) for n in (a, b)]
    found = _lapack(name, *operands, **attributes)[0].node
    return Tensor.of_node(reshape(found, found.shape[:-1]) if vector else found)


def lstsq(x1: Any, x2: Any, /, *, rtol: Any = None) -> LstsqResult:
    """The least-squares solution of x1 @ x = x2, by the pseudo-inverse; x2 is a vector or a stack of matrices.

    Singular values below `rtol` times the largest count as zero. Residuals are given for every rank.

    >>> line = mo.asarray([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    >>> mo.linalg.lstsq(line, mo.asarray([1.0, 3.0, 5.0])).solution.numpy().round(4)
    array([2., 1.], dtype=float32)
    """
    a, b = promoted("lstsq", x1, x2, floating=True)
    if len(a.shape) < 2 or not b.shape or a.shape[-2] != b.shape[-1 if len(b.shape) == 1 else -2]:
        raise fail(ShapeError, "lstsq", f"shapes {a.shape} and {b.shape} do not align")
    left, right = Tensor.of_node(a), Tensor.of_node(reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b)
    found = matmul(pinv(left, rtol=rtol), right)
    missed = reduce.sum(ew.square(ew.abs(ew.subtract(matmul(left, found), right))), axis=-2)
    if len(b.shape) == 1:
        found, missed = (Tensor.of_node(reshape(one.node, one.shape[:-1])) for one in (found, missed))
    return LstsqResult(found, missed, matrix_rank(left, rtol=rtol), svdvals(left))


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Tensor:
    """How many singular values exceed `rtol` times the largest one.

    >>> mo.linalg.matrix_rank(mo.asarray([[1.0, 2.0], [2.0, 4.0]])).item()
    1
    """
    values = svdvals(x)
    shape = as_node(x, "matrix_rank").shape
    if rtol is None:
        longest = size_value(larger(*shape[-2:]), values.dtype)
        rtol = ew.multiply(Tensor.of_node(longest), finfo(values.dtype).eps)
    elif isinstance(rtol, Tensor):
        rtol = Tensor.of_node(reshape(rtol.node, (*rtol.shape, 1)))
    if values.shape[-1] == 0:
        return reduce.count_nonzero(values, axis=-1)
    limit = ew.multiply(reduce.max(values, axis=-1, keepdims=True), rtol)
    return reduce.count_nonzero(ew.greater(values, limit), axis=-1)


# -- native ----------------------------------------------------------------------------------------------------------
def matrix_power(x: Any, n: int, /) -> Tensor:
    """x multiplied by itself n times, by repeated squaring; a negative n inverts first.

    >>> mo.linalg.matrix_power(mo.asarray([[1.0, 1.0], [0.0, 1.0]]), 5)
    Tensor([[1., 5.],
            [0., 1.]], dtype=float32)
    """
    node, n = as_node(x, "matrix_power"), as_integer(n, "matrix_power", "the power")
    if len(node.shape) < 2 or node.shape[-1] != node.shape[-2]:
        raise fail(ShapeError, "matrix_power", f"shape {node.shape} is not a square matrix")
    base = Tensor.of_node(node) if n >= 0 else inv(x)
    if n == 0:
        return Tensor.of_node(expand(eye(node.shape[-1], dtype=node.dtype).node, node.shape))  # type: ignore[arg-type]
    result: Tensor | None = None
    for bit in bin(abs(n))[:1:-1]:
        if bit == "1":
            result = base if result is None else matmul(result, base)
        base = matmul(base, base)
    assert result is not None
    return result


@recorded
def diagonal(x: Any, /, *, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """A diagonal of matrices, which are the last two axes or those named, as the last axis.

    >>> mo.linalg.diagonal(mo.asarray([[1, 2], [3, 4]]))
    Tensor([1, 4], dtype=int64)
    """
    if (axis1, axis2) != (-2, -1):
        x = moveaxis(x, (axis1, axis2), (-2, -1))
    node, offset = as_node(x, "diagonal"), as_integer(offset, "diagonal", "offset")
    if len(node.shape) < 2:
        raise fail(ShapeError, "diagonal", f"shape {node.shape} is not a matrix")
    *batch, rows, columns = node.shape
    first = (0, offset) if offset >= 0 else (-offset, 0)
    length = larger(smaller(rows - first[0], columns - first[1]), 0)
    flat = reshape(node, (*batch, rows * columns))
    start = first[0] * columns + first[1] if length != 0 else 0
    starts, sizes = [0] * len(batch) + [start], [*batch, length]
    return Tensor.of_node(slice_node(flat, starts, sizes, [1] * len(batch) + [columns + 1]))  # type: ignore[list-item]


@recorded
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of a diagonal.

    >>> mo.linalg.trace(mo.asarray([[1, 2], [3, 4]])).item()
    5
    """
    return reduce.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


@recorded
@rounded_once
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements.

    >>> mo.linalg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
    Tensor([0., 0., 1.], dtype=float32)
    """
    a, b = promoted("cross", x1, x2)
    axis = as_integer(axis, "cross", "axis")
    if axis >= 0 and len(a.shape) == len(b.shape):
        axis -= len(a.shape)
    rank = builtins.min(len(a.shape), len(b.shape))
    if not -rank <= axis < 0:
        raise fail(AxisError, "cross", f"axis {axis} is not among -{rank}..-1, the axes both tensors have")
    shape = broadcast("cross", a.shape, b.shape)
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        raise fail(ShapeError, "cross", f"shapes {a.shape} and {b.shape} do not have 3 elements along axis {axis}")
    a, b, number = expand(a, shape), expand(b, shape), len(shape) + axis
    parts = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        parts.append(sub(multiply(_at(a, number, j), _at(b, number, k)),
                         multiply(_at(a, number, k), _at(b, number, j))))
    return Tensor.of_node(build("concatenate", *parts, axis=number))


def _at(node: Node, axis: int, position: int) -> Node:
    starts = [position if i == axis else 0 for i in range(len(node.shape))]
    sizes = [1 if i == axis else size for i, size in enumerate(node.shape)]
    return slice_node(node, starts, sizes, [1] * len(sizes))


# -- norms -----------------------------------------------------------------------------------------------------------
def _floating(name: str, x: Any) -> Tensor:
    node = as_node(x, name)
    return Tensor.of_node(node if node.dtype.kind in "fc" else cast(node, DEFAULT_FLOAT))


@recorded
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """The norm of vectors along axes: 2 by default, any other power, infinity, or 0 for the count of non-zeros. That of
    half floats is computed in float32, which holds their powers, and rounded once.

    >>> mo.linalg.vector_norm([3.0, 4.0]).item()
    5.0
    """
    tensor = _floating("vector_norm", x)
    if tensor.dtype.itemsize == 2:
        found = vector_norm(ew.astype(tensor, float32), axis=axis, keepdims=keepdims, ord=ord)
        return ew.astype(found, tensor.dtype)
    if not isinstance(ord, Real) or math.isnan(ord):
        raise fail(ArgumentError, "vector_norm", f"ord {ord!r} is not a number", "use a power, inf or -inf; 2 is usual")
    ord = float(ord)
    axes = reduce.reduced_axes(axis, tensor.ndim, "vector_norm")
    options: dict[str, Any] = {"axis": axes, "keepdims": keepdims}
    sizes = ew.abs(tensor)
    if ord in (math.inf, -math.inf):
        if not axes:
            return sizes
        return (reduce.max if ord > 0 else reduce.min)(sizes, **options)
    if ord == 0:
        return ew.astype(reduce.count_nonzero(sizes, **options), sizes.dtype)
    if ord == 1:
        return reduce.sum(sizes, **options)
    if ord == 2:
        return Tensor.of_node(reduce.root_of_squares(reduce.sum(ew.square(sizes), **options).node))
    if ord < 0:  # a zero makes the norm 0, whose slope is taken to be 0
        nothing = ew.equal(sizes, 0)
        total = reduce.sum(ew.pow(ew.where(nothing, 1.0, sizes), ord), **options)
        return ew.where(reduce.any(nothing, **options), 0.0, ew.pow(total, 1.0 / ord))
    if ord < 1:  # the slope of the power is infinite at 0, and that of the norm taken to be 0
        nothing = ew.equal(sizes, 0)
        powers = ew.where(nothing, 0.0, ew.pow(ew.where(nothing, 1.0, sizes), ord))
    else:
        powers = ew.pow(sizes, ord)
    total = reduce.sum(powers, **options)
    none = ew.equal(total, 0)  # the slope of the root is infinite there, and that of the norm taken to be 0
    return ew.where(none, total, ew.pow(ew.where(none, 1.0, total), 1.0 / ord))


@recorded
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The norm of matrices: 'fro', 'nuc', 1, 2, infinity, or the negative of a number for the least instead.

    >>> mo.linalg.matrix_norm(mo.asarray([[3.0, 0.0], [0.0, 4.0]])).item()
    5.0
    """
    tensor = _floating("matrix_norm", x)
    if tensor.ndim < 2:
        raise fail(ShapeError, "matrix_norm", f"shape {tensor.shape} is not a matrix")
    if ord == "fro":
        return vector_norm(tensor, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        values = svdvals(tensor)
        extreme = reduce.sum if ord == "nuc" else reduce.max if ord > 0 else reduce.min
        found = extreme(values, axis=-1)
    elif ord in (1, -1, math.inf, -math.inf):
        inner = -2 if abs(ord) == 1 else -1
        sums = reduce.sum(ew.abs(tensor), axis=inner)
        found = (reduce.max if ord > 0 else reduce.min)(sums, axis=-1)
    else:
        raise fail(ArgumentError, "matrix_norm", f"ord {ord!r} is unknown",
                   "use 'fro', 'nuc', 1, 2, inf or a negative of these")
    return Tensor.of_node(reshape(found.node, (*found.shape, 1, 1))) if keepdims else found


hint_calls(globals(), __all__)
__getattr__ = module_attribute("linalg", __name__)  # a hint for names of other libraries
