"""Sums, means or largest elements of rows of a table: an embedding of bags of words."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.checks import check_sizes, shown
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.nn import init
from morpho.nn.layers.linear import check_padding
from morpho.nn.module import Module
from morpho.tensor.convert import following
from morpho.tensor.state.trace import current_trace
from morpho.tensor.state.variable import Parameter

MODES = ("sum", "mean", "max")


class EmbeddingBag(Module):
    """Rows of a table by number, reduced over each bag: the weight is (num_embeddings, embedding_dim).

    Bags are the rows of ids[B, N], or lie one after another in ids[N] with `offsets`[B], where each begins (with
    `include_last_offset` one more, the end). `mode` is "sum", "mean" or "max"; ids of `padding_idx` count for nothing,
    and an empty bag gives zeros. With "sum" every id may have one of `per_sample_weights`.

    >>> bag = mo.nn.EmbeddingBag(10, 4)
    >>> bag(mo.asarray([[1, 2], [3, 3]])).shape, bag(mo.asarray([1, 2, 3]), mo.asarray([0, 2])).shape
    ((2, 4), (2, 4))
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, mode: str = "mean",
                 include_last_offset: bool = False, padding_idx: int | None = None, dtype: Any = mo.float32) -> None:
        check_sizes("EmbeddingBag", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        if mode not in MODES:
            raise fail(ArgumentError, "EmbeddingBag", f"mode {shown(mode)} is unknown", "one of " + ", ".join(MODES))
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.include_last_offset = include_last_offset
        self.padding_idx = check_padding("EmbeddingBag", padding_idx, num_embeddings)
        table = init.normal((num_embeddings, embedding_dim), 1.0, dtype=dtype)
        if self.padding_idx is not None:
            table = mo.where(mo.arange(num_embeddings)[:, None] == self.padding_idx, mo.zeros((), dtype=dtype), table)
        self.weight = Parameter(table)

    def forward(self, input: mo.Tensor, offsets: Any = None, per_sample_weights: Any = None) -> mo.Tensor:
        name, ids = "EmbeddingBag", following(input)
        if (ids.ndim, offsets is None) not in ((2, True), (1, False)):
            raise fail(ShapeError, name, f"ids of shape {tuple(ids.shape)} {'without' if offsets is None else 'with'} "
                                         "offsets are no bags", "ids[B, N] come without offsets, ids[N] with them")
        shares = None
        if per_sample_weights is not None:
            shares = following(per_sample_weights)
            if self.mode != "sum" or shares.shape != ids.shape:
                raise fail(ArgumentError, name, f"per_sample_weights of shape {tuple(shares.shape)} do not fit ids of "
                                                f"{tuple(ids.shape)} and mode {self.mode!r}", "they are for mode='sum'")
        rows = mo.embedding(self.weight, ids)  # (..., embedding_dim)
        counts = mo.ones(ids.shape, dtype=mo.bool) if self.padding_idx is None else ids != self.padding_idx
        if shares is not None:
            rows = rows * mo.expand_dims(shares.astype(rows.dtype), axis=-1)
        if offsets is None:
            return self._reduced(rows, counts)
        places, inside, bags = self._places(name, following(offsets), ids.shape[0])
        return self._spread(rows, mo.logical_and(counts, inside), places, bags)

    def _reduced(self, rows: mo.Tensor, counts: mo.Tensor) -> mo.Tensor:
        """Over axis 1 of rows[B, N, embedding_dim], where counts[B, N]."""
        counted = mo.expand_dims(counts, axis=-1)
        zero = mo.zeros((), dtype=rows.dtype)
        if self.mode == "max":
            largest = mo.max(mo.where(counted, rows, mo.full((), -mo.inf, dtype=rows.dtype)), axis=1)
            return mo.where(mo.any(counted, axis=1), largest, zero)
        total = mo.sum(mo.where(counted, rows, zero), axis=1)
        if self.mode == "sum":
            return total
        return total / mo.maximum(mo.sum(counted.astype(rows.dtype), axis=1), 1)

    def _places(self, name: str, offsets: mo.Tensor, count: Any) -> tuple[mo.Tensor, mo.Tensor, Any]:
        """The bag of every id, whether it lies in one, and the number of bags."""
        if offsets.ndim != 1 or not offsets.dtype.is_integer or not offsets.shape[0]:
            raise fail(DTypeError, name, f"offsets {offsets.dtype}{tuple(offsets.shape)} are not a row of integers")
        bags = offsets.shape[0] - 1 if self.include_last_offset else offsets.shape[0]
        if current_trace() is None:  # inside a compiled function what lies before the first bag counts for nothing
            values = offsets.numpy()
            if values[0] or (values[1:] < values[:-1]).any() or values[-1] > count:
                raise fail(ArgumentError, name, f"offsets {shown(values.tolist())} do not ascend from 0 to at most "
                                                f"{count}")
        ids, starts = mo.arange(count, dtype=mo.int64), offsets[:bags].astype(mo.int64)
        places = mo.searchsorted(starts, ids, side="right") - 1
        inside = places >= 0
        if self.include_last_offset:
            inside = mo.logical_and(inside, ids < offsets[bags])
        return mo.maximum(places, 0), inside, bags

    def _spread(self, rows: mo.Tensor, counts: mo.Tensor, places: mo.Tensor, bags: Any) -> mo.Tensor:
        """Over the bags that rows[N, embedding_dim] lie in."""
        if self.mode == "max":  # every bag looks at all rows
            mine = mo.logical_and(mo.expand_dims(places, axis=0) == mo.arange(bags)[:, None], counts)
            return self._reduced(mo.broadcast_to(rows, (bags, *rows.shape)), mine)
        counted = mo.expand_dims(counts, axis=-1).astype(rows.dtype)
        index = mo.broadcast_to(mo.expand_dims(places, axis=-1), rows.shape)
        total = mo.scatter_add(mo.zeros((bags, self.embedding_dim), dtype=rows.dtype), index, rows * counted, axis=0)
        if self.mode == "sum":
            return total
        number = mo.scatter_add(mo.zeros((bags, 1), dtype=rows.dtype), index[:, :1], counted, axis=0)
        return total / mo.maximum(number, 1)

    def describe(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"
