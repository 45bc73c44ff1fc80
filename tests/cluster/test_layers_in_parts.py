"""Tensor parallel layers and sharded models: what several ranks compute is what one does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wide_ranks
from starting import run_ranks
from test_training import model_of_a_thread, parameters
from training_ranks import batch

import morpho as mo
from morpho import cluster
from morpho.base.errors import ArgumentError
from morpho.cluster.groups.one import OneGroup
from morpho.cluster.groups.threads import run_threads
from morpho.runtime.groups.group import Group

X = np.random.default_rng(1).normal(size=(2, 3, 8)).astype(np.float32)


def in_parts(make: Any, whole: Any, axes: dict[str, int], exact: bool, size: int = 2) -> None:
    """Results and gradients of a layer in parts against those of the whole one."""
    x = mo.asarray(X).requires_grad_()
    y = whole(x)
    mo.sum(mo.square(y)).backward()

    def ranks(group: Group) -> tuple[Any, ...]:
        layer, own = make(group), mo.asarray(X).requires_grad_()
        found = mo.compile(layer)(own)
        mo.sum(mo.square(layer(own))).backward()
        return found.numpy(), own.grad.numpy(), {name: getattr(layer, name).grad.numpy() for name in axes}

    found = run_threads(size, ranks)
    for got, gradient, _ in found:
        if exact:
            assert np.array_equal(got, y.numpy())
        np.testing.assert_allclose(got, y.numpy(), atol=1e-5)
        np.testing.assert_allclose(gradient, x.grad.numpy(), atol=1e-4)
    for name, axis in axes.items():
        parts = [part[2][name] for part in found]
        joined = parts[0] if axis < 0 else np.concatenate(parts, axis)
        np.testing.assert_allclose(joined, getattr(whole, name).grad.numpy(), atol=1e-4)


def test_columns() -> None:
    whole = mo.nn.Linear(8, 6)
    in_parts(lambda group: cluster.ColumnParallelLinear.of(whole, group=group), whole, {"weight": 0, "bias": 0}, True)


def test_rows() -> None:
    whole = mo.nn.Linear(8, 6)
    in_parts(lambda group: cluster.RowParallelLinear.of(whole, group=group), whole, {"weight": 1, "bias": -1}, False)


def test_words() -> None:
    whole = mo.nn.Embedding(12, 5)
    ids = np.asarray([[0, 11, 5], [6, 6, 1]])
    y = whole(mo.asarray(ids))
    mo.sum(mo.square(y)).backward()

    def ranks(group: Group) -> tuple[Any, Any]:
        layer = cluster.VocabParallelEmbedding.of(whole, group)
        found = layer(mo.asarray(ids))
        mo.sum(mo.square(found)).backward()
        return found.numpy(), layer.weight.grad.numpy()

    found = run_threads(3, ranks)
    assert all(np.array_equal(got, y.numpy()) for got, _ in found)
    assert np.array_equal(np.concatenate([part for _, part in found]), whole.weight.grad.numpy())


@pytest.mark.parametrize("exact", [True, False])
def test_heads(exact: bool) -> None:
    def make() -> Any:
        mo.nn.seed(3)
        return mo.nn.MultiHeadAttention(8, 4, num_kv_heads=2, causal=True)

    whole = make()
    made = [make() for _ in range(2)]
    y = whole(mo.asarray(X)).numpy()

    def ranks(group: Group) -> Any:
        return cluster.parallel_attention(made[group.rank], group, exact)(mo.asarray(X)).numpy()

    for found in run_threads(2, ranks):
        assert not exact or np.array_equal(found, y)
        np.testing.assert_allclose(found, y, atol=1e-5)
    with pytest.raises(ArgumentError, match="do not part among 2 ranks"):
        run_threads(2, lambda group: cluster.parallel_attention(mo.nn.MultiHeadAttention(9, 3), group))


def test_a_model_in_parts_is_saved_whole() -> None:
    whole = mo.nn.Sequential(mo.nn.Linear(8, 4), mo.nn.Linear(4, 2))

    def ranks(group: Group) -> dict[str, Any]:
        model = mo.nn.Sequential(cluster.ColumnParallelLinear.of(whole[0], False, group=group),
                                 cluster.RowParallelLinear.of(whole[1], True, group))
        np.testing.assert_allclose(model(mo.asarray(X)).numpy(), whole(mo.asarray(X)).numpy(), atol=1e-5)
        return {name: tensor.numpy() for name, tensor in cluster.whole_state_dict(model).items()}

    for found in run_threads(2, ranks):
        assert all(np.array_equal(found[name], tensor.numpy()) for name, tensor in whole.state_dict().items())


# -- sharded models ----------------------------------------------------------------------------------------------------
def steps(group: Group, sharded: bool, reshard: bool = True, saved: Any = None) -> tuple[Any, ...]:
    model = model_of_a_thread()
    trained: Any = cluster.DistributedDataParallel(model, group=group)
    if sharded:
        trained = cluster.shard(model, group, reshard)
    rule = mo.optim.AdamW(trained.parameters(), lr=0.05)
    if saved is not None:
        trained.load_state_dict(saved[0])
        trained.load_optimizer_state_dict(rule, saved[1])

    @mo.compile
    def step(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
        loss = mo.mean(mo.square(trained(x) - y))
        loss.backward()
        mo.optim.clip_grad_norm(trained.parameters(), 0.5)
        rule.step()
        rule.zero_grad()
        return loss

    for number in range(3):
        step(*[mo.asarray(np.split(part, group.size)[group.rank]) for part in batch(number)]).item()
    if not sharded:
        return parameters(model), None, 0
    state = {name: tensor.numpy() for name, tensor in trained.state_dict().items()}
    kept = sum(int(part.size) for part in trained.parameters())
    saved = state, trained.optimizer_state_dict(rule)
    return np.concatenate([array.ravel() for array in state.values()]), saved, kept


@pytest.mark.parametrize("reshard", [True, False])
def test_a_sharded_model_learns_as_a_whole_one(reshard: bool) -> None:
    whole = run_threads(2, lambda group: steps(group, False))[0][0]
    found = run_threads(2, lambda group: steps(group, True, reshard))
    for got, _, kept in found:
        np.testing.assert_allclose(got, whole, atol=1e-6)
        assert kept <= whole.size // 2 + 2  # of the padding of two layers


def test_a_sharded_model_learns_without_compile() -> None:
    """Ranks come to the gathers of layers that do not wait for each other in one order, whatever else they computed."""
    whole = wide_ranks.train(OneGroup(), False, True)
    for found in run_threads(3, lambda group: wide_ranks.train(group, True, False)):
        np.testing.assert_allclose(found, whole, atol=1e-5)
    printed = run_ranks(2, "wide_ranks.py")
    assert printed.count(f": {np.round(np.abs(whole).sum(), 3)}") == 2, printed


def test_a_sharded_checkpoint_is_read_by_another_number_of_ranks() -> None:
    saved = run_threads(2, lambda group: steps(group, True))[0][1]
    alone = steps(OneGroup(), True, saved=saved)[0]
    for found in run_threads(4, lambda group: steps(group, True, saved=saved)):
        np.testing.assert_allclose(found[0], alone, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3])
def test_the_norm_is_that_of_the_whole_model(size: int) -> None:
    """By the common call and the model's method, of either kind, equal on all ranks; a scaler skips on all or none."""
    rows, _ = batch(0)

    def norms(trained: Any) -> list[float]:
        @mo.compile
        def both(x: mo.Tensor) -> list[mo.Tensor]:
            found = []
            for norm_type in (2, mo.inf):
                mo.mean(mo.square(trained(x) - 1)).backward()
                found.append(mo.optim.clip_grad_norm(trained.parameters(), 0.01, norm_type))
                trained.zero_grad()
            return found

        return [norm.item() for norm in both(mo.asarray(rows))]

    whole = model_of_a_thread()
    expected = norms(whole)

    def ranks(group: Group) -> tuple[list[float], list[float], bool]:
        model = cluster.shard(model_of_a_thread(), group)
        found = norms(model)
        for part in model.parts:
            part.grad = mo.ones_like(part.value)
        by_method = [model.clip_grad_norm(0.01).item(), sum(part.size for part in model.parts) * group.size]
        before = [part.numpy() for part in model.parameters()]
        if group.rank == 0:
            model.parts[0].grad = model.parts[0].grad * float("nan")
        scaler, rule = mo.amp.GradScaler(init_scale=4.0), mo.optim.SGD(model.parameters(), lr=1.0)
        scaler.step(rule)
        scaler.update()
        same = all(np.array_equal(a, part.numpy()) for a, part in zip(before, model.parameters(), strict=True))
        for rule_of in (mo.optim.Adafactor, mo.optim.LBFGS):
            with pytest.raises(ArgumentError, match="each rank has a part of these parameters"):
                rule_of(model.parameters())
        return found, by_method, same and scaler.get_scale() == 2.0

    found = run_threads(size, ranks)
    np.testing.assert_allclose(found[0][0], expected, rtol=1e-5)
    assert all(each == found[0] for each in found) and found[0][2]
    assert found[0][1][0] == pytest.approx(found[0][1][1] ** 0.5)


def test_the_norm_of_layers_in_parts() -> None:
    """Columns and rows are parts, the bias of rows is whole on every rank and counts once."""
    mo.nn.seed(0)
    whole = mo.nn.Sequential(mo.nn.Linear(8, 4), mo.nn.Linear(4, 2))
    mo.sum(mo.square(whole(mo.asarray(X)))).backward()
    expected = mo.optim.clip_grad_norm(whole.parameters(), 1.0).item()

    def ranks(group: Group) -> float:
        model = mo.nn.Sequential(cluster.ColumnParallelLinear.of(whole[0], False, group=group),
                                 cluster.RowParallelLinear.of(whole[1], True, group))
        mo.sum(mo.square(model(mo.asarray(X)))).backward()
        return mo.optim.clip_grad_norm(model.parameters(), 1.0).item()

    first, second = run_threads(2, ranks)
    assert first == second == pytest.approx(expected, rel=1e-5)
