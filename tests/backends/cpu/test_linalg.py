"""Small matrices in native code: backward errors on hard ones, the same bits for any batch, threads and ISA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.lowering import lower_linalg
from morpho.base.errors import CompileError, ValueFault
from morpho.base.machine import machine
from morpho.base.python.blas import routine_address
from morpho.ir.op import REGISTRY

L = mo.linalg
Array = Any
SIZES = (1, 2, 3, 6, 7, 8, 13, 32)
ISAS = ("scalar", *{"x86_64": ("avx2",), "aarch64": ("neon",)}.get(machine().architecture, ()))


def hilbert(n: int) -> Array:
    return 1.0 / (np.arange(n)[:, None] + np.arange(n) + 1.0)


def hard(n: int, rng: np.random.Generator) -> dict[str, Array]:
    """Matrices on which careless factorisations lose digits."""
    q, _ = np.linalg.qr(rng.normal(0, 1, (n, n)))
    grades = 10.0 ** -np.linspace(0, 12, n)
    low = rng.normal(0, 1, (n, max(1, n // 2)))
    return {"hilbert": hilbert(n), "graded": grades[:, None] * rng.normal(0, 1, (n, n)) * grades,
            "repeated": (q * np.repeat([1.0, 2.0], [n - n // 2, n // 2])) @ q.T,
            "near singular": (q * np.append(np.ones(n - 1), 1e-13)) @ q.T, "deficient": low @ low.T,
            "zero": np.zeros((n, n)), "huge": rng.normal(0, 1, (n, n)) * 1e30, "tiny": rng.normal(0, 1, (n, n)) * 1e-30,
            "one": np.ones((n, n)), "diagonal": np.diag(np.arange(n, 0, -1.0)), "plain": rng.normal(0, 1, (n, n))}


def stacked(n: int, dtype: str, rng: np.random.Generator) -> Array:
    return np.stack(list(hard(n, rng).values())).astype(dtype)


def within(error: Array, size: Array, dtype: str, times: float) -> None:
    """Errors of matrices, as multiples of the rounding of their own size."""
    error, size = (np.abs(x.astype("f8")).max((-1, -2)) for x in (error, size))
    found = error / (np.maximum(size, 1e-300) * np.finfo(dtype).eps)
    assert np.all(found <= times), found


def orthonormal(columns: Array, dtype: str, times: float) -> None:
    wide = columns.astype("f8")
    within(np.swapaxes(wide, -1, -2) @ wide - np.eye(wide.shape[-1]), np.ones((1, 1)), dtype, times)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_factors_of_hard_matrices(n: int, dtype: str, rng: np.random.Generator) -> None:
    a = stacked(n, dtype, rng)
    wide = a.astype("f8")
    run = mo.compile(lambda a: (*L.lu(a), *L.qr(a), *L.svd(a), L.svdvals(a)))
    p, lower, upper, q, r, u, s, vh, again = (t.numpy() for t in run(mo.asarray(a)))
    assert run.stats["host_steps"] == 0
    within(p @ lower.astype("f8") @ upper - wide, wide, dtype, 4 * n)
    assert np.all(np.abs(np.nan_to_num(lower)) <= 1) and np.all(np.tril(upper, -1) == 0)
    orthonormal(q, dtype, 8 + 2 * n)
    within(q.astype("f8") @ r - wide, wide, dtype, 8 + 2 * n)
    for vectors in (u, np.swapaxes(vh, -1, -2)):
        orthonormal(vectors, dtype, 8 + 2 * n)
    within((u.astype("f8") * s[..., None, :]) @ vh - wide, wide, dtype, 16 + 4 * n)
    assert np.array_equal(s, again) and np.all(s >= 0) and np.all(np.diff(s, axis=-1) <= 0)
    within((s - np.linalg.svd(wide)[1])[..., None], s[..., None], dtype, 8 + 2 * n)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_eigenvalues_of_hard_matrices(n: int, dtype: str, rng: np.random.Generator) -> None:
    a = stacked(n, dtype, rng)
    a = ((a + np.swapaxes(a, -1, -2)) / 2).astype(dtype)
    wide = a.astype("f8")
    garbage = a + np.triu(np.full((n, n), 7, dtype), 1)  # the upper triangle is not looked at
    run = mo.compile(lambda a: (*L.eigh(a), L.eigvalsh(a)))
    values, vectors, again = (t.numpy() for t in run(mo.asarray(garbage)))
    assert run.stats["host_steps"] == 0 and np.array_equal(values, again) and np.all(np.diff(values, axis=-1) >= 0)
    orthonormal(vectors, dtype, 8 + 2 * n)
    within(wide @ vectors - vectors.astype("f8") * values[..., None, :], wide, dtype, 16 + 4 * n)
    within((values - np.linalg.eigvalsh(wide))[..., None], values[..., None], dtype, 8 + 2 * n)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_solves(n: int, dtype: str, rng: np.random.Generator) -> None:
    a = rng.normal(0, 1, (5, n, n)).astype(dtype)
    b = rng.normal(0, 1, (5, n, 11)).astype(dtype)
    positive = (a @ np.swapaxes(a, -1, -2) + np.eye(n)).astype(dtype)
    run = mo.compile(lambda a, b, c: (L.solve(a, b), L.solve(a, b[..., :2]), L.inv(a), L.det(a), *L.slogdet(a),
                                      L.cholesky(c), L.cholesky(c, upper=True)))
    x, few, inverse, det, sign, log, lower, upper = (t.numpy() for t in run(*map(mo.asarray, (a, b, positive))))
    assert run.stats["host_steps"] == 0
    wide = a.astype("f8")
    size = np.abs(wide).max((-1, -2), keepdims=True) * np.abs(x).max((-1, -2), keepdims=True)
    within(wide @ x - b, size, dtype, 4 * n)
    assert np.array_equal(few, x[..., :2])  # one column more or less: in registers, or row by row
    size = np.abs(wide).max((-1, -2), keepdims=True) * np.abs(inverse).max((-1, -2), keepdims=True)
    within(wide @ inverse - np.eye(n), size, dtype, 4 * n)
    condition = np.linalg.cond(wide)
    np.testing.assert_array_less(np.abs(det / np.linalg.det(wide) - 1), 1e-15 + condition * n * np.finfo(dtype).eps)
    assert np.array_equal(sign, np.sign(det))
    np.testing.assert_allclose(log, np.log(np.abs(np.linalg.det(wide))), rtol=1e-3, atol=1e-3)
    within(lower.astype("f8") @ np.swapaxes(lower, -1, -2) - positive, positive, dtype, 4 + n)
    assert np.array_equal(upper, np.swapaxes(lower, -1, -2)) and np.all(np.triu(lower, 1) == 0)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (32, 1), (1, 7), (31, 32), (9, 8)])
def test_matrices_that_are_not_square(shape: tuple[int, int], rng: np.random.Generator) -> None:
    a = rng.normal(0, 1, (3, *shape))
    a[1, :, 0] = 0
    a[2] = np.outer(a[2, :, 0], a[2, 0])
    inner = min(shape)
    for full in (False, True):
        u, s, vh = (t.numpy() for t in L.svd(a, full_matrices=full))
        q, r = (t.numpy() for t in L.qr(a, mode="complete" if full else "reduced"))
        for vectors in (u, np.swapaxes(vh, -1, -2), q):
            orthonormal(vectors, "float64", 40)
        within((u[..., :inner] * s[..., None, :]) @ vh[..., :inner, :] - a, a, "float64", 100)
        within(q @ r - a, a, "float64", 100)
        assert np.all(np.tril(r, -1) == 0)


def results(a: Array, run: Callable[..., Any]) -> bytes:
    return b"".join(t.numpy().tobytes() for t in run(a))


@pytest.mark.parametrize(("n", "dtype"), [(1, "float32"), (3, "float64"), (4, "float32"), (9, "float64")])
def test_bits_depend_on_the_matrix_alone(n: int, dtype: str, rng: np.random.Generator) -> None:
    """Not on the batch, the threads, the instruction set, or how it lies in memory."""
    a = rng.normal(0, 1, (37, n, n)).astype(dtype)
    a = (a @ np.swapaxes(a, -1, -2) + np.eye(n)).astype(dtype)

    def every(a: mo.Tensor) -> tuple[mo.Tensor, ...]:
        return (L.inv(a), L.det(a), *L.slogdet(a), L.cholesky(a), L.solve(a, a[..., :1]), *L.lu(a), *L.qr(a),
                *L.svd(a), *L.eigh(a), L.solve_triangular(a, a[..., :2]))

    wanted = [t.numpy() for t in mo.compile(every)(mo.asarray(a))]
    for isa in ISAS:
        for threads in (1, 2):
            with mo.settings(isa=isa, threads=threads):
                found = results(mo.asarray(a), mo.compile(every))
                assert found == b"".join(t.tobytes() for t in wanted), (isa, threads)
    single = mo.compile(every)
    for number in (0, 36):
        assert results(mo.asarray(a[number]), single) == b"".join(t[number].tobytes() for t in wanted)
    turned = mo.asarray(np.asfortranarray(a.transpose(1, 2, 0)))  # other strides, two axes in a batch
    moved = mo.compile(lambda t: every(mo.permute_dims(t, (2, 0, 1))[:36].reshape((4, 9, n, n))))
    for got, want in zip(moved(turned), wanted, strict=True):
        assert got.numpy().tobytes() == want[:36].tobytes()


def test_what_cannot_be_factorised_is_an_error_at_its_line() -> None:
    good, bad = mo.asarray([[2.0, 0.0], [0.0, 1.0]]), mo.asarray([[1.0, 2.0], [2.0, 4.0]])
    for call, matrix, words in [(L.inv, bad, "singular"), (lambda a: L.solve(a, a), bad, "singular"),
                                (L.cholesky, -good, "not positive definite"),
                                (lambda a: L.solve_triangular(a, a), bad - bad, "singular"),
                                (lambda a: L.eigh(a)[0], good * float("nan"), "did not converge"),
                                (L.svdvals, good * float("inf"), "did not converge")]:
        for count in (1, 20):
            large = mo.kron(mo.eye(count // 2 + 1), matrix).realise()
            with pytest.raises(ValueFault, match=rf"{words}.*test_linalg\.py"):
                call(large).numpy()
            compiled = mo.compile(call)
            fine = mo.kron(mo.eye(count // 2 + 1), good).realise()
            for _ in range(2):
                compiled(fine)
            with pytest.raises(ValueFault, match=rf"{words}.*test_linalg\.py"):
                compiled(large)
            assert compiled.native_calls == 2 and compiled.stats["host_steps"] == 0
    assert L.det(bad).item() == 0 and L.slogdet(bad).logabsdet.item() == -np.inf


def test_a_bad_matrix_anywhere_in_a_batch_is_found(rng: np.random.Generator) -> None:
    for place in (0, 7, 100):
        a = rng.normal(0, 1, (101, 3, 3))
        a[place] = 0
        with pytest.raises(ValueFault, match="singular"):
            L.inv(a).numpy()


def test_numbers_that_are_none_go_through(rng: np.random.Generator) -> None:
    for n in (3, 9):
        a = rng.normal(0, 1, (n, n))
        a[0, 0] = np.nan
        for found in (L.inv(a), L.det(a), L.qr(a).R):
            assert np.isnan(found.numpy()).any()


def test_larger_ones_are_lapack_s_and_small_ones_whole(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
                                                       ) -> None:
    monkeypatch.setattr(lower_linalg, "routine_address", lambda name: 0)  # as where NumPy has another BLAS
    for n, steps in ((32, 0), (33, 1)):
        a = mo.asarray(rng.normal(0, 1, (n, n)))
        run = mo.compile(L.eigvals if steps else L.inv)
        run(a), run(a)
        assert run.stats["host_steps"] == steps and run.native_calls == 1
    whole = mo.compile(L.inv, whole=True)
    assert np.allclose(whole(mo.eye(3)).numpy(), np.eye(3))
    whole = mo.compile(L.eigvals, whole=True)
    with pytest.raises(CompileError, match="eigvals runs on the host"):
        whole(mo.eye(33))


def test_any_batch_at_any_size() -> None:
    n = mo.Dim("n", 0, 64)
    run = mo.compile(lambda a, b: (L.solve(a, b), L.det(a)), dynamic={"a": {0: n}, "b": {0: n}})
    for count in (0, 1, 5, 64):
        a, b = np.broadcast_to(2 * np.eye(4), (count, 4, 4)).copy(), np.ones((count, 4, 3))
        x, det = run(mo.asarray(a), mo.asarray(b))
        assert np.array_equal(x.numpy(), b / 2) and np.array_equal(det.numpy(), np.full(count, 16.0))
    assert run.stats["recompiles"] == 0


# -- LAPACK by its address ------------------------------------------------------------------------------------------
def conjugate(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(40, 40), (2, 35, 35)])
def test_lapack_is_called_natively_with_numpys_bits(dtype: str, shape: tuple[int, ...],
                                                    rng: np.random.Generator) -> None:
    if not routine_address("dgesv"):
        pytest.skip("NumPy carries no OpenBLAS here: these are steps of the host")
    parts = rng.normal(0, 1, (2, *shape))
    a = (parts[0] + (1j * parts[1] if dtype[0] == "c" else 0)).astype(dtype) + np.eye(shape[-1], dtype=dtype) * 9
    b, s = a[..., :3].copy(), a @ conjugate(a)
    cases: list[tuple[Any, list[np.ndarray], np.ndarray]] = [
        (L.inv, [a], np.linalg.inv(a)), (L.solve, [a, b], np.linalg.solve(a, b)),
        (L.cholesky, [s], np.linalg.cholesky(s)), (lambda a: L.inv(a.mT), [a], np.linalg.inv(np.swapaxes(a, -1, -2))),
        (lambda s: L.cholesky(s, upper=True), [s], conjugate(np.linalg.cholesky(s)))]
    for function, given, want in cases:
        f = mo.compile(function, whole=True)
        found = f(*[mo.asarray(x) for x in given]).numpy()
        assert found.tobytes() == np.ascontiguousarray(want).tobytes()
        assert f.stats["host_steps"] == 0 and "called by its address" in f.explain()


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(40, 40), (2, 50, 33), (3, 34, 60), (130, 7)])
def test_factorisations_by_lapack_have_numpys_bits(dtype: str, shape: tuple[int, ...],
                                                   rng: np.random.Generator) -> None:
    """Of results with signs as the reference has them; determinants of real matrices only."""
    if not routine_address("dgesdd"):
        pytest.skip("NumPy carries no OpenBLAS here: these are steps of the host")
    parts = rng.normal(0, 1, (2, *shape))
    a = (parts[0] + (1j * parts[1] if dtype[0] == "c" else 0)).astype(dtype)
    s = a @ conjugate(a)
    cases: list[tuple[str, np.ndarray, dict[str, Any]]] = [
        *(("qr", a, {"mode": mode}) for mode in ("reduced", "complete")),
        *(("svd", a, {"full_matrices": full}) for full in (False, True)), ("svdvals", a, {}), ("eigh", s, {}),
        ("eigvalsh", s, {}), *((name, s[..., ::-1], {}) for name in ("det", "slogdet") if dtype[0] == "f")]
    for name, given, options in cases:
        f = mo.compile(lambda x, name=name, options=options: getattr(L, name)(x, **options), whole=True)
        found, want = f(mo.asarray(given)), REGISTRY[name].reference(options, given)
        pairs = zip(found, want, strict=True) if isinstance(want, tuple) else [(found, want)]
        for own, other in pairs:
            assert own.numpy().tobytes() == np.ascontiguousarray(other, own.numpy().dtype).tobytes(), name
        assert f.stats["host_steps"] == 0 and "called by" in f.explain()


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_pseudo_inverses_of_lower_rank_are_native(dtype: str, rng: np.random.Generator) -> None:
    for shape in ((40, 40), (3, 5, 4), (2, 3, 36), (0, 4)):
        parts = rng.normal(0, 1, (2, *shape))
        a = (parts[0] + (1j * parts[1] if dtype[0] == "c" else 0)).astype(dtype)
        if a.size:
            a[..., -1, :] = a[..., 0, :]
        f = mo.compile(L.pinv, whole=True)
        found, want = f(mo.asarray(a)).numpy(), REGISTRY["pinv"].reference({}, a)
        np.testing.assert_allclose(found, want, atol=3e-5 if dtype == "float32" else 1e-12)
        # forward and reverse mode by their own formulas: singular vectors of equal values would have no derivative
        if a.size:
            _, slope = mo.jvp(L.pinv, (mo.asarray(a),), (mo.asarray(a),))  # pinv(ca) = pinv(a) / c
            np.testing.assert_allclose(slope.numpy(), -want, atol=3e-4 if dtype == "float32" else 1e-10)


def test_lapack_that_finds_no_answer_is_a_fault() -> None:
    nothing = mo.full((40, 40), float("nan"), dtype="float64")
    g = mo.compile(L.svd)
    g(mo.eye(40, dtype="float64"))
    with pytest.raises(ValueFault):
        g(nothing)
    assert np.isnan(mo.compile(L.eigh)(nothing)[0].numpy()).all()  # as NumPy's


def test_lapack_inside_a_loop_and_its_faults(rng: np.random.Generator) -> None:
    a = rng.normal(0, 1, (40, 40)) + 9 * np.eye(40)
    f = mo.compile(lambda a: mo.fori_loop(0, 4, lambda i, x: L.inv(x) * 2, a))
    want = a
    for _ in range(4):
        want = np.linalg.inv(want) * 2
    np.testing.assert_array_equal(f(mo.asarray(a)).numpy(), want)
    for function, word in ((L.inv, "singular"), (L.cholesky, "positive definite")):
        g = mo.compile(function)
        g(mo.eye(40, dtype="float64"))
        with pytest.raises(ValueFault, match=word):
            g(-mo.ones((40, 40), dtype="float64"))


def test_without_the_routine_it_is_a_host_step(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr(lower_linalg, "routine_address", lambda name: 0)
    a = rng.normal(0, 1, (41, 41))
    f = mo.compile(L.inv)
    np.testing.assert_array_equal(f(mo.asarray(a)).numpy(), np.linalg.inv(a))
    assert f.stats["host_steps"] == 1 and "host   inv" in f.explain()
