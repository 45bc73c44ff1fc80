"""Defects that a review found, each as a test."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import morpho as mo


def test_a_warm_function_inside_a_trace_is_traced() -> None:
    """Whether the inner function was called before does not change what the outer one reads."""
    w = mo.asarray(np.arange(4.0, dtype=np.float32), copy=True)
    inner = mo.compile(lambda t: t * 10)
    for _ in range(3):
        inner(w)
    outer = mo.compile(lambda x: x + inner(w))
    a = mo.asarray(np.arange(4.0, dtype=np.float32))
    outer(a)
    w[0] = 5
    np.testing.assert_array_equal(outer(a).numpy(), [50, 11, 22, 33])


def test_a_writer_beside_calls_through_python() -> None:
    """Another thread gives a tensor other elements while a function with a captured tensor reads it."""
    x, w = mo.asarray(np.zeros(4096, np.float32), copy=True), mo.asarray(np.ones(4096, np.float32))
    f = mo.compile(lambda a: a + w)
    f(x)
    stop, wrong = threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            x[0] = 7.0
            x.realise()
            mo.pool.trim()

    def call() -> None:
        for _ in range(200):
            found = f(x).numpy()
            if not (found[1:] == 1).all() or found[0] not in (1.0, 8.0):
                wrong.append(found[:3])

    writer = threading.Thread(target=write)
    readers = [threading.Thread(target=call) for _ in range(2)]
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    writer.join()
    assert wrong == []


def test_a_product_with_an_unknown_number_of_rows() -> None:
    f = mo.compile(lambda a, b: a @ b, dynamic={"a": {0: mo.Dim("m", 1, 1000)}})
    b = np.random.default_rng(0).random((7, 5), np.float32)
    for m in (1, 3, 4, 5, 64):
        a = np.random.default_rng(m).random((m, 7), np.float32)
        np.testing.assert_array_equal(f(a, b).numpy(), (mo.asarray(a) @ mo.asarray(b)).numpy())


def test_an_unbounded_softmax_needs_scratch_for_its_own_size_only() -> None:
    f = mo.compile(lambda x: mo.softmax(x, axis=-1), dynamic={"x": {1: mo.Dim("n")}})
    x = np.random.default_rng(0).random((3, 7), np.float32)
    np.testing.assert_array_equal(f(x).numpy(), mo.softmax(mo.asarray(x)).numpy())


def test_arenas_of_earlier_sizes_are_given_back() -> None:
    f = mo.compile(lambda x: mo.cumulative_sum(mo.sort(x * 2) + 1, axis=0))
    before = mo.pool.stats()["live_bytes"]
    f(mo.ones(200_000))
    one = mo.pool.stats()["live_bytes"] - before  # every thread has scratch in it
    for n in range(200_001, 200_010):
        f(mo.ones(n))
    assert one > 0 and mo.pool.stats()["live_bytes"] - before < 2 * one


def test_numpy_functions_and_formatting_take_tensors() -> None:
    x = mo.asarray(np.arange(4.0))
    assert np.sum(x).item() == 6 and np.mean(x).item() == 1.5 and np.max(x).item() == 3
    assert f"{x.sum():.2f}" == "6.00" and x.std(ddof=1).item() == pytest.approx(np.arange(4.0).std(ddof=1))
