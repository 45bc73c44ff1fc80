"""Layers whose weights stay packed in blocks, as a GGUF file holds them; for use, not for training."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.nn.module import Module
from morpho.ops.neural.float8 import table
from morpho.ops.neural.quantised import BLOCK, BOOKS, LAYOUTS
from morpho.tensor.state.variable import Buffer


def _checked(name: str, weight: Any) -> None:
    if not isinstance(weight, mo.Quantised):
        raise fail(ArgumentError, name, f"a weight of {type(weight).__name__} is not packed", "use mo.quantise(...)")


class QuantisedLinear(Module):
    """x @ weight.T + bias with a packed weight (out_features, in_features), in the dtype of x.

    >>> layer = mo.nn.QuantisedLinear(mo.quantise(mo.ones((2, 32)), "q8_0"))
    >>> layer(mo.ones((3, 32))).shape
    (3, 2)
    """

    def __init__(self, weight: mo.Quantised, bias: Any = None) -> None:
        _checked("QuantisedLinear", weight)
        self.out_features, self.in_features = weight.shape
        self.weight = weight
        self.bias = None if bias is None else Buffer(bias)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        y = mo.matmul(x, self.weight)  # (..., in_features) -> (..., out_features)
        return y if self.bias is None else y + self.bias

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}, {self.weight.kind!r}"


class QuantisedEmbedding(Module):
    """Rows of a packed table (num_embeddings, embedding_dim) by number, as float32: each value is its code times its
    block's scale, plus its block's least value where the layout has one, to the bit as `weight.dequantise()`.

    >>> table = mo.nn.QuantisedEmbedding(mo.quantise(mo.ones((4, 32)), "q8_0"))
    >>> table(mo.asarray([[1, 2, 3]])).shape
    (1, 3, 32)
    """

    def __init__(self, weight: mo.Quantised, dtype: Any = mo.float32) -> None:
        _checked("QuantisedEmbedding", weight)
        self.num_embeddings, self.embedding_dim = weight.shape
        self.weight, self.dtype = weight, dtype
        codes, headers = _unpacked(weight)
        self._codes = mo.asarray(codes, copy=True)
        self._scales, *least = (mo.asarray(header, copy=True) for header in headers)
        self._least = least[0] if least else None
        float8 = LAYOUTS[weight.kind].float8
        self._values = mo.asarray(table(float8), copy=True) if float8 else None

    def forward(self, ids: mo.Tensor) -> mo.Tensor:
        codes = mo.embedding(self._codes, ids)  # (..., width)
        numbers = codes.astype(mo.float32) if self._values is None else mo.take(self._values, codes.astype(mo.int64),
                                                                                axis=0)
        scales = mo.expand_dims(mo.embedding(self._scales, ids), axis=-1)
        values = mo.reshape(numbers, (*codes.shape[:-1], scales.shape[-2], -1)) * scales
        if self._least is not None:
            values = values + mo.expand_dims(mo.embedding(self._least, ids), axis=-1)
        return mo.reshape(values, codes.shape).astype(self.dtype)

    def describe(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, {self.weight.kind!r}"


def _unpacked(weight: mo.Quantised) -> tuple[np.ndarray, list[np.ndarray]]:
    """Codes (count, width) in a byte each; scales, and least values if any, (count, groups of values) as float32."""
    layout, (count, width) = LAYOUTS[weight.kind], weight.shape
    raw = weight.data.numpy().reshape(count, width // BLOCK, -1)  # (count, blocks, bytes of a block)
    start = layout.header_bytes
    heads = np.ascontiguousarray(raw[..., :start]).view("<f4" if layout.wide else "<f2").astype(np.float32)
    heads = heads.reshape(count, -1, layout.headers)  # (count, groups, scale and least value)
    codes = raw[..., start:]
    if layout.bits == 4:
        codes = np.concatenate([codes & 15, codes >> 4], axis=-1)
        if layout.book:
            codes = np.array(BOOKS[layout.book], np.int8)[codes]
    elif not layout.float8:
        codes = np.ascontiguousarray(codes).view(np.int8)
    return codes.reshape(count, width), [heads[..., number] for number in range(layout.headers)]
