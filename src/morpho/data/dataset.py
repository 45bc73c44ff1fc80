"""Datasets: something with a length whose items are numbered, and how items become a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail


class Dataset:
    """Items by number. Write `__len__` and `__getitem__`; where many items are cheaper than one by one, also
    `batch(numbers)`, which gives what `default_collate` would. Any object with a length and numbered items will do as
    well.

    >>> class Squares(mo.data.Dataset):
    ...     def __len__(self): return 4
    ...     def __getitem__(self, number): return np.float32(number ** 2)
    >>> next(iter(mo.data.DataLoader(Squares(), batch_size=4))).tolist()
    [0.0, 1.0, 4.0, 9.0]
    """

    def __len__(self) -> int:
        raise fail(ArgumentError, type(self).__name__, "the dataset has no length", "define __len__(self)")

    def __getitem__(self, number: int) -> Any:
        raise fail(ArgumentError, type(self).__name__, "the dataset has no items", "define __getitem__(self, number)")


class IterableDataset:
    """Items one after another, of which no one has a number: a stream. Write `__iter__`; a loader takes them as they
    come, in one thread where it has workers. With `set_epoch(epoch)` it is told the epoch before each loop.

    >>> class Squares(mo.data.IterableDataset):
    ...     def __iter__(self): return (float(n * n) for n in range(5))
    >>> [batch.tolist() for batch in mo.data.DataLoader(Squares(), batch_size=2)]
    [[0.0, 1.0], [4.0, 9.0], [16.0]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise fail(ArgumentError, type(self).__name__, "the dataset has no items", "define __iter__(self)")


class TensorDataset(Dataset):
    """The rows of one or more tensors or arrays of equal length; an item is a tuple of rows.

    >>> mo.data.TensorDataset(mo.arange(3), mo.ones((3, 2)))[1][0].item()
    1
    """

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise fail(ArgumentError, "TensorDataset", "no tensor is given")
        self.tensors = [mo.asarray(tensor).realise() for tensor in tensors]
        lengths = {tensor.shape[0] if tensor.ndim else None for tensor in self.tensors}
        if len(lengths) != 1 or None in lengths:
            raise fail(ShapeError, "TensorDataset", "the tensors have the shapes "
                       + ", ".join(str(tensor.shape) for tensor in self.tensors), "their first axes must be equal")

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])

    def __getitem__(self, number: int) -> tuple[mo.Tensor, ...]:
        return tuple(tensor[number] for tensor in self.tensors)

    def batch(self, numbers: np.ndarray) -> tuple[mo.Tensor, ...]:
        """Several rows at once, without a program of their own."""
        return tuple(_taken(tensor, numbers) for tensor in self.tensors)


def _taken(tensor: mo.Tensor, numbers: np.ndarray) -> mo.Tensor:
    if tensor.dtype is mo.bfloat16:  # NumPy has none: its numbers pass as float32, without loss
        return mo.asarray(tensor.numpy()[numbers]).astype(mo.bfloat16).realise()
    return mo.asarray(np.take(tensor.numpy(), numbers, axis=0), copy=False)


def own_batch(dataset: Any) -> Any:
    """How a dataset makes a batch of several numbers by itself, None where it does not. Other libraries' datasets have
    a `batch` of another meaning."""
    return None if type(dataset).__module__.partition(".")[0] == "datasets" else getattr(dataset, "batch", None)


def default_collate(batch: Sequence[Any]) -> Any:
    """Items as one batch: arrays and numbers stacked into tensors, tuples, lists and dicts part by part.

    >>> batch = mo.data.default_collate([(1.0, {"n": 1}), (2.0, {"n": 2})])
    >>> batch[0].tolist(), batch[1]["n"].tolist()
    ([1.0, 2.0], [1, 2])
    """
    items = list(batch)
    if not items:
        raise fail(ArgumentError, "default_collate", "a batch has no items")
    first = items[0]
    if isinstance(first, dict):
        return {key: default_collate([item[key] for item in items]) for key in first}
    if isinstance(first, tuple | list):
        parts = [default_collate(part) for part in zip(*items, strict=True)]
        return tuple(parts) if isinstance(first, tuple) else parts
    if isinstance(first, mo.Tensor):
        return mo.stack(items).realise()
    if isinstance(first, str | bytes):
        return items
    if isinstance(first, float):
        return mo.asarray(np.array(items, np.float32))
    try:
        return mo.asarray(np.stack([np.asarray(item) for item in items]))
    except ValueError:
        shapes = sorted({str(np.shape(item)) for item in items})
        raise fail(ShapeError, "default_collate", f"items of the shapes {', '.join(shapes)} do not stack",
                   "pad them, or give the loader a collate_fn") from None
