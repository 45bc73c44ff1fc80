"""Copies that turn rows into columns go by tiles."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint32", "float16", "bool"])
@pytest.mark.parametrize("shape", [(8, 8), (9, 17), (30, 100), (3, 50), (64, 1)])
def test_every_element_is_where_it_belongs(shape: tuple[int, int], dtype: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    wide = np.concatenate([x, x], axis=1)
    f = mo.compile(lambda x: mo.concat([x.T, x.T], axis=0))
    part = mo.compile(lambda x: mo.concat([x[:, :shape[1]].T], axis=0))
    for threads in (1, 2):
        with mo.settings(threads=threads):
            assert f(mo.asarray(x)).numpy().tobytes() == np.concatenate([x.T, x.T], axis=0).tobytes()
            assert part(mo.asarray(wide)).numpy().tobytes() == np.ascontiguousarray(x.T).tobytes()
    tiled = min(shape) >= 8
    with mo.settings(isa="native"):
        assert ("copy (transposed)" in f.explain()) <= tiled


def test_wide_elements_go_by_tiles() -> None:
    f = mo.compile(lambda x: mo.concat([x.T], axis=0))
    f(mo.ones((40, 50), dtype="float32"))
    assert "copy (transposed)" in f.explain() or "scalar" in f.explain()


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "complex64"])
@pytest.mark.parametrize("shape", [(9, 30, 4), (30, 17, 2), (12, 12, 3), (5, 300, 1), (2, 50, 4), (16, 8, 8)])
def test_short_runs_stay_together(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> None:
    """The first two axes of three exchanged; also of a part of a larger array, and into one."""
    x = rng.integers(0, 100, (*shape[:2], 2 * shape[2])).astype(dtype)
    part = x[..., :shape[2]]
    f = mo.compile(lambda x: mo.concat([mo.permute_dims(x, (1, 0, 2))], axis=0))
    inside = mo.compile(lambda x: mo.concat([mo.permute_dims(x[..., :shape[2]], (1, 0, 2))] * 2, axis=2))
    whole = np.ascontiguousarray(part)
    assert f(mo.asarray(whole)).numpy().tobytes() == np.ascontiguousarray(whole.transpose(1, 0, 2)).tobytes()
    assert inside(mo.asarray(x)).numpy().tobytes() == np.concatenate([part.transpose(1, 0, 2)] * 2, axis=2).tobytes()
    if dtype == "float32" and shape == (9, 30, 4) and machine_has_wide_vectors():
        assert "copy (transposed)" in f.explain()


def machine_has_wide_vectors() -> bool:
    f = mo.compile(lambda x: x + 1)
    f(mo.ones(3))
    return "avx512" in f.explain()
