"""Models, optimisers and samplers over ranks, by the names and arguments of PyTorch's wrappers."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import morpho as mo
from morpho.base import settings
from morpho.base.errors import ArgumentError, fail
from morpho.cluster import collectives
from morpho.cluster.parallel import sampler
from morpho.cluster.parallel.data_parallel import DistributedDataParallel as Averaged
from morpho.cluster.parallel.sharded_model import ShardedModule, shard
from morpho.cluster.parallel.sharded_optimizer import ShardedOptimizer
from morpho.distributed.groups import chosen
from morpho.tensor.state.state import assign
from morpho.tensor.state.variable import Buffer


class DistributedDataParallel(Averaged):
    """A replica of the model on each rank: `backward` averages gradients, overlapped with computing.

    Args:
        broadcast_buffers: give running statistics of rank 0 to all before each training step.
        process_group: a group of `new_group`; default: all ranks.
        bucket_cap_mb: MiB of gradients that travel together.
        find_unused_parameters: parameters without a gradient on this rank count as zeros.

    `device_ids`, `output_device`, `gradient_as_bucket_view` and `static_graph` change nothing: the device follows the
    tensors, gradients are views of buckets, and compiled steps are static.

    >>> mo.distributed.init_process_group()
    >>> model = mo.distributed.DistributedDataParallel(mo.nn.Linear(2, 1), find_unused_parameters=True)
    >>> model(mo.ones((4, 2))).sum().backward()
    >>> model.module.bias.grad.item()
    4.0
    """

    def __init__(self, module: mo.nn.Module, device_ids: Sequence[Any] | None = None, output_device: Any = None,
                 dim: int = 0, broadcast_buffers: bool = True, process_group: Any = None, bucket_cap_mb: float = 25,
                 find_unused_parameters: bool = False, check_reduction: bool = False,
                 gradient_as_bucket_view: bool = False, static_graph: bool = False) -> None:
        if dim != 0:
            raise fail(ArgumentError, "DistributedDataParallel", f"dim={dim}: batches lie along axis 0")
        super().__init__(module, int(bucket_cap_mb * 2**20), chosen(process_group, "DistributedDataParallel"))
        self._finds_unused = find_unused_parameters
        self._buffers = [variable.state for _, variable in module._variables(Buffer)] if broadcast_buffers else []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._buffers and self._group.size > 1 and self.training and self._synchronising and self._joining is None:
            assign([(state, collectives.broadcast(state.value, 0, self._group)) for state in self._buffers])
        return super().forward(*args, **kwargs)

    def _after_backward(self, leaves: list[mo.Tensor]) -> None:
        own = {id(parameter) for parameter in self.module.parameters()}
        if self._finds_unused and self._synchronising and any(id(leaf) in own for leaf in leaves):
            for parameter in self.module.parameters():
                if parameter.requires_grad and parameter.grad is None:
                    parameter.grad = mo.zeros(parameter.shape, dtype=parameter.dtype)
        super()._after_backward(leaves)


class ShardingStrategy(enum.Enum):
    """Choice of what `FullyShardedDataParallel` shares out among the ranks.

    >>> mo.distributed.ShardingStrategy.FULL_SHARD.name
    'FULL_SHARD'
    """

    FULL_SHARD = 1
    SHARD_GRAD_OP = 2
    NO_SHARD = 3


def FullyShardedDataParallel(module: mo.nn.Module, process_group: Any = None,
                             sharding_strategy: ShardingStrategy | None = None, cpu_offload: Any = None,
                             auto_wrap_policy: Any = None, backward_prefetch: Any = None, mixed_precision: Any = None,
                             ignored_modules: Any = None, param_init_fn: Any = None, device_id: Any = None,
                             sync_module_states: bool = True, forward_prefetch: bool = False,
                             limit_all_gathers: bool = True, use_orig_params: bool = True) -> Any:
    """A model whose parameters, gradients and optimiser state are shared out among the ranks, layer by layer.

    `FULL_SHARD` (the default, ZeRO-3) gathers a layer when it is called and again for its gradient; `SHARD_GRAD_OP`
    (ZeRO-2) keeps it until then; `NO_SHARD` is `DistributedDataParallel`. Each layer is a unit, so `auto_wrap_policy`
    and the prefetches change nothing, and parameters lie in host memory as `cpu_offload` wants.

    >>> mo.distributed.init_process_group()
    >>> model = mo.distributed.FullyShardedDataParallel(mo.nn.Linear(4, 2))
    >>> model(mo.ones((3, 4))).shape
    (3, 2)
    """
    group = chosen(process_group, "FullyShardedDataParallel")
    strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
    if not isinstance(strategy, ShardingStrategy):
        raise fail(ArgumentError, "FullyShardedDataParallel", f"sharding_strategy={strategy!r} is unknown",
                   "use ShardingStrategy.FULL_SHARD, SHARD_GRAD_OP or NO_SHARD")
    if mixed_precision is not None:
        raise fail(ArgumentError, "FullyShardedDataParallel", "mixed_precision is not chosen here",
                   "write the step inside `with mo.settings(autocast='bfloat16'):`")
    if ignored_modules or param_init_fn is not None or not sync_module_states:
        raise fail(ArgumentError, "FullyShardedDataParallel", "ignored_modules, param_init_fn and "
                   "sync_module_states=False are not there", "shard the layers you want by mo.cluster.shard")
    if _wants_offload(cpu_offload) and settings.get().device != "cpu":
        raise fail(ArgumentError, "FullyShardedDataParallel", "parameters of a GPU are not offloaded to host memory",
                   "leave cpu_offload out")
    if strategy is ShardingStrategy.NO_SHARD:
        return DistributedDataParallel(module, process_group=group)
    return shard(module, group, reshard=strategy is ShardingStrategy.FULL_SHARD)


def _wants_offload(cpu_offload: Any) -> bool:
    return bool(getattr(cpu_offload, "offload_params", cpu_offload))


def fully_shard(module: mo.nn.Module, *, mesh: Any = None, reshard_after_forward: bool = True) -> ShardedModule:
    """PyTorch's FSDP 2: share the parameters of a model out among the ranks. `mesh` is a group. The result is a new
    module: train its `parameters()`.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.fully_shard(mo.nn.Linear(4, 2))(mo.ones((3, 4))).shape
    (3, 2)
    """
    return shard(module, chosen(mesh, "fully_shard"), reshard_after_forward)


class ZeroRedundancyOptimizer(ShardedOptimizer):
    """An optimiser whose state is shared out among the ranks (ZeRO-1).

    >>> mo.distributed.init_process_group()
    >>> model = mo.nn.Linear(2, 1)
    >>> rule = mo.distributed.ZeroRedundancyOptimizer(model.parameters(), mo.optim.AdamW, lr=0.1)
    >>> model(mo.ones((4, 2))).sum().backward()
    >>> rule.step()
    """

    def __init__(self, params: Iterable[Any], optimizer_class: Any, process_group: Any = None,
                 parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False, **defaults: Any) -> None:
        if overlap_with_ddp:
            raise fail(ArgumentError, "ZeroRedundancyOptimizer", "overlap_with_ddp is not there: call step() after "
                       "backward()")
        super().__init__(optimizer_class(list(params), **defaults), chosen(process_group, "ZeroRedundancyOptimizer"))


class DistributedSampler(sampler.DistributedSampler):
    """Items of this rank: every `num_replicas`-th of one order. Without shuffling they are PyTorch's; shuffled orders
    follow from `seed` and `set_epoch`, by Morpho's generator.

    >>> list(mo.distributed.DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False) -> None:
        if (num_replicas is None) != (rank is None):
            raise fail(ArgumentError, "DistributedSampler", "num_replicas and rank belong together",
                       "give both or none")
        own = SimpleNamespace(rank=rank, size=num_replicas)
        group: Any = chosen(None, "DistributedSampler") if rank is None else own
        if not 0 <= group.rank < group.size:
            raise fail(ArgumentError, "DistributedSampler", f"rank={group.rank} is not below num_replicas={group.size}")
        super().__init__(dataset, group, shuffle, seed, drop_last)


@contextmanager
def Join(joinables: Sequence[Any], enable: bool = True, throw_on_early_termination: bool = False) -> Iterator[None]:
    """A block whose ranks may have different numbers of batches; models are `DistributedDataParallel`.

    >>> mo.distributed.init_process_group()
    >>> model = mo.distributed.DistributedDataParallel(mo.nn.Linear(2, 1))
    >>> with mo.distributed.Join([model]):
    ...     model(mo.ones((4, 2))).sum().backward()
    """
    if throw_on_early_termination:
        raise fail(ArgumentError, "Join", "throw_on_early_termination is not there",
                   "without Join() a rank that ends early is an error on the others")
    with ExitStack() as blocks:
        for each in joinables if enable else ():
            if not hasattr(each, "join"):
                raise fail(ArgumentError, "Join", f"a {type(each).__name__} cannot be joined",
                           "give models of DistributedDataParallel")
            blocks.enter_context(each.join())
        yield
