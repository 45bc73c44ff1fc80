"""What binds, what relief is worth, what happens when a node dies, and how well the machines are used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planning import card, cluster, node, placed, random_card, random_cluster

from morpho import plan
from morpho.plan.predict.closed_form import layer_seconds
from morpho.plan.replan.resolve import assignment, held_layers, new_bytes


def test_reliefs_are_what_a_new_solve_says() -> None:
    p = plan.solve(card(12, weight_bytes=100_000_000), cluster(300, 100, 50, memory_mb=600))
    found = {relief.what: relief for relief in p.explain(relief=20).reliefs}
    memory = next(what for what in found if what.startswith("1 GB more on") and "each" not in what)
    name = memory.split()[-1]
    again = plan.what_if(p, f"{name} memory {600_000_000 + 1_000_000_000}B")[0].plan
    assert again is not None
    assert found[memory].tokens_per_s == pytest.approx(again.predicted.tokens_per_s - p.predicted.tokens_per_s)
    assert found[memory].tokens_per_s > 0
    assert all(relief.tokens_per_s > 0 for relief in found.values())
    assert len(p.explain(relief=1, with_failures=False).reliefs) <= 1


def test_a_link_that_binds_is_relieved_by_a_wider_one() -> None:
    p = plan.solve(card(8, cut=20_000_000, weight_bytes=200_000_000), cluster(1000, 1000, memory_mb=1100))
    assert p.stages[p.predicted.bottleneck].binds == "link"
    wider = next(relief for relief in p.explain(with_failures=False).reliefs if relief.what.endswith("twice as wide"))
    assert wider.tokens_per_s == pytest.approx(p.predicted.tokens_per_s, rel=0.01)


def test_the_slowest_line_of_a_latency_plan_is_tried_though_it_binds_nothing() -> None:
    p = plan.solve(card(8, cut=2_000_000, weight_bytes=200_000_000), cluster(100, 100, memory_mb=1100),
                   objective="latency")
    assert len(p.stages) == 2 and all(stage.binds != "link" for stage in p.stages)
    wider = next(relief for relief in p.explain(20, False).reliefs if relief.what.endswith("twice as wide"))
    assert wider.latency_s == pytest.approx(-(p.stages[0].link_s - 1e-4) / 2, rel=1e-3)


def test_one_of_many_equal_nodes_does_not_help_but_all_do() -> None:
    p = plan.solve(card(12), cluster(100, 100, 100, 100, bandwidth=1e10, latency_s=1e-6))
    only, = p.explain(with_failures=False).reliefs
    assert only.what == f"10 % more FLOP/s on each of the 4 nodes like {p.stages[p.predicted.bottleneck].node}"
    assert only.tokens_per_s == pytest.approx(0.1 * p.predicted.tokens_per_s)


def test_the_text_says_it_all() -> None:
    p = plan.solve(card(12, weight_bytes=100_000_000), cluster(300, 100, 50, memory_mb=600))
    text = str(p.explain())
    for words in ("proven optimal", "what binds", "bottleneck", "memory is tight", "load balance over all 3 nodes",
                  "1 GB more on", "if a node dies", "without a: no plan: ", "short", "batches in flight"):
        assert words in text, words


def test_plans_without_each_node(rng: np.random.Generator) -> None:
    p = plan.solve(random_card(rng, 10), random_cluster(rng, 4))
    found = {failure.node: failure for failure in plan.failures(p)}
    assert list(found) == [node.name for node in p.cluster.nodes]
    for name, failure in found.items():
        if name not in held_layers(p.stages):
            assert failure.plan is not None and failure.plan.stages == p.stages and not failure.reload_bytes
            continue
        alone = plan.solve(p.card, p.cluster.without([name]))
        assert failure.plan is not None and name not in held_layers(failure.plan.stages)
        assert failure.plan.predicted.period_s == pytest.approx(alone.predicted.period_s)
        assert failure.reload_bytes == new_bytes(failure.plan, held_layers(p.stages))
        assert failure.reload_s == max(failure.reload_bytes.values(), default=0) / 1e9


def test_equal_machines_are_solved_once_and_keep_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    from morpho.plan.replan import failures as survival

    p = plan.solve(card(12), cluster(100, 100, 100, 100, bandwidth=1e10, latency_s=1e-6))
    assert len(p.stages) == 4
    solved = []

    def counted(before: plan.Plan, after: plan.Cluster, quick: bool) -> plan.Plan:
        solved.append(after)
        return plan.solve(before.card, after)

    monkeypatch.setattr(survival, "resolve", counted)
    found = survival.failures(p)
    assert len(solved) == 1
    for failure in found:
        assert failure.plan is not None and failure.node not in held_layers(failure.plan.stages)
        assert failure.plan.predicted.period_s == pytest.approx(4 * 1e9 / 1e11)
        # Three nodes of three layers become three of four: they need three new layers at the very least.
        assert 3_000_000 <= sum(failure.reload_bytes.values()) <= 6_000_000
        assert {node.name for node in failure.plan.cluster.nodes} == {*"abcd"} - {failure.node}
        assert failure.plan.optimal and plan.check(failure.plan).ok


def test_pins_on_a_dead_node_are_dropped_and_the_last_node_has_no_plan() -> None:
    pinned = plan.Constraints(pinned={0: "b"})
    p = plan.solve(card(6), cluster(100, 50), constraints=pinned)
    without_b = {failure.node: failure for failure in plan.failures(p)}["b"]
    assert without_b.plan is not None and without_b.plan.stages[0].node == "a"
    alone = plan.failures(plan.solve(card(6), cluster(100)))
    assert alone[0].plan is None and "only node" in str(alone[0])


def test_quality() -> None:
    p = placed(card(8), cluster(100, 50, 10), ("a", 0, 4), ("b", 4, 8))
    found = plan.quality(p)
    assert found.busy == pytest.approx({"a": 0.5, "b": 1.0, "c": 0.0})
    assert found.load_balance == pytest.approx(0.5) and found.pipeline_efficiency == pytest.approx(0.75)
    assert found.sent_bytes_per_token == 1000 * 4 / 4
    assert found.communication_share == pytest.approx(p.stages[0].link_s / p.predicted.latency_s)
    assert found.filled == pytest.approx(0.08 / p.predicted.latency_s)
    assert plan.quality(replace(p, card=p.card.with_(micro_batches=2))).filled == 1.0


def test_sums_among_nodes_that_share_a_layer_are_communication() -> None:
    model = plan.ModelCard.from_config("gpt2", batch=2, dtype="f16")
    limits = plan.Constraints(tensor=2)
    machines = plan.Cluster.uniform([node("a", 10), node("b", 10)], 1e10, 1e-6)
    p = plan.solve(model, machines, objective="latency", constraints=limits)
    assert [stage.members for stage in p.stages] == [("a", "b")]
    found = plan.quality(p)
    # Twelve blocks, each with two sums of 768 numbers of 2 bytes per sequence; two members send half of it twice.
    assert found.sent_bytes_per_token == pytest.approx(12 * 2 * 768 * 2 * 2, rel=0.1)
    alone = sum(layer_seconds(layer, machines.nodes[0], "f16", "decode") for layer in model.layers) / 2
    assert found.communication_share == pytest.approx(1 - alone / p.predicted.latency_s)


def test_the_cheapest_assignment(rng: np.random.Generator) -> None:
    from itertools import permutations

    for _ in range(30):
        rows, columns = int(rng.integers(1, 5)), int(rng.integers(4, 6))
        cost = rng.integers(0, 10, (rows, columns)).astype(float)
        chosen = assignment(cost)
        best = min(sum(cost[row, column] for row, column in enumerate(order))
                   for order in permutations(range(columns), rows))
        assert len(set(chosen)) == rows and sum(cost[row, column] for row, column in enumerate(chosen)) == best


def test_renaming_never_loads_more(rng: np.random.Generator) -> None:
    from morpho.plan.replan.resolve import with_familiar_names

    nodes = [node(f"n{number}", 100) for number in range(5)]
    p = plan.solve(card(10), plan.Cluster.uniform(nodes, 1e10, 1e-6))
    for _ in range(5):
        order = rng.permutation(5)
        held = {f"n{order[k]}": range(stage.start, stage.end) for k, stage in enumerate(p.stages)}
        familiar = with_familiar_names(p, held)
        assert new_bytes(familiar, held) == {} and familiar.predicted == p.predicted


def test_a_model_that_fits_by_its_sum_alone_says_where_it_ends() -> None:
    # 8 layers of 110 MB, and room for 450, 378 and 90: more than enough in all, but for four, three and none.
    sizes = {"a": 500.0, "b": 420.0, "c": 100.0}
    machines = plan.Cluster.uniform([node(name, memory_mb=size) for name, size in sizes.items()], 1e9, 0.0)
    with pytest.raises(MemoryError, match=r"end before layer 7 \(layer 7\), for which c is 20 MB short"):
        plan.solve(card(8, weight_bytes=100_000_000), machines)


def test_a_model_larger_than_all_nodes_says_which_layer_is_the_first_too_many() -> None:
    with pytest.raises(MemoryError, match=r"short; filled from the roomiest on, they end before layer 8 \(layer 8\), "
                                          r"for which b is 100 MB short"):
        plan.solve(card(12, weight_bytes=100_000_000), cluster(100, 100, memory_mb=500))


def test_many_questions_about_many_different_nodes_are_annealed() -> None:
    from morpho.plan.replan.resolve import quick_strategy

    few, many = (placed(card(40), cluster(*(100 + number for number in range(count))), ("a", 0, 20), ("b", 20, 40))
                 for count in (12, 24))
    few, many = (replace(p, strategy="optimal") for p in (few, many))
    assert quick_strategy(few) == ("optimal", {}) and quick_strategy(many)[0] == "annealing"
    assert quick_strategy(replace(few, strategy="annealing"))[1] == {"moves": 15_000}
    alike = placed(card(40), cluster(*[100] * 24), ("a", 0, 20), ("b", 20, 40))
    assert quick_strategy(replace(alike, strategy="optimal")) == ("optimal", {})
