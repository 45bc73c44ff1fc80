"""2. The search against exhaustive search on a sampled space: within 5 %, in the geometric mean.

    morpho bench tune --only exhaustive
"""

from __future__ import annotations

import random
import statistics

import morpho as mo
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean
from benchmarks.harness.session import Session
from benchmarks.tune.programs import own_choices, programs
from morpho.cost.tuned_choices import PLAIN, Choice
from morpho.runtime import thresholds
from morpho.runtime.tuner import space
from morpho.runtime.tuner.slices import Slice, Unsliced, seconds_of
from morpho.runtime.tuner.tuner import SAMPLE_S, Tuner

KNOBS = ("way", "micro", "tile_rows", "k_block", "threads")


def run(session: Session) -> ThemeResult:
    """For each product: every combination of a sample is timed in turns, and the tuner's choice among them. The best of
    a hundred is also the luckiest, so both are timed once more, in turn, and those times count."""
    result = ThemeResult("exhaustive")
    table = Table("The tuner's choice against the best of a sampled space",
                  ["problem", "space", "tuner / best", "best"])
    result.tables.append(table)
    sample, rounds, budget_s = (16, 5, 2.0) if session.quick else (96, 15, 20.0)
    losses = []
    with mo.settings(threads=session.threads), own_choices():
        for function, args in programs(session.quick).values():
            compiled = mo.compile(function)
            compiled(*args)
            assert compiled.current is not None
            plan = compiled.current.plan
            for problem in plan.lowered.problems.values():
                if problem.kind != "product":
                    continue
                try:
                    part = Slice(problem, plan.constants, thresholds.current())
                except Unsliced:
                    continue
                found = Tuner(thresholds.current(), budget_s).tune([problem], plan.constants, {})
                row = found[0].row if found else None
                chosen = row.choice if row else PLAIN
                every = list(space.whole_space(problem, KNOBS))
                drawn = random.Random(1).sample(every, min(sample, len(every)))
                seconds = _medians(part, list(dict.fromkeys([chosen, PLAIN, *drawn])), rounds)
                best = min(seconds, key=seconds.__getitem__)
                again = _medians(part, [chosen, best], 2 * rounds)
                losses.append(again[chosen] / again[best])
                table.rows.append([problem.key, f"{len(seconds)} of {len(every)}", f"{losses[-1]:.3f}", best.said()])
                result.figures[problem.key] = {"tuner": chosen.said(), "best": best.said(), "loss": losses[-1]}
    if losses:
        result.ratios["best / tuner"] = 1 / geometric_mean(losses)  # type: ignore[operator]
        result.targets.append(Target("tuner's time over the best's, geometric mean", geometric_mean(losses), 1.05,
                                     False))
    return result


def _medians(part: Slice, choices: list[Choice], rounds: int) -> dict[Choice, float]:
    """Medians of times taken in turns, of ways that compute the same bits."""
    expected = part.bits(PLAIN)
    fine = [choice for choice in choices if part.bits(choice) == expected]
    assert len(fine) == len(choices), "an alternative has other bits"
    times: dict[Choice, list[float]] = {choice: [] for choice in fine}
    for _ in range(rounds):
        for choice in fine:
            times[choice].append(seconds_of(part.call(choice), SAMPLE_S))
    return {choice: statistics.median(values) for choice, values in times.items()}
