"""Paths by semirings against networkx's: Dijkstra's shortest, widest by its maximum spanning tree, and reachability."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo

networkx = pytest.importorskip("networkx", reason="compares with networkx where it is installed")
TEXT = "path(X, Y) :- road(X, Y).\npath(X, Z) :- path(X, Y), road(Y, Z).\n"


def drawn(seed: int) -> tuple[int, dict[tuple[int, int], float]]:
    """Roads with lengths, self loops among them."""
    rng = np.random.default_rng(seed)
    nodes = (5, 40)[seed]
    roads = {(int(a), int(b)): float(rng.integers(1, 64)) / 4 for a, b in rng.integers(0, nodes, (3 * nodes, 2))}
    return nodes, {**roads, (0, 0): 2.0}


@pytest.mark.sampled
@pytest.mark.parametrize("engine", ["tuples", "sparse", "dense", "auto"])
@pytest.mark.parametrize("seed", range(2))
def test_shortest_and_widest_paths(seed: int, engine: str) -> None:
    _, roads = drawn(seed)
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from((a, b, weight) for (a, b), weight in roads.items())
    program = mo.logic.Program(TEXT)
    program.add("road", list(roads), weights=list(roads.values()))
    shortest, widest = program.run("min_plus", engine)["path"], program.run("max_min", engine)["path"]
    lengths = dict(networkx.all_pairs_dijkstra_path_length(graph))
    limits = sorted(set(roads.values()))
    for source in graph:
        reached = {}
        for to in graph:  # a path has a step at least: through a road that leaves the source
            through = [roads[source, n] + lengths[n][to] for n in graph.successors(source) if to in lengths[n]]
            if through:
                reached[to] = min(through)
        assert {row[1]: shortest.weight(*row) for row in shortest if row[0] == source} == reached
        wide = {to: max(limit for limit in limits if _reaches(graph, source, to, limit)) for to in reached} \
            if source < 3 else None
        found = {row[1]: widest.weight(*row) for row in widest if row[0] == source}
        assert found == wide if wide is not None else set(found) == set(reached)


def _reaches(graph: networkx.DiGraph, source: int, to: int, limit: float) -> bool:
    """By roads of that width at least, a step or more."""
    wide = networkx.DiGraph((a, b) for a, b, weight in graph.edges(data="weight") if weight >= limit)
    return source in wide and any(n == to or networkx.has_path(wide, n, to) for n in wide.successors(source)
                                  if to in wide)
