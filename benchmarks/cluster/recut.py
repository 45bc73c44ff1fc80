"""5. R8: one node becomes twice as slow; when the cut moves, and what is then reached.

    morpho bench cluster --only recut
"""

from __future__ import annotations

import time

from benchmarks.cluster.setup import PROMPT, alone, cut_plan, even_cuts, folder, pipeline
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session

SLOWER, LIMIT_S = 2.0, 60.0


def run(session: Session) -> ThemeResult:
    """Texts run all the time; the first stage is slowed down once its times are known."""
    result, table = ThemeResult("recut"), Table("A node twice as slow", ["stage times before", "after", "moved after"])
    result.tables.append(table)
    count, place = (24, folder(6, 128)) if session.quick else (64, folder(12, 256))
    expected, dropped = alone(place, count, None), 0
    with pipeline(place, cut_plan(place, even_cuts(place, 2)), streams=4) as made:
        def texts() -> None:
            nonlocal dropped
            found = [*made.generate([PROMPT] * 4, max_new_tokens=count, temperature=0)]
            dropped += sum(text != expected for text in found)

        texts()
        adapting = made.adapting(every_s=0.5, cool_down_s=5.0)
        slow, begun = made.plan.stages[0].node, time.monotonic()
        made.slow_down({slow: SLOWER})
        before: dict[str, float] = {}
        while not adapting.moves and time.monotonic() - begun < LIMIT_S:
            texts()
            before = made.stage_times() or before
        moved_s = time.monotonic() - begun
        for _ in range(3):
            texts()
        after = made.stage_times()
    shown = [", ".join(f"{node} {1e3 * value:.2f} ms" for node, value in times.items()) for times in (before, after)]
    table.rows.append([*shown, f"{moved_s:.1f} s" if adapting.moves else "never"])
    whole = sum(after.values()) / max(len(after), 1)  # all stages alike: the most that moving cuts can give
    result.targets += [Target("decided after", moved_s, 10.0, False, " s"),
                       Target("of the new optimum", 100 * whole / max(after.values(), default=1), 90, unit=" %"),
                       Target("texts dropped or changed", dropped, 0, False)]
    return result
