"""The order of contraction: exact against every tree, greedy against exact, the cap honoured and named."""

from __future__ import annotations

import doctest
import random
import re
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType

import pytest

from morpho.base.errors import ArgumentError, MemoryLimit
from morpho.cost import contraction as cost
from morpho.cost.contraction import RATES, ContractionRates
from morpho.passes.einsum import contraction, search
from morpho.passes.einsum.contraction import ContractionOrder, checked_order, find_order, given_order
from morpho.passes.einsum.search import Network


def random_network(draws: random.Random, count: int) -> Network:
    """Labels in one to three tensors; those of one tensor, and some others, stand in the result."""
    terms: list[list[str]] = [[] for _ in range(count)]
    output = []
    labels = [f"{chr(97 + i)}" for i in range(count + draws.randrange(1, 4))]
    for label in labels:
        holders = draws.sample(range(count), min(count, draws.choice((1, 2, 2, 2, 3))))
        for holder in holders:
            terms[holder].append(label)
        if len(holders) == 1 or draws.random() < 0.2:
            output.append(label)
    sizes = tuple((label, draws.choice((1, 2, 5, 16, 40, 100))) for label in labels)
    return Network(tuple(tuple(term) for term in terms), tuple(output), sizes, 4)


def all_paths(count: int) -> Iterator[list[tuple[int, int]]]:
    """Every path over `count` tensors."""
    if count == 1:
        yield []
    for i in range(count):
        for j in range(i + 1, count):
            for rest in all_paths(count - 1):
                yield [(i, j), *rest]


def every_order(network: Network) -> list[ContractionOrder]:
    return [given_order(network, path) for path in all_paths(len(network.terms))]


@pytest.mark.parametrize("number", range(12))
def test_exact_is_the_best_of_all_trees(number: int, seed: int) -> None:
    """By estimated time, without a limit and with each limit that makes a difference."""
    network = random_network(random.Random(seed), 2 + number % 4)
    orders = every_order(network)
    assert find_order(network).seconds == pytest.approx(min(order.seconds for order in orders))
    limits = sorted({order.largest_bytes for order in orders})
    for limit in limits:
        found = find_order(network, limit)
        assert found.largest_bytes <= limit
        assert found.seconds == pytest.approx(min(o.seconds for o in orders if o.largest_bytes <= limit))
    if limits[0] > 0:
        with pytest.raises(MemoryLimit, match=rf"the smallest limit that works is {limits[0]} bytes"):
            find_order(network, limits[0] - 1)


@pytest.mark.parametrize("number", range(8))
def test_greedy_is_valid_and_close(number: int, seed: int) -> None:
    """Never better than exact, rarely worse; a limit is honoured."""
    network = random_network(random.Random(seed), 9)
    exact, greedy = find_order(network), find_order(network, None, "greedy")
    assert exact.seconds <= greedy.seconds * (1 + 1e-9)
    assert greedy.seconds <= 3 * exact.seconds
    limited = find_order(network, greedy.largest_bytes, "greedy")
    assert limited.largest_bytes <= greedy.largest_bytes


def test_many_tensors(seed: int) -> None:
    """A chain of fifty matrices, a network of thirty tensors: each tensor is used once, in the same order each time."""
    labels = [f"x{i}" for i in range(51)]
    sizes = tuple((label, 2 + i % 7) for i, label in enumerate(labels))
    chain = Network(tuple(pairwise(labels)), (labels[0], labels[-1]), sizes, 8)
    for network in (chain, random_network(random.Random(seed), 30)):
        order = find_order(network)
        assert len(order.steps) == len(network.terms) - 1
        assert order.steps[-1].result == network.output
        find_order.cache_clear()
        assert find_order(network).path == order.path
    assert find_order(chain).largest_bytes <= 8 * 8 * 8


def test_greedy_names_a_limit_that_works() -> None:
    """The least one it found, when there are too many tensors to know."""
    star = Network(tuple(("x", f"y{i}") for i in range(12)), tuple(f"y{i}" for i in range(12)),
                   (("x", 3), *((f"y{i}", 2) for i in range(12))), 8)
    with pytest.raises(MemoryLimit, match="found to work") as error:
        find_order(star, 16)
    limit = int(re.findall(r"(\d+) bytes\.", str(error.value))[0])
    assert find_order(star, limit).largest_bytes <= limit


def test_rates_decide() -> None:
    """A machine with slow memory takes more operations to write less."""
    network = Network((("a", "b"), ("b", "c"), ("c", "d")), ("a", "d"),
                      (("a", 40), ("b", 12), ("c", 30), ("d", 20)), 4)
    by_flops = find_order(network, rates=ContractionRates(1.0, 1e30, 0.0))
    assert by_flops.flops == min(order.flops for order in every_order(network))
    by_bytes = find_order(network, rates=ContractionRates(1e30, 1.0, 0.0))
    moved = [sum(step.cost.bytes for step in order.steps) for order in (*every_order(network), by_bytes)]
    assert moved[-1] == min(moved)


def test_costs_of_a_chain() -> None:
    """Figures that can be checked by hand, and the table."""
    network = Network((("a", "b"), ("b", "c"), ("c", "d")), ("a", "d"), (("a", 2), ("b", 3), ("c", 5), ("d", 7)), 4)
    order = given_order(network, [(0, 1), (1, 0)])
    assert [step.cost.flops for step in order.steps] == [2 * 2 * 3 * 5, 2 * 2 * 5 * 7]
    assert order.steps[0].cost.bytes == 4 * (6 + 15 + 10)
    assert order.largest_bytes == 4 * 2 * 5
    assert order.seconds == pytest.approx(sum(RATES.seconds(step.cost) for step in order.steps))
    lines = str(order).splitlines()
    assert len(lines) == 4 and "ab,bc->ac" in lines[1] and "ac,cd->ad" in lines[2]
    assert "200 flops (630 in one loop" in lines[3]


def test_given_paths() -> None:
    """Three at once go from left to right; what is no path is refused; a limit binds a given path too."""
    network = Network((("a", "b"), ("b", "c"), ("c", "d")), ("a", "d"), (("a", 2), ("b", 3), ("c", 5), ("d", 7)), 4)
    at_once, left = given_order(network, [(0, 1, 2)]), find_order(network, method="given")
    assert [step.result for step in at_once.steps] == [step.result for step in left.steps] == [("a", "c"), ("a", "d")]
    for path in ([(0, 3)], [(0, 0)], [(0, 1)], [()], [(-1, 0), (0, 1)]):
        with pytest.raises(ArgumentError, match=r"\[einsum\]"):
            given_order(network, path)
    with pytest.raises(MemoryLimit, match="takes 40 bytes"):
        checked_order(left, 39)
    assert checked_order(left, 40) is left
    with pytest.raises(ArgumentError, match="too many"):
        find_order(Network((("a",),) * 17, ("a",), (("a", 2),), 4), method="exact")


@pytest.mark.parametrize("module", [contraction, search, cost], ids=lambda module: module.__name__)
def test_examples(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted and not found.failed
