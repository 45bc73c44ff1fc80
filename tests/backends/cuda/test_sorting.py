"""Long lines sorted by the whole grid, on the emulated device: the CPU's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.cuda.blocks.radix import TILE
from morpho.backends.cuda.sorting import lower


@pytest.mark.parametrize(("dtype", "length"), [("float32", TILE + 7), ("int16", 200), ("bfloat16", 2 * TILE + 1)])
def test_a_long_line_has_the_cpus_order(gpu: str, rng: np.random.Generator, dtype: str, length: int) -> None:
    x = np.round(rng.standard_normal(length) * 40, 1)  # many are equal
    x[::97], x[1::101], x[5::211] = -0.0, 0.0, 0 if dtype == "int16" else np.nan
    here = mo.astype(mo.asarray(x), dtype).realise()
    there = here.to(gpu)
    compare(gpu, here, there, dtype)


def compare(gpu: str, here: mo.Tensor, there: mo.Tensor, dtype: str) -> None:
    for how, descending in ((mo.sort, dtype == "bfloat16"), (mo.argsort, dtype != "float32")):
        got, want = how(there, descending=descending), how(here, descending=descending)
        assert got.device == gpu and got.numpy().tobytes() == want.numpy().tobytes()


def test_a_line_whose_elements_lie_apart(gpu: str, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((100, 2)).astype("f"))
    y: Any = x.to(gpu)
    assert np.array_equal(mo.sort(y[:, 1:], axis=0).numpy(), mo.sort(x[:, 1:], axis=0).numpy())
    f = mo.compile(lambda a: mo.argsort(a[::-1, 0]))
    assert np.array_equal(f(y).numpy(), f(x).numpy())


@pytest.mark.parametrize(("shape", "axis", "dtype"), [
    ((5, 64), 1, "float32"), ((3, 300, 2), 1, "float64"), ((2000, 3), 0, "int8"), ((2, TILE), -1, "uint16"),
    ((4, 700), 1, "int64")])
def test_lines_of_a_block(gpu: str, rng: np.random.Generator, shape: tuple[int, ...], axis: int, dtype: str) -> None:
    here = mo.asarray((rng.standard_normal(shape) * 30).astype(dtype)).realise()
    there = here.to(gpu)
    for how in (mo.sort, mo.argsort):
        for descending in (False, True):
            got = how(there, axis=axis, descending=descending)
            assert got.numpy().tobytes() == how(here, axis=axis, descending=descending).numpy().tobytes()


def test_several_long_lines(gpu: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also along the first axis, and with tiles that look back over several others."""
    here = mo.asarray(np.round(rng.standard_normal((4 * TILE + 30, 2)), 2).astype("float16")).realise()
    for how in (mo.sort, mo.argsort):
        assert how(here.to(gpu), axis=0).numpy().tobytes() == how(here, axis=0).numpy().tobytes()
    monkeypatch.setattr(lower, "LONGEST", 64)
    x = mo.asarray(rng.integers(-5, 5, (3, 100)).astype("int32")).realise()
    assert mo.sort(x.to(gpu), axis=1).numpy().tobytes() == mo.sort(x, axis=1).numpy().tobytes()


def test_what_sorts_are_made_of(gpu: str, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((6, 333)).astype("f")).realise()
    there = x.to(gpu)
    calls: list[Any] = [lambda t: mo.topk(t, 7, axis=1)[0], lambda t: mo.median(t, axis=1),
                        lambda t: mo.quantile(t, 0.3, axis=1)]
    for f in calls:
        assert f(there).numpy().tobytes() == f(x).numpy().tobytes()
