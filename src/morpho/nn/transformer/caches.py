"""Caches of decoding beside an encoder, and several texts' caches as those of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import morpho as mo
from morpho.nn.transformer.attention import KeyValueCache, RowCaches, attend


class Caches:
    """Keys and values of the decoder's own tokens, and of the encoder's results with their lengths; without `batch` the
    encoder's results have one length, all of the cache."""

    def __init__(self, own: list[KeyValueCache], cross: list[KeyValueCache], batch: int | None) -> None:
        self.own, self.cross = own, cross
        self.lengths: Any = None if batch is None else mo.State(mo.zeros((batch,), dtype=mo.int64))

    def over(self, layer: int, q: mo.Tensor, scale: float | None = None) -> mo.Tensor:
        """Attention of (batch, heads, n, depth) over what a layer keeps of the encoder's results."""
        cache, seen = self.cross[layer], None
        if self.lengths is not None:
            lengths = mo.reshape(self.lengths.value, (-1, 1, 1, 1))
            seen = mo.reshape(mo.arange(cache.length), (1, 1, 1, -1)) < lengths
        keys, values = cache.keys.value.astype(q.dtype), cache.values.value.astype(q.dtype)
        return attend(q, keys, values, mask=seen, scale=scale)


class JoinedCaches:
    """The `Caches` of several texts, a row of a batch each: attention goes row by row."""

    def __init__(self, rows: Sequence[Caches]) -> None:
        self.rows, self.own = tuple(rows), _by_layer([each.own for each in rows])

    def over(self, layer: int, q: mo.Tensor, scale: float | None = None) -> mo.Tensor:
        """As `Caches.over`, of each row over its own text."""
        return mo.concat([each.over(layer, q[row:row + 1], scale) for row, each in enumerate(self.rows)], axis=0)


def joined(texts: Sequence[Any]) -> Any:
    """Join caches of one text each into those of a batch."""
    return JoinedCaches(texts) if isinstance(texts[0], Caches) else _by_layer(texts)


def _by_layer(texts: Sequence[Sequence[KeyValueCache]]) -> list[RowCaches]:
    return [RowCaches(layer) for layer in zip(*texts, strict=True)]
