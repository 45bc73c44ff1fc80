"""Products by cuBLASLt under `fast`, over a fake of it: how operands are told to the library, and who is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_blas import FakeBlas
from native_device import Native

import morpho as mo
from morpho.backends.cuda.vendor.blas import Blas
from morpho.backends.registry import backend_of


@pytest.fixture
def blas(gpu: str) -> Iterator[Blas]:
    backend: Any = backend_of(gpu)
    backend._blas = Blas(backend.gpu, FakeBlas())
    yield backend._blas
    backend._blas = None


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("dtype", "bound"), [("bfloat16", 1e-2), ("float32", 1e-6), ("float64", 1e-14)])
def test_products_are_laid_out_as_the_library_wants_them(gpu: str, blas: Blas, rng: np.random.Generator, dtype: str,
                                                         bound: float, turned: tuple[bool, bool]) -> None:
    shapes = [shape[::-1] if turn else shape for shape, turn in zip(((20, 16), (16, 24)), turned, strict=True)]
    a, b = (rng.standard_normal(shape) for shape in shapes)

    def f(x: Any, y: Any) -> Any:
        x, y = (z.T if turn else z for z, turn in zip((x, y), turned, strict=True))
        return x @ y

    given = [mo.asarray(x).astype(dtype) for x in (a, b)]
    want = mo.compile(f)(*(x.astype(mo.float64) for x in given)).numpy()
    with mo.settings(fast=True):
        run = mo.compile(f)
        got = run(*(x.to(gpu) for x in given)).astype(mo.float64).numpy()
        assert "by cuBLASLt (fast)" in run.explain()
    assert blas.calls == 1 and np.linalg.norm(got - want) < bound * np.linalg.norm(want)


def test_a_batch_is_one_call_and_what_follows_stays_ours(gpu: str, blas: Blas, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal(shape).astype("f") for shape in ((3, 8, 16), (3, 16, 24)))
    with mo.settings(fast=True):
        got = (mo.asarray(a, device=gpu) @ mo.asarray(b, device=gpu)).numpy()
    assert blas.calls == 1
    np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-5)


def test_without_fast_or_without_a_way_our_kernels_multiply(gpu: str, blas: Blas, rng: np.random.Generator) -> None:
    a, b = (mo.asarray(rng.standard_normal((16, 16)).astype("f")) for _ in range(2))
    own = (a.to(gpu) @ b.to(gpu)).numpy()
    assert blas.calls == 0
    blas.handle.ways = 0
    with mo.settings(fast=True):
        assert (a.to(gpu) @ b.to(gpu)).numpy().tobytes() == own.tobytes()
    assert blas.calls == 0


def test_products_are_among_native_launches(native: Native, rng: np.random.Generator) -> None:
    backend: Any = backend_of("cuda:0")
    library = FakeBlas(device=native)
    backend._blas = Blas(backend.gpu, library)
    a, b = (rng.standard_normal((16, 16)).astype("f") for _ in range(2))
    there = [mo.asarray(x, device="cuda") for x in (a, b)]
    with mo.settings(fast=True):
        one, two = mo.compile(lambda x, y: x @ y), mo.compile(lambda x, y: mo.softmax(x @ y.T, axis=-1) @ y)
        for turn in range(4):
            np.testing.assert_allclose(one(*there).numpy(), a @ b, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(two(*there).numpy(), _softmax(a @ b.T) @ b, rtol=1e-4, atol=1e-5)
            assert library.products == 3 * (turn + 1)
        assert one.native_calls == two.native_calls == 3 and backend._blas.calls == 3  # the first ones are Python's
        (chosen,) = one.specialisations.values()
        call = chosen.served.executable.call
        call.table.held[0][2] = (1 << 40) - 1  # an operand is to lie where nothing does: Python takes the run
        elsewhere = [mo.asarray(x, device="cuda") for x in (a, b)]  # no graph was made with these
        np.testing.assert_allclose(one(*elsewhere).numpy(), a @ b, rtol=1e-5, atol=1e-5)
        assert call.runs == 1 and library.products == 13
    own = mo.compile(lambda x, y: x @ y)
    assert [own(*there).numpy().tobytes() for _ in range(3)] == 3 * [own(*map(mo.asarray, (a, b))).numpy().tobytes()]
    assert library.products == 13


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
