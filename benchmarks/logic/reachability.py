"""1. What 1,000 sources reach in a random graph of 100,000 nodes and 1,000,000 edges.

    morpho bench logic --only reachability
"""

from __future__ import annotations

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.logic.compare import against_peers


def run(session: Session) -> ThemeResult:
    """A hundredth of it with --quick."""
    nodes, edges, sources = (2_000, 10_000, 100) if session.quick else (100_000, 1_000_000, 1_000)
    return against_peers(session, "reachability", f"{sources} sources, {nodes} nodes, {edges} edges", nodes, edges,
                         sources, 2.0)
