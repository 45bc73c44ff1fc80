"""Long lines sorted by the whole grid, on the emulated device: the CPU's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.cuda.sorting import lower
from morpho.backends.cuda.sorting.radix import TILE


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of fewer elements are long here: the emulated grid takes its time."""
    monkeypatch.setattr(lower, "LONG", 64)


@pytest.mark.parametrize(("dtype", "length"), [("float32", TILE + 7), ("int16", 200), ("bfloat16", 2 * TILE + 1)])
def test_a_long_line_has_the_cpus_order(gpu: str, rng: np.random.Generator, dtype: str, length: int) -> None:
    x = np.round(rng.standard_normal(length) * 40, 1)  # many are equal
    x[::97], x[1::101], x[5::211] = -0.0, 0.0, 0 if dtype == "int16" else np.nan
    here = mo.astype(mo.asarray(x), dtype).realise()
    there = here.to(gpu)
    for how, descending in ((mo.sort, dtype == "bfloat16"), (mo.argsort, dtype != "float32")):
        got, want = how(there, descending=descending), how(here, descending=descending)
        assert got.device == gpu and got.numpy().tobytes() == want.numpy().tobytes()


def test_a_line_whose_elements_lie_apart(gpu: str, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((100, 2)).astype("f"))
    y: Any = x.to(gpu)
    assert np.array_equal(mo.sort(y[:, 1:], axis=0).numpy(), mo.sort(x[:, 1:], axis=0).numpy())
    f = mo.compile(lambda a: mo.argsort(a[::-1, 0]))
    assert np.array_equal(f(y).numpy(), f(x).numpy())
