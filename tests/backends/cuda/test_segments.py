"""Values combined at many indices, on the emulated device: sorted, then chains with the CPU's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.cuda.blocks.segments import LEAST

CALLS: dict[str, Any] = {
    "rows": (lambda x, i: mo.scatter_add(mo.zeros((40, 6), device=x.device), i[:, None], x, axis=0), (700, 6), (700,),
             40),
    "line": (lambda x, i: mo.scatter_add(mo.zeros(30, device=x.device), i, x), (600,), (600,), 30),
    "own indices": (lambda x, i: mo.grad(lambda t: (mo.take_along_axis(t, i, axis=1) * x).sum())(x), (3, 640), (3, 640),
                    640),
    "largest": (lambda x, i: mo.segment_max(x, i, num_segments=33), (900,), (900,), 33),
    "products": (lambda x, i: mo.segment_prod(x, i, num_segments=300), (900, 2), (900,), 300),
    "embedding": (lambda x, i: mo.grad(lambda t: (mo.take(t, i, axis=0) ** 2).sum())(x), (50, 5), (LEAST,), 50)}


@pytest.mark.parametrize("name", CALLS)
def test_a_chain_for_each_place_has_the_cpus_bits(gpu: str, rng: np.random.Generator, name: str) -> None:
    call, shape, indices, size = CALLS[name]
    x, i = mo.asarray(rng.standard_normal(shape).astype("f")), mo.asarray(rng.integers(0, size, indices))
    assert call(x.to(gpu), i.to(gpu)).numpy().tobytes() == call(x, i).numpy().tobytes()


def test_half_floats_and_the_last_value_put(gpu: str, rng: np.random.Generator) -> None:
    i = mo.asarray(rng.integers(0, 20, 777).astype("int32"))
    x = mo.asarray(rng.standard_normal(777).astype("f")).astype("bfloat16").realise()
    f = mo.compile(lambda x, i: (mo.segment_sum(x, i, num_segments=20), mo.scatter(mo.zeros_like(x), i, x)))
    wants = f(x, i)
    for got, want in zip(f(x.to(gpu), i.to(gpu)), wants, strict=True):
        assert got.astype("float32").numpy().tobytes() == want.astype("float32").numpy().tobytes()
    assert "after a sort of the indices" in str(f.explain())


def test_an_index_outside_is_an_error(gpu: str) -> None:
    for wrong in (-51, 50):
        i = np.zeros(600, np.int64)
        i[333] = wrong
        with pytest.raises(mo.errors.IndexFault):
            mo.scatter_add(mo.zeros(50, device=gpu), mo.asarray(i).to(gpu), mo.ones(600, device=gpu)).numpy()
