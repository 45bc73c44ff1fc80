"""Solvers and preconditioners: against NumPy's dense ones, as native loops, with errors for what has no solution."""

from __future__ import annotations

from collections.abc import Callable
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


def scattered(rng: np.random.Generator, shape: tuple[int, int], dtype: str = "complex128") -> Any:
    """A dense matrix of which most is zero."""
    parts = rng.normal(size=(2, *shape)) * (rng.random(shape) < 0.4)
    return (parts[0] + 1j * parts[1] if dtype[0] == "c" else parts[0]).astype(dtype)


@pytest.mark.parametrize(("shape", "damp", "dtype"), [((50, 20), 0.0, "complex128"), ((20, 30), 0.0, "complex128"),
                                                      ((30, 12), 0.7, "complex64")])
def test_complex_least_squares(shape: tuple[int, int], damp: float, dtype: str, rng: np.random.Generator) -> None:
    """Of complex matrices and right sides in every mixture, as NumPy's least squares and SciPy's LSQR find them."""
    scipy = pytest.importorskip("scipy.sparse.linalg")
    tol = 1e-12 if dtype == "complex128" else 1e-5
    a, b = scattered(rng, shape, dtype), rng.normal(size=(2, shape[0]))
    b = (b[0] + 1j * b[1]).astype(dtype)
    sparse = mo.sparse.from_dense(a)
    for matrix, right, form in ((a, b, sparse), (a, b.real, sparse.tocsc()), (a.real, b, mo.asarray(a.real))):
        below = np.concatenate([matrix, damp * np.eye(shape[1])]), np.concatenate([right, np.zeros(shape[1])])
        want = np.linalg.lstsq(*below, rcond=None)[0]
        found = mo.sparse.lsqr(form, mo.asarray(right), tol=tol, damp=damp)
        assert found.x.dtype == dtype and found.slope.dtype == found.residual.dtype == mo.finfo(dtype).dtype
        assert np.abs(found.x.numpy() - want).max() < 3000 * tol * max(1, np.abs(want).max()), found
        left = np.linalg.norm(right - matrix @ found.x.numpy()) / np.linalg.norm(right)
        assert np.isclose(found.residual.item(), left, atol=10 * np.finfo(dtype).eps)
        other = scipy.lsqr(matrix.astype("complex128"), right, damp=damp, atol=1e-13, btol=1e-13)[0]
        assert np.abs(found.x.numpy() - other).max() < 3000 * tol * max(1, np.abs(want).max())


@pytest.mark.parametrize(("dtype", "form", "largest"), [("complex128", None, True), ("complex128", "sparse", False),
                                                        ("float64", "dense", True), ("float64", "function", False)])
def test_lobpcg_of_hermitian_matrices(dtype: str, form: str | None, largest: bool, rng: np.random.Generator) -> None:
    """And of pencils, a x = value B x: LAPACK's values, vectors that are orthonormal in B."""
    parts = [scattered(rng, (40, 40), dtype) for _ in range(2)]
    a, b = parts[0] + parts[0].conj().T + np.diag(np.arange(40.0)), parts[1] @ parts[1].conj().T + 4 * np.eye(40)
    b = np.eye(40) if form is None else b
    start = mo.asarray(rng.normal(size=(40, 3)))  # real, of a complex matrix too
    B = {None: None, "sparse": mo.sparse.from_dense(b), "dense": mo.asarray(b), "function": lambda x: b @ x}[form]
    run = mo.compile(partial(mo.sparse.lobpcg, mo.sparse.from_dense(a), B=B, largest=largest, tol=1e-9, maxiter=400))
    values, vectors = (one.numpy() for one in run(start))
    want = pytest.importorskip("scipy.linalg").eigh(a, b, eigvals_only=True)
    assert values.dtype == np.float64 and vectors.dtype == np.dtype(dtype) and run.stats["host_steps"] == 0
    assert np.allclose(values, want[::-1][:3] if largest else want[:3], rtol=0, atol=1e-9)
    assert np.abs(a @ vectors - b @ vectors * values).max() < 1e-6
    assert np.allclose(vectors.conj().T @ b @ vectors, np.eye(3), atol=1e-10)


def test_pencils_that_are_none_are_told() -> None:
    a, start = mo.sparse.eye(9).astype("float64"), mo.eye(9, 2, dtype="float64")
    with pytest.raises(ValueFault, match="positive definite"):
        mo.sparse.lobpcg(a, start, B=-a, maxiter=1)[0].numpy()
    with pytest.raises(ShapeError):
        mo.sparse.lobpcg(a, start, B=mo.eye(8, dtype="float64"))


def test_gradients_of_solvers_are_those_of_loops(rng: np.random.Generator) -> None:
    """A number of turns that is known has a gradient, complex too; one that is not is refused by name."""
    noise, turn = (scattered(rng, (15, 15)) for _ in range(2))
    a, turn = noise + noise.conj().T + np.diag(np.arange(15.0) * 3), turn + turn.conj().T
    start, B = mo.asarray(rng.normal(size=(15, 2))), mo.asarray(np.diag(rng.uniform(1, 2, 15)))

    def value(x: Any) -> Any:
        return mo.sum(mo.sparse.lobpcg((x + mo.conj(x).T) / 2, start, B=B, maxiter=30)[0])

    slope, run = np.vdot(mo.grad(value)(mo.asarray(a)).numpy(), turn).real, mo.compile(value)
    ends = [run(mo.asarray(a + step * turn)).item() for step in (1e-5, -1e-5)]
    assert np.isclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-5)
    for refused in (lambda x: mo.real(mo.sum(mo.sparse.lsqr(x, a[0]).x)),
                    lambda x: mo.sum(mo.sparse.lobpcg(x, start, tol=1e-6)[0])):
        with pytest.raises(ArgumentError, match="while_loop has no gradient"):
            mo.grad(refused)(mo.asarray(a))


def test_every_solver_and_preconditioner_is_native(rng: np.random.Generator) -> None:
    a, dense = laplacian(5)
    b, block = mo.asarray(rng.normal(size=25)), mo.asarray(rng.normal(size=(25, 2)))
    s, low = mo.sparse, mo.sparse.triangle(a, upper=False)
    runs: list[Callable[..., Any]] = [
        *(lambda a, b, solve=solve, improve=improve: solve(a, b, M=improve).x
          for solve, improve in ((s.cg, s.ic0(a)), (s.bicgstab, s.ilu0(a)), (s.gmres, s.jacobi(a)))),
        lambda a, b: s.lsqr(a, b, tol=1e-9).x, lambda a, b: s.lanczos(a, k=2),
        lambda a, b: s.lobpcg(a, block, tol=1e-5), lambda a, b: s.solve_triangular(low, b)]
    for number, function in enumerate(runs):
        run = mo.compile(function)
        found = run(a, b)
        assert run.stats["host_steps"] == 0 and run.stats["fallbacks"] == 0, number
        if number < 4:
            assert np.allclose(dense @ found.numpy(), b.numpy(), atol=1e-3)


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
