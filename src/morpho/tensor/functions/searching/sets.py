"""Sets: the different elements of a tensor. How many there are is data: these realise their argument at once, or, in a
compiled function, give tensors of a dynamic size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from morpho.base.dims import bounds, product
from morpho.base.dtypes import bool_, int64
from morpho.base.errors import ArgumentError, CompileError, fail
from morpho.ir.node import build
from morpho.ops.algebra import add, cast, constant, constant_like, expand, reshape
from morpho.tensor.autodiff.autograd import is_differentiated
from morpho.tensor.convert import asarray, borrowed
from morpho.tensor.core import Tensor
from morpho.tensor.device import on
from morpho.tensor.functions.move import slice_node
from morpho.tensor.functions.searching.selection import is_compacted, is_data, selected
from morpho.tensor.functions.searching.sorting import argsort, sort
from morpho.tensor.sync import realised_array


class UniqueAll(NamedTuple):
    """Result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


ALL = frozenset(("first", "inverse"))
LEAST_COUNTED = 1024  # elements from which a table of the range is made


def unique_parts(name: str, x: Any, parts: frozenset[str] = ALL) -> UniqueAll:
    """Sorted values, first positions, which value each element is, how often each occurs; of first positions and
    inverse only those of `parts`. Every NaN is its own."""
    tensor = x if isinstance(x, Tensor) else asarray(x)
    if tensor.dtype.is_float and is_differentiated(tensor):
        raise fail(ArgumentError, name, "it has no gradient",
                   "take x.detach() where the gradient may end, or mo.sort(x)")
    if is_data(tensor):
        return _unique_later(name, tensor)
    if is_compacted(tensor):
        from morpho.tensor.functions.searching.compaction import unique_on_device

        return UniqueAll(*unique_on_device(tensor))
    array = realised_array(tensor, name, "the number of different elements depends on data")
    values, first, inverse, counts = _counted(array.reshape(-1), parts) or _ordered(array.reshape(-1), tensor, parts)
    whole = [on(borrowed(part.astype(np.int64, copy=False)), tensor.device)
             for part in (first, inverse.reshape(array.shape) if "inverse" in parts else inverse, counts)]
    return UniqueAll(on(borrowed(values, tensor.dtype), tensor.device), *whole)


def _counted(line: np.ndarray, parts: frozenset[str]) -> tuple[np.ndarray, ...] | None:
    """Values, first positions, inverse and counts of integers that lie in a small range, by a count of each number of
    the range; None for others. Parts that are not asked for are empty."""
    if line.dtype.kind not in "iu" or line.size < LEAST_COUNTED:
        return None
    low, high = int(line.min()), int(line.max())
    if high - low >= line.size or high >= 1 << 62 or low <= -(1 << 62):
        return None
    shifted = line.astype(np.int64) - low
    counts = np.bincount(shifted, minlength=high - low + 1)
    present = np.flatnonzero(counts)
    first = inverse = np.empty(0, np.int64)
    if "first" in parts:
        places = np.empty(high - low + 1, np.int64)
        places[shifted[::-1]] = np.arange(line.size - 1, -1, -1)  # the last assignment stays
        first = places[present]
    if "inverse" in parts:
        ranks = np.empty(high - low + 1, np.int64)
        ranks[present] = np.arange(present.size)
        inverse = ranks[shifted]
    return (present + low).astype(line.dtype), first, inverse, counts[present]


def _ordered(line: np.ndarray, tensor: Tensor, parts: frozenset[str]) -> tuple[np.ndarray, ...]:
    """The same from the sorted line: what begins a run of equal elements."""
    nothing = np.empty(0, np.int64)
    if not line.size or line.dtype.kind not in "iuf":
        values, first, inverse, counts = np.unique(
            line, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
        return values, first, inverse, counts
    source = borrowed(line, tensor.dtype)
    order = argsort(source).numpy() if parts & {"first", "inverse"} else nothing
    ordered = line[order] if order.size else sort(source).numpy()
    begins = np.empty(line.size, bool)
    begins[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    starts = np.flatnonzero(begins)
    inverse = nothing
    if "inverse" in parts:
        inverse = np.empty(line.size, np.int64)
        inverse[order] = np.cumsum(begins) - 1
    first = order[starts] if "first" in parts else nothing
    return ordered[starts], first, inverse, np.diff(np.append(starts, line.size))


def _unique_later(name: str, tensor: Tensor) -> UniqueAll:
    """The same in a function being compiled: what begins a run of equal ones in the sorted order."""
    line = reshape(tensor.node, (product(tensor.shape),))
    if line.shape[0] == 0:
        nothing = expand(constant(0, int64), (0,))
        return UniqueAll(*[Tensor.of_node(part) for part in (line, nothing, reshape(nothing, tensor.shape), nothing)])
    how = {"axis": 0, "descending": False, "stable": True}
    order = build("argsort", line, **how)
    ordered = build("gather", line, order, axis=0)
    count = line.shape[0]
    if bounds(count)[0] <= 0:
        raise fail(CompileError, name, f"a size of {count} may be 0 here", "give its mo.Dim a lower bound of 1")
    behind = slice_node(ordered, (1,), (count - 1,), (1,))
    before = slice_node(ordered, (0,), (count - 1,), (1,))
    first = expand(constant(True, bool_), (1,))
    begins = build("concatenate", first, build("not_equal", behind, before), axis=0) if count != 1 else first
    places = selected(Tensor.of_node(begins), name).node
    size = places.shape[0]
    which = add(build("cumulative_sum", cast(begins, int64), axis=0), constant_like(order, -1))
    inverse = build("scatter", expand(constant(0, int64), (count,)), order, which, axis=0, mode="set")
    ends = build("scatter", expand(constant(0, int64), (count + 1,)), which,
                 add(build("iota", shape=(count,), axis=0, dtype=int64), constant_like(order, 1)), axis=0, mode="max")
    numbers = build("iota", shape=(size,), axis=0, dtype=int64)
    counts = build("subtract", build("gather", ends, numbers, axis=0), places)
    parts = (build("gather", ordered, places, axis=0), build("gather", order, places, axis=0),
             reshape(inverse, tensor.shape), counts)
    return UniqueAll(*[Tensor.of_node(part) for part in parts])


def unique_all(x: Any, /) -> UniqueAll:
    """The different elements in order, with first positions, inverse indices and counts.

    >>> mo.unique_all([3, 1, 3]).counts
    Tensor([1, 2], dtype=int64)
    """
    return unique_parts("unique_all", x)


def unique_counts(x: Any, /) -> UniqueCounts:
    """The different elements in order, and how often each occurs.

    >>> values, counts = mo.unique_counts([3, 1, 3])
    >>> values, counts
    (Tensor([1, 3], dtype=int64), Tensor([1, 2], dtype=int64))
    """
    found = unique_parts("unique_counts", x, frozenset())
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The different elements in order, and for every element of x which of them it is.

    >>> mo.unique_inverse([3, 1, 3]).inverse_indices
    Tensor([1, 0, 1], dtype=int64)
    """
    found = unique_parts("unique_inverse", x, frozenset({"inverse"}))
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any, /) -> Tensor:
    """The different elements in order.

    >>> mo.unique_values(mo.asarray([3, 1, 3])).tolist()
    [1, 3]
    """
    return unique_parts("unique_values", x, frozenset()).values
