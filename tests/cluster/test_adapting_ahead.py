"""Cuts that move ahead of a load that grows: a simulated pipeline, its clock and its loads."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from morpho import plan as planning
from morpho.base.errors import ArgumentError
from morpho.cluster.frontend.adapting import Adapting
from morpho.cluster.frontend.times import LEAST_TOKENS, StageTimes

Load = Callable[[str, float], float]


class Simulated:
    """A pipeline of two nodes whose stages take their share of the work, times a load that changes with time."""

    def __init__(self, load: Load, noise: float = 0.0, seed: int = 0) -> None:
        card = planning.ModelCard.from_config("gpt2", dtype="f32")
        nodes = [planning.Node(name, 8 << 30, 1e10, {"f32": 2e11}) for name in ("a", "b")]
        self.plan = planning.solve(card, planning.Cluster.uniform(nodes, 1e9, 1e-4), objective="throughput")
        self.load, self.noise, self.random = load, noise, random.Random(seed)
        self.now_s, self.cuts = 0.0, []
        self.unit = {stage.node: stage.compute_s / self.work(stage) for stage in self.plan.stages}

    def work(self, stage: planning.Stage) -> float:
        layers = self.plan.card.layers[stage.start:stage.end]
        return sum(layer.decode_bytes + layer.decode_flops for layer in layers)

    def true_times(self) -> dict[str, float]:
        return {stage.node: self.unit[stage.node] * self.work(stage) * self.load(stage.node, self.now_s)
                for stage in self.plan.stages}

    def recent_stage_times(self) -> dict[str, float]:
        return {name: seconds * math.exp(self.random.gauss(0.0, self.noise))
                for name, seconds in self.true_times().items()}

    def recut(self, plan: planning.Plan) -> None:
        self.plan = plan
        self.cuts.append(self.now_s)


def run(pipeline: Simulated, until_s: float = 120.0, **options: float) -> tuple[Adapting, float]:
    """Look every two seconds; the tokens that were made meanwhile."""
    adapting = Adapting(pipeline, **options)
    tokens = 0.0
    while pipeline.now_s < until_s:
        tokens += 2.0 / max(pipeline.true_times().values())
        pipeline.now_s += 2.0
        adapting.look(pipeline.now_s)
    return adapting, tokens


def growing(name: str, now_s: float) -> float:
    return 1.0 + (now_s / 60.0 if name == "b" else 0.0)


def test_a_growing_load_is_met_before_it_is_there() -> None:
    early, more = run(Simulated(growing))
    late, fewer = run(Simulated(growing), ahead_s=0.0)
    assert early.moves and any(move["reason"].startswith("ahead of the load") for move in early.moves)
    assert not any(move["reason"].startswith("ahead") for move in late.moves)
    assert early.pipeline.cuts[0] < late.pipeline.cuts[0]
    assert more > fewer


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(8))
def test_noise_alone_moves_nothing_ahead(seed: int) -> None:
    adapting, _ = run(Simulated(lambda name, now_s: 1.0, noise=0.04, seed=seed))
    assert not any(move["reason"].startswith("ahead") for move in adapting.moves)


@pytest.mark.parametrize("seed", range(4))
def test_a_growing_load_is_met_through_noise_too(seed: int) -> None:
    _, more = run(Simulated(growing, noise=0.02, seed=seed))
    _, fewer = run(Simulated(growing, noise=0.02, seed=seed), ahead_s=0.0)
    assert more > 0.97 * fewer


def test_a_load_that_stops_growing_costs_little() -> None:
    """It grows until a move ahead of it, and is gone then: the cut comes back."""
    def load(name: str, now_s: float) -> float:
        return growing(name, now_s) if now_s < 20.0 else 1.0

    adapting, tokens = run(Simulated(load))
    _, fewer = run(Simulated(load), ahead_s=0.0)
    assert len(adapting.moves) <= 4 and tokens > 0.95 * fewer


def test_moves_keep_their_distance() -> None:
    adapting, _ = run(Simulated(growing))
    cuts = adapting.pipeline.cuts
    assert all(after - before >= 10.0 for before, after in pairwise(cuts))


def test_recent_times_are_those_since_the_last_question() -> None:
    times = StageTimes()
    times.add("a", {"tokens": LEAST_TOKENS, "compute_s": 8.0})
    times.add("b", {"tokens": LEAST_TOKENS - 1, "compute_s": 1.0})
    assert times.recent() == {"a": 8.0 / LEAST_TOKENS}
    times.add("a", {"tokens": LEAST_TOKENS, "compute_s": 16.0})
    assert times.recent() == {"a": 16.0 / LEAST_TOKENS}
    assert times.recent() == {}
    times.begin()  # a new epoch
    times.add("a", {"tokens": LEAST_TOKENS, "compute_s": 4.0})
    assert times.recent() == {"a": 4.0 / LEAST_TOKENS} == times.all()


def test_trend_needs_a_history() -> None:
    assert planning.trend([(0.0, {"a": 1.0}), (1.0, {"a": 1.0})], 5.0) == {}
    assert planning.trend([(float(t), {"a": 1.0 + t}) for t in range(4)], 1.0)["a"].value == pytest.approx(5.0)
    with pytest.raises(ArgumentError, match="ahead_s"):
        planning.trend([], -1.0)
