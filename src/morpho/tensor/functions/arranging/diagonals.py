"""Diagonals of matrices, matrices from diagonals, and the indices of triangles."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dims import Size
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import as_integer, as_sizes, normalise_axis
from morpho.ir.node import build
from morpho.ops.algebra import reshape as reshape_node
from morpho.tensor.convert import unplaced
from morpho.tensor.core import Tensor
from morpho.tensor.functions import linalg
from morpho.tensor.functions.move import moveaxis
from morpho.tensor.operands import as_node


def diagonal(x: Any, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """A diagonal of the matrices along two axes, as the last axis (`mo.linalg.diagonal` takes the last two).

    >>> mo.diagonal(mo.asarray([[1, 2], [3, 4]]), offset=1).tolist()
    [2]
    """
    rank = len(as_node(x, "diagonal").shape)
    first, second = (normalise_axis(axis, rank, "diagonal") for axis in (axis1, axis2))
    if first == second:
        raise fail(ArgumentError, "diagonal", f"axes {axis1} and {axis2} are the same")
    return linalg.diagonal(moveaxis(x, (first, second), (-2, -1)), offset=offset)


def diag_embed(x: Any, /, *, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Matrices of zeros with the last axis of x on a diagonal.

    >>> mo.diag_embed(mo.asarray([1, 2]), offset=1).tolist()
    [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    """
    node, shift = as_node(x, "diag_embed"), as_integer(offset, "diag_embed", "offset")
    if not node.shape:
        raise fail(ShapeError, "diag_embed", "a 0-dimensional tensor is no diagonal")
    *batch, length = node.shape
    side = length + abs(shift)
    # rows of side + 1 elements, the diagonal first: read as rows of `side`, each lies one further on
    column = reshape_node(node, (*batch, length, 1))
    rank = len(batch) + 2
    wide = build("pad", column, before=(0,) * rank, after=(*[0] * len(batch), 0, side), value=_zero(node))
    flat = reshape_node(wide, (*batch, length * (side + 1)))
    start: Size = shift if shift > 0 else -shift * side
    rest = side * side - start - length * (side + 1)
    if isinstance(rest, int) and rest < 0:  # the last row's zeros reach beyond the end
        flat = build("slice", flat, starts=(0,) * (rank - 1), sizes=(*batch, length * (side + 1) + rest),
                     steps=(1,) * (rank - 1))
        rest = 0
    if start != 0 or rest != 0:
        flat = build("pad", flat, before=(*[0] * len(batch), start), after=(*[0] * len(batch), rest), value=_zero(node))
    made = Tensor.of_node(reshape_node(flat, (*batch, side, side)))
    first, second = (normalise_axis(axis, rank, "diag_embed") for axis in (axis1, axis2))
    if first == second:
        raise fail(ArgumentError, "diag_embed", f"axes {axis1} and {axis2} are the same")
    return moveaxis(made, (rank - 2, rank - 1), (first, second))


def _zero(node: Any) -> Any:
    return {"b": False, "i": 0, "u": 0, "f": 0.0, "c": 0j}[node.dtype.kind]


def diag(x: Any, /, *, k: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix with a vector on its diagonal.

    >>> mo.diag(mo.asarray([[1, 2], [3, 4]])).tolist(), mo.diag(mo.asarray([1, 2])).tolist()
    ([1, 4], [[1, 0], [0, 2]])
    """
    rank = len(as_node(x, "diag").shape)
    if rank not in (1, 2):
        raise fail(ShapeError, "diag", f"shape {as_node(x, 'diag').shape} is neither a vector nor a matrix",
                   "mo.linalg.diagonal and mo.diag_embed take stacks")
    return diag_embed(x, offset=k) if rank == 1 else linalg.diagonal(x, offset=k)


def diagflat(x: Any, /, *, k: int = 0) -> Tensor:
    """The matrix with all elements of x on its diagonal.

    >>> mo.diagflat(mo.asarray([[1, 2]])).tolist()
    [[1, 0], [0, 2]]
    """
    node = as_node(x, "diagflat")
    return diag_embed(Tensor.of_node(reshape_node(node, (_count(node.shape),))), offset=k)


def _count(shape: Any) -> Any:
    from morpho.base.dims import product

    return product(shape)


def tril_indices(n: int, /, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the lower triangle of an n x m matrix, up to its k-th diagonal.

    >>> [part.tolist() for part in mo.tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", np.tri, n, m, k)


def triu_indices(n: int, /, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the upper triangle of an n x m matrix, from its k-th diagonal on.

    >>> [part.tolist() for part in mo.triu_indices(2)]
    [[0, 0, 1], [0, 1, 1]]
    >>> [part.tolist() for part in mo.triu_indices(3, 1)]
    [[0, 0, 1], [1, 2, 2]]
    """
    return _triangle("triu_indices", lambda rows, columns, k,
                     dtype: np.logical_not(np.tri(rows, columns, k - 1, dtype)), n, m, k)


def _triangle(name: str, mask: Any, n: Any, m: Any, k: Any) -> tuple[Tensor, Tensor]:
    rows, columns = as_sizes((n, n if m is None else m), name)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise fail(ShapeError, name, f"how many elements a triangle of {rows} x {columns} has is not known")
    found = np.nonzero(mask(rows, columns, as_integer(k, name, "k"), bool))
    return unplaced(found[0].astype(np.int64)), unplaced(found[1].astype(np.int64))


def diag_indices(n: int, /, ndim: int = 2) -> tuple[Tensor, ...]:
    """The indices of the diagonal of a tensor with `ndim` axes of size n.

    >>> [part.tolist() for part in mo.diag_indices(2)]
    [[0, 1], [0, 1]]
    """
    (size,) = as_sizes((n,), "diag_indices")
    if not isinstance(size, int):
        raise fail(ShapeError, "diag_indices", f"the indices of the dynamic size {size} are not known")
    line = unplaced(np.arange(size, dtype=np.int64))
    return (line,) * as_integer(ndim, "diag_indices", "ndim")
