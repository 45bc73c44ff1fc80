"""Functions that pack the same weights share what was packed, for as long as one of them lives."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

import morpho as mo
from morpho.runtime.plans.evaluate import counts
from morpho.tensor.jit.shared_packs import shared


def weight_of(rng: np.random.Generator) -> mo.Quantised:
    return mo.quantise(rng.standard_normal((96, 64)).astype(np.float32), "q4_1")


def packs(function: Any) -> list[int]:
    """Addresses of what a function has packed."""
    return [buffer.address for chosen in function.specialisations.values() for buffer in chosen.prepared.buffers
            if buffer is not None]


def test_the_second_function_packs_nothing(rng: np.random.Generator) -> None:
    weight = weight_of(rng)
    one, many = mo.compile(lambda x: mo.matmul(x, weight)), mo.compile(lambda x: mo.matmul(x, weight) * 2)
    a = one(mo.ones((1, 64))).numpy()
    taken = shared.taken
    many(mo.zeros((5, 64)))
    before = counts.kernels_run
    b = many(mo.ones((5, 64))).numpy()
    assert packs(one) == packs(many) != [] and shared.taken == taken + 1
    assert np.array_equal(b[3], 2 * a[0]) and counts.kernels_run - before <= 2


def test_packs_go_with_the_last_function(rng: np.random.Generator) -> None:
    gc.collect()
    before = len(shared)
    weight = weight_of(rng)
    one, other = mo.compile(lambda x: mo.matmul(x, weight)), mo.compile(lambda x: mo.matmul(x, weight) + 1)
    one(mo.ones((1, 64)))
    other(mo.ones((1, 64)))
    assert len(shared) == before + 1
    del one
    gc.collect()
    assert len(shared) == before + 1
    del other
    gc.collect()
    assert len(shared) == before


def test_weights_that_change_are_packed_anew(rng: np.random.Generator) -> None:
    layer = mo.nn.Linear(64, 640, bias=False)
    frozen = mo.nn.Frozen(layer)

    def make() -> Any:
        def apply(x: mo.Tensor) -> mo.Tensor:
            frozen.use()
            return layer(x)
        return mo.compile(apply)

    functions, x = [make() for _ in range(3)], mo.asarray(rng.standard_normal((200, 64)).astype(np.float32))
    for value in (1.0, 2.0, 3.0):
        layer.weight.assign(mo.full((640, 64), value))
        frozen.refresh()
        found = [function(x).numpy() for function in functions]
        assert all(np.array_equal(each, found[0]) for each in found)
        assert np.allclose(found[0][:, 5], value * x.numpy().sum(1), rtol=1e-3, atol=1e-3)


def test_elements_overwritten_in_place_are_forgotten() -> None:
    given = mo.asarray(np.ones((64, 640), np.float32), copy=True).realise()
    functions = [mo.compile(lambda x: x @ given), mo.compile(lambda x: x @ given + 0)]
    x = mo.ones((200, 64))
    assert [function(x).numpy()[0, 0] for function in functions] == [64, 64]
    given[:] = 2.0
    given.realise()
    assert [function(x).numpy()[0, 0] for function in functions] == [128, 128]
