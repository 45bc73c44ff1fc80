"""Operations of the host as steps of native programs: no Python around them, in loops, with errors at their line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ValueFault
from morpho.runtime.plans import evaluate

L = mo.linalg


@pytest.fixture
def twice() -> Iterator[Callable[[mo.Tensor], mo.Tensor]]:
    """An operation that only NumPy can do."""
    yield mo.extend.op("host_twice", reference=lambda x: x * 2, native=False)
    mo.extend.remove("host_twice")


def test_the_native_entry_serves_functions_with_host_steps(twice: Callable[..., mo.Tensor]) -> None:
    f = mo.compile(lambda x: twice(twice(x + 1) * 3) - 1)
    before = evaluate.counts.host_steps
    for number in range(5):
        assert f(mo.full(4, number).realise()).tolist() == [12 * number + 11] * 4
    assert f.native_calls == 4 and f.stats["host_steps"] == 2 and evaluate.counts.host_steps == before + 10
    assert f.stats["fallbacks"] == 0 and "host   host_twice" in f.explain()


def test_dtypes_of_two_bytes_and_dynamic_sizes(twice: Callable[..., mo.Tensor]) -> None:
    for dtype in (mo.float16, mo.bfloat16, mo.float64):
        f = mo.compile(lambda x: twice(x) + 1, dynamic={"x": {0: mo.Dim("n", 0, 100)}})
        for count in (3, 100, 0, 7):
            x = mo.arange(count, dtype=mo.float32).astype(dtype).realise()
            assert f(x).astype(mo.float32).tolist() == [2.0 * i + 1 for i in range(count)]
        assert f.native_calls == 3 and f.recompiles == 0


def test_errors_come_back_at_their_line() -> None:
    f = mo.compile(lambda x: L.eigvals(x) + 1)
    good, bad = mo.eye(3).realise(), mo.full((3, 3), float("nan")).realise()
    f(good)
    for _ in range(2):
        with pytest.raises(ValueFault, match=r"\[eigvals\] array must not contain infs or nans.*test_host_steps\.py"):
            f(bad)
        assert f(good).shape == (3,)
    assert f.native_calls == 4


def test_other_errors_are_raised_as_they_are() -> None:
    def fails(x: object) -> object:
        raise KeyboardInterrupt

    stop = mo.extend.op("host_stop", reference=fails, native=False)
    try:
        f = mo.compile(lambda x: stop(x) + 1)
        with pytest.raises(KeyboardInterrupt):
            f(mo.ones(2))
    finally:
        mo.extend.remove("host_stop")


def test_loops_run_natively_around_host_steps(twice: Callable[..., mo.Tensor]) -> None:
    """A carried value, slices, a test and a branch in NumPy's hands."""
    f = mo.compile(lambda c, xs: mo.scan(lambda c, x: (twice(c) - x, twice(x) + c), c, xs))
    c, xs = np.arange(3.0), np.arange(12.0).reshape(4, 3)
    rows, carry = [], c
    for x in xs:
        rows.append(2 * x + carry)
        carry = 2 * carry - x
    for _ in range(3):
        last, stacked = f(mo.asarray(c), mo.asarray(xs))
        assert np.array_equal(last.numpy(), carry) and np.array_equal(stacked.numpy(), np.stack(rows))
    assert f.native_calls == 2 and f.stats["host_steps"] == 2 and "4 turns" in f.explain()
    g = mo.compile(lambda x: mo.while_loop(lambda x: twice(x).sum() < 100, lambda x: twice(x), x))
    assert g(mo.ones(1)).item() == 64
    h = mo.compile(lambda x: mo.cond(x.sum() > 0, twice, lambda x: x - 1, x))
    assert h(mo.ones(2)).tolist() == [2, 2] and h(-mo.ones(2)).tolist() == [-2, -2]


def test_threads_that_call_at_once_each_get_their_own(twice: Callable[..., mo.Tensor]) -> None:
    f = mo.compile(lambda x: twice(x * 2) + twice(x))
    f(mo.ones(3))
    wrong: list[int] = []

    def call(number: int) -> None:
        x = mo.full(3, number).realise()
        wrong.extend(number for _ in range(100) if f(x).tolist() != [6 * number] * 3)

    workers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_host_step_may_call_compiled_functions() -> None:
    inner = mo.compile(lambda x: x * 3)
    op = mo.extend.op("host_inner", reference=lambda x: inner(mo.asarray(np.array(x))).numpy(), native=False)
    try:
        f = mo.compile(lambda x: op(x + 1) + 1)
        assert [f(mo.full(2, n)).tolist() for n in (0, 1, 2)] == [[4, 4], [7, 7], [10, 10]]
    finally:
        mo.extend.remove("host_inner")


def test_steps_are_timed_one_by_one(twice: Callable[..., mo.Tensor]) -> None:
    f = mo.compile(lambda x: twice(x + 1) * 3)
    f(mo.ones(4))
    f.measure(mo.ones(4))
    assert "host " in f.explain() and " us" in f.explain()
