"""3. Shortest and widest paths from several sources by semirings, against Dijkstra's algorithm.

    morpho bench logic --only paths
"""

from __future__ import annotations

import numpy as np

import morpho as mo
from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.logic.graphs import REACH, graph, seconds


def run(session: Session) -> ThemeResult:
    """Distances must be equal, not close."""
    nodes, edges, sources = (500, 2_000, 10) if session.quick else (20_000, 100_000, 100)
    result = ThemeResult("paths")
    table = Table(f"shortest paths, {sources} sources, {nodes} nodes, {edges} edges", ["way", "time", "Morpho is"])
    result.tables.append(table)
    drawn = graph(nodes, edges)
    weights = np.random.default_rng(1).integers(1, 100, len(drawn)).astype(float)
    program = mo.logic.Program(REACH)
    program.add("edge", drawn, weights)
    program.add("source", np.arange(sources)[:, None])
    own, model = seconds(lambda: program.run("min_plus"), 1 if session.quick else 3)
    result.figures["morpho"] = own
    table.rows.append(["morpho (min, +)", duration(own), ""])
    try:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra
    except ImportError:
        result.notes.append("scipy is not installed")
        return result
    matrix = csr_array((weights, (drawn[:, 0], drawn[:, 1])), shape=(nodes, nodes))
    taken, found = seconds(lambda: dijkstra(matrix, indices=np.arange(sources)), 1)
    columns, values = model.evaluator.relation("reach").columns, model.evaluator.relation("reach").values
    assert values is not None
    apart = columns[0] != columns[1]  # Dijkstra's distance of a node to itself is 0, ours that of a cycle
    if not np.array_equal(found[columns[0][apart], columns[1][apart]], values[apart]):
        result.errors.append("distances differ from Dijkstra's")
    result.figures["scipy"] = taken
    result.ratios["paths vs scipy"] = taken / own
    table.rows.append(["scipy dijkstra", duration(taken), f"{taken / own:.2f}x"])
    return result
