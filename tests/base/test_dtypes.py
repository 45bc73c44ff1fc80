"""Promotion as the Array API standard has it, and the names by which a dtype may be called."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from morpho.base import dtypes
from morpho.base.dtypes import ALL, BY_NAME, as_dtype, bfloat16, float16, float32, promote
from morpho.base.errors import DTypeError

# The tables of the standard (2024.12), row by row; None where it leaves the pair undefined and Morpho refuses it.
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
MIXED = {
    "int8": ("int16", "int32", "int64", None),
    "int16": ("int16", "int32", "int64", None),
    "int32": ("int32", "int32", "int64", None),
    "int64": ("int64", "int64", "int64", None),
}
FLOATING = {
    ("float32", "float32"): "float32", ("float32", "float64"): "float64", ("float32", "complex64"): "complex64",
    ("float32", "complex128"): "complex128", ("float64", "float64"): "float64", ("float64", "complex64"): "complex128",
    ("float64", "complex128"): "complex128", ("complex64", "complex64"): "complex64",
    ("complex64", "complex128"): "complex128", ("complex128", "complex128"): "complex128",
}


def common(a: str, b: str) -> str | None:
    """The promoted name in either order, None where there is none."""
    try:
        found, other = promote(BY_NAME[a], BY_NAME[b]), promote(BY_NAME[b], BY_NAME[a])
    except DTypeError:
        with pytest.raises(DTypeError, match="no common dtype"):
            promote(BY_NAME[b], BY_NAME[a])
        return None
    assert found is other
    return found.name


def test_the_standards_tables() -> None:
    for names in (SIGNED, UNSIGNED):
        for i, j in itertools.product(range(4), repeat=2):
            assert common(names[i], names[j]) == names[max(i, j)]
    for signed, row in MIXED.items():
        for unsigned, expected in zip(UNSIGNED, row, strict=True):
            assert common(signed, unsigned) == expected, (signed, unsigned)
    for (a, b), expected in FLOATING.items():
        assert common(a, b) == expected
    assert common("bool", "bool") == "bool"


def test_beyond_the_standard() -> None:
    """Mixed kinds are left open there: a float keeps its width beside an integer, a bool gives way to anything."""
    for dtype in ALL:
        assert promote(dtypes.bool_, dtype) is dtype
        if dtype.kind in "iu":
            for other in ALL:
                if other.kind in "fc":
                    assert promote(dtype, other) is other
    assert promote(float16, bfloat16) is float32
    assert promote(bfloat16, float32) is float32 and promote(float16, float16) is float16
    for half in (float16, bfloat16):
        assert half.compute is float32 and common(half.name, "complex64") == "complex64"


def test_promotion_is_a_join() -> None:
    for a, b in itertools.product(ALL, repeat=2):
        try:
            both = promote(a, b)
        except DTypeError:
            continue
        assert promote(both, a) is both and promote(both, b) is both


def test_names() -> None:
    for dtype in ALL:
        assert as_dtype(dtype) is dtype and as_dtype(dtype.name) is dtype and repr(dtype) == dtype.name
        if dtype is not bfloat16:
            assert as_dtype(dtype.numpy) is dtype and as_dtype(dtype.numpy.type) is dtype
            assert dtype.itemsize == dtype.numpy.itemsize
    assert as_dtype(float) is dtypes.float64 and as_dtype(int) is dtypes.int64 and as_dtype(bool) is dtypes.bool_
    assert as_dtype("f") is float32 and as_dtype(np.dtype("<i4")) is dtypes.int32
    assert len({dtype.code for dtype in ALL}) == len(ALL)
    for wrong in ("float8", object, "datetime64[s]", None, 3, np.dtype("S3")):
        if wrong is None:
            continue
        with pytest.raises(DTypeError, match="the dtypes are"):
            as_dtype(wrong)


def test_kinds() -> None:
    kinds = {dtype.name: (dtype.is_integer, dtype.is_float, dtype.is_complex, dtype.is_numeric) for dtype in ALL}
    assert kinds["bool"] == (False, False, False, False) and kinds["uint8"] == (True, False, False, True)
    assert kinds["bfloat16"] == (False, True, False, True) and kinds["complex64"] == (False, False, True, True)
