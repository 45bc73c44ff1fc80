"""nextafter of half floats: every one of the 65536 values, on every instruction set and by the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.machine import available_isas, machine
from morpho.runtime.memory.buffer import borrow
from morpho.tensor.core import Tensor

Array = Any
EVERY = np.arange(1 << 16, dtype=np.uint16)
INFINITY = {mo.float16: 0x7C00, mo.bfloat16: 0x7F80}
WAYS = [{"isa": name} for name in available_isas(machine())] + [{"device": "reference"}]


def neighbours(dtype: mo.DType, x: Array, y: Array) -> Array:
    """By order: numbered from the lowest up, both zeros 0, a neighbour is one more or one less. A zero keeps the sign
    it came from; NaN is all ones."""
    places, others = (np.where(bits < 1 << 15, bits, (1 << 15) - bits) for bits in (x.astype(int), y.astype(int)))
    moved = places + np.sign(others - places)
    found = np.where(moved >= 0, moved, (1 << 15) - moved)
    found = np.where(places == others, y, np.where(moved == 0, x & (1 << 15), found))
    nan = np.maximum(np.abs(places), np.abs(others)) > INFINITY[dtype]
    return np.where(nan, 0xFFFF, found).astype(np.uint16)


def tensor(bits: Array, dtype: mo.DType) -> Tensor:
    return Tensor.of_buffer(borrow(bits.view(np.float16) if dtype is mo.float16 else bits, dtype))


def bits_of(result: Tensor) -> Array:
    """What a tensor holds, every NaN as all ones."""
    array = np.array(result.numpy())  # of a bfloat16 in float32
    bits = array.view(np.uint16) if array.itemsize == 2 else (array.view(np.uint32) >> 16).astype(np.uint16)
    return np.where(bits & 0x7FFF > INFINITY[result.dtype], 0xFFFF, bits).astype(np.uint16)


def targets(dtype: mo.DType) -> list[Array]:
    """Up, down, to zeros of both signs, to NaN, to itself, and to any other number."""
    infinity = INFINITY[dtype]
    whole = [np.full_like(EVERY, bits) for bits in (infinity, infinity | 0x8000, 0, 0x8000, infinity + 1)]
    return [*whole, EVERY, np.random.default_rng(3).permutation(EVERY)]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: next(iter(way.values())))
@pytest.mark.parametrize("dtype", [mo.float16, mo.bfloat16], ids=str)
def test_every_half_float_has_its_neighbour(dtype: mo.DType, way: dict[str, Any]) -> None:
    with mo.settings(**way):
        for target in targets(dtype):
            found = bits_of(mo.nextafter(tensor(EVERY, dtype), tensor(target, dtype)))
            assert np.array_equal(found, neighbours(dtype, EVERY, target))


@pytest.mark.parametrize("towards", [np.inf, -np.inf, 0.0])
def test_float16_is_numpy_s(towards: float) -> None:
    x = EVERY.view(np.float16)
    with np.errstate(all="ignore"):
        want = np.nextafter(x, np.float16(towards))
    found = mo.nextafter(mo.asarray(x), mo.asarray(np.float16(towards))).numpy()
    moved = ~np.isnan(want) & (x != towards)  # of equal zeros NumPy gives the first, but the second for float32
    assert np.array_equal(found[moved].view(np.uint16), want[moved].view(np.uint16))
    assert np.array_equal(np.isnan(found), np.isnan(want)) and (found == towards)[x == towards].all()


@pytest.mark.parametrize("dtype", [mo.float16, mo.bfloat16, mo.float32, mo.float64], ids=str)
def test_constants_step_in_their_own_dtype(dtype: mo.DType) -> None:
    one = mo.full((), 1.0, dtype=dtype)
    step = float(mo.nextafter(one, mo.full((), 2.0, dtype=dtype)).astype(mo.float64)) - 1
    assert step == mo.finfo(dtype).eps
