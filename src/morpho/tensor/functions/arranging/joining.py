"""Tensors joined side by side, with axes put in where they are missing."""

from __future__ import annotations

from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.tensor.core import Tensor
from morpho.tensor.functions.move import concat, expand_dims, reshape
from morpho.tensor.operands import as_node
from morpho.tensor.recorded import recorded


def atleast_1d(*arrays: Any) -> Any:
    """Tensors with an axis at least; of several a tuple.

    >>> mo.atleast_1d(3.0).shape
    (1,)
    """
    return _each("atleast_1d", arrays, lambda x: x if x.ndim else reshape(x, (1,)))


def atleast_2d(*arrays: Any) -> Any:
    """Tensors with two axes at least, a vector being a row; of several a tuple.

    >>> mo.atleast_2d(mo.arange(3)).shape
    (1, 3)
    """
    return _each("atleast_2d", arrays, _rows)


def atleast_3d(*arrays: Any) -> Any:
    """Tensors with three axes at least: a vector of n is (1, n, 1), a matrix gets a last axis; of several a tuple.

    >>> mo.atleast_3d(mo.arange(3)).shape, mo.atleast_3d(mo.ones((2, 4))).shape
    ((1, 3, 1), (2, 4, 1))
    """
    return _each("atleast_3d", arrays, _planes)


@recorded
def hstack(arrays: Any, /) -> Tensor:
    """Tensors joined along the second axis, vectors along their only one.

    >>> mo.hstack([mo.asarray([1, 2]), mo.asarray([3])]).tolist()
    [1, 2, 3]
    """
    parts = [atleast_1d(part) for part in _several("hstack", arrays)]
    return concat(parts, axis=0 if parts[0].ndim == 1 else 1)


@recorded
def vstack(arrays: Any, /) -> Tensor:
    """Tensors joined along the first axis, vectors as rows.

    >>> mo.vstack([mo.asarray([1, 2]), mo.asarray([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return concat([_rows(part) for part in _several("vstack", arrays)], axis=0)


@recorded
def dstack(arrays: Any, /) -> Tensor:
    """Tensors joined along the third axis; vectors and matrices get one.

    >>> mo.dstack([mo.asarray([1, 2]), mo.asarray([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """
    return concat([_planes(part) for part in _several("dstack", arrays)], axis=2)


@recorded
def column_stack(arrays: Any, /) -> Tensor:
    """Vectors as columns of a matrix, matrices beside each other.

    >>> mo.column_stack([mo.asarray([1, 2]), mo.asarray([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    parts = [atleast_1d(part) for part in _several("column_stack", arrays)]
    return concat([expand_dims(part, axis=1) if part.ndim == 1 else part for part in parts], axis=1)


def _rows(x: Tensor) -> Tensor:
    return x if x.ndim > 1 else reshape(x, (1, -1))


def _planes(x: Tensor) -> Tensor:
    return x if x.ndim > 2 else expand_dims(_rows(x), axis=2)


def _tensor(name: str, x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor.of_node(as_node(x, name))


def _each(name: str, arrays: tuple[Any, ...], change: Any) -> Any:
    found = tuple(change(_tensor(name, x)) for x in arrays)
    return found[0] if len(found) == 1 else found


def _several(name: str, arrays: Any) -> list[Tensor]:
    if not hasattr(arrays, "__iter__") or getattr(arrays, "shape", None) == ():
        raise fail(ArgumentError, name, f"{type(arrays).__name__} is not a sequence of tensors",
                   f"write {name}([a, b])")
    found = [_tensor(name, x) for x in arrays]
    if not found:
        raise fail(ArgumentError, name, "there is nothing to join")
    return found
