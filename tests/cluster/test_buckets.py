"""Gradients in their buckets: which kernels write there, what is copied, and that nobody reads what another wrote."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import cluster
from morpho.base.errors import GroupError
from morpho.cluster.groups.one import OneGroup
from morpho.cluster.groups.threads import run_threads
from morpho.ops.collective import bucket_places
from morpho.runtime.groups import registry
from morpho.runtime.groups.group import Group
from morpho.runtime.plans import evaluate

ROWS = 8
_one_at_a_time = threading.Lock()  # models of ranks that are threads begin with the same draws


class Net(mo.nn.Module):
    """Layers, and how their output follows from rows."""

    def __init__(self, layers: dict[str, Any], run: Callable[[Any, mo.Tensor], mo.Tensor]) -> None:
        for name, layer in layers.items():
            setattr(self, name, layer)
        self._run = run

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return self._run(self, x)


def plain() -> Net:
    return Net({"a": mo.nn.Linear(6, 9), "b": mo.nn.Linear(9, 4)}, lambda m, x: m.b(mo.gelu(m.a(x))))


def tied() -> Net:
    """The sum of two transposed products: one copy turns it."""
    return Net({"a": mo.nn.Linear(6, 6, bias=False)}, lambda m, x: m.a(mo.tanh(m.a(x))))


def tied_words() -> Net:
    """As language models have it: the table of words is the last layer too."""
    def run(m: Any, x: mo.Tensor) -> mo.Tensor:
        return m.words(mo.astype(mo.abs(x[:, 0]) * 3, "int64") % 11) @ mo.matrix_transpose(m.words.weight)

    return Net({"words": mo.nn.Embedding(11, 6)}, run)


def frozen() -> Net:
    net = plain()
    net.a.weight.requires_grad = False
    return net


def unused() -> Net:
    """A layer that no row comes through: its parameters have no gradient."""
    return Net({"a": mo.nn.Linear(6, 5), "never": mo.nn.Linear(6, 5)}, lambda m, x: m.a(x))


def read_elsewhere() -> Net:
    """The gradient of the offset is what goes on to the first layer."""
    return Net({"a": mo.nn.Linear(6, 3), "offset": mo.nn.Parameter(mo.zeros((ROWS // 2, 3)))},
               lambda m, x: mo.square(m.a(x) + m.offset))


def table() -> Net:
    return Net({"words": mo.nn.Embedding(11, 6), "b": mo.nn.Linear(6, 4)},
               lambda m, x: m.b(m.words(mo.astype(mo.abs(x[:, 0]) * 3, "int64") % 11)))


def filters() -> Net:
    return Net({"c": mo.nn.Conv2d(1, 3, 2), "b": mo.nn.Linear(6, 4)},
               lambda m, x: m.b(mo.reshape(m.c(mo.reshape(x, (x.shape[0], 1, 2, 3))), (x.shape[0], 6))))


def made(build: Callable[[], Net]) -> Net:
    with _one_at_a_time:
        mo.nn.seed(0)
        return build()


def rows_of(group: Group, number: int) -> mo.Tensor:
    rows = np.random.default_rng(number).normal(size=(ROWS, 6)).astype(np.float32)
    return mo.asarray(np.split(rows, group.size)[group.rank])


def steps_of(group: Group, build: Callable[[], Net], rule: Any = mo.optim.SGD, **options: Any) -> tuple[Any, Any, Net]:
    """A compiled step and its replica."""
    model = made(build)
    replica = cluster.DistributedDataParallel(model, group=group, **options)
    optimiser = rule([p for p in model.parameters() if p.requires_grad], lr=0.05)

    @mo.compile
    def step(x: mo.Tensor) -> mo.Tensor:
        loss = mo.mean(mo.square(replica(x)))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss

    return step, replica, model


def trained(group: Group, build: Callable[[], Net], **options: Any) -> tuple[np.ndarray, int]:
    """All parameters after three steps, and the copies of a step."""
    step, _, model = steps_of(group, build, **options)
    for number in range(3):
        step(rows_of(group, number)).item()
    return np.concatenate([p.numpy().ravel() for p in model.parameters()]), step.stats["copies"]


def host_copies() -> float:
    return registry.copied.value("in") + registry.copied.value("out")


@pytest.mark.parametrize(("build", "copies"), [(plain, 0), (tied, 1), (tied_words, 0), (frozen, 0), (unused, 0),
                                               (table, 0), (filters, 0)])
@pytest.mark.parametrize("bucket_bytes", [80, 25_000_000])
def test_kernels_write_gradients_where_they_travel_from(build: Any, copies: int, bucket_bytes: int) -> None:
    before = host_copies()
    alone, of_one = trained(OneGroup(), build)
    found = run_threads(2, lambda group: trained(group, build, bucket_bytes=bucket_bytes))
    assert np.array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][0], alone, atol=1e-6)
    assert [n - of_one for _, n in found] == [copies, copies] and host_copies() == before


def test_a_gradient_that_somebody_else_reads_is_copied() -> None:
    """Else who reads it while it travels would find a part of an average."""
    def ranks(group: Group) -> tuple[np.ndarray, int]:
        return trained(group, read_elsewhere)

    found = run_threads(2, ranks)
    assert np.array_equal(found[0][0], found[1][0]) and {n for _, n in found} == {1}

    model = made(read_elsewhere)  # two halves of the batch, averaged by hand
    optimiser = mo.optim.SGD(model.parameters(), lr=0.05)
    for number in range(3):
        rows = np.random.default_rng(number).normal(size=(ROWS, 6)).astype(np.float32)
        loss = sum(mo.mean(mo.square(model(mo.asarray(part)))) for part in np.split(rows, 2)) / 2
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    np.testing.assert_allclose(found[0][0], np.concatenate([p.numpy().ravel() for p in model.parameters()]), atol=1e-6)


def test_other_dtypes_on_the_wire_are_copied_by_kernels() -> None:
    before = host_copies()
    found = run_threads(2, lambda group: trained(group, plain, compress="bfloat16"))
    assert np.array_equal(found[0][0], found[1][0])
    assert {n for _, n in found} == {8} and host_copies() == before  # four parts in, four out


def test_two_averages_in_one_step() -> None:
    """A bucket that is started twice is copied: the first average may still be read when the second is computed."""
    def ranks(group: Group) -> list[np.ndarray]:
        model = made(plain)
        replica = cluster.DistributedDataParallel(model, group=group)

        @mo.compile
        def step(x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor, mo.Tensor]:
            mo.mean(mo.square(replica(x))).backward()
            first = model.a.weight.grad
            mo.mean(mo.abs(replica(x))).backward()
            both = model.a.weight.grad
            for parameter in model.parameters():
                parameter.grad = None
            return first, both, both - first

        return [part.numpy() for part in step(rows_of(group, 0))]

    found = run_threads(2, ranks)
    rows = np.random.default_rng(0).normal(size=(ROWS, 6)).astype(np.float32)
    model = made(plain)
    (mo.mean(mo.square(model(mo.asarray(rows))))).backward()
    first = model.a.weight.grad.numpy()
    for parts in found:
        np.testing.assert_allclose(parts[0], first, atol=1e-6)
        np.testing.assert_allclose(parts[1], parts[0] + parts[2], atol=1e-6)
        assert np.array_equal(parts[0], found[0][0]) and np.array_equal(parts[2], found[0][2])


def test_gradients_that_are_kept_do_not_change() -> None:
    """An average that leaves the program has memory of its own: the next step writes the bucket again."""
    def ranks(group: Group) -> None:
        model = made(plain)
        replica = cluster.DistributedDataParallel(model, group=group)

        @mo.compile
        def gradients(x: mo.Tensor) -> list[mo.Tensor]:
            mo.mean(mo.square(replica(x))).backward()
            found = [parameter.grad for parameter in model.parameters()]
            for parameter in model.parameters():
                parameter.grad = None
            return found

        first = gradients(rows_of(group, 0))
        values = [part.numpy().copy() for part in first]
        gradients(rows_of(group, 1))
        assert all(np.array_equal(part.numpy(), value) for part, value in zip(first, values, strict=True))

        replica(rows_of(group, 2)).sum().backward()  # and outside of a compiled function
        kept = model.b.bias.grad
        value = kept.numpy().copy()
        model.zero_grad()
        (3 * replica(rows_of(group, 3)).sum()).backward()
        assert model.b.bias.grad.numpy() is not None and np.array_equal(kept.numpy(), value)

    run_threads(2, ranks)


def test_steps_one_by_one() -> None:
    """Where a bucket lies is found once and known to the steps that are run by themselves."""
    def ranks(group: Group) -> tuple[np.ndarray, str]:
        step, _, model = steps_of(group, plain)
        step(rows_of(group, 0)).item()
        evaluate.clock.seconds = []  # of this thread
        try:
            step.through_python(rows_of(group, 1)).item()
            assert len(evaluate.clock.seconds) > 8
        finally:
            evaluate.clock.seconds = None
        step(rows_of(group, 2)).item()
        found = np.concatenate([p.numpy().ravel() for p in model.parameters()])
        return found, str(step.explain())

    alone, _ = trained(OneGroup(), plain)
    for found, text in run_threads(2, ranks):
        assert "memory 0, where all_reduce_memory says" in text and "copies for layout 0" in text
        np.testing.assert_allclose(found, alone, atol=1e-6)


def test_a_program_with_a_loop() -> None:
    """Loops have a table of slots of their own."""
    def looped() -> Net:
        def run(m: Any, x: mo.Tensor) -> mo.Tensor:
            return mo.fori_loop(0, 3, lambda _, h: mo.tanh(m.a(h)), x)

        return Net({"a": mo.nn.Linear(6, 6)}, run)

    alone, _ = trained(OneGroup(), looped)
    found = run_threads(2, lambda group: trained(group, looped))
    assert np.array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][0], alone, atol=1e-6)


@pytest.mark.parametrize("eager", [False, True])
def test_ranks_with_gradients_of_different_parameters_hear_it(eager: bool) -> None:
    """They would wait for each other for ever, or add what does not belong together."""
    def ranks(group: Group) -> None:
        model = made(lambda: Net({"a": mo.nn.Linear(6, 6), "b": mo.nn.Linear(6, 6)}, lambda m, x: m.b(m.a(x))))
        replica = cluster.DistributedDataParallel(model, group=group)

        def step(x: mo.Tensor) -> mo.Tensor:
            loss = mo.mean(mo.square(replica(x) if group.rank == 0 else model.b(x)))  # buckets of equal sizes
            loss.backward()
            found = model.b.weight.grad
            model.zero_grad()
            return found

        (step if eager else mo.compile(step))(rows_of(group, 0)).numpy()

    with pytest.raises(GroupError, match="rank 1 has gradients of other parameters than rank 0"):
        run_threads(2, ranks)


def test_a_model_that_is_gone_leaves_no_bucket() -> None:
    def ranks(group: Group) -> None:
        trained(group, plain, bucket_bytes=80)

    gc.collect()
    before = len(registry._buckets)
    run_threads(2, ranks)
    gc.collect()
    assert len(registry._buckets) == before


def test_parts_begin_in_lines_of_their_own() -> None:
    assert bucket_places([(3, 5), (), (0, 4), (2,)], "float32") == ([0, 16, 32, 32], 34)
    assert bucket_places([(33,), (1,)], "bfloat16") == ([0, 64], 65)
