"""Picking: categories by their logits, elements by their probabilities, with and without putting them back."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dims import product
from morpho.base.dtypes import float32, int64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault, fail
from morpho.base.shapes import as_integer, as_sizes, broadcast, normalise_axis
from morpho.ops.index import require
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.functions.create import zeros
from morpho.tensor.functions.move import broadcast_to, expand_dims, moveaxis, reshape
from morpho.tensor.functions.random.basic import permutation, randint, uniform
from morpho.tensor.functions.random.continuous import gumbel
from morpho.tensor.functions.searching.search import scatter_add, searchsorted, take
from morpho.tensor.functions.searching.sorting import argsort
from morpho.tensor.namespace import finfo
from morpho.tensor.operands import as_node


def categorical(key: Any, logits: Any, /, *, axis: int = -1, shape: Any = None) -> Tensor:
    """Numbers of categories, each as likely as exp(logits) along an axis: the largest of logits and Gumbel noise.
    `shape` is that of the result, to which the other axes of logits broadcast.

    >>> mo.random.categorical(mo.random.key(0), mo.asarray([0.0, 100.0]), shape=(3,)).tolist()
    [1, 1, 1]
    """
    name = "random.categorical"
    given = Tensor.of_node(as_node(logits, name))
    if not given.dtype.is_float or not given.ndim:
        raise fail(DTypeError if given.ndim else ShapeError, name,
                   f"logits are {given.dtype}{given.shape}, not floats along an axis")
    given = moveaxis(given, normalise_axis(axis, given.ndim, name), -1)
    if given.shape[-1] == 0:
        raise fail(ShapeError, name, "there are no categories to pick from")
    sizes = given.shape[:-1] if shape is None else as_sizes(shape, name)
    if broadcast(name, sizes, given.shape[:-1]) != sizes:
        raise fail(ShapeError, name, f"logits of shape {given.shape} do not broadcast to a draw of shape {sizes}")
    full = (*sizes, given.shape[-1])
    noise = gumbel(key, full, dtype=given.dtype if given.dtype.itemsize >= 4 else float32)
    picked = reduce.argmax(noise + ew.astype(broadcast_to(given, full), noise.dtype), axis=-1)
    right = broadcast_to(ew.greater(reduce.max(given, axis=-1), -np.inf), sizes)  # not of NaN, which wins
    return Tensor.of_node(require(name, picked.node, right.node))


def _shares(name: str, p: Any, count: Any) -> Tensor:
    """Probabilities in float64 that add up to 1, as those that are given do but for the rounding of their dtype."""
    if not isinstance(p, Tensor):
        known = np.asarray(p)
        if known.size and not (known >= 0).all():
            raise fail(ValueFault, name, "a probability is negative or NaN")
        room = np.sqrt(np.finfo(known.dtype if known.dtype.kind == "f" else np.float64).eps)
        if known.size and abs(known.sum(dtype=np.float64) - 1) > room:
            raise fail(ValueFault, name, f"the probabilities sum to {known.sum(dtype=np.float64):.6g}, not to 1",
                       "divide them by their sum")
    shares = ew.astype(Tensor.of_node(as_node(p, name)), "float64")
    if shares.ndim != 1 or (count is not None and shares.shape[0] != count):
        raise fail(ShapeError, name, f"probabilities of shape {shares.shape} are not one for each of {count}")
    total = reduce.sum(shares)
    if isinstance(p, Tensor):
        room = finfo(p.dtype).eps ** 0.5 if p.dtype.is_float else 0.0
        right = ew.logical_and(reduce.all(ew.greater_equal(shares, 0)), ew.less_equal(ew.abs(total - 1), room))
        total = Tensor.of_node(require(name, total.node, right.node))
    return shares / total


def choice(key: Any, a: Any, /, shape: Any = (), *, replace: bool = True, p: Any = None, axis: int = 0) -> Tensor:
    """Elements of `a` along an axis, or of 0..a-1, in random order: evenly, or with probabilities p; without `replace`
    none comes twice.

    >>> sorted(mo.random.choice(mo.random.key(0), 4, (4,), replace=False).tolist())
    [0, 1, 2, 3]
    """
    name = "random.choice"
    pool = None if isinstance(a, int | np.integer) else Tensor.of_node(as_node(a, name))
    if pool is not None and pool.ndim == 0:
        raise fail(ShapeError, name, "a 0-dimensional tensor has no elements to pick from", "give an int, or a vector")
    count = as_integer(a, name, "a") if pool is None else pool.shape[normalise_axis(axis, pool.ndim, name)]
    sizes = as_sizes(shape, name)
    number = product(sizes)
    if isinstance(count, int) and count < 1 and number != 0:
        raise fail(ValueFault, name, f"there is nothing to pick from among {count} elements")
    if not replace and isinstance(count, int) and isinstance(number, int) and number > count:
        raise fail(ValueFault, name, f"{number} elements cannot be picked from {count} without putting them back")
    if p is None:
        whole = as_integer(count, name, "the number of elements")
        picked = randint(key, sizes, 0, whole) if replace else reshape(permutation(key, whole)[:number], sizes)
    elif replace:
        ends = reduce.cumulative_sum(_shares(name, p, count))
        places = searchsorted(ends, uniform(key, sizes, dtype="float64") * ends[-1], side="right")
        picked = ew.minimum(places, count - 1)
    else:
        noise = gumbel(key, (count,), dtype="float64") + ew.log(_shares(name, p, count))
        picked = reshape(argsort(noise, descending=True)[:number], sizes)
    return picked if pool is None else take(pool, picked, axis=axis)


def multinomial(key: Any, n: int, p: Any, /, shape: Any = ()) -> Tensor:
    """How often each category comes up in n trials with probabilities p: (*shape, len(p)), each row adding up to n.
    (PyTorch's `multinomial` picks indices: that is `choice`.)

    >>> mo.random.multinomial(mo.random.key(0), 10, [0.5, 0.5], (3,)).sum(axis=-1).tolist()
    [10, 10, 10]
    """
    name = "random.multinomial"
    trials, shares = as_integer(n, name, "n"), _shares(name, p, None)
    if trials < 0:
        raise fail(ArgumentError, name, f"{trials} trials cannot be made")
    if shares.shape[0] == 0:
        raise fail(ShapeError, name, "there are no categories")
    sizes = as_sizes(shape, name)
    ends = reduce.cumulative_sum(shares)
    places = searchsorted(ends, uniform(key, (*sizes, trials), dtype="float64") * ends[-1], side="right")
    places = ew.minimum(places, shares.shape[0] - 1)
    counts = zeros((*sizes, shares.shape[0]), dtype=int64)
    ones = broadcast_to(expand_dims(Tensor.of_node(as_node(1, name)), axis=0), places.shape)
    return scatter_add(counts, places, ones, axis=-1)
