"""What LAPACK computes is called by its address inside native programs: no step of the host, whatever the size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.kernels.linalg.lapack.kernel import ROUTINES
from morpho.base.errors import ValueFault
from morpho.base.python.blas import routine_address
from morpho.ir.op import REGISTRY
from morpho.runtime.plans import evaluate

L = mo.linalg
pytestmark = pytest.mark.skipif(not routine_address("dgesv"), reason="NumPy carries no OpenBLAS here")
DTYPES = ["float32", "float64", "complex64", "complex128"]
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "eig": L.eig, "eigvals": L.eigvals, "schur": L.schur, "det": L.det, "slogdet": L.slogdet, "logm": L.logm,
    "sqrtm": L.sqrtm, "ldl": L.ldl, "lu": L.lu, "inv": L.inv, "qr": L.qr, "svd": L.svd, "svdvals": L.svdvals,
    "eigh": L.eigh, "eigvalsh": L.eigvalsh, "cholesky": L.cholesky, "pinv": L.pinv,
    "solve": lambda a: L.solve(a, a[..., :2]), "solve_triangular": lambda a: L.solve_triangular(a, a[..., :2])}


def positive(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Hermitian with eigenvalues between 1 and a few, which every function takes."""
    a = drawn(rng, shape, dtype)
    return (a @ np.conj(np.swapaxes(a, -1, -2)) / shape[-1] + np.eye(shape[-1])).astype(dtype)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    parts = rng.normal(0, 1, (2, *shape))
    return (parts[0] + (1j * parts[1] if dtype[0] == "c" else 0)).astype(dtype)


def parts(found: Any) -> list[np.ndarray]:
    return [one.numpy() for one in found] if isinstance(found, tuple) else [found.numpy()]


def exponential(x: np.ndarray) -> np.ndarray:
    """By its series of a 64th, squared six times."""
    total = term = np.eye(len(x), dtype=x.dtype)
    for k in range(1, 25):
        term = term @ x / (64 * k)
        total = total + term
    for _ in range(6):
        total = total @ total
    return total


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_step_of_the_host_is_left(name: str, dtype: str, rng: np.random.Generator) -> None:
    """Small and large, stacked, under vmap, in a compiled function that refuses steps of the host."""
    before = evaluate.counts.host_steps
    for shape in ((5, 5), (2, 34, 34)):
        a = mo.asarray(positive(rng, shape, dtype))
        run = mo.compile(FUNCTIONS[name], whole=True)
        whole = parts(run(a))
        assert run.stats["host_steps"] == 0 and run.stats["fallbacks"] == 0
    mapped = mo.compile(mo.vmap(FUNCTIONS[name]), whole=True)
    for one, other in zip(whole, parts(mapped(a)), strict=True):
        assert one.tobytes() == other.tobytes()
    assert evaluate.counts.host_steps == before


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes_that_are_known_at_the_call_have_the_bits_of_known_ones(name: str, rng: np.random.Generator) -> None:
    n, dtype = mo.Dim("n", 2, 4096), ("float64", "complex64")[len(name) % 2]
    run = mo.compile(lambda a: FUNCTIONS[name](a), dynamic={"a": {0: n, 1: n}}, whole=True)
    for size in (40, 65):
        a = mo.asarray(positive(rng, (size, size), dtype))
        for one, other in zip(parts(run(a)), parts(FUNCTIONS[name](a)), strict=True):
            assert one.tobytes() == other.tobytes(), size
    assert run.stats["recompiles"] == 0 and run.stats["host_steps"] == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpys_bits_where_numpy_calls_the_same_routine(dtype: str, rng: np.random.Generator) -> None:
    for shape in ((1, 1), (6, 6), (2, 40, 40)):
        a = drawn(rng, shape, dtype)
        for name in ("eig", "eigvals", "det", "slogdet"):
            if name in ("det", "slogdet") and dtype[0] == "f" and shape[-1] <= 32:
                continue  # in registers, in an order of their own
            found, want = parts(FUNCTIONS[name](mo.asarray(a))), getattr(np.linalg, name)(a)
            for one, other in zip(found, want if isinstance(want, tuple) else (want,), strict=True):
                assert one.tobytes() == np.ascontiguousarray(other, one.dtype).tobytes(), (name, shape)


def test_a_singular_complex_matrix_has_no_determinant() -> None:
    a = np.ones((4, 4)) * (1 + 2j)
    assert L.det(mo.asarray(a)).item() == 0
    sign, size = L.slogdet(mo.asarray(a))
    assert sign.item() == 0 and size.item() == -np.inf


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("n", [1, 2, 7, 70, 130])
def test_factors_of_indefinite_matrices(n: int, dtype: str, rng: np.random.Generator) -> None:
    """With blocks of two rows, whose zeros on the diagonal no Cholesky factorisation takes, and what is singular."""
    a = drawn(rng, (n, n), dtype)
    a = a + np.conj(a.T)
    np.fill_diagonal(a, 0)
    p, low, d = parts(L.ldl(mo.asarray(np.tril(a))))  # the upper half is not looked at
    outer = p @ low
    np.testing.assert_allclose(outer @ d @ np.conj(outer.T), a, atol=1e-12 * n)
    assert np.array_equal(low, np.tril(low)) and np.all(np.diagonal(low) == 1)
    assert n == 1 or np.any(np.diagonal(d, -1) != 0)
    assert np.array_equal(d, np.conj(d.T)) and not np.any(np.tril(d, -2))
    none = parts(L.ldl(mo.zeros((n, n), dtype=dtype)))
    assert np.array_equal(none[0], np.eye(n)) and not none[2].any()


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_functions_of_matrices_against_their_definitions(dtype: str, rng: np.random.Generator) -> None:
    """Nearly defective, of norms far from one, with eigenvalues beside the negative axis."""
    jordan = np.eye(8) * 2 + np.eye(8, k=1)
    turned = np.kron(np.eye(4), [[np.cos(3), -np.sin(3)], [np.sin(3), np.cos(3)]])
    for a in (positive(rng, (40, 40), dtype), positive(rng, (12, 12), dtype) * 1e6, jordan, turned,
              positive(rng, (12, 12), dtype) * 1e-6):
        root = L.sqrtm(mo.asarray(a.astype(dtype))).numpy()
        np.testing.assert_allclose(root @ root, a, atol=1e-12 * np.abs(a).max())
        back = exponential(L.logm(mo.asarray(a.astype(dtype))).numpy())
        np.testing.assert_allclose(back, a, atol=1e-11 * np.abs(a).max())
    scipy = pytest.importorskip("scipy.linalg", reason="compares with SciPy where it is installed")
    a = drawn(rng, (30, 30), dtype) + 12 * np.eye(30)
    for name in ("sqrtm", "logm"):
        np.testing.assert_allclose(getattr(L, name)(mo.asarray(a)).numpy(), getattr(scipy, name)(a), atol=1e-11)


def test_what_has_no_value_is_told_at_its_line() -> None:
    nilpotent, negative = mo.asarray([[0.0, 1.0], [0.0, 0.0]]), mo.asarray([[-1.0, 0.0], [0.0, 2.0]])
    for call, a, words in ((L.sqrtm, nilpotent, r"\[sqrtm\] a singular matrix that has no square root"),
                           (L.logm, nilpotent, r"\[logm\] a singular matrix has no logarithm"),
                           (L.logm, negative, r"\[logm\] the matrix has an eigenvalue on the negative real axis"),
                           (L.schur, negative * float("nan"), r"\[schur\] array must not contain infs or nans"),
                           (L.eig, negative * float("inf"), r"\[eig\] array must not contain infs or nans")):
        run = mo.compile(call)
        run(mo.eye(2))
        with pytest.raises(ValueFault, match=words):
            run(a)
        with pytest.raises(ValueFault, match=words + r".*test_by_address\.py"):
            parts(call(a))
    assert np.allclose(L.sqrtm(negative.astype("complex64")).numpy(), np.diag([1j, 2**0.5]))


def test_every_routine_is_there_and_every_operation_has_one() -> None:
    hosts = {name for name, op in REGISTRY.items() if op.kind == "host" and "linalg" in (op.vjp.__module__ or "")
             if callable(op.vjp)}
    assert hosts - {"pinv"} <= set(ROUTINES), hosts


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("name", ["svd", "svdvals"])
def test_singular_values_of_infinities_end(name: str, value: float, rng: np.random.Generator) -> None:
    """gesdd alone goes on for ever with some complex matrices."""
    for size in (5, 34):
        a = rng.normal(size=(size, size)) + 1j * rng.normal(size=(size, size))
        a[2, 0] = value
        found = FUNCTIONS[name](mo.asarray(a))
        with pytest.raises(ValueFault, match="svd did not converge"):
            (found if name == "svdvals" else found[1]).numpy()
