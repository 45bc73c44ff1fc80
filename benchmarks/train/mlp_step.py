"""A training step of a small network as one call: 64-64-64 with ReLU, cross entropy, SGD; batch 1, and 64 beside it.

    morpho bench train --only mlp_step
"""

from __future__ import annotations

from benchmarks.harness.compare import record, seconds
from benchmarks.harness.report import duration, times
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session

SHAPES = ((1, 64), (64, 64))


def run(session: Session) -> ThemeResult:
    """A row for each batch; the targets are those of batch 1."""
    result = ThemeResult("mlp_step")
    table = Table("MLP 64-64-64, cross entropy, SGD, f32: a whole training step", ["case", "morpho", "torch", "ratio"])
    result.tables.append(table)
    for shape in SHAPES:
        name = f"mlp step {shape[0]}x{shape[1]}"
        timings = session.measure("mlp_step", shape, ["morpho", "torch"])
        record(result, name, timings)
        own, torch = seconds(timings, "morpho"), seconds(timings, "torch")
        table.rows.append([name, duration(own), duration(torch), times(ratio(torch, own))])
        if shape[0] == 1:
            result.targets = [Target("a step", own and own * 1e6, 8.0, False, " us"),
                              Target("a step over torch eager", ratio(torch, own), 20.0)]
    return result
