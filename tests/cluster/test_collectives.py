"""Collectives on tensors over several ranks, by themselves and compiled: values, and gradients of the sum of what all
ranks make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import cluster
from morpho.base.trees import flatten
from morpho.cluster.groups.threads import ThreadGroup, run_threads
from morpho.runtime.groups.group import Group

RANKS, SHAPE = 3, (3, 6)
Parts = list[np.ndarray]


def columns(x: np.ndarray, rank: int) -> np.ndarray:
    return np.split(x, RANKS, 1)[rank]


# What each rank gets of everybody's x, and what each rank's x is worth where `w` is what the results are worth.
CASES: dict[str, tuple[Callable[[Any, Group], mo.Tensor], Callable[[Parts, int], np.ndarray],
                       Callable[[Parts, int], np.ndarray]]] = {
    "sum": (lambda x, g: cluster.all_reduce(x, "sum", g), lambda x, rank: sum(x), lambda w, rank: sum(w)),
    "mean": (lambda x, g: cluster.all_reduce(x, "mean", g), lambda x, rank: sum(x) / RANKS,
             lambda w, rank: sum(w) / RANKS),
    "gather": (lambda x, g: cluster.all_gather(x, 1, g), lambda x, rank: np.concatenate(x, 1),
               lambda w, rank: sum(columns(each, rank) for each in w)),
    "scatter": (lambda x, g: cluster.reduce_scatter(x, "sum", 1, g), lambda x, rank: columns(sum(x), rank),
                lambda w, rank: np.concatenate(w, 1)),
    "to all": (lambda x, g: cluster.all_to_all(x, 0, 1, g),
               lambda x, rank: np.concatenate([np.split(each, RANKS)[rank] for each in x], 1),
               lambda w, rank: np.concatenate([columns(each, rank) for each in w])),
    "broadcast": (lambda x, g: cluster.broadcast(x, 1, g), lambda x, rank: x[1],
                  lambda w, rank: sum(w) if rank == 1 else np.zeros(SHAPE)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, compiled: bool) -> None:
    call, value, gradient = CASES[name]
    rng = np.random.default_rng(0)
    x = [rng.integers(-9, 9, SHAPE).astype(np.float32) for _ in range(RANKS)]
    expected = [value(x, rank) for rank in range(RANKS)]
    worth = [rng.integers(-9, 9, each.shape).astype(np.float32) for each in expected]

    def rank(group: Group) -> tuple[np.ndarray, np.ndarray]:
        def loss(given: mo.Tensor) -> mo.Tensor:
            return mo.sum(call(given, group) * worth[group.rank])

        own = mo.asarray(x[group.rank])
        found = (mo.compile(lambda given: call(given, group)) if compiled else lambda given: call(given, group))(own)
        slope = mo.compile(mo.grad(loss)) if compiled else mo.grad(loss)
        return found.numpy(), slope(own).numpy()

    for number, (found, slope) in enumerate(run_threads(RANKS, rank)):
        np.testing.assert_allclose(found, expected[number], rtol=1e-6)
        np.testing.assert_allclose(slope, gradient(worth, number), rtol=1e-6)


OTHERS: dict[str, Callable[[mo.Tensor], Any]] = {
    "value": lambda x: x * 2, "argument": lambda x: x, "number": lambda x: 0.0, "nothing": lambda x: None,
    "several": lambda x: (x + 1, {"a": x[0] > 1}), "constant": lambda x: mo.zeros(3)}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_rank_that_has_no_use_for_a_result_comes_to_it_all_the_same(other: Callable[[mo.Tensor], Any]) -> None:
    """`if rank == 0: return total`: the others compute something else, and nobody waits for ever."""

    def rank(group: Group) -> list[Any]:
        def step(x: mo.Tensor) -> Any:
            total = cluster.all_reduce(x, "sum", group)
            largest = cluster.all_reduce(total + group.rank, "max", group)
            return largest if group.rank == 0 else other(x)

        compiled = mo.compile(step)
        return [compiled(mo.asarray(np.full(3, group.rank + turn, np.float32))) for turn in range(3)]

    first, *others = run_threads(RANKS, rank)
    assert [found.tolist() for found in first] == [[5.0 + 3 * turn] * 3 for turn in range(3)]
    for number, found in enumerate(others, 1):
        for turn, mine in enumerate(found):
            expected = other(mo.asarray(np.full(3, number + turn, np.float32)))
            assert repr(mine) == repr(expected)


def test_an_unused_collective_of_a_loop_s_body_is_nobody_s() -> None:
    """Rows and bodies have parameters of their own: what they leave out stays left out on all ranks."""

    def rank(group: Group) -> Any:
        def row(x: mo.Tensor) -> mo.Tensor:
            cluster.all_reduce(x, "sum", group)
            return x * 2

        return mo.compile(mo.vmap(row))(mo.ones((2, 3))).tolist()

    assert run_threads(RANKS, rank) == [[[2.0] * 3] * 2] * RANKS


def total(x: Any, group: Group) -> mo.Tensor:
    return cluster.all_reduce(x, "sum", group)


def both_slopes(x: mo.Tensor, group: Group) -> tuple[Any, ...]:
    value, slope = mo.value_and_grad(lambda x: mo.sum(total(x * x, group)))(x)
    moved = mo.jvp(lambda x: total(x * x, group), (x,), (mo.ones(3),))[1]
    return value, slope, moved, mo.jacrev(lambda x: total(x * x, group))(x)


def turns(x: mo.Tensor, group: Group) -> mo.Tensor:
    return mo.scan(lambda carry, row: (carry * total(row, group), None), x, mo.stack([x, x + 1]))[0]


def branch(x: mo.Tensor, group: Group) -> tuple[Any, ...]:
    return (mo.cond(x[0] > 0, lambda: total(x, group), lambda: x),
            mo.cond(x[0] < 0, lambda: total(x, group), lambda: x),
            mo.while_loop(lambda s: total(s, group)[0] < 9, lambda s: total(s, group), mo.ones(3)))


AROUND: dict[str, tuple[Callable[[mo.Tensor, Group], Any], int]] = {  # and how many collectives each rank comes to
    "gradients": (both_slopes, 6), "scan": (turns, 2), "branches": (branch, 4),
    "slope of a scan": (lambda x, g: mo.grad(lambda x: mo.sum(turns(x, g)))(x), 6),
    "rows": (lambda x, g: mo.vmap(lambda row: total(row, g))(mo.stack([x, x + 1])), 1)}


@pytest.mark.parametrize(("around", "count"), AROUND.values(), ids=AROUND)
def test_collectives_of_gradients_bodies_and_rows_are_in_the_order_of_the_others(
        around: Callable[[mo.Tensor, Group], Any], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One before them, one after, and ranks that use one thing each: all come to the same ones, and none to that of a
    branch that is not taken."""
    came, run = [], ThreadGroup._run
    monkeypatch.setattr(ThreadGroup, "_run", lambda group, *asked: (came.append(group.rank), run(group, *asked))[1])

    def rank(group: Group) -> Any:
        def step(x: mo.Tensor) -> Any:
            first, inside = cluster.all_reduce(x, "max", group), around(x, group)
            return [first, inside, cluster.all_reduce(x, "min", group), x][group.rank]

        return mo.compile(step)(mo.asarray(np.full(3, group.rank + 1, np.float32)))

    first, _, last, own = run_threads(4, rank)
    assert (first.tolist(), last.tolist(), own.tolist()) == ([4.0] * 3, [1.0] * 3, [4.0] * 3)
    assert [came.count(number) for number in range(4)] == [count + 2] * 4


LOOPS: dict[str, Callable[[mo.Tensor, Group], Any]] = {
    "scan": turns, "branch and loop": branch, "rows": AROUND["rows"][0],
    "branches that both have one": lambda x, g: mo.cond(x[0] > 9, lambda v: total(v, g), lambda v: total(v * 2, g), x),
    "a branch in a scan": lambda x, g: mo.scan(
        lambda carry, row: (mo.cond(row[0] > 0, lambda: total(carry, g) / 3, lambda: carry), total(row, g)),
        x, mo.stack([x, x + 1]))}


@pytest.mark.parametrize("around", LOOPS.values(), ids=LOOPS)
def test_values_of_bodies_outside_of_compiled_functions(around: Callable[[mo.Tensor, Group], Any]) -> None:
    def rank(group: Group) -> Any:
        def step(x: mo.Tensor) -> mo.Tensor:
            parts: list[mo.Tensor] = []
            flatten(around(x, group), parts)
            return sum(map(mo.sum, parts), mo.asarray(0.0))

        x = mo.asarray(np.full(3, group.rank + 1, np.float32))
        return step(x).item(), mo.compile(step)(x).item()

    for own, compiled in run_threads(RANKS, rank):
        assert own == compiled


@pytest.mark.parametrize("around", LOOPS.values(), ids=LOOPS)
def test_bodies_outside_of_compiled_functions_keep_the_order_in_which_they_are_written(
        around: Callable[[mo.Tensor, Group], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for: ranks ask for one thing each."""
    came: dict[int, list[str]] = {}
    run = ThreadGroup._run
    monkeypatch.setattr(ThreadGroup, "_run", lambda group, operation, wait, *arguments: (
        came.setdefault(group.rank, []).append(arguments[1]), run(group, operation, wait, *arguments))[1])

    def rank(group: Group) -> Any:
        x = mo.asarray(np.full(3, group.rank + 1, np.float32))
        values = [cluster.all_reduce(x, "max", group), around(x, group), cluster.all_reduce(x, "min", group)]
        return values[2 * (group.rank % 2)].tolist()

    assert run_threads(RANKS, rank) == [[3.0] * 3, [1.0] * 3, [3.0] * 3]
    orders = [came[number] for number in range(RANKS)]
    assert orders[0] == orders[1] == orders[2] and (orders[0][0], orders[0][-1]) == ("max", "min")
    assert orders[0].count("sum") == len(orders[0]) - 2 > 0


def test_a_function_that_gives_nothing_is_called_again_and_with_other_numbers() -> None:
    """Its program has a result that is nobody's, which needs memory of its own at every call."""

    def rank(group: Group) -> Any:
        compiled = mo.compile(lambda x, by: [total(x * by, group), None][group.rank > 0])
        return [compiled(mo.ones(3), by) for by in (0.5, 1.5, 2.5, 3.5, 3.5)]

    first, *others = run_threads(RANKS, rank)
    assert [found.tolist() for found in first] == [[RANKS * by] * 3 for by in (0.5, 1.5, 2.5, 3.5, 3.5)]
    assert others == [[None] * 5] * (RANKS - 1)
