"""`mo.distributed`: the same results as `torch.distributed`, its arguments, and errors for what is not there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho import distributed as dist
from morpho.base.errors import ArgumentError, GroupError, MorphoError, ShapeError
from morpho.cluster.groups.threads import run_threads
from morpho.cluster.launch.mpiexec import environment
from morpho.runtime.groups.group import Group


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    yield
    dist.destroy_process_group()


@pytest.mark.slow
def test_the_same_as_torch_distributed() -> None:
    """torchrun starts three ranks, each of which is one of PyTorch's and one of Morpho's."""
    pytest.importorskip("torch")
    pytest.importorskip("mpi4py")
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--master-port",
                           "29771", str(Path(__file__).parent / "torch_beside.py")],
                          env={**environment(), "MORPHO_THREADS": "1"}, capture_output=True, text=True, timeout=240,
                          check=False)
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert lines == [f"rank {rank} compared" for rank in range(3)], done.stdout + done.stderr[-3000:]


def test_collectives_of_threads() -> None:
    """Handles, bfloat16, views and reductions by a group that is named."""
    def rank(group: Group) -> tuple[list[float], list[float], float, int]:
        x = mo.full((2, 2), group.rank + 1.0)
        work = dist.all_reduce(x, dist.ReduceOp.AVG, group=group, async_op=True)
        assert work is not None and work.wait(timeout=30)
        half = mo.full(2, 1.5, dtype="bfloat16")
        dist.all_reduce(half, group=group)
        array = np.asarray([1 << group.rank])
        dist.all_reduce(array, dist.ReduceOp.BOR, group=group)
        own = mo.zeros(1)
        dist.scatter(own, [mo.full(1, float(each)) for each in range(group.size)] if group.rank == 2 else None,
                     group=group, group_src=2)
        return x.numpy()[0].tolist(), half.astype("float32").numpy().tolist(), own.item(), int(array[0])

    dist.init_process_group()
    assert run_threads(3, rank) == [([2.0, 2.0], [4.5, 4.5], float(number), 7) for number in range(3)]


def test_parameters_and_gradients_are_written_in_place(alone: None) -> None:
    parameter = mo.nn.Parameter(mo.ones(3))
    (parameter * parameter).sum().backward()
    dist.all_reduce(parameter.grad)
    dist.broadcast(parameter, src=0)
    assert parameter.grad.numpy().tolist() == [2.0] * 3 and parameter.numpy().tolist() == [1.0] * 3


@pytest.mark.parametrize(("call", "kind", "words"), [
    (lambda: dist.init_process_group("ucc"), ArgumentError, "backend 'ucc' is unknown.*mpi, gloo or nccl"),
    (lambda: dist.init_process_group(init_method="tcp://a:1"), ArgumentError, "init_method='tcp://a:1' is not how"),
    (lambda: dist.init_process_group(world_size=2, rank=0), GroupError, "world_size=2, and the launcher says 1"),
    (lambda: dist.init_process_group(timeout=timedelta(0)), ArgumentError, "is no time"),
    (lambda: dist.all_reduce([1.0]), ArgumentError, "a list is no tensor"),
    (lambda: dist.all_reduce(mo.ones(2), "sum"), ArgumentError, "op='sum' is no reduction.*ReduceOp"),
    (lambda: dist.all_reduce(mo.ones(2), dist.ReduceOp.BAND), ArgumentError, "bits of float32"),
    (lambda: dist.all_gather([mo.ones(3)], mo.ones(2)), ShapeError, r"of shape \(3,\) is beside"),
    (lambda: dist.all_gather([], mo.ones(2)), ShapeError, "the list has 0 tensors, and the group 1 ranks"),
    (lambda: dist.all_gather_into_tensor(mo.ones(3), mo.ones(2)), ShapeError, "3 float32 does not take 2"),
    (lambda: dist.broadcast(mo.ones(2), src=4), ArgumentError, "rank 4 is not in the group"),
    (lambda: dist.recv(mo.ones(2)), ArgumentError, "the other rank is not named"),
    (lambda: dist.new_group([0, 0]), ArgumentError, r"ranks=\[0, 0\] are not different"),
    (lambda: dist.all_to_all_single(mo.ones(3), mo.ones(3), [3], [2]), ShapeError, r"input_split_sizes=\[2\]"),
    (lambda: dist.all_gather_object([None], (1, 2)), ArgumentError, "another object as JSON"),
    (lambda: dist.all_gather_object([None], mo.ones(2)), ArgumentError, "send arrays as tensors"),
    (lambda: dist.FullyShardedDataParallel(mo.nn.Linear(2, 2), mixed_precision=True), ArgumentError, "autocast"),
    (lambda: dist.DistributedSampler(range(4), num_replicas=2), ArgumentError, "belong together"),
    (lambda: mo.compile(lambda x: dist.all_reduce(x))(mo.ones(2)), MorphoError, "mo.cluster.all_reduce"),
])
def test_what_is_refused(alone: None, call: object, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()  # type: ignore[operator]


def test_before_it_is_initialised() -> None:
    dist.destroy_process_group()
    with pytest.raises(GroupError, match=r"no default process group.*init_process_group\(\)"):
        dist.all_reduce(mo.ones(2))


def test_items_of_a_rank_are_those_of_torch() -> None:
    sampler = pytest.importorskip("torch.utils.data").DistributedSampler
    for count in (1, 5, 8, 13):
        for ranks in (1, 2, 3):
            for drop in (False, True):
                if count < ranks:
                    continue
                for rank in range(ranks):
                    words = {"num_replicas": ranks, "rank": rank, "shuffle": False, "drop_last": drop}
                    assert [*dist.DistributedSampler(range(count), **words)] == [*sampler(range(count), **words)], words


def test_parameters_without_a_gradient_count_as_zeros(alone: None) -> None:
    class Half(mo.nn.Module):
        def __init__(self) -> None:
            self.used, self.unused = mo.nn.Linear(2, 1), mo.nn.Linear(2, 1)

        def forward(self, x: mo.Tensor) -> mo.Tensor:
            return self.used(x)

    model = dist.DistributedDataParallel(Half(), find_unused_parameters=True, device_ids=[0])
    model(mo.ones((3, 2))).sum().backward()
    assert model.module.unused.bias.grad.numpy().tolist() == [0.0] and model.module.used.bias.grad.item() == 3.0
