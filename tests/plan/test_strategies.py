"""Rules of thumb, bin packing, annealing, and strategies of one's own."""

from __future__ import annotations

import numpy as np
import pytest
from plan_cases import NO_HEADROOM, chain, node, ranges

from benchmarks.plan import brute_force
from morpho import plan
from morpho.base.errors import DeviceError, MemoryLimit, MorphoError
from morpho.plan.solve import registry
from morpho.plan.solve.annealing import Chain, anneal, best_cuts
from morpho.plan.solve.heuristics import CHEAP_RULES, balanced_cuts, proportional_cuts
from morpho.plan.solve.problem import build


@pytest.mark.parametrize("budget", [-1.0, float("nan"), float("inf")])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(ValueError, match="activation_error_budget is") as caught:
        plan.Constraints(activation_error_budget=budget)
    assert "<string>" not in str(caught.value) and "test_strategies.py" in str(caught.value)


def unequal(count: int, seed: int = 0, memory: int = 2000) -> plan.Cluster:
    rng = np.random.default_rng(seed)
    nodes = [node(f"n{i}", float(rng.uniform(0.5, 3)), memory) for i in range(count)]
    wide, late = rng.uniform(100, 3000, (count, count)), rng.uniform(0, 0.2, (count, count))
    return plan.Cluster(tuple(nodes), tuple(map(tuple, wide.tolist())), tuple(map(tuple, late.tolist())))


@pytest.mark.parametrize(("depth", "parts"), [(96, 16), (13, 5), (7, 7), (10, 3)])
def test_uniform_ranges_differ_by_at_most_one(depth, parts):
    cluster = plan.Cluster.uniform([node(f"n{i}", memory=10_000) for i in range(parts)], 1e9, 0.0)
    sizes = [stage.end - stage.start for stage in plan.solve(chain(depth), cluster, "uniform").stages]
    assert sum(sizes) == depth and max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)
    assert balanced_cuts(depth, parts)[-1] == depth


def test_more_nodes_than_layers_leave_some_unused():
    cluster = plan.Cluster.uniform([node(f"n{i}") for i in range(5)], 1e9, 0.0)
    assert ranges(plan.solve(chain(2), cluster, "uniform")) == [("n0", 0, 1), ("n1", 1, 2)]


def test_uniform_pays_no_heed_to_memory_and_is_refused_for_it():
    cluster = plan.Cluster.uniform([node("a", memory=2000), node("b", memory=200)], 1e9, 0.0)
    with pytest.raises(MemoryLimit, match=r"layers \[4, 8\) need 400 B on b, which has 200 B to give: 200 B short"):
        plan.solve(chain(8), cluster, "uniform", constraints=NO_HEADROOM)
    repaired = plan.solve(chain(8), cluster.subset([1, 0]), "proportional", constraints=NO_HEADROOM)
    assert ranges(repaired) == [("b", 0, 2), ("a", 2, 8)]


def test_a_rule_that_ignores_links_is_refused_where_there_is_none():
    cluster = plan.Cluster((node("a"), node("b")), ((0.0, 0.0), (1.0, 0.0)), ((0.0,) * 2,) * 2)
    with pytest.raises(DeviceError, match="no line from a to the next stage's node, b"):
        plan.solve(chain(4), cluster, "uniform")
    assert ranges(plan.solve(chain(12), cluster, constraints=NO_HEADROOM))[0][0] == "b"


def test_proportional_by_speed_and_by_memory():
    cluster = plan.Cluster.uniform([node("a", 3.0, 2000), node("b", 1.0, 6000)], 1e9, 0.0)
    assert ranges(plan.solve(chain(8), cluster, "proportional")) == [("a", 0, 6), ("b", 6, 8)]
    assert ranges(plan.solve(chain(8), cluster, "proportional", by="memory")) == [("a", 0, 2), ("b", 2, 8)]
    assert ranges(plan.solve(chain(8), cluster, "proportional-memory")) == [("a", 0, 2), ("b", 2, 8)]
    assert proportional_cuts([1.0, 5.0, 1.0], [1.0, 1.0]) in ([0, 1, 3], [0, 2, 3])
    with pytest.raises(MorphoError, match="proportional to 'luck'"):
        plan.solve(chain(8), cluster, "proportional", by="luck")


def test_the_smallest_set_fills_the_roomiest_first():
    cluster = plan.Cluster.uniform([node("a", 9.0, 300), node("b", 1.0, 500), node("c", 1.0, 400)], 1e9, 0.0)
    assert ranges(plan.solve(chain(8), cluster, "smallest-set", constraints=NO_HEADROOM)) == [("b", 0, 5), ("c", 5, 8)]


def test_bin_packing_is_for_independent_work(rng):
    """Within 4/3 of the mean load and the largest piece, and it says how often it would break a chain."""
    costs = rng.uniform(1, 5, 200).tolist()
    packing = plan.pack(costs, [1.0, 1.0, 2.0])
    assert len(packing.worker) == 200 and sum(load * speed for load, speed in zip(packing.loads, (1, 1, 2))) == (
        pytest.approx(sum(costs)))
    assert max(packing.loads) <= sum(costs) / 4 + max(costs)
    assert packing.broken_links > 50
    with pytest.raises(MorphoError, match="workers cannot have the speeds"):
        plan.pack([1.0], [])


def test_greedy_keeps_the_chain_whole_and_says_so():
    found = plan.solve(chain(12), unequal(4), "greedy", constraints=NO_HEADROOM)
    assert "bin packing alone would cut the chain" in found.notes[0] and len(found.stages) <= 4


def test_annealing_is_seeded_and_never_worse_than_where_it_starts():
    """It minimises time, not traffic: everything on one node does not win."""
    card = chain(24, cut=20)
    for seed in range(4):
        cluster = unequal(6, seed)
        for objective in ("throughput", "latency"):
            cheap = []
            for rule in CHEAP_RULES:
                try:
                    cheap.append(plan.solve(card, cluster, rule, objective, bound=False).objective_value_s)
                except MorphoError:
                    continue
            first, again, other = (plan.solve(card, cluster, "annealing", objective, seed=s, moves=1500, bound=False)
                                   for s in (seed, seed, seed + 1))
            assert first.stages == again.stages
            assert max(first.objective_value_s, other.objective_value_s) <= min(cheap) * (1 + 1e-12)
    spread = plan.solve(card, unequal(6, 1), "annealing", "throughput", moves=1500)
    assert len(spread.stages) > 2 and 0 <= spread.gap < 0.2 and plan.check(spread).ok


def test_small_problems_are_not_walked():
    """Annealing takes the exact answer where that is instant, with its proof; `moves` asks for a walk."""
    for objective in ("throughput", "latency"):
        quick = plan.solve(chain(5), unequal(4), "annealing", objective)
        best = plan.solve(chain(5), unequal(4), "optimal", objective)
        assert quick.optimal and quick.objective_value_s == best.objective_value_s and plan.check(quick).ok
        assert "small enough for the exact search" in quick.notes[0]
        assert not plan.solve(chain(5), unequal(4), "annealing", objective, moves=100).notes


@pytest.mark.parametrize("links", [False, True])
def test_many_nodes_start_from_few(rng, links):
    """Of hundreds of unlike nodes, whatever the time: no worse than the best single node, or the fastest few."""
    count, card = 300, plan.ModelCard.from_config("llama-70b", dtype="q4", context=1024)
    nodes = [plan.Node(f"n{number}", int(rng.integers(8, 65)) * 10**9, float(10 ** rng.uniform(10.3, 12)),
                       {"f32": 1e14}) for number in range(count)]
    wide, late = 10 ** rng.uniform(8, 10, (count, count)), 10 ** rng.uniform(-5, -3, (count, count))
    cluster = plan.Cluster(tuple(nodes), tuple(map(tuple, wide)), tuple(map(tuple, late))) if links else \
        plan.Cluster.uniform(nodes, 1.25e9, 1e-4)
    problem = build(card, cluster, plan.Constraints())
    single = [k for k in range(problem.kinds) if problem.far[k, 0] == problem.depth]
    alone = min(problem.time[k, -1] for k in single)
    few = plan.solve(card, cluster, "optimal", "latency", seconds=0, bound=False)
    assert few.objective_value_s <= alone * (1 + 1e-9)
    steady = plan.solve(card, cluster, "optimal", "throughput", seconds=0, bound=False)
    naive = plan.solve(card, cluster, "uniform", "throughput", bound=False) if not links else None
    fastest = sorted(single, key=lambda k: problem.time[k, -1])[:8]
    assert steady.objective_value_s <= best_cuts(problem, fastest, "throughput")[0] * (1 + 1e-9)
    assert naive is None or steady.objective_value_s < naive.objective_value_s / 2


def test_annealing_keeps_all_constraints(rng):
    for _ in range(30):
        card, cluster, limits = brute_force.random_instance(rng)
        try:
            found = plan.solve(card, cluster, "annealing", constraints=limits, moves=300)
        except MemoryLimit:
            assert brute_force.best(card, cluster, limits) is None
            continue
        report = plan.check(found)
        assert report.ok, report.lines


def test_the_energy_is_kept_up_by_increments(rng):
    """After many moves it is what a count from nothing gives."""
    problem = build(chain(20), unequal(5, 3), NO_HEADROOM)
    from random import Random

    random = Random(1)
    for objective in ("throughput", "latency"):
        walk = Chain(problem, [(0, 0, 20, 0)], objective)
        moved = 0
        for _ in range(500):
            move = walk.propose(random)
            if move is not None and (change := walk.change(*move)) < float("inf"):
                walk.apply(*move, change)
                moved += 1
        assert moved > 50 and walk.energy == pytest.approx(walk.energy_of(walk.path), rel=1e-6)
        assert [walk.path[0][1], walk.path[-1][2]] == [0, 20]
    assert anneal(problem, [(0, 0, 20, 0)], "latency", 1, moves=0) == [(0, 0, 20, 0)]


def test_strategies_of_ones_own():
    @plan.register_strategy("backwards")
    def backwards(request):
        names = [machine.name for machine in reversed(request.cluster.nodes)]
        half = request.card.depth // 2
        return [plan.Stage(names[0], 0, half), plan.Stage(names[1], half, request.card.depth)]

    try:
        found = plan.solve(chain(8), unequal(2), "backwards")
        assert ranges(found) == [("n1", 0, 4), ("n0", 4, 8)] and found.lower_bound > 0
        assert "backwards" in plan.strategies()
        with pytest.raises(MorphoError, match="already a strategy 'backwards'"):
            plan.register_strategy("backwards")(backwards)
    finally:
        registry.STRATEGIES.pop("backwards")


def test_a_strategy_that_drops_layers_is_refused():
    @plan.register_strategy("forgetful")
    def forgetful(request):
        return [plan.Stage(request.cluster.nodes[0].name, 0, request.card.depth - 1)]

    try:
        with pytest.raises(MorphoError, match="the stages end at layer 7 of 8"):
            plan.solve(chain(8), unequal(2), "forgetful")
    finally:
        registry.STRATEGIES.pop("forgetful")


@pytest.mark.parametrize(("options", "said"), [
    ({"strategy": "magic"}, "no strategy 'magic'"), ({"objective": "beauty"}, "no objective 'beauty'"),
    ({"constraints": plan.Constraints(pinned={0: "n0"}), "strategy": "uniform"}, "cannot pin layers"),
])
def test_bad_requests(options, said):
    with pytest.raises(MorphoError, match=said):
        plan.solve(chain(4), unequal(2), **options)


@pytest.mark.parametrize("wrong", [{"headroom": 1.0}, {"headroom": -0.1}, {"tied": "maybe"}, {"tensor": 10**9},
                                   {"activation_dtypes": ("q4",)}, {"max_stages": 0}, {"tensor": 0}, {"data": 1.5}])
def test_bad_constraints(wrong):
    with pytest.raises(MorphoError):
        plan.Constraints(**wrong)


def test_every_strategy_has_a_bound():
    card, cluster = chain(24), unequal(5, 2, memory=4000)
    best = {objective: plan.solve(card, cluster, objective=objective).objective_value_s
            for objective in ("throughput", "latency")}
    for name in plan.strategies():
        for objective, value in best.items():
            found = plan.solve(card, cluster, name, objective, **({"moves": 500} if name == "annealing" else {}))
            assert 0.5 * value < found.lower_bound <= value * (1 + 1e-9) <= found.objective_value_s * (1 + 2e-9), name
        scored = plan.solve(card, cluster, name, "balanced", **({"moves": 500} if name == "annealing" else {}))
        assert scored.objective_value_s >= 1 - 1e-9 and plan.check(scored).ok, name
