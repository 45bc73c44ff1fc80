"""3. Fusion: twelve cases at a size for L1, for L2 and for DRAM, against the best of the peers.

    morpho bench core --only 3
    morpho bench core --only 3 --quick --peers numpy,torch
"""

from __future__ import annotations

from benchmarks.core.cases import CASES
from benchmarks.harness.compare import headings, label, record, row
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean
from benchmarks.harness.session import Session
from benchmarks.peers import BY_SUITE

NAMES = ("chain10", "bias_gelu_residual", "softmax", "log_softmax", "layer_norm", "rms_norm", "mean_variance",
         "standardise", "masked_softmax", "cross_entropy", "squared_error", "sum_dot_max")
SIZES = {"L1": (16, 256), "L2": (128, 1024), "DRAM": (8192, 2048)}
DRAM_ROUNDS = 7


def run(session: Session) -> ThemeResult:
    """A table per size; the targets over all of them."""
    result = ThemeResult("fusion")
    peers = [peer for peer in BY_SUITE["core"] if peer in session.modules]
    best: dict[str, list[float]] = {size: [] for size in SIZES}
    heavy: list[float] = []
    for size, shape in SIZES.items():
        if session.quick and size == "DRAM":
            continue
        table = Table(f"{size}: {label(shape)} f32, per call", headings("case", peers))
        for name in NAMES:
            timings = session.measure(name, shape, peers, rounds=DRAM_ROUNDS if size == "DRAM" else None)
            over_numpy, over_best = record(result, f"{name} {size}", timings)
            table.rows.append(row(name, timings, peers, over_numpy, over_best))
            best[size] += [over_best] if over_best else []
            heavy += [over_numpy] if over_numpy and CASES[name].math_heavy else []
        result.tables.append(table)
    result.targets = targets(best, heavy)
    return result


def targets(best: dict[str, list[float]], heavy: list[float]) -> list[Target]:
    """What the issue asks for."""
    everything = [value for values in best.values() for value in values]
    return [
        Target("geometric mean over the best peer, in cache", geometric_mean(best["L1"] + best["L2"]), 1.3),
        Target("geometric mean over the best peer, from DRAM", geometric_mean(best["DRAM"]), 0.95),
        Target("worst case over the best peer", min(everything, default=None), 0.9),
        Target("geometric mean over NumPy, math-heavy cases", geometric_mean(heavy), 5.0),
        Target("worst over NumPy, math-heavy cases", min(heavy, default=None), 5.0),
    ]
