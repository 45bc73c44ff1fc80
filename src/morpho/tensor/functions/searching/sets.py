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


def _unique(name: str, x: Any) -> UniqueAll:
    """Sorted values, first positions, which value each element is, how often each occurs. Every NaN is its own."""
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
    values, first, inverse, counts = np.unique(
        array.reshape(-1), return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    whole = [on(borrowed(part.astype(np.int64)), tensor.device)
             for part in (first, inverse.reshape(array.shape), counts)]
    return UniqueAll(on(borrowed(values, tensor.dtype), tensor.device), *whole)


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
    return _unique("unique_all", x)


def unique_counts(x: Any, /) -> UniqueCounts:
    """The different elements in order, and how often each occurs.

    >>> values, counts = mo.unique_counts([3, 1, 3])
    >>> values, counts
    (Tensor([1, 3], dtype=int64), Tensor([1, 2], dtype=int64))
    """
    found = _unique("unique_counts", x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The different elements in order, and for every element of x which of them it is.

    >>> mo.unique_inverse([3, 1, 3]).inverse_indices
    Tensor([1, 0, 1], dtype=int64)
    """
    found = _unique("unique_inverse", x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any, /) -> Tensor:
    """The different elements in order.

    >>> mo.unique_values(mo.asarray([3, 1, 3])).tolist()
    [1, 3]
    """
    return _unique("unique_values", x).values
