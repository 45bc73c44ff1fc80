"""Programs of small, odd shapes for every instruction set and level: the values are those of the machine's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo

# Each at some shapes (rows, columns); with one lane a vector is a number.
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "cross_entropy": lambda x: mo.cross_entropy(x, mo.arange(x.shape[0]) % x.shape[1]),
    "slice": lambda x: x[:, 1:] * 2 + x[:, :1],
    "gelu": lambda x: mo.grad(lambda w: mo.gelu(x @ w + 1).sum())(mo.ones((x.shape[1], 5), dtype=x.dtype)),
    "softmax": lambda x: mo.softmax(x, axis=-1),
    "gather": lambda x: mo.take(x, mo.arange(x.shape[1]) * 5 % x.shape[1], axis=1).sum(axis=1),
    "scatter": lambda x: mo.zeros_like(x).at[mo.arange(x.shape[0]) * 3 % x.shape[0]].add(x),
    "loop": lambda x: mo.fori_loop(0, 3, lambda i, s: mo.sin(s) * 0.5, x),
    "sort": lambda x: mo.sort(x, axis=-1), "transpose": lambda x: mo.cumulative_sum(x.T, axis=0) + 1,
}
SHAPES = [(16, 7), (1, 17), (3, 13), (5, 1)]
CASES = [(isa, level, shape, dtype) for isa in ("scalar", "vector128", "vector256", "vector512") for level in (0, 3)
         for shape in SHAPES for dtype in ("float32", "float16")]


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES, ids=lambda case: "_".join(map(str, case)))
def test_small_programs_for_every_instruction_set(case: tuple[str, int, tuple[int, int], str], sample: Any,
                                                  rng: np.random.Generator) -> None:
    isa, level, shape, dtype = case
    x = mo.asarray(rng.normal(size=shape).astype(dtype))
    for name in sample(sorted(PROGRAMS)):
        program = PROGRAMS[name]
        with mo.settings(isa=isa, level=level):
            found = program(x).numpy()
        assert found.tobytes() == program(x).numpy().tobytes(), name


@pytest.mark.parametrize("columns", [7, 12, 17])
def test_cross_entropy_of_few_classes_on_scalars(columns: int, rng: np.random.Generator) -> None:
    x, t = mo.asarray(rng.normal(size=(16, columns)).astype("f")), mo.asarray(rng.integers(0, columns, 16))
    with mo.settings(isa="scalar"):
        found = mo.cross_entropy(x, t).item()
    assert found == mo.cross_entropy(x, t).item()
