"""Backward errors within LAPACK's bounds on hard matrices: Hilbert, graded, repeated eigenvalues, near singular.

The bound is p(n) eps |a| with a modest p(n) = 10 n; residuals are computed in twice the precision (longdouble), not by
Morpho. LAPACK's routines (larger matrices), the small native ones and the blocked native ones all keep it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo

Array = Any
WIDE = np.longdouble
SIZES = (6, 20, 50, 90)


def hilbert(n: int, rng: np.random.Generator) -> Array:
    return 1.0 / (np.arange(n)[:, None] + np.arange(n)[None, :] + 1)


def graded(n: int, rng: np.random.Generator) -> Array:
    """Rows and columns from 1 down to 1e-12."""
    scale = np.logspace(0, -6, n)
    return scale[:, None] * rng.normal(size=(n, n)) * scale[None, :]


def repeated(n: int, rng: np.random.Generator) -> Array:
    """Eigenvalues 1, 1, ..., 2, 2, ...: symmetric."""
    q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return q @ np.diag(np.where(np.arange(n) < n // 2, 1.0, 2.0)) @ q.T


def near_singular(n: int, rng: np.random.Generator) -> Array:
    u, v = (np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(2))
    return u @ np.diag(np.r_[np.ones(n - 1), 1e-14]) @ v


def jordan(n: int, rng: np.random.Generator) -> Array:
    """Defective: one vector for all eigenvalues."""
    return 2 * np.eye(n) + np.eye(n, k=1)


KINDS = {f.__name__: f for f in (hilbert, graded, repeated, near_singular, jordan)}


def small(residual: Array, a: Array, n: int, factor: float = 10) -> None:
    eps = np.finfo(np.float64).eps
    size = np.linalg.norm(np.abs(residual).astype(np.float64))
    assert np.isfinite(size) and size <= factor * n * eps * np.linalg.norm(a)


def wide(*parts: Any) -> list[Array]:
    return [part.numpy().astype(np.clongdouble if part.dtype.kind == "c" else WIDE) for part in parts]


def orthonormal(q: Array, n: int) -> None:
    small(q.conj().T @ q - np.eye(q.shape[1]), np.eye(q.shape[1]), n)


@pytest.mark.sampled
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_factorisations(kind: str, n: int, rng: np.random.Generator) -> None:
    a = KINDS[kind](n, rng)
    x = mo.asarray(a)
    for algorithm in ("auto", "native"):
        p, low, u = wide(*mo.linalg.lu(x, algorithm=algorithm))
        small(p @ low @ u - a, a, n)
        assert np.abs(low).max() <= 1 + 1e-12, "pivots are the largest"
        q, r = wide(*mo.linalg.qr(x, algorithm=algorithm))
        small(q @ r - a, a, n)
        if algorithm == "auto" or kind not in ("hilbert", "graded"):  # panels need full numerical rank
            orthonormal(q, n)
    u, s, vh = wide(*mo.linalg.svd(x, full_matrices=False))
    small((u * s) @ vh - a, a, n)
    orthonormal(u, n)
    orthonormal(vh.T, n)


@pytest.mark.sampled
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_eigenvalues(kind: str, n: int, rng: np.random.Generator) -> None:
    a = KINDS[kind](n, rng)
    t, z = wide(*mo.linalg.schur(mo.asarray(a)))
    small(z @ t @ z.conj().T - a, a, n)
    orthonormal(z, n)
    assert not np.tril(t, -1).any()
    values, vectors = wide(*mo.linalg.eig(mo.asarray(a)))
    small(a @ vectors - vectors * values, a, n)
    sums = a + a.T
    values, vectors = wide(*mo.linalg.eigh(mo.asarray(sums)))
    small((vectors * values) @ vectors.T - sums, sums, n)
    p, low, d = wide(*mo.linalg.ldl(mo.asarray(sums)))
    small(p @ low @ d @ low.T @ p.T - sums, sums, n, 50)


@pytest.mark.sampled
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_solves_have_a_small_backward_error(kind: str, n: int, rng: np.random.Generator) -> None:
    a, b = KINDS[kind](n, rng), rng.normal(size=(n, 2))
    limit = 10 * n * np.finfo(np.float64).eps
    for algorithm in ("auto", "native"):
        x = mo.linalg.solve(mo.asarray(a), mo.asarray(b), algorithm=algorithm).numpy()
        error = np.linalg.norm((WIDE(1) * a @ x - b).astype(float)) / (np.linalg.norm(a) * np.linalg.norm(x)
                                                                      + np.linalg.norm(b))
        assert error <= limit, (algorithm, error)
    lower = np.tril(a) + np.diag(np.where(np.diag(a) == 0, 1, 0))
    for upper in (False, True):
        side = lower.T if upper else lower
        for algorithm in ("auto", "native"):
            x = mo.linalg.solve_triangular(mo.asarray(side), mo.asarray(b), upper=upper, algorithm=algorithm).numpy()
            residual = np.abs((WIDE(1) * side @ x - b).astype(float))
            assert np.all(residual <= limit * (np.abs(side) @ np.abs(x) + np.abs(b)))
    spd = repeated(n, rng)
    for algorithm in ("auto", "native"):
        (factor,) = wide(mo.linalg.cholesky(mo.asarray(spd), algorithm=algorithm))
        small(factor @ factor.T - spd, spd, n)


def test_refined_solves_are_as_exact_as_float64(rng: np.random.Generator) -> None:
    for n in (5, 40, 120):
        a, b = rng.normal(size=(n, n)) + 3 * n**0.5 * np.eye(n), rng.normal(size=n)  # within reach of bfloat16
        for dtype in ("float32", "bfloat16"):
            x, count, error = mo.linalg.solve_refined(mo.asarray(a), mo.asarray(b), factor_dtype=dtype)
            assert error.item() <= 2.0**-52 and 0 < count.item() <= 30
            want = np.linalg.solve(a.astype(np.float64), b)
            assert np.allclose(x.numpy(), want, rtol=1e-11, atol=1e-11)


def test_bits_of_blocked_algorithms_do_not_depend_on_threads(rng: np.random.Generator) -> None:
    a = rng.normal(size=(70, 70)).astype(np.float32)
    spd, b = mo.asarray(a @ a.T + 70 * np.eye(70, dtype=np.float32)), mo.asarray(a[:, :3])

    def all_of() -> list[Array]:
        native = {"algorithm": "native"}
        return [part.numpy() for part in (mo.linalg.cholesky(spd, **native), *mo.linalg.lu(mo.asarray(a), **native),
                                          *mo.linalg.qr(mo.asarray(a), **native),
                                          mo.linalg.solve(mo.asarray(a), b, **native))]

    want = all_of()
    for options in ({"threads": 1}, {"threads": 3}):
        with mo.settings(**options):
            for one, other in zip(all_of(), want, strict=True):
                np.testing.assert_array_equal(one, other)
    whole = mo.compile(lambda a, b: mo.linalg.solve(a, b, algorithm="native"))
    np.testing.assert_array_equal(whole(mo.asarray(a), b).numpy(), want[-1])
    assert whole.stats["host_steps"] == 0


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_ldl_of_hermitian_matrices(dtype: type, rng: np.random.Generator) -> None:
    """What rounding leaves on the diagonal, which is real, does not grow."""
    for n in (5, 33, 100):
        a = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
        a = (a + a.conj().T).astype(dtype)
        p, lower, d = (part.numpy() for part in mo.linalg.ldl(mo.asarray(a)))
        factor = p @ lower
        assert abs(factor @ d @ factor.conj().T - a).max() < 50 * n * np.finfo(dtype).eps * abs(a).max()


@pytest.mark.parametrize("name", ["schur", "ldl", "logm", "sqrtm", "lu", "eig", "expm", "qr", "cholesky"])
def test_matrices_of_no_rows(name: str) -> None:
    found = getattr(mo.linalg, name)(mo.asarray(np.zeros((0, 0))))
    assert all(part.numpy().size == 0 for part in (found if isinstance(found, tuple) else (found,)))
