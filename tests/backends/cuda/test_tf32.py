"""float32 products on tensor cores, where the user says so."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from morpho.backends.cuda.assembly import ptx, ptxas
from morpho.backends.cuda.gemm.spec import ProductKernel
from morpho.backends.cuda.gemm.tf32 import Tf32Gemm


def rounded(x: np.ndarray) -> np.ndarray:
    """To 11 bits, halves away from zero."""
    return ((x.view(np.int32) + 4096) & -8192).view(np.float32)


@pytest.mark.parametrize("chip", [0, 1], ids=["hopper", "ampere"])
def test_products_of_tf32(gpu: str, rng: np.random.Generator, chip: int) -> None:
    device = gpu.replace(":0", f":{chip}")
    a, b = rng.standard_normal((70, 37)).astype("f"), rng.standard_normal((37, 40)).astype("f")
    f = mo.compile(lambda x, y: x @ y)
    plain = f(mo.asarray(a).to(device), mo.asarray(b).to(device)).numpy()
    with mo.settings(tf32=True):
        got = f(mo.asarray(a).to(device), mo.asarray(b).to(device)).numpy()
        assert "tensor cores (tf32)" in f.explain()
        some = f(mo.asarray(a[:3]).to(device), mo.asarray(b).to(device)).numpy()
        eager = (mo.asarray(a).to(device) @ mo.asarray(b).to(device)).numpy()
    exact = rounded(a).astype("d") @ rounded(b).astype("d")
    np.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-5)
    assert eager.tobytes() == got.tobytes() and some.tobytes() == got[:3].tobytes()
    assert plain.tobytes() == f(mo.asarray(a), mo.asarray(b)).numpy().tobytes() != got.tobytes()


def test_it_assembles() -> None:
    if ptxas.find() is None:
        pytest.skip("ptxas is not installed (nvidia-cuda-nvcc)")
    product = ProductKernel(mo.float32, mo.float32, "k", "n", (32, 32, 2, 2))
    text = ptx.assembly(Tf32Gemm(product, mo.float32, mo.float32, "k", "n", (128, 128, 64, 32), 25).text(), "sm_80")
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in text and "cvt.rna.tf32.f32" in text
    assert "0 bytes spill stores" in ptxas.check([text])
