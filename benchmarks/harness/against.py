"""The regression gate on files: ratios of one run against those of another, as a table and a verdict.

    morpho bench --against baseline.json                       # run the suites that the file has ratios of
    morpho bench --against baseline.json --results out.json    # compare two files
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.harness import baseline, machine
from benchmarks.harness.report import render_table
from benchmarks.harness.results import Table, geometric_mean

SHOWN = 30


class BadFile(ValueError):
    """A file that is no baseline: one sentence."""


def ratios_of(path: Path) -> dict[str, Any]:
    """Machine and ratios of a baseline, or of what `--json` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadFile(f"[bench] {path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise BadFile(f"[bench] {path} is not JSON.") from None
    ratios = content.get("ratios") if isinstance(content, dict) else None
    if not isinstance(ratios, dict) or not ratios:
        raise BadFile(f"[bench] {path} has no ratios: give a file that --json or --save-baseline wrote.")
    odd = [name for name, value in ratios.items()
           if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-12 < value < 1e12]
    if odd:
        raise BadFile(f"[bench] {path}: the ratio {odd[0]!r} is no positive number.")
    return {"machine": content.get("machine"), "ratios": {name: float(value) for name, value in ratios.items()}}


def verdict(stored: dict[str, float], current: dict[str, float], required: set[str]) -> int:
    """Print what changed most and whether the gate holds; 0 where it does."""
    regressions = baseline.compare(stored, current, required)
    common = sorted(set(stored) & set(current), key=lambda name: current[name] / stored[name])
    worse = {regression.name for regression in regressions}
    shown = [*common[:SHOWN], *(name for name in common[SHOWN:] if name in worse)]
    rows = [[name, f"{stored[name]:.3f}x", f"{current[name]:.3f}x", f"{current[name] / stored[name] - 1:+.1%}",
             "WORSE" if name in worse else ""] for name in shown]
    if rows:
        print(render_table(Table(f"{len(shown)} of {len(common)} ratios, what lost most first",
                                 ["ratio", "stored", "now", "change", ""], rows)))
    for regression in regressions:
        print(f"GATE  MISS {regression.line()}")
    if common:
        mean = geometric_mean([current[name] / stored[name] for name in common])
        print(f"GATE  geometric mean of all changes: {mean:.3f}")
    print(f"GATE  {'FAIL' if regressions or not common else 'PASS'}: {len(common)} ratios compared, "
          f"{len(regressions)} regressed")
    return 1 if regressions or not common else 0


def judge_files(against: Path, results: Path) -> int:
    """Compare two files; 0 where nothing is more than 20 % worse, 2 where one of them is odd."""
    try:
        stored, current = ratios_of(against), ratios_of(results)
    except BadFile as error:
        print(error)
        return 2
    _say_machines(stored["machine"], current["machine"])
    return verdict(stored["ratios"], current["ratios"], set())


def _say_machines(stored: Any, current: Any) -> None:
    names = [one.get("cpu") if isinstance(one, dict) else None for one in (stored, current)]
    if names[0] and names[1] and names[0] != names[1]:
        print(f"GATE  note: stored on {names[0]}, this is {names[1]}")


def suites_of(ratios: dict[str, float]) -> dict[str, list[str]]:
    """Suites, and the themes of each, that a file has ratios of."""
    from benchmarks.harness.run import SUITES

    themes = {name.split("/")[0] for name in ratios}
    found = {suite: [theme for theme in row.themes if theme in themes] for suite, row in SUITES.items()}
    return {suite: names for suite, names in found.items() if names}


def run_suites(against: Path, quick: bool, threads: int, history: Path | None) -> int:
    """Run what a file has ratios of, and compare; all suites are run, also after one that fails."""
    from benchmarks.harness.run import Options, run

    try:
        suites = suites_of(ratios_of(against)["ratios"])
    except BadFile as error:
        print(error)
        return 2
    if not suites:
        print(f"[bench] no theme of {against} is known here.")
        return 2
    print(f"{machine.cpu_name()}: {', '.join(f'{name} ({len(themes)} themes)' for name, themes in suites.items())}")
    return max(run(Options(suite=name, only=",".join(themes), quick=quick, threads=threads, gate=True,
                           baseline=against, history=history)) for name, themes in suites.items())
