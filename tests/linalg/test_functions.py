"""The rest of `mo.linalg`: functions of matrices, structured matrices, norms; gradients, stacks, wrong input."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, MorphoError, ShapeError, ValueFault

Array = Any


def exactly(name: str, a: Array) -> Array:
    """The function in 60 digits."""
    with mpmath.workdps(60):
        found = getattr(mpmath, name)(mpmath.matrix(a.tolist()))
        return np.array(found.tolist(), dtype=complex).reshape(a.shape)


def close(found: Any, want: Array, tolerance: float = 1e-12) -> None:
    assert np.abs(found.numpy() - want).max(initial=0) <= tolerance * max(1, np.abs(want).max(initial=0))


@pytest.mark.parametrize("scale", [1e-9, 0.1, 1.0, 10.0, 60.0])
def test_the_exponential(scale: float, rng: np.random.Generator) -> None:
    a = scale * rng.normal(size=(4, 4))
    close(mo.linalg.expm(a), exactly("expm", a).real, 1e-12 * max(1, scale))
    single = exactly("expm", a.astype(np.float32)).real
    if np.abs(single).max() < np.finfo(np.float32).max / 10:  # others overflow
        close(mo.linalg.expm(a.astype(np.float32)), single, 1e-5 * max(1, scale))
    both = np.stack([a, a / 3, 0 * a])
    for batch in (mo.linalg.expm(both), mo.vmap(mo.linalg.expm)(mo.asarray(both))):
        for one, part in zip(both, batch, strict=True):
            close(part, exactly("expm", one).real, 1e-12 * max(1, scale))
    close(mo.linalg.expm(1j * a), exactly("expm", 1j * a), 1e-12 * max(1, scale))
    run = mo.compile(mo.linalg.expm)
    assert np.array_equal(run(mo.asarray(a)).numpy(), mo.linalg.expm(a).numpy()) and run.stats["host_steps"] == 0


def test_nilpotent_and_defective_matrices() -> None:
    jordan = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    e = np.e
    close(mo.linalg.expm(jordan), np.array([[e, e, e / 2], [0, e, e], [0, 0, e]]))
    close(mo.linalg.logm(mo.linalg.expm(jordan)), jordan, 1e-13)
    root = mo.linalg.sqrtm(jordan)
    close(root @ root, jordan, 1e-14)
    assert np.isnan(mo.linalg.expm(np.full((2, 2), np.nan)).numpy()).all()


def test_roots_and_logarithms(rng: np.random.Generator) -> None:
    for n in (1, 3, 12):
        a = rng.normal(size=(n, n))
        a = a @ a.T + np.eye(n) * 0.1 + 0.01 * rng.normal(size=(n, n))
        close(mo.linalg.sqrtm(a) @ mo.linalg.sqrtm(a), a, 1e-12)
        close(mo.linalg.expm(mo.linalg.logm(a)), a, 1e-12)
    mixed = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4)) + 3 * np.eye(4)
    close(mo.linalg.sqrtm(mixed) @ mo.linalg.sqrtm(mixed), mixed, 1e-11)
    close(mo.linalg.logm(mixed[:3, :3]), exactly("logm", mixed[:3, :3]), 1e-9)
    stack = np.stack([np.eye(2), 4 * np.eye(2)])
    close(mo.linalg.sqrtm(stack), np.stack([np.eye(2), 2 * np.eye(2)]))
    with pytest.raises(ValueFault, match="complex dtype"):
        mo.linalg.sqrtm(np.diag([-1.0, 1.0])).numpy()
    with pytest.raises(ValueFault, match="no logarithm"):
        mo.linalg.logm(np.zeros((2, 2))).numpy()
    with pytest.raises(ValueFault, match="no square root"):
        mo.linalg.sqrtm(np.array([[0.0, 1.0], [0.0, 0.0]])).numpy()


def slopes(f: Any, a: Array, step: float = 1e-6) -> Array:
    found = np.zeros_like(a)
    for place in np.ndindex(*a.shape):
        moved = [a.copy() for _ in range(2)]
        moved[0][place] += step
        moved[1][place] -= step
        found[place] = (float(f(mo.asarray(moved[0]))) - float(f(mo.asarray(moved[1])))) / (2 * step)
    return found


@pytest.mark.parametrize("name", ["expm", "sqrtm", "logm", "eigvals", "eig", "cond", "norm", "solve_toeplitz",
                                  "blocked"])
def test_gradients(name: str, rng: np.random.Generator) -> None:
    a = rng.normal(size=(3, 3))
    a = a @ a.T + np.eye(3) + 0.2 * rng.normal(size=(3, 3))
    w = mo.asarray(rng.normal(size=(3, 3)))
    functions = {
        "eigvals": lambda x: mo.sum(mo.abs(mo.linalg.eigvals(x)) ** 3), "cond": mo.linalg.cond,
        "eig": lambda x: mo.sum(mo.abs(mo.linalg.eig(x).eigenvectors) ** 4 * w),
        "norm": lambda x: mo.linalg.norm(x, ord=1), "solve_toeplitz": lambda x: mo.sum(
            mo.linalg.solve_toeplitz(x[0], x[1], r=mo.concat([x[0, :1], x[2, 1:]]))),
        "blocked": lambda x: mo.sum(mo.linalg.solve(x, w, algorithm="native"))}
    function = functions.get(name, lambda x: mo.sum(getattr(mo.linalg, name)(x) * w))
    found, want = mo.grad(function)(mo.asarray(a)).numpy(), slopes(function, a)
    assert np.abs(found - want).max() <= 1e-5 * (1 + np.abs(want).max()), (found, want)


def test_gradients_of_large_native_factors(rng: np.random.Generator) -> None:
    a = rng.normal(size=(40, 40))
    a = a @ a.T + 40 * np.eye(40)

    def value(x: Any, algorithm: str) -> Any:
        return mo.sum(mo.log(mo.linalg.diagonal(mo.linalg.cholesky((x + x.T) / 2, algorithm=algorithm))))

    native = mo.grad(lambda x: value(x, "native"))(mo.asarray(a)).numpy()
    assert np.allclose(native, np.linalg.inv(a) / 2, atol=1e-10)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 4), (4, 1), (2, 40, 37), (2, 3, 37, 50), (0, 3), (2, 0, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_lu_of_rectangular_matrices_is_scipys(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> None:
    """With its P too, ties and singular matrices included; in larger ones rounding decides between equal pivots."""
    scipy = pytest.importorskip("scipy.linalg", reason="compares with SciPy where it is installed")
    whole = rng.integers(-3, 4, shape).astype(dtype) * (1 if dtype[0] == "f" else 1 + 2j)
    for a in (whole, whole * 0, rng.normal(size=shape).astype(dtype)):
        found, want = mo.linalg.lu(a), scipy.lu(a)
        if a is whole and min(shape[-2:]) > 5:
            p, low, up = (part.numpy() for part in found)
            assert np.allclose(p @ low @ up, a, atol=1e-4 if dtype == "float32" else 1e-10)
            assert np.abs(low).max() <= (1 if dtype[0] == "f" else 2 ** 0.5) + 1e-6  # LAPACK compares |re| + |im|
            continue
        np.testing.assert_array_equal(found.P.numpy(), want[0])
        for mine, its in zip(found[1:], want[1:], strict=True):
            assert mine.shape == its.shape
            assert np.allclose(mine.numpy(), its, atol=1e-4 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 4, 2)])
def test_gradients_of_rectangular_lu(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    a, step = rng.normal(size=shape), 1e-6
    weights = [mo.asarray(rng.normal(size=part.shape)) for part in mo.linalg.lu(a)[1:]]

    def value(x: Any) -> Any:
        return sum(mo.sum(part * weight) for part, weight in zip(mo.linalg.lu(x)[1:], weights, strict=True))

    slope = mo.grad(value)(mo.asarray(a)).numpy()
    for place in np.ndindex(shape):
        move = np.zeros(shape)
        move[place] = step
        numeric = (value(mo.asarray(a + move)).item() - value(mo.asarray(a - move)).item()) / (2 * step)
        assert np.isclose(slope[place], numeric, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(slope).max()))


def test_a_gradient_at_equal_eigenvalues_is_finite() -> None:
    slope = mo.grad(lambda x: mo.sum(mo.real(mo.linalg.eigvals(x))))(mo.asarray(np.eye(3))).numpy()
    assert np.allclose(slope, np.eye(3))
    assert np.isfinite(mo.grad(lambda x: mo.sum(mo.linalg.expm(x)))(mo.asarray(np.eye(3))).numpy()).all()


def test_structured_matrices(rng: np.random.Generator) -> None:
    c, r, b = rng.normal(size=(3, 9))
    c[0] = r[0] = 12.0
    at = np.subtract.outer(np.arange(9), np.arange(9))
    full = np.where(at >= 0, c[np.abs(at)], r[np.abs(at)])
    close(mo.linalg.toeplitz(c, r), full)
    close(mo.linalg.toeplitz(c), c[np.abs(at)])
    close(mo.linalg.toeplitz(c[:3], r), full[:3])
    close(mo.linalg.solve_toeplitz(c, b, r=r), np.linalg.solve(full, b))
    close(mo.linalg.solve_toeplitz(c, b), np.linalg.solve(c[np.abs(at)], b))
    close(mo.linalg.solve_toeplitz((mo.asarray(c), r), np.stack([b, c], 1)), np.linalg.solve(full, np.stack([b, c], 1)))
    round_ = c[at % 9]
    close(mo.linalg.circulant(c), round_)
    close(mo.linalg.solve_circulant(c, b), np.linalg.solve(round_, b))
    close(mo.linalg.solve_circulant(c, np.stack([b, 2 * b], 1)), np.linalg.solve(round_, np.stack([b, 2 * b], 1)))
    close(mo.linalg.solve_circulant(c + 1j, b), np.linalg.solve((c + 1j)[at % 9], b))
    blocks = [rng.normal(size=s) for s in ((2, 3), (1, 1), (4, 2))]
    want = np.zeros((7, 6))
    want[:2, :3], want[2:3, 3:4], want[3:, 4:] = blocks
    close(mo.linalg.block_diag(*blocks), want)
    close(mo.linalg.kron(blocks[0], blocks[2]), np.kron(blocks[0], blocks[2]))
    chain = [rng.normal(size=s) for s in ((3, 20), (20, 2), (2, 30), (30,))]
    close(mo.linalg.multi_dot(chain), np.linalg.multi_dot(chain))
    close(mo.linalg.multi_dot([blocks[0][0], *chain[:0], blocks[0].T]), blocks[0][0] @ blocks[0].T)


def test_norms_and_condition_numbers(rng: np.random.Generator) -> None:
    a = rng.normal(size=(5, 5))
    for order in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        close(mo.linalg.norm(a, ord=order), np.linalg.norm(a, order))
    for order in (None, 1, 2, 3, np.inf, 0):
        close(mo.linalg.norm(a[0], ord=order), np.linalg.norm(a[0], order))
        close(mo.linalg.norm(a, ord=order, axis=1, keepdims=True), np.linalg.norm(a, order, axis=1, keepdims=True))
    stack = rng.normal(size=(2, 3, 4))
    close(mo.linalg.norm(stack, ord=1, axis=(0, 2)), np.linalg.norm(stack, 1, axis=(0, 2)))
    for p in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro"):
        close(mo.linalg.cond(a, p=p), np.linalg.cond(a, p), 1e-10)


def test_few_singular_values(rng: np.random.Generator) -> None:
    u, v = (np.linalg.qr(rng.normal(size=(n, 30)))[0] for n in (80, 60))
    s = 2.0 ** -np.arange(30)
    a = (u * s) @ v.T
    found = mo.linalg.svd_lowrank(mo.asarray(a), 5)
    assert np.allclose(found.S.numpy(), s[:5], rtol=1e-6)
    best = np.linalg.norm(a - (u[:, :5] * s[:5]) @ v[:, :5].T)
    assert np.linalg.norm(a - (found.U.numpy() * found.S.numpy()) @ found.Vh.numpy()) <= 1.01 * best
    again = mo.linalg.svd_lowrank(mo.asarray(a), 5)
    assert np.array_equal(again.U.numpy(), found.U.numpy())


def test_stacks(rng: np.random.Generator) -> None:
    a = rng.normal(size=(2, 3, 4, 4))
    values, vectors = mo.linalg.eig(a)
    assert np.allclose(a @ vectors.numpy(), vectors.numpy() * values.numpy()[..., None, :])
    t, z = (part.numpy() for part in mo.linalg.schur(a))
    assert np.allclose(z @ t @ np.conj(np.swapaxes(z, -1, -2)), a)
    each = mo.vmap(mo.vmap(lambda x: mo.linalg.eigvals(x)))(mo.asarray(a)).numpy()
    assert np.allclose(each, values.numpy())
    p, low, d = (part.numpy() for part in mo.linalg.ldl(a + np.swapaxes(a, -1, -2)))
    turned = np.swapaxes
    assert np.allclose(p @ low @ d @ turned(low, -1, -2) @ turned(p, -1, -2), a + turned(a, -1, -2))


def test_wrong_input_is_told() -> None:
    wrong: list[Any] = [
        (lambda: mo.linalg.eig(mo.ones((2, 3))), ShapeError), (lambda: mo.linalg.expm(mo.ones((2, 3))), ShapeError),
        (lambda: mo.linalg.expm([[1, 2], [3, 4]]), DTypeError), (lambda: mo.linalg.sqrtm(mo.ones(3)), ShapeError),
        (lambda: mo.linalg.cholesky(mo.eye(2), algorithm="fast"), ArgumentError),
        (lambda: mo.linalg.cholesky(mo.ones((2, 2, 2)), algorithm="native"), ShapeError),
        (lambda: mo.linalg.lu(mo.ones((2, 2), dtype="complex64"), algorithm="native"), DTypeError),
        (lambda: mo.linalg.qr(mo.eye(2), mode="complete", algorithm="native"), ArgumentError),
        (lambda: mo.linalg.solve(mo.eye(2), mo.ones(3), algorithm="native"), ShapeError),
        (lambda: mo.linalg.solve_refined(mo.eye(2), mo.ones(2)), ArgumentError),
        (lambda: mo.linalg.solve_refined(mo.eye(2, dtype="float64"), mo.ones(2, dtype="float64"),
                                         factor_dtype="float64"), ArgumentError),
        (lambda: mo.linalg.svd_lowrank(mo.ones((3, 3)), 4), ShapeError),
        (lambda: mo.linalg.multi_dot([1]), MorphoError),
        (lambda: mo.linalg.block_diag(), ArgumentError), (lambda: mo.linalg.toeplitz([]), ShapeError),
        (lambda: mo.linalg.solve_toeplitz([1.0, 2.0], [1.0]), ShapeError),
        (lambda: mo.linalg.solve_circulant([1.0, 2.0], [1.0]), ShapeError),
        (lambda: mo.linalg.cond(mo.eye(2), p=3), ArgumentError),
        (lambda: mo.linalg.norm(mo.ones((2, 2, 2)), ord=1), ArgumentError),
        (lambda: mo.linalg.eig(np.full((2, 2), np.nan)).eigenvalues.numpy(), ValueFault),
        (lambda: mo.linalg.schur(np.full((2, 2), np.nan)).T.numpy(), ValueFault),
    ]
    for bad, kind in wrong:
        with pytest.raises(kind):
            bad()


@pytest.mark.parametrize("algorithm", ["auto", "native"])
def test_refined_solves_by_either_way(algorithm: str, rng: np.random.Generator) -> None:
    """Right sides of any number, in any order of memory; what float32 cannot factorise is told by the error."""
    a, b = rng.normal(size=(50, 50)), rng.normal(size=(50, 3))
    for left, right in ((a, b), (a, b[:, 0]), (a.T, b), (np.asfortranarray(a), b[:, ::2])):
        x, _, error = mo.linalg.solve_refined(mo.asarray(left), mo.asarray(right), algorithm=algorithm)
        np.testing.assert_allclose(x.numpy(), np.linalg.solve(left, right), rtol=1e-9, atol=1e-11)
        assert x.shape == right.shape and error.item() <= 2.0**-52
    one = np.ones((40, 40))
    if algorithm == "auto":
        assert not mo.linalg.solve_refined(mo.asarray(one), mo.asarray(b[:40])).backward_error.item() <= 2.0**-52
    else:
        with pytest.raises(ValueFault, match="singular matrix"):
            mo.linalg.solve_refined(mo.asarray(one), mo.asarray(b[:40]), algorithm="native").x.numpy()
    none = mo.linalg.solve_refined(mo.asarray(a), mo.zeros((50, 2), dtype="float64"), algorithm=algorithm)
    assert not none.x.numpy().any() and none.backward_error.item() == 0


def test_refined_solves_of_stacks_and_their_gradients(rng: np.random.Generator) -> None:
    """A stack is a stack of solves, under vmap too; gradients are those of a solve, sizes may be dynamic."""
    a, b = mo.asarray(rng.normal(size=(3, 40, 40))), mo.asarray(rng.normal(size=(3, 40, 2)))
    x, count, error = mo.linalg.solve_refined(a, b)
    assert count.shape == error.shape == (3,) and (error.numpy() <= 2.0**-52).all()
    for number in range(3):
        alone = mo.linalg.solve_refined(a[number], b[number])
        assert alone.x.numpy().tobytes() == x[number].numpy().tobytes()
    mapped = mo.vmap(lambda a, b: mo.linalg.solve_refined(a, b).x, in_axes=(0, None))(a, b[0])
    assert mapped.numpy().tobytes() == mo.linalg.solve_refined(a, b[0]).x.numpy().tobytes()

    def loss(solve: Any) -> Any:
        return mo.grad(lambda a, b: mo.sum(mo.sin(solve(a, b))), argnums=(0, 1))(a, b)

    for one, other in zip(loss(lambda a, b: mo.linalg.solve_refined(a, b).x), loss(mo.linalg.solve), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-7, atol=1e-9 * np.abs(other.numpy()).max())
    n = mo.Dim("n", 2, 512)
    run = mo.compile(lambda a, b: mo.linalg.solve_refined(a, b).x, dynamic={"a": {0: n, 1: n}, "b": {0: n}})
    for size in (40, 33):
        given = mo.asarray(rng.normal(size=(size, size))), mo.asarray(rng.normal(size=(size, 2)))
        assert run(*given).numpy().tobytes() == mo.linalg.solve_refined(*given).x.numpy().tobytes()
    assert run.stats["recompiles"] == 0 and run.stats["host_steps"] == 0


def test_refined_solves_refuse_what_does_not_align() -> None:
    a, b = mo.eye(4, dtype="float64"), mo.ones(4, dtype="float64")
    for left, right, options in ((a[:3], b, {}), (a, b[:3], {}), (a[0], b, {}), (a, b, {"maxiter": -1}),
                                 (a, mo.ones((), dtype="float64"), {}), (a, b, {"algorithm": "fast"})):
        with pytest.raises(mo.errors.MorphoError, match=r"\[solve_refined\]"):
            mo.linalg.solve_refined(left, right, **options)


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (0, 0)])
@pytest.mark.parametrize("dtype", ["float16", "float64", "complex128"])
def test_an_exponential_of_nothing(shape: tuple[int, ...], dtype: str) -> None:
    found = mo.linalg.expm(mo.zeros(shape, dtype=dtype))
    assert found.shape == shape and found.dtype == dtype
