"""Layers whose weights stay packed in blocks, as a GGUF file holds them; for use, not for training."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.nn.module import Module
from morpho.tensor.state.variable import Buffer

BLOCK = 32  # values that share a scale


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
        codes, scales, least = _unpacked(weight)
        self._codes, self._scales = mo.asarray(codes, copy=True), mo.asarray(scales, copy=True)
        self._least = None if least is None else mo.asarray(least, copy=True)

    def forward(self, ids: mo.Tensor) -> mo.Tensor:
        blocks = self.embedding_dim // BLOCK
        codes = mo.embedding(self._codes, ids).astype(mo.float32)  # (..., width)
        values = mo.reshape(codes, (*codes.shape[:-1], blocks, BLOCK))
        values = values * mo.expand_dims(mo.embedding(self._scales, ids), axis=-1)  # exact
        if self._least is not None:
            values = values + mo.expand_dims(mo.embedding(self._least, ids), axis=-1)
        return mo.reshape(values, codes.shape).astype(self.dtype)

    def describe(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, {self.weight.kind!r}"


def _unpacked(weight: mo.Quantised) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Codes (count, width) in a byte each; scales and least values (count, blocks) as float32."""
    count, width = weight.shape
    raw = weight.data.numpy().reshape(count, width // BLOCK, -1)  # (count, blocks, bytes of a block)
    scales = np.ascontiguousarray(raw[..., :2]).view("<f2")[..., 0].astype(np.float32)
    if weight.kind == "q8_0":
        return np.ascontiguousarray(raw[..., 2:]).view(np.int8).reshape(count, width), scales, None
    least = np.ascontiguousarray(raw[..., 2:4]).view("<f2")[..., 0].astype(np.float32)
    halves = raw[..., 4:]
    codes = np.concatenate([halves & 15, halves >> 4], axis=-1)
    return codes.reshape(count, width), scales, least
