"""Every name of linear algebra takes one matrix, stacks, complex numbers and `vmap`, and gives the same for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo

L = mo.linalg
ONE: dict[str, Callable[[Any], Any]] = {
    "svd": L.svd, "svdvals": L.svdvals, "eig": L.eig, "eigvals": L.eigvals, "qr": L.qr, "lu": L.lu, "schur": L.schur,
    "inv": L.inv, "pinv": L.pinv, "det": L.det, "slogdet": L.slogdet, "matrix_rank": L.matrix_rank,
    "matrix_power": lambda a: L.matrix_power(a, 3), "expm": L.expm, "logm": L.logm, "sqrtm": L.sqrtm,
    "norm": lambda a: L.norm(a, axis=(-2, -1)), "cond": L.cond,
    "eigh": L.eigh, "cholesky": L.cholesky, "ldl": L.ldl,
}
TWO: dict[str, Callable[[Any, Any], Any]] = {"solve": L.solve, "lstsq": lambda a, b: L.lstsq(a, b)[0],
                                             "solve_triangular": lambda a, b: L.solve_triangular(mo.tril(a), b)}


def parts(found: Any) -> list[np.ndarray]:
    return [part.numpy() for part in found] if isinstance(found, tuple) else [found.numpy()]


def stack(rng: np.random.Generator, dtype: str) -> Any:
    """Hermitian, positive definite and well conditioned: every function takes them."""
    a = rng.normal(size=(3, 4, 4)) + (1j * rng.normal(size=(3, 4, 4)) if dtype[0] == "c" else 0)
    return mo.asarray((a @ np.conj(np.swapaxes(a, -1, -2)) + 4 * np.eye(4)).astype(dtype))


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_stacks_vmap_and_single_matrices_agree(name: str, dtype: str, rng: np.random.Generator) -> None:
    a = stack(rng, dtype)
    given: tuple[Any, ...] = (a,) if name in ONE else (a, a[:, :, :2] + 1)
    function: Callable[..., Any] = ONE.get(name) or TWO[name]
    whole = parts(function(*given))
    mapped = parts(mo.vmap(function)(*given))
    single = [parts(function(*[x[n] for x in given])) for n in range(3)]
    close = 1e-9 if dtype != "float32" else 1e-3
    for place, part in enumerate(whole):
        each = np.stack([one[place] for one in single])
        np.testing.assert_allclose(mapped[place], part, rtol=close, atol=close)
        np.testing.assert_allclose(each, part, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_what_matrix_functions_and_factors_promise(dtype: str, rng: np.random.Generator) -> None:
    """A factorisation gives its matrix back, a root squares to it, a logarithm's exponential is it."""
    a = stack(rng, dtype)
    want, adjoint = a.numpy(), lambda x: np.conj(np.swapaxes(x, -1, -2))
    t, z = parts(L.schur(a))
    np.testing.assert_allclose(z @ t @ adjoint(z), want, atol=1e-10)
    assert abs(np.tril(t, -1)).max() < 1e-10
    p, low, d = parts(L.ldl(a))
    np.testing.assert_allclose(p @ low @ d @ adjoint(p @ low), want, atol=1e-10)
    root = L.sqrtm(a).numpy()
    np.testing.assert_allclose(root @ root, want, atol=1e-10)
    np.testing.assert_allclose(L.expm(L.logm(a)).numpy(), want, atol=1e-9)


STRUCTURED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "kron": (L.kron, ((2, 3), (3, 2))), "block_diag": (L.block_diag, ((2, 3), (3, 2), (1, 1))),
    "multi_dot": (lambda a, b, c: L.multi_dot([a, b, c]), ((2, 5), (5, 3), (3, 4))),
    "toeplitz": (L.toeplitz, ((4,), (3,))), "circulant": (L.circulant, ((4,),)),
    "solve_toeplitz": (lambda c, b: L.solve_toeplitz(c + 9 * mo.astype(mo.arange(4) == 0, c.dtype), b), ((4,), (4,))),
    "solve_circulant": (lambda c, b: L.solve_circulant(c + 9 * mo.astype(mo.arange(4) == 0, c.dtype), b),
                        ((4,), (4,)))}


def structured(name: str, parts: list[Any]) -> Any:
    """SciPy's, of NumPy's arrays."""
    scipy = pytest.importorskip("scipy.linalg")
    if name == "multi_dot":
        return np.linalg.multi_dot(parts)
    if name.startswith("solve"):
        first = parts[0] + 9 * (np.arange(4) == 0)
        return getattr(scipy, name)(first, parts[1])
    return np.kron(*parts) if name == "kron" else getattr(scipy, name)(*parts)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", STRUCTURED)
def test_structured_names_are_complex_under_vmap_and_have_gradients(name: str, dtype: str,
                                                                    rng: np.random.Generator) -> None:
    function, shapes = STRUCTURED[name]
    given = [rng.normal(size=(2, *s)) + (1j * rng.normal(size=(2, *s)) if dtype[0] == "c" else 0) for s in shapes]
    mapped = mo.vmap(function)(*map(mo.asarray, given)).numpy()
    for number in range(2):
        own = [x[number] for x in given]
        np.testing.assert_allclose(mapped[number], structured(name, own), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(function(*map(mo.asarray, own)).numpy(), mapped[number], rtol=1e-12, atol=1e-12)
    weight = rng.normal(size=mapped.shape[1:])

    def loss(*own: Any) -> Any:
        return mo.sum(mo.abs(function(*own)) ** 2 * weight)

    own = [x[0] for x in given]
    slopes = mo.grad(loss, argnums=tuple(range(len(own))))(*map(mo.asarray, own))
    directions = [rng.normal(size=x.shape) + (1j * rng.normal(size=x.shape) if dtype[0] == "c" else 0) for x in own]
    ends = [loss(*(mo.asarray(x + sign * 1e-6 * d) for x, d in zip(own, directions, strict=True))).item()
            for sign in (1, -1)]
    along = sum(np.real(np.vdot(slope.numpy(), d)) for slope, d in zip(slopes, directions, strict=True))
    assert np.isclose(along, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-6)
