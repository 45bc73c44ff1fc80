"""Attention of float32 and float64 block by block, forward and backward, over pages: the CPU's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.cuda.assembly import ptx, ptxas
from morpho.backends.cuda.attention.simt.backward import SimtBackwardSpec, SimtGradient
from morpho.backends.cuda.attention.simt.forward import SimtAttention, SimtSpec

CASES: list[tuple[int, int, int, int, int, int, Any, dict[str, Any]]] = [
    (2, 1, 5, 70, 16, 16, "f4", {}),
    (1, 1, 40, 40, 20, 33, "f4", {"causal": True}),
    (1, 1, 1, 130, 64, 64, "f4", {}),
    (2, 1, 70, 150, 24, 24, "f4", {"causal": True, "window": 30}),
    (1, 1, 6, 66, 8, 8, "f8", {"causal": True})]


@pytest.mark.sampled
@pytest.mark.parametrize(("heads", "kept", "queries", "keys", "depth", "width", "kind", "given"), CASES)
def test_attention_and_its_gradient(gpu: str, rng: np.random.Generator, heads: int, kept: int, queries: int, keys: int,
                                    depth: int, width: int, kind: str, given: dict[str, Any]) -> None:
    arrays = [mo.asarray(rng.standard_normal(shape).astype(kind)) for shape in (
        (1, heads, queries, depth), (1, kept, keys, depth), (1, kept, keys, width))]
    f = mo.compile(lambda q, k, v: mo.attention(q, k, v, **given))
    got = f(*[x.to(gpu) for x in arrays]).numpy()
    assert "1 x SimtAttention attention arithmetic units, block by block" in f.explain()
    assert got.tobytes() == f(*arrays).numpy().tobytes()
    g = mo.compile(mo.grad(lambda q, k, v: mo.sum(mo.attention(q, k, v, **given) ** 2), argnums=(0, 1, 2)))
    for got, want in zip(g(*[x.to(gpu) for x in arrays]), g(*arrays), strict=True):
        assert got.numpy().tobytes() == want.numpy().tobytes()


@pytest.mark.parametrize("masked", ["bool", "float"])
def test_masks_and_values_that_are_not_numbers(gpu: str, rng: np.random.Generator, masked: str) -> None:
    q, k, v = (rng.standard_normal((1, 2, length, 16)).astype("f") for length in (20, 80, 80))
    seen = rng.random((1, 1, 20, 80)) < 0.6
    seen[..., 7], seen[0, 0, 4] = False, False
    v[0, :, 7] = np.nan  # no query sees it
    mask = seen if masked == "bool" else np.where(seen, rng.standard_normal(seen.shape), -np.inf).astype("f")
    given = [mo.asarray(x) for x in (q, k, v, mask)]
    f = mo.compile(lambda q, k, v, m: mo.attention(q, k, v, mask=m))
    got = f(*[x.to(gpu) for x in given]).numpy()
    assert got.tobytes() == f(*given).numpy().tobytes() and np.isfinite(got).all()


def test_their_kernels_assemble() -> None:
    if ptxas.find() is None:
        pytest.skip("ptxas is not installed (nvidia-cuda-nvcc)")
    forward = [SimtSpec(mo.float32, depth, depth, 0.125, 0, True, 0, None, False, rows, "simt", paged)
               for depth, rows, paged in ((128, 32, False), (64, 4, True))]
    kernels: list[Any] = [SimtAttention(spec) for spec in forward]
    kernels += [SimtGradient(SimtBackwardSpec(part, mo.float32, 128, 128, 0.125, 0, True, 0, None, False, "simt"))
                for part in ("keys",)]
    said = ptxas.check([ptx.assembly(kernel.text(), "sm_80") for kernel in kernels])
    assert said.count("0 bytes spill stores") == len(kernels)


def test_the_gradient_of_a_sum_stays_on_arithmetic_units(gpu: str, rng: np.random.Generator) -> None:
    """Its cotangent is one number, whose rows do not lie side by side."""
    q, k, v = (mo.asarray(rng.standard_normal((1, 2, 9, 16)).astype("f")) for _ in range(3))
    f = mo.compile(mo.grad(lambda q, k, v: mo.attention(q, k, v).sum()))
    want = f(q, k, v).numpy()
    assert f(*(x.to(gpu) for x in (q, k, v))).numpy().tobytes() == want.tobytes()
    assert "arithmetic units, block by block" in str(f.explain())
