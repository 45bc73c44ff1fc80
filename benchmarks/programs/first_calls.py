"""9. First calls: each program traced, compiled and run once, by Morpho without a stored cache and by JAX.

    morpho bench programs --only first_calls

One fresh process per peer makes the first call of every program, in the same order.
"""

from __future__ import annotations

import tempfile

from benchmarks.harness.probe import ProbeError, probe
from benchmarks.harness.report import duration, times
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean, ratio
from benchmarks.harness.session import Session
from benchmarks.programs import cases

GOAL = 1 / 0.6  # JAX's first call over Morpho's


def run(session: Session) -> ThemeResult:
    """A row per program."""
    result = ThemeResult("first_calls")
    names = [name for programs in cases.CLASSES.values() for name in list(programs)[:2 if session.quick else None]]
    found: dict[str, dict[str, float]] = {}
    for peer in ("morpho", "jax"):
        if session.worker(peer) is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                found[peer] = probe("first_programs", peer, *names, threads=session.threads,
                                    extra={"MORPHO_CACHE_DIR": folder})
            except ProbeError as error:
                result.errors.append(str(error))
    result.figures = found
    table = Table("the first call of a program", ["program", "morpho", "jax", "vs jax"])
    over = []
    for name in names:
        own, other = (found.get(peer, {}).get(name) for peer in ("morpho", "jax"))
        gain = ratio(other, own)
        over += [gain] if gain else []
        result.ratios |= {f"{name} first call vs jax": gain} if gain else {}
        table.rows.append([name, duration(own), duration(other), times(gain)])
    result.tables.append(table)
    result.targets.append(Target("JAX's first calls over Morpho's, geometric mean", geometric_mean(over), GOAL))
    return result
