"""The linear algebra and Fourier extensions against NumPy; host operations inside lazy and compiled programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.lowering import lower_linalg
from morpho.base.errors import ValueFault
from morpho.runtime.plans import evaluate

L, F = mo.linalg, mo.fft
RNG = np.random.default_rng(11)
TOLERANCE = {"float32": 2e-4, "float64": 1e-9, "complex64": 2e-4, "complex128": 1e-9, "bfloat16": 0.1, "float16": 2e-2}


def matrices(dtype: str, shape: tuple[int, ...] = (2, 3, 3)) -> np.ndarray:
    """Well conditioned ones, in NumPy's dtype (float32 for bfloat16)."""
    x = RNG.uniform(-1, 1, shape) + (2 * np.eye(*shape[-2:]))
    if dtype.startswith("complex"):
        return (x + 1j * RNG.uniform(-1, 1, shape)).astype(dtype)
    return mo.asarray(x, dtype=dtype).numpy()


def close(found: mo.Tensor, expected: Any, dtype: str, name: str = "") -> None:
    assert found.shape == np.shape(expected), (name, found.shape, np.shape(expected))
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_factorisations(dtype: str) -> None:
    """Each put together again gives the matrix back; dtypes are kept."""
    a = matrices(dtype)
    x = mo.asarray(a, dtype=dtype)
    wide = a.astype(np.float32) if dtype == "float16" else a
    close(L.inv(x) @ x, np.broadcast_to(np.eye(3), (2, 3, 3)), dtype, "inv")
    close(L.det(x), np.linalg.det(wide), dtype, "det")
    sign, log = L.slogdet(x)
    close(mo.exp(log), np.abs(np.linalg.det(wide)), dtype, "slogdet")
    close(L.solve(x, x[:, :, :2]), np.broadcast_to(np.eye(3)[:, :2], (2, 3, 2)), dtype, "solve")
    columns = np.broadcast_to(wide[0, :, :1], (2, 3, 1))
    close(L.solve(x, x[0, :, 0]), np.linalg.solve(wide, columns)[..., 0], dtype, "solve")
    q, r = L.qr(x[:, :, :2])
    close(q @ r, wide[:, :, :2], dtype, "qr")
    assert L.qr(x[:, :, :2], mode="complete").Q.shape == (2, 3, 3)
    u, s, vh = L.svd(x[:, :2], full_matrices=False)
    scaled = u * mo.astype(mo.expand_dims(s, axis=-2), u.dtype)
    close(scaled @ vh, wide[:, :2], dtype, "svd")
    close(L.svdvals(x), np.linalg.svd(wide, compute_uv=False), dtype, "svdvals")
    close(L.pinv(x[:, :2]), np.linalg.pinv(wide[:, :2]), dtype, "pinv")
    h = mo.conj(x.mT) @ x
    values, vectors = L.eigh(h)
    close(L.eigvalsh(h), np.linalg.eigvalsh(np.conj(np.swapaxes(wide, 1, 2)) @ wide), dtype, "eigvalsh")
    close(h @ vectors, (vectors * mo.astype(mo.expand_dims(values, axis=-2), x.dtype)).numpy(), dtype, "eigh")
    lower = L.cholesky(h)
    close(lower @ mo.conj(lower.mT), h.numpy(), dtype, "cholesky")
    close(mo.conj(L.cholesky(h, upper=True).mT), lower.numpy(), dtype, "cholesky upper")
    assert lower.dtype is x.dtype and L.inv(x).dtype is x.dtype
    assert L.matrix_rank(x).tolist() == [3, 3] and L.matrix_rank(mo.ones((4, 4))).item() == 1


def test_products_and_norms() -> None:
    """Native compositions."""
    a = RNG.uniform(-1, 1, (2, 4, 3))
    x = mo.asarray(a)
    for offset in (-5, -2, 0, 1, 2, 3):
        close(L.diagonal(x, offset=offset), np.diagonal(a, offset, 1, 2), "float64", "diagonal")
        close(L.trace(x, offset=offset), np.trace(a, offset, 1, 2), "float64", "trace")
    close(L.cross(x, x[0, 0]), np.cross(a, a[0, 0]), "float64", "cross")
    close(L.cross(x.mT, x.mT[:, :, :1], axis=-2), np.cross(a, a[:, :1]).swapaxes(1, 2), "float64", "cross")
    close(L.outer(x[0, 0], x[0, 1]), np.outer(a[0, 0], a[0, 1]), "float64", "outer")
    for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        for keep in (False, True):
            expected = np.stack([np.linalg.norm(m, order) for m in a])
            close(L.matrix_norm(x, ord=order, keepdims=keep), expected.reshape((2, 1, 1) if keep else 2), "float64")
    for order in (0, 1, 2, 3, 0.5, -1, np.inf, -np.inf):
        expected = np.linalg.norm(a[0], order, axis=1)
        close(L.vector_norm(x[0], axis=1, ord=order), expected, "float64", f"norm {order}")
    close(L.vector_norm(x), np.linalg.norm(a.reshape(-1)), "float64")
    close(L.vector_norm(mo.asarray(a[0] + 1j)), np.linalg.norm((a[0] + 1j).reshape(-1)), "float64")
    square = mo.asarray(matrices("float64"))
    for power in (-2, 0, 1, 5):
        close(L.matrix_power(square, power), np.linalg.matrix_power(square.numpy(), power), "float64", "power")


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "float16"])
def test_transforms(dtype: str) -> None:
    """Every transform, with lengths, axes and norms; back and forth."""
    a = matrices(dtype, (4, 6))
    x = mo.asarray(a, dtype=dtype)
    wide = a.astype(np.float32) if dtype == "float16" else a
    for norm in ("backward", "ortho", "forward"):
        close(F.fft(x, n=5, axis=0, norm=norm), np.fft.fft(wide, 5, 0, norm), dtype, "fft")
        close(F.ifft(x, norm=norm), np.fft.ifft(wide, norm=norm), dtype, "ifft")
        close(F.fftn(x, s=(3, 8), norm=norm), np.fft.fftn(wide, (3, 8), (0, 1), norm=norm), dtype, "fftn")
        close(F.ifftn(x, axes=(1, 0), norm=norm), np.fft.ifftn(wide, axes=(1, 0), norm=norm), dtype, "ifftn")
        close(F.irfft(x, norm=norm), np.fft.irfft(wide, norm=norm), dtype, "irfft")
        close(F.irfftn(x, s=(4, 7), norm=norm), np.fft.irfftn(wide, (4, 7), (0, 1), norm=norm), dtype, "irfftn")
        close(F.hfft(x, n=9, norm=norm), np.fft.hfft(wide, 9, norm=norm), dtype, "hfft")
        if not dtype.startswith("complex"):
            close(F.rfft(x, norm=norm), np.fft.rfft(wide, norm=norm), dtype, "rfft")
            close(F.rfftn(x, norm=norm), np.fft.rfftn(wide, norm=norm), dtype, "rfftn")
            close(F.ihfft(x, axis=0, norm=norm), np.fft.ihfft(wide, axis=0, norm=norm), dtype, "ihfft")
    assert F.fft(x).dtype is (mo.complex128 if dtype in ("float64", "complex128") else mo.complex64)
    close(F.fftshift(x), np.fft.fftshift(wide), dtype, "fftshift")
    close(F.ifftshift(F.fftshift(x, axes=0), axes=0), wide, dtype, "ifftshift")
    close(F.fftfreq(7, d=0.5), np.fft.fftfreq(7, 0.5), "float32", "fftfreq")
    close(F.rfftfreq(8), np.fft.rfftfreq(8), "float32", "rfftfreq")


def test_host_operations_are_lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run when the value is asked for, as steps of native programs: LAPACK where it has no address."""
    monkeypatch.setattr(lower_linalg, "routine_address", lambda name: 0)
    x = mo.asarray(matrices("float64")[0])
    before = evaluate.counts.host_steps
    y = mo.sum(mo.sort(mo.real(L.eigvals(x * 2)) + 1, axis=0) * 3)
    assert evaluate.counts.host_steps == before and not y.is_realised
    values = np.sum(np.sort(np.linalg.eigvals(x.numpy() * 2).real + 1, 0) * 3)
    expected = np.sum(np.sort(np.linalg.inv(x.numpy() * 2) + 1, 0) * 3)
    assert abs(y.item() - values) < 1e-9 and evaluate.counts.host_steps == before + 1
    compiled = mo.compile(lambda a: mo.sum(mo.sort(L.inv(a * 2) + 1, axis=0) * 3))
    assert abs(compiled(x).item() - expected) < 1e-9 and abs(compiled(x).item() - expected) < 1e-9
    with pytest.raises(RuntimeError, match="host"):
        mo.compile(lambda a: L.eigvals(a) + 1, whole=True)(x)


def test_empty_and_single() -> None:
    """Stacks of no matrices, and 0 x 0 ones."""
    assert L.inv(mo.zeros((0, 3, 3))).shape == (0, 3, 3)
    assert L.det(mo.zeros((2, 0, 0))).tolist() == [1, 1]
    assert mo.sort(mo.zeros((0, 3)), axis=1).shape == (0, 3) and mo.argsort(mo.zeros((2, 0))).shape == (2, 0)
    assert L.trace(mo.zeros((3, 0))).item() == 0
    assert (mo.zeros((2, 0)) @ mo.zeros((0, 3))).tolist() == [[0] * 3] * 2


GRADIENTS: list[tuple[str, Callable[[Any], Any]]] = [
    ("sort", lambda x: mo.sum(mo.sort(x, axis=0) * mo.asarray(np.arange(1.0, 4)[:, None]))),
    ("sort down", lambda x: mo.sum(mo.sort(x, axis=1, descending=True) * mo.asarray(np.arange(1.0, 4)))),
    ("inv", lambda x: mo.sum(mo.square(L.inv(x)))), ("det", lambda x: L.det(x) * 2),
    ("svdvals", lambda x: mo.sum(mo.square(L.svdvals(x[:2]) + 1))),
    ("eigvalsh", lambda x: mo.sum(mo.exp(L.eigvalsh((x + x.mT) * 0.5)))),
    ("nuclear", lambda x: L.matrix_norm(x, ord="nuc")),
    ("solve", lambda x: mo.sum(mo.square(L.solve(x, x + 1)))),
    ("cholesky", lambda x: mo.sum(mo.sin(L.cholesky(x @ x.mT)))),
    ("cholesky upper", lambda x: mo.sum(mo.sin(L.cholesky(x @ x.mT, upper=True)))),
    ("take", lambda x: mo.sum(mo.square(mo.take(x, mo.asarray([0, 2, 2]), axis=1)))),
    ("fancy", lambda x: mo.sum(mo.square(x[mo.asarray([0, 1, 1]), mo.asarray([2, 0, 0])]))),
    ("scatter", lambda x: mo.sum(mo.square(mo.scatter_add(x, mo.asarray([[0, 0, 1]] * 3), x * 2)))),
    ("tensordot", lambda x: mo.sum(mo.square(mo.tensordot(x, x, axes=((0,), (1,)))))),
    ("roll", lambda x: mo.sum(x * mo.roll(x, 1, axis=0))), ("tile", lambda x: mo.sum(mo.square(mo.tile(x, (2, 2))))),
    ("norm", lambda x: L.vector_norm(x) + L.matrix_norm(x, ord=1)),
    ("cumulative_prod", lambda x: mo.sum(mo.cumulative_prod(x, axis=1))),
]


@pytest.mark.parametrize(("name", "function"), GRADIENTS, ids=[row[0] for row in GRADIENTS])
def test_gradients(name: str, function: Any) -> None:
    """Against central differences in float64."""
    _check(function, np.random.default_rng(3).uniform(0.2, 1, (3, 3)) + 2 * np.eye(3))


def test_gradients_of_products_with_zeros() -> None:
    """No division by the zero, and the others' product at it."""
    x = np.array([[0.0, 2, 3], [4, 0, 0], [5, 6, 0]])
    weights = mo.asarray(np.arange(1.0, 4))
    _check(lambda t: mo.sum(mo.cumulative_prod(t, axis=1) * weights), x)
    _check(lambda t: mo.sum(mo.cumulative_prod(t, axis=0) * weights), x)
    _check(lambda t: mo.sum(mo.prod(t, axis=1) * weights), x)


def _check(function: Any, x: np.ndarray) -> None:
    found = mo.grad(function)(mo.asarray(x)).numpy()
    expected = np.zeros_like(x)
    for i in np.ndindex(3, 3):
        ends = []
        for step in (1e-6, -1e-6):
            moved = x.copy()
            moved[i] += step
            ends.append(function(mo.asarray(moved)).item())
        expected[i] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 1e300, np.inf, np.nan])
def test_lapack_warns_of_nothing(value: float) -> None:
    """Larger matrices are NumPy's; what it thinks of infinities is its own business."""
    x = mo.asarray(np.eye(40) + value)
    for function in (L.inv, L.det, L.slogdet, L.pinv, L.qr, L.svd, L.svdvals, L.eigh, L.eigvalsh, L.cholesky,
                     lambda x: L.solve(x, x)):
        try:
            found = function(x)
            mo.realise(*(found if isinstance(found, tuple) else (found,)))
        except ValueFault:
            pass
