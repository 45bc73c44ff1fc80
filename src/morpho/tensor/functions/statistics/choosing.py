"""The largest few, the middle in its place, membership in sets."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import as_integer, normalise_axis
from morpho.ops.algebra import reshape
from morpho.tensor.convert import borrowed
from morpho.tensor.core import Tensor
from morpho.tensor.device import on
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.functions.arranging.axes import ravel
from morpho.tensor.functions.create import arange
from morpho.tensor.functions.move import concat, moveaxis, pad
from morpho.tensor.functions.move import reshape as shaped
from morpho.tensor.functions.reduce import truth
from morpho.tensor.functions.searching.search import nonzero, searchsorted, take, take_along_axis
from morpho.tensor.functions.searching.selection import compacted, is_compacted, is_data, selected
from morpho.tensor.functions.searching.sets import unique_parts
from morpho.tensor.functions.searching.sorting import argsort, sort
from morpho.tensor.operands import as_node, promoted, promoted_arrays
from morpho.tensor.sync import realised_array


class TopK(NamedTuple):
    """The k largest elements, and where they stand."""

    values: Tensor
    indices: Tensor


def topk(x: Any, k: int, /, *, axis: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """The k largest elements along an axis (or smallest), in order, and their indices; of equal ones the first. NaN is
    largest.

    >>> values, indices = mo.topk([3.0, 9.0, 5.0], 2)
    >>> values.tolist(), indices.tolist()
    ([9.0, 5.0], [1, 2])
    """
    tensor, count = Tensor.of_node(as_node(x, "topk")), as_integer(k, "topk", "k")
    if not tensor.ndim and axis in (0, -1):
        values, places = topk(tensor[None], count, largest=largest)
        return TopK(values[0], places[0]) if count == 1 else TopK(values, places)
    number = normalise_axis(axis, tensor.ndim, "topk")
    size = tensor.shape[number]
    if count < 0 or (isinstance(size, int) and count > size):
        raise fail(ArgumentError, "topk", f"there are no {count} elements along an axis of size {size}")
    order = moveaxis(_first_places(moveaxis(tensor, number, -1), count, largest), -1, number)
    return TopK(take_along_axis(tensor, order, axis=number), order)


def _first_places(lines: Tensor, count: int, largest: bool) -> Tensor:
    """Where the first `count` elements of lines stand when they are sorted.

    Lines are cut into blocks: the first elements of a line lie in the `count` blocks that themselves come first by
    their first elements, so that only those are sorted. Of equal blocks the first goes first, as of equal elements.
    """
    size = lines.shape[-1]
    block = _block(size, count) if isinstance(size, int) and lines.dtype.kind in "iuf" else 0
    if not block:
        return argsort(lines, axis=-1, descending=largest)[..., :count]
    blocks, is_float, values = -(-size // block), lines.dtype.is_float, lines
    if blocks * block > size:  # what fills the last block comes behind everything
        limits = None if is_float else np.iinfo(lines.dtype.numpy)
        behind = (-math.inf if largest else math.nan) if limits is None else limits.min if largest else limits.max
        values = pad(values, [(0, 0)] * (lines.ndim - 1) + [(0, blocks * block - size)], value=behind)
    values = shaped(values, (*lines.shape[:-1], blocks, block))
    if largest or not is_float:
        first = reduce.max(values, axis=-1) if largest else reduce.min(values, axis=-1)
    else:
        nan = ew.isnan(values)
        first = ew.where(reduce.all(nan, axis=-1), math.nan, reduce.min(ew.where(nan, math.inf, values), axis=-1))
    chosen = sort(argsort(first, axis=-1, descending=largest)[..., :count], axis=-1)
    numbers = chosen[..., None] * block + arange(block)
    flat = (*lines.shape[:-1], count * block)
    candidates = shaped(take_along_axis(values, chosen[..., None], axis=-2), flat)
    order = argsort(candidates, axis=-1, descending=largest)[..., :count]
    return take_along_axis(shaped(numbers, flat), order, axis=-1)


def _block(size: int, count: int) -> int:
    """Elements of a block, so that as few as possible are sorted; 0 where blocks do not pay."""
    if count == 0:
        return 0
    block = 1 << max(2, round(math.log2(max(size / count, 1)) / 2))
    return block if -(-size // block) + count * block <= size // 2 and -(-size // block) >= count else 0


def partition(x: Any, kth: Any, /, *, axis: int = -1) -> Tensor:
    """x with its kth smallest element in its place along an axis, smaller ones before it and larger ones behind; here
    all are in order.

    >>> mo.partition([3.0, 1.0, 2.0], 1).tolist()
    [1.0, 2.0, 3.0]
    """
    _check_places("partition", x, kth, axis)
    return sort(x, axis=axis)


def argpartition(x: Any, kth: Any, /, *, axis: int = -1) -> Tensor:
    """The indices of `partition`.

    >>> mo.argpartition([3.0, 1.0, 2.0], 1).tolist()
    [1, 2, 0]
    """
    _check_places("argpartition", x, kth, axis)
    return argsort(x, axis=axis)


def _check_places(name: str, x: Any, kth: Any, axis: Any) -> None:
    shape = as_node(x, name).shape
    size = shape[normalise_axis(axis, len(shape), name)]
    for place in np.ravel(np.asarray(kth)):
        number = as_integer(place, name, "kth")
        if isinstance(size, int) and not -size <= number < size:
            raise fail(ArgumentError, name, f"there is no element {number} along an axis of size {size}")


def isin(x: Any, values: Any, /, *, invert: bool = False) -> Tensor:
    """Where x is one of `values` (with `invert`, where it is none).

    >>> mo.isin([1, 2, 5], [2, 5]).tolist()
    [False, True, True]
    """
    elements, found = (Tensor.of_node(node) for node in promoted_arrays("isin", x, values))
    if elements.dtype.is_complex:
        hit = ew.equal(elements[..., None], ravel(found)).any(axis=-1)
    elif found.size == 0:
        hit = ew.not_equal(elements, elements) & False
    else:
        if elements.dtype.kind == "b":
            elements, found = ew.astype(elements, "uint8"), ew.astype(found, "uint8")
        line = sort(ravel(found))
        place = ew.minimum(searchsorted(line, elements), line.shape[0] - 1)
        hit = ew.equal(take(line, place, axis=0), elements)
    return ew.logical_not(hit) if invert else hit


def unique(x: Any, /, *, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The different elements in order; with first positions, inverse indices and counts as asked for, as a tuple in
    this order. Realises x at once: how many there are is data.

    >>> values, counts = mo.unique([3, 1, 3], return_counts=True)
    >>> values.tolist(), counts.tolist()
    ([1, 3], [1, 2])
    """
    wanted = {"first": return_index, "inverse": return_inverse}
    found = unique_parts("unique", x, frozenset(part for part, is_asked in wanted.items() if is_asked))
    asked = [part for part, wanted in ((found.indices, return_index), (found.inverse_indices, return_inverse),
                                       (found.counts, return_counts)) if wanted]
    return (found.values, *asked) if asked else found.values


def unique_consecutive(x: Any, /, *, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The elements of a vector (of x read as one) that differ from the one before; with inverse indices and counts as
    asked for. Realises x at once.

    >>> mo.unique_consecutive([1, 1, 2, 1]).tolist()
    [1, 2, 1]
    """
    tensor = Tensor.of_node(as_node(x, "unique_consecutive"))
    array = realised_array(tensor, "unique_consecutive", "the number of different elements depends on data")
    flat = array.reshape(-1)
    new = np.concatenate([np.ones(min(flat.size, 1), bool), flat[1:] != flat[:-1]])
    starts = np.flatnonzero(new)
    parts = [borrowed(flat[starts].copy(), tensor.dtype)]
    if return_inverse:
        parts.append(borrowed((np.cumsum(new) - 1).astype(np.int64).reshape(array.shape)))
    if return_counts:
        parts.append(borrowed(np.diff(np.append(starts, flat.size)).astype(np.int64)))
    parts = [on(part, tensor.device) for part in parts]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _values(name: str, x: Tensor) -> Tensor:
    return unique_parts(name, x, frozenset()).values


def union1d(x1: Any, x2: Any, /) -> Tensor:
    """The different elements of both, in order.

    >>> mo.union1d([1, 3], [3, 2]).tolist()
    [1, 2, 3]
    """
    a, b = promoted("union1d", x1, x2)
    return _values("union1d", concat([ravel(Tensor.of_node(a)), ravel(Tensor.of_node(b))]))


def intersect1d(x1: Any, x2: Any, /) -> Tensor:
    """The different elements that both have, in order.

    >>> mo.intersect1d([1, 3, 2], [3, 2, 5]).tolist()
    [2, 3]
    """
    a, b = (_values("intersect1d", ravel(Tensor.of_node(node))) for node in promoted_arrays("intersect1d", x1, x2))
    return a[isin(a, b)]


def setdiff1d(x1: Any, x2: Any, /) -> Tensor:
    """The different elements of x1 that x2 does not have, in order.

    >>> mo.setdiff1d([1, 3, 2], [3]).tolist()
    [1, 2]
    """
    first = _values("setdiff1d", ravel(Tensor.of_node(promoted("setdiff1d", x1)[0])))
    return first[isin(first, x2, invert=True)]


def argwhere(x: Any, /) -> Tensor:
    """The positions of the elements that are not zero, one per row. Realises x at once.

    >>> mo.argwhere([[0, 1], [2, 0]]).tolist()
    [[0, 1], [1, 0]]
    """
    tensor = Tensor.of_node(as_node(x, "argwhere"))
    if is_data(tensor) or is_compacted(tensor):
        parts = [Tensor.of_node(reshape(part.node, (*part.shape, 1))) for part in nonzero(tensor)]
        return concat(parts, axis=1)
    array = realised_array(tensor, "argwhere", "the number of elements that are not zero depends on data")
    return on(borrowed(np.argwhere(array).astype(np.int64)), tensor.device)


def flatnonzero(x: Any, /) -> Tensor:
    """The positions of the elements that are not zero in x read as a vector. Realises x at once.

    >>> mo.flatnonzero([0, 1, 2]).tolist()
    [1, 2]
    """
    tensor = Tensor.of_node(as_node(x, "flatnonzero"))
    if is_data(tensor):
        return selected(Tensor.of_node(truth(tensor.node)), "flatnonzero")
    if is_compacted(tensor):
        return compacted(Tensor.of_node(truth(tensor.node)))
    array = realised_array(tensor, "flatnonzero", "the number of elements that are not zero depends on data")
    return on(borrowed(np.flatnonzero(array).astype(np.int64)), tensor.device)


def unravel_index(indices: Any, shape: Any, /) -> tuple[Tensor, ...]:
    """Positions in a tensor of this shape from those in it read as a vector.

    >>> [part.tolist() for part in mo.unravel_index([5, 0], (2, 3))]
    [[1, 0], [2, 0]]
    """
    from morpho.base.shapes import as_sizes
    from morpho.tensor.functions.searching.search import checked_indices

    rest = Tensor.of_node(checked_indices("unravel_index", indices))
    sizes = as_sizes(shape, "unravel_index")
    if not sizes:
        raise fail(ShapeError, "unravel_index", "a shape without axes has no positions")
    found = []
    for size in reversed(sizes[1:]):
        found.append(ew.remainder(rest, size))
        rest = ew.floor_divide(rest, size)
    return (rest, *reversed(found))
