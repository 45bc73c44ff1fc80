"""matmul by a chosen algorithm: equal bits where promised, error bounds where not, errors for bad choices."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError
from morpho.base.python import blas
from morpho.runtime.plans.evaluate import counts
from morpho.tensor.functions.products.strassen import strassen

SHAPES = [(1, 1, 1), (7, 5, 3), (33, 70, 41), (2, 300, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_auto_kernel_and_parallel_have_the_same_bits(rng: np.random.Generator, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = mo.asarray(rng.standard_normal((m, k))), mo.asarray(rng.standard_normal((k, n)))
    found = {name: mo.matmul(a, b, algorithm=name).numpy().tobytes() for name in ("auto", "kernel", "parallel")}
    assert len(set(found.values())) == 1


def test_kernel_stays_on_one_thread_and_parallel_does_not(rng: np.random.Generator) -> None:
    a = mo.asarray(rng.standard_normal((300, 300)).astype(np.float32))
    small = mo.asarray(rng.standard_normal((40, 40)).astype(np.float32))
    with mo.settings(threads=2):
        one = mo.compile(lambda x: mo.matmul(x, x, algorithm="kernel"))
        many = mo.compile(lambda x: mo.matmul(x, x, algorithm="parallel"))
        pools = []
        for function, argument in ((one, a), (many, small)):
            function(argument)
            executable = function.current.plan.native_code
            before = executable.workers.runs
            function(argument)
            pools.append(executable.workers.runs - before)
    assert pools[0] <= 1 and pools[1] >= 1  # packing may be shared; the small product would not be by itself


@pytest.mark.parametrize("name", ["blas", "strassen"])
def test_the_others_are_close(rng: np.random.Generator, name: str) -> None:
    a, b = rng.standard_normal((130, 90)), rng.standard_normal((90, 70))
    np.testing.assert_allclose(mo.matmul(a, b, algorithm=name).numpy(), a @ b, rtol=1e-12, atol=1e-12)
    found = mo.matmul(a[None], np.stack([b, 2 * b]), algorithm=name).numpy()
    np.testing.assert_allclose(found, np.matmul(a[None], np.stack([b, 2 * b])), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(16, 16, 16), (17, 19, 23), (40, 33, 64), (8, 100, 9), (31, 8, 8)], ids=str)
def test_strassen_keeps_its_bound_for_any_shape(rng: np.random.Generator, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    node = strassen(mo.asarray(a).node, mo.asarray(b).node, leaf=4)
    found = mo.Tensor.of_node(node).numpy()
    levels = 0
    while levels < 4 and min(shape) >> (levels + 1) >= 4:
        levels += 1
    inner = -(-k >> levels)
    bound = 18.0**levels * (inner**2 + 6 * inner) * 2.0**-24 * abs(a).max() * abs(b).max()
    assert levels >= 1 and found.shape == (m, n)
    assert abs(found - a.astype(np.float64) @ b).max() <= bound


@pytest.mark.parametrize(("dtype", "unit"), [(mo.float16, 2.0**-11), (mo.bfloat16, 2.0**-8)], ids=str)
def test_strassen_of_half_floats_is_that_of_float32_rounded_once(rng: np.random.Generator, dtype: Any,
                                                                 unit: float) -> None:
    """One level over an inner size of 8, so that the bound is well below what sums of half floats would lose."""
    a, b = (mo.asarray(rng.standard_normal((2, 15, 15)).astype(np.float32)).astype(dtype) for _ in range(2))
    found = mo.Tensor.of_node(strassen(a.node, b.node, leaf=4))
    wide = mo.Tensor.of_node(strassen(a.astype(mo.float32).node, b.astype(mo.float32).node, leaf=4))
    assert found.dtype is dtype and found.numpy().tobytes() == wide.astype(dtype).numpy().tobytes()
    x, y, values = (tensor.numpy().astype(np.float64) for tensor in (a, b, found))
    bound = 18 * (8**2 + 6 * 8) * 2.0**-24 * abs(x).max() * abs(y).max() + unit * abs(values) + 2.0**-25
    assert (abs(values - x @ y) <= bound).all()


def test_strassen_of_large_float16_does_not_overflow() -> None:
    """The sum of two quarters of a is no float16; the product is."""
    a, b = mo.full((8, 8), 40000.0, dtype=mo.float16), mo.full((8, 8), 0.125, dtype=mo.float16)
    assert (mo.Tensor.of_node(strassen(a.node, b.node, leaf=4)).numpy() == 40000).all()


def test_strassen_of_small_half_floats_is_the_plain_product(rng: np.random.Generator) -> None:
    a, b = (mo.asarray(rng.standard_normal((9, 9)).astype(np.float32)).astype(mo.bfloat16) for _ in range(2))
    assert mo.matmul(a, b, algorithm="strassen").numpy().tobytes() == (a @ b).numpy().tobytes()


class FakeBlas:
    """A BLAS that notes what it is told; the user's own number is 7."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def get(self) -> int:
        return self.told[-1] if self.told else 7

    def set(self, number: int) -> None:
        self.told.append(number)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBlas:
    made = FakeBlas()
    monkeypatch.setattr(blas, "_threads", lambda: made)
    return made


def test_blas_keeps_to_the_thread_budget(rng: np.random.Generator, fake: FakeBlas) -> None:
    before = counts.host_steps
    with mo.settings(threads=3):
        mo.matmul(rng.standard_normal((4, 4)), rng.standard_normal((4, 4)), algorithm="blas").numpy()
    assert fake.told == [3, 7] and counts.host_steps == before + 1


def test_blas_in_tasks_has_what_the_others_leave(fake: FakeBlas) -> None:
    a = np.ones((4, 4))
    product = lambda: mo.matmul(a, a, algorithm="blas").numpy()
    with mo.settings(threads=2), mo.tasks.Scheduler(2) as scheduler:
        scheduler.submit(product).result()
        assert fake.told == [2, 7]
        gate = threading.Event()
        busy = scheduler.submit(gate.wait)
        scheduler.submit(product).result()
        assert fake.told == [2, 7, 1, 7]
        gate.set()
        busy.result()


def test_blas_gets_its_number_back_after_an_exception_and_after_the_last_product(fake: FakeBlas) -> None:
    with pytest.raises(ZeroDivisionError), mo.settings(threads=3), blas.within_budget():
        raise ZeroDivisionError
    assert fake.told == [3, 7]
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second, mo.settings(threads=3):
        first.enter_context(blas.within_budget())
        with mo.settings(threads=2):
            second.enter_context(blas.within_budget())
        first.close()  # not the last: the other one's number stays
        assert fake.told == [3, 7, 3, 2, 2]
    assert fake.told[-1] == 7


@pytest.mark.skipif(blas._threads() is None, reason="NumPy has another BLAS here")
def test_products_of_many_threads_leave_openblas_as_it_was() -> None:
    real = blas._threads()
    assert real is not None
    a, before = np.ones((8, 8)), real.get()

    def products() -> None:
        for _ in range(50):
            mo.matmul(a, a, algorithm="blas").numpy()

    real.set(2)
    try:
        with mo.settings(threads=1):
            callers = [threading.Thread(target=products) for _ in range(4)]
            for caller in callers:
                caller.start()
            products()
            for caller in callers:
                caller.join()
        assert real.get() == 2
    finally:
        real.set(before)


def test_a_forked_child_finds_the_number_of_before(fake: FakeBlas) -> None:
    with mo.settings(threads=3), blas.within_budget():
        if (child := os.fork()) == 0:
            os._exit(0 if fake.told == [3, 7] and not blas._granted else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert fake.told == [3, 7]


def test_integers_multiply_exactly_in_a_wider_dtype() -> None:
    a = mo.full((3, 200), 100, dtype=mo.int8)
    for dtype in (mo.int32, "int32", np.int32):  # as everywhere
        found = mo.matmul(a, a.T, dtype=dtype)
        assert found.dtype is mo.int32 and found.tolist() == [[2_000_000] * 3] * 3


def test_errors() -> None:
    a = mo.ones((2, 2))
    with pytest.raises(ArgumentError, match=r"\[matmul\] algorithm 'fastest' is unknown.*auto, kernel"):
        mo.matmul(a, a, algorithm="fastest")
    with pytest.raises(DTypeError, match="does not take int32"):
        mo.matmul(mo.ones((2, 2), dtype=mo.int32), mo.ones((2, 2), dtype=mo.int32), algorithm="strassen")
    with pytest.raises(ArgumentError, match="sizes that are known"):
        mo.compile(lambda x: mo.matmul(x, x, algorithm="strassen"),
                   dynamic={"x": {0: mo.Dim("n", 1, 8), 1: mo.Dim("n", 1, 8)}})(a)


def test_gradients_go_through(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    for name in ("kernel", "blas", "strassen"):
        slope = mo.grad(lambda x, name=name: mo.sum(mo.matmul(x, b, algorithm=name)))(mo.asarray(a)).numpy()
        np.testing.assert_allclose(slope, np.broadcast_to(b.sum(axis=1), (3, 4)), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_integers_are_not_for_blas(dtype: str) -> None:
    """NumPy would multiply them in plain loops."""
    a = mo.ones((3, 3), dtype=dtype)
    for name in ("blas", "strassen"):
        with pytest.raises(mo.errors.DTypeError, match="use algorithm='auto', which is exact"):
            mo.matmul(a, a, algorithm=name)
    for name in ("kernel", "parallel"):
        assert mo.matmul(a, a, algorithm=name).tolist() == [[3] * 3] * 3
