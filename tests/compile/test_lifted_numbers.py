"""Python numbers among the arguments of compiled functions: inputs where only their value matters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo

FLOATS = [0.1, -0.25, 1e-40, 3e38, -0.0, 1 / 3, 65519.9999]
WHOLE = [3, -7, 0, 100, 2**31 - 1, 16777217]


def check(function: Callable[..., Any], x: mo.Tensor, numbers: list[Any], recompiles: int = 1) -> None:
    """Every call has the bits of a function that was compiled for that number alone."""
    f = mo.compile(function)
    for number in numbers:
        alone = mo.compile(lambda x, number=number: function(x, number))
        want, found = alone(x).numpy(), f(x, number).numpy()
        assert found.dtype == want.dtype and found.tobytes() == want.tobytes(), number
        assert f(x, number).numpy().tobytes() == want.tobytes()
    assert f.recompiles == recompiles


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_floats_are_rounded_as_constants(dtype: str) -> None:
    x = mo.asarray(np.linspace(-2, 3, 7)).astype(dtype)
    times = 6 if dtype == "float16" else 1  # a constant there: kernels round a float64 twice
    check(lambda x, k: (x * k).astype("float64"), x, FLOATS, times)
    check(lambda x, k: (x + (2 * k - 0.5)).astype("float64"), x, FLOATS, times)
    check(lambda x, k: (k - x).astype("float64"), x, WHOLE)


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_integers(dtype: str) -> None:
    x = mo.asarray(np.arange(5)).astype(dtype)
    check(lambda x, k: x * k - 1, x, WHOLE)
    check(lambda x, k: mo.where(x > k, x, k), x, WHOLE)
    check(lambda x, k: x // (k + 5), x, WHOLE[:4], 3 if dtype == "int32" else 1)  # a sum may not fit int32


def test_integers_of_small_dtypes_are_within_their_range() -> None:
    f = mo.compile(lambda x, k: x + k)
    x = mo.asarray(np.arange(4, dtype=np.int8))
    for k in (1, 2, 3, -100):
        assert f(x, k).tolist() == [k, k + 1, k + 2, k + 3]
    assert f.recompiles == 1
    with pytest.raises(mo.errors.DTypeError, match="out of range"):
        f(x, 300)


def test_an_index() -> None:
    """Python ints as indices of a loop do not compile anew, and are checked when the function runs."""
    x = mo.asarray(np.arange(24.0).reshape(6, 4))
    g = mo.compile(lambda x, i: x[i, i + 1])
    for i in range(-3, 3):
        np.testing.assert_array_equal(g(x, i).numpy(), x.numpy()[i, i + 1])
    h = mo.compile(lambda x, i: x[i, 1:] - x[i - 1, 1:])
    for i in range(-3, 5):
        np.testing.assert_array_equal(h(x, i).numpy(), x.numpy()[i, 1:] - x.numpy()[i - 1, 1:])
    assert g.recompiles == h.recompiles == 1 and h.native_calls > 4
    with pytest.raises(IndexError):
        h(x, 6)


def test_assigning_at_an_index() -> None:
    @mo.compile
    def f(x: Any, i: int) -> Any:
        y = x + 0
        y[i] = 7.0
        return y

    x = mo.zeros(5)
    for i in range(5):
        assert f(x, i).tolist() == [7.0 if place == i else 0.0 for place in range(5)]
    assert f.recompiles == 1


ASKED: dict[str, Callable[..., Any]] = {
    "a shape": lambda x, n: mo.sum(x[:n]), "range": lambda x, n: sum((x for _ in range(n)), x),
    "if": lambda x, n: x if n > 2 else -x, "math": lambda x, n: x * math.sqrt(n + 4),
    "a list": lambda x, n: x * [1, 2, 3, 4, 5][n], "the type": lambda x, n: x * (n if type(n) is int else 0),
    "a dict": lambda x, n: x * {0: 5, 1: 4, 2: 3, 3: 2}.get(n, 1), "pow": lambda x, n: x ** n,
    "text": lambda x, n: x + len(f"{n:>4}") + n, "a result": lambda x, n: {"n": n, "x": x}["x"] + n // 2,
}


@pytest.mark.parametrize("name", ASKED)
def test_a_number_that_is_asked_for_is_a_constant(name: str) -> None:
    f, x = mo.compile(ASKED[name]), mo.asarray([1.5, 2.0, -1.0, 4.0])
    for n in (1, 2, 3, 4, 3, 2, 1):
        np.testing.assert_array_equal(f(x, n).numpy(), ASKED[name](x, n).numpy())
    assert f.recompiles >= 1


def test_a_returned_number_is_this_calls() -> None:
    f = mo.compile(lambda x, n: (x + n, n))
    for n in (1, 2, 3):
        found, number = f(mo.ones(1), n)
        assert found.item() == 1 + n and number == n and type(number) is int


def test_one_of_two_is_lifted() -> None:
    """What is asked for makes programs; the other number none."""
    f = mo.compile(lambda x, n, rate: mo.sum(x[:n]) * rate)
    x = mo.ones(8)
    for n in (2, 3):
        for rate in (0.5, 0.25, 0.125, 2.0):
            assert f(x, n, rate).item() == n * rate
    assert f.recompiles == 3  # of each n the constant, and the rate as an input


def test_numbers_in_trees_and_by_name() -> None:
    f = mo.compile(lambda x, options, shift=0.0: x * options["scale"] + shift)
    x = mo.ones(2)
    for scale, shift in ((1.0, 0.5), (2.0, 0.5), (3.0, 0.5), (3.0, 0.25), (4.0, 0.125)):
        assert f(x, {"scale": scale}, shift=shift).tolist() == [scale + shift] * 2
    assert f.recompiles == 3 and f.native_calls > 0  # scale, then both


def test_a_number_given_to_a_loop() -> None:
    f = mo.compile(lambda x, dt: mo.fori_loop(0, 10, lambda i, x: x - dt * x, x))
    x = mo.asarray([1.0, 2.0])
    for dt in (0.1, 0.2, 0.3, 0.4):
        want = mo.compile(lambda x, dt=dt: mo.fori_loop(0, 10, lambda i, x: x - dt * x, x))(x)
        assert f(x, dt).numpy().tobytes() == want.numpy().tobytes()
    assert f.recompiles == 1


def test_states_captured_tensors_and_gradients() -> None:
    total, weight = mo.State(mo.zeros(2)), mo.asarray([1.0, 2.0])

    @mo.compile
    def step(x: Any, rate: float) -> Any:
        slope = mo.grad(lambda w: mo.sum((w * x) ** 2))(total.value)
        total.value = total.value - rate * (slope + weight)
        return total.value

    x, want = mo.ones(2), np.zeros(2, "f")
    for rate in (0.5, 0.25, 0.125, 0.0625):
        want = want - np.float32(rate) * (2 * want + np.array([1, 2], "f"))
        np.testing.assert_allclose(step(x, rate).numpy(), want, rtol=1e-6)
    assert step.recompiles == 1


def test_errors_are_those_of_the_function() -> None:
    def f(x: Any, n: int) -> Any:
        if type(n) is not int:
            raise TypeError("n is no int")
        return x + n

    g = mo.compile(f)
    for n in (1, 2, 3):
        assert g(mo.ones(1), n).item() == 1 + n
    with pytest.raises(mo.errors.DTypeError):
        mo.compile(lambda x, k: x + k)(mo.asarray(np.zeros(2, np.uint8)), -1)
