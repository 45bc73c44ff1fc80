"""Samplers: the order in which a loader takes the items of a dataset, as numbers, or as lists of numbers for batches.

A sampler that draws has a seed, and an order of its own for every epoch: the loader says which with `set_epoch`, so
that a run which is taken up again sees the same items. One without `set_epoch` is asked for its order anew in every
epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from morpho.base.checks import as_whole, shown
from morpho.base.errors import ArgumentError, fail
from morpho.data.order import drawn, permuted, uniform


class Sampler:
    """An order of items. Write `__iter__`, which gives numbers, and `__len__`.

    >>> class Backwards(mo.data.Sampler):
    ...     def __init__(self, data): self.data = data
    ...     def __iter__(self): return iter(range(len(self.data) - 1, -1, -1))
    ...     def __len__(self): return len(self.data)
    >>> letters = ["a", "b", "c"]
    >>> list(mo.data.DataLoader(letters, batch_size=2, sampler=Backwards(letters)))
    [['c', 'b'], ['a']]
    """

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose order is asked for next."""
        self.epoch = int(epoch)

    def __iter__(self) -> Iterator[Any]:
        raise fail(ArgumentError, type(self).__name__, "the sampler has no order", "define __iter__(self)")

    def __len__(self) -> int:
        raise fail(ArgumentError, type(self).__name__, "the sampler has no length", "define __len__(self)")


def _count(name: str, what: str, value: Any, least: int = 1) -> int:
    number = as_whole(value)
    if number is None or number < least:
        raise fail(ArgumentError, name, f"{what}={shown(value)} is not an integer of at least {least}")
    return number


def _sized(name: str, data_source: Any) -> Any:
    if not hasattr(data_source, "__len__"):
        raise fail(ArgumentError, name, f"{type(data_source).__name__} has no length")
    return data_source


class SequentialSampler(Sampler):
    """All items in their order.

    >>> list(mo.data.SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Any) -> None:
        self.data_source = _sized("SequentialSampler", data_source)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """Items in random order: each once, or drawn anew every time with `replacement`; `num_samples` of them, as many as
    there are by default.

    >>> sorted(mo.data.RandomSampler("abc", seed=1))
    [0, 1, 2]
    """

    def __init__(self, data_source: Any, replacement: bool = False, num_samples: int | None = None,
                 seed: int = 0) -> None:
        self.data_source, self.replacement, self.seed = _sized("RandomSampler", data_source), replacement, seed
        self._samples = None if num_samples is None else _count("RandomSampler", "num_samples", num_samples)
        if not len(data_source):
            raise fail(ArgumentError, "RandomSampler", "there are no items to draw from")

    @property
    def num_samples(self) -> int:
        """Items of an epoch."""
        return len(self.data_source) if self._samples is None else self._samples

    def __iter__(self) -> Iterator[int]:
        count, wanted = len(self.data_source), self.num_samples
        if self.replacement:
            yield from drawn(wanted, count, self.seed, self.epoch).tolist()
            return
        for turn in range(-(-wanted // count)):  # more than there are: one order after another
            part = np.arange(min(count, wanted - turn * count))
            yield from permuted(part, count, self.seed + turn, self.epoch).tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Some items, by their numbers, in random order.

    >>> sorted(mo.data.SubsetRandomSampler([4, 2, 7]))
    [2, 4, 7]
    """

    def __init__(self, indices: Sequence[int], seed: int = 0) -> None:
        self.indices, self.seed = _numbers("SubsetRandomSampler", indices), seed

    def __iter__(self) -> Iterator[int]:
        count = len(self.indices)
        return iter(self.indices[permuted(np.arange(count), count, self.seed, self.epoch)].tolist() if count else [])

    def __len__(self) -> int:
        return len(self.indices)


def _numbers(name: str, indices: Any) -> np.ndarray:
    """Numbers of items as an array."""
    try:
        found = np.asarray(indices.numpy() if hasattr(indices, "numpy") else list(indices))
    except TypeError:
        raise fail(ArgumentError, name, f"indices={shown(indices)} is not a list of numbers") from None
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise fail(ArgumentError, name, f"indices={shown(indices)} is not a list of whole numbers")
    return found.astype(np.int64)


class WeightedRandomSampler(Sampler):
    """Items drawn with probabilities in the ratio of their `weights`: each anew with `replacement`, or no one twice.

    >>> list(mo.data.WeightedRandomSampler([0.0, 1.0, 0.0], 3))
    [1, 1, 1]
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, seed: int = 0) -> None:
        name = "WeightedRandomSampler"
        self.num_samples, self.replacement, self.seed = _count(name, "num_samples", num_samples), replacement, seed
        self.weights = np.asarray(weights.numpy() if hasattr(weights, "numpy") else weights, np.float64)
        fits = self.weights.ndim == 1 and self.weights.size and np.isfinite(self.weights).all()
        if not fits or self.weights.min() < 0 or not self.weights.sum() > 0:
            raise fail(ArgumentError, name, f"weights={shown(weights)} are not numbers of at least 0 with a sum")
        if not replacement and self.num_samples > int((self.weights > 0).sum()):
            raise fail(ArgumentError, name, f"{self.num_samples} different items are asked for, and "
                                            f"{int((self.weights > 0).sum())} have a weight")

    def __iter__(self) -> Iterator[int]:
        if self.replacement:
            edges = np.cumsum(self.weights)
            places = uniform(self.num_samples, self.seed, self.epoch) * edges[-1]
            found = np.searchsorted(edges, places, side="right")
            return iter(np.minimum(found, np.flatnonzero(self.weights)[-1]).tolist())
        # The largest of u ** (1 / weight) are a draw without replacement (Efraimidis and Spirakis, 2006).
        draws = np.log(np.maximum(uniform(len(self.weights), self.seed, self.epoch), 1e-300))
        keys = np.full(len(self.weights), -np.inf)
        np.divide(draws, self.weights, out=keys, where=self.weights > 0)
        return iter(np.argsort(-keys, kind="stable")[:self.num_samples].tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """The numbers of a sampler in lists of `batch_size`; a last one that is not full is left out with `drop_last`.

    >>> list(mo.data.BatchSampler(mo.data.SequentialSampler("abcde"), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        self.sampler, self.drop_last = sampler, drop_last
        self.batch_size = _count("BatchSampler", "batch_size", batch_size)
        if not hasattr(sampler, "__iter__"):
            raise fail(ArgumentError, "BatchSampler", f"{type(sampler).__name__} is not a sampler")

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for number in self.sampler:
            batch.append(number)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        items = len(self.sampler)  # type: ignore[arg-type]
        return items // self.batch_size if self.drop_last else -(-items // self.batch_size)
