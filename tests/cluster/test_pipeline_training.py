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


# -- draws, running statistics, norms ----------------------------------------------------------------------------------
def drawing_layers() -> list[mo.nn.Module]:
    mo.nn.seed(0)
    return [mo.nn.Linear(4, 8), mo.nn.Dropout(0.5), mo.nn.BatchNorm1d(8), mo.nn.Linear(8, 6), mo.nn.Dropout(0.3),
            mo.nn.BatchNorm1d(6, momentum=None), mo.nn.Linear(6, 2)]


def train_drawing(group: Group, starts: Any = None, rows: int = 14,
                  **options: Any) -> tuple[list[float], list[np.ndarray]]:
    """Losses, then the parameters and buffers of this rank's layers."""
    with _one_at_a_time:
        layers = drawing_layers()
    trainer = cluster.PipelineTrainer(layers, lambda p: mo.optim.AdamW(p, lr=0.05), mo.nn.mse_loss, batches=4,
                                      starts=starts, group=group, **options)
    rng = np.random.default_rng(0)
    losses = [trainer.step(rng.normal(size=(rows, 4)).astype(np.float32), rng.normal(size=(rows, 2)).astype(np.float32))
              for _ in range(2)]
    return losses, [tensor.numpy() for tensor in trainer.layers.state_dict().values()]


def by_hand(clip: float, rows: int) -> tuple[list[float], list[np.ndarray]]:
    """The same steps without a trainer: each layer runs once for a micro-batch."""
    layers = mo.nn.Sequential(*drawing_layers())
    rule = mo.optim.AdamW(layers.parameters(), lr=0.05)
    rng, key, losses = np.random.default_rng(0), mo.random.key(0), []
    for step in range(2):
        x, y = rng.normal(size=(rows, 4)).astype(np.float32), rng.normal(size=(rows, 2)).astype(np.float32)
        total = 0.0
        ends = [rows * (batch + 1) // 4 for batch in range(4)]
        for batch, (part, target) in enumerate(zip(np.split(x, ends[:-1]), np.split(y, ends[:-1]), strict=True)):
            part_key, now = mo.random.fold_in(key, 4 * step + batch), mo.asarray(part)
            for number, layer in enumerate(layers):
                mo.nn.random.set_state(mo.random.fold_in(part_key, number))
                now = layer(now)
            loss = mo.nn.mse_loss(now, mo.asarray(target)) * (len(part) / rows)
            loss.backward()
            total += loss.item()
        if clip:
            mo.optim.clip_grad_norm(layers.parameters(), clip)
        rule.step()
        rule.zero_grad()
        losses.append(total)
    return losses, [tensor.numpy() for tensor in layers.state_dict().values()]


@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_the_second_pass_repeats_the_first(clip: float) -> None:
    """Dropout, running statistics, a norm over all stages and micro-batches of unequal sizes: what stages do is what
    one process does."""
    losses, values = by_hand(clip, 14)
    alone = train_drawing(OneGroup(), clip=clip)
    np.testing.assert_allclose(alone[0], losses, rtol=1e-6)
    for got, expected in zip(alone[1], values, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    ranks = run_threads(3, lambda group: train_drawing(group, (0, 2, 5), clip=clip))
    assert all(got == alone[0] for got, _ in ranks)
    assert all(np.array_equal(a, b) for a, b in zip([v for _, part in ranks for v in part], alone[1], strict=True))


def test_the_mask_of_the_gradient_is_that_of_the_loss() -> None:
    def ranks(group: Group) -> np.ndarray:
        layers = [mo.nn.Linear(16, 16, bias=False), mo.nn.Dropout(0.5), mo.nn.Identity(),
                  mo.nn.Linear(16, 16, bias=False)]
        for layer in (layers[0], layers[3]):
            layer.weight.assign(mo.eye(16))
        trainer = cluster.PipelineTrainer(layers, lambda p: mo.optim.SGD(p, lr=1.0), lambda y, z: mo.sum(y), batches=1,
                                          starts=(0, 2), group=group)
        trainer.step(np.ones((1, 16), np.float32), np.zeros((1, 16), np.float32))
        change = np.eye(16) - trainer.layers[0 if group.rank == 0 else 1].weight.numpy()
        return (change[:, 0] if group.rank == 0 else change[0]) != 0

    gradient, forward = run_threads(2, ranks)
    assert np.array_equal(gradient, forward) and 0 < forward.sum() < 16


def test_checkpoints_repeat_draws_and_count_once() -> None:
    """`checkpoint`, alone, over segments and over layers in parts, against the same without it."""
    def gradients(run: Any, group: Group | None = None) -> list[np.ndarray]:
        with _one_at_a_time:
            layers = mo.nn.Sequential(*drawing_layers())
            trained = cluster.shard(layers, group) if group else layers
            mo.nn.seed(3)

            @mo.compile
            def step(x: mo.Tensor) -> list[mo.Tensor]:
                mo.sum(mo.square(run(trained, layers, x))).backward()
                computed = [p.grad for p in trained.parameters()]
                trained.zero_grad()
                return computed

            computed = step(mo.asarray(np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)))
            flat = np.concatenate([gradient.numpy().ravel() for gradient in computed])
            return [flat, *[tensor.numpy() for name, tensor in layers.state_dict().items() if "running" in name or
                            "tracked" in name]]

    plain = gradients(lambda trained, layers, x: layers(x))
    for run in (lambda trained, layers, x: mo.checkpoint(layers, x),
                lambda trained, layers, x: mo.checkpoint_sequential([*layers], 3, x)):
        assert all(np.array_equal(a, b) for a, b in zip(gradients(run), plain, strict=True))
    sharded = gradients(lambda trained, layers, x: trained(x), OneGroup())
    assert all(np.array_equal(a, b) for a, b in zip(sharded, plain, strict=True))


def test_frozen_layers_and_stages_without_parameters() -> None:
    """Frozen weights do not decay, a stage may have no gradients, and a rule that clips by itself sees all stages."""
    def ranks(group: Group, rule: Any = None) -> list[np.ndarray]:
        with _one_at_a_time:
            mo.nn.seed(0)
            layers = [mo.nn.Linear(3, 3).requires_grad_(False), mo.nn.ReLU(), mo.nn.Linear(3, 2)]
        trainer = cluster.PipelineTrainer(layers, rule or (lambda p: mo.optim.AdamW(p, lr=0.1, weight_decay=0.5)),
                                          mo.nn.mse_loss, batches=2, starts=tuple(range(group.size)) if
                                          group.size < 3 else (0, 1, 2), clip=0.01, group=group)
        trainer.step(np.ones((2, 3), np.float32), np.ones((2, 2), np.float32))
        return [p.numpy() for p in trainer.layers.parameters()]

    alone = ranks(OneGroup())
    mo.nn.seed(0)
    assert np.array_equal(alone[0], mo.nn.Linear(3, 3).weight.numpy())
    parts = run_threads(3, ranks)
    assert all(np.array_equal(a, b) for a, b in zip([v for part in parts for v in part], alone, strict=True))

    class Clipping(mo.optim.SGD):
        def step(self, *arguments: Any, **options: Any) -> Any:
            self.norm = mo.optim.clip_grad_norm(self.parameters(), 0.01)
            return super().step(*arguments, **options)

    def clipped(group: Group) -> list[np.ndarray]:
        with _one_at_a_time:
            mo.nn.seed(0)
            layers = [mo.nn.Linear(3, 3), mo.nn.Linear(3, 2)]
        trainer = cluster.PipelineTrainer(layers, lambda p: Clipping(p, lr=1.0), mo.nn.mse_loss, batches=2, group=group)
        trainer.step(np.ones((2, 3), np.float32), np.ones((2, 2), np.float32))
        return [p.numpy() for p in trainer.layers.parameters()]

    whole, stages = clipped(OneGroup()), run_threads(2, clipped)
    for got, expected in zip([v for part in stages for v in part], whole, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-7)
    with pytest.raises(ArgumentError, match="a stage has no gradients"):
        run_threads(2, lambda group: ranks(group, lambda p: Clipping(p, lr=1.0)))


def test_mistakes() -> None:
    layers = [mo.nn.Linear(2, 2), mo.nn.Linear(2, 2)]
    with pytest.raises(ArgumentError, match="do not cut 2 layers into 1 stages"):
        cluster.PipelineTrainer(layers, mo.optim.SGD, mo.nn.mse_loss, starts=(1,), group=OneGroup())
    trainer = cluster.PipelineTrainer(layers, lambda p: mo.optim.SGD(p, lr=0.1), mo.nn.mse_loss, batches=3)
    with pytest.raises(ArgumentError, match="4 rows have 3 targets"):
        trainer.step(np.ones((4, 2)), np.ones((3, 2)))
    with pytest.raises(ArgumentError, match="clip=-1 is not a norm"):
        cluster.PipelineTrainer(layers, mo.optim.SGD, mo.nn.mse_loss, clip=-1, group=OneGroup())
