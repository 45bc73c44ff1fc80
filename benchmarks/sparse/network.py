"""4. A network of 120 sparse layers (1024 wide, 32 per row, ReLU between): one program here, 120 calls elsewhere."""

from __future__ import annotations

from benchmarks.harness.compare import headings, record, row, seconds
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session

SHAPE, QUICK_SHAPE = (1024, 32, 64), (128, 8, 8)


def run(session: Session) -> ThemeResult:
    """One row."""
    result = ThemeResult("network")
    peers = [peer for peer in ("morpho", "scipy", "torch") if peer in session.modules]
    timings = session.measure("network random", QUICK_SHAPE if session.quick else SHAPE, peers)
    table = Table("120 layers, per call", headings("network", peers))
    table.rows.append(row("1024 wide, 32 per row", timings, peers, *record(result, "network", timings)))
    result.tables.append(table)
    gained = ratio(seconds(timings, "scipy"), seconds(timings, "morpho"))
    result.targets.append(Target("over SciPy", gained, 2.0))
    return result
