"""Comparing a public value with any object is True or False, never an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import morpho as mo
from morpho.base.dtypes import ALL
from morpho.base.errors import ArgumentError, DTypeError
from morpho.base.machine import machine
from morpho.base.settings import Settings
from morpho.ir.op import NoGradient


class Refusing:
    """Whatever is asked of it is an error."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> Any:
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]


class Refused(type):
    """A class that cannot be hashed, so that no table may be asked for it."""

    __hash__ = None  # type: ignore[assignment]


class Odd(metaclass=Refused):
    name = "bfloat16"


n = mo.Dim("n", 1, 8)
VALUES = [*ALL, n, 2 * n + 1, Settings(), mo.finfo("float32"), mo.iinfo("int8"), mo.State(1.0), machine(),
          mo.compile(lambda x: x), NoGradient("none"), mo.errors.ArgumentError, mo.Tensor, mo.compile,
          mo.quantise(mo.ones((2, 64)), "q8_0")]
ODD = [
    "", ",", "(", "f4,f4", "float32, float32", "i4,", "3f", "(2,3)f4", "{'a'", "complex", "O", "V4", "\0", "\ud800",
    b"float32", None, ..., Refusing(), Odd, Refused, object(), object, type, int, float("nan"), [], [1], {}, set(), (),
    ("float32",), 1 << 80, np.dtype("O"), np.dtype("V3"), np.dtype([("a", "f4")]), np.dtype("M8[s]"), np.dtype(">f4"),
    np.float32, np.ndarray, np.float32(1), NotImplemented, Exception, ArgumentError, lambda: 0, memoryview(b"1"),
    slice(1, 2), range(3), mo, Settings, ("a", "b"), [("a", "f4")], {"names": ["a"]}]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_equality_is_a_truth(value: Any) -> None:
    for other in [*ODD, *VALUES]:
        assert (value == other) in (True, False) and (value != other) is not (value == other)
        assert (other == value) in (True, False)


def test_a_tensor_and_what_is_no_array() -> None:
    x = mo.ones(2)
    for other in ("", ",", None, ..., Refusing(), Odd, object(), {}, set(), b"x", lambda: 0):
        assert (x == other) is False and (x != other) is True


@given(st.text(max_size=12))
def test_a_dtype_and_any_text(text: str) -> None:
    for dtype in (mo.float32, mo.bool):
        assert (dtype == text) in (True, False)
    if text not in ("float32",) and mo.float32 == text:
        assert np.dtype(text) == np.float32


@pytest.mark.parametrize("text", [",", "(", "f4,f4", "{'a'"])
def test_a_text_that_is_no_dtype_is_one_clear_sentence(text: str) -> None:
    with pytest.raises(DTypeError, match="is not a dtype Morpho has"):
        mo.zeros(2, dtype=text)
