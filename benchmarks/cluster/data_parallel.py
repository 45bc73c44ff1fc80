"""R9. Data parallel: two ranks of one thread over two independent processes of the same work; how much of the
reductions is hidden behind the backward pass: what a step stands still for of what they take alone.

    morpho bench cluster --only data_parallel
"""

from __future__ import annotations

from benchmarks.cluster.processes import run_ranks
from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session


def run(session: Session) -> ThemeResult:
    """One process measures all three in turn: load on the machine slows them alike."""
    result = ThemeResult("data_parallel")
    width, layers, rows, steps = (128, 4, 64, 3) if session.quick else (1024, 8, 512, 15)
    found = run_ranks(2, "data_parallel_ranks", width, layers, rows, steps)
    slowest = {name: max(each[name] for each in found) for name in found[0] if name not in ("rank", "gradient_bytes")}
    table = Table(f"{layers} layers of {width}, {rows} rows a rank, {found[0]['gradient_bytes'] / 1e6:.1f} MB of "
                  "gradients", ["what", "time", "processor's"])
    table.rows += [[what, duration(slowest[name]), duration(slowest[f"{name}_processor"])] for what, name in (
        ("a step of two ranks", "together"), ("the same step of each process alone", "alone"),
        ("two ranks that copy into buckets and out of them", "copied"),
        ("two ranks without reductions", "unsynchronised"), ("the reductions alone", "reduction"))]
    for what, name in (("a step stands still for them", "still"), ("one that copies", "still_copied")):
        ranks = ", ".join(duration(each[name]) for each in found)  # the faster one waits for the other
        table.rows.append([what, duration(slowest[name]), f"ranks: {ranks}"])
    result.tables.append(table)
    result.targets.append(Target("two ranks over two processes", slowest["alone"] / slowest["together"], 0.93))
    more = slowest["together"] - slowest["unsynchronised"] - slowest["still"]
    result.notes.append(f"a step of two ranks takes {duration(max(more, 0.0))} longer beside: gradients are written "
                        "and read once more, and a thread adds them on the core that computes")
    hidden = 100 * (1 - slowest["still"] / slowest["reduction"])
    result.targets.append(Target("reductions hidden", hidden, 90.0, unit=" %"))
    return result
