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


IMAGES, KERNELS = np.ones((1, 4, 6, 6), np.float32), np.ones((4, 4, 3, 3), np.float32)
ROWS = np.eye(4, dtype=np.float32)
AS_ARGUMENTS: dict[str, Callable[[Callable[[Any], Any], Callable[[Any], Any]], Any]] = {
    "attention": lambda i, f: mo.attention(ROWS, ROWS, ROWS, window=i(2), scale=f(0.5)),
    "attention, a whole scale": lambda i, f: mo.attention(ROWS, ROWS, ROWS, causal=True, scale=i(2), offset=i(1)),
    "conv2d": lambda i, f: mo.conv2d(IMAGES, KERNELS, stride=i(2), padding=i(1), dilation=i(1), groups=i(1)),
    "conv_transpose2d": lambda i, f: mo.conv_transpose2d(IMAGES, KERNELS, stride=i(2), groups=i(1)),
    "max_pool2d": lambda i, f: mo.max_pool2d(IMAGES, i(2), stride=i(2), padding=i(1)),
    "tensordot": lambda i, f: mo.tensordot(ROWS, ROWS, axes=i(1)),
    "tensordot of pairs": lambda i, f: mo.tensordot(ROWS, ROWS, axes=(i(1), i(0))),
    "moveaxis": lambda i, f: mo.moveaxis(IMAGES, i(1), i(0)),
    "pad": lambda i, f: mo.pad(ROWS, i(1)),
    "repeat": lambda i, f: mo.repeat(ROWS, i(2), axis=i(0)),
    "eye": lambda i, f: mo.eye(i(37), k=i(1)),
    "arange": lambda i, f: mo.arange(i(2), i(7), i(2)),
    "linspace": lambda i, f: mo.linspace(f(0), f(1), i(31)),
    "one_hot": lambda i, f: mo.one_hot(mo.asarray([1]), i(29)),
    "diagonal": lambda i, f: mo.linalg.diagonal(mo.ones((23, 29)), offset=i(2)),
    "fft": lambda i, f: mo.fft.fft(ROWS, n=i(3), axis=i(0)),
    "fftshift": lambda i, f: mo.fft.fftshift(ROWS, axes=i(0)),
    "permutation": lambda i, f: mo.random.permutation(mo.random.key(i(0)), i(19)),
    "grad": lambda i, f: mo.grad(lambda a, b: mo.sum(a * b * b), argnums=i(1))(mo.ones(3), mo.full(3, 2.0)),
    "checkpoint_sequential": lambda i, f: mo.checkpoint_sequential([mo.exp, mo.sin], i(2), mo.ones(3)),
    "dynamic": lambda i, f: mo.compile(lambda x: x + 1, dynamic={"x": {i(0): mo.Dim("n", i(1), i(8))}})(mo.ones(3)),
    "memory_budget": lambda i, f: mo.compile(lambda x: x + 1, memory_budget=i(1 << 20))(mo.ones(3)),
    "groups of a layer": lambda i, f: mo.nn.Conv2d(i(4), i(2), i(3), groups=i(2))(IMAGES) * 0,
    "map": lambda i, f: mo.asarray(mo.tasks.map(abs, [-1, 2], i(1))),
    "scheduler": lambda i, f: mo.asarray(mo.tasks.Scheduler(i(2)).submit(int).result(f(60))),
}


@pytest.mark.parametrize("name", AS_ARGUMENTS)
def test_numbers_of_numpy_are_taken_as_arguments(name: str) -> None:
    """NumPy's first: its numbers equal Python's, so a node with them would be found again by the other call."""
    found = AS_ARGUMENTS[name](np.int64, np.float32)
    expected = AS_ARGUMENTS[name](int, float)
    assert found.dtype is expected.dtype and all(type(size) is int for size in found.shape)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("wrong", [True, 2.5, "2", np.float32(2)])
def test_what_is_no_whole_number_is_still_refused(wrong: Any) -> None:
    for call in (lambda: mo.attention(ROWS, ROWS, ROWS, window=wrong), lambda: mo.conv2d(IMAGES, KERNELS, groups=wrong),
                 lambda: mo.tasks.Scheduler(wrong), lambda: mo.Dim("n", 1, wrong)):
        with pytest.raises(mo.errors.ArgumentError, match="is not a"):
            call()


def test_a_limit_of_numpy_leaves_the_dtype_of_gradients() -> None:
    parameter = mo.nn.Parameter(mo.ones(3))
    mo.sum(parameter * 2).backward()
    for limit in (np.float32(1), np.float64(1)):
        mo.optim.clip_grad_value(parameter, limit)
        mo.optim.clip_grad_norm(parameter, limit)
    assert parameter.grad.dtype is mo.float32


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


def test_arange_keeps_within_the_dtype_of_its_bounds() -> None:
    for call in (lambda: mo.arange(mo.asarray(0, dtype="int8"), 200), lambda: mo.arange(np.uint8(250), 260),
                 lambda: mo.arange(np.float16(65000), 70000, 1000)):
        with pytest.raises(ValueError, match=r"\[arange\] numbers from .* do not fit"):
            call()


def test_arange_of_large_tensors_is_exact() -> None:
    start = 2**53 + 1
    assert mo.arange(mo.asarray(start), np.int64(start + 3)).tolist() == [start, start + 1, start + 2]
    assert mo.arange(True).dtype is mo.int64
    with pytest.raises(ValueError, match=r"\[arange\] a tensor of shape \(1,\) is not a single number"):
        mo.arange(mo.asarray([3]))
