"""The time between two tokens of texts that run, while prompts of 2,048 tokens come: median and 99th percentile."""

from __future__ import annotations

from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.serve.streams import MISSING

BOUND = 3.0
STREAMS, PROMPT, NEW = 4, 32, 400


def run(session: Session) -> ThemeResult:
    """One row; Morpho alone, by the time stamps of its events."""
    from morpho.weights.pull import is_pulled

    result = ThemeResult("stalls")
    if not is_pulled("smollm2"):
        result.notes.append(MISSING)
        result.targets = [Target("1 over p99 / p50 between tokens", None, 1 / BOUND)]
        return result
    new = 60 if session.quick else NEW
    timings = session.measure("serve_stalls", (STREAMS, PROMPT, new), ["morpho"], rounds=1)
    median, high = (float(part) for part in str(timings["morpho"].answer).split())
    table = Table(f"{STREAMS} texts of {new} tokens, 3 prompts of 2,048 tokens while they run",
                  ["p50", "p99", "p99 / p50"])
    table.rows.append([f"{1e3 * median:.1f} ms", f"{1e3 * high:.1f} ms", f"{high / median:.2f}"])
    result.tables.append(table)
    result.targets = [Target("1 over p99 / p50 between tokens", median / high, 1 / BOUND)]
    return result
