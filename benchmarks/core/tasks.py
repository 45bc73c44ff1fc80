"""7. Tasks: scheduling cost per task beside ``concurrent.futures``, balance and CPU on uneven tiles, idle workers.

    morpho bench core --only 7
"""

from __future__ import annotations

from benchmarks.harness.probe import ProbeError, probe
from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session

IMBALANCE_PERCENT = 5.0
CPU_PERCENT = 80.0


def run(session: Session) -> ThemeResult:
    """One process measures everything."""
    result = ThemeResult("tasks")
    try:
        answer = probe("tasks", str(session.threads), *(["quick"] if session.quick else []), threads=session.threads)
    except ProbeError as error:
        result.errors.append(str(error))
        return result
    result.figures["tasks"] = answer
    costs = answer["per_task_s"]
    table = Table("scheduling, per task", ["way", "time"])
    for name, text in (("submit", "submit and wait"), ("chain", "a chain of dependencies"), ("map", "an item of a map"),
                       ("pool", "ThreadPoolExecutor, submit and wait")):
        table.rows.append([text, duration(costs[name])])
    over_pool = ratio(costs["pool"], costs["submit"])
    if over_pool:
        result.ratios["submit vs ThreadPoolExecutor"] = over_pool
    result.targets.append(Target("submit against ThreadPoolExecutor", over_pool, 1.0))
    tiles = Table("200 uneven tiles; those on threads give up the interpreter lock", ["way", "time", "imbalance",
                                                                                      "CPU"])
    for way, figures in answer["uneven"].items():
        imbalance, cpu = 100 * figures["imbalance"], 100 * figures["cpu_share"]
        tiles.rows.append([way, duration(figures["seconds"]), f"{imbalance:.1f} %", f"{cpu:.0f} %"])
        result.targets.append(Target(f"imbalance of uneven tiles, {way}", imbalance, IMBALANCE_PERCENT, False, " %"))
        result.targets.append(Target(f"CPU on uneven tiles, {way}", cpu, CPU_PERCENT, True, " %"))
    result.targets.append(Target("CPU of sleeping workers, of one core", answer["idle_share"] * 100, 1.0, False, " %"))
    result.tables += [table, tiles]
    return result
