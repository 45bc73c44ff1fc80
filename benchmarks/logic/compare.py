"""One case against every peer: the same count, the best time, the ratio to the best peer."""

from __future__ import annotations

from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.logic.graphs import graph, peers, seconds, with_morpho

ROUNDS, LONG_S = 3, 5.0
SLOW = {"networkx": 200_000, "clingo": 20_000, "souffle": 10_000_000_000,
        "scipy": 10_000_000_000}  # most edges x sources


def against_peers(session: Session, theme: str, title: str, nodes: int, edges: int, sources: int | None,
                  bound: float) -> ThemeResult:
    """Time Morpho and the peers on one graph; a peer that would take minutes is left out, and said so."""
    result = ThemeResult(theme)
    table = Table(title, ["way", "time", "pairs", "Morpho is"])
    result.tables.append(table)
    drawn = graph(nodes, edges)
    first, expected = seconds(lambda: with_morpho(drawn, nodes, sources), 1)  # compiles, or loads what is stored
    own, expected = seconds(lambda: with_morpho(drawn, nodes, sources), ROUNDS)
    table.rows.append(["morpho", duration(own), str(expected), ""])
    table.rows.append(["morpho, first call", duration(first), str(expected), ""])
    result.figures |= {"morpho": own, "morpho, first call": first}
    best = None
    for name, way in peers().items():
        work = len(drawn) * (sources or nodes)
        if work > SLOW[name] * 1000:
            result.notes.append(f"{name}: left out, {work:.2g} steps")
            continue
        taken, found = seconds(lambda way=way: way(drawn, nodes, sources), 1)
        if taken < LONG_S:  # its first call imports
            taken, found = seconds(lambda way=way: way(drawn, nodes, sources), ROUNDS)
        if found != expected:
            result.errors.append(f"{name} finds {found} pairs, Morpho {expected}")
        best = taken if best is None else min(best, taken)
        result.figures[name] = taken
        result.ratios[f"{theme} vs {name}"] = taken / own
        table.rows.append([name, duration(taken), str(found), f"{taken / own:.2f}x"])
    result.targets.append(Target(f"{title}: against the best peer", None if best is None else best / own, bound))
    return result
