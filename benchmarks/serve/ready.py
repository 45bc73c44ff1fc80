"""From the command to the first "yes" of `/ready`: `morpho serve` with SmolLM2's file, from a warm cache of compiled
code, several starts. Modules' bytecode is there too, as it is where a package was installed.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.serve import servers
from benchmarks.serve.streams import MISSING

BOUND_S = 1.0


def run(session: Session) -> ThemeResult:
    from morpho.weights.pull import is_pulled, model_path

    result, took = ThemeResult("ready"), list[float]()
    if not is_pulled("smollm2"):
        result.notes.append(MISSING)
    else:
        for number in range(1 + (2 if session.quick else 7)):
            with servers.morpho(Path(model_path("smollm2")), session.threads) as (_, _, seconds):
                print(f"ready: start {number}: {seconds:.2f} s" + ("" if number else ", which fills the caches"),
                      flush=True)
                took += [seconds] if number else []
        table = Table(f"SmolLM2-135M, {len(took)} starts", ["least", "median", "most"])
        table.rows.append([duration(value) for value in (min(took), median(took), max(took))])
        result.tables.append(table)
        result.figures = {"starts_s": took}
    result.targets = [Target("time to ready", median(took) if took else None, BOUND_S, at_least=False, unit=" s")]
    return result
