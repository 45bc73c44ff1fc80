"""The simulator agrees with the closed form where nothing disturbs, and shows what it hides where something does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from planning import card, cluster, placed, random_card, random_cluster

from morpho import plan
from morpho.base.errors import MorphoError
from morpho.plan.predict.simulator import simulate


def two() -> plan.Plan:
    """Stages of 40 and 80 ms, a link of 0.1 ms + 2 us."""
    return placed(card(8), cluster(100, 50), ("a", 0, 4), ("b", 4, 8))


def random_plan(rng: np.random.Generator) -> plan.Plan:
    count, depth = int(rng.integers(1, 7)), int(rng.integers(6, 20))
    cuts = [0, *sorted(rng.choice(np.arange(1, depth), count - 1, replace=False).tolist()), depth]
    order = rng.permutation(count)
    return placed(random_card(rng, depth), random_cluster(rng, count),
                  *[(f"n{order[k]}", cuts[k], cuts[k + 1]) for k in range(count)])


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_it_agrees_with_the_closed_form(rng: np.random.Generator, phase: str) -> None:
    for _ in range(15):
        p = random_plan(rng)
        p = replace(p, card=p.card.with_(phase=phase))
        p = replace(p, stages=plan.fill(p.card, p.cluster, p.stages))
        p = replace(p, predicted=plan.evaluate(p.card, p.cluster, p.stages))
        assert simulate(p).tokens_per_s == pytest.approx(p.predicted.tokens_per_s, rel=0.02)
        alone = simulate(p, in_flight=1, passes=1)
        assert alone.latency_s == pytest.approx(p.predicted.latency_s, rel=1e-9)
        first = simulate(p, in_flight=1, passes=1, phase="prefill")
        assert first.latency_s == pytest.approx(p.predicted.first_token_s, rel=1e-9)


def test_too_few_batches_in_flight_leave_it_idle() -> None:
    p = two()
    assert p.predicted.in_flight == 2
    assert simulate(p, in_flight=1).tokens_per_s == pytest.approx(p.card.batch / p.predicted.latency_s)
    assert simulate(p, in_flight=3).tokens_per_s == pytest.approx(p.predicted.tokens_per_s, rel=0.02)


def test_copies_of_the_pipeline_add_up() -> None:
    p = placed(card(8), cluster(100, 100), ("a", 0, 8))
    both = tuple(replace(stage, replicas=(("a",), ("b",))) for stage in p.stages)
    p = replace(p, stages=both, predicted=plan.evaluate(p.card, p.cluster, both))
    assert simulate(p).tokens_per_s == pytest.approx(p.predicted.tokens_per_s, rel=0.02)
    assert set(simulate(p).busy()) == {"a", "b"}
    half = simulate(p, fails={"a": 0.0})
    assert half.tokens_per_s == pytest.approx(p.predicted.tokens_per_s / 2, rel=0.02)


def test_nothing_overlaps_on_one_resource_and_nothing_is_lost(rng: np.random.Generator) -> None:
    p = random_plan(rng)
    trace = simulate(p, in_flight=4, passes=5, jitter=0.5, seed=3)
    assert len(trace.passes) == 20 and len(trace.spans) == 20 * (2 * len(p.stages) - 1) and trace.lost_passes == 0
    for name in {span.resource for span in trace.spans}:
        mine = sorted((span.start_s, span.end_s) for span in trace.spans if span.resource == name)
        assert all(before[1] <= after[0] for before, after in pairwise(mine))
    for job in range(4):  # a batch is in one place at a time, and goes through the stages in order
        mine = sorted((span for span in trace.spans if span.micro_batch == job), key=lambda span: span.start_s)
        assert all(before.end_s <= after.start_s for before, after in pairwise(mine))
        assert [span.stage for span in mine if span.turn == 2 and span.kind == "compute"] == [*range(len(p.stages))]


def test_contention_on_a_shared_medium() -> None:
    p = placed(card(9, cut=10_000_000), cluster(1e6, 1e6, 1e6), ("a", 0, 3), ("b", 3, 6), ("c", 6, 9))
    link_s = p.stages[0].link_s
    assert p.predicted.period_s == link_s
    both = simulate(p, in_flight=8, shared=[("a", "b", "c")])
    assert both.tokens_per_s == pytest.approx(p.card.batch / (2 * link_s), rel=0.02)
    apart = simulate(p, in_flight=8, shared=[("a", "b")])
    assert apart.tokens_per_s == pytest.approx(p.predicted.tokens_per_s, rel=0.02)


def test_slow_nodes() -> None:
    p = two()
    assert simulate(p, slow={"b": 2.0}).tokens_per_s == pytest.approx(p.predicted.tokens_per_s / 2, rel=0.02)
    assert simulate(p, slow={"a": 1.5}).tokens_per_s == pytest.approx(p.predicted.tokens_per_s, rel=0.02)
    late = simulate(p, slow={"b": (1.0, 2.0)}, passes=100)
    assert late.tokens_per_s == pytest.approx(p.predicted.tokens_per_s / 2, rel=0.02)
    assert late.overall_tokens_per_s > late.tokens_per_s


def test_jitter_is_seeded_and_costs_throughput() -> None:
    p = two()
    one, again, other = (simulate(p, jitter=0.4, seed=seed) for seed in (1, 1, 2))
    assert one == again and one != other
    assert simulate(p, jitter=0.4, passes=300).tokens_per_s < p.predicted.tokens_per_s
    assert one.percentile_s(99) >= one.percentile_s(50) > 0


def test_a_node_that_dies_stops_the_pipeline_or_hands_over() -> None:
    p = two()
    stopped = simulate(p, fails={"b": 0.5})
    assert stopped.stopped_s == 0.5 and stopped.lost_passes == 2
    assert len(stopped.passes) < 80 and all(end <= 0.5 for *_, end in stopped.passes)
    assert {span.resource for span in stopped.spans if span.lost} == {"b"}
    rest = placed(card(8), p.cluster.without(["b"]), ("a", 0, 8))
    handed = simulate(p, fails={"b": 0.5}, failover={"b": (rest, 2.0)})
    assert len(handed.passes) == 80 and handed.stopped_s is None and handed.lost_passes == 2
    assert not any(0.5 < span.start_s < 2.5 for span in handed.spans)
    assert handed.tokens_per_s == pytest.approx(rest.predicted.tokens_per_s, rel=0.02)
    # A node that holds nothing may die unnoticed.
    spare = placed(card(8), cluster(100, 50, 10), ("a", 0, 4), ("b", 4, 8))
    assert simulate(spare, fails={"c": 0.1}).tokens_per_s == pytest.approx(p.predicted.tokens_per_s, rel=0.02)


def test_two_deaths() -> None:
    model, machines = card(6), cluster(100, 100, 100)
    p = placed(model, machines, ("a", 0, 2), ("b", 2, 4), ("c", 4, 6))
    without_b = placed(model, machines.without(["b"]), ("a", 0, 3), ("c", 3, 6))
    without_c = placed(model, machines.without(["c"]), ("a", 0, 3), ("b", 3, 6))
    plans = {"b": (without_b, 1.0), "c": (without_c, 1.0)}
    # c dies while the plan without b is being loaded; the plan without c needs b, which is dead.
    trace = simulate(p, fails={"b": 0.3, "c": 0.8}, failover=plans)
    assert trace.stopped_s == 0.8 and all(end <= 0.3 for *_, end in trace.passes)
    assert trace.lost_passes == p.predicted.in_flight
    # The plan without both takes over from the one being loaded: nothing is done twice.
    alone = placed(model, machines.without(["b", "c"]), ("a", 0, 6))
    trace = simulate(p, passes=10, fails={"b": 0.3, "c": 0.8}, failover={"b": (without_b, 1.0), "c": (alone, 1.0)})
    assert trace.stopped_s is None and len(trace.passes) == 10 * p.predicted.in_flight
    assert not any(0.3 < span.start_s < 1.8 for span in trace.spans)


@pytest.mark.parametrize("wrong", [{"jitter": -1}, {"passes": 0}, {"in_flight": 0}, {"slow": {"x": 2}},
                                   {"fails": {"x": 1}}, {"shared": [("a", "x")]}, {"phase": "sleep"}])
def test_bad_input(wrong: dict[str, object]) -> None:
    with pytest.raises(MorphoError):
        simulate(two(), **wrong)  # type: ignore[arg-type]


def test_a_missing_link_is_named() -> None:
    p = two()
    gone = plan.Cluster.uniform(p.cluster.nodes, 0.0, 0.0)
    with pytest.raises(MorphoError, match="no link a -> b"):
        simulate(replace(p, cluster=gone))
