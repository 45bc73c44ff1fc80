"""Solvers and preconditioners: against NumPy's dense ones, as native loops, with errors for what has no solution."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault

SIDE = 9


def laplacian(side: int = SIDE) -> tuple[mo.sparse.CSR, Any]:
    line = 2 * np.eye(side) - np.eye(side, k=1) - np.eye(side, k=-1)
    dense = np.kron(line, np.eye(side)) + np.kron(np.eye(side), line)
    return mo.sparse.from_dense(dense), dense


@pytest.mark.parametrize("preconditioner", [None, "jacobi", "ic0", "ilu0"])
def test_symmetric_systems(preconditioner: str | None, rng: np.random.Generator) -> None:
    a, dense = laplacian()
    b = rng.normal(size=SIDE * SIDE)
    want = np.linalg.solve(dense, b)
    improve = None if preconditioner is None else getattr(mo.sparse, preconditioner)(a)
    for solve in (mo.sparse.cg, mo.sparse.bicgstab, mo.sparse.gmres):
        x, count, residual = solve(a, b, tol=1e-10, M=improve)
        assert np.allclose(x.numpy(), want, atol=1e-7) and residual.item() <= 1e-10 and count.item() < 90


def test_better_preconditioners_take_fewer_turns(rng: np.random.Generator) -> None:
    a, _ = laplacian(14)
    b = mo.asarray(rng.normal(size=14 * 14))
    turns = [mo.sparse.cg(a, b, tol=1e-8, M=improve).iterations.item() for improve in (None, mo.sparse.ic0(a))]
    assert turns[1] < 0.6 * turns[0]


def test_a_solver_is_one_native_program(rng: np.random.Generator) -> None:
    a, dense = laplacian()
    b = rng.normal(size=SIDE * SIDE)
    solve = mo.compile(lambda a, b: mo.sparse.cg(a, b, tol=1e-10, M=mo.sparse.jacobi(a)).x)
    assert np.allclose(solve(a, mo.asarray(b)).numpy(), np.linalg.solve(dense, b), atol=1e-7)
    assert solve.stats["host_steps"] == 0
    several = mo.vmap(lambda b: mo.sparse.cg(a, b, tol=1e-10).x)(mo.asarray(np.stack([b, 2 * b])))
    assert np.allclose(several.numpy()[1], 2 * several.numpy()[0], atol=1e-8)


def test_systems_that_are_not_symmetric(rng: np.random.Generator) -> None:
    dense = np.diag(np.full(40, 4.0)) + np.diag(np.full(39, -1.5), 1) + np.diag(np.full(39, -0.5), -1)
    a, b = mo.sparse.from_dense(dense), rng.normal(size=40)
    want = np.linalg.solve(dense, b)
    for found in (mo.sparse.bicgstab(a, b, tol=1e-11), mo.sparse.gmres(a, b, tol=1e-11, restart=8),
                  mo.sparse.gmres(lambda v: a @ v, mo.asarray(b), tol=1e-11), mo.sparse.gmres(dense, b, tol=1e-11),
                  mo.sparse.gmres(a, b, x0=want, tol=1e-11)):
        assert np.allclose(found.x.numpy(), want, atol=1e-8)


@pytest.mark.parametrize("shape", [(50, 20), (20, 20), (20, 30)])
def test_least_squares(shape: tuple[int, int], rng: np.random.Generator) -> None:
    dense = rng.normal(size=shape) * (rng.random(shape) < 0.4)
    b = rng.normal(size=shape[0])
    x = mo.sparse.lsqr(mo.sparse.from_dense(dense), b, tol=1e-12).x.numpy()
    want = np.linalg.lstsq(dense, b, rcond=None)[0]
    assert abs(np.linalg.norm(dense @ x - b) - np.linalg.norm(dense @ want - b)) < 1e-6


def test_a_zero_right_side_takes_no_turn() -> None:
    a, _ = laplacian(3)
    for solve in (mo.sparse.cg, mo.sparse.bicgstab, mo.sparse.gmres, mo.sparse.lsqr):
        found = solve(a, mo.zeros(9, dtype=mo.float64))
        assert found.iterations.item() == 0 and not found.x.numpy().any() and found.residual.item() == 0
    assert mo.sparse.lsqr(a, mo.zeros(9)).slope.item() == 0


@pytest.mark.parametrize("dense", [[[1, 0, 0], [0, 0, 0], [0, 0, 2]], [[0, 1, 2], [-1, 0, 3], [-2, -3, 0]],
                                   [[0, 0, 0], [0, 0, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 1], [1, 1, 1]]])
def test_a_breakdown_keeps_x_and_tells_that_it_did_not_converge(dense: list[list[float]]) -> None:
    """Singular and skew matrices, none with a solution: what is returned is what it says of itself."""
    a, b = np.array(dense, np.float64), np.array([1.0, 2.0, 4.0])
    for solve in (mo.sparse.cg, mo.sparse.bicgstab, mo.sparse.gmres, mo.sparse.lsqr):
        found = solve(mo.sparse.from_dense(a), b)
        left = np.linalg.norm(b - a @ found.x.numpy()) / np.linalg.norm(b)
        assert np.isfinite(found.x.numpy()).all() and found.residual.item() > 0.1
        if solve is not mo.sparse.bicgstab:  # whose x may grow where the matrix is 0
            assert found.residual.item() == pytest.approx(left, rel=1e-9), solve
    slope = mo.sparse.lsqr(a, b).slope.item()
    assert slope < 1e-6


def test_one_of_several_right_sides_breaks_down() -> None:
    a = mo.sparse.from_dense(np.diag([1.0, 2.0, 0.0]))
    sides = mo.asarray(np.array([[1.0, 2.0, 0.0], [1.0, 2.0, 1.0], [0.0, 0.0, 0.0]]))
    for solve in (mo.sparse.cg, mo.sparse.bicgstab, mo.sparse.gmres):
        x, _, residual = mo.vmap(partial(solve, a, tol=1e-9))(sides)
        assert np.allclose(x.numpy()[::2], [[1, 1, 0], [0, 0, 0]]) and np.isfinite(x.numpy()).all()
        assert [one < 1e-9 for one in residual.tolist()] == [True, False, True]


def test_complex_systems(rng: np.random.Generator) -> None:
    noise = rng.normal(size=(20, 20)) + 1j * rng.normal(size=(20, 20))
    hermitian = noise @ noise.conj().T + 20 * np.eye(20)
    b = rng.normal(size=20) + 1j * rng.normal(size=20)
    for solve, a in ((mo.sparse.cg, hermitian), (mo.sparse.bicgstab, noise + 20 * np.eye(20)),
                     (partial(mo.sparse.gmres, restart=7), noise + 20 * np.eye(20))):
        for right in (b, b.real):
            found = mo.compile(partial(solve, tol=1e-11))(mo.sparse.from_dense(a), mo.asarray(right))
            assert np.allclose(found.x.numpy(), np.linalg.solve(a, right), rtol=0, atol=1e-9)
            assert found.residual.item() <= 1e-11 and found.residual.dtype == mo.float64
        improved = solve(mo.asarray(a), b, tol=1e-11, M=lambda r, a=a: r / np.diag(a))
        assert np.allclose(improved.x.numpy(), np.linalg.solve(a, b), rtol=0, atol=1e-9)


def test_eigenvalues(rng: np.random.Generator) -> None:
    a, dense = laplacian()
    want = np.linalg.eigvalsh(dense)
    values, vectors = mo.sparse.lanczos(a, k=2, steps=60, which="largest")
    assert np.allclose(values.numpy()[-1], want[-1]) and np.allclose(dense @ vectors.numpy()[:, -1],
                                                                     want[-1] * vectors.numpy()[:, -1], atol=1e-6)
    assert np.allclose(mo.sparse.lanczos(a, k=1, steps=60, which="smallest")[0].numpy(), want[:1])
    start = rng.normal(size=(SIDE * SIDE, 3))
    assert np.allclose(mo.sparse.lobpcg(a, start, maxiter=60)[0].numpy(), want[::-1][:3], atol=1e-5)
    small, found = mo.sparse.lobpcg(a, start, maxiter=40, largest=False, M=mo.sparse.ic0(a))
    assert np.allclose(small.numpy(), want[:3], atol=1e-6)
    assert np.allclose(dense @ found.numpy(), found.numpy() * small.numpy(), atol=1e-3)


def test_lobpcg_ends_at_its_tolerance_and_says_what_it_did_not_find(rng: np.random.Generator) -> None:
    a, dense = laplacian()
    start = mo.asarray(rng.normal(size=(SIDE * SIDE, 3)))
    run = mo.compile(partial(mo.sparse.lobpcg, a, tol=1e-9, maxiter=500))
    values, vectors = (one.numpy() for one in run(start))
    assert np.allclose(values, np.linalg.eigvalsh(dense)[::-1][:3], rtol=0, atol=1e-12) and run.stats["host_steps"] == 0
    assert np.linalg.norm(dense @ vectors - vectors * values, axis=0).max() <= 1.001e-9 * values[0]
    short = mo.sparse.lobpcg(a, start, tol=1e-9, maxiter=2)
    assert np.isnan(short[0].numpy()).all() and np.isnan(short[1].numpy()).all()
    with pytest.raises(ArgumentError, match="tol"):
        mo.sparse.lobpcg(a, start, tol=0.0)


def test_lanczos_goes_on_until_its_values_are_right(rng: np.random.Generator) -> None:
    dense = rng.normal(size=(90, 90)) * (rng.random((90, 90)) < 0.1)
    for which, own, matrix in (("largest", slice(-4, None), dense + dense.T),
                               ("smallest", slice(0, 4), (dense + dense.T) + 1j * (dense - dense.T))):
        run = mo.compile(partial(mo.sparse.lanczos, k=4, which=which))
        values, vectors = (one.numpy() for one in run(mo.sparse.from_dense(matrix)))
        assert np.allclose(values, np.linalg.eigvalsh(matrix)[own], rtol=0, atol=1e-11)
        assert np.abs(matrix @ vectors - vectors * values).max() < 1e-9 and run.stats["host_steps"] == 0
        assert np.allclose(vectors.conj().T @ vectors, np.eye(4), atol=1e-11)


def test_lanczos_says_what_it_did_not_find(rng: np.random.Generator) -> None:
    line = mo.sparse.diags([2.0, -1.0, -1.0], [0, 1, -1], shape=(400, 400)).astype("float64")
    values, vectors = mo.sparse.lanczos(line, k=3, maxiter=2)
    assert np.isnan(values.numpy()).all() and np.isnan(vectors.numpy()).all()


def test_lanczos_in_a_closed_space() -> None:
    """The identity, nothing, few different values, a start that is a vector already: it goes on in a new direction."""
    first = mo.asarray(np.eye(36)[0])
    for run in (mo.compile(lambda a, start: mo.sparse.lanczos(a, k=3, v0=start)),
                mo.compile(lambda a, start: mo.sparse.lanczos(a, k=3, steps=30, v0=start))):
        for numbers, want in ((np.ones(36), 1), (np.zeros(36), 0), (np.repeat([1.0, 2.0, 5.0], 12), 5)):
            for start in (first, first * 0, mo.ones_like(first)):
                values, vectors = (one.numpy() for one in run(mo.sparse.diags([numbers]), start))
                assert np.allclose(values, want, atol=1e-12)
                assert np.allclose(vectors.T @ vectors, np.eye(3), atol=1e-12)


def test_triangles(rng: np.random.Generator) -> None:
    dense = rng.normal(size=(30, 30)) * (rng.random((30, 30)) < 0.3) + 5 * np.eye(30)
    a = mo.sparse.from_dense(dense)
    for upper in (False, True):
        for unit in (False, True):
            side = np.triu(dense) if upper else np.tril(dense)
            side = side - np.diag(np.diag(side)) + np.eye(30) if unit else side
            for b in (rng.normal(size=30), rng.normal(size=(30, 5))):
                for matrix in (a, a.tocsc()):
                    x = mo.sparse.solve_triangular(matrix, b, upper=upper, unitriangular=unit).numpy()
                    assert np.allclose(side @ x, b, atol=1e-6 * np.abs(x).max())
        np.testing.assert_array_equal(mo.sparse.triangle(a, upper=upper).to_dense().numpy(),
                                      np.triu(dense) if upper else np.tril(dense))


def test_incomplete_factors_are_the_factors_where_nothing_fills_in(rng: np.random.Generator) -> None:
    dense = np.diag(rng.uniform(4, 5, 12)) + np.diag(rng.normal(size=11), 1) + np.diag(rng.normal(size=11), -1)
    a, b = mo.sparse.from_dense(dense), rng.normal(size=12)
    assert np.allclose(mo.sparse.ilu0(a)(mo.asarray(b)).numpy(), np.linalg.solve(dense, b))
    both = dense + dense.T
    assert np.allclose(mo.sparse.ic0(mo.sparse.from_dense(both))(mo.asarray(b)).numpy(), np.linalg.solve(both, b))


def test_what_cannot_be_solved_is_told() -> None:
    a, _ = laplacian(3)
    b = mo.ones(9, dtype=mo.float64)
    with pytest.raises(ValueFault, match="singular"):
        mo.sparse.solve_triangular(a * 0, b).numpy()
    with pytest.raises(ValueFault, match="positive definite"):
        mo.sparse.ic0(-a)(b).numpy()
    with pytest.raises(ValueFault, match="singular"):
        mo.sparse.ilu0(mo.sparse.from_dense(np.array([[0.0, 1.0], [1.0, 0.0]])))(mo.ones(2, dtype=mo.float64)).numpy()
    wrong: list[Any] = [
        (lambda: mo.sparse.cg(a, mo.ones(3)), ShapeError), (lambda: mo.sparse.cg(a, [1, 2, 3]), DTypeError),
        (lambda: mo.sparse.cg(a[:4], mo.ones(4)), ShapeError), (lambda: mo.sparse.cg(a, b, maxiter=0), ArgumentError),
        (lambda: mo.sparse.gmres(a, b, restart=0), ArgumentError), (lambda: mo.sparse.lsqr(a, mo.ones(4)), ShapeError),
        (lambda: mo.sparse.lanczos(a, k=20), ArgumentError),
        (lambda: mo.sparse.lanczos(a, k=3, steps=2), ArgumentError),
        (lambda: mo.sparse.lanczos(a, maxiter=0), ArgumentError),
        (lambda: mo.sparse.lobpcg(a, mo.ones((9, 8))), ShapeError),
        (lambda: mo.sparse.solve_triangular(a, mo.ones(2)), ShapeError),
        (lambda: mo.sparse.ilu0(a.astype(mo.int32)), DTypeError), (lambda: mo.sparse.jacobi(a[:4]), ShapeError),
        (lambda: mo.sparse.cg("a", b), Exception), (lambda: mo.sparse.norm(a, ord=3), ArgumentError),
        (lambda: mo.sparse.matmul(a, b, semiring="plus_plus"), ArgumentError),
    ]
    for bad, kind in wrong:
        with pytest.raises(kind):
            bad()
