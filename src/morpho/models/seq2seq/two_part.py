"""A model of the next token with an encoder before it, as two chains of blocks: BART's and T5's way of computing."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel, key_mask
from morpho.models.cuts import TwoPartCuts, module_at
from morpho.nn.transformer.attention import KeyValueCache
from morpho.nn.transformer.caches import Caches

Cross = Any  # cross(attention, y): a decoder's block looks at the encoder's result


class TwoPartModel(LanguageModel):
    """`enter`, a step for each block and `leave` for either part; a pipeline's stage runs some of them. `bias` is what
    all blocks of a part add to their scores, or None."""

    cuts: ClassVar[TwoPartCuts]
    cross_scale: ClassVar[float | None] = None  # of the scores of looks at the encoder's result
    lm_head: Any

    @property
    def encoder_blocks(self) -> Any:
        return module_at(self, self.cuts.encoder_blocks)

    @property
    def decoder_blocks(self) -> Any:
        return module_at(self, self.cuts.blocks)

    @abstractmethod
    def enter(self, ids: mo.Tensor, decoder: bool, offset: Any = 0) -> mo.Tensor:
        """(batch, length) -> (batch, length, width)."""

    @abstractmethod
    def bias(self, decoder: bool, queries: Any, keys: Any, offset: Any = 0) -> Any:
        """The term that blocks add to their scores."""

    @abstractmethod
    def encoder_step(self, block: Any, x: mo.Tensor, bias: Any) -> mo.Tensor:
        """One block of the encoder."""

    @abstractmethod
    def decoder_step(self, block: Any, x: mo.Tensor, bias: Any, cross: Cross, cache: Any, offset: Any) -> mo.Tensor:
        """One block of the decoder."""

    @abstractmethod
    def leave(self, x: mo.Tensor, decoder: bool) -> mo.Tensor:
        """The last block's result as it is used."""

    @abstractmethod
    def cross_attention(self, block: Any) -> Any:
        """A decoder block's attention to the encoder's result: it has `keys_and_values`, `over` and `heads`."""

    @abstractmethod
    def cache_shape(self, block: Any) -> tuple[int, int]:
        """Heads of keys in a decoder block's caches, and the width of each."""

    def masked(self, bias: Any, mask: mo.Tensor) -> Any:
        """A bias where `mask` (batch, 1, 1, keys) is True, and nothing elsewhere."""
        return mask if bias is None else mo.where(mask, bias, mo.full((), -mo.inf, dtype=bias.dtype))

    def encode(self, ids: mo.Tensor, mask: Any = None) -> mo.Tensor:
        """(batch, length) -> (batch, length, width); `mask` is 0 or False at padding."""
        x, bias = self.enter(ids, False), self.bias(False, ids.shape[1], ids.shape[1])
        if mask is not None:
            bias = self.masked(bias, key_mask(self.model_type, mask, ids))
        for block in self.encoder_blocks:
            x = self.encoder_step(block, x, bias)
        return self.leave(x, False)

    def decode(self, ids: mo.Tensor, memory: mo.Tensor, mask: Any = None) -> mo.Tensor:
        """The decoder's ids (batch, n) -> (batch, n, width), looking at the encoder's result."""
        seen = None if mask is None else key_mask(self.model_type, mask, memory[:, :, 0])
        return self._decoded(ids, None, 0, lambda number, attention, y: attention(y, memory, mask=seen))

    def _decoded(self, ids: mo.Tensor, caches: Any, offset: Any, cross: Any) -> mo.Tensor:
        x = self.enter(ids, True, offset)
        bias = self.bias(True, ids.shape[1], ids.shape[1] if caches is None else caches.own[0].length, offset)
        for number, block in enumerate(self.decoder_blocks):
            x = self.decoder_step(block, x, bias, partial(cross, number), None if caches is None else
                                  caches.own[number], offset)
        return self.leave(x, True)

    def forward(self, ids: mo.Tensor, decoder_ids: mo.Tensor, mask: Any = None) -> mo.Tensor:  # type: ignore[override]
        return self.head(self.decode(mo.asarray(decoder_ids), self.encode(mo.asarray(ids), mask), mask))

    # -- generation ----------------------------------------------------------------------------------------------------
    def make_caches(self, batch: int, length: int, dtype: Any = mo.float32) -> Any:
        shapes = [self.cache_shape(block) for block in self.decoder_blocks]
        own, cross = ([KeyValueCache(batch, heads, length, depth, dtype) for heads, depth in shapes] for _ in range(2))
        return Caches(own, cross, batch)

    def remember(self, ids: mo.Tensor, caches: Caches, lengths: mo.Tensor) -> mo.Tensor:
        """Encode ids (batch, n), of which the first of each row are text, and keep what the decoder will look at."""
        memory = self.encode(ids, mo.expand_dims(mo.arange(ids.shape[1]), axis=0) < mo.expand_dims(lengths, axis=1))
        for block, cache in zip(self.decoder_blocks, caches.cross, strict=True):
            keys, values = self.cross_attention(block).keys_and_values(memory)
            cache.write(keys, values, 0)
        caches.lengths.value = lengths
        return mo.asarray(0)

    def hidden(self, ids: mo.Tensor, caches: Any = None, offset: Any = 0, *, mask: Any = None, positions: Any = None,
               states: list[mo.Tensor] | None = None) -> mo.Tensor:
        """The decoder's ids, going on from `offset`, over what `remember` kept."""
        if caches is None:
            raise fail(ArgumentError, self.model_type, "the decoder needs the encoder's result",
                       "call model(ids, decoder_ids)")
        return self._decoded(ids, caches, offset, lambda number, attention, y: attention.over(
            y, partial(caches.over, number, scale=self.cross_scale)))
