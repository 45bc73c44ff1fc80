"""Sizes that are data, inside compiled functions: one program for every count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo


def inputs(rng: np.random.Generator, shape: tuple[int, ...] = (6, 5)) -> list[np.ndarray]:
    """Some, none, all, one."""
    x = rng.integers(-4, 5, shape).astype("f")
    one = -np.ones(shape, "f")
    one.reshape(-1)[7] = 3
    return [x, -np.abs(x) - 1, np.abs(x) + 1, one, rng.standard_normal(shape).astype("f")]


def leaves(tree: Any) -> list[Any]:
    return [part for one in tree for part in leaves(one)] if isinstance(tree, tuple | list) else [tree]


def check(function: Callable[..., Any], by_numpy: Callable[..., Any], given: list[np.ndarray], **options: Any) -> Any:
    f = mo.compile(function, **options)
    for x in given:
        found, want = leaves(f(mo.asarray(x))), leaves(by_numpy(x))
        assert len(found) == len(want)
        for one, other in zip(found, want, strict=True):
            assert one.shape == np.shape(other)
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)
    assert f.recompiles == 0 and f.stats["host_steps"] == 0 and f.calls == len(given)
    return f


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "mask": (lambda x: x[x > 0] * 2, lambda x: x[x > 0] * 2),
    "two of one mask": (lambda x: x[x > 0] + mo.exp(x)[x > 0], lambda x: x[x > 0] + np.exp(x)[x > 0]),
    "two masks": (lambda x: (x[x > 0], x[x < -1] * 3), lambda x: (x[x > 0], x[x < -1] * 3)),
    "rows": (lambda x: x[x[:, 0] > 0] @ mo.ones((5, 3)), lambda x: x[x[:, 0] > 0] @ np.ones((5, 3))),
    "columns": (lambda x: x[1:, x[0] > 0], lambda x: x[1:, x[0] > 0]),
    "sum": (lambda x: mo.sum(x[x > 0]), lambda x: x[x > 0].sum()),
    "how many": (lambda x: x[x > 0].shape[0] + mo.zeros(()), lambda x: np.float32((x > 0).sum())),
    "ones of that size": (lambda x: mo.ones(x[x > 0].shape) + mo.arange(x[x > 0].shape[0]),
                          lambda x: 1.0 + np.arange((x > 0).sum())),
    "nonzero": (lambda x: mo.nonzero(x), np.nonzero),
    "argwhere": (lambda x: mo.argwhere(x > 1), lambda x: np.argwhere(x > 1)),
    "flatnonzero": (lambda x: mo.flatnonzero(x), np.flatnonzero),
    "sorted": (lambda x: mo.sort(x[x > 0]), lambda x: np.sort(x[x > 0])),
    "running": (lambda x: mo.cumulative_sum(x[x > 0]), lambda x: np.cumsum(x[x > 0])),
    "a mask of a mask": (lambda x: x[x > 0][x[x > 0] < 3], lambda x: x[x > 0][x[x > 0] < 3]),
    "product": (lambda x: x[x[:, 0] > 0].T @ x[x[:, 0] > 0], lambda x: x[x[:, 0] > 0].T @ x[x[:, 0] > 0]),
    "unique": (mo.unique_all, lambda x: np.unique(x, return_index=True, return_inverse=True, return_counts=True)),
    "unique values": (lambda x: mo.unique(mo.astype(x, "int64")), lambda x: np.unique(x.astype(int))),
}


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str, rng: np.random.Generator) -> None:
    check(*CASES[name], inputs(rng))


def test_assigning_by_a_mask(rng: np.random.Generator) -> None:
    def function(x: Any) -> Any:
        y = x + 0
        y[x > 0] = mo.cumulative_sum(x[x > 0])
        return y.at[x < 0].add(x[x < 0])

    def by_numpy(x: np.ndarray) -> np.ndarray:
        y = x.copy()
        y[x > 0] = np.cumsum(x[x > 0])
        y[x < 0] += x[x < 0]
        return y

    check(function, by_numpy, inputs(rng))


def test_what_was_selected_for_nothing() -> None:
    """It is counted, and no value that is left has that size."""
    def f(a: Any, b: Any) -> Any:
        b[a > 2] = a[a > 2]
        return a + 1

    compiled = mo.compile(f)
    for numbers in ([1, 3, 5], [0, 0, 0], [4, 4, 4]):
        assert compiled(mo.asarray(numbers), mo.asarray([1, 2, 3])).tolist() == [n + 1 for n in numbers]


def test_gradients(rng: np.random.Generator) -> None:
    check(mo.grad(lambda x: mo.sum(x[x > 0] ** 2)), lambda x: np.where(x > 0, 2 * x, 0), inputs(rng))


def test_with_a_dynamic_argument(rng: np.random.Generator) -> None:
    given = [rng.standard_normal((n, 3)).astype("f") for n in (1, 9, 30, 4)]
    f = check(lambda x: (x[x[:, 1] > 0], x.shape[0] + mo.zeros(())), lambda x: (x[x[:, 1] > 0], float(len(x))), given,
              dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    assert "size selected_0, as counted" in f.explain()


def test_steps_are_timed_one_by_one(rng: np.random.Generator) -> None:
    f = mo.compile(lambda x: mo.sort(x[x > 0]))
    x = mo.asarray(inputs(rng)[0])
    assert len(f.measure(x, repeats=1)["measured_s"]) == len(f.current.plan.program.steps)


def test_a_plan_is_kept_on_disk(rng: np.random.Generator, tmp_path: Any) -> None:
    x = inputs(rng)[0]
    with mo.settings(cache_dir=str(tmp_path / "code")):
        for hits in (0, 1):
            f = mo.compile(lambda x: x[x > 0] * 2 + 1)
            np.testing.assert_array_equal(f(mo.asarray(x)).numpy(), x[x > 0] * 2 + 1)
            assert f.stats["cache"]["plan"] == hits


def test_what_has_no_value_for_no_elements(rng: np.random.Generator) -> None:
    f = mo.compile(lambda x: mo.max(x[x > 0]))
    some, none, *_ = inputs(rng)
    assert f(mo.asarray(some)).item() == some[some > 0].max()
    with pytest.raises(mo.errors.ShapeError, match="turns out 0"):
        f(mo.asarray(none))


def test_bodies_have_fixed_sizes() -> None:
    f = mo.compile(lambda x: mo.fori_loop(0, 3, lambda i, x: x + mo.sum(x[x > i]), x))
    with pytest.raises(mo.errors.CompileError, match="body of a loop"):
        f(mo.ones(3))
    g = mo.compile(mo.vmap(lambda x: mo.sum(x[x > 0])))
    with pytest.raises(mo.errors.CompileError, match="vmap"):
        g(mo.ones((2, 3)))


def test_targets_are_refused() -> None:
    f = mo.compile(lambda x: x[x > 0])
    with pytest.raises(mo.errors.ArgumentError, match="depend on data"):
        f(mo.ones(3), out=mo.empty(3))


@pytest.mark.parametrize(("function", "shape"), [
    (lambda x: x[x > 0], (0,)), (lambda x: x[x > 0], (3, 0)), (lambda x: x[mo.any(x > 1, axis=1)], (0, 3)),
    (lambda x: mo.nonzero(x)[0], (0,)), (lambda x: mo.unique_values(x), (0,)), (lambda x: mo.unique_counts(x)[1], (0,)),
    (lambda x: mo.unique_inverse(x)[1], (2, 0))])
def test_of_nothing_nothing_is_selected(function: Any, shape: tuple[int, ...]) -> None:
    x = mo.asarray(np.zeros(shape, np.float32))
    found, expected = mo.compile(function)(x).numpy(), function(x).numpy()
    assert found.shape == expected.shape and found.dtype == expected.dtype
