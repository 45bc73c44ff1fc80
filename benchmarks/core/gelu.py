"""2. Exact GELU over three activation shapes, against every peer.

    morpho bench core --only 2
"""

from __future__ import annotations

from benchmarks.harness.compare import headings, label, record, row
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.peers import BY_SUITE

SHAPES = [(1000, 512), (2048, 768), (4096, 1024)]


def run(session: Session) -> ThemeResult:
    """One row per shape."""
    result = ThemeResult("gelu")
    peers = [peer for peer in BY_SUITE["core"] if peer in session.modules]
    table = Table("exact GELU, f32, per call", headings("shape", peers))
    speedups: list[tuple[float | None, float | None]] = []
    for shape in SHAPES[:1] if session.quick else SHAPES:
        timings = session.measure("gelu", shape, peers)
        speedups.append(record(result, label(shape), timings))
        table.rows.append(row(label(shape), timings, peers, *speedups[-1]))
    result.tables.append(table)
    over_numpy = [pair[0] for pair in speedups if pair[0]]
    over_best = [pair[1] for pair in speedups if pair[1]]
    mean = sum(over_numpy) / len(over_numpy) if over_numpy else None
    result.targets = [Target("average speed-up over NumPy + SciPy", mean, 6.55),
                      Target("worst speed-up over the best peer", min(over_best, default=None), 1.0)]
    return result
