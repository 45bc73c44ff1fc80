"""What ops are tried on: special values of every dtype, and random ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from running import stored

from morpho.base.dtypes import ALL, DType, bfloat16, bool_, complex64, float16, float32, float64

Array = Any


def of_kinds(kinds: str) -> tuple[DType, ...]:
    """Every dtype of these kinds."""
    return tuple(dtype for dtype in ALL if dtype.kind in kinds)


def special_values(dtype: DType) -> Array:
    """Zeros, units, limits of the format and their neighbours, NaN and infinities; as numbers."""
    if dtype is bool_:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        width = 8 * dtype.itemsize
        values = [0, 1, 2, 3, 7, width - 1, width, info.max, info.max - 1, info.min, info.min + 1, info.max // 2]
        if dtype.kind == "i":
            values += [-1, -2, -3, -7, -width]
        return np.array(values, dtype.numpy)
    if dtype.is_complex:
        part = special_values(float32 if dtype is complex64 else float64)[:8]
        return (part[:, None] + 1j * part[None, :]).reshape(-1).astype(dtype.numpy)
    mantissa, least, most = {float16: (10, -14, 16), bfloat16: (7, -126, 128), float32: (23, -126, 128),
                             float64: (52, -1022, 1024)}[dtype]
    eps = 2.0**-mantissa
    largest = (2 - eps) * 2.0**(most - 1)
    tiny, subnormal = 2.0**least, 2.0**(least - mantissa)
    positive = [0.0, 1.0, 0.5, 2.0, 3.0, 1 + eps, 1 - eps / 2, 1.5, 2.5, 10.0, 88.0, largest, largest * (1 - eps),
                tiny, tiny * (1 - eps), subnormal, 3 * subnormal, eps, 100.5, np.inf]
    values = np.array([*positive, *[-x for x in positive], np.nan])
    return values.astype(np.float32 if dtype is bfloat16 else dtype.numpy)


def random_values(rng: np.random.Generator, dtype: DType, count: int) -> Array:
    """Everyday numbers and random bit patterns, half each; as numbers."""
    if dtype is bool_:
        return rng.random(count) < 0.5
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        wide = rng.integers(info.min, info.max, count, dtype.numpy, endpoint=True)
        small = rng.integers(max(info.min, -9), 10, count).astype(dtype.numpy)
        return np.where(rng.random(count) < 0.5, wide, small)
    if dtype.is_complex:
        return (rng.normal(0, 3, count) + 1j * rng.normal(0, 3, count)).astype(dtype.numpy)
    everyday = rng.normal(0, 3, count)
    bits = rng.integers(0, 1 << 16 if dtype.itemsize == 2 else 1 << 32, count, dtype=np.uint64)
    if dtype is bfloat16:
        patterns = (bits << np.uint64(16)).astype(np.uint32).view(np.float32)
    elif dtype is float64:
        patterns = (bits << np.uint64(32) | bits).view(np.float64)
    else:
        patterns = bits.astype(f"u{dtype.itemsize}").view(dtype.numpy)
    work = np.float32 if dtype is bfloat16 else dtype.numpy
    with np.errstate(all="ignore"):
        return np.where(rng.random(count) < 0.5, everyday.astype(work), patterns)


def operands(rng: np.random.Generator, kinds: Sequence[DType], count: int) -> list[Array]:
    """Inputs of an elementwise op in stored form: every combination of special values, then random ones."""
    special = [special_values(dtype) for dtype in kinds]
    if len(kinds) == 1:
        columns = special
    else:
        most = 41 if len(kinds) == 2 else 9
        chosen = [v if len(v) <= most else np.concatenate([v[:most - 1], v[-1:]]) for v in special]
        columns = [np.array(c, v.dtype) for c, v in zip(zip(*itertools.product(*chosen)), chosen)]
    result = []
    for dtype, column in zip(kinds, columns):
        extra = random_values(rng, dtype, count)
        result.append(stored(np.concatenate([column, extra]), dtype))
    return result
