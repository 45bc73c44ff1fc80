"""`mo.distributed`: many processes with the names of `torch.distributed`. The ranks are those of `mo.cluster`.

>>> mo.distributed.init_process_group()
>>> mo.distributed.get_rank(), mo.distributed.get_world_size()
(0, 1)
"""

from morpho.distributed.checkpoint import Saving, load_checkpoint, save_checkpoint
from morpho.distributed.collectives import (
    P2POp,
    ReduceOp,
    Work,
    all_gather,
    all_gather_into_tensor,
    all_gather_object,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    broadcast_object_list,
    gather,
    irecv,
    isend,
    monitored_barrier,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from morpho.distributed.groups import (
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_initialized,
    new_group,
)
from morpho.distributed.wrappers import (
    DistributedDataParallel,
    DistributedSampler,
    FullyShardedDataParallel,
    Join,
    ShardingStrategy,
    ZeroRedundancyOptimizer,
    fully_shard,
)

__all__ = [
    "DistributedDataParallel", "DistributedSampler", "FullyShardedDataParallel", "Join", "P2POp", "ReduceOp", "Saving",
    "ShardingStrategy", "Work", "ZeroRedundancyOptimizer", "all_gather", "all_gather_into_tensor", "all_gather_object",
    "all_reduce", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast",
    "broadcast_object_list", "destroy_process_group", "fully_shard", "gather", "get_backend", "get_global_rank",
    "get_group_rank", "get_process_group_ranks", "get_rank", "get_world_size", "init_process_group", "irecv",
    "is_available", "is_initialized", "isend", "load_checkpoint", "monitored_barrier", "new_group", "recv",
    "reduce", "reduce_scatter", "reduce_scatter_tensor", "save_checkpoint", "scatter", "send",
]
