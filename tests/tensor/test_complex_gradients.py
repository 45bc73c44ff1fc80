"""Gradients of complex numbers: df/dx + i df/dy by central differences, along both axes of every element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError

STEP = 1e-6
Loss = Callable[[mo.Tensor], mo.Tensor]


def draw(number: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(number)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def check(loss: Loss, x: np.ndarray) -> None:
    """All differences are one batch."""
    steps = [unit * STEP for unit in ((1, 1j) if np.iscomplexobj(x) else (1,))]
    moved = np.stack([x + sign * step * one.reshape(x.shape)
                      for step in steps for sign in (1, -1) for one in np.eye(x.size)])
    values = np.stack([loss(mo.asarray(row)).numpy() for row in moved]).reshape(len(steps), 2, *x.shape)
    slopes = (values[:, 0] - values[:, 1]) / (2 * STEP)
    want = slopes[0] + 1j * slopes[1] if len(steps) == 2 else slopes[0]
    got = mo.grad(loss)(mo.asarray(x)).numpy()
    assert np.allclose(got, want, rtol=1e-6, atol=1e-6 * (1 + np.abs(want).max())), np.abs(got - want).max()


def weighed(x: mo.Tensor, number: int = 40) -> mo.Tensor:
    """A real number that depends on every element, its size and its angle."""
    return mo.real(mo.sum(x * mo.asarray(draw(number, *x.shape))))


def adjoint(x: mo.Tensor) -> mo.Tensor:
    return mo.conj(mo.matrix_transpose(x))


def eigenvectors(x: mo.Tensor) -> mo.Tensor:
    """What does not depend on the factor that each vector has: the projection on one of them, and sizes."""
    values, vectors = mo.linalg.eigh(x + adjoint(x))
    one = vectors[:, 1:2]
    sizes = mo.abs(vectors) ** 2 * values ** 2
    return weighed(one @ adjoint(one)) + mo.sum(sizes * mo.asarray(np.arange(9.0).reshape(3, 3)))


def singular_vectors(x: mo.Tensor) -> mo.Tensor:
    u, s, vh = mo.linalg.svd(x, full_matrices=False)
    return weighed(u[:, :1] @ vh[:1]) + s[1] ** 2 + 2 * (mo.abs(u) ** 2)[1, 1] + (mo.abs(vh) ** 3)[0, 1]


def factors(x: mo.Tensor) -> mo.Tensor:
    q, r = mo.linalg.qr(x)
    return weighed(q) + weighed(r, 41) + mo.sum(mo.abs(r) ** 3)


def solved(x: mo.Tensor) -> mo.Tensor:
    found = mo.linalg.lstsq(x, mo.asarray(draw(42, 4)))
    return weighed(found.solution) + found.residuals


@pytest.mark.parametrize("loss, shape", [
    (eigenvectors, (3, 3)), (singular_vectors, (4, 2)), (singular_vectors, (2, 4)), (singular_vectors, (3, 3)),
    (factors, (4, 2)), (factors, (2, 3)), (factors, (3, 3)), (solved, (4, 2)),
    (lambda x: weighed(mo.linalg.pinv(x)), (2, 4)), (lambda x: weighed(mo.linalg.slogdet(x)[0]), (3, 3)),
    (lambda x: weighed(mo.linalg.cholesky(x @ adjoint(x) + mo.eye(3))), (3, 3)),
    (lambda x: mo.sum(mo.linalg.svdvals(x) ** 3), (3, 2)), (lambda x: weighed(mo.cumulative_prod(x, axis=0)), (4, 2)),
    (lambda x: mo.linalg.matrix_norm(x), (3, 2)), (lambda x: weighed(mo.sort(mo.abs(x)) * 1j), (5,)),
    (lambda x: weighed(mo.where(mo.real(x) > 0, x * x, mo.conj(x))), (5,)), (lambda x: weighed(mo.sign(x) * x), (5,)),
    (lambda x: weighed(mo.einsum("ij,jk->ik", x, x)), (3, 3)), (lambda x: weighed(mo.fft.fftn(x, s=(2, 5))), (3, 4)),
    (lambda x: weighed(mo.fft.hfft(x, n=5, norm="ortho") * 1j), (4,)),
    (lambda x: mo.sum(mo.fft.irfftn(x, s=(2, 4)) ** 3), (2, 3)),
])
def test_against_differences(loss: Loss, shape: tuple[int, ...]) -> None:
    check(loss, draw(1, *shape))


@pytest.mark.parametrize("loss", [
    lambda x: weighed(mo.fft.rfft(x, n=5, norm="forward")), lambda x: weighed(mo.fft.ihfft(x)),
    lambda x: weighed(mo.fft.fft(x, n=3)), lambda x: mo.abs(mo.sum(x * (1 + 2j))),
    lambda x: mo.imag(mo.sum(mo.exp(x * 1j)))])
def test_real_arguments_have_real_gradients(loss: Loss) -> None:
    check(loss, draw(2, 2, 4).real)


def test_a_step_down_goes_down() -> None:
    """The convention of PyTorch: an optimiser needs no conjugate."""
    wanted = mo.asarray(draw(3, 4))
    z = mo.asarray(draw(4, 4))
    for _ in range(60):
        z = z - 0.1 * mo.grad(lambda z: mo.sum(mo.abs(z - wanted) ** 2))(z)
    assert np.allclose(z.numpy(), wanted.numpy(), atol=1e-5)
    leaf = mo.asarray([1 + 2j]).requires_grad_()
    mo.sum(mo.abs(leaf) ** 2).backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [2 + 4j]


def test_forward_is_the_derivative_itself() -> None:
    x = mo.asarray(draw(5, 3))
    assert np.allclose(mo.jvp(mo.exp, (x,), (x,))[1].numpy(), np.exp(x.numpy()) * x.numpy())
    rows = mo.vmap(mo.grad(lambda z: mo.abs(z) ** 2))(x)
    assert np.allclose(rows.numpy(), 2 * x.numpy())
    twice = mo.hvp(lambda z: mo.sum(mo.abs(z) ** 4), (x,), (x,))[0].numpy()
    assert np.allclose(twice, 12 * x.numpy() * np.abs(x.numpy()) ** 2)


def test_what_has_no_gradient_is_said() -> None:
    z = mo.asarray(draw(6, 4, 2))
    with pytest.raises(DTypeError, match="does not grow or fall"):
        mo.grad(lambda z: mo.sum(z))(z)
    leaf = mo.asarray([1j]).requires_grad_()
    with pytest.raises(DTypeError, match="does not grow or fall"):
        mo.sum(leaf).backward()
    with pytest.raises(ArgumentError, match="full_matrices=False"):
        mo.grad(lambda z: mo.abs(mo.linalg.svd(z)[0]).sum())(z)
    with pytest.raises(ArgumentError, match="mode='reduced'"):
        mo.grad(lambda z: mo.abs(mo.linalg.qr(z, mode="complete")[0]).sum())(z)
    assert mo.grad(lambda z: mo.linalg.svd(z)[1].sum())(z).shape == (4, 2)
    assert mo.grad(lambda z: mo.abs(mo.linalg.qr(z, mode="complete")[1]).sum())(z).shape == (4, 2)
