"""5. R8: one node becomes twice as slow; when the cut moves, and what is then reached.

    morpho bench cluster --only recut
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

from benchmarks.cluster.setup import PROMPT, alone, cut_plan, even_cuts, folder, pipeline
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.plan import Plan
from morpho.plan.model.layer import Layer

SLOWER, LIMIT_S = 2.0, 60.0


def best_period(plan: Plan, times: Mapping[str, float]) -> float:
    """The slowest stage's time of the best cut between the plan's nodes as they are: of each, its measured time shared
    out over its layers."""
    card, nodes = plan.card, [stage.node for stage in plan.stages]
    if {*nodes} != {*times}:
        return 0.0
    paces = [times[stage.node] / work(card.layers[stage.start:stage.end]) for stage in plan.stages]
    return min(max(pace * work(card.layers[start:end]) for pace, (start, end) in zip(paces, pairwise(
        (0, *cuts, card.depth)))) for cuts in combinations(range(1, card.depth), len(nodes) - 1))


def work(layers: Sequence[Layer]) -> float:
    """What a token asks of layers: bytes of weights, which bind it."""
    return sum(layer.bytes("decode") for layer in layers)


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
    share = 100 * best_period(made.plan, after) / max(after.values(), default=float("inf"))
    even = 100 * sum(after.values()) / len(after) / max(after.values()) if after else 0.0
    result.notes.append(f"{even:.1f} % of stages that are all alike, which whole layers cannot always give")
    result.targets += [Target("decided after", moved_s, 10.0, False, " s"),
                       Target("of the new optimum", share, 90, unit=" %"),
                       Target("texts dropped or changed", dropped, 0, False)]
    return result
