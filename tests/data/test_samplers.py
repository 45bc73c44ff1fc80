"""Samplers, subsets and streams: orders that seed and epoch decide, and loaders that take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import data
from morpho.base.errors import ArgumentError

LETTERS = list("abcdefghijk")


def test_a_random_order_depends_on_seed_and_epoch() -> None:
    for sampler in (data.RandomSampler(LETTERS, seed=3), data.SubsetRandomSampler(range(11), seed=3)):
        first, again = list(sampler), list(sampler)
        assert sorted(first) == list(range(11)) and first == again and len(sampler) == 11
        sampler.set_epoch(1)
        assert sorted(sampler) == sorted(first) and list(sampler) != first
    assert list(data.RandomSampler(LETTERS, seed=4)) != list(data.RandomSampler(LETTERS, seed=3))
    assert len(list(data.RandomSampler(LETTERS, num_samples=25))) == 25
    part = list(data.RandomSampler(LETTERS, num_samples=5))
    assert len(set(part)) == 5 and set(part) <= set(range(11))


def test_draws_with_replacement_are_even() -> None:
    found = np.bincount(list(data.RandomSampler(range(10), replacement=True, num_samples=20_000, seed=5)))
    assert len(found) == 10 and abs(found - 2000).max() < 250  # more than five standard deviations


@pytest.mark.parametrize("replacement", [True, False])
def test_weights_are_ratios(replacement: bool) -> None:
    weights = [0.0, 1.0, 3.0, 0.0, 4.0]
    firsts = []
    sampler = data.WeightedRandomSampler(weights, 3, replacement, seed=1)
    for epoch in range(2000):
        sampler.set_epoch(epoch)
        drawn = list(sampler)
        assert len(drawn) == 3 and (replacement or sorted(drawn) == [1, 2, 4])
        firsts.append(drawn[0])
    share = np.bincount(firsts, minlength=5) / 2000
    np.testing.assert_allclose(share, np.array(weights) / 8, atol=0.06)


def test_a_loader_takes_samplers() -> None:
    """Of items and of batches, with any number of workers, and goes on in the midst of an epoch."""
    def make(**how: Any) -> data.DataLoader:
        return data.DataLoader(LETTERS, batch_size=3, sampler=data.RandomSampler(LETTERS, seed=7), **how)

    whole = list(make())
    assert sorted(letter for batch in whole for letter in batch) == LETTERS
    assert len(make()) == 4 and len(make(drop_last=True)) == 3
    loaders = [make(num_workers=workers) for workers in (0, 2)]
    epochs = [[list(loader) for _ in range(2)] for loader in loaders]
    assert epochs[0] == epochs[1] and epochs[0][0] != epochs[0][1]
    half = make()
    for _, _ in zip(range(2), half, strict=False):
        pass
    saved = half.state_dict()
    later = make(num_workers=1)
    later.load_state_dict(saved)
    assert list(later) == whole[2:]
    pairs = data.BatchSampler(data.SequentialSampler(LETTERS), 4, drop_last=True)
    assert list(data.DataLoader(LETTERS, batch_sampler=pairs)) == [LETTERS[:4], LETTERS[4:8]]
    assert len(data.DataLoader(LETTERS, batch_sampler=[[1, 2], [0]])) == 2


def test_subsets() -> None:
    rows = data.TensorDataset(mo.arange(6), mo.arange(6) * 10)
    part = data.Subset(rows, [5, 1, 3])
    assert [x.tolist() for x, _ in data.DataLoader(part, batch_size=2)] == [[5, 1], [3]]
    assert len(part) == 3 and part[0][1].item() == 50
    both = data.ConcatDataset([part, data.Subset(rows, [0])])
    assert [y.tolist() for _, y in data.DataLoader(both, batch_size=3)] == [[50, 10, 30], [0]]
    with pytest.raises(IndexError, match="item 4 is out of range: there are 4"):
        both[4]
    assert [len(one) for one in data.random_split(range(10), [3, 7])] == [3, 7]
    parts = data.random_split(range(10), [0.25, 0.25, 0.5], seed=2)
    assert [len(one) for one in parts] == [3, 2, 5]
    assert sorted(one[i] for one in parts for i in range(len(one))) == list(range(10))
    assert list(parts[0].indices) == list(data.random_split(range(10), [0.25, 0.25, 0.5], seed=2)[0].indices)


class Stream(data.IterableDataset):
    """Numbers from the epoch on."""

    def __init__(self, count: int) -> None:
        self.count, self.epoch, self.read = count, 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.read += 1
            yield number + 100 * self.epoch


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams(workers: int) -> None:
    loader = data.DataLoader(Stream(7), batch_size=3, num_workers=workers)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [batch.tolist() for batch in loader] == [[100, 101, 102], [103, 104, 105], [106]]
    short = data.DataLoader(Stream(7), batch_size=3, num_workers=workers, drop_last=True)
    assert [batch.tolist() for batch in short] == [[0, 1, 2], [3, 4, 5]]
    next(iter(loader))
    saved = loader.state_dict()
    later = data.DataLoader(Stream(7), batch_size=3, num_workers=workers)
    later.load_state_dict(saved)
    assert [batch.tolist() for batch in later] == [[203, 204, 205], [206]] and list(later)[0].tolist()[0] == 300
    with pytest.raises(ArgumentError, match="Stream has no length"):
        len(loader)


def test_a_stream_is_not_read_further_than_asked() -> None:
    stream = Stream(1000)
    loop = iter(data.DataLoader(stream, batch_size=2, num_workers=1, prefetch_factor=2))
    next(loop)
    loop.close()  # type: ignore[attr-defined]
    assert stream.read <= 2 * (1 + 2 + 1)


def test_a_stream_that_fails_says_so_in_the_loop() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    for workers in (0, 2):
        with pytest.raises(OSError, match="gone"):
            list(data.DataLoader(broken(), batch_size=1, num_workers=workers))


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: data.RandomSampler([]), "no items to draw"), (lambda: data.RandomSampler(3), "int has no length"),
    (lambda: data.RandomSampler([1], num_samples=0), "num_samples=0 is not an integer of at least 1"),
    (lambda: data.WeightedRandomSampler([1.0, -1.0], 2), "are not numbers of at least 0"),
    (lambda: data.WeightedRandomSampler([0.0, 0.0], 2), "are not numbers of at least 0 with a sum"),
    (lambda: data.WeightedRandomSampler([1.0, 0.0], 2, replacement=False), "2 different items .* 1 have a weight"),
    (lambda: data.BatchSampler([1], 0, False), "batch_size=0"), (lambda: data.BatchSampler(3, 2, False), "int is not"),
    (lambda: data.SubsetRandomSampler([0.5]), "is not a list of whole numbers"),
    (lambda: data.random_split(range(5), [2, 2]), "neither 5 items in all nor shares"),
    (lambda: data.random_split(range(5), 2), "lengths=2 is not a list"),
    (lambda: data.ConcatDataset([]), "no dataset"), (lambda: data.ConcatDataset([Stream(2)]), "Stream has no length"),
    (lambda: data.Subset(3, [1]), "int has no numbered items"), (lambda: next(iter(data.Sampler())), "no order"),
    (lambda: next(iter(data.IterableDataset())), "define __iter__"),
    (lambda: data.DataLoader([1], shuffle=True, sampler=[0]), "shuffle and sampler both set"),
    (lambda: data.DataLoader([1], batch_size=2, batch_sampler=[[0]]), "leave batch_size and drop_last out"),
    (lambda: data.DataLoader([1], sampler=3), "sampler of type int has no order"),
    (lambda: data.DataLoader(Stream(3), shuffle=True), "come as they come, and shuffle is given"),
    (lambda: data.DataLoader(3), "int has no length or no numbered items"),
]


@pytest.mark.parametrize(("call", "text"), WRONG)
def test_wrong_arguments(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        call()
