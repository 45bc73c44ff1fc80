"""Transformations against values that JAX gave (`python -m benchmarks.jax_values` writes them): gradients of complex
arguments are the conjugates of JAX's, all else is the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

VALUES = Path(__file__).parent / "jax_values.json"
M, T = Any, Any  # the namespaces of arrays and of transformations: morpho twice, or jax.numpy and jax


def draw(number: int, *shape: int, is_complex: bool = False) -> np.ndarray:
    rng = np.random.default_rng(number)
    found = rng.standard_normal(shape)
    return found + 1j * rng.standard_normal(shape) if is_complex else found


X, W, S, V = draw(1, 4), draw(2, 4, 3), draw(3, 4, 4), draw(4, 4)
C, D = draw(5, 3, 4, is_complex=True), draw(6, 4, 4, is_complex=True)
TALL, WIDE = draw(7, 5, 3), draw(8, 3, 5)


def layer(m: M) -> Callable[[Any], Any]:
    return lambda x: m.tanh(x @ m.asarray(W)) * m.sum(m.sin(x))


def even(m: M, x: Any) -> Any:
    """The Hermitian part."""
    return (x + (m.conj(x.T) if "complex" in str(x.dtype) else x.T)) / 2


def weight(m: M, shape: tuple[int, ...]) -> Any:
    return m.asarray(draw(9, *shape))


def grad_of(function: Callable[[M, Any], Any], x: np.ndarray) -> Callable[[M, T], Any]:
    return lambda m, t: t.grad(lambda a: function(m, a))(m.asarray(x))


def svd_loss(m: M, x: Any) -> Any:
    u, s, vh = m.linalg.svd(x, full_matrices=False)
    return m.sum((u * s * s) @ vh * weight(m, x.shape)) + m.sum(s[1:] ** 3)


def qr_loss(m: M, x: Any) -> Any:
    q, r = m.linalg.qr(x)
    return m.sum(q * weight(m, q.shape)) + m.sum(r * r * weight(m, r.shape))


def eigh_loss(m: M, x: Any) -> Any:
    values, vectors = m.linalg.eigh(even(m, x))
    return m.sum(m.abs(vectors) ** 3 * values)


PROGRAMS: dict[str, Callable[[M, T], Any]] = {
    "jacfwd": lambda m, t: t.jacfwd(layer(m))(m.asarray(X)),
    "jacrev": lambda m, t: t.jacrev(layer(m))(m.asarray(X)),
    "hessian": lambda m, t: t.hessian(lambda x: m.sum(layer(m)(x) ** 2))(m.asarray(X)),
    "jvp": lambda m, t: t.jvp(layer(m), (m.asarray(X),), (m.asarray(V),))[1],
    "linearize": lambda m, t: t.linearize(layer(m), m.asarray(X))[1](m.asarray(V)),
    "vmap": lambda m, t: t.vmap(layer(m), in_axes=1, out_axes=1)(m.asarray(S)),
    "vmap of grad": lambda m, t: t.vmap(t.grad(lambda x: m.sum(layer(m)(x))))(m.asarray(S)),
    "vmap nested": lambda m, t: t.vmap(t.vmap(lambda a, b: m.sum(a * b), (None, 0)), (0, None))(m.asarray(S),
                                                                                               m.asarray(S)),
    "hessian of vmap": lambda m, t: t.hessian(lambda w: m.sum(t.vmap(lambda x: m.tanh(m.sum(x * w)))(m.asarray(S))))(
        m.asarray(X)),
    "third": lambda m, t: t.grad(t.grad(t.grad(lambda x: m.exp(m.sin(x)) * x)))(m.asarray(np.array(0.7))),
    "eigh": grad_of(eigh_loss, S), "eigh, complex": grad_of(eigh_loss, D),
    "svd, tall": grad_of(svd_loss, TALL), "svd, wide": grad_of(svd_loss, WIDE),
    "qr, tall": grad_of(qr_loss, TALL), "qr, square": grad_of(qr_loss, S),
    "pinv": grad_of(lambda m, x: m.sum(m.linalg.pinv(x) * weight(m, (3, 5))), TALL),
    "slogdet": grad_of(lambda m, x: m.linalg.slogdet(x)[1], S),
    "slogdet, complex": grad_of(lambda m, x: m.linalg.slogdet(x)[1], D),
    "det, complex": grad_of(lambda m, x: m.abs(m.linalg.det(x)) ** 2, D),
    "inv, complex": grad_of(lambda m, x: m.sum(m.abs(m.linalg.inv(x)) ** 2), D),
    "solve": grad_of(lambda m, x: m.sum(m.linalg.solve(x, m.asarray(X)) ** 2), S),
    "cholesky": grad_of(lambda m, x: m.sum(m.linalg.cholesky(x @ x.T + 3 * m.eye(4)) * weight(m, (4, 4))), S),
    "fft": grad_of(lambda m, x: m.sum(m.abs(m.fft.fft(x, n=6, norm="ortho")) ** 3), C),
    "rfft": grad_of(lambda m, x: m.sum(m.abs(m.fft.rfft(x, n=7)) ** 3), S),
    "irfft": grad_of(lambda m, x: m.sum(m.fft.irfft(x, n=7, norm="forward") ** 3), C),
    "complex functions": grad_of(lambda m, x: m.real(m.sum(m.exp(x) * m.sin(x) / (x * x + 4) + m.log(x) * m.conj(x)
                                                           + m.sqrt(x) + x ** 2.5)), C),
    "complex product": grad_of(lambda m, x: m.sum(m.abs(x @ m.asarray(D)) ** 2) + m.imag(m.sum(x)), C),
    "complex push": lambda m, t: t.jvp(lambda x: m.abs(x) * x + m.tan(x), (m.asarray(C),), (m.asarray(C * 1j),))[1],
}


def numbers(value: Any) -> np.ndarray:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_jax(name: str) -> None:
    import morpho as mo

    stored = json.loads(VALUES.read_text(encoding="utf-8"))[name]
    want = np.array(stored["real"])
    if "imag" in stored:
        want = want + 1j * np.array(stored["imag"])
        want = want if name == "complex push" else np.conj(want)
    got = numbers(PROGRAMS[name](mo, mo))
    assert got.shape == want.shape
    assert np.allclose(got, want, rtol=1e-7, atol=1e-9 * (1 + np.abs(want).max())), np.abs(got - want).max()
