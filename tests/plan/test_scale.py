"""Many nodes, deep models, hostile files, time limits: always an answer, and at once where there is none."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from plan_cases import NO_HEADROOM, chain, node

from benchmarks.plan import brute_force
from benchmarks.plan.instances import instance
from morpho import plan
from morpho.base.errors import MorphoError
from morpho.plan.solve.anytime import anytime_latency, anytime_period, cover, coverage_bound
from morpho.plan.solve.deadline import Deadline
from morpho.plan.solve.exact.branch_and_bound import best_latency, best_period
from morpho.plan.solve.problem import build


@pytest.mark.parametrize("objective", ["throughput", "latency"])
@pytest.mark.parametrize("count", [127, 128, 200])
def test_many_equal_nodes_and_a_deep_model(objective, count):
    """Counters of 8 bits once overflowed."""
    cluster = plan.Cluster.uniform([node(f"n{i}", 1.0, 300) for i in range(count)], 1e6, 0.0)
    found = plan.solve(chain(300), cluster, objective=objective, constraints=NO_HEADROOM)
    assert found.optimal and plan.check(found, prove=False).ok
    stages = -(-300 // 3)
    assert len(found.stages) >= stages and found.predicted.period_s >= 300 / count


@pytest.mark.parametrize("objective", ["throughput", "latency", "balanced"])
def test_a_time_limit_gives_a_plan_with_a_bound(objective):
    card, cluster = instance(3, 40, [1] * 24, varied=True)
    found = plan.solve(card, cluster, objective=objective, constraints=NO_HEADROOM, seconds=1.0)
    report = plan.check(found, prove=False)
    assert 0 < found.lower_bound <= found.objective_value_s and report.ok, report.lines
    none = plan.solve(card, cluster, objective=objective, constraints=NO_HEADROOM, seconds=0.0)
    assert plan.check(none, prove=False).ok


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), "1", True])
def test_a_time_limit_that_is_none(seconds):
    with pytest.raises(MorphoError, match="seconds is"):
        plan.solve(chain(3), plan.Cluster.uniform([node("a")], 1.0, 0.0), seconds=seconds)


def test_the_anytime_search_is_never_better_than_the_truth(rng):
    """Its bound is below the optimum, its plan is not better, and what it calls optimal is."""
    for _ in range(15):
        card, cluster, limits = brute_force.random_instance(rng)
        problem = build(card, cluster.without(limits.excluded), limits)
        for exact, anytime in ((best_period, anytime_period), (best_latency, anytime_latency)):
            truth = exact(problem)
            if truth is None:
                continue
            start = brute_start(problem, card, cluster, limits)
            found = anytime(problem, start, Deadline())
            assert found.bound_s <= truth.value_s * (1 + 1e-9) <= found.value_s * (1 + 2e-9)
            assert not found.optimal or found.value_s <= truth.value_s * (1 + 1e-9)


def brute_start(problem, card, cluster, limits):
    """The worst placement there is."""
    *_, ranges = max(brute_force.placements(card, cluster, limits), key=lambda row: row[1])
    sent = [dtype for *_, dtype in ranges[1:]] + [problem.dtypes[0]]
    if not {*sent} <= {*problem.dtypes}:  # without a budget only the quickest type is looked at
        sent = [problem.dtypes[0]] * len(sent)
    return problem.placement_of([plan.Stage(cluster.nodes[node].name, start, end, dtype)
                                 for (node, start, end, _), dtype in zip(ranges, sent)])


@pytest.mark.parametrize("strategy", ["optimal", "annealing"])
def test_a_tight_budget_of_one_type(strategy):
    """Every strategy that searches keeps it, and finds what is there (a budget of one type was once not looked at)."""
    solved, options = 0, {"moves": 200} if strategy == "annealing" else {}
    for number in range(40):
        rng = np.random.default_rng([7, number])
        card, cluster, limits = brute_force.random_instance(rng, 4, 6)
        dtype = str(rng.choice(["f32", "f16", "int8"]))
        budget = plan.ACTIVATION_ERROR[dtype] * float(rng.choice([0, 0.5, 1, 1.5, 2]))
        limits = plan.Constraints(limits.headroom, activation_dtypes=(dtype,), activation_error_budget=budget)
        truth = brute_force.best(card, cluster, limits)
        for position, objective in enumerate(("throughput", "latency")):
            try:
                found = plan.solve(card, cluster, strategy, objective, constraints=limits, **options)
            except MorphoError:
                assert truth is None
                continue
            assert truth is not None and plan.check(found).ok
            solved += 1
            if strategy == "optimal":
                assert found.optimal and found.objective_value_s == pytest.approx(truth[position], rel=1e-9)
    assert solved > 20


def hostile() -> dict[str, str]:
    data = json.loads(plan.solve(chain(4), plan.Cluster.uniform([node("a"), node("b")], 1e3, 0.0)).to_json())

    def with_(place: str, value: str) -> str:
        changed = json.loads(json.dumps(data))
        *path, last = place.split(".")
        parent = changed
        for key in path:
            parent = parent[int(key)] if key.isdigit() else parent[key]
        parent[last] = "@"
        return json.dumps(changed).replace('"@"', value)

    deep = "[" * 200_000
    return {
        "a huge whole number": with_("card.layers.0.weight_bytes", "1" + "0" * 400),
        "a huge float": with_("card.layers.0.decode_flops", "1e400"),
        "a large float": with_("card.layers.0.decode_flops", "1e300"),
        "5,000 digits": with_("stages.0.start", "7" * 5000),
        "a degree as a float": with_("constraints.tensor", "1e9"),
        "a degree of a billion": with_("constraints.tensor", "1000000000"),
        "copies of a billion": with_("constraints.data", "1000000000"),
        "deep": deep, "deep inside": with_("witness", deep + "]" * 200_000),
        "deep objects": '{"a":' * 200_000,
        "price of infinity": with_("witness.proofs.0.stage_price", "Infinity"),
        "many layers": with_("card.layers", "[" + ",".join(["{}"] * 20_000) + "]"),
        "an unknown field of the witness": with_("witness.more", "1"),
    }


@pytest.mark.parametrize("name", hostile())
def test_hostile_plans_are_one_sentence(name):
    with pytest.raises(MorphoError) as caught:
        plan.check(hostile()[name])
    assert str(caught.value).startswith("[plan] ") and len(str(caught.value)) < 400


FAMILIES = [
    ("gpt2", {"vocab_size": 100, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16, "n_inner": 20}),
    ("bert-base", {"vocab_size": 100, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
                   "intermediate_size": 16, "max_position_embeddings": 16}),
    ("t5-small", {"vocab_size": 100, "d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}),
    ("llama", {"vocab_size": 100, "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 2,
               "num_attention_heads": 3, "num_key_value_heads": 1}),
    ("prenorm-base", {"vocab_size": 100, "width": 8, "layers": 2, "heads": 2, "hidden": 16, "max_seq_len": 32}),
]
VARIANTS = {
    "gpt2": [{}], "bert-base": [{}, {"pooler": False}, {"masked_lm": False}, {"pooler": False, "masked_lm": False}],
    "t5-small": [{}, {"num_layers": 1}, {"num_decoder_layers": 3, "feed_forward_proj": "gated-gelu",
                                         "tie_word_embeddings": False}],
    "llama": [{}, {"attention_bias": True}, {"mlp_bias": True}, {"attention_bias": True, "mlp_bias": True,
                                                                  "tie_word_embeddings": True}],
    "prenorm-base": [{}, {"attention_bias": False}, {"activation": "gelu"}, {"activation": "gelu", "use_rope": False,
                                                                              "normalization": "layernorm",
                                                                              "tie_embeddings": False}],
}


@pytest.mark.parametrize(("name", "sizes", "more"), [(name, sizes, more) for name, sizes in FAMILIES
                                                     for more in VARIANTS[name]])
def test_parameters_are_those_of_the_model(name, sizes, more):
    import morpho as mo

    model = mo.models.create(name, **{**sizes, **more})
    card = plan.ModelCard.from_config(model.config, context=8, dtype="f32")
    assert card.weight_bytes == 4 * model.parameter_count()


@pytest.mark.parametrize("model", ["llama-70b", "llama-405b"])
def test_three_hundred_unlike_nodes(model):
    """A sum of what nodes can cover bounds the period, and a greedy cover attains it: before, the plan was half as fast
    as the bound. A head that many nodes hold, and an embedding that all do, are no layers in that sum."""
    rng = np.random.default_rng(2)
    count = 300
    nodes = [plan.Node(f"n{i}", int(rng.uniform(8e9, 64e9)), float(np.exp(rng.uniform(np.log(2e10), np.log(1e12)))),
                       {"f32": float(np.exp(rng.uniform(np.log(5e11), np.log(5e13))))}) for i in range(count)]
    wide = np.triu(np.exp(rng.uniform(np.log(1.25e7), np.log(1.25e9), (count, count))), 1)
    late = np.triu(np.exp(rng.uniform(np.log(2e-5), np.log(5e-3), (count, count))), 1)
    rows = [tuple(map(tuple, (each + each.T).tolist())) for each in (wide, late)]
    card = plan.ModelCard.from_config(model, dtype="q4", batch=4)
    found = plan.solve(card, plan.Cluster(tuple(nodes), *rows), seconds=8.0)  # under load most of it is others'
    assert found.gap <= 0.02 and plan.check(found).ok


def test_a_cover_keeps_every_rule(rng):
    """On random problems: it places every layer once, within the period, memory, pins and the number of stages."""
    covered = 0
    for _ in range(60):
        card, cluster, limits = brute_force.random_instance(rng)
        problem = build(card, cluster.without(limits.excluded), limits)
        truth = best_period(problem)
        if truth is None:
            continue
        limited = problem.within(truth.value_s * 1.3)
        for last in (None, *range(problem.kinds)):
            path = cover(limited, last) if last is None or problem.usable[last] else None
            if path is not None and problem.allows(path):
                covered += 1
                assert path[0][1] == 0 and path[-1][2] == problem.depth
                assert all(before[2] == after[1] for before, after in pairwise(path))
                assert truth.value_s * (1 - 1e-9) <= problem.values(path)[0] <= truth.value_s * 1.3 * (1 + 1e-9)
                assert all(sum(problem.use[kind] for kind, *_ in path if problem.pool[kind] == pool) <= cap
                           for pool, cap in enumerate(problem.caps))
        low, prices = coverage_bound(problem, 0.0, truth.value_s * 2, Deadline())
        assert low <= truth.value_s * (1 + 1e-9)
    assert covered > 20
