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


ONE, THREE = np.int64(1), np.int32(3)
COUNTED: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "one_hot": (lambda: mo.one_hot(mo.asarray([0, 2]), THREE), lambda: np.eye(3)[[0, 2]]),
    "eye": (lambda: mo.eye(THREE, k=ONE), lambda: np.eye(3, k=1)),
    "linspace": (lambda: mo.linspace(np.float32(0), ONE, THREE), lambda: np.linspace(0, 1, 3)),
    "arange": (lambda: mo.arange(ONE, THREE, ONE), lambda: np.arange(1, 3)),
    "tril": (lambda: mo.tril(mo.ones((3, 3)), k=ONE), lambda: np.tril(np.ones((3, 3)), k=1)),
    "triu": (lambda: mo.triu(mo.ones((3, 3)), k=ONE), lambda: np.triu(np.ones((3, 3)), k=1)),
    "fft": (lambda: mo.fft.fft(mo.ones(4), n=THREE), lambda: np.fft.fft(np.ones(3))),
    "fftshift": (lambda: mo.fft.fftshift(mo.arange(4), axes=np.int64(0)), lambda: np.array([2, 3, 0, 1])),
    "pad": (lambda: mo.pad(mo.ones(2), ((ONE, THREE),)), lambda: np.pad(np.ones(2), (1, 3))),
    "pad by one number": (lambda: mo.pad(mo.ones(2), ONE), lambda: np.pad(np.ones(2), 1)),
    "pad by an array": (lambda: mo.pad(mo.ones(2), np.array([[1, 3]])), lambda: np.pad(np.ones(2), (1, 3))),
    "moveaxis": (lambda: mo.moveaxis(mo.ones((2, 3)), ONE, np.int64(0)), lambda: np.ones((3, 2))),
    "tensordot": (lambda: mo.tensordot(mo.ones((2, 3)), mo.ones((3, 2)), axes=ONE), lambda: np.full((2, 2), 3)),
    "tensordot of pairs": (lambda: mo.tensordot(mo.ones((2, 3)), mo.ones((3, 2)), axes=(ONE, np.int64(0))),
                           lambda: np.full((2, 2), 3)),
    "diagonal": (lambda: mo.linalg.diagonal(mo.ones((3, 3)), offset=ONE), lambda: np.ones(2)),
    "repeat": (lambda: mo.repeat(mo.arange(2), THREE), lambda: np.repeat(np.arange(2), 3)),
    "permutation": (lambda: mo.sort(mo.random.permutation(mo.random.key(0), THREE)), lambda: np.arange(3)),
    "a truth value as a size": (lambda: mo.zeros((True, THREE)), lambda: np.zeros((1, 3))),
}


@pytest.mark.parametrize("name", COUNTED)
def test_integers_of_numpy_count(name: str) -> None:
    call, expected = COUNTED[name]
    found = call()
    assert all(type(size) is int for size in found.shape)
    np.testing.assert_allclose(found.numpy(), expected())


def test_a_power_of_numpy_keeps_the_dtype() -> None:
    assert mo.linalg.vector_norm(mo.ones(3), ord=THREE).dtype is mo.float32
