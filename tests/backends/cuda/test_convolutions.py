"""Convolutions as implicit products, on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.cuda.gemm import conv_lower
from morpho.backends.registry import backend_of

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 9, 7), (8, 3, 3, 3), {"padding": 1}),
    ((1, 16, 8, 8), (24, 16, 1, 1), {}),
    ((2, 16, 11, 9), (16, 8, 3, 2), {"stride": 2, "padding": 2, "groups": 2}),
    ((1, 4, 12, 12), (9, 4, 3, 3), {"dilation": 2, "padding": (0, 3)}),
]


@pytest.mark.parametrize(("shape", "kernels", "options"), CASES)
def test_float32_has_the_cpus_bits(gpu: str, rng: np.random.Generator, shape: Any, kernels: Any, options: Any) -> None:
    x, w = (mo.asarray(rng.standard_normal(s).astype("f")) for s in (shape, kernels))
    f = mo.compile(lambda x, w: mo.relu(mo.conv2d(x, w, **options) * 2))
    got = f(x.to(gpu), w.to(gpu))
    assert kernels[2:] == (1, 1) or "implicit product on arithmetic units" in f.explain()
    assert got.device == gpu and got.numpy().tobytes() == f(x, w).numpy().tobytes()


@pytest.mark.parametrize(("shape", "kernels", "options"), CASES[:3])
def test_half_floats_on_tensor_cores(gpu: str, rng: np.random.Generator, shape: Any, kernels: Any,
                                     options: Any) -> None:
    x, w = (mo.asarray(rng.standard_normal(s).astype("f")) for s in (shape, kernels))
    half = [mo.astype(t, mo.bfloat16).realise() for t in (x, w)]
    got = mo.conv2d(*(t.to(gpu) for t in half), **options)
    want = mo.conv2d(*(mo.astype(t, mo.float32) for t in half), **options).numpy()
    np.testing.assert_allclose(mo.astype(got, mo.float32).numpy(), want, rtol=2e-2, atol=2e-2 * abs(want).max())


def test_gradients_are_convolutions_too(gpu: str, rng: np.random.Generator) -> None:
    x, w = (mo.asarray(rng.standard_normal(s).astype("f")) for s in ((8, 8, 6, 6), (8, 8, 3, 3)))
    of = mo.grad(lambda x, w: mo.sum(mo.conv2d(x, w, padding=1) ** 2), argnums=(0, 1))
    before = backend_of(gpu).host_steps  # type: ignore[attr-defined]
    for got, want in zip(of(x.to(gpu), w.to(gpu)), of(x, w), strict=True):
        assert got.numpy().tobytes() == want.numpy().tobytes()
    assert backend_of(gpu).host_steps == before  # type: ignore[attr-defined]


def test_large_tiles_have_the_same_bits(gpu: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = (mo.astype(mo.asarray(rng.standard_normal(s).astype("f")), mo.float16).to(gpu)
            for s in ((1, 8, 12, 13), (40, 8, 3, 3)))
    found = []
    for tile in ((64, 64, 32, 32), (64, 128, 32, 32), (128, 128, 64, 32)):
        monkeypatch.setattr(conv_lower, "_half_tile", lambda groups, m, n, tile=tile: tile)
        found.append(mo.compile(lambda x, w: mo.conv2d(x, w, padding=1))(x, w).numpy().tobytes())
    assert found[0] == found[1] == found[2]
