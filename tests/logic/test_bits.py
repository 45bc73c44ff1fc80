"""Linear recursion on bits, 64 passengers to a word, attacked: sizes around words and vectors, self loops, edges given
twice, nothing at all, nodes of any kind, several threads. The oracle is a search from every source, in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo

RIGHT = "path(X, Y) :- edge(X, Y).\npath(X, Z) :- path(X, Y), edge(Y, Z).\n"
LEFT = "path(X, Y) :- edge(X, Y).\npath(X, Z) :- edge(X, Y), path(Y, Z).\n"
SOURCES = "path(X, Y) :- start(X), edge(X, Y).\npath(X, Z) :- path(X, Y), edge(Y, Z).\n"


def closure(edges: list[tuple[Any, Any]], sources: set[Any] | None = None) -> set[tuple[Any, Any]]:
    """Pairs of a source and what it reaches in one step or more."""
    after: dict[Any, set[Any]] = {}
    for a, b in edges:
        after.setdefault(a, set()).add(b)
    found = set()
    for source in after if sources is None else sources:
        reached, waiting = set(), list(after.get(source, ()))
        while waiting:
            node = waiting.pop()
            if node not in reached:
                reached.add(node)
                waiting += after.get(node, ())
        found |= {(source, node) for node in reached}
    return found


def run(text: str, engine: str = "sparse", **facts: Any) -> mo.logic.Model:
    program = mo.logic.Program(text)
    for name, rows in facts.items():
        program.add(name, rows)
    model = program.run(engine=engine)
    assert engine == "auto" or model.choices[frozenset(["path"])].engine == engine
    return model


def pairs(model: mo.logic.Model) -> set[tuple[Any, Any]]:
    rows = list(model["path"])
    assert len(rows) == len(set(rows)) == model.count("path") and rows == sorted(rows)
    return set(rows)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 129, 511, 512, 513])
def test_so_many_passengers(count: int) -> None:
    """A cycle of all, or a tree with loops: the last bit of a word, the first of the next, and none behind the last."""
    nodes = np.random.default_rng(count).permutation(count).tolist()
    cycle = [*zip(nodes, nodes[1:] + nodes[:1], strict=True)]
    tree = [(n, (n - 1) // 2) for n in range(1, count)] + [(n, n) for n in nodes[::3]]
    for text in (RIGHT, LEFT):
        assert run(text, edge=cycle + cycle[: count // 2]).count("path") == count * count
        assert pairs(run(text, edge=tree)) == closure(tree)


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_by_every_engine_and_any_number_of_threads(seed: int) -> None:
    """Self loops, edges that stand twice, nodes nothing leads to, sources that are no nodes."""
    rng = np.random.default_rng(seed)
    nodes = (3, 20, 64, 65, 130, 300)[seed]
    edges = rng.integers(0, nodes, (int(nodes * rng.choice([0.5, 1.0, 1.4])) + 1, 2))
    edges = np.concatenate([edges, edges[:2], [[0, 0]]])
    starts = rng.integers(0, nodes + 3, (int(rng.choice([1, 40, 64, 70])), 1))
    listed = [tuple(row) for row in edges.tolist()]
    want, some = closure(listed), closure(listed, {row[0] for row in starts.tolist()})
    for engine, threads in (("sparse", 1), ("sparse", 4), ("auto", 2)):
        with mo.settings(threads=threads):
            assert pairs(run(RIGHT, engine, edge=edges)) == want
            assert pairs(run(SOURCES, engine, edge=edges, start=starts)) == some


@pytest.mark.parametrize("kind", ["far", "float", "extreme", "negative", "symbol"])
def test_nodes_of_any_kind(kind: str) -> None:
    """Numbers far apart are not counted through; floats are their bits, of which the difference overflows."""
    values: dict[str, list[Any]] = {
        "far": [0, 10**6, 10**12, -(10**15)], "float": [-1.0, 1.0, 0.5, -2.5],
        "extreme": [-(2**63), 2**63 - 1, 0, -1], "negative": [-7, -6, -5, -4], "symbol": ["ann", "bob", "cid", "dora"]}
    a, b, c, d = values[kind]
    edges = [(a, b), (b, c), (c, a), (d, a), (a, b)]
    for text in (RIGHT, LEFT):
        assert pairs(run(text, edge=edges)) == closure(edges)


@pytest.mark.parametrize("engine", ["sparse", "auto", "tuples"])
def test_nothing_gives_nothing(engine: str) -> None:
    none = np.zeros((0, 2), np.int64)
    for text, facts in ((RIGHT, {"edge": none}), (SOURCES, {"edge": [(1, 2)], "start": none[:, :1]}),
                        (SOURCES, {"edge": none, "start": [(1,)]}), (SOURCES, {"edge": [(1, 2)], "start": [(2,)]})):
        program = mo.logic.Program("predicate edge(int, int). predicate start(int).\n" + text)
        for name, rows in facts.items():
            program.add(name, rows)
        model = program.run(engine=engine)
        assert model.count("path") == 0 and list(model["path"]) == []


def test_several_kinds_of_edges_and_passengers_that_some_rules_leave_behind() -> None:
    text = RIGHT + "path(X, Z) :- path(X, Y), bus(Y, Z), rich(X).\n"
    rng = np.random.default_rng(5)
    edges, buses = rng.integers(0, 90, (70, 2)), rng.integers(0, 90, (40, 2))
    rich = {n for n in range(90) if n % 3 == 0}
    rows, rides = ([tuple(row) for row in table.tolist()] for table in (edges, buses))
    first: dict[Any, set[Any]] = {}
    for a, b in rows:
        first.setdefault(a, set()).add(b)
    want = set()
    for source in first:
        steps = closure(rows + (rides if source in rich else []))
        want |= {(source, z) for y in first[source] for z in {y} | {to for a, to in steps if a == y}}
    for engine in ("sparse", "tuples"):
        found = run(text, engine, edge=edges, bus=buses, rich=[(n,) for n in sorted(rich)])
        assert pairs(found) == want
