"""R12. A rank of data parallel training is killed: the interrupted step is made within a second, no step is lost, and
the losses have the bits of a run in which nobody died.

    morpho bench cluster --only killed_rank
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.cluster.processes import run_ranks
from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session

NOBODY = -1


def run(session: Session) -> ThemeResult:
    """Four ranks; each in turn is the one that dies, the first of them in a quick run."""
    result = ThemeResult("killed_rank")
    steps, when = (6, 3) if session.quick else (40, 20)
    whole = _losses(NOBODY, when, steps)[0]["losses"]
    table = Table("4 ranks, one killed", ["rank", "the step is made after", "steps made", "losses"])
    result.tables.append(table)
    worst, lost, equal = 0.0, 0, True
    for victim in range(1 if session.quick else 4):
        found = _losses(victim, when, steps)
        seconds = max(each["after_kill"] for each in found)
        same = all(each["losses"] == whole for each in found) and len(found) == 3
        worst, equal = max(worst, seconds), equal and same
        lost += sum(steps - len(each["losses"]) for each in found)
        table.rows.append([str(victim), duration(seconds), str(len(found[0]["losses"])),
                           "equal bits" if same else "differ"])
    result.targets += [Target("the interrupted step, after the kill", worst, 1.0, False, " s"),
                       Target("steps lost", float(lost), 0.0, False, ""),
                       Target("losses with equal bits", float(equal), 1.0, True, "")]
    return result


def _losses(victim: int, when: int, steps: int) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        return run_ranks(4, "killed_rank_ranks", victim, when, steps, Path(folder) / "mark")
