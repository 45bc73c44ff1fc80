"""NumPy's `np.random.random(size)` and its like: draws without a generator, from the stream of `mo.manual_seed`."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.nn.random import next_key


def _shape(size: Any) -> tuple[int, ...]:
    return () if size is None else (size,) if isinstance(size, int) else tuple(size)


def random(size: Any = None) -> mo.Tensor:
    return mo.random.uniform(next_key(), _shape(size))


def standard_normal(size: Any = None) -> mo.Tensor:
    return mo.random.normal(next_key(), _shape(size))


def integers(low: int, high: int | None = None, size: Any = None) -> mo.Tensor:
    low, high = (0, low) if high is None else (low, high)
    return mo.random.randint(next_key(), _shape(size), low, high)


def shuffle(x: mo.Tensor) -> None:
    x[...] = mo.random.permutation(next_key(), x)
