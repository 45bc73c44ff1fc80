"""The decoder: words and positions in, layers, a head for the next token, for classes or for spans."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import BlockModel, checked_positions, key_mask
from morpho.models.cuts import Cuts
from morpho.models.decoder.layers import Layer, norm_of
from morpho.models.decoder.shape import Rope, Shape
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.module import Module
from morpho.nn.transformer.positions import RotaryPositions, rows_at
from morpho.nn.transformer.rope_scaling import kind_of, original_length


def sines(rows: int, width: int, blank: int) -> mo.Tensor:
    """XGLM's and M2M-100's table of positions, (rows, width): sines, then cosines; the row `blank` is 0."""
    half = width // 2
    angles = np.arange(rows)[:, None] * np.exp(np.arange(half) * -(math.log(10000) / (half - 1)))
    table = np.concatenate([np.sin(angles), np.cos(angles), np.zeros((rows, width % 2))], axis=1)
    if 0 <= blank < rows:
        table[blank] = 0
    return mo.asarray(table.astype(np.float32)).realise()


class Body(Module):
    """All but the head."""

    def __init__(self, shape: Shape, dtype: Any) -> None:
        made: list[tuple[Rope, RotaryPositions]] = []  # layers that turn alike share a table
        width = shape.embed_width or shape.width
        self.embed_tokens = Embedding(shape.vocabulary, width, dtype=dtype, std=shape.std)
        rows = shape.learned_positions + shape.position_offset
        self.embed_positions = Embedding(rows, shape.width, dtype=dtype, std=shape.std) \
            if shape.learned_positions and not shape.sinusoids else None
        self.sines = sines(rows, shape.width, shape.blank_position) if shape.sinusoids else None
        self.embed_norm = norm_of(shape, shape.width, dtype) if shape.embed_norm else None
        self.project_in = None if width == shape.width else Linear(width, shape.width, False, dtype)
        self.project_out = None if width == shape.width else Linear(shape.width, width, False, dtype)
        layers = []
        for number, rope in enumerate(shape.ropes):
            found = next((turns for known, turns in made if known == rope), None)
            if rope is not None and found is None:
                found = RotaryPositions(rope.depth, shape.context, rope.theta, rope.interleaved, rope.scaling,
                                        rope.backwards)
                made.append((rope, found))
            layers.append(Layer(shape, number, found, dtype))
        self.layers = ModuleList(layers)
        self.norm = norm_of(shape, shape.width, dtype) if shape.final_norm else None


class Decoder(BlockModel):
    """A decoder of any family in `families/`, which give it its configuration and its `Shape`.

    >>> model = mo.models.create("qwen3", vocab_size=100, hidden_size=12, intermediate_size=16, num_hidden_layers=1,
    ...                          num_attention_heads=2, num_key_value_heads=1, head_dim=4, max_position_embeddings=16)
    >>> model(mo.asarray([[1, 2, 3]])).shape
    (1, 3, 100)
    """

    cuts = Cuts(("model.embed_tokens", "model.embed_positions", "model.project_in", "model.embed_norm"),
                "model.embed_tokens", "model.layers", ("model.norm", "model.project_out"))

    def __init__(self, config: Any, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self.eos_token_id = config.eos_token_id
        self.shape = shape = config.shape()
        self.model = Body(shape, dtype)
        width = shape.embed_width or shape.width
        self.lm_head = None if shape.tied or shape.head else Linear(width, shape.vocabulary, shape.head_bias, dtype)
        self.score = Linear(width, shape.labels, shape.head == "token", dtype) \
            if shape.head in ("sequence", "token") else None
        self.qa_outputs = Linear(width, 2, True, dtype) if shape.head == "span" else None
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and "embed" not in name:
                parameter.assign(init.normal(parameter.shape, shape.std, dtype=dtype))  # type: ignore[arg-type]

    def forward(self, ids: mo.Tensor, attention_mask: Any = None, position_ids: Any = None,
                output_hidden_states: bool = False) -> Any:
        """As every language model; one with learned positions counts them from the first token that is not padding."""
        if self.shape.positions_by_mask and attention_mask is not None and position_ids is None:
            seen = mo.asarray(attention_mask).astype(mo.int64)
            position_ids = mo.cumulative_sum(seen, axis=1) * seen - 1
        if self.shape.head:
            ids = mo.asarray(ids)
            mask = None if attention_mask is None else key_mask(self.model_type, attention_mask, ids)
            places = None if position_ids is None else checked_positions(self.model_type, position_ids, ids)
            return self.head(self.hidden(ids, mask=mask, positions=places))
        return super().forward(ids, attention_mask, position_ids, output_hidden_states)

    def begin(self, ids: mo.Tensor, places: Any = 0) -> mo.Tensor:
        body, shape = self.model, self.shape
        x = body.embed_tokens(ids)
        x = x if shape.embed_scale == 1 else x * shape.embed_scale
        x = x if body.project_in is None else body.project_in(x)
        table = body.sines if body.embed_positions is None else body.embed_positions.weight
        x = x if table is None else x + rows_at(table, ids.shape[1], places + shape.position_offset).astype(x.dtype)
        return x if body.embed_norm is None else body.embed_norm(x)  # type: ignore[no-any-return]

    def step(self, block: Any, x: mo.Tensor, cache: Any = None, offset: Any = 0, mask: Any = None,
             positions: Any = None) -> mo.Tensor:
        return block(x, cache, offset, mask, positions, getattr(cache, "length", None))  # type: ignore[no-any-return]

    def cache_shape(self, block: Any) -> tuple[int, ...]:
        return block.self_attn.cache_shape  # type: ignore[no-any-return]

    def tied_embedding(self) -> Any:
        return None if self.shape.head else super().tied_embedding()

    def head(self, x: mo.Tensor) -> mo.Tensor:
        """Logits of the next token, of the classes of every token (`score`), or of a span's start and end."""
        if self.score is not None:
            return self.score(x)  # type: ignore[no-any-return]
        if self.qa_outputs is not None:
            return self.qa_outputs(x)  # type: ignore[no-any-return]
        found = super().head(x)
        found = found if self.shape.logit_divisor == 1 else found / self.shape.logit_divisor
        cap = self.shape.logit_cap
        return found if cap is None else cap * mo.tanh(found / cap)

    def classify(self, ids: mo.Tensor, attention_mask: Any = None) -> mo.Tensor:
        """Logits of the classes of each text, from its last token: (batch, labels)."""
        if self.shape.head != "sequence":
            raise fail(ArgumentError, self.model_type, "this model has no head that classifies texts",
                       "load one whose file has score.weight")
        ids = mo.asarray(ids)
        found = self(ids, attention_mask)
        if attention_mask is None:
            return found[:, -1]  # type: ignore[no-any-return]
        places = mo.where(mo.asarray(attention_mask) != 0, mo.reshape(mo.arange(ids.shape[1]), (1, -1)), -1)
        last = mo.reshape(mo.max(places, axis=1), (-1, 1, 1))
        picked = mo.take_along_axis(found, mo.broadcast_to(last, (ids.shape[0], 1, found.shape[-1])), axis=1)
        return mo.reshape(picked, (ids.shape[0], found.shape[-1]))

    @property
    def context(self) -> int:
        return int(self.shape.context)

    @property
    def switch(self) -> int | None:
        """The length of texts beyond which all angles are others, and what is cached is computed anew."""
        found = [original_length(rope.scaling, self.shape.context) for rope in self.shape.ropes
                 if rope is not None and rope.scaling and kind_of(rope.scaling) == "longrope"]
        return min(found) if found else None

    @property
    def not_in_pages(self) -> str:
        """Why a cache in pages does not do, "" where it does."""
        shape = self.shape
        for why, there in (("capped scores", shape.score_cap is not None), ("sinks", shape.sinks),
                           ("slopes of scores", bool(shape.alibi)), ("pieces of texts", any(shape.chunks)),
                           ("latent attention", shape.latent is not None),
                           ("short convolutions", any(shape.convolutions))):
            if there:
                return f"its {why} are not computed over pages"
        return "its angles follow from the length of the text" if self.switch is not None else ""
