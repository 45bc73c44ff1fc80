"""Shapes and strides against NumPy's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morpho.base.dims import Dim
from morpho.base.errors import ArgumentError, AxisError, MorphoError, ShapeError
from morpho.base.shapes import (
    as_shape,
    broadcast,
    contiguous_strides,
    is_contiguous,
    normalise_axes,
    normalise_axis,
    reshape_strides,
    resolve_reshape,
)

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def views(draw: st.DrawFn) -> np.ndarray:
    """An array seen with any strides: permuted, stepped, reversed, repeated."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    array = np.arange(math.prod(shape)).reshape(shape)
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    key = tuple(slice(None, None, draw(st.sampled_from([1, 1, 2, -1, -2]))) for _ in range(array.ndim))
    array = array[key]
    if draw(st.booleans()):
        array = np.broadcast_to(array[..., :1], array.shape)
    return array


@st.composite
def factorised(draw: st.DrawFn, total: int) -> tuple[int, ...]:
    """A shape of that many elements."""
    result = []
    while total > 1 and len(result) < 5:
        factor = draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
        result.append(factor)
        total //= factor
    return (*result, total) if total > 1 else tuple(result)


def elements(array: np.ndarray) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)


@given(views(), st.data())
def test_reshape_strides_agree_with_numpy(array: np.ndarray, data: st.DataObject) -> None:
    new = data.draw(factorised(array.size))
    found = reshape_strides(array.shape, elements(array), new)
    reshaped = array.reshape(new)
    shared = np.shares_memory(reshaped, array)
    if found is None:
        assert not shared
        return
    seen = np.lib.stride_tricks.as_strided(array, new, tuple(s * array.itemsize for s in found))
    np.testing.assert_array_equal(seen, reshaped)
    assert shared or array.size <= 1 or 0 in array.strides  # NumPy copies some repeated views that strides can show


@given(views())
def test_contiguity_agrees_with_numpy(array: np.ndarray) -> None:
    assert is_contiguous(array.shape, elements(array)) == array.flags.c_contiguous


@given(shapes)
def test_contiguous_strides(shape: tuple[int, ...]) -> None:
    strides = contiguous_strides(shape)
    assert is_contiguous(shape, strides)
    if 0 not in shape:
        assert strides == elements(np.zeros(shape))


@given(st.lists(shapes, min_size=1, max_size=4))
def test_broadcast_agrees_with_numpy(several: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*several)
    except ValueError:
        with pytest.raises(ShapeError, match="do not broadcast"):
            broadcast("add", *several)
    else:
        assert broadcast("add", *several) == expected


@given(shapes, st.lists(st.integers(-1, 4), max_size=4).map(tuple))
def test_resolve_reshape_agrees_with_numpy(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    try:
        expected = np.zeros(old).reshape(new).shape
    except ValueError:
        with pytest.raises(ShapeError):
            resolve_reshape(old, new)
    else:
        assert resolve_reshape(old, new) == expected


def test_symbolic_reshapes() -> None:
    n = Dim("n", 1, 64)
    assert resolve_reshape((n, 6), (-1,)) == (n * 6,)
    assert resolve_reshape((n, 6), (-1, 3)) == (n * 2, 3)
    assert resolve_reshape((n * 4,), (n, -1)) == (n, 4)
    assert reshape_strides((n, 6), (12, 2), (n * 6,)) == (2,)
    assert reshape_strides((n, 6), (12, 1), (n * 6,)) is None
    with pytest.raises(ShapeError):
        resolve_reshape((n, 5), (-1, 3))
    assert broadcast("add", (n, 1), (5,)) == (n, 5)
    with pytest.raises(ShapeError):
        broadcast("add", (n,), (5,))


@given(st.integers(-6, 6), st.integers(0, 5))
def test_axes(axis: int, rank: int) -> None:
    if -rank <= axis < rank:
        assert normalise_axis(axis, rank, "sum") == axis % rank
    else:
        with pytest.raises(AxisError, match=rf"axis {axis} is out of range"):
            normalise_axis(axis, rank, "sum")


def test_several_axes_and_wrong_kinds() -> None:
    assert normalise_axes(None, 3, "sum") == (0, 1, 2)
    assert normalise_axes((-1, 0), 3, "sum") == (0, 2) and normalise_axes((), 3, "sum") == ()
    with pytest.raises(AxisError, match="twice"):
        normalise_axes((0, -3), 3, "sum")
    for wrong in (1.5, "x", None):
        with pytest.raises((ArgumentError, MorphoError)):
            normalise_axis(wrong, 3, "sum")
    assert as_shape(3) == (3,) and as_shape([2, np.int64(3)]) == (2, 3) and as_shape(()) == ()
    with pytest.raises(ArgumentError, match="is not a size"):
        as_shape((2, 1.5))
