"""2. The full transitive closure of a random graph of 10,000 nodes.

    morpho bench logic --only closure
"""

from __future__ import annotations

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.logic.compare import against_peers


def run(session: Session) -> ThemeResult:
    """500 nodes with --quick."""
    nodes, edges = (500, 1_500) if session.quick else (10_000, 50_000)
    return against_peers(session, "closure", f"closure of {nodes} nodes, {edges} edges", nodes, edges, None, 2.0)
