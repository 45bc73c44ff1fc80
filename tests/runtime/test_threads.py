"""Worker threads: the same bits for any number, only for large work, asleep when idle."""

from __future__ import annotations

import numpy as np
import pytest
from callers import together
from subprograms import run

import morpho as mo
from morpho.backends.driver import threads

FUNCTIONS = {
    "elementwise": (lambda x: mo.gelu(x) + mo.tanh(x * 2), (3_000_000,)),
    "rows": (lambda x: mo.softmax(x, axis=-1), (3000, 700)),
    "long row": (lambda x: x.sum(), (4_000_000,)),
    "columns": (lambda x: mo.exp(x).sum(axis=0), (3000, 700)),
    "mean": (lambda x: x.mean(axis=1) - x.max(axis=1), (3000, 700)),
    "product": (lambda x: x @ x.T, (300, 200)),
    "scan": (lambda x: mo.cumulative_sum(x, axis=1), (2000, 700)),
    "transposed": (lambda x: x.T + 1, (1500, 1400)),
    "gather": (lambda x: mo.exp(x[::-1, :])[mo.asarray(np.arange(0, 3000, 2))], (3000, 700)),
}


def runs() -> int:
    """Kernels divided among threads so far."""
    return sum(pool.runs for pool in threads._pools.values())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_bits_for_any_number_of_threads(name: str) -> None:
    function, shape = FUNCTIONS[name]
    x = mo.asarray(np.random.default_rng(5).standard_normal(shape, np.float32))
    with mo.settings(threads=1):
        expected = function(x).numpy()
    for count in (2, 3):
        with mo.settings(threads=count):
            np.testing.assert_array_equal(function(x).numpy(), expected)
            np.testing.assert_array_equal(mo.compile(function)(x).numpy(), expected)


def test_large_work_is_shared_and_small_work_is_not() -> None:
    small, large = mo.asarray(np.ones(1000, np.float32)), mo.asarray(np.ones(3_000_000, np.float32))
    f = mo.compile(lambda x: mo.exp(x) + 1)
    with mo.settings(threads=2):
        f(small)
        before = runs()
        for _ in range(20):
            f(small)
        assert runs() == before
        f(large)
        assert runs() > before


def test_one_thread_starts_none() -> None:
    printed, _ = run("""
    with mo.settings(threads=1):
        x = mo.asarray(np.ones(3_000_000, np.float32))
        f = mo.compile(lambda x: mo.exp(x) + 1)
        target = mo.empty(3_000_000)
        f(x); f(x, out=target); f(x, out=target); mo.exp(x).sum().item()
        print(threading.active_count())
    """, MORPHO_THREADS="2")
    assert printed == "1"


def test_the_native_entry_follows_the_setting() -> None:
    x, target = mo.asarray(np.ones(3_000_000, np.float32)), mo.empty(3_000_000)
    f = mo.compile(lambda x: mo.exp(x) + 1)
    with mo.settings(threads=2):
        f(x, out=target), f(x, out=target)
        before = runs()
        f(x, out=target)
        assert runs() > before
    before = runs()
    with mo.settings(threads=1):
        f(x, out=target), f(x, out=target)
    assert runs() == before


def test_an_idle_process_uses_no_processor() -> None:
    printed, _ = run("""
    x = mo.asarray(np.ones(3_000_000, np.float32))
    f = mo.compile(lambda x: mo.exp(x) + 1)
    for _ in range(5):
        f(x)
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(1)
    print(time.process_time() - before)
    """, MORPHO_THREADS="2")
    assert float(printed) < 0.05


def test_more_threads_than_cores_and_callers() -> None:
    x = mo.asarray(np.ones(2_000_000, np.float32))
    with mo.settings(threads=5):
        f = mo.compile(lambda x: mo.exp(x) + 1)
        expected = f(x).numpy()[0]

    def work(_: int) -> None:
        with mo.settings(threads=5):
            for _ in range(4):
                found = f(x).numpy()
                assert found.min() == found.max() == expected

    together(work, 4)
