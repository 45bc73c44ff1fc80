"""Datasets made of datasets: some of the items, several after one another, a random split."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from morpho.base.checks import as_real, as_whole, shown
from morpho.base.errors import ArgumentError, IndexFault, fail
from morpho.data.dataset import Dataset, IterableDataset, default_collate, own_batch
from morpho.data.order import permuted


class Subset(Dataset):
    """Some items of a dataset, by their numbers there.

    >>> list(mo.data.DataLoader(mo.data.Subset(["a", "b", "c"], [2, 0]), batch_size=2))
    [['c', 'a']]
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices
        if not hasattr(dataset, "__getitem__") or not hasattr(indices, "__len__"):
            raise fail(ArgumentError, "Subset", f"{type(dataset).__name__} has no numbered items, or "
                                                f"{shown(indices)} is no list of numbers")

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, number: int) -> Any:
        return self.dataset[self.indices[number]]

    def batch(self, numbers: np.ndarray) -> Any:
        """Several items at once, by the dataset's own way where it has one."""
        chosen = np.asarray([self.indices[number] for number in np.asarray(numbers).tolist()], np.int64)
        together = own_batch(self.dataset)
        return together(chosen) if together else default_collate([self.dataset[one] for one in chosen.tolist()])


class ConcatDataset(Dataset):
    """The items of several datasets after one another.

    >>> both = mo.data.ConcatDataset([["a", "b"], ["c"]])
    >>> len(both), both[2], both[-1], both.cumulative_sizes
    (3, 'c', 'c', [2, 3])
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise fail(ArgumentError, "ConcatDataset", "no dataset is given")
        for dataset in self.datasets:
            if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
                raise fail(ArgumentError, "ConcatDataset", f"{type(dataset).__name__} has no length or no numbered "
                                                           "items", "itertools.chain joins what is only iterated over")
        self.cumulative_sizes = np.cumsum([len(dataset) for dataset in self.datasets]).tolist()

    def __len__(self) -> int:
        return int(self.cumulative_sizes[-1])

    def __getitem__(self, number: int) -> Any:
        place = number + len(self) if number < 0 else number
        if not 0 <= place < len(self):
            raise fail(IndexFault, "ConcatDataset", f"item {number} is out of range: there are {len(self)}")
        which = bisect_right(self.cumulative_sizes, place)
        return self.datasets[which][place - (self.cumulative_sizes[which - 1] if which else 0)]


def random_split(dataset: Any, lengths: Sequence[float], seed: Any = 0, *, generator: Any = None) -> list[Subset]:
    """A dataset cut into parts at random: of these lengths, or of these shares, which add up to 1. A `generator`, as of
    `mo.Generator().manual_seed(1)`, says the seed too.

    >>> train, test = mo.data.random_split(range(10), [0.8, 0.2], seed=1)
    >>> len(train), len(test), sorted([train[i] for i in range(8)] + [test[0], test[1]]) == list(range(10))
    (8, 2, True)
    """
    if not isinstance(lengths, Sequence) or isinstance(lengths, str) or not len(lengths):
        raise fail(ArgumentError, "random_split", f"lengths={shown(lengths)} is not a list of numbers")
    sizes = _sizes(lengths, len(dataset))
    generator = seed if hasattr(seed, "initial_seed") else generator
    seed = seed if generator is None else generator.initial_seed()
    order = permuted(np.arange(len(dataset)), len(dataset), seed).tolist()
    ends = np.cumsum(sizes).tolist()
    return [Subset(dataset, order[end - size:end]) for size, end in zip(sizes, ends, strict=True)]


def _sizes(lengths: Sequence[float], count: int) -> list[int]:
    """Whole numbers of items; what shares leave over goes to the first parts, one each."""
    whole = [as_whole(length) for length in lengths]
    if all(length is not None and length >= 0 for length in whole) and sum(whole) == count:  # type: ignore[arg-type]
        return [int(length) for length in whole]  # type: ignore[arg-type]
    shares = [as_real(length) for length in lengths]
    if any(share is None or not 0 <= share <= 1 for share in shares) or not math.isclose(
            math.fsum(shares), 1.0):  # type: ignore[arg-type]
        raise fail(ArgumentError, "random_split", f"lengths={shown(list(lengths))} are neither {count} items in all "
                                                  "nor shares that add up to 1")
    sizes = [math.floor(count * share) for share in shares]  # type: ignore[operator]
    for number in range(count - sum(sizes)):
        sizes[number % len(sizes)] += 1
    return sizes
