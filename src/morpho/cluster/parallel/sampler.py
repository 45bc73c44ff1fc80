"""`DistributedSampler`: each rank its part of every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, fail
from morpho.cluster import world
from morpho.data.order import permuted
from morpho.data.samplers import Sampler
from morpho.runtime.groups.group import Group


class DistributedSampler(Sampler):
    """The items of this rank: of one order that all ranks draw, every `size`-th. Ranks have equally many: the first
    items come a second time where they do not divide, or the last ones are left out with `drop_last`. `start` leaves
    out items that were seen already, so that another number of ranks goes on where the last one was.

    >>> sampler = mo.cluster.DistributedSampler(range(5), shuffle=False)
    >>> list(sampler)
    [0, 1, 2, 3, 4]
    """

    def __init__(self, dataset: Any, group: Group | None = None, shuffle: bool = True, seed: int = 0,
                 drop_last: bool = False, start: int = 0) -> None:
        self._group = world.init() if group is None else group
        self.dataset, self.shuffle, self.seed, self.drop_last, self.start = dataset, shuffle, seed, drop_last, start
        if not hasattr(dataset, "__len__") or not len(dataset):
            raise fail(ArgumentError, "DistributedSampler", "there are no items to draw from")
        if not 0 <= start <= len(dataset):
            raise fail(ArgumentError, "DistributedSampler", f"start={start} is not among {len(dataset)} items")

    def __len__(self) -> int:
        left, ranks = len(self.dataset) - self.start, self._group.size
        return left // ranks if self.drop_last else -(-left // ranks)

    def __iter__(self) -> Iterator[int]:
        count, ranks = len(self.dataset), self._group.size
        order = np.arange(count)
        if self.shuffle:
            order = permuted(order, count, self.seed, self.epoch)
        order = order[self.start:]
        total = len(self) * ranks
        order = np.resize(order, total) if len(order) else order  # the first ones again, or without the last
        return iter(order[self._group.rank::ranks].tolist())
