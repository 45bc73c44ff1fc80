"""1F1B: the schedule, and that training in stages is training in one."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import cluster
from morpho import plan as planning
from morpho.base.errors import ArgumentError
from morpho.cluster.groups.one import OneGroup
from morpho.cluster.groups.threads import run_threads
from morpho.cluster.training.schedule import most_kept, one_forward_one_backward
from morpho.runtime.groups.group import Group

_one_at_a_time = threading.Lock()


@pytest.mark.parametrize(("stages", "batches"), [(1, 1), (2, 5), (4, 3), (4, 9)])
def test_every_turn_comes_when_it_can(stages: int, batches: int) -> None:
    """Stages that run their turns in order, each when what it needs has come, all come to their end."""
    left = [one_forward_one_backward(stage, stages, batches) for stage in range(stages)]
    for turns in left:
        assert sorted(turns) == sorted((forward, batch) for forward in (True, False) for batch in range(batches))
        assert most_kept(turns) <= stages
    done: set[tuple[int, bool, int]] = set()
    while any(left):
        before = len(done)
        for stage, turns in enumerate(left):
            if turns:
                forward, batch = turns[0]
                needs = (stage - 1, True, batch) if forward else (stage + 1, False, batch)
                if needs in done or not 0 <= needs[0] < stages:
                    done.add((stage, *turns.pop(0)))
        assert len(done) > before, "the stages wait for each other"


def train(group: Group, starts: Any = None) -> tuple[list[float], dict[str, Any]]:
    with _one_at_a_time:
        mo.nn.seed(0)
        layers = [mo.nn.Embedding(7, 6), mo.nn.Linear(6, 8), mo.nn.GELU(), mo.nn.Linear(8, 8), mo.nn.Linear(8, 3)]
    trainer = cluster.PipelineTrainer(layers, lambda p: mo.optim.AdamW(p, lr=0.05), mo.nn.cross_entropy, batches=4,
                                      starts=starts, group=group)
    losses = []
    for step in range(3):
        rng = np.random.default_rng(step)
        losses.append(trainer.step(rng.integers(0, 7, 16), rng.integers(0, 3, 16)))
    first = [*range(len(layers))] if group.size == 1 else None
    return losses, {"values": [p.numpy() for p in trainer.layers.parameters()], "first": first}


@pytest.mark.parametrize(("size", "starts"), [(2, None), (3, (0, 1, 4)), (4, None)])
def test_stages_train_as_one(size: int, starts: Any) -> None:
    losses, whole = train(OneGroup())
    found = run_threads(size, lambda group: train(group, starts))
    assert all(got == losses for got, _ in found)
    values = [value for _, part in found for value in part["values"]]
    assert all(np.array_equal(a, b) for a, b in zip(values, whole["values"], strict=True))


def test_stages_of_a_plan() -> None:
    """The slow node gets one layer; a plan for other layers is an error."""
    card = planning.ModelCard("five", tuple(planning.Layer(f"layer {n}", "block", 1e6, 1e6, 1e6, 1e6, 100)
                                            for n in range(5)))
    nodes = [planning.Node(name, 1 << 20, pace, {"f32": pace}) for name, pace in (("fast", 4e6), ("slow", 1e6))]
    plan = planning.solve(card, planning.Cluster.uniform(nodes, 1e9, 0.0), objective="throughput")
    assert {stage.node: stage.end - stage.start for stage in plan.stages} == {"fast": 4, "slow": 1}
    losses, _ = train(OneGroup())
    found = run_threads(2, lambda group: train(group, plan))
    held = [1, 2, 0, 2, 2]  # parameters of the layers
    assert [(got, len(part["values"])) for got, part in found] == [
        (losses, sum(held[stage.start:stage.end])) for stage in plan.stages]
    with pytest.raises(ArgumentError, match="the plan is for a model of 5 layers, and 2 are given"):
        cluster.PipelineTrainer([mo.nn.Linear(2, 2)] * 2, mo.optim.SGD, mo.nn.mse_loss, starts=plan, group=OneGroup())
    shared = planning.solve(card, planning.Cluster.uniform([nodes[0], replace(nodes[0], name="b")], 1e9, 0.0),
                            constraints=planning.Constraints(data=2))
    with pytest.raises(ArgumentError, match="stages of several nodes"):
        train(OneGroup(), shared)


def test_mistakes() -> None:
    layers = [mo.nn.Linear(2, 2), mo.nn.Linear(2, 2)]
    with pytest.raises(ArgumentError, match="do not cut 2 layers into 1 stages"):
        cluster.PipelineTrainer(layers, mo.optim.SGD, mo.nn.mse_loss, starts=(1,), group=OneGroup())
    trainer = cluster.PipelineTrainer(layers, lambda p: mo.optim.SGD(p, lr=0.1), mo.nn.mse_loss, batches=3)
    with pytest.raises(ArgumentError, match="do not part into 3 micro-batches"):
        trainer.step(np.ones((4, 2)), np.ones((4, 2)))
