"""Cheap values of which only shifted parts are read are computed by their readers; the bits stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from benchmarks.peers.morpho import programs
from benchmarks.programs import cases


def diffused(field: Any, coefficient: Any) -> Any:
    """Fluxes of a Laplacian along both axes, none uphill."""
    laplacian = 4 * field[1:-1, 1:-1] - (field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2])
    down = laplacian[1:, 1:-1] - laplacian[:-1, 1:-1]
    down = mo.where(down * (field[2:-1, 2:-2] - field[1:-2, 2:-2]) > 0, 0.0, down)
    across = laplacian[1:-1, 1:] - laplacian[1:-1, :-1]
    across = mo.where(across * (field[2:-2, 2:-1] - field[2:-2, 1:-2]) > 0, 0.0, across)
    return field[2:-2, 2:-2] - coefficient * (down[1:] - down[:-1] + across[:, 1:] - across[:, :-1])


@pytest.mark.parametrize(("size", "kernels"), [(260, 1), (20, 4)])
def test_a_large_stencil_of_stencils_is_one_kernel(size: int, kernels: int, rng: np.random.Generator) -> None:
    field, coefficient = mo.asarray(rng.random((size, size))), mo.asarray(rng.random((size - 4, size - 4)))
    f, plain = mo.compile(diffused), mo.compile(lambda a, b: diffused(a, b))
    with mo.settings(passes_off="stencils"):
        want = plain(field, coefficient).numpy()
    assert f(field, coefficient).numpy().tobytes() == want.tobytes()
    assert (f.stats["kernels"], plain.stats["kernels"]) == (kernels, 4)


@pytest.mark.parametrize("keep", [
    lambda x: (mo.exp(x), 2), lambda x: (mo.cumulative_sum(x, axis=0) * 2, 3), lambda x: (x + 1, 1)],
    ids=["polynomials", "of what is computed", "with another reader"])
def test_others_stay_in_memory(keep: Any, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.random((300, 300)))
    reader = (lambda y: y[1:] * y[:-1]) if keep(x)[1] > 1 else (lambda y: (y[1:] * y[:-1], y))
    f = mo.compile(lambda x: reader(keep(x)[0]))
    f(x)
    assert f.stats["kernels"] == max(2, keep(x)[1])


@pytest.mark.parametrize(("name", "sizes", "kernels"), [("isoneutral", (16, 40, 60), 9), ("life", (280, 300), 5)])
def test_programs(name: str, sizes: tuple[int, ...], kernels: int) -> None:
    """A density of which six parts are read, quotients that stay in memory; sums of rows that Life reads as they are
    and rolled: a kernel for what is inside, one for each pair of borders, one for the corners, a copy of the board."""
    inputs = cases.make_inputs(name, sizes)
    made = programs.prepare(name, inputs)
    found = made.function(*made.arguments)
    assert made.function.stats["kernels"] == kernels
    assert cases.check(name, inputs, programs.to_numpy(found)) <= 1.0
