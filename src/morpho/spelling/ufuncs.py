"""What NumPy's ufuncs have beside being called: `np.add.reduce`, `accumulate`, `outer`, `at`, `reduceat`.

The functions of `mo` stay functions; `morpho/__init__.py` puts these five on those listed in `UFUNCS`, and they load
this file when they are called.

>>> mo.add.reduce([1, 2, 3]).item(), mo.maximum.accumulate([1, 3, 2]).tolist(), mo.multiply.outer([1, 2], [3, 4]).shape
(6, [1, 3, 3], (2, 2))
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import normalise_axes
from morpho.spelling.wide import put_out_of

REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all",
              "logical_or": "any", "fmax": "nanmax", "fmin": "nanmin"}
RUNNING = {"add": "cumulative_sum", "multiply": "cumulative_prod", "maximum": "cummax", "minimum": "cummin"}
IDENTITY: dict[str, Any] = {
    "add": 0, "multiply": 1, "logical_and": True, "logical_or": False, "logical_xor": False, "bitwise_or": 0,
    "bitwise_xor": 0, "bitwise_and": -1, "logaddexp": -float("inf"), "logaddexp2": -float("inf"), "hypot": 0, "gcd": 0}
AT = {"add": "add", "subtract": "add", "multiply": "multiply", "divide": "divide", "maximum": "max", "minimum": "min"}


def reduce(name: str, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
           initial: Any = None, where: Any = None) -> Any:
    """The function put between the elements along an axis; with `axis=None` between all."""
    x = mo.asarray(array, dtype=dtype)
    if axis is None:
        axes = tuple(range(x.ndim))
    else:
        axes = normalise_axes(tuple(axis) if isinstance(axis, tuple | list) else (axis,), x.ndim, f"{name}.reduce")
    if x.ndim == 0:
        return x
    identity = initial if initial is not None else IDENTITY.get(name)
    if where is not None and where is not True:
        if identity is None:
            raise fail(ArgumentError, f"{name}.reduce", "where= needs initial=, the value of no elements")
        x = mo.where(mo.asarray(where), x, mo.asarray(identity, dtype=None if name.startswith("logical") else x.dtype))
    own = REDUCTIONS.get(name)
    if own is not None and (own not in ("nanmax", "nanmin", "max", "min") or initial is None):
        value = getattr(mo, own)(x, axis=axes, keepdims=keepdims)
        if initial is not None:
            value = getattr(mo, name)(value, initial)
    else:
        value = x
        for one in sorted(axes, reverse=True):
            value = _folded(name, value, one)
            value = mo.expand_dims(value, one) if keepdims else value
        if initial is not None:
            value = getattr(mo, name)(initial, value)
    return value if out is None else put_out_of(out, value)


def _folded(name: str, x: mo.Tensor, axis: int) -> mo.Tensor:
    count = x.shape[axis]
    if count == 0:
        if name not in IDENTITY:
            raise fail(ShapeError, f"{name}.reduce", "there are no elements, and no value for none", "give initial=")
        shape = (*x.shape[:axis], *x.shape[axis + 1:])
        return mo.full(shape, IDENTITY[name], dtype=mo.bool if name.startswith("logical") else x.dtype)
    rows = mo.moveaxis(x, axis, 0)
    function = getattr(mo, name)
    if count <= 8:
        value = rows[0]
        for number in range(1, count):
            value = function(value, rows[number])
        return value
    first = function(rows[0], rows[1])  # in the dtype of a result, which a loop keeps

    def step(number: Any, value: Any) -> Any:
        return function(value, mo.take(rows, number, axis=0)).astype(first.dtype)

    return mo.fori_loop(2, count, step, first)


def accumulate(name: str, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    """All the values on the way of `reduce`."""
    x = mo.asarray(array, dtype=dtype)
    if x.ndim == 0:
        raise fail(ShapeError, f"{name}.accumulate", "a single number has no axis")
    if name in RUNNING:
        value = getattr(mo, RUNNING[name])(x, axis=axis)
        return value if out is None else put_out_of(out, value)
    rows = mo.moveaxis(x, axis, 0)
    function = getattr(mo, name)
    if x.shape[axis] < 2:
        value = x
    else:
        first = function(rows[0], rows[1])

        def step(carry: Any, row: Any) -> Any:
            new = function(carry, row).astype(first.dtype)
            return new, new

        last = mo.scan(step, first, rows[2:])[1] if x.shape[axis] > 2 else None
        parts = [rows[:1].astype(first.dtype), first[None], *([last] if last is not None else [])]
        value = mo.moveaxis(mo.concat(parts, axis=0), 0, axis)
    return value if out is None else put_out_of(out, value)


def outer(name: str, A: Any, B: Any, **options: Any) -> Any:
    """The function of every element of A with every element of B, of the shapes of both joined."""
    a, b = mo.asarray(A), mo.asarray(B)
    return getattr(mo, name)(mo.reshape(a, (*a.shape, *[1] * b.ndim)), b, **options)


def at(name: str, a: Any, indices: Any, b: Any = None) -> None:
    """Assign to elements of `a` what the function gives of them and b; an element that is named twice changes twice."""
    if not isinstance(a, mo.Tensor):
        raise fail(ArgumentError, f"{name}.at", f"a {type(a).__name__} is not a tensor", "make one with mo.asarray")
    key = tuple(_index(one) for one in indices) if isinstance(indices, tuple) else _index(indices)
    if b is None:
        a[key] = getattr(mo, name)(a[key])
        return
    if name in AT:
        value = getattr(a.at[key], AT[name])(-_like(b, a) if name == "subtract" else _like(b, a))
        a[...] = value.astype(a.dtype)
        return
    places = mo.reshape(mo.arange(a.size), a.shape)[key]
    flat, function = mo.ravel(a), getattr(mo, name)
    values = mo.ravel(mo.broadcast_to(mo.asarray(b), places.shape))

    def step(number: Any, state: Any) -> Any:
        place = mo.take(mo.ravel(places), number)
        return state.at[place].set(function(mo.take(state, place), mo.take(values, number)).astype(state.dtype))

    a[...] = mo.reshape(mo.fori_loop(0, int(places.size), step, flat), a.shape)


def _index(one: Any) -> Any:
    return mo.asarray(one) if isinstance(one, list) else one


def _like(b: Any, a: mo.Tensor) -> Any:
    return b if isinstance(b, int | float | bool) else mo.asarray(b).astype(a.dtype)


def reduceat(name: str, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    """`reduce` of the slices between indices, which are read now; of an index that does not rise, the one element."""
    x = mo.asarray(array, dtype=dtype)
    places = [int(one) for one in np.asarray(indices.numpy() if isinstance(indices, mo.Tensor) else indices).ravel()]
    count = x.shape[axis]
    if any(not 0 <= place < count for place in places):
        raise fail(mo.errors.IndexFault, f"{name}.reduceat", f"an index of {places} is outside of 0..{count - 1}")
    rows = mo.moveaxis(x, axis, 0)
    ends = [*places[1:], count]
    parts = [reduce(name, rows[start:end]) if end > start else rows[start]
             for start, end in zip(places, ends, strict=True)]
    value = mo.moveaxis(mo.stack(parts), 0, axis)
    return value if out is None else put_out_of(out, value)


METHODS: dict[str, Callable[..., Any]] = {"reduce": reduce, "accumulate": accumulate, "outer": outer, "at": at,
                                          "reduceat": reduceat}


def method(kind: str, name: str) -> Callable[..., Any]:
    return functools.partial(METHODS[kind], name)
