"""Distributed arrays against NumPy, on grids of every shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import cluster
from morpho.base.errors import ArgumentError, ShapeError
from morpho.cluster.arrays.layout import ALL, Grid, nearly_square
from morpho.cluster.groups.threads import run_threads
from morpho.runtime.groups import group as protocol
from morpho.runtime.groups.group import Group

A = np.random.default_rng(0).normal(size=(13, 9))
B = np.random.default_rng(1).normal(size=(9, 11))
TALL = np.random.default_rng(2).normal(size=(41, 4))
GRIDS = [(1, 1), (1, 3), (2, 2), (3, 2)]


def on(shape: tuple[int, int], function: Any) -> list[Any]:
    return run_threads(shape[0] * shape[1], lambda group: function(group, Grid.of(group, shape)))


@pytest.mark.parametrize("shape", GRIDS)
def test_elementwise_reductions_and_moves(shape: tuple[int, int]) -> None:
    def rank(group: Group, grid: Grid) -> None:
        x = cluster.array(A, grid=grid)
        y = cluster.array(A.T, grid=grid).T  # in other blocks
        close = np.testing.assert_allclose
        close((2 * x + y * y - 1).gather(), 2 * A + A * A - 1)
        close(x.map(mo.exp).gather(), np.exp(A))
        close((1 / (x ** 2 + 1)).gather(), 1 / (A ** 2 + 1))
        assert np.array_equal(x.gather(), A) and np.array_equal(x.T.gather(), A.T)
        close(x.sum().item(), A.sum())
        close(x.mean(0).gather(), A.mean(0))
        close(x.sum(1).gather(), A.sum(1))
        assert np.array_equal(x.max(1).gather(), A.max(1)) and x.min().item() == A.min()
        for cuts in (((), ()), (ALL, ()), ((1,), (0,)), ((), (0,))):
            moved = x.redistribute(cuts)
            assert moved.cuts == cuts and np.array_equal(moved.gather(), A)

    on(shape, rank)


def test_reductions_where_a_rank_has_nothing() -> None:
    def rank(group: Group, grid: Grid) -> None:
        for data in (np.arange(4.0).reshape(4, 1), np.asarray([[3, -5]], np.int32)):
            x = cluster.array(data, grid=grid)
            assert x.max().item() == data.max() and x.min().item() == data.min()
            for axis in (-2, 1):
                assert np.array_equal(x.max(axis).gather(), data.max(axis))
                assert np.array_equal(x.min(axis).gather(), data.min(axis))
        nothing = cluster.array(np.zeros((0, 3), np.int32), grid=grid)
        assert np.isnan(nothing.mean().item()) and np.isnan(nothing.mean(0).gather()).all()
        with pytest.raises(ShapeError, match="has nothing to take the max of"):
            nothing.max(0)
        with pytest.raises(ShapeError, match="has no axis 2"):
            nothing.mean(2)

    on((3, 1), rank)
    on((1, 3), rank)


@pytest.mark.parametrize("shape", GRIDS)
def test_products(shape: tuple[int, int]) -> None:
    def rank(group: Group, grid: Grid) -> None:
        a, b = cluster.array(A, grid=grid), cluster.array(B, grid=grid)
        np.testing.assert_allclose((a @ b).gather(), A @ B, atol=1e-12)
        np.testing.assert_allclose((a.T @ a).gather(), A.T @ A, atol=1e-12)
        np.testing.assert_allclose((a @ cluster.array(B[:, 0], grid=grid)).gather(), A @ B[:, 0], atol=1e-12)

    on(shape, rank)


@pytest.mark.parametrize("shape", [(1, 2), (2, 2)])
def test_solvers(shape: tuple[int, int]) -> None:
    matrix = A.T @ A + np.eye(9)
    values = np.linalg.svd(TALL, compute_uv=False)

    def rank(group: Group, grid: Grid) -> None:
        x, steps = cluster.cg(cluster.array(matrix, grid=grid), cluster.array(B[:, 0], grid=grid), tol=1e-10)
        np.testing.assert_allclose(x.gather(), np.linalg.solve(matrix, B[:, 0]), atol=1e-6)
        assert 1 < steps <= 20
        q, r = cluster.qr(cluster.array(TALL, grid=grid))
        whole = q.gather()
        np.testing.assert_allclose(whole @ r.numpy(), TALL, atol=1e-12)
        np.testing.assert_allclose(whole.T @ whole, np.eye(4), atol=1e-12)
        u, s, v = cluster.svd(cluster.array(TALL, grid=grid), 2)
        np.testing.assert_allclose(s.numpy(), values[:2], rtol=1e-8)
        best = np.linalg.svd(TALL, full_matrices=False)
        np.testing.assert_allclose(u.gather() * s.numpy() @ v.numpy(),
                                   best[0][:, :2] * best[1][:2] @ best[2][:2], atol=1e-6)

    on(shape, rank)


def test_a_block_is_made_where_it_is_held() -> None:
    class Rows:
        shape = (8, 3)

        def __call__(self, block: tuple[slice, ...]) -> np.ndarray:
            return np.arange(24.0).reshape(8, 3)[block]

    def rank(group: Group, grid: Grid) -> None:
        x = cluster.array(Rows(), grid=grid)
        assert np.array_equal(x.gather(), np.arange(24.0).reshape(8, 3)) and x.local.size <= 12

    on((2, 1), rank)


def test_nothing_moves_that_need_not() -> None:
    """Elementwise work and transposes stay at home; a reduction sends a part of a row of results."""
    sent: list[float] = []

    def rank(group: Group, grid: Grid) -> None:
        x = cluster.array(A, grid=grid)
        group.barrier()
        before = bytes_of_collectives()
        group.barrier()
        y = (x * 2 + x).map(mo.exp).T
        assert y.local.shape == x.local.shape[::-1]
        group.barrier()
        sent.append(bytes_of_collectives() - before)
        group.barrier()
        x.sum(0)
        group.barrier()
        sent.append(bytes_of_collectives() - before)

    on((2, 2), rank)
    assert sorted(sent)[:4] == [0.0] * 4 and 0 < max(sent) <= 4 * A.shape[1] * A.itemsize


def bytes_of_collectives() -> float:
    """That all ranks of this process gave to collectives so far."""
    names = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "recv")
    return sum(protocol._bytes.value(name) for name in names)


def test_mistakes() -> None:
    x = cluster.array(A)
    for call, said in ((lambda: x + A, "neither a number"), (lambda: x @ x, "do not align"),
                       (lambda: x + cluster.array(B), "not equal"),
                       (lambda: x.redistribute(((0,), (0,))), "do not fit"),
                       (lambda: cluster.array(A, grid=(2, 2)), "has not 1 ranks"),
                       (lambda: cluster.svd(x, 99), "is not possible")):
        with pytest.raises((ArgumentError, ShapeError), match=said):
            call()
    with pytest.raises(ShapeError, match="not tall enough"):
        run_threads(4, lambda group: cluster.qr(cluster.array(TALL[:8], group=group)))
    assert nearly_square(12) == (3, 4)
