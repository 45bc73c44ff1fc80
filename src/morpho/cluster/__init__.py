"""`mo.cluster`: many processes and machines, one program.

>>> group = mo.cluster.init()
>>> group.size
1
"""

from morpho.cluster.arrays.array import DistributedArray, array
from morpho.cluster.arrays.solvers import cg, qr, svd
from morpho.cluster.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from morpho.cluster.frontend.pipeline import Pipeline
from morpho.cluster.parallel.data_parallel import DistributedDataParallel
from morpho.cluster.parallel.sampler import DistributedSampler
from morpho.cluster.parallel.sharded_model import ShardedModule, shard
from morpho.cluster.parallel.sharded_optimizer import ShardedOptimizer, shard_optimizer
from morpho.cluster.parallel.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
    parallel_attention,
    whole_state_dict,
)
from morpho.cluster.training.pipeline_trainer import PipelineTrainer
from morpho.cluster.training.trainer import Trainer
from morpho.cluster.world import init
from morpho.runtime.groups.group import Group, Work
from morpho.tensor.tools.foreign_calls import hint_calls as _hint_calls

__all__ = [
    "ColumnParallelLinear", "DistributedArray", "DistributedDataParallel", "DistributedSampler", "Group", "Pipeline",
    "PipelineTrainer", "RowParallelLinear", "ShardedModule", "ShardedOptimizer", "Trainer", "VocabParallelEmbedding",
    "Work", "all_gather", "all_reduce", "all_to_all", "array", "broadcast", "cg", "init", "parallel_attention", "qr",
    "reduce_scatter", "shard", "shard_optimizer", "svd", "whole_state_dict",
]

_hint_calls(globals(), __all__)  # calls with other libraries' keywords
