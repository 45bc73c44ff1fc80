"""`x[i]` inside a loop: a view that moves with it, without a kernel of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo


def labels(f: Any) -> str:
    return " ".join(step.label for step in f.current.plan.program.steps)


def test_a_triangular_solve_gathers_nothing(rng: np.random.Generator) -> None:
    """Rows, elements of the diagonal and of the right side are views; what is computed is one kernel and a store."""
    lower = np.tril(rng.standard_normal((40, 40))) + 8 * np.eye(40)
    right = rng.standard_normal(40)

    @mo.compile
    def solve(lower: Any, right: Any) -> Any:
        def turn(i: Any, x: Any) -> Any:
            x[i] = (right[i] - mo.sum(lower[i] * x)) / lower[i, i]
            return x

        return mo.fori_loop(0, 40, turn, mo.zeros(40, dtype="float64"))

    found = solve(mo.asarray(lower), mo.asarray(right)).numpy()
    np.testing.assert_allclose(found, np.linalg.solve(lower, right), rtol=1e-10)
    assert "gather" not in labels(solve) and solve.stats["kernels"] == 3  # the zeros before the loop among them


KEYS: dict[str, Any] = {
    "rows": lambda x, i: x[i], "columns": lambda x, i: x[:, i], "after": lambda x, i: x[i + 1, 2:],
    "from the end": lambda x, i: x[-1 - i], "every other": lambda x, i: x[2 * i], "both": lambda x, i: x[i, i + 1],
    "backwards": lambda x, i: x[9 - i, :3], "a slice of a view": lambda x, i: x.T[i],
}


@pytest.mark.parametrize("name", KEYS)
def test_keys(name: str, rng: np.random.Generator) -> None:
    x, key = rng.standard_normal((12, 12)), KEYS[name]
    in_order: Any = mo.sort if key(x, 0).ndim else mo.sin  # a step of its own, and no loop in registers
    by_numpy: Any = np.sort if key(x, 0).ndim else np.sin
    f = mo.compile(lambda x: mo.fori_loop(0, 5, lambda i, s: s + in_order(key(x, i)), key(x, 0) * 0))
    want = sum((by_numpy(key(x, i)) for i in range(5)), key(x, 0) * 0)
    np.testing.assert_allclose(f(mo.asarray(x)).numpy(), want, rtol=1e-12)
    assert "gather" not in labels(f)


def test_scans_with_a_gradient(rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 30))
    loss = mo.compile(mo.grad(lambda x: mo.sum(mo.fori_loop(0, 6, lambda i, s: mo.tanh(s + x[i]) * x[i, 0], x[0]))))

    def by_hand(x: Any) -> Any:
        s = x[0]
        for i in range(6):
            s = mo.tanh(s + x[i]) * x[i, 0]
        return mo.sum(s)

    np.testing.assert_allclose(loss(mo.asarray(x)).numpy(), mo.grad(by_hand)(mo.asarray(x)).numpy(), rtol=1e-9)


def test_an_index_outside_is_found_when_it_runs(rng: np.random.Generator) -> None:
    f = mo.compile(lambda x: mo.fori_loop(0, 7, lambda i, s: s + mo.sort(x[i]), x[0]))
    with pytest.raises(IndexError):
        f(mo.asarray(rng.standard_normal((6, 3))))


def test_what_the_loop_changes_is_read_as_it_is(rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 40))

    @mo.compile
    def f(x: Any) -> Any:
        def turn(i: Any, x: Any) -> Any:
            x[i + 1] = mo.sort(x[i]) + x[i + 1]
            return x

        return mo.fori_loop(0, 5, turn, x)

    want = x.copy()
    for i in range(5):
        want[i + 1] += np.sort(want[i])
    np.testing.assert_array_equal(f(mo.asarray(x)).numpy(), want)
