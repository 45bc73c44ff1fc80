"""Several threads at once: the same compiled function, the same expression, tensors that change meanwhile."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import numpy as np
import pytest
from callers import together

import morpho as mo

SMALL, LARGE = 300, 1_500_000


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("out", [False, True])
def test_the_same_compiled_function(size: int, out: bool) -> None:
    f = mo.compile(lambda x, k: mo.sqrt(x * x + 1) * k)
    base = np.linspace(0, 1, size, dtype=np.float32)
    k = mo.asarray(np.array(2, np.float32))
    expected = f(mo.asarray(base), k).numpy()

    def work(number: int) -> None:
        x = mo.asarray(base)
        target = mo.empty(size) if out else None
        for _ in range(4 if size == LARGE else 60):
            found = f(x, k, out=target)
            assert found is target or not out
            np.testing.assert_array_equal(found.numpy()[:: max(1, size // 1000)], expected[:: max(1, size // 1000)])

    together(work)
    assert not out or f.native_calls > 0


def test_a_function_with_an_arena_is_safe() -> None:
    """Temporaries of two calls in flight never share memory."""
    f = mo.compile(lambda x: mo.softmax(x @ x.T, axis=0).sum(axis=1))
    arrays = [np.random.default_rng(n).random((260, 64), np.float32) for n in range(8)]
    expected = [f(mo.asarray(a)).numpy() for a in arrays]

    def work(number: int) -> None:
        x, target = mo.asarray(arrays[number]), mo.empty(260)
        for _ in range(12):
            np.testing.assert_array_equal(f(x).numpy(), expected[number])
            f(x, out=target)
            np.testing.assert_array_equal(target.numpy(copy=True), expected[number])

    together(work)


def test_different_signatures_of_one_function() -> None:
    f = mo.compile(lambda x: x * 2 + 1)

    def work(number: int) -> None:
        size = 10 + number % 4 if number % 2 else 400_000 + number
        x, target = mo.asarray(np.full(size, number, np.float32)), mo.empty(size)
        for _ in range(30):
            f(x, out=target)
            assert target.numpy(copy=True).min() == target.numpy(copy=True).max() == 2 * number + 1

    together(work)


def test_compiling_in_threads() -> None:
    """Eight threads trace and compile eight functions, and all of them one more."""
    shared = mo.compile(lambda x: mo.tanh(x) * 3)

    def work(number: int) -> None:
        own = mo.compile(lambda x: mo.exp(x) * (number + 1.5))
        x = mo.asarray(np.ones(50, np.float32))
        np.testing.assert_allclose(own(x).numpy(), np.e * (number + 1.5), rtol=1e-5)
        np.testing.assert_allclose(shared(x).numpy(), np.tanh(1) * 3, rtol=1e-5)

    together(work)
    assert shared.recompiles == 0 and shared.stats["specialisations"] == 1


def test_inputs_dropped_while_it_runs() -> None:
    f = mo.compile(lambda x: mo.exp(x) + 1)
    expected = f(mo.asarray(np.full(LARGE, 0.5, np.float32))).numpy()[0]

    def work(number: int) -> None:
        for _ in range(4):
            found = f(mo.asarray(np.full(LARGE, 0.5, np.float32), copy=True))  # nothing else holds the argument
            gc.collect(0)
            assert found.numpy().min() == found.numpy().max() == expected

    together(work, 4)


def test_an_input_given_another_value_while_it_runs() -> None:
    """`x[i] = v` in another thread lets the old memory go; a call in flight still reads it."""
    f = mo.compile(lambda x: mo.sqrt(mo.exp(x) + mo.log(x)))
    size = 4_000_000
    ones = np.ones(size, np.float32)
    x = mo.asarray(ones, copy=True)
    target = mo.empty(size)
    expected = f(x).numpy()[0]
    f(x, out=target)
    for out in (None, target):
        for _ in range(4):
            x = mo.asarray(ones, copy=True)
            ready, found = threading.Event(), []

            def call(x: mo.Tensor = x, out: mo.Tensor | None = out, ready: threading.Event = ready,
                     found: list = found) -> None:
                ready.set()
                found.append(f(x, out=out).numpy(copy=True))

            thread = threading.Thread(target=call)
            thread.start()
            ready.wait()
            x[0] = 1.0
            junk = [mo.asarray(np.full(size, 7, np.float32), copy=True) for _ in range(2)]
            thread.join()
            del junk
            assert found[0].min() == found[0].max() == expected


@pytest.mark.parametrize("key", ["slice", "indices", "masked", "no_grad", "parameter"])
def test_threads_assign_to_parts_of_one_tensor(key: str) -> None:
    """Each part holds what its own thread assigned last: no assignment takes back that of another thread."""
    x = mo.nn.Buffer(mo.zeros(800)) if key == "parameter" else mo.zeros(800)
    x[0] = 0.0

    def work(number: int) -> None:
        part = slice(number * 100, number * 100 + 100)
        mask = mo.asarray(np.arange(800) // 100 == number)
        for value in range(1, 26):
            if key in ("slice", "parameter"):
                x[part] = float(value)
            elif key == "indices":
                x[mo.arange(number * 100, number * 100 + 100)] = float(value)
            elif key == "masked":
                x[mask] = float(value)
            else:
                with mo.no_grad():
                    x[part] += 1.0

    together(work)
    assert x.numpy().tolist() == [25.0] * 800


def test_reading_while_another_thread_assigns() -> None:
    """A reader sees one of the values the tensor had, whole, whatever it asks for."""
    x = mo.zeros(64).realise()
    total = mo.compile(lambda x: x.sum())
    readers: list[Callable[[], float]] = [
        lambda: x.numpy().max() - x.numpy().min() * 0, lambda: float(x.buffer() is None), lambda: max(x.tolist()),
        lambda: (x + 1).max().item() - 1, lambda: total(x).item() / 64, lambda: float(x.strides[0] - 1),
        lambda: float(len(repr(x)) * 0), lambda: float(mo.from_dlpack(x).max().item())]

    def work(number: int) -> None:
        if number == 0:
            for value in range(400):
                x[:] = float(value)
                x[3:5] = float(value)
                if value % 3:
                    x.realise()
            return
        for _ in range(60):
            for read in readers:
                found = read()
                assert found == int(found) and 0 <= found < 400, found

    together(work, 4, switch_s=1e-6)


def test_the_same_lazy_tensor() -> None:
    base = mo.asarray(np.arange(2000, dtype=np.float32))
    for _ in range(20):
        shared = mo.gelu(base * 2) + base
        expected = (mo.gelu(base * 2) + base).numpy(copy=True)

        def work(number: int, shared: mo.Tensor = shared, expected: np.ndarray = expected) -> None:
            assert shared.shape == (2000,) and shared.dtype is mo.float32
            user = shared + number
            np.testing.assert_array_equal(shared.numpy(), expected)
            np.testing.assert_array_equal(user.numpy(), expected + np.float32(number))

        together(work)


def test_different_lazy_expressions() -> None:
    base = np.arange(500, dtype=np.float32)

    def work(number: int) -> None:
        for i in range(30):
            x = mo.asarray(base) * (number + 1)
            y = x + i if i % 2 else mo.concat([x, x])[:500] + i
            np.testing.assert_array_equal(y.numpy(), base * (number + 1) + i)

    together(work)


def test_settings_belong_to_a_thread() -> None:
    seen: dict[int, int] = {}

    def work(number: int) -> None:
        from morpho.backends.driver import threads

        with mo.settings(threads=number + 1, level=number % 4):
            seen[number] = threads.wanted_threads()
            assert (mo.ones(10) * 2).sum().item() == 20

    together(work, 4)
    assert seen == {number: number + 1 for number in range(4)}
