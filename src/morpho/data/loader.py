"""`DataLoader`: batches in an order that seed and epoch decide, made by threads while the last one is computed with.

The threads share one ticket counter and hand in batches by number, so any number of them gives the same sequence. They
never run further ahead than `prefetch_factor` batches each, stop when the loop over the loader is left, and hold
nothing of it: a loop that is dropped takes them along. What a dataset raises is raised in the loop, at the batch where
it happened.
"""

from __future__ import annotations

import contextvars
import itertools
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from morpho.backends.registry import canonical
from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, TaskError, fail
from morpho.data.dataset import IterableDataset, default_collate, own_batch
from morpho.data.order import permuted
from morpho.data.samplers import BatchSampler
from morpho.data.to_device import ahead_on
from morpho.runtime.trace.spans import span
from morpho.tensor.tools.foreign_calls import hinted

Make = Callable[[int], Any]  # a batch by its number


class DataLoader:
    """Batches of a dataset, an epoch per loop.

    dataset: something with a length and numbered items, see `Dataset`; or a stream, see `IterableDataset`.
    shuffle, seed: each epoch in a random order of its own, that of (seed, epoch), whatever `num_workers` is.
    sampler, batch_sampler: another order: numbers of items, or lists of them for batches; see `Sampler`.
    num_workers: threads that make batches; 0 makes each when it is asked for. Reading, NumPy and Morpho run beside
        Python.
    device: where batches go, one ahead of the loop: while the GPU works on one, the next is copied beside it.
    prefetch_factor: how many batches for each worker may be ready or in the making ahead of the loop.
    drop_last: leave out a last batch that is not full.
    collate_fn: what makes a batch of a list of items; without it `mo.data.default_collate`, or the dataset's own
        `batch`.

    `state_dict()` names the next batch; a loader that loads it goes on exactly there. A loop that is left early ends
    its epoch: the next one begins the next epoch.

    >>> numbers = mo.data.TensorDataset(mo.arange(6))
    >>> loader = mo.data.DataLoader(numbers, batch_size=2, shuffle=True, seed=1, num_workers=2)
    >>> sorted(sum([x.tolist() for x, in loader], []))
    [0, 1, 2, 3, 4, 5]
    >>> len(loader), loader.state_dict()["epoch"]
    (3, 1)
    """

    @hinted
    def __init__(self, dataset: Any, batch_size: int = 1, shuffle: bool = False, sampler: Any = None,
                 batch_sampler: Any = None, num_workers: int = 0,
                 collate_fn: Callable[[Sequence[Any]], Any] | None = None, *, drop_last: bool = False,
                 prefetch_factor: int = 2, seed: int = 0, device: str | None = None) -> None:
        self.is_stream = isinstance(dataset, IterableDataset) or (
            hasattr(dataset, "__iter__") and not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")))
        if not self.is_stream and (not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__")):
            raise fail(ArgumentError, "DataLoader", f"{type(dataset).__name__} has no length or no numbered items",
                       "define __len__ and __getitem__, or __iter__")
        numbers = []
        for name, value, least in (("batch_size", batch_size, 1), ("num_workers", num_workers, 0),
                                   ("prefetch_factor", prefetch_factor, 1)):
            number = as_whole(value)
            if number is None or number < least:
                raise fail(ArgumentError, "DataLoader", f"{name}={value!r} is not an integer of at least {least}")
            numbers.append(number)
        self.batch_size, self.num_workers, self.prefetch_factor = numbers
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.drop_last, self.collate_fn = drop_last, collate_fn
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.device = None if device is None else canonical(device, "DataLoader")
        self._check_order()
        self.epoch = self.position = 0  # of the next batch
        self._begun = False  # whether a loop is in this epoch, or was

    def _check_order(self) -> None:
        """One thing alone says what comes when."""
        given = [name for name, is_given in (
            ("shuffle", self.shuffle), ("sampler", self.sampler is not None),
            ("batch_sampler", self.batch_sampler is not None)) if is_given]
        if len(given) > 1:
            raise fail(ArgumentError, "DataLoader", f"{' and '.join(given)} both set the order of items", "give one")
        if self.batch_sampler is not None and (self.batch_size != 1 or self.drop_last):
            raise fail(ArgumentError, "DataLoader", "a batch_sampler says itself how large batches are",
                       "leave batch_size and drop_last out")
        if self.is_stream and given:
            raise fail(ArgumentError, "DataLoader", f"the items of {type(self.dataset).__name__} come as they come, "
                                                    f"and {given[0]} is given", "shuffle in its __iter__")
        for name in ("sampler", "batch_sampler"):
            one = vars(self)[name]
            if one is not None and not hasattr(one, "__iter__"):
                raise fail(ArgumentError, "DataLoader", f"{name} of type {type(one).__name__} has no order",
                           "define __iter__ and __len__")

    def __len__(self) -> int:
        """Batches of an epoch."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        items = self._items()
        if items is None:
            raise fail(ArgumentError, "DataLoader", f"{type(self.dataset).__name__} has no length")
        return items // self.batch_size if self.drop_last else -(-items // self.batch_size)

    def _items(self) -> int | None:
        """Items of an epoch; None where nobody knows."""
        source = self.dataset if self.sampler is None else self.sampler
        return len(source) if hasattr(source, "__len__") else None

    def __iter__(self) -> Iterator[Any]:
        if self._begun:
            self.epoch, self.position = self.epoch + 1, 0
        self._begun = True
        epoch = self.epoch
        source = self._source(epoch)
        try:
            for batch in source if self.device is None else ahead_on(self.device, source):
                if self.epoch != epoch:
                    raise fail(ArgumentError, "DataLoader", "another loop over this loader was begun",
                               "use a loader for each")
                self.position += 1
                yield batch
            self.epoch, self.position, self._begun = epoch + 1, 0, False
        finally:
            source.close()

    def _source(self, epoch: int) -> Any:
        """The batches of an epoch that are still to come."""
        for one in (self.sampler, self.batch_sampler, self.dataset):
            if hasattr(one, "set_epoch"):
                one.set_epoch(epoch)
        if self.is_stream:
            workers = min(self.num_workers, 1)  # one thread reads a stream, for its items come one after another
            maker = _stream_maker(self.dataset, self.batch_size, self.drop_last, self.collate_fn, self.position)
            return _until_the_end(_batches(maker, self.position, sys.maxsize, workers,
                                           self.prefetch_factor * self.num_workers))
        if self.sampler is None and self.batch_sampler is None:
            order, count = self._order(epoch), len(self)
        else:
            batches = self.batch_sampler if self.batch_sampler is not None else BatchSampler(
                self.sampler, self.batch_size, self.drop_last)
            listed = [np.asarray(batch, np.int64) for batch in batches]
            order, count = listed.__getitem__, len(listed)
        make = _maker(self.dataset, self.collate_fn, order)
        return _batches(make, self.position, count, self.num_workers, self.prefetch_factor * self.num_workers)

    def _order(self, epoch: int) -> Callable[[int], np.ndarray]:
        """The items of a batch by its number, computed where it is asked for."""
        size, count, seed, shuffle = self.batch_size, len(self.dataset), self.seed, self.shuffle

        def order(number: int) -> np.ndarray:
            places = np.arange(number * size, min((number + 1) * size, count))
            return permuted(places, count, seed, epoch) if shuffle else places

        return order

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands, as plain numbers: the batch that comes next."""
        # In the midst of the last batch the next one is that of another epoch; of a stream nobody knows its last.
        over = not self.is_stream and self.position >= len(self)
        return {"epoch": self.epoch + over, "position": 0 if over else self.position, "seed": self.seed,
                "batch_size": self.batch_size, "items": self._items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken: the next loop begins with that batch."""
        for name, own in (("batch_size", self.batch_size), ("items", self._items())):
            if saved[name] != own:
                raise fail(ArgumentError, "DataLoader", f"the saved position is of {name}={saved[name]}, not {own}")
        self.seed, self.epoch, self.position = int(saved["seed"]), int(saved["epoch"]), int(saved["position"])
        self._begun = False


def _maker(dataset: Any, collate_fn: Callable[..., Any] | None, order: Callable[[int], np.ndarray]) -> Make:
    """Function that makes a batch by its number; it holds the dataset, not the loader."""
    together = own_batch(dataset) if collate_fn is None else None
    several = getattr(dataset, "__getitems__", None)  # PyTorch's name, which Hugging Face's datasets have too

    def make(number: int) -> Any:
        numbers = order(number)
        if together is not None:
            return together(numbers)
        items = several(numbers.tolist()) if several is not None else [dataset[item] for item in numbers.tolist()]
        return (collate_fn or default_collate)(items)

    return make


END = object()  # of a stream, in place of a batch


def _stream_maker(dataset: Any, size: int, drop_last: bool, collate_fn: Callable[..., Any] | None,
                  skipped: int) -> Make:
    """Function that makes the next batch of a stream; the first `skipped` batches are read and dropped."""
    items = iter(dataset)
    for _ in itertools.islice(items, skipped * size):
        pass

    def make(number: int) -> Any:
        found = list(itertools.islice(items, size))
        if not found or (drop_last and len(found) < size):
            return END
        return (collate_fn or default_collate)(found)

    return make


def _until_the_end(source: Any) -> Iterator[Any]:
    try:
        for batch in source:
            if batch is END:
                return
            yield batch
    finally:
        source.close()


def _batches(make: Make, start: int, end: int, workers: int, ahead: int) -> Generator[Any, None, None]:
    """Batches start..end in order, in this thread or from a crew."""
    if not workers:
        for number in range(start, end):
            with span("data", "make a batch"):
                batch = make(number)
            yield batch
        return
    crew = _Crew(make, start, end, ahead)
    crew.start(workers)
    try:
        for _ in range(start, end):
            with span("data", "wait for a batch") as told:
                told["workers"] = workers
                batch = crew.take()
            yield batch
    finally:
        crew.close()


class _Crew:
    """Threads that make numbered batches, never more than `ahead` of what was taken."""

    def __init__(self, make: Make, start: int, end: int, ahead: int) -> None:
        self.make, self.end, self.ahead = make, end, ahead
        self.next_ticket = self.taken = start
        self.ready: dict[int, tuple[bool, Any]] = {}  # number -> whether it was made, and it or the error
        self.closed = False
        self.changed = threading.Condition()
        self.process = os.getpid()
        self.threads: list[threading.Thread] = []

    def start(self, workers: int) -> None:
        for number in range(min(workers, max(self.end - self.taken, 0))):
            context = contextvars.copy_context()  # the settings of whoever asked hold in the threads
            thread = threading.Thread(target=context.run, args=(self._work,), daemon=True,
                                      name=f"morpho-loader-{number}")
            self.threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            with self.changed:
                while not self.closed and self.next_ticket < self.end and self.next_ticket >= self.taken + self.ahead:
                    self.changed.wait()
                if self.closed or self.next_ticket >= self.end:
                    return
                number, self.next_ticket = self.next_ticket, self.next_ticket + 1
            try:
                result = (True, self.make(number))
            except BaseException as error:
                result = (False, error)
            with self.changed:
                self.ready[number] = result
                self.changed.notify_all()
            del result  # the consumer alone holds a batch it took

    def take(self) -> Any:
        """The next batch in order; what its maker raised is raised here."""
        if os.getpid() != self.process:
            raise fail(TaskError, "DataLoader", "the threads of this loop are those of the parent process",
                       "begin the loop in the process that uses it")
        with self.changed:
            while self.taken not in self.ready:
                self.changed.wait()
            made, value = self.ready.pop(self.taken)
            self.taken += 1
            self.changed.notify_all()
        if not made:
            raise value
        return value

    def close(self) -> None:
        """Let the threads end: each finishes the batch it is making."""
        with self.changed:
            self.closed = True
            self.ready.clear()
            self.changed.notify_all()
        if os.getpid() == self.process:
            for thread in self.threads:
                if thread is not threading.current_thread():
                    thread.join()


