"""NumPy's numbers among the arguments of compiled functions: inputs of their dtype where only their value matters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo

VALUES: dict[str, list[Any]] = {
    "float32": [0.1, -0.25, 1e-40, -0.0, np.inf, 1 / 3], "float64": [0.1, -0.0, 1e-310, 1 / 3, -np.inf],
    "float16": [0.1, 65504.0, -0.0, 1e-7], "int64": [3, -7, 0, 2**62, -2**63], "int32": [3, -7, 2**31 - 1, -2**31],
    "int8": [3, -128, 127], "uint8": [0, 255, 7], "uint64": [1, 2**64 - 1, 5], "bool": [True, False, True],
    "complex64": [1 + 2j, 0.1j, -0.5], "complex128": [1 + 2j, 0.1j],
}


def check(function: Callable[..., Any], x: mo.Tensor, numbers: list[Any], recompiles: int = 1) -> Any:
    """Every call has the dtype and bits of a function that was compiled for that number alone."""
    f = mo.compile(function)
    for number in [*numbers, *numbers[:1]]:
        want = mo.compile(lambda x, number=number: function(x, number))(x).numpy()
        for _ in range(2):
            found = f(x, type(number)(number)).numpy()  # another object
            assert found.dtype == want.dtype and found.tobytes() == want.tobytes(), number
    assert f.stats["recompiles"] == recompiles
    return f


@pytest.mark.parametrize("name", VALUES)
def test_every_dtype_keeps_its_own(name: str) -> None:
    x = mo.asarray(np.array([1.5, -2, 3], np.float32)) if name != "bool" else mo.asarray(np.array([True, False]))
    numbers = [np.dtype(name).type(value) for value in VALUES[name]]
    combined: Callable[..., Any] = mo.logical_xor if name == "bool" else mo.multiply
    f = check(lambda x, k: combined(x, k), x, numbers)
    assert f.stats["native_calls"] >= len(numbers)


def test_what_a_loop_over_an_array_yields() -> None:
    f, x = mo.compile(lambda x, k: mo.sin(x) * k), mo.asarray([1.0, 2.0])
    for k in np.linspace(0, 1, 20):  # float64 beside float32: as NumPy promotes
        np.testing.assert_array_equal(f(x, k).numpy(), (mo.sin(x) * k).numpy())
        assert f(x, k).dtype == mo.float64
    assert f.stats["recompiles"] == 1 and f.stats["native_calls"] >= 37


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("function", [
    lambda x, k: x * (1 - k) + k, lambda x, k: x + 2 * k * k, lambda x, k: x - (k + np.float32(0.5)),
    lambda x, k: -k * x, lambda x, k: mo.where(x > k, x, k), lambda x, k: mo.asarray(k) + x,
], ids=["one less", "square", "beside another", "negative", "where", "asarray"])
def test_arithmetic_among_numbers(function: Any) -> None:
    x = mo.asarray(np.array([0.5, -1, 2], np.float32))
    for name in ("float32", "float64", "int32", "int64"):
        check(function, x, [np.dtype(name).type(value) for value in (3, -7, 1000003, 5)])


def test_a_number_is_not_its_equal() -> None:
    """Minus zero, NaN, numbers of other kinds."""
    for first in (np.float32(0), np.float64(0)):
        f, x = mo.compile(lambda x, k: mo.copysign(x, k)), mo.ones(1)
        assert f(x, first).item() == 1 and f(x, -first).item() == -1 and f(x, first).item() == 1
    f = mo.compile(lambda x, k: x + k)
    kinds: list[Any] = [1, np.int64(1), np.float64(1), 1.0, np.float32(1), True, np.bool_(True), np.float64("nan"),
                        float("nan")]
    for number in [*kinds, *reversed(kinds)]:
        want = mo.compile(lambda x, number=number: x + number)(mo.ones(1))
        found = f(mo.ones(1), number)
        assert found.dtype == want.dtype and found.numpy().tobytes() == want.numpy().tobytes()
    before = f.recompiles
    for _ in range(3):
        f(mo.ones(1), np.float32("nan"))
    assert f.recompiles <= before + 1


def test_an_index() -> None:
    x = mo.asarray(np.arange(24.0).reshape(6, 4))
    g = mo.compile(lambda x, i: x[i, i + 1] - x[i - 1, 0])
    for i in np.arange(-3, 3):
        np.testing.assert_array_equal(g(x, i).numpy(), x.numpy()[i, i + 1] - x.numpy()[i - 1, 0])
    assert g.recompiles == 1
    with pytest.raises(IndexError):
        g(x, np.int64(6))


SHIFT = np.float32(0)
ASKED: dict[str, Callable[..., Any]] = {
    "a shape": lambda x, n: mo.sum(x[:n]), "range": lambda x, n: sum((x for _ in range(n)), x),
    "if": lambda x, n: x if n > 2 else -x, "math": lambda x, n: x * math.sqrt(n + 4),
    "numpy": lambda x, n: x * np.sqrt(n), "array": lambda x, n: x * np.array([n, 1, n, 2]),
    "a list": lambda x, n: x * [1, 2, 3, 4, 5][n], "its class": lambda x, n: x * (n if isinstance(n, np.int64) else 0),
    "its type": lambda x, n: x * (n if type(n) is np.int64 else 0), "dtype": lambda x, n: x.astype(str(n.dtype)) + n,
    "power": lambda x, n: x ** n, "item": lambda x, n: x * n.item(), "text": lambda x, n: x + len(f"{n:>4}") + n,
    "quotient": lambda x, n: x + n // 2 + n / 3, "beside": lambda x, n: x + (np.int64(2) + n),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_number_that_is_asked_for_is_a_constant(name: str) -> None:
    f, x = mo.compile(ASKED[name]), mo.asarray([1.5, 2.0, 1.0, 4.0])
    for n in np.array([1, 2, 3, 4, 3, 2, 1]):
        want = mo.compile(lambda x, n=n: ASKED[name](x, n))(x)
        found = f(x, n)
        assert found.dtype == want.dtype and found.numpy().tobytes() == want.numpy().tobytes()
    assert 1 <= f.recompiles <= 4


def test_a_returned_number_is_this_calls() -> None:
    f = mo.compile(lambda x, n: (x + n, n))
    for n in np.float32([1, 2, 3]):
        found, number = f(mo.ones(1), n)
        assert found.item() == 1 + n and number == n and type(number) is np.float32


def test_in_trees_by_name_and_beside_python_numbers() -> None:
    f = mo.compile(lambda x, options, shift=SHIFT: x * options["scale"] * options["by"][0] + shift)
    x = mo.ones(2)
    for scale, by, shift in zip(np.float32([1, 2, 3, 4, 5]), (2, 3, 4, 5, 6), np.float32([1, 2, 4, 8, 9]), strict=True):
        found = f(x, {"scale": scale, "by": [by]}, shift=shift)
        assert found.tolist() == [scale * by + shift] * 2 and found.dtype == mo.float32
    assert f.recompiles == 1 and f.native_calls > 0


def test_loops_states_and_gradients() -> None:
    total = mo.State(mo.zeros(2))

    @mo.compile
    def step(x: Any, rate: Any) -> Any:
        slope = mo.grad(lambda w: mo.sum((w * x - 1) ** 2))(total.value)
        total.value = total.value - rate * slope
        return mo.fori_loop(0, 3, lambda i, y: y - rate * y, total.value)

    x, want = mo.ones(2), np.zeros(2, "f")
    for rate in np.float32([0.5, 0.25, 0.125, 0.0625]):
        want = want - rate * 2 * (want - 1)
        np.testing.assert_allclose(step(x, rate).numpy(), want * (1 - rate) ** 3, rtol=1e-6)
        np.testing.assert_allclose(total.value.numpy(), want, rtol=1e-6)
    assert step.recompiles == 1
