"""NumPy's scalars are arrays without axes, of their own dtype, as in NumPy 2; Python's numbers take what they meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo

WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "times": lambda x, s: x * s, "from the left": lambda x, s: s * x, "power": lambda x, s: x**s,
    "where": lambda x, s: mo.where(x > 2, x, s), "maximum": mo.maximum, "clip": lambda x, s: mo.clip(x, s, s + s)}


@pytest.mark.parametrize("name", WAYS)
def test_a_double_keeps_its_digits(name: str) -> None:
    x = np.array([0.5, 1.0, 3.0])
    for number in (np.float64(0.1), np.float64(1e-60)):
        expected = {"where": lambda x, s: np.where(x > 2, x, s), "maximum": np.maximum,
                    "clip": lambda x, s: np.clip(x, s, s + s)}.get(name, WAYS[name])(x, number)
        lazily = WAYS[name](mo.asarray(x), number)
        compiled = mo.compile(WAYS[name])(mo.asarray(x), number)
        assert lazily.dtype is compiled.dtype is mo.float64
        np.testing.assert_allclose(lazily.numpy(), expected, rtol=1e-15)
        assert lazily.numpy().tobytes() == compiled.numpy().tobytes()


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.complex64, np.complex128, np.int8, np.int64,
                                  np.bool_])
def test_dtypes_are_those_of_numpy(kind: Any) -> None:
    number = kind(1)
    assert mo.asarray(number).dtype.name == np.dtype(kind).name
    assert mo.full((2,), number).dtype.name == np.dtype(kind).name
    single = np.ones(3, np.float32)
    if np.dtype(kind).kind in "fc":
        assert (mo.asarray(single) * number).dtype.name == (single * number).dtype.name


def test_python_numbers_take_what_they_meet() -> None:
    for dtype in (mo.float32, mo.float64):
        assert (mo.ones(3, dtype=dtype) * 0.1).dtype is dtype
    assert mo.asarray(0.1).dtype is mo.float32


def test_written_into_a_tensor() -> None:
    x = mo.zeros(2, dtype=mo.float64)
    x[0] = np.float64(0.1)
    assert x.numpy()[0] == 0.1 and mo.full((2,), np.float64(0.1), dtype=mo.float64).numpy()[1] == 0.1


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"])
def test_arange_has_the_dtype_of_its_bounds(dtype: str) -> None:
    """Tensors and NumPy's scalars give theirs; Python's numbers take it, unless they have a fraction."""
    three = mo.asarray(3, dtype=dtype)
    numbers = [three] if dtype == "bfloat16" else [three, three.numpy(), three.numpy()[()]]
    for number in numbers:
        for found in (mo.arange(number), mo.arange(0, number), mo.arange(0, 3, number // 3)):
            assert found.dtype is getattr(mo, dtype) and found.tolist() == [0, 1, 2]
        halves = mo.arange(0, number, 0.5)
        assert halves.dtype is (three.dtype if three.dtype.is_float else mo.float32) and halves.shape == (6,)
        assert mo.arange(number, dtype="int16").dtype is mo.int16


def test_arange_of_large_tensors_is_exact() -> None:
    start = 2**53 + 1
    assert mo.arange(mo.asarray(start), np.int64(start + 3)).tolist() == [start, start + 1, start + 2]
    assert mo.arange(True).dtype is mo.int64
    with pytest.raises(ValueError, match=r"\[arange\] a tensor of shape \(1,\) is not a single number"):
        mo.arange(mo.asarray([3]))
