"""Random graphs, the same in every run, and ways to count what is reachable: Morpho's and the peers'."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo

SEED = 20261117
REACH = "reach(S, X) :- source(S), edge(S, X).\nreach(S, Z) :- reach(S, Y), edge(Y, Z).\n"
CLOSURE = "reach(X, Y) :- edge(X, Y).\nreach(X, Z) :- reach(X, Y), edge(Y, Z).\n"
Graph = np.ndarray


def graph(nodes: int, edges: int) -> Graph:
    """Edges as rows, drawn evenly."""
    return np.unique(np.random.default_rng(SEED).integers(0, nodes, (edges, 2)), axis=0)


def seconds(call: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """The best time of several calls, and the last result."""
    best, found = float("inf"), None
    for _ in range(rounds):
        start = time.perf_counter()
        found = call()
        best = min(best, time.perf_counter() - start)
    return best, found


def with_morpho(edges: Graph, nodes: int, sources: int | None, engine: str = "auto") -> int:
    """Pairs that are reached by at least one edge; all sources without a number."""
    program = mo.logic.Program(CLOSURE if sources is None else REACH)
    program.add("edge", edges)
    if sources is not None:
        program.add("source", np.arange(sources)[:, None])
    return program.run(engine=engine).count("reach")


def with_scipy(edges: Graph, nodes: int, sources: int | None) -> int:
    """A breadth-first search from each source; the source itself counts where it lies on a cycle."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    matrix = csr_array((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(nodes, nodes))
    into = [edges[edges[:, 1] == source, 0] for source in range(sources or nodes)] if (sources
                                                                                       or nodes) <= 2000 else None
    by_target = np.argsort(edges[:, 1], kind="stable")
    starts = np.searchsorted(edges[by_target, 1], np.arange(nodes + 1))
    total = 0
    for source in range(sources or nodes):
        order = breadth_first_order(matrix, source, return_predecessors=False)
        seen = np.zeros(nodes, bool)
        seen[order] = True
        parents = into[source] if into is not None else edges[by_target[starts[source]:starts[source + 1]], 0]
        total += len(order) - 1 + bool(seen[parents].any())
    return total


def with_networkx(edges: Graph, nodes: int, sources: int | None) -> int:
    """Descendants of each source."""
    import networkx

    found = networkx.DiGraph()
    found.add_nodes_from(range(nodes))
    found.add_edges_from(edges.tolist())
    total = 0
    for source in range(sources or nodes):
        below = networkx.descendants(found, source)
        total += len(below) + any(source in found[node] for node in (*below, source))
    return total


def with_clingo(edges: Graph, nodes: int, sources: int | None) -> int:
    """Grounding alone derives everything: there is nothing to search."""
    import clingo

    control = clingo.Control()
    control.add("base", [], (CLOSURE if sources is None else REACH) + "".join(f"edge({a},{b})." for a,
                                                                              b in edges.tolist())
                + "".join(f"source({number})." for number in range(sources or 0)))
    control.ground([("base", [])])
    return sum(1 for _ in control.symbolic_atoms.by_signature("reach", 2))


def with_souffle(edges: Graph, nodes: int, sources: int | None) -> int:
    """The interpreter, as installed; files included, as its users have them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rules = CLOSURE if sources is None else REACH
        text = ".decl edge(x:number,y:number)\n.input edge\n.decl source(x:number)\n.input source\n" \
               ".decl reach(x:number,y:number)\n.printsize reach\n" + rules
        (folder / "program.dl").write_text(text)
        np.savetxt(folder / "edge.facts", edges, "%d", "\t")
        np.savetxt(folder / "source.facts", np.arange(sources or 0), "%d")
        ran = subprocess.run(["souffle", "-F", name, "program.dl"], cwd=name, capture_output=True, text=True,
                             check=True)
        return int(ran.stdout.split()[-1])


def peers() -> dict[str, Callable[[Graph, int, int | None], int]]:
    """Those that are installed."""
    found: dict[str, Callable[[Graph, int, int | None], int]] = {}
    for name, way in (("scipy", with_scipy), ("networkx", with_networkx), ("clingo", with_clingo)):
        try:
            __import__(name)
            found[name] = way
        except ImportError:
            continue
    if shutil.which("souffle"):
        found["souffle"] = with_souffle
    return found
