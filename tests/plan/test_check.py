"""The checker accepts what is true, refuses every kind of lie, and shares no code with the solvers."""

from __future__ import annotations

import ast
import json
from fractions import Fraction
from pathlib import Path

import pytest
from plan_cases import NO_HEADROOM, chain, node

from benchmarks.plan import brute_force
from morpho import plan
from morpho.base.errors import MemoryLimit, MorphoError
from morpho.plan.solve import registry, solver
from morpho.plan.verify.scaled import Request, Scaled
from morpho.plan.verify.search import plan_below, plan_within

FOLDER = Path(plan.__file__).parent / "verify"
DATA_ONLY = {f"morpho.plan.{name}" for name in (
    "model.card", "model.layer", "cluster.cluster", "cluster.node", "predict.plan", "predict.content")}


def example(objective: str = "throughput", strategy: str = "optimal") -> plan.Plan:
    nodes = [node("a", 3.0, 700), node("b", 1.0, 500), node("c", 2.0, 400)]
    return plan.solve(chain(10), plan.Cluster.uniform(nodes, 500.0, 0.05), strategy, objective,
                      constraints=NO_HEADROOM)


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_it_imports_no_solver(name):
    parts = ast.walk(ast.parse((FOLDER / name).read_text()))
    found = {part.module for part in parts if isinstance(part, ast.ImportFrom)}
    assert {module for module in found if module.startswith("morpho.plan")
            and not module.startswith("morpho.plan.verify.")} <= DATA_ONLY


@pytest.mark.parametrize("objective", ["throughput", "latency", "balanced"])
@pytest.mark.parametrize("strategy", ["optimal", "proportional", "smallest-set"])
def test_true_plans_pass(objective, strategy):
    report = plan.check(example(objective, strategy).to_json())
    assert report.ok, report.lines
    assert any("memory" in line for line in report.lines) and any("arithmetic" in line for line in report.lines)


LIES = {
    "a layer dropped": lambda data: data["stages"].pop(),
    "a gap": lambda data: data["stages"][1].update(start=data["stages"][1]["start"] + 1),
    "a node twice": lambda data: data["stages"][1].update(
        node=data["stages"][0]["node"], members=data["stages"][0]["members"], replicas=data["stages"][0]["replicas"]),
    "an unknown node": lambda data: data["stages"][0].update(node="z", members=["z"], replicas=[["z"]]),
    "other members": lambda data: data["stages"][0].update(node=data["stages"][1]["node"]),
    "memory understated": lambda data: data["stages"][0].update(memory_needed_bytes=1),
    "a smaller machine": lambda data: [machine.update(memory_bytes=150) for machine in data["cluster"]["nodes"]],
    "a faster stage": lambda data: data["stages"][0].update(compute_s=0.1),
    "a faster link": lambda data: data["stages"][0].update(link_s=0.0),
    "more tokens": lambda data: data["predicted"].update(tokens_per_s=1e9),
    "a shorter latency": lambda data: data["predicted"].update(latency_s=0.1),
    "an earlier first token": lambda data: data["predicted"].update(first_token_s=0.0),
    "a bottleneck that is not there": lambda data: data["predicted"].update(bottleneck=99),
    "more batches in flight": lambda data: data["predicted"].update(in_flight=data["predicted"]["in_flight"] + 1),
    "fewer batches in flight": lambda data: data["predicted"].update(in_flight=1),
    "fewer nodes": lambda data: data["predicted"].update(nodes_used=1),
    "a faster prompt on one stage": lambda data: data["stages"][0].update(prefill_compute_s=0.1),
    "members of another stage": lambda data: data["stages"][0].update(members=data["stages"][1]["members"]),
    "another objective value": lambda data: data.update(objective_value_s=data["objective_value_s"] / 2),
    "a pin ignored": lambda data: data["constraints"].update(pinned={"0": data["stages"][-1]["node"]}),
    "an excluded node": lambda data: data["constraints"].update(excluded=[data["stages"][0]["node"]]),
    "too many stages": lambda data: data["constraints"].update(max_stages=1),
    "a type not allowed": lambda data: data["constraints"].update(activation_dtypes=["f16"]),
    "bound by another thing": lambda data: data["stages"][0].update(binds="measured"),
    "memory that is not tight": lambda data: data["stages"][0].update(
        memory_tight=not data["stages"][0]["memory_tight"]),
    "another model's hash": lambda data: data["inputs"].update(model=data["inputs"]["cluster"]),
    "a layer made lighter": lambda data: data["card"]["layers"][0].update(prefill_bytes=1.0),
    "another objective's witness": lambda data: data["witness"].update(relaxation="latency"),
    "a budget exceeded": lambda data: data["constraints"].update(activation_error_budget=1e-9),
    "a degree not allowed": lambda data: data["stages"][0]["replicas"].append(["zz"]),
}


@pytest.mark.parametrize("lie", LIES)
def test_every_lie_is_found(lie):
    data = json.loads(example().to_json())
    assert len(data["stages"]) > 1
    LIES[lie](data)
    report = plan.check(json.dumps(data))
    assert not report.ok, f"{lie} was not found"


def test_another_bottleneck_is_found():
    data = json.loads(example("throughput", "proportional").to_json())
    others = set(range(len(data["stages"]))) - {data["predicted"]["bottleneck"]}
    for other in others:
        data["predicted"]["bottleneck"] = other
        assert f"stage {other + 1} is stated as the bottleneck" in "".join(plan.check(json.dumps(data)).lines)
    assert others


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_a_plan_wrongly_called_optimal_is_found(objective):
    """A true but poor plan that claims to be the best: only the search can tell."""
    poor = example(objective, "smallest-set")
    data = json.loads(poor.to_json())
    assert not poor.optimal
    data.update(optimal=True, lower_bound_s=data["objective_value_s"])
    report = plan.check(json.dumps(data))
    assert [line for line in report.lines if line.startswith("WRONG")][0].endswith("a better plan exists")
    assert [line for line in plan.check(json.dumps(data), prove=False).open if line.endswith("was not searched")]


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_a_bound_beyond_its_duals_is_found(objective):
    data = json.loads(example(objective, "smallest-set").to_json())
    data["lower_bound_s"] = data["lower_bound_s"] * 1.5
    assert not plan.check(json.dumps(data)).ok
    data = json.loads(example(objective, "smallest-set").to_json())
    data["witness"]["proofs"][0]["prices"] = {name: 1e6 for name in data["witness"]["proofs"][0]["prices"]}
    assert not plan.check(json.dumps(data)).ok


def test_a_score_wrongly_called_best_is_found():
    found = example("balanced")
    data = json.loads(found.to_json())
    data["witness"]["best_latency_s"] *= 1.1
    assert not plan.check(json.dumps(data)).ok


FRONT_LIES = {
    "a better point": lambda front: front[0].update(
        {name: front[0][name] * factor for name, factor in (("latency_s", 1 / 9), ("period_s", 1 / 9),
                                                            ("tokens_per_s", 9))}),
    "more tokens": lambda front: front[0].update(tokens_per_s=1e9),
    "a point twice": lambda front: front.append(front[0]),
    "a field lost": lambda front: front[0].pop("period_s"),
    "a field of words": lambda front: front[0].update(period_s="short"),
}


@pytest.mark.parametrize("lie", FRONT_LIES)
def test_lies_about_the_front_are_found(lie):
    data = json.loads(example("balanced").to_json())
    assert data["front"] and plan.check(json.dumps(data)).ok
    FRONT_LIES[lie](data["front"])
    if lie.startswith("a field"):
        with pytest.raises(MorphoError, match=r"front\[0\]"):
            plan.check(json.dumps(data))
        return
    wrong = [line for line in plan.check(json.dumps(data)).lines if line.startswith("WRONG")]
    assert len(wrong) == 1 and wrong[0].startswith("WRONG  front")


@pytest.mark.parametrize("name", ["best_latency_s", "best_period_s"])
def test_optima_that_a_balanced_score_rests_on_are_proven(name):
    """A plan that is not called optimal states a score against bounds: larger ones would make it look better."""
    data = json.loads(example("balanced", "smallest-set").to_json())
    assert not data["optimal"] and plan.check(json.dumps(data)).ok
    witness, said = data["witness"], data["predicted"]
    witness[name] *= 1.02
    data["objective_value_s"] = max(said["latency_s"] / witness["best_latency_s"],
                                    said["period_s"] / witness["best_period_s"])
    wrong = [line for line in plan.check(json.dumps(data)).lines if line.startswith("WRONG")]
    assert len(wrong) == 1 and wrong[0].endswith("does not follow from the stored duals")


@pytest.mark.parametrize("slow", [1.0, 500.0])
def test_copies_over_worse_lines_are_found(slow):
    """The times of a stage are those of its first copy: the others must have lines as good."""
    nodes = [node(name, 1.0, 2000) for name in "abcd"]
    lines = tuple(tuple(slow if {i, j} == {1, 3} else 500.0 for j in range(4)) for i in range(4))
    cluster = plan.Cluster(tuple(nodes), lines, ((0.0,) * 4,) * 4)
    limits = plan.Constraints(headroom=0.0, data=2)
    stages = [plan.Stage("a", 0, 2, "", ("a",), (("a",), ("b",))),
              plan.Stage("c", 2, 4, "", ("c",), (("c",), ("d",)))]
    copied = solver.complete(chain(4), cluster, registry.Proposal(stages), "mine", constraints=limits)
    wrong = [line for line in plan.check(copied).lines if line.startswith("WRONG")]
    if slow == 500.0:
        assert not wrong
    else:
        assert len(wrong) == 1 and "are not interchangeable" in wrong[0]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 1}', '{"format": 2, "stages": []}'])
def test_what_is_no_plan_is_an_error(text):
    with pytest.raises(MorphoError, match=r"\[plan\]"):
        plan.check(text)


def test_its_own_search_agrees_with_brute_force(rng):
    """Just below the best there is nothing, just above there is something."""
    looked = 0
    for _ in range(40):
        card, cluster, limits = brute_force.random_instance(rng, most_nodes=4, most_layers=7)
        truth = brute_force.best(card, cluster, limits)
        request = Request(card, cluster, limits, 1)
        if truth is None:
            assert not plan_within(Scaled(request, Fraction(10**9)), {})
            assert not plan_below(Scaled(request, Fraction(10**9)), {})
            continue
        looked += 1
        prices = {name.name: float(rng.uniform(0, 1)) for name in cluster.nodes}
        for proof in ({}, {"prices": prices, "stage_price": float(rng.uniform(0, 1))}):
            for factor in (1 + 1e-9, 1 - 1e-9):
                period, latency = (Scaled(request, Fraction(value * factor)) for value in truth)
                assert plan_within(period, proof) == plan_below(latency, proof) == (factor > 1)
    assert looked > 10


def test_random_plans_of_all_strategies_pass(rng):
    for _ in range(12):
        card, cluster, limits = brute_force.random_instance(rng)
        for strategy in ("optimal", "proportional", "greedy", "smallest-set"):
            for objective in ("throughput", "latency", "balanced"):
                try:
                    found = plan.solve(card, cluster, strategy, objective, constraints=limits)
                except MemoryLimit:
                    continue
                except MorphoError as error:
                    assert strategy != "optimal", error
                    assert any(word in str(error) for word in ("pin", "no line", "breaks a constraint")), error
                    continue
                report = plan.check(found)
                assert report.ok, report.lines
