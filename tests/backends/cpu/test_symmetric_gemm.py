"""A matrix times its own transpose, computed up to the diagonal: the bits of the whole product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.machine import available_isas, machine

WAY = "gemm of a matrix and its transpose"
NAMES = [name for name in available_isas(machine()) if name != "amx"]


def both(function: Any, whole: Any, *given: np.ndarray) -> tuple[Any, Any]:
    """What a function gives of a matrix and its transpose, and of two matrices that nobody knows to be the same."""
    x, *more = map(mo.asarray, given)
    run, general = mo.compile(function), mo.compile(whole)
    results = run(x, *more), general(x, mo.asarray(given[0].copy()), *more)
    assert WAY in run.explain() and WAY not in general.explain()
    return tuple(result.numpy() for result in results)  # type: ignore[return-value]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(193, 64), (300, 131), (448, 70)])
@pytest.mark.parametrize("threads", [1, 3])
def test_has_the_bits_of_the_product(shape: tuple[int, int], dtype: str, threads: int,
                                     rng: np.random.Generator) -> None:
    x = rng.standard_normal(shape).astype(dtype)
    with mo.settings(threads=threads):
        for given, function, whole in ((x, lambda a: a @ a.T, lambda a, b: a @ b.T),
                                       (x.T.copy(), lambda a: a.T @ a, lambda a, b: a.T @ b)):
            got, expected = both(function, whole, given)
            assert got.tobytes() == expected.tobytes()
    np.testing.assert_allclose(got, x @ x.T, rtol=1e-3, atol=1e-3)


def test_what_follows_runs_on_both_sides(rng: np.random.Generator) -> None:
    x, scale, added = rng.standard_normal((201, 80)), rng.standard_normal(201), rng.standard_normal((201, 201))
    got, expected = both(lambda a, s, c: mo.tanh(a @ a.T * s) + c, lambda a, b, s, c: mo.tanh(a @ b.T * s) + c,
                         x, scale, added)
    assert got.tobytes() == expected.tobytes()


def test_batches(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 200, 66)).astype(np.float32)
    got, expected = both(lambda a: a @ a.mT, lambda a, b: a @ b.mT, x)
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("isa", NAMES)
def test_every_instruction_set(isa: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((195, 64)).astype(np.float32)
    with mo.settings(isa=isa):
        got, expected = both(lambda a: a @ a.T, lambda a, b: a @ b.T, x)
    assert got.tobytes() == expected.tobytes() and np.array_equal(got, got.T)


def test_others_are_products_as_before(rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((200, 200)))
    for function in (lambda a: a @ a, lambda a: a[:150] @ a[:150].T, lambda a: a[:, 1:] @ a[:, :-1].T):
        run = mo.compile(function)
        run(x)
        assert WAY not in run.explain()
