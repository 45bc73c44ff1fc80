"""Loops that fill a matrix row by row: products over its rows stop at those that are there, with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.lowering.matmul import lower_matmul

N = 70


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every GEMV that is lowered, whether it stops early."""
    found: list[bool] = []
    plain = lower_matmul.rows_that_count

    def noted(low: Any, node: Any, product: Any) -> Any:
        rows = plain(low, node, product)
        found.append(rows is not None)
        return rows

    monkeypatch.setattr(lower_matmul, "rows_that_count", noted)
    return found


def factor(a: mo.Tensor, start: mo.Tensor, put: Callable[[mo.Tensor], mo.Tensor] = lambda j: j,
           left: Callable[[mo.Tensor, mo.Tensor], mo.Tensor] = lambda upper, j: upper[:, j]) -> mo.Tensor:
    """Cholesky's factor, turned; or a loop that is none."""
    index = mo.arange(a.shape[0])

    def step(j: mo.Tensor, upper: mo.Tensor) -> mo.Tensor:
        row = a[j] - left(upper, j) @ upper
        upper[put(j)] = mo.where(index >= j, row / mo.sqrt(mo.abs(row[j])), 0.0)
        return upper

    return mo.fori_loop(0, a.shape[0], step, start)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_factor_has_the_bits_of_whole_products(dtype: str, bounded: list[bool], rng: np.random.Generator) -> None:
    b = rng.standard_normal((N, N)).astype(dtype)
    a = mo.asarray(b @ b.T + N * np.eye(N, dtype=dtype))
    got = mo.compile(lambda a: factor(a, mo.zeros_like(a)))(a).numpy()
    assert bounded == [True]
    whole = mo.compile(factor)(a, mo.zeros_like(a).realise()).numpy()  # nothing is known of the first value
    assert bounded == [True, False] and got.tobytes() == whole.tobytes()
    np.testing.assert_allclose(got.T @ got, a.numpy(), rtol=1e-3)


def test_sums_that_vanish_have_the_same_sign(bounded: list[bool]) -> None:
    a = np.zeros((N + 1, N + 1))  # a size of its own: a plan that is there already is not lowered again
    a[:, 0], a[0] = -1e-200, 1e-200  # products of rows are too small for a number, and some are negative
    given = mo.asarray(a)
    got = mo.compile(lambda a: factor(a, mo.zeros_like(a)))(given).numpy()
    whole = mo.compile(factor)(given, mo.zeros_like(given).realise()).numpy()
    assert bounded == [True, False] and got.tobytes() == whole.tobytes()


@pytest.mark.parametrize("change", ["ones", "minus", "further", "other", "part"])
def test_others_are_whole(change: str, bounded: list[bool], rng: np.random.Generator) -> None:
    a = mo.asarray(np.abs(rng.standard_normal((N, N))))
    start = {"ones": mo.ones_like, "minus": lambda a: mo.full(a.shape, -0.0, dtype=a.dtype)}.get(change, mo.zeros_like)
    options: dict[str, Any] = {"further": {"put": lambda j: mo.minimum(j + 1, N - 1)},
                               "other": {"left": lambda upper, j: a[:, j]},
                               "part": {"left": lambda upper, j: upper[j]}}.get(change, {})
    mo.compile(lambda a: factor(a, start(a), **options))(a)
    assert bounded == [False]
