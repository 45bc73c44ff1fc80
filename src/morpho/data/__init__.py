"""`mo.data`: datasets, token files, a loader whose threads work while the model computes, and the best batch size.

>>> pairs = mo.data.TensorDataset(mo.arange(6), mo.arange(6) * 10)
>>> for x, y in mo.data.DataLoader(pairs, batch_size=4):
...     print(x.tolist(), y.tolist())
[0, 1, 2, 3] [0, 10, 20, 30]
[4, 5] [40, 50]
"""

from morpho.data.batch_size import BatchSizes, best_batch_size
from morpho.data.dataset import Dataset, IterableDataset, TensorDataset, default_collate
from morpho.data.loader import DataLoader
from morpho.data.order import permuted
from morpho.data.samplers import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from morpho.data.subsets import ConcatDataset, Subset, random_split
from morpho.data.tokens import TokenFile, write_tokens

__all__ = [
    "BatchSampler", "BatchSizes", "ConcatDataset", "DataLoader", "Dataset", "IterableDataset", "RandomSampler",
    "Sampler", "SequentialSampler", "Subset", "SubsetRandomSampler", "TensorDataset", "TokenFile",
    "WeightedRandomSampler", "best_batch_size", "default_collate", "permuted", "random_split", "write_tokens",
]
