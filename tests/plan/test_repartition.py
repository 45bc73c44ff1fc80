"""Repartitioning: moves when it pays, stays when it does not, and says why."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from planning import card, cluster, placed, random_card, random_cluster

from morpho import plan
from morpho.base.errors import MorphoError
from morpho.plan.replan.repartition import move_seconds, moves_between
from morpho.plan.replan.resolve import held_layers


def even() -> plan.Plan:
    """Three equal machines, twelve equal layers, 40 ms each."""
    return plan.solve(card(12, weight_bytes=50_000_000), cluster(100, 100, 100))


def times(p: plan.Plan, **factors: float) -> dict[str, float]:
    return {stage.node: stage.compute_s * factors.get(stage.node, 1.0) for stage in p.stages}


def test_nothing_changed_means_staying() -> None:
    p = even()
    answer = plan.adapt(p, times(p))
    assert not answer.changed and answer.plan.stages == p.stages and answer.moves == ()
    assert answer.reason.startswith("stay")


def test_a_slow_node_gives_layers_away() -> None:
    p = even()
    slow = p.stages[1].node
    answer = plan.adapt(p, times(p, **{slow: 2.0}))
    assert answer.changed and answer.gain >= 0.10 and answer.repaid_s <= 3600
    before, after = held_layers(p.stages), held_layers(answer.plan.stages)
    assert len(after[slow]) < len(before[slow])
    assert answer.plan.predicted.period_s == pytest.approx(0.06) or answer.plan.predicted.period_s < 0.08
    moved = {(move.target, number) for move in answer.moves for number in range(move.start, move.end)}
    assert moved == {(name, number) for name, layers in after.items() for number in layers
                     if number not in before.get(name, ())}
    assert answer.moved_bytes == sum(55_000_000 for _ in moved)
    assert plan.check(answer.plan).ok
    assert all(move.source in before for move in answer.moves)
    assert "layers [" in str(answer)


def test_the_moved_layers_are_few() -> None:
    """One machine a little slower: neighbours take a layer or two, nobody reshuffles everything."""
    p = even()
    answer = plan.adapt(p, times(p, **{p.stages[2].node: 1.5}))
    assert answer.changed and sum(move.end - move.start for move in answer.moves) <= 4


def test_hysteresis() -> None:
    p = even()
    slower = times(p, **{p.stages[0].node: 1.4})
    assert plan.adapt(p, slower).changed
    stay = plan.adapt(p, slower, minimum_gain=0.5)
    assert not stay.changed and 0 < stay.gain < 0.5 and "less than 50%" in stay.reason
    tiny = plan.adapt(p, times(p, **{p.stages[0].node: 1.02}))
    assert not tiny.changed
    soon = plan.adapt(p, slower, horizon_s=1e-3)
    assert not soon.changed


def test_slow_links_make_moving_too_dear() -> None:
    p = plan.solve(card(12, weight_bytes=50_000_000, cut=10), cluster(100, 100, 100, bandwidth=1e5))
    assert len(p.stages) == 3
    answer = plan.adapt(p, times(p, **{p.stages[1].node: 2.0}), horizon_s=600.0)
    assert not answer.changed
    assert plan.adapt(p, times(p, **{p.stages[1].node: 2.0}), horizon_s=1e6).changed


def test_a_slow_link_is_planned_around() -> None:
    p = plan.solve(card(12, cut=2_000_000), cluster(100, 100, 100))
    first, second = p.stages[0].node, p.stages[1].node
    answer = plan.adapt(p, {f"{first} -> {second}": 0.4})
    assert answer.changed
    pairs = [(a.node, b.node) for a, b in zip(answer.plan.stages, answer.plan.stages[1:])]
    assert (first, second) not in pairs and (second, first) not in pairs


def test_a_dead_node_forces_a_change() -> None:
    p = even()
    dead = p.stages[1].node
    answer = plan.adapt(p, {**times(p), dead: math.inf}, minimum_gain=9.0)
    assert answer.changed and dead not in held_layers(answer.plan.stages)
    lost = set(held_layers(p.stages)[dead])
    from_storage = {number for move in answer.moves if move.source is None for number in range(move.start, move.end)}
    assert from_storage == lost and "gone" in answer.reason


def test_measurements_of_a_simulation_lead_to_the_plan_for_the_slow_machine(rng: np.random.Generator) -> None:
    for _ in range(3):
        p = plan.solve(random_card(rng, 12), random_cluster(rng, 4))
        slow = p.stages[p.predicted.bottleneck].node
        answer = plan.adapt(p, plan.simulate(p, slow={slow: 3.0}, passes=5).measured(), horizon_s=1e9, minimum_gain=0.0)
        truth = replace(p.cluster, nodes=tuple(
            replace(node, efficiency=node.efficiency / 3) if node.name == slow else node for node in p.cluster.nodes))
        best = plan.solve(p.card, truth)
        assert answer.plan.predicted.period_s == pytest.approx(best.predicted.period_s, rel=1e-3)


def test_history_is_extrapolated_and_its_error_shown() -> None:
    p = even()
    slow = p.stages[1].node
    history = [(60.0 * k, times(p, **{slow: 1.0 + 0.02 * k})) for k in range(6)]
    now = history[-1][1]
    assert not plan.adapt(p, now, minimum_gain=0.1).changed  # 10 % slower: not worth it
    answer = plan.adapt(p, now, history)
    guess = answer.forecasts[slow]
    assert guess.method == "least squares" and guess.error < 0.02
    assert guess.value == pytest.approx(p.stages[1].compute_s * 1.2)  # five minutes on, as far as history reaches
    assert "least squares, error" in str(answer)


def test_latency_as_objective() -> None:
    p = plan.solve(card(12, weight_bytes=50_000_000), cluster(200, 100, 100, memory_mb=400), objective="latency")
    slow = p.stages[0].node
    measured = {slow: 3 * p.stages[0].compute_s}
    answer, staying = plan.adapt(p, measured), plan.adapt(p, measured, minimum_gain=99.0)
    assert answer.changed and not staying.changed
    assert answer.plan.predicted.latency_s < staying.plan.predicted.latency_s / 1.1


def test_a_slow_member_slows_its_whole_stage() -> None:
    both = plan.Constraints(tensor=2, data=2)
    p = plan.solve(card(11, weight_bytes=50_000_000, cut=10), cluster(100, 100, 100, 100), constraints=both)
    groups = [[name for copy in stage.replicas for name in copy] for stage in p.stages]
    assert max(map(len, groups)) > 1
    last = next(group[-1] for group in groups if len(group) > 1)
    stay = plan.adapt(p, plan.simulate(p, slow={last: 3.0}, passes=5).measured(), minimum_gain=99.0)
    assert not stay.changed and stay.gain > 0.1
    assert stay.plan.predicted.tokens_per_s == pytest.approx(p.predicted.tokens_per_s / 3, rel=0.01)
    moved = plan.adapt(p, plan.simulate(p, slow={last: 3.0}, passes=5).measured())
    assert moved.changed and plan.check(moved.plan).ok and plan.check(stay.plan).ok


def test_time_of_moves() -> None:
    machines = cluster(1, 1, 1, bandwidth=1e6, latency_s=0.0)
    moves = (plan.Move("b", "a", 0, 1, 1_000_000), plan.Move("c", "a", 1, 2, 2_000_000),
             plan.Move("c", None, 2, 3, 10**9))
    assert move_seconds(machines, moves) == pytest.approx(3.0)  # a sends 1 + 2 s; c receives 2 + 1 s
    assert move_seconds(machines, ()) == 0.0
    p = even()
    assert moves_between(p, p) == ()


@pytest.mark.parametrize(("measured", "options", "complaint"), [
    ({"x": 1.0}, {}, "'x' is neither a stage nor a link"), ({"a": -1.0}, {}, "positive"), ({"a": 0.0}, {}, "positive"),
    ({}, {"horizon_s": 0.0}, "horizon_s"), ({}, {"minimum_gain": -1.0}, "minimum_gain"),
])
def test_bad_input(measured: dict[str, float], options: dict[str, float], complaint: str) -> None:
    with pytest.raises(MorphoError, match=complaint):
        plan.adapt(even(), measured, **options)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------- trends


def test_forecasts() -> None:
    line = plan.forecast([0, 1, 2, 3, 4], [1.0, 1.5, 2.0, 2.5, 3.0], 6)
    assert line.value == pytest.approx(4.0) and line.error == pytest.approx(0.0, abs=1e-12)
    assert line.method == "least squares"
    noisy = plan.forecast([*range(8)], [1.0, 2.0] * 4, 9)
    assert noisy.method.startswith("smoothing") and 1.0 < noisy.value < 2.0 and noisy.error > 0.1
    assert plan.forecast([5.0], [7.0], 9) == plan.Forecast(7.0, math.inf, "last value")
    falling = plan.forecast([0, 1, 2], [3.0, 2.0, 1.0], 50, "least squares")
    assert falling.value == pytest.approx(0.1)  # never negative
    assert plan.forecast([0, 1, 2], [3.0, 2.0, 1.0], 3, "smoothing").value == 1.0


@pytest.mark.parametrize("arguments", [([], [], 1), ([1], [1.0, 2.0], 1), ([2, 1], [1.0, 1.0], 3),
                                       ([1, 2], [1.0, -1.0], 3), ([1], [1.0], 2, "magic")])
def test_bad_histories(arguments: tuple[object, ...]) -> None:
    with pytest.raises(MorphoError):
        plan.forecast(*arguments)  # type: ignore[arg-type]


def test_a_node_that_was_idle_may_go_without_a_change() -> None:
    p = placed(card(8), cluster(100, 100, 1), ("a", 0, 4), ("b", 4, 8))
    answer = plan.adapt(p, {**times(p), "c": math.inf})
    assert not answer.changed and not answer.moves and [node.name for node in answer.plan.cluster.nodes] == ["a", "b"]


def test_a_line_that_is_gone_forces_a_plan_without_it() -> None:
    p = placed(card(8, weight_bytes=100_000_000), cluster(100, 100, 100, memory_mb=600), ("a", 0, 4), ("b", 4, 8))
    answer = plan.adapt(replace(p, strategy="optimal"), {"a -> b": math.inf}, minimum_gain=9.0)
    names = [stage.node for stage in answer.plan.stages]
    assert answer.changed and "a -> b gone" in answer.reason and plan.check(answer.plan).ok
    assert all({one, other} != {"a", "b"} for one, other in pairwise(names))
