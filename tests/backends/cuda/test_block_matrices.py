"""Small matrices, a block each, on the emulated device: the CPU's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo

CALLS: dict[str, Any] = {
    "cholesky": lambda a: mo.linalg.cholesky(a @ a.mT + 3 * mo.eye(a.shape[-1], device=a.device)),
    "upper": lambda a: mo.linalg.cholesky(a @ a.mT + 3 * mo.eye(a.shape[-1], device=a.device), upper=True),
    "det": mo.linalg.det, "slogdet": lambda a: mo.linalg.slogdet(a)[1], "sign": lambda a: mo.linalg.slogdet(a)[0],
    "inv": mo.linalg.inv, "solve": lambda a: mo.linalg.solve(a, a[..., :3]),
    "permutation": lambda a: mo.linalg.lu(a)[0], "lower": lambda a: mo.linalg.lu(a)[1],
    "triangular": lambda a: mo.linalg.solve_triangular(a, a.mT)}


@pytest.mark.parametrize("shape", [(2, 7, 7), (32, 32)], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_a_block_a_matrix_has_the_cpus_bits(gpu: str, rng: np.random.Generator, name: str,
                                            shape: tuple[int, ...]) -> None:
    x = mo.asarray(rng.standard_normal(shape).astype("float64" if name == "inv" else "float32"))
    f, g = mo.compile(CALLS[name]), mo.compile(CALLS[name])
    assert g(x.to(gpu)).numpy().tobytes() == f(x).numpy().tobytes()
    assert "BlockMatrix" in str(g.explain())


def test_singular_and_indefinite_matrices_are_errors(gpu: str) -> None:
    x = mo.zeros((2, 8, 8), device=gpu)
    for call in (mo.linalg.inv, mo.linalg.cholesky, lambda a: mo.linalg.solve(a, a)):
        with pytest.raises(mo.errors.MorphoError):
            call(x).numpy()
    assert mo.linalg.det(x).tolist() == [0.0, 0.0]
