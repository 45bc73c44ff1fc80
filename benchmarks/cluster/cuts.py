"""1. R1: tokens of every cut over 1 to 8 ranks, greedy and seeded, against those of one process.

    morpho bench cluster --only cuts
"""

from __future__ import annotations

from itertools import combinations

from benchmarks.cluster.setup import PROMPT, alone, cut_plan, folder, pipeline
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.frontend.local import local_cluster

COUNT = 16


def run(session: Session) -> ThemeResult:
    """All cuts of six blocks; one pipeline for each number of ranks, cut anew for every other."""
    result, table = ThemeResult("cuts"), Table("Texts equal to one process", ["ranks", "cuts", "equal"])
    result.tables.append(table)
    place, wrong, total = folder(), 0, 0
    for ranks in (2, 3) if session.quick else range(1, 9):
        every = [*combinations(range(1, 8), ranks - 1)]
        chosen = every[::max(1, len(every) // 3)] if session.quick else every
        cluster = local_cluster(ranks)
        with pipeline(place, cut_plan(place, list(chosen[0]), cluster)) as made:
            equal = 0
            for cuts in chosen:
                made.recut(cut_plan(place, list(cuts), cluster))
                for seed in (None, 5):
                    how = {"temperature": 0} if seed is None else {"temperature": 0.9, "seed": seed}
                    equal += [*made.generate(PROMPT, max_new_tokens=COUNT, **how)] == alone(place, COUNT, seed)
        table.rows.append([str(ranks), str(len(chosen)), f"{equal} of {2 * len(chosen)}"])
        wrong, total = wrong + 2 * len(chosen) - equal, total + 2 * len(chosen)
    result.targets.append(Target(f"texts of {total} that differ", wrong, 0, False))
    return result
