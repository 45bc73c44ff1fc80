"""2. Time to proof on one core, each objective apart, and the gap at 64 distinct nodes.

    morpho bench plan --only proof
"""

from __future__ import annotations

from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.plan.instances import cpu_seconds, instance
from morpho.plan import Constraints, solve

SIZES = [  # layers, nodes of each kind, seconds to proof
    ("8 x 80", 80, [1] * 8, 0.1), ("12 x 128", 128, [1] * 12, 1.0), ("16 x 128", 128, [1] * 16, 10.0),
    ("24 of 3 kinds x 128", 128, [8] * 3, 1.0), ("42 of 7 kinds x 128", 128, [6] * 7, 10.0),
]
SEEDS = (1, 2, 3)
LARGE_NODES, LARGE_LAYERS, LARGE_GAP, LARGE_SECONDS = 64, 128, 0.05, 60.0
LIMITS = Constraints(headroom=0.0)


def run(session: Session) -> ThemeResult:
    """Equal layers, and layers and cuts that all differ; the slowest of three seeds counts."""
    result = ThemeResult("proof")
    table = Table("Time to proof, the slowest of the seeds",
                  ["size", "objective", "layers", "time", "target", "verdict"])
    result.tables.append(table)
    seeds = SEEDS[:1] if session.quick else SEEDS
    solve(*instance(0, 8, [1] * 3), constraints=LIMITS)  # load everything
    for name, layers, kinds, limit in SIZES:
        for objective in ("throughput", "latency"):
            for varied in (False, True):
                times = [_proof(result, seed, layers, kinds, varied, objective) for seed in seeds]
                what = "varied" if varied else "equal"
                target = Target(f"{name}, {objective}, {what} layers", max(times), limit, False, " s")
                result.figures[target.name] = times
                result.targets.append(target)
                table.rows.append([name, objective, what, duration(max(times)), duration(limit), target.verdict])
    _large(result, seeds)
    return result


def _proof(result: ThemeResult, seed: int, layers: int, kinds: list[int], varied: bool, objective: str) -> float:
    card, cluster = instance(seed, layers, kinds, varied)
    # A call of milliseconds is repeated, so that a moment's noise does not decide.
    seconds, found = cpu_seconds(lambda: solve(card, cluster, "optimal", objective, constraints=LIMITS),
                                 3 if len(kinds) == 8 else 1)
    if not found.optimal:
        result.errors.append(f"{sum(kinds)} nodes, seed {seed}, {objective}: not proven, gap {found.gap:.2%}")
    return seconds


def _large(result: ThemeResult, seeds: tuple[int, ...]) -> None:
    table = Table(f"{LARGE_NODES} distinct nodes x {LARGE_LAYERS}", ["objective", "layers", "seed", "gap", "time"])
    result.tables.append(table)
    worst = {"gap": 0.0, "time": 0.0}
    for objective in ("throughput", "latency"):
        for varied, seed in ((False, seeds[0]), (True, seeds[-1])):
            card, cluster = instance(seed, LARGE_LAYERS, [1] * LARGE_NODES, varied)
            seconds, found = cpu_seconds(lambda: solve(card, cluster, "optimal", objective, constraints=LIMITS))  # noqa: B023
            worst = {"gap": max(worst["gap"], found.gap), "time": max(worst["time"], seconds)}
            what = "varied" if varied else "equal"
            table.rows.append([objective, what, str(seed), f"{found.gap:.2%}", duration(seconds)])
            result.figures[f"64 nodes, {objective}, {what}"] = [found.gap, seconds]
    result.targets.append(Target("64 distinct nodes: gap", 100 * worst["gap"], 100 * LARGE_GAP, False, " %"))
    result.targets.append(Target("64 distinct nodes: time", worst["time"], LARGE_SECONDS, False, " s"))
