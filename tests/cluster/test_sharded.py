"""State in parts: ZeRO-1 optimisers, whole checkpoints for any number of ranks, a part that survives its rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_training import model_of_a_thread, parameters
from training_ranks import batch, train

import morpho as mo
from morpho import cluster
from morpho.base.errors import ArgumentError, GroupError
from morpho.cluster.groups.one import OneGroup
from morpho.cluster.groups.threads import run_threads
from morpho.runtime.groups.group import Group


def steps(group: Group, sharded: bool, compiled: bool = True, count: int = 3, saved: Any = None) -> tuple[Any, ...]:
    """Parameters, the optimiser's saved state, and bytes of state on this rank."""
    model = model_of_a_thread()
    replica = cluster.DistributedDataParallel(model, group=group)
    rule: Any = mo.optim.AdamW(model.parameters(), lr=0.05)
    if sharded:
        rule = cluster.shard_optimizer(rule, group)
    if saved is not None:
        model.load_state_dict(saved[0])
        rule.load_state_dict(saved[1])

    def step(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
        loss = mo.mean(mo.square(replica(x) - y))
        loss.backward()
        rule.step()
        rule.zero_grad()
        return loss

    run = mo.compile(step) if compiled else step
    for number in range(count):
        run(*[mo.asarray(np.split(part, group.size)[group.rank]) for part in batch(number)]).item()
    inner = rule.inner if sharded else rule
    kept = sum(state.value.size for slots in inner._slots.values() for state in slots.values())
    return parameters(model), (model.state_dict(), rule.state_dict()), kept


@pytest.mark.parametrize("compiled", [True, False])
def test_sharded_steps_are_those_of_the_whole(compiled: bool) -> None:
    whole = run_threads(2, lambda group: steps(group, False, compiled))
    parts = run_threads(2, lambda group: steps(group, True, compiled))
    for found in parts:
        assert np.array_equal(found[0], whole[0][0])
        for name, slot in found[1][1]["slots"].items():
            assert np.array_equal(slot.numpy(), whole[0][1][1]["slots"][name].numpy()), name
    assert sum(found[2] for found in parts) == whole[0][2]


def test_a_checkpoint_is_read_by_another_number_of_ranks() -> None:
    saved = run_threads(2, lambda group: steps(group, True, count=2))[0][1]
    alone = steps(OneGroup(), False, saved=saved)[0]
    for size, sharded in ((4, True), (2, False)):
        for found in run_threads(size, lambda group, sharded=sharded: steps(group, sharded, saved=saved)):
            np.testing.assert_allclose(found[0], alone, atol=1e-6)


@pytest.mark.parametrize("copies", [0, 1])
def test_a_part_survives_its_rank(copies: int) -> None:
    losses, _, _ = train(OneGroup())

    def ranks(group: Any) -> Any:
        def before(step: int) -> None:
            if (group.rank, step) == (1, 2):
                group.die()
                raise SystemExit

        model = model_of_a_thread()
        original = mo.optim.AdamW

        def sharded(*arguments: Any, **options: Any) -> Any:
            return cluster.shard_optimizer(original(*arguments, **options), group, copies)

        try:
            return train(group, before=before, model=model, rule=sharded)
        except SystemExit:
            return None

    if not copies:
        with pytest.raises(GroupError, match="gone with it"):
            run_threads(3, ranks)
        return
    found = run_threads(3, ranks)
    assert found[1] is None and found[0][0] == found[2][0] == losses


def test_survivors_go_on_from_the_last_checkpoint() -> None:
    """Where a part of the state is gone with its rank: losses are those of one rank, in which nobody died."""
    losses, state, _ = train(OneGroup())
    saved: dict[int, Any] = {}

    def ranks(group: Any) -> Any:
        def made(group: Group) -> tuple[Any, Any, Any]:
            model = model_of_a_thread()
            rule = cluster.shard_optimizer(mo.optim.AdamW(model.parameters(), lr=0.1), group)
            trainer = cluster.Trainer(model, rule, lambda x, y: mo.mean(mo.square(model(x) - y)), group, clip=1.0)
            return model, rule, trainer

        found: dict[int, float] = {}
        model, rule, trainer = made(group)
        while trainer.steps < len(losses):
            step = trainer.steps
            if (group.rank, step) == (1, 3):
                group.die()
                return None
            try:
                found[step] = trainer.step(*batch(step))
                if trainer.steps == 2:
                    whole = model.state_dict(), rule.state_dict()
                    saved.setdefault(2, whole)
            except GroupError as error:
                assert "gone with it" in str(error)
                model, rule, trainer = made(trainer.group)
                model.load_state_dict(saved[2][0])
                rule.load_state_dict(saved[2][1])
                trainer.steps = 2
        trainer.finish()
        return [found[step] for step in sorted(found)], trainer.group.size

    assert run_threads(3, ranks) == [(losses, 2), None, (losses, 2)]


def test_refusals() -> None:
    rule = mo.optim.SGD(model_of_a_thread().parameters(), lr=0.1)
    with pytest.raises(ArgumentError, match="copies=1 is not possible on 1 ranks"):
        cluster.shard_optimizer(rule, OneGroup(), copies=1)
    with pytest.raises(ArgumentError, match="not an optimiser"):
        cluster.shard_optimizer(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no parameter has a gradient"):
        cluster.shard_optimizer(rule).step()


@pytest.mark.parametrize("reshard", [True, False])
def test_a_rank_may_read_what_others_do_not(reshard: bool) -> None:
    """Outside of compiled functions collectives run where they are written: rank 0 alone reads losses, gradients."""
    def run(group: Group, reads: bool) -> np.ndarray:
        model = cluster.shard(model_of_a_thread(), group, reshard)
        rule = mo.optim.SGD(model.parameters(), lr=0.05)
        for number in range(2):
            x, y = (mo.asarray(np.split(part, group.size)[group.rank]) for part in batch(number))
            loss = mo.mean(mo.square(model(x) - y))
            reads and loss.item()
            loss.backward()
            reads and loss.item() and model.parts[0].grad.numpy()
            mo.mean(mo.square(model(x))).backward()  # gradients add up
            mo.optim.clip_grad_norm(model.parameters(), 0.5)
            rule.step()
            rule.zero_grad()
        return np.concatenate([each.numpy() for _, each in sorted(model.state_dict().items())], axis=None)

    quiet = run_threads(2, lambda group: run(group, False))
    for found in run_threads(2, lambda group: run(group, group.rank == 0)):
        assert np.array_equal(found, quiet[0])
