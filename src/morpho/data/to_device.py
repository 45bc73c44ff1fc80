"""Batches on their way to a device: the next one is copied while the loop works with the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from morpho.backends.registry import HOST, memory_of
from morpho.base.trees import flatten, unflatten
from morpho.runtime.memory.device_memory import upload
from morpho.tensor.core import Tensor


def ahead_on(device: str, batches: Iterable[Any]) -> Iterator[Any]:
    """Every batch with its tensors and arrays on a device; a batch is begun before the one before it is given out.

    >>> import morpho as mo
    >>> [batch["x"].tolist() for batch in ahead_on("cpu", [{"x": mo.ones(2)}, {"x": mo.zeros(2)}])]
    [[1.0, 1.0], [0.0, 0.0]]
    """
    memory = memory_of(device)
    if memory == HOST:
        yield from batches
        return
    waiting: list[Any] = []
    for batch in batches:
        leaves: list[Any] = []
        structure = flatten(batch, leaves)
        waiting.append(unflatten(structure, iter([_copied(leaf, memory) for leaf in leaves])))
        if len(waiting) > 1:
            yield waiting.pop(0)
    yield from waiting


def _copied(leaf: Any, memory: str) -> Any:
    """A tensor or an array on its way; whatever else as it is."""
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind not in "OSU":
        leaf = Tensor.of_buffer(_borrowed(leaf))
    if not isinstance(leaf, Tensor) or leaf.device == memory:
        return leaf
    buffer = leaf.elements()
    return Tensor.of_buffer(upload(buffer.numpy(), buffer.dtype, memory, ahead=True))


def _borrowed(array: np.ndarray) -> Any:
    from morpho.tensor import convert

    return convert.borrowed(array).elements()
