"""A liar who knows the truth: plans of small problems, changed in every field or forged as a whole, and the checker.

    python -m benchmarks.plan.adversary --lies 20000 --seed 1

The truth is `brute_force.placements`: every placement there is. A change that leaves all of a plan true is no lie and
is not counted; every other one must be refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.plan.brute_force import placements, random_instance
from morpho.base.errors import MorphoError
from morpho.plan import Plan, Proposal, Stage, check, evaluate, fill, solve
from morpho.plan.predict.content import content_hash
from morpho.plan.solve.solver import complete

OBJECTIVES = ("throughput", "latency", "balanced")
FACTORS = (0.0, 0.5, 0.9, 0.999, 1 - 1e-5, 1 + 1e-5, 1.001, 1.1, 2.0, 1e3, 1e6, 2.0**53, -1.0)
NEAR = 1e-7  # what a plan says is true if it is true to this
SAID_ONLY = ("strategy", "seed", "notes", "name")  # the checker says that it does not verify these
World = list[tuple[float, float, list[tuple[int, int, int, str]]]]


def near(a: float, b: float) -> bool:
    """Whether two figures say the same."""
    return abs(a - b) <= NEAR * max(abs(a), abs(b))


def stages_of(plan: Plan, ranges: list[tuple[int, int, int, str]]) -> list[Stage]:
    """The stages of a placement as brute force has it, where a type is that of the link before."""
    sent = [dtype for *_, dtype in ranges[1:]] + [""]
    return [Stage(plan.cluster.nodes[node].name, start, end, dtype)
            for (node, start, end, _), dtype in zip(ranges, sent)]


def key_of(stages: Any) -> tuple[Any, ...]:
    """Who holds what, and how it is sent."""
    return tuple((stage.node, stage.start, stage.end) for stage in stages), tuple(
        stage.activation_dtype for stage in stages[:-1])


class Truth:
    """Everything there is to know about one small problem."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world: World = list(placements(plan.card, plan.cluster, plan.constraints))
        self.keys = {key_of(stages_of(plan, ranges)) for _, _, ranges in self.world}
        self.period = min((period for period, _, _ in self.world), default=0.0)
        self.latency = min((latency for _, latency, _ in self.world), default=0.0)

    def values(self, plan: Plan) -> tuple[float, float]:
        """Period and latency."""
        predicted = evaluate(plan.card, plan.cluster, plan.stages, plan.objective)
        return predicted.period_s, predicted.latency_s

    def holds(self, plan: Plan) -> bool:
        """Whether all that a plan says is true."""
        single = all(len(stage.replicas) == 1 and stage.replicas[0] == stage.members == (stage.node,)
                     for stage in plan.stages)
        if not single or key_of(plan.stages) not in self.keys or not self._figures(plan):
            return False
        hashes = {"model": content_hash(plan.card), "cluster": content_hash(plan.cluster)}
        if any(plan.inputs.get(what, stated) != stated for what, stated in hashes.items()):
            return False
        if plan.optimal and not near(plan.lower_bound_s, plan.objective_value_s):
            return False
        return (self._score if plan.objective == "balanced" else self._bound)(plan) and self._front(plan)

    def _figures(self, plan: Plan) -> bool:
        """Stored figures are those computed."""
        bare = [Stage(stage.node, stage.start, stage.end, stage.activation_dtype) for stage in plan.stages]
        for said, true in zip(plan.stages, fill(plan.card, plan.cluster, bare, plan.constraints)):
            same = (said.memory_needed_bytes, said.memory_available_bytes, said.memory_tight, said.binds)
            if same != (true.memory_needed_bytes, true.memory_available_bytes, true.memory_tight, true.binds):
                return False
            if not all(near(getattr(said, name), getattr(true, name)) for name in
                       ("compute_s", "link_s", "prefill_compute_s", "prefill_link_s")):
                return False
        true = evaluate(plan.card, plan.cluster, bare, plan.objective)
        return all(near(getattr(plan.predicted, name), getattr(true, name)) for name in
                   ("period_s", "latency_s", "first_token_s", "tokens_per_s", "in_flight", "nodes_used")) and (
            plan.predicted.bottleneck == true.bottleneck)

    def _bound(self, plan: Plan) -> bool:
        which = 1 if plan.objective == "latency" else 0
        best, value = (self.period, self.latency)[which], self.values(plan)[which]
        if plan.witness.get("relaxation", plan.objective) != plan.objective:
            return False
        return (near(value, plan.objective_value_s) and plan.lower_bound_s <= best * (1 + NEAR)
                and (not plan.optimal or near(value, best)))

    def _score(self, plan: Plan) -> bool:
        if plan.witness.get("relaxation", "balanced") != "balanced":
            return False
        period, latency = self.values(plan)
        quick, steady = plan.witness.get("best_latency_s", 0.0), plan.witness.get("best_period_s", 0.0)
        if not quick or not steady:
            return not plan.optimal and plan.lower_bound_s <= 0 and near(plan.objective_value_s, period)
        if quick < 0 or steady < 0 or not near(max(latency / quick, period / steady), plan.objective_value_s):
            return False
        if not plan.optimal:
            return quick <= self.latency * (1 + NEAR) and steady <= self.period * (1 + NEAR) and plan.lower_bound_s <= 1
        least = min(max(b / self.latency, a / self.period) for a, b, _ in self.world)
        return near(quick, self.latency) and near(steady, self.period) and near(plan.objective_value_s, least)

    def _front(self, plan: Plan) -> bool:
        points = []
        for point in plan.front:
            stages = [Stage(copies[0][0], start, end, dtype) for copies, start, end, dtype in point["stages"]]
            if any(len(copies) != 1 or len(copies[0]) != 1 for copies, *_ in point["stages"]) or (
                    key_of(stages) not in self.keys):
                return False
            true = evaluate(plan.card, plan.cluster, stages)
            if not all(near(point[name], getattr(true, name)) for name in
                       ("latency_s", "period_s", "tokens_per_s", "nodes_used")):
                return False
            points.append((true.latency_s, true.period_s, true.nodes_used))
        return not any(a is not b and all(x <= y for x, y in zip(a, b)) for a in points for b in points)


def leaves(data: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of plain data that holds a value or a list."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        if key not in SAID_ONLY:
            yield (*place, key)
            yield from leaves(value, (*place, key))


def changed(value: Any, rng: np.random.Generator, names: list[str]) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        if isinstance(value, int) and rng.random() < 0.5:
            return value + int(rng.choice([-1, 1]))
        return type(value)(value * float(rng.choice(FACTORS))) if value else type(value)(rng.choice([1, -1, 1000]))
    if isinstance(value, str):
        return str(rng.choice([*names, "f16", "f32", "int8", "latency", "throughput", "balanced", "link", "compute"]))
    if isinstance(value, list) and value:
        kept = [item for item in value if rng.random() < 0.7]
        return kept if rng.random() < 0.5 else [value[i] for i in rng.permutation(len(value))]
    if isinstance(value, dict) and value:
        return {key: item for key, item in value.items() if rng.random() < 0.7}
    return value


def small_lie(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """One to three places changed."""
    data = deepcopy(data)
    names = [node["name"] for node in data["cluster"]["nodes"]]
    for _ in range(int(rng.integers(1, 4))):
        found = list(leaves(data))
        *path, last = found[int(rng.integers(len(found)))]
        parent = data
        for key in path:
            parent = parent[key]
        parent[last] = changed(parent[last], rng, names)
    if rng.random() < 0.5:  # a liar who also repairs what is easily seen
        repair(data)
    return data


def repair(data: dict[str, Any]) -> None:
    """Make hashes, score and bound agree with the rest again."""
    try:
        plan = Plan.from_json(json.dumps(data))
        data["inputs"] = {"model": content_hash(plan.card), "cluster": content_hash(plan.cluster)}
        quick, steady = (data["witness"].get(name, 0.0) for name in ("best_latency_s", "best_period_s"))
        if data["objective"] == "balanced" and quick > 0 and steady > 0:
            data["objective_value_s"] = max(plan.predicted.latency_s / quick, plan.predicted.period_s / steady)
        if data["optimal"]:
            data["lower_bound_s"] = data["objective_value_s"]
    except (MorphoError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        pass


def forgery(truth: Truth, data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A true plan that is not the best, with all its figures right, that claims to be the best, or too high a bound."""
    honest = truth.plan
    ranges = truth.world[int(rng.integers(len(truth.world)))][2]
    other = complete(honest.card, honest.cluster, Proposal(stages_of(honest, ranges)), "mine", honest.objective,
                     constraints=honest.constraints, bound=False)
    made = json.loads(other.to_json())
    made["witness"] = forged_witness(deepcopy(data["witness"]), truth, other, rng)
    made["front"] = deepcopy(data["front"]) if rng.random() < 0.5 else []
    made["optimal"] = bool(rng.random() < 0.7)
    made["lower_bound_s"] = made["objective_value_s"] * (1.0 if made["optimal"] else float(rng.uniform(0.5, 1)))
    repair(made)
    if made["objective"] == "balanced" and not made["optimal"]:
        made["lower_bound_s"] = float(rng.choice([1.0, made["objective_value_s"]]))
    return made


def forged_witness(witness: dict[str, Any], truth: Truth, other: Plan, rng: np.random.Generator) -> dict[str, Any]:
    """Prices of any size, and optima that flatter."""
    names = [node.name for node in other.cluster.nodes]
    size = float(rng.choice([0.0, 1e-30, 1e-3, 1.0, 1e3, 2.0**52, 2.0**53, 1e30, 1e59]))
    proofs = witness.get("proofs") or [{"data": 1, "prices": {}}]
    for proof in proofs:
        if rng.random() < 0.7:
            proof["prices"] = {name: float(rng.uniform(0, 1)) * size for name in names}
            proof["stage_price"] = float(rng.choice([0.0, size, 1.0]))
    witness["proofs"] = proofs
    if other.objective == "balanced":
        rows = [[[[stage.node]], stage.start, stage.end, stage.activation_dtype] for stage in other.stages]
        for name, which, said in (("latency_plan", "best_latency_s", other.predicted.latency_s),
                                  ("period_plan", "best_period_s", other.predicted.period_s)):
            true = truth.latency if name == "latency_plan" else truth.period
            witness[which] = float(rng.choice([said, true, true * 0.5, said * 0.9, true * 1.1]))
            if rng.random() < 0.6:
                witness[name] = rows
        witness["relaxation"] = "balanced"
    else:
        witness = {"relaxation": other.objective, "proofs": proofs}
    return witness


def attack(lies: int, seed: int, show: int = 0) -> tuple[int, list[str]]:
    """How many lies were told, and those that were believed."""
    rng, told, believed = np.random.default_rng([seed, 77]), 0, []
    while told < lies:
        card, cluster, limits = random_instance(rng, most_nodes=3, most_layers=5)
        for objective in OBJECTIVES:
            for strategy in ("optimal", "smallest-set"):
                try:
                    plan = solve(card, cluster, strategy, objective, constraints=replace(limits, tensor=1, data=1))
                except MorphoError:
                    continue
                told += _attack(plan, rng, believed, min(60, lies - told))
        if show and told // show != (told - 1) // show:
            print(f"{told} lies, {len(believed)} believed", flush=True)
    return told, believed


def _attack(plan: Plan, rng: np.random.Generator, believed: list[str], lies: int) -> int:
    plan = Plan.from_json(plan.to_json())
    truth, data = Truth(plan), json.loads(plan.to_json())
    assert truth.holds(plan) and check(plan).ok, "an honest plan"
    told = 0
    for _ in range(lies):
        lie = small_lie(data, rng) if rng.random() < 0.5 or not truth.world else forgery(truth, data, rng)
        try:
            report = check(json.dumps(lie))
        except MorphoError:
            told += 1
            continue
        if not report.ok:
            told += 1
            continue
        said = Plan.from_json(json.dumps(lie))
        if said.constraints.tensor > 1 or said.constraints.data > 1:
            continue  # brute force does not know these
        if not Truth(said).holds(said):
            told += 1
            believed.append(json.dumps(lie))
    return told


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lies", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    told, believed = attack(options.lies, options.seed, show=1000)
    for lie in believed[:3]:
        print(lie[:2000])
    print(f"{told} lies, seed {options.seed}: {len(believed)} believed")
    return 1 if believed else 0


if __name__ == "__main__":
    sys.exit(main())
