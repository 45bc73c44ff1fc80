"""Files that were garbled at random lead to an answer or to an error of Morpho's own, never to a trace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planning import card, cluster

from morpho import plan
from morpho.base.errors import MorphoError
from morpho.cli.planning.plan import check
from morpho.plan.model import strict_json
from morpho.plan.predict.shapes import require

VALUES: list[Any] = [None, -1, 0, 1, "x", "", [], {}, float("nan"), float("inf"), 1e308, True, [1], {"a": 1}, -5.5,
                     10**30, "a", "99GB", "1ms"]
NODE = {"name": "a", "memory": "64GB", "memory_bandwidth": "40GB/s", "flops": {"f32": "1TFLOP/s"}, "efficiency": 0.5}
OFFICE = {"name": "office", "network": {"bandwidth": "1Gbit/s", "latency": "0.2ms", "asymmetric": False},
          "node": [NODE, {**NODE, "name": "b", "count": 3, "measured": {"block": ["12ms", "1ms"]}}],
          "link": [{"between": ["a", "b"], "bandwidth": "10Gbit/s", "latency": "50us"}]}
CONFIG = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "head_dim": 16}


def places(data: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*place, key)
        yield from places(value, (*place, key))


def garbled(data: Any, rng: np.random.Generator) -> Any:
    data = deepcopy(data)
    found = list(places(data))
    *path, last = found[int(rng.integers(len(found)))]
    parent = data
    for key in path:
        parent = parent[key]
    choice = rng.random()
    if choice < 0.3 and isinstance(parent, dict):
        del parent[last]
    elif choice < 0.4 and isinstance(parent, dict):
        parent["unheard_of"] = 1
    else:
        parent[last] = VALUES[int(rng.integers(len(VALUES)))]
    return data


def plan_data() -> Any:
    return json.loads(plan.solve(card(6, weight_bytes=100_000_000), cluster(100, 100, 50, memory_mb=600)).to_json())


@pytest.mark.parametrize(("make", "use", "count"), [
    (lambda: OFFICE, plan.Cluster.from_tables, 400), (lambda: CONFIG, plan.ModelCard.from_config, 200),
    (plan_data, lambda data: plan.check(json.dumps(data)), 150),
], ids=["cluster", "config", "plan"])
def test_garbled_files(make: Callable[[], Any], use: Callable[[Any], Any], count: int, rng: np.random.Generator
                       ) -> None:
    data, errors = make(), 0
    use(data)
    for _ in range(count):
        try:
            use(garbled(data, rng))
        except MorphoError:
            errors += 1
    assert errors > count / 3


@pytest.mark.parametrize(("where", "value", "complaint"), [
    (("stages", 0, "start"), "0", "the plan.stages[0].start is '0', not a whole number"),
    (("predicted", "tokens_per_s"), float("nan"), "the plan.predicted.tokens_per_s is nan, not a finite number"),
    (("stages", 1, "colour"), "red", "the plan.stages[1] has the unknown field 'colour'"),
    (("card", "layers", 2, "weight_bytes"), -1, "layer 'layer 2' has weight_bytes = -1"),
    (("constraints", "pinned"), {"99": "a"}, "layer 99 is pinned to a"),
    (("constraints", "pinned"), {"x": "a"}, "a key of the plan.constraints.pinned is 'x'"),
    (("witness", "proofs", 0, "prices"), [1], "witness.proofs[0].prices is [1], not an object"),
    (("stages", 0, "activation_dtype"), "f7", "sends 'f7'"), (("objective",), "beauty", "no objective 'beauty'"),
    (("optimal",), 1, "the plan.optimal is 1, not true or false"),
])
def test_a_garbled_plan_names_the_place(where: tuple[Any, ...], value: Any, complaint: str) -> None:
    data = plan_data()
    place = data
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    with pytest.raises(MorphoError) as caught:
        plan.Plan.from_json(json.dumps(data))
    assert complaint in str(caught.value)


def test_a_missing_field_is_named() -> None:
    data = plan_data()
    del data["predicted"]["latency_s"]
    with pytest.raises(MorphoError, match=r"the plan\.predicted lacks 'latency_s'"):
        plan.Plan.from_json(json.dumps(data))


def test_optional_and_fixed_shapes() -> None:
    require(None, tuple[int, int] | None, "it")
    require([1, 2], tuple[int, int] | None, "it")
    for value in ([1], [1, "2"], 3, {}):
        with pytest.raises(MorphoError, match="it"):
            require(value, tuple[int, int] | None, "it")


def test_files_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device has no size to ask for: as much is read as a plan or cluster may have."""
    monkeypatch.setattr(strict_json, "MOST_CHARACTERS", 10_000)
    for read in (lambda: plan.Cluster.load(Path("/dev/zero")), lambda: check(Path("/dev/zero"))):
        with pytest.raises(MorphoError, match="/dev/zero cannot be read: it has more than 10000 bytes"):
            read()
