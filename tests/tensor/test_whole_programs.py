"""Every family of the array language stays one native function: no step of the host, no silent fallback; its names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo

NAMES = """
fori_loop while_loop scan associative_scan cond switch map vmap jacfwd jacrev hessian hvp jvp vjp linearize custom_vjp
custom_jvp stop_gradient tree.map topk median quantile isclose allclose split chunk swapaxes hstack vstack dstack diag
nansum nanprod nanmean nanmedian nanstd nanvar nanmin nanmax nanargmin nanargmax nanquantile nan_to_num fmin fmax fmod
interp cov corrcoef histogram cdist kron trapezoid cummax cummin logcumsumexp tril_indices triu_indices gcd lcm lgamma
digamma special.erfinv special.erfcx special.betainc special.gammainc special.gammaincc xlogy special.i0
special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1 special.zeta nn.interpolate grid_sample
pixel_shuffle unfold fold conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d max_pool1d
max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d pad stft istft hann_window hamming_window blackman_window
bartlett_window kaiser_window sort argsort unique searchsorted partition argpartition bincount segment_sum segment_max
scatter_reduce cumulative_sum cumulative_prod linalg.solve linalg.inv linalg.det linalg.cholesky linalg.qr linalg.lu
linalg.solve_triangular linalg.eigh linalg.svd linalg.pinv linalg.slogdet random.uniform random.normal random.gamma
random.beta random.poisson random.binomial random.exponential random.categorical random.multinomial random.choice
random.dirichlet random.truncated_normal random.permutation
"""


def test_names_are_there() -> None:
    for name in NAMES.split():
        found: Any = mo
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found)


def positive(x: Any) -> Any:
    return x @ mo.matrix_transpose(x) + 4 * mo.eye(x.shape[-1])


R = np.random.default_rng(25).normal(0, 1, (2, 6, 6))
C = R + 1j * R[::-1]
LARGE = np.random.default_rng(26).normal(0, 1, (40, 40))
L = mo.linalg
KEY = mo.random.key(25)
FAMILIES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "complex functions": (lambda z: (mo.exp(z) / mo.sqrt(z) + mo.log(z) ** 2, mo.abs(z)), C),
    "complex sums": (lambda z: (mo.sum(z, axis=1), mo.prod(z, axis=2), z @ z, mo.cumulative_sum(z, axis=0)), C),
    "transforms": (lambda z: (mo.fft.fft(z), mo.fft.ifftn(z), mo.fft.rfft(mo.real(z), n=7), mo.fft.irfft(z)), C),
    "solving": (lambda x: (L.solve(positive(x), x), L.inv(positive(x)), L.slogdet(x)), R),
    "factors": (lambda x: (L.cholesky(positive(x)), L.qr(x), L.lu(x)), R),
    "spectra": (lambda x: (L.eigh(positive(x)), L.svd(x), L.pinv(x)), R),
    "triangles": (lambda x: L.solve_triangular(L.cholesky(positive(x)), x), R),
    "large": (lambda x: (L.solve(positive(x), x), L.eigh(positive(x)), L.svd(x), L.qr(x)), LARGE),
    "order": (lambda x: (mo.sort(x), mo.argsort(x, axis=0), mo.topk(x, 2), mo.median(x, axis=1)), R),
    "shares": (lambda x: (mo.quantile(x, 0.3), mo.histogram(x, 4), mo.searchsorted(mo.sort(mo.ravel(x)), x)), R),
    "counts": (lambda x: (mo.bincount(mo.argsort(mo.ravel(x)), length=80), mo.segment_sum(x, mo.asarray([0, 2]), 3)),
               R),
    "scatters": (lambda x: mo.scatter_reduce(x, mo.argsort(x, axis=0), x, reduce="amax"), R),
    "running": (lambda x: (mo.cumulative_prod(x, axis=1), mo.cummax(x, axis=1), mo.logcumsumexp(x, axis=0)), R),
    "draws": (lambda x: (mo.random.normal(KEY, (9,)), mo.random.poisson(KEY, x * x + 1),
                         mo.random.permutation(KEY, 9), mo.random.categorical(KEY, x)), R),
    "special": (lambda x: (mo.lgamma(x), mo.special.gammainc(2.0, x * x), mo.special.bessel_j0(x)), R),
    "images": (lambda x: (mo.nn.interpolate(x[None], size=(9, 5), mode="bilinear"), mo.unfold(x[None], 3),
                          mo.max_pool2d(x[None], 2, ceil_mode=True, return_indices=True)), R),
    "sounds": (lambda x: mo.stft(x[0], 4, 2, window=mo.hann_window(4, dtype="float64")), R),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_native(family: str) -> None:
    """`whole` refuses steps of the host; values are those without `compile`."""
    function, x = FAMILIES[family]
    compiled = mo.compile(function, whole=True)
    found, wanted = mo.tree.leaves(compiled(mo.asarray(x))), mo.tree.leaves(function(mo.asarray(x)))
    assert compiled.stats["host_steps"] == 0 and compiled.stats["fallbacks"] == 0
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_loop_under_a_memory_budget(rng: np.random.Generator) -> None:
    """A gradient through a scan keeps to the budget, with the same bits."""
    w, x = mo.asarray(rng.normal(0, 0.1, (64, 64))), mo.asarray(rng.normal(0, 1, (20, 64)))

    def loss(w: Any, x: Any) -> Any:
        wide = mo.tanh(mo.tanh(x @ w) @ w)
        return mo.sum(mo.scan(lambda c, row: (mo.tanh(c @ w + row), mo.sin(c)), x[0], wide)[1])

    plain = mo.compile(mo.grad(loss))
    wanted = plain(w, x)
    needed = plain.stats["predicted_peak_bytes"]
    thrifty = mo.compile(mo.grad(loss), memory_budget=needed)
    assert thrifty(w, x).numpy().tobytes() == wanted.numpy().tobytes()
    assert thrifty.stats["predicted_peak_bytes"] <= needed and "scan" in thrifty.explain()


def test_a_mask_is_no_new_program() -> None:
    """A selection of any count is one program, and so is an index that Python counts."""
    chosen = mo.compile(lambda x: mo.sum(x[x > 0] ** 2) + mo.max(x[x < 2]))
    for count in range(1, 6):
        x = np.arange(5.0) - count + 0.5
        assert chosen(mo.asarray(x)).item() == (x[x > 0] ** 2).sum() + x[x < 2].max()
    assert chosen.stats["recompiles"] == 0 and chosen.stats["specialisations"] == 1
    row = mo.compile(lambda x, i: x[i] + i)
    assert [row(mo.arange(9.0), i).item() for i in range(9)] == [2.0 * i for i in range(9)]
    assert row.stats["recompiles"] <= 1
