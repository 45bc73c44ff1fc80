"""Nobody gets a lie past the checker: a mutator that knows the truth, and the forgeries that once went through."""

from __future__ import annotations

import json

import pytest
from plan_cases import NO_HEADROOM, chain, node

from benchmarks.plan import adversary
from morpho import plan


def test_no_lie_is_believed(seed):
    """A sample; `python -m benchmarks.plan.adversary` tells 20,000."""
    told, believed = adversary.attack(400, seed)
    assert told == 400 and believed == []


def poor_plan(objective: str) -> dict:
    """A true plan, many times worse than the best, as plain data."""
    nodes = [node("fast", 100.0, 2000), node("slow", 0.2, 2000)]
    cluster = plan.Cluster.uniform(nodes, 1e6, 0.0)
    found = plan.solve(chain(10), cluster, "smallest-set", objective, constraints=plan.Constraints(
        headroom=0.0, excluded=("fast",)))
    data = json.loads(found.to_json())
    data["constraints"]["excluded"] = []
    return data


@pytest.mark.parametrize("objective", ["throughput", "latency"])
@pytest.mark.parametrize("size", [1.0, 2.0**52, 2.0**53, 2.0**53 + 2, 1e30, 1e59])
def test_prices_of_any_size_prove_nothing_false(objective, size):
    """Prices near 2^53 once turned the rounding of floats into a bound."""
    data = poor_plan(objective)
    data.update(optimal=True, lower_bound_s=data["objective_value_s"])
    for stage_price in (0.0, size):
        data["witness"]["proofs"] = [{"data": 1, "prices": {"fast": size, "slow": size}, "stage_price": stage_price}]
        report = plan.check(json.dumps(data))
        assert not report.ok and any("a better plan exists" in line for line in report.lines)
    data.update(optimal=False)
    assert not plan.check(json.dumps(data)).ok


def balanced(strategy: str = "optimal") -> plan.Plan:
    nodes = [node("a", 3.0, 700), node("b", 1.0, 500), node("c", 2.0, 400)]
    return plan.solve(chain(10), plan.Cluster.uniform(nodes, 500.0, 0.05), strategy, "balanced",
                      constraints=NO_HEADROOM)


@pytest.mark.parametrize("name", ["best_latency_s", "best_period_s"])
def test_a_score_cannot_be_forged_by_lower_optima(name):
    """Lowering what the score refers to once made any plan that is good in the other time the best."""
    data = json.loads(balanced().to_json())
    data["witness"][name] *= 0.1
    adversary.repair(data)
    report = plan.check(json.dumps(data))
    assert not report.ok and any(f"WRONG  {name} is attained" in line for line in report.lines)
    del data["witness"]["latency_plan"]
    assert any("no plan attains it" in line for line in plan.check(json.dumps(data)).lines)


def test_optima_that_are_attained_must_be_the_best():
    """A plan of the witness that is a plan, but not the one of least latency."""
    found = balanced()
    data = json.loads(found.to_json())
    worst = max(data["front"], key=lambda point: point["latency_s"])
    data["witness"].update(latency_plan=worst["stages"], best_latency_s=worst["latency_s"])
    adversary.repair(data)
    report = plan.check(json.dumps(data))
    assert any(line.startswith("WRONG  best latency") and "better plan exists" in line for line in report.lines)


def test_points_of_the_front_are_worked_out_anew():
    data = json.loads(balanced().to_json())
    point = data["front"][0]
    point["period_s"], point["tokens_per_s"] = point["period_s"] / 2, point["tokens_per_s"] * 2
    assert any("front" in line and "it is" in line for line in plan.check(json.dumps(data)).lines)
    assert any("sampled" in line for line in plan.check(balanced()).lines)


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_times_that_are_far_apart(objective):
    """Sums over a layer of 10^15 s once hid what a short layer takes, and the plan was called optimal."""
    layers = tuple(plan.Layer(f"l{i}", "block", 1, 0, 1, 0 if i else 1e15, 100, decode_cut_elements=1,
                              prefill_cut_elements=1) for i in range(5))
    card = plan.ModelCard("far", layers)
    # The first layer takes 2 ms on a and 10^15 s on the others.
    nodes = [plan.Node(name, 350, wide, {"f32": rate})
             for name, rate, wide in (("a", 500.0, 1e30), ("b", 1000.0, 1.0), ("c", 900.0, 1.0))]
    cluster = plan.Cluster.uniform(nodes, 1e9, 0.0)
    found = plan.solve(card, cluster, objective=objective, constraints=NO_HEADROOM)
    truth = adversary.Truth(plan.Plan.from_json(found.to_json()))
    best = truth.period if objective == "throughput" else truth.latency
    assert found.optimal and found.objective_value_s == pytest.approx(best, rel=1e-9)
    assert plan.check(found).ok


def test_a_plan_is_bound_to_its_inputs():
    """By content: another name is no other model, another figure is."""
    card = plan.ModelCard.from_config("gpt2", context=128, dtype="f16")
    cluster = plan.Cluster.uniform([plan.Node("a", 10**9, 1e10, {"f32": 1e11})], 1e9, 0.0, "here")
    found = plan.solve(card, cluster)
    alone = plan.check(found.to_json())
    assert alone.ok and len([line for line in alone.open if "compare it with yours" in line]) == 2
    report = plan.check(found.to_json(), card=card.with_(name="other"), cluster=cluster)
    assert report.ok and not any("compare it" in line for line in report.open)
    longer = plan.ModelCard.from_config("gpt2", context=256, dtype="f16")
    report = plan.check(found.to_json(), card=longer, cluster=cluster)
    assert any(line.startswith("WRONG  the model") and "in what was given" in line for line in report.lines)
    wider = plan.Cluster.uniform([plan.Node("a", 2 * 10**9, 1e10, {"f32": 1e11})], 1e9, 0.0, "here")
    report = plan.check(found.to_json(), card=card, cluster=wider)
    assert any("the cluster.nodes[0].memory_bytes is 1000000000 in the plan" in line for line in report.lines)
