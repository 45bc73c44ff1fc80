"""The exact search against brute force, against a MILP solver, and on cases one can work out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from plan_cases import NO_HEADROOM, chain, node, ranges

from benchmarks.plan import brute_force
from morpho import plan
from morpho.base.errors import MemoryLimit, MorphoError
from morpho.plan.solve.exact.branch_and_bound import best_latency, best_period
from morpho.plan.solve.exact.relaxation import latency_bound, period_bound, refute, relaxed_path
from morpho.plan.solve.problem import build


def test_no_disagreement_with_brute_force(seed):
    """A sample; `python -m benchmarks.plan.brute_force` runs 10,000."""
    assert brute_force.compare(60, seed) == []


def test_the_sample_is_not_trivial(seed):
    """Enough instances have plans, several stages, both answers, and every kind of constraint."""
    drawn = [brute_force.random_instance(np.random.default_rng([seed, number])) for number in range(80)]
    solvable = [instance for instance in drawn if brute_force.best(*instance) is not None]
    assert 20 < len(solvable) < 78
    assert any(limits.pinned for *_, limits in drawn) and any(limits.max_stages for *_, limits in drawn)
    assert any(limits.activation_error_budget for *_, limits in drawn)
    assert any(len(cluster.kinds()) < len(cluster.nodes) for _, cluster, _ in drawn)


def test_shares_follow_speed_when_links_are_free():
    cluster = plan.Cluster.uniform([node("slow", 1.0, 10_000), node("fast", 3.0, 10_000)], 1e12, 0.0)
    found = plan.solve(chain(8), cluster, constraints=NO_HEADROOM)
    assert sorted(ranges(found), key=lambda part: part[1])[0][1] == 0
    assert {stage.node: stage.end - stage.start for stage in found.stages} == {"slow": 2, "fast": 6}
    assert found.optimal and found.gap == 0 and found.predicted.period_s == pytest.approx(2.0)


def test_a_slow_link_is_worth_a_slower_node():
    """a and b are fast but far apart; c is slow and near: the chain goes a, c."""
    wide = ((0, 1.0, 1000.0), (1.0, 0, 1.0), (1000.0, 1.0, 0))
    nodes = (node("a", 2.0, 600), node("b", 2.0, 600), node("c", 1.0, 600))
    cluster = plan.Cluster(nodes, wide, ((0.0,) * 3,) * 3)
    found = plan.solve(chain(8, cut=10), cluster, objective="latency", constraints=NO_HEADROOM)
    assert {stage.node for stage in found.stages} == {"a", "c"} and found.optimal


def test_nodes_may_stay_unused_and_order_is_free():
    cluster = plan.Cluster.uniform([node("tiny", 0.01, 10_000), node("b", 1.0, 500), node("c", 1.0, 500)], 1e9, 0.0)
    found = plan.solve(chain(8), cluster, constraints=NO_HEADROOM)
    assert {stage.node for stage in found.stages} == {"b", "c"}


def test_layers_of_very_different_sizes():
    """One layer takes a million times as long as the others: sums lose the digits that decide between these."""
    rng = np.random.default_rng(3)
    works = [1e6, *rng.uniform(0.5, 1.5, 9).tolist()]
    layers = tuple(plan.Layer(f"l{i}", "block", 0, 0, work, 0, 10, decode_cut_elements=1)
                   for i, work in enumerate(works))
    card = plan.ModelCard("spiky", layers)
    cluster = plan.Cluster.uniform([node("big", 1e6, 10), node("b", 1.0, 1000), node("c", 0.7, 1000)], 1e9, 0.0)
    found = plan.solve(card, cluster, constraints=NO_HEADROOM)
    assert found.predicted.period_s == pytest.approx(brute_force.best(card, cluster, NO_HEADROOM)[0], rel=1e-9)


def test_one_link_alone_decides_the_period():
    cluster = plan.Cluster.uniform([node("a", 1.0, 450), node("b", 1.0, 450)], 20.0, 0.0)
    found = plan.solve(chain(8, cut=100), cluster, constraints=NO_HEADROOM)
    assert found.predicted.period_s == pytest.approx(100 * 4 / 20.0) and found.stages[0].binds == "link"


def test_a_node_that_can_take_nothing_relays_nothing():
    """From a to c there is only a way over b, and b is too small for any layer: there is no plan."""
    wide = ((0, 1e9, 0), (0, 0, 1e9), (0, 0, 0))
    cluster = plan.Cluster((node("a", 1.0, 250), node("b", 1.0, 50), node("c", 1.0, 250)), wide, ((0.0,) * 3,) * 3)
    for objective in ("throughput", "latency"):
        with pytest.raises(MemoryLimit, match="fits no chain of nodes"):
            plan.solve(chain(4), cluster, objective=objective, constraints=NO_HEADROOM)
    roomy = plan.Cluster((node("a", 1.0, 250), node("b", 1.0, 150), node("c", 1.0, 250)), wide, ((0.0,) * 3,) * 3)
    assert ranges(plan.solve(chain(4), roomy, constraints=NO_HEADROOM))[1][0] == "b"


def test_if_nothing_fits_the_error_names_layer_and_shortfall():
    """Never "put it on node 0"."""
    cluster = plan.Cluster.uniform([node("a", memory=80), node("b", memory=90)], 1e9, 0.0)
    with pytest.raises(MemoryLimit, match=r"layer 0 \(layer 0\) needs 100 B.*largest node, b, has 90 B.*10 B short"):
        plan.solve(chain(3), cluster, constraints=NO_HEADROOM)
    cluster = plan.Cluster.uniform([node("a", memory=150), node("b", memory=150)], 1e9, 0.0)
    with pytest.raises(MemoryLimit, match=r"needs 300 B and all 2 nodes together have 300 B|fits no chain"):
        plan.solve(chain(3), cluster, constraints=NO_HEADROOM)
    with pytest.raises(MemoryLimit, match=r"needs 400 B and all 2 nodes together have 300 B to give: 100 B short"):
        plan.solve(chain(4), cluster, constraints=NO_HEADROOM)


def test_headroom_is_a_hard_limit():
    cluster = plan.Cluster.uniform([node("a", 9.0, 1000), node("b", 1.0, 1000)], 1e9, 0.0)
    tight = plan.solve(chain(10), cluster, objective="latency", constraints=plan.Constraints(headroom=0.25))
    assert all(stage.memory_needed_bytes <= stage.memory_available_bytes == 750 for stage in tight.stages)
    assert len(tight.stages) == 2


def test_pins_exclusions_and_limits_of_stages():
    cluster = plan.Cluster.uniform([node(name, 1.0, 10_000) for name in "abcd"], 1e9, 0.0)
    limits = plan.Constraints(headroom=0.0, pinned={0: "c", 7: "a"}, excluded=("d",), max_stages=2)
    found = plan.solve(chain(8), cluster, constraints=limits)
    assert ranges(found) == [("c", 0, 4), ("a", 4, 8)] and found.optimal
    with pytest.raises(MorphoError, match="layer 9 is pinned to a; the model has 8 layers"):
        plan.solve(chain(8), cluster, constraints=plan.Constraints(pinned={9: "a"}))
    with pytest.raises(MorphoError, match="no node 'z'"):
        plan.solve(chain(8), cluster, constraints=plan.Constraints(excluded=("z",)))


def test_tied_layers_cost_a_copy_or_stay_together():
    card = chain(4, tied=(0, 3), tied_bytes=100)
    cluster = plan.Cluster.uniform([node("a", 1.0, 300), node("b", 1.0, 300)], 1e9, 0.0)
    apart = plan.solve(card, cluster, constraints=NO_HEADROOM)
    assert [stage.memory_needed_bytes for stage in apart.stages] == [200, 200]
    together = plan.solve(card, cluster, constraints=plan.Constraints(headroom=0.0, tied="together"))
    assert len(together.stages) == 1 and together.stages[0].memory_needed_bytes == 300


def test_activation_types_are_chosen_under_the_budget():
    """Two links, one slow: the budget affords one int8, and it goes where it saves most."""
    wide = ((0, 100.0, 0), (0, 0, 10.0), (0, 0, 0))
    cluster = plan.Cluster(tuple(node(name, 1.0, 200) for name in "abc"), wide, ((0.0,) * 3,) * 3)
    limits = plan.Constraints(headroom=0.0, activation_dtypes=("f32", "int8"), activation_error_budget=2**-7 * 1.5)
    found = plan.solve(chain(6), cluster, objective="latency", constraints=limits)
    assert [stage.activation_dtype for stage in found.stages[:-1]] == ["f32", "int8"] and found.optimal
    free = plan.Constraints(headroom=0.0, activation_dtypes=("f32", "int8"))
    quick = plan.solve(chain(6), cluster, constraints=free)
    assert [stage.activation_dtype for stage in quick.stages[:-1]] == ["int8"] * 2


def test_equal_nodes_share_layers_or_batches():
    nodes = [node(f"n{i}", 1.0, 500) for i in range(4)]
    cluster = plan.Cluster.uniform(nodes, 1e9, 0.0)
    card = chain(4, weight=100)
    alone = plan.solve(card, cluster, objective="latency", constraints=NO_HEADROOM)
    shared = plan.solve(card, cluster, objective="latency", constraints=plan.Constraints(headroom=0.0, tensor=4))
    assert alone.predicted.latency_s == pytest.approx(4.0) and shared.predicted.latency_s == pytest.approx(1.0)
    assert shared.stages[0].members == ("n0", "n1", "n2", "n3") and shared.predicted.nodes_used == 4
    # One layer cannot be cut, but four copies of it take four batches at once.
    copies = plan.solve(chain(1), cluster, constraints=plan.Constraints(headroom=0.0, data=4))
    assert copies.predicted.period_s == pytest.approx(0.25) and len(copies.stages[0].replicas) == 4
    for found in (alone, shared, copies):
        assert found.optimal and plan.check(found).ok


def test_degrees_pay_for_their_links():
    """Sums over a slow line cost more than sharing saves."""
    layers = tuple(plan.Layer(f"l{i}", "block", 1, 0, 1, 0, 100, decode_cut_elements=10, decode_reduce_elements=1000,
                              reduces=2) for i in range(4))
    cluster = plan.Cluster.uniform([node(f"n{i}", 1.0, 1000) for i in range(2)], 100.0, 0.0)
    found = plan.solve(plan.ModelCard("m", layers), cluster, objective="latency",
                       constraints=plan.Constraints(headroom=0.0, tensor=2))
    assert len(found.stages) == 1 and found.stages[0].members == ("n0",)


def test_interchangeable_nodes_need_few_rows():
    """42 nodes of 7 kinds, 24 of 3: a row is a multiset, not a set."""
    nodes = [node(f"{kind}{i}", 1.0 + ord(kind) % 3, 400) for kind in "abc" for i in range(8)]
    problem = build(chain(40, cut=10), plan.Cluster.uniform(nodes, 100.0, 0.01), NO_HEADROOM)
    assert problem.caps.tolist() == [8, 8, 8]
    assert best_latency(problem).rows < 9**3


def test_balanced_is_between_and_the_front_undominated(rng):
    card, cluster = next(instance[:2] for instance in (brute_force.random_instance(rng) for _ in range(200))
                         if len(instance[1].nodes) >= 4 and brute_force.best(*instance[:2], NO_HEADROOM)
                         and len(plan.solve(*instance[:2], constraints=NO_HEADROOM).stages) > 2)
    period, latency = brute_force.best(card, cluster, NO_HEADROOM)
    scores = [max(p / period, q / latency) for p, q, _ in brute_force.placements(card, cluster, NO_HEADROOM)]
    found = plan.solve(card, cluster, objective="balanced", constraints=NO_HEADROOM)
    assert found.optimal and found.objective_value_s == pytest.approx(min(scores), rel=1e-9)
    assert plan.check(found).ok
    points = [(point["latency_s"], point["period_s"], point["nodes_used"]) for point in found.front]
    for a in points:
        assert not any(b != a and all(x <= y for x, y in zip(b, a)) for b in points)
    assert min(point[0] for point in points) == pytest.approx(latency)


def test_priced_walks_bound_every_plan(rng):
    """Any prices, not only good ones."""
    for _ in range(25):
        card, cluster, limits = brute_force.random_instance(rng, most_nodes=4, most_layers=6)
        truth = brute_force.best(card, cluster, limits)
        if truth is None:
            continue
        problem = build(card, cluster.without(limits.excluded), limits)
        prices = rng.uniform(0, 2, len(problem.caps))
        walk = relaxed_path(problem, prices)
        assert walk.whole - float(problem.caps @ prices) <= truth[1] * (1 + 1e-9)
        assert latency_bound(problem, truth[1]).seconds <= truth[1] * (1 + 1e-9)
        assert period_bound(problem, truth[0], 20)[0] <= truth[0] * (1 + 1e-9)
        assert not refute(problem.within(truth[0]), 20).proves


def test_the_same_request_gives_the_same_plan():
    card = plan.ModelCard.from_config("gpt2", context=128)
    nodes = [plan.Node(f"n{i}", 10**9, 1e10 * (i + 1), {"f32": 1e11}) for i in range(4)]
    cluster = plan.Cluster.uniform(nodes, 1e8, 1e-4)
    first, second = (plan.solve(card, cluster, seed=3).to_json() for _ in range(2))
    assert first == second and plan.Plan.from_json(first).to_json() == first


def test_beyond_exact_search_there_is_a_gap_and_it_is_checked(monkeypatch):
    """With the limits of exact search set to almost nothing, plans come with a bound instead of a proof."""
    from morpho.plan.solve.exact import branch_and_bound as exact

    monkeypatch.setattr(exact, "LARGE_ROWS", 1)
    rng = np.random.default_rng(5)
    nodes = [node(f"n{i}", float(rng.uniform(0.5, 2)), int(rng.integers(300, 900))) for i in range(6)]
    cluster = plan.Cluster.uniform(nodes, 400.0, 0.01)
    found = plan.solve(chain(16), cluster, constraints=NO_HEADROOM)
    scored = plan.solve(chain(16), cluster, objective="balanced", constraints=NO_HEADROOM)
    monkeypatch.undo()
    assert scored.lower_bound == 1.0 <= scored.objective_value_s < 2 and scored.front and plan.check(scored).ok
    best = plan.solve(chain(16), cluster, constraints=NO_HEADROOM)
    assert found.lower_bound <= best.objective_value_s * (1 + 1e-9) <= found.objective_value_s * (1 + 2e-9)
    assert 0 <= found.gap < 0.5 and plan.check(found).ok


def test_a_milp_solver_agrees(rng):
    """HiGHS on stages and links as 0-1 variables: both objectives."""
    highspy = pytest.importorskip("highspy", reason="HiGHS as a second opinion")
    for _ in range(2):
        nodes = [node(f"n{i}", float(rng.uniform(0.5, 3)), int(rng.integers(250, 700))) for i in range(4)]
        wide = tuple(tuple(float(x) for x in row) for row in rng.uniform(50, 2000, (4, 4)))
        late = tuple(tuple(float(x) for x in row) for row in rng.uniform(0, 0.3, (4, 4)))
        problem = build(chain(6), plan.Cluster(tuple(nodes), wide, late), NO_HEADROOM)
        assert best_latency(problem).value_s == pytest.approx(milp(highspy, problem, "latency"), rel=1e-6)
        assert best_period(problem).value_s == pytest.approx(milp(highspy, problem, "throughput"), rel=1e-6)


def milp(highspy, problem, objective: str) -> float:
    """Least latency or period: `stage[k, a, b]` and `hop[k, l, a]` make a path, each kind is used once."""
    kinds, depth = problem.kinds, problem.depth
    model = highspy.Highs()
    model.silent()
    model.setOptionValue("threads", 1)
    stage = {(k, a, b): model.addBinary() for k in range(kinds) for a in range(depth)
             for b in range(a + 1, int(problem.far[k, a]) + 1)}
    hop = {(k, m, a): model.addBinary() for k in range(kinds) for m in range(kinds) if k != m for a in range(1, depth)}
    for k in range(kinds):
        model.addConstr(sum(v for key, v in stage.items() if key[0] == k) <= 1)
        for a in range(1, depth):
            out = [v for key, v in hop.items() if key[0] == k and key[2] == a]
            into = [v for key, v in hop.items() if key[1] == k and key[2] == a]
            model.addConstr(sum(v for key, v in stage.items() if key[0] == k and key[2] == a) == sum(out))
            model.addConstr(sum(v for key, v in stage.items() if key[0] == k and key[1] == a) == sum(into))
    model.addConstr(sum(v for key, v in stage.items() if key[1] == 0) == 1)
    model.addConstr(sum(v for key, v in stage.items() if key[2] == depth) == 1)
    times = {key: float(problem.time[key[0], key[2]] - problem.time[key[0], key[1]]) for key in stage}
    links = {key: float(problem.link[0][key]) for key in hop}
    if objective == "latency":
        cost = sum(times[key] * v for key, v in stage.items()) + sum(links[key] * v for key, v in hop.items())
    else:
        cost = model.addVariable(lb=0)
        for k in range(kinds):
            model.addConstr(sum(times[key] * v for key, v in stage.items() if key[0] == k) <= cost)
        for key, v in hop.items():
            model.addConstr(links[key] * v <= cost)
    model.minimize(cost)
    assert not math.isnan(model.getObjectiveValue())
    return float(model.getObjectiveValue())


def test_a_balanced_plan_considers_copies_of_the_pipeline():
    """Two equal machines that hold the whole model: a copy on each is the best in both times at once."""
    cluster = plan.Cluster.uniform([node("a"), node("b")], 500.0, 0.05)
    limits = plan.Constraints(headroom=0.0, data=2)
    found = plan.solve(chain(4), cluster, objective="balanced", constraints=limits)
    assert [stage.replicas for stage in found.stages] == [(("a",), ("b",))]
    assert found.optimal and found.objective_value_s == 1.0 and plan.check(found.to_json()).ok
    assert [(point["period_s"], point["nodes_used"]) for point in found.front] == [(2.0, 2), (4.0, 1)]


def test_balanced_with_copies_is_proven(rng):
    """Never worse than with one copy, and the checker searches every number of copies for a better score."""
    for _ in range(4):
        card, cluster = chain(5, cut=int(rng.integers(10, 300))), plan.Cluster.uniform(
            [node("a", 2.0), node("b", 2.0), node("c", float(rng.uniform(0.5, 3)))], 200.0, 0.02)
        limits = plan.Constraints(headroom=0.0, data=2)
        found = plan.solve(card, cluster, objective="balanced", constraints=limits)
        report = plan.check(found)
        assert found.optimal and report.ok, report.lines
        single = plan.solve(card, cluster, objective="balanced", constraints=NO_HEADROOM)
        period = plan.solve(card, cluster, constraints=limits).predicted.period_s
        latency = plan.solve(card, cluster, objective="latency", constraints=limits).predicted.latency_s
        assert found.objective_value_s <= max(single.predicted.latency_s / latency,
                                              single.predicted.period_s / period) * (1 + 1e-9)
