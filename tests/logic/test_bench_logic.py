"""The benchmark of logic programs: peers count the same pairs, the command knows its themes."""

from __future__ import annotations

import importlib

import pytest

from benchmarks.harness.run import SUITES
from benchmarks.logic import graphs


@pytest.mark.parametrize("theme", SUITES["logic"].themes)
def test_every_theme_can_be_run(theme: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.logic.{theme}").run)


@pytest.mark.parametrize("sources", [None, 7])
@pytest.mark.parametrize("engine", ["tuples", "sparse", "dense"])
def test_everyone_counts_the_same_pairs(sources: int | None, engine: str) -> None:
    """On every engine, and with whatever peer is installed."""
    edges = graphs.graph(40, 70)
    found = graphs.with_morpho(edges, 40, sources, engine)
    reached = {(a, b) for a, b in edges.tolist()}
    while True:
        more = reached | {(a, d) for a, b in reached for c, d in edges.tolist() if b == c}
        if more == reached:
            break
        reached = more
    assert found == sum(sources is None or a < sources for a, _ in reached)
    for name, way in graphs.peers().items():
        assert way(edges, 40, sources) == found, name
