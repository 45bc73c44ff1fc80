"""Sets: the different elements of a tensor. How many there are is data, so these realise their argument at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from morpho.base.errors import ArgumentError, fail
from morpho.tensor.autodiff.autograd import is_differentiated
from morpho.tensor.convert import asarray, borrowed
from morpho.tensor.core import Tensor
from morpho.tensor.sync import realised_array


class UniqueAll(NamedTuple):
    """What `unique_all` finds."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` finds."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` finds."""

    values: Tensor
    inverse_indices: Tensor


def _unique(name: str, x: Any) -> UniqueAll:
    """Sorted values, first positions, which value each element is, how often each occurs. Every NaN is its own."""
    tensor = x if isinstance(x, Tensor) else asarray(x)
    if tensor.dtype.is_float and is_differentiated(tensor):
        raise fail(ArgumentError, name, "it has no gradient",
                   "take x.detach() where the gradient may end, or mo.sort(x)")
    array = realised_array(tensor, name, "the number of different elements depends on data")
    values, first, inverse, counts = np.unique(
        array.reshape(-1), return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    whole = [borrowed(part.astype(np.int64)) for part in (first, inverse.reshape(array.shape), counts)]
    return UniqueAll(borrowed(values, tensor.dtype), *whole)


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
