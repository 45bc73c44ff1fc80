"""Data parallel training: equal bits on any number of ranks, averaged gradients, and ranks that die."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import training_ranks
from starting import run_ranks
from training_ranks import batch, small_model, train

import morpho as mo
from morpho import cluster
from morpho.base.errors import ArgumentError, GroupError, PeerLost, fail
from morpho.cluster.groups.one import OneGroup
from morpho.cluster.groups.threads import run_threads
from morpho.runtime.groups import registry
from morpho.runtime.groups.group import Group
from morpho.runtime.groups.tree import added, children, covered, held, ordered_sum

_one_at_a_time = threading.Lock()  # models of ranks that are threads begin with the same draws


def model_of_a_thread() -> Any:
    with _one_at_a_time:
        return small_model()


def parameters(model: Any) -> np.ndarray:
    return np.concatenate([parameter.numpy().ravel() for parameter in model.parameters()])


# -- the tree ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 13])
def test_every_rank_s_subtrees_make_the_tree(count: int) -> None:
    def leaves(node: Any) -> list[int]:
        return [node[0]] if node[1] - node[0] == 1 else [n for child in children(node) for n in leaves(child)]

    for size in range(1, count + 1):
        nodes = [node for rank in range(size) for node in covered(held(count, size, rank), (0, count))]
        assert [n for node in nodes for n in leaves(node)] == list(range(count))
        text = added((0, count), lambda node, nodes=nodes: np.array([node], object) if node in nodes else None)
        assert len(text) == 1


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_ordered_sums_have_the_bits_of_one_rank(size: int, seed: int) -> None:
    def shard(number: int) -> np.ndarray:
        return (np.random.default_rng([seed, number]).normal(size=37) * 10.0 ** number).astype(np.float32)

    alone = ordered_sum(OneGroup(), 8, shard)
    plain = sum(shard(number) for number in range(8))
    for found in run_threads(size, lambda group: ordered_sum(group, 8, shard)):
        assert np.array_equal(found, alone)
    assert np.allclose(alone, plain, rtol=1e-5, atol=1e-6 * 10.0 ** 7)  # what cancels is as exact as its largest term
    few = ordered_sum(OneGroup(), 2, shard)
    assert all(np.array_equal(found, few) for found in run_threads(size, lambda group: ordered_sum(group, 2, shard)))


# -- steps -------------------------------------------------------------------------------------------------------------
def test_ordered_training_has_the_bits_of_one_rank() -> None:
    losses, state, _ = train(OneGroup())
    for size in (2, 3, 8):
        for found in run_threads(size, lambda group: train(group, model=model_of_a_thread())):
            assert found == (losses, state, size)


def test_plain_training_agrees() -> None:
    losses, _, _ = train(OneGroup())
    for found in run_threads(2, lambda group: train(group, model=model_of_a_thread(), ordered=False)):
        np.testing.assert_allclose(found[0], losses, rtol=1e-5)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_last_batch_of_fewer_rows_than_ranks(ordered: bool) -> None:
    """Rows weigh as they do on one rank, ranks without any help to stop, and ordered bits stay those of one rank."""
    def ranks(group: Group) -> Any:
        model = model_of_a_thread()
        rule = mo.optim.AdamW(model.parameters(), lr=0.1)
        trainer = cluster.Trainer(model, rule, lambda x, y: mo.mean(mo.square(model(x) - y)), group, ordered=ordered)
        x, y = batch(0)
        losses = [trainer.step(x[:rows], y[:rows]) for rows in (1, 4, 2)]
        if group.rank == group.size - 1:
            trainer.ask_to_stop()
        losses.append(trainer.step(x[:1], y[:1]))
        assert trainer.stopping
        return losses, parameters(model)

    losses, values = ranks(OneGroup())
    for got, got_values in run_threads(3, ranks):
        if ordered:
            assert got == losses and np.array_equal(got_values, values)
        np.testing.assert_allclose(got, losses, rtol=1e-5)
        np.testing.assert_allclose(got_values, values, atol=1e-5)


def test_running_statistics_are_those_of_one_rank() -> None:
    """They move once a step, on any number of ranks, also where a step is made again after a death."""
    def ranks(group: Any) -> Any:
        with _one_at_a_time:
            mo.nn.seed(0)
            model = mo.nn.Sequential(mo.nn.Linear(5, 4), mo.nn.BatchNorm1d(4), mo.nn.Linear(4, 3))
        rule = mo.optim.SGD(model.parameters(), lr=0.1)
        trainer = cluster.Trainer(model, rule, lambda x, y: mo.mean(mo.square(model(x) - y)), group)
        for step in range(3):
            if group.size == 3 and (group.rank, step) == (1, 1):
                group.die()
                return None
            trainer.step(*batch(step))
        return [tensor.numpy() for tensor in model.state_dict().values()]

    alone = ranks(OneGroup())
    assert alone[-1 - len(list(mo.nn.Linear(4, 3).parameters()))] == 3  # batches that were counted
    for found in (*run_threads(2, ranks), *run_threads(3, ranks)):
        assert found is None or all(np.array_equal(a, b) for a, b in zip(found, alone, strict=True))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_thread_that_dies(ordered: bool, victim: int) -> None:
    losses, state, _ = train(OneGroup())

    def ranks(group: Any) -> Any:
        def before(step: int) -> None:
            if (group.rank, step) == (victim, 2):
                group.die()
                raise SystemExit

        try:
            return train(group, before=before, model=model_of_a_thread(), ordered=ordered)
        except SystemExit:
            return None

    found = run_threads(3, ranks)
    assert found.pop(victim) is None
    for got, got_state, size in found:
        assert size == 2
        if ordered:
            assert (got, got_state) == (losses, state)
        np.testing.assert_allclose(got, losses, rtol=1e-5)


def test_a_rank_that_is_a_step_behind_takes_the_state_of_another() -> None:
    """Rank 0 hears of a failure in the very last step, which rank 1 has made: it waits at its end already."""
    losses, state, _ = train(OneGroup())

    class Late(cluster.Trainer):
        failed = False

        def _ordered(self, rows: Any, count: int) -> Any:
            if self.group.rank == 0 and self.steps == training_ranks.STEPS - 1 and not self.failed:
                self.failed = True
                apply, self._step.apply = self._step.apply, self._fail
                try:
                    return super()._ordered(rows, count)
                finally:
                    self._step.apply = apply
            return super()._ordered(rows, count)

        def _fail(self, flat: Any) -> None:
            raise fail(PeerLost, "test", "the last message was lost")

    found = run_threads(2, lambda group: train(group, model=model_of_a_thread(), trainer=Late))
    assert found == [(losses, state, 2)] * 2


def test_too_few_are_left() -> None:
    def ranks(group: Any) -> Any:
        if group.rank == 1:
            group.die()
            return None
        return train(group, model=model_of_a_thread(), least=2)

    with pytest.raises(GroupError, match="2 are the least"):
        run_threads(2, ranks)


def test_killed_and_stopped_processes_cost_no_step() -> None:
    """SIGKILL of the first rank in the middle of training, then SIGSTOP of another, which only a heartbeat notices:
    losses and weights have the bits of one process, and nobody is left behind."""
    losses, state, _ = train(OneGroup(), dropout=0.1)
    printed = run_ranks(4, "training_ranks.py", "0:1:kill", "2:3:stop", code=None, heartbeat_s=5.0)
    lines = [line.split() for line in printed.splitlines() if line.startswith("result")]
    assert len(lines) == 2, printed
    for words in lines:
        assert words[2] == "2" and words[3] == state and [float(word) for word in words[4:]] == losses


# -- DistributedDataParallel -------------------------------------------------------------------------------------------
def ddp_steps(group: Group, compiled: bool, accumulate: int = 1, **options: Any) -> np.ndarray:
    """Parameters after some steps, each rank with its rows of the batch."""
    model = model_of_a_thread()
    replica = cluster.DistributedDataParallel(model, group=group, **options)
    rule = mo.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
        with replica.no_sync():
            for _ in range(accumulate - 1):
                (mo.mean(mo.square(replica(x) - y)) / accumulate).backward()
        loss = mo.mean(mo.square(replica(x) - y)) / accumulate
        loss.backward()
        rule.step()
        rule.zero_grad()
        return loss

    run = mo.compile(step) if compiled else step
    for number in range(3):
        run(*[mo.asarray(np.split(part, group.size)[group.rank]) for part in batch(number)]).item()
    return parameters(model)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_gradients_are_averaged(compiled: bool, accumulate: int) -> None:
    alone = ddp_steps(OneGroup(), compiled)
    found = run_threads(2, lambda group: ddp_steps(group, compiled, accumulate, bucket_bytes=80))
    assert np.array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], alone, atol=1e-6)


def test_buckets_travel_together() -> None:
    """Every bucket has started before the first is waited for: what overlaps with the backward pass."""
    registry.buckets_in_flight.clear()
    run_threads(2, lambda group: ddp_steps(group, True, bucket_bytes=80))
    assert max(registry.buckets_in_flight) >= 3


def test_no_sync_leaves_the_bytes_at_home() -> None:
    def ranks(group: Group) -> tuple[float, float]:
        model = model_of_a_thread()
        replica = cluster.DistributedDataParallel(model, group=group)
        x = mo.full((2, 5), float(group.rank + 1))
        with replica.no_sync():
            replica(x).sum().backward()
        local = float(mo.sum(mo.abs(model[0].weight.grad)).item())
        model.zero_grad()
        replica(x).sum().backward()
        return local, float(mo.sum(mo.abs(model[0].weight.grad)).item())

    (first, mean), (second, same) = run_threads(2, ranks)
    assert mean == same and first != second and min(first, second) < mean < max(first, second)


@pytest.mark.parametrize("compress", ["bfloat16", "float16"])
def test_compressed_gradients(compress: str) -> None:
    alone = ddp_steps(OneGroup(), True)
    found = run_threads(2, lambda group: ddp_steps(group, True, compress=compress))
    assert np.array_equal(found[0], found[1]) and not np.array_equal(found[0], alone)
    np.testing.assert_allclose(found[0], alone, atol=0.02)
    with pytest.raises(ArgumentError, match="cannot be sent as 'int4'"):
        cluster.DistributedDataParallel(small_model(), compress="int4")


# -- the sampler -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("drop_last", [True, False])
def test_ranks_share_every_epoch(drop_last: bool) -> None:
    def ranks(group: Group) -> list[int]:
        sampler = cluster.DistributedSampler(range(10), group, seed=3, drop_last=drop_last)
        sampler.set_epoch(2)
        assert len(list(sampler)) == len(sampler)
        return list(sampler)

    found = run_threads(3, ranks)
    assert {len(part) for part in found} == {3 if drop_last else 4}
    assert len({n for part in found for n in part}) == (9 if drop_last else 10)


def test_another_number_of_ranks_goes_on_in_the_same_order() -> None:
    def order(size: int, start: int, count: int) -> list[int]:
        parts = run_threads(size, lambda group: list(cluster.DistributedSampler(range(12), group, start=start)))
        return [n for row in zip(*parts) for n in row][:count]

    assert order(3, 0, 6) + order(2, 6, 6) == order(1, 0, 12)


def test_the_script_runs_alone() -> None:
    assert cluster.init().size == 1 and len(train(cluster.init())[0]) == training_ranks.STEPS


def test_a_small_model_has_several_buckets_too() -> None:
    from morpho.cluster.parallel.buckets import planned

    layers = [mo.zeros((512, 512)) for _ in range(24)]  # 25 MB: one bucket would travel when all is computed
    sizes = [len(bucket) for bucket in planned(layers, 25_000_000)]
    assert len(sizes) >= 8 and max(sizes) <= 3
    assert len(planned(layers[:1], 25_000_000)) == 1
