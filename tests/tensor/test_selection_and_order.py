"""Partial selection, running values, searches and moves, beside NumPy: the ways that depend on sizes and strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.settings import settings

SHAPES = [((1000,), -1), ((4, 513), 1), ((257, 3), 0)]


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, kind: str) -> np.ndarray:
    values = (rng.standard_normal(shape) * (2 if kind == "ties" else 100)).astype(dtype)
    if kind == "special" and values.dtype.kind == "f":
        values[rng.random(shape) < 0.9] = np.nan
        for number in (np.inf, -np.inf, -0.0):
            values[rng.random(shape) < 0.03] = number
    elif kind == "special":
        values[...] = np.iinfo(dtype).min
    return values


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("kind", ["plain", "ties", "special"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("largest", [True, False])
def test_topk_is_the_head_of_a_stable_sort(rng: np.random.Generator, dtype: Any, kind: str, shape: tuple[int, ...],
                                           axis: int, largest: bool) -> None:
    x = mo.asarray(_drawn(rng, shape, dtype, kind))
    order = mo.argsort(x, axis=axis, descending=largest).numpy()
    for k in (1, 7):
        assert np.array_equal(mo.topk(x, k, axis=axis, largest=largest).indices.numpy(),
                              np.take(order, range(k), axis=axis))


def test_topk_of_a_long_line_sorts_few_elements() -> None:
    chosen = mo.compile(lambda x: mo.topk(x, 10).values)
    chosen(mo.zeros(1 << 16))
    assert chosen.stats["arena_bytes"] < 1 << 19


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int64])
@pytest.mark.parametrize("shape", [(5, 7), (9, 33), (3, 200), (2, 40, 70), (0, 5), (5, 0)])
def test_running_values_of_neighbouring_chains(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> None:
    values = _drawn(rng, shape, dtype, "ties")
    x = mo.asarray(values)
    for axis in range(len(shape)):
        assert np.array_equal(mo.cumulative_sum(x, axis=axis, dtype=x.dtype).numpy(),
                              np.cumsum(values, axis, dtype))
        assert np.array_equal(mo.cummax(x, axis=axis).numpy(), np.maximum.accumulate(values, axis))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("length", [0, 1, 2, 100])
def test_searches_of_many_values(rng: np.random.Generator, side: str, length: int) -> None:
    line = np.sort(rng.standard_normal(length)).astype(np.float32)
    values = rng.standard_normal(133).astype(np.float32)
    values[:3] = np.nan, np.inf, -np.inf
    for isa in ("scalar", "native"):
        with settings(isa=isa):
            assert np.array_equal(mo.searchsorted(mo.asarray(line), mo.asarray(values), side=side).numpy(),
                                  np.searchsorted(line, values, side=side))


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.int8, np.complex64])
@pytest.mark.parametrize("shape", [(33,), (3, 77), (300, 259), (2, 150, 130)])
def test_reversed_and_turned_operands(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> None:
    values = (rng.standard_normal(shape) * 5).astype(dtype)
    x = mo.asarray(values)
    for axis in (None, *range(len(shape))):
        assert np.array_equal(mo.compile(lambda x, a=axis: mo.flip(x, axis=a) + x)(x).numpy(),
                              np.flip(values, axis) + values)
    if len(shape) > 1:
        turned = np.swapaxes(values, -1, -2)
        pair = mo.compile(lambda x: (mo.matrix_transpose(x) + 1, mo.matrix_transpose(mo.flip(x, axis=-1)) * 1,
                                     mo.rot90(x)))(x)
        for own, expected in zip(pair, (turned + dtype(1), turned[..., ::-1, :], np.rot90(values)), strict=True):
            assert np.array_equal(own.numpy(), expected)


def test_a_map_of_a_turned_operand_copies_tiles_first() -> None:
    turned = mo.compile(lambda x: x.T + 1)
    turned(mo.ones((256, 256)))
    assert "copy (transposed)" in str(turned.explain())


@pytest.mark.parametrize("target", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_conversions_saturate_in_vectors_too(target: str) -> None:
    values = np.array([0, 2.5, -2.5, np.nan, np.inf, -np.inf, 2.0**31, -2.0**31, 2.0**31 - 128, 2.0**63, -2.0**63,
                       2.0**32, 300, -300, 1e30, -0.5] * 5, np.float32)
    limits = np.iinfo(target)
    expected = [0 if np.isnan(v) else limits.max if v >= limits.max else limits.min if v <= limits.min else int(v)
                for v in values.tolist()]
    assert [int(v) for v in mo.asarray(values).astype(getattr(mo, target)).numpy()] == expected


@pytest.mark.parametrize("values", [[], [3, 1, 3], list(range(2000)) * 2, [-5, 7] * 900, [1 << 40, 5] * 900])
def test_unique_by_counts_and_by_sorting(values: list[int]) -> None:
    for dtype in (np.int64, np.float32):
        array = np.asarray(values, dtype)
        expected = np.unique(array, return_index=True, return_inverse=True, return_counts=True)
        own = mo.unique(mo.asarray(array), return_index=True, return_inverse=True, return_counts=True)
        for one, other in zip(own, expected, strict=True):
            assert np.array_equal(one.numpy(), other)
        assert np.array_equal(mo.unique_counts(mo.asarray(array)).counts.numpy(), expected[3])
