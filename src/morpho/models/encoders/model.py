"""One encoder for the families whose configuration has an `EncoderShape`: words, positions and segments in, layers that
see both ways, heads."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.models.base import key_mask, tied_logits
from morpho.models.decoder.shape import Rope
from morpho.models.encoders.bert import first_values
from morpho.models.encoders.heads import WithHeads, labels_of
from morpho.models.encoders.shape import Disentangled, EncoderShape
from morpho.models.seq2seq.t5 import buckets
from morpho.nn.containers import ModuleList
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.norm import LayerNorm, RMSNorm
from morpho.nn.module import Module
from morpho.nn.transformer.attention import attend, join_heads, split_heads
from morpho.nn.transformer.blocks import FeedForward, activation
from morpho.nn.transformer.positions import RotaryPositions, rows_at
from morpho.tensor.state.variable import Parameter

FARTHEST = 128  # distance from which on T5's buckets are one
MOST_DISTANCES = 1 << 20  # entries of a table of DeBERTa's buckets


def norm_of(shape: EncoderShape, width: int, dtype: Any) -> Module:
    """The family's norm over so many numbers."""
    if shape.norm == "rms":
        return RMSNorm(width, shape.eps, dtype=dtype)
    return LayerNorm(width, shape.eps, bias=shape.norm == "layer", dtype=dtype)


class Embeddings(Module):
    """Words, positions and segments, added and normed."""

    def __init__(self, shape: EncoderShape, dtype: Any) -> None:
        width = shape.embed_width
        self.shape = shape
        self.words = Embedding(shape.vocabulary, width, dtype=dtype, std=shape.std)
        self.positions = Embedding(shape.positions, width, dtype=dtype, std=shape.std) if shape.positions else None
        self.types = Embedding(shape.types, width, dtype=dtype, std=shape.std) if shape.types else None
        normed = shape.width if shape.project == "before" else width
        self.norm = norm_of(shape, normed, dtype) if shape.embed_norm else None
        self.project = Linear(width, shape.width, shape.project == "after", dtype) if shape.project else None

    def forward(self, ids: mo.Tensor, types: Any) -> mo.Tensor:
        x = self.words(ids)
        if self.types is not None:
            x = x + (self.types.weight[0] if types is None else self.types(types))
        if self.positions is not None:
            x = x + self._places(ids)
        if self.shape.project == "before":
            x = self.project(x)  # type: ignore[misc]
        x = x if self.norm is None else self.norm(x)
        return self.project(x) if self.shape.project == "after" else x  # type: ignore

    def _places(self, ids: mo.Tensor) -> mo.Tensor:
        offset: Any = 0
        if self.shape.padding is not None:
            seen = (ids != self.shape.padding).astype(mo.int64)
            offset = mo.cumulative_sum(seen, axis=1) * seen + self.shape.padding
        return rows_at(self.positions.weight, ids.shape[1], offset)  # type: ignore[union-attr]


class Attention(Module):
    """Queries, keys and values, rotated where the family does, attention both ways and a product."""

    def __init__(self, shape: EncoderShape, rope: RotaryPositions | None, window: int | None, dtype: Any) -> None:
        width, depth = shape.width, shape.depth
        self.num_heads, self.num_kv_heads, self.rope, self.window = shape.heads, shape.kv_heads, rope, window
        self.q_proj = Linear(width, shape.heads * depth, shape.qkv_bias, dtype)
        self.k_proj, self.v_proj = (Linear(width, shape.kv_heads * depth, shape.qkv_bias, dtype) for _ in range(2))
        self.o_proj = Linear(shape.heads * depth, width, shape.out_bias, dtype)
        self.distances = shape.disentangled
        parts = () if self.distances is None or self.distances.shared else self.distances.parts
        self.pos_k_proj = Linear(width, shape.heads * depth, True, dtype) if "c2p" in parts else None
        self.pos_q_proj = Linear(width, shape.heads * depth, True, dtype) if "p2c" in parts else None

    def forward(self, x: mo.Tensor, mask: Any, shared: Any) -> mo.Tensor:
        """`shared` is what the layers have in common: a table of biases, or DeBERTa's vectors and indices."""
        q = split_heads(self.q_proj(x), self.num_heads)
        k, v = (split_heads(part(x), self.num_kv_heads) for part in (self.k_proj, self.v_proj))
        if self.rope is not None:
            turns = self.rope.tables(x.shape[1])
            q, k = self.rope.turn(q, *turns), self.rope.turn(k, *turns)
        if self.window is not None:
            mask = _within(x.shape[1], self.window, mask)
        if self.distances is not None:
            return self.o_proj(join_heads(self._disentangled(q, k, v, mask, shared)))  # type: ignore[no-any-return]
        if shared is not None:
            mask = shared if mask is None else shared + mo.where(mask, 0.0, mo.full((), -mo.inf)).astype(shared.dtype)
        return self.o_proj(join_heads(attend(q, k, v, mask=mask)))  # type: ignore[no-any-return]

    def _disentangled(self, q: mo.Tensor, k: mo.Tensor, v: mo.Tensor, mask: Any, shared: Any) -> mo.Tensor:
        form, (vectors, places) = self.distances, shared
        assert form is not None
        scale = (int(q.shape[-1]) * (1 + len(form.parts))) ** -0.5
        scores = mo.matmul(q, mo.matrix_transpose(k))
        where = mo.broadcast_to(places, (*q.shape[:2], *places.shape[-2:]))
        for part, one, own in (("c2p", q, self.pos_k_proj or self.k_proj), ("p2c", k, self.pos_q_proj or self.q_proj)):
            if part in form.parts:
                table = split_heads(own(vectors)[None], self.num_heads)
                all_distances = mo.matmul(one, mo.matrix_transpose(table))  # (batch, heads, length, 2 * span)
                turned = where if part == "c2p" else mo.matrix_transpose(where)
                picked = mo.take_along_axis(all_distances, turned, axis=-1)
                scores = scores + (picked if part == "c2p" else mo.matrix_transpose(picked))
        scores = scores * scale
        if mask is not None:
            scores = mo.where(mask, scores, mo.full((), -mo.inf, dtype=scores.dtype))
        return mo.matmul(mo.softmax(scores, axis=-1), v)


def _within(length: Any, window: int, mask: Any) -> mo.Tensor:
    """The mask with tokens farther than a window on either side left out."""
    places = mo.arange(length)
    near = mo.abs(mo.expand_dims(places, 1) - places) <= window
    near = mo.reshape(near, (1, 1, length, length))
    return near if mask is None else near & mask


class Layer(Module):
    """Attention and a feed-forward part, with norms after the sums or before the parts."""

    def __init__(self, shape: EncoderShape, number: int, rope: RotaryPositions | None, dtype: Any) -> None:
        self.before = shape.before
        self.self_attn = Attention(shape, rope, shape.windows[number] if shape.windows else None, dtype)
        self.mlp = FeedForward(shape.width, shape.hidden, shape.activation, shape.mlp_bias, dtype, gated=shape.gated)
        bare = shape.before and number == 0 and not shape.first_norm
        self.attn_norm = None if bare else norm_of(shape, shape.width, dtype)
        self.mlp_norm = norm_of(shape, shape.width, dtype)

    def forward(self, x: mo.Tensor, mask: Any, shared: Any) -> mo.Tensor:
        if self.before:
            x = x + self.self_attn(x if self.attn_norm is None else self.attn_norm(x), mask, shared)
            return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]
        x = self.attn_norm(x + self.self_attn(x, mask, shared))  # type: ignore[misc]
        return self.mlp_norm(x + self.mlp(x))  # type: ignore[no-any-return]


class Beside(Module):
    """DeBERTa's convolution of the embeddings, added to what the first layer gives."""

    def __init__(self, shape: EncoderShape, dtype: Any) -> None:
        form = shape.convolution
        assert form is not None
        self.form, self._function = form, activation(form.activation)
        self.weight = Parameter(mo.zeros((shape.width, shape.width // form.groups, form.size), dtype=dtype))
        self.bias = Parameter(mo.zeros((shape.width,), dtype=dtype))
        self.norm = norm_of(shape, shape.width, dtype)

    def forward(self, embedded: mo.Tensor, x: mo.Tensor, tokens: Any) -> mo.Tensor:
        out = mo.conv1d(mo.matrix_transpose(embedded), self.weight, self.bias, padding=(self.form.size - 1) // 2,
                        groups=self.form.groups)
        out = mo.matrix_transpose(out)
        if tokens is None:
            return self.norm(x + self._function(out))  # type: ignore[no-any-return]
        out = self._function(mo.where(tokens, out, 0))
        return mo.where(tokens, self.norm(x + out), 0)


class Body(Module):
    """All but the heads."""

    def __init__(self, shape: EncoderShape, dtype: Any) -> None:
        made: list[tuple[Rope, RotaryPositions]] = []
        self.shape = shape
        self.embeddings = Embeddings(shape, dtype)
        layers = []
        for number in range(max(shape.order) + 1 if shape.order else shape.layers):
            rope = shape.ropes[number] if shape.ropes else None
            turns = next((turns for known, turns in made if known == rope), None)
            if rope is not None and turns is None:
                turns = RotaryPositions(rope.depth, shape.context, rope.theta, rope.interleaved, rope.scaling)
                made.append((rope, turns))
            layers.append(Layer(shape, number, turns, dtype))
        self.layers = ModuleList(layers)
        self.norm = norm_of(shape, shape.width, dtype) if shape.final_norm else None
        self.biases = Embedding(shape.buckets, shape.heads, dtype=dtype, std=shape.std) if shape.buckets else None
        far = shape.disentangled
        self.distances = Embedding(2 * far.span, shape.width, dtype=dtype, std=shape.std) if far else None
        self.distances_norm = LayerNorm(shape.width, shape.eps, dtype=dtype) if far and far.normed else None
        self.beside = Beside(shape, dtype) if shape.convolution else None
        if self.biases is not None:
            self._farthest, self._table = FARTHEST, mo.asarray(buckets(True, BUCKETS, FARTHEST)).realise()
        elif far is not None:
            table = indices(far)
            self._farthest, self._table = len(table) // 2, mo.asarray(table).realise()

    def forward(self, ids: mo.Tensor, mask: Any, types: Any) -> mo.Tensor:
        tokens = None if mask is None else mo.reshape(mask, (*mask.shape[:1], mask.shape[3], 1))
        x = self.embeddings(ids, types)
        if self.shape.masks_embeddings and tokens is not None:
            x = mo.where(tokens, x, 0)
        shared, embedded = self._shared(ids.shape[1]), x
        for number, place in enumerate(self.shape.order or range(self.shape.layers)):
            x = self.layers[place](x, mask, shared)
            if number == 0 and self.beside is not None:
                x = self.beside(embedded, x, tokens)
        return x if self.norm is None else self.norm(x)  # type: ignore[no-any-return]

    def _shared(self, length: Any) -> Any:
        if self.biases is None and self.distances is None:
            return None
        places = mo.arange(length)
        sign = 1 if self.distances is None else -1  # T5 counts key minus query, DeBERTa query minus key
        apart = (places - mo.expand_dims(places, 1)) * sign
        rows = mo.take(self._table, mo.clip(apart, -self._farthest, self._farthest) + self._farthest, axis=0)
        if self.biases is not None:
            return mo.expand_dims(mo.permute_dims(self.biases(rows), (2, 0, 1)), 0)
        vectors = self.distances.weight  # type: ignore[union-attr]
        return vectors if self.distances_norm is None else self.distances_norm(vectors), mo.expand_dims(rows, (0, 1))


BUCKETS = 32  # MPNet computes with so many, however many rows its table has


def indices(form: Disentangled) -> np.ndarray:
    """Return the row of the table of distances for query minus key = -n..n; all beyond have those of the ends."""
    span, far = form.span, max(form.most, form.span) + 1
    while True:
        distance = np.arange(-far, far + 1)
        rows = distance.astype(np.float32)
        if form.buckets > 0:
            middle = form.buckets // 2
            near = (distance < middle) & (distance > -middle)
            size = np.where(near, middle - 1, np.abs(distance)).astype(np.float32)
            with np.errstate(divide="ignore"):
                share = np.log(size / np.float32(middle)) / np.log(np.float32((form.most - 1) / middle))
            shared = np.ceil(share * np.float32(middle - 1)) + middle
            rows = np.where(size <= middle, rows, shared * np.sign(distance))
        places = np.clip(rows.astype(np.int64) + span, 0, 2 * span - 1)
        if places[0] == 0 and places[-1] == 2 * span - 1:
            return places
        far *= 2
        if far > MOST_DISTANCES:
            raise fail(ArgumentError, "encoder", f"position_buckets={form.buckets} does not reach the ends of its "
                                                 f"table within {MOST_DISTANCES} tokens", "give an even number")


class Transform(Module):
    """A product, a function, and a norm where there is one."""

    def __init__(self, width: int, outputs: int, function: str, bias: bool, norm: Module | None, dtype: Any) -> None:
        self.dense, self._function, self.norm = Linear(width, outputs, bias, dtype), activation(function), norm

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        x = self._function(self.dense(x))
        return x if self.norm is None else self.norm(x)


class MaskedHead(Module):
    def __init__(self, shape: EncoderShape, dtype: Any) -> None:
        form, width = shape.heads_of, shape.width if shape.heads_of.plain else shape.embed_width
        self.transform = None if form.plain else Transform(
            shape.width, width, form.function, form.dense_bias, norm_of(shape, width, dtype), dtype)
        self.decoder = None if shape.tied else Linear(width, shape.vocabulary, False, dtype)
        self.bias = Parameter(mo.zeros((shape.vocabulary,), dtype=dtype)) if form.decoder_bias else None


class Encoder(WithHeads):
    """An encoder of any family in `families.py`, which give it its configuration and its `EncoderShape`.

    >>> model = mo.models.create("modernbert", vocab_size=100, hidden_size=12, intermediate_size=16, labels=3,
    ...                          num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=16,
    ...                          head="sequence")
    >>> x = model(mo.asarray([[1, 2, 3]]))
    >>> x.shape, model.classify(x).shape
    ((1, 3, 12), (1, 3))
    """

    def __init__(self, config: Any, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self.shape = shape = config.shape()
        self.head_kind, form = shape.head, shape.heads_of
        self.model = Body(shape, dtype)
        self.masked = MaskedHead(shape, dtype) if shape.masked else None
        reads = shape.pooler or shape.head == "sequence" or (bool(shape.head) and form.everywhere)
        self.text = Transform(shape.width, shape.width, form.text_function, form.text_bias, norm_of(
            shape, shape.width, dtype) if form.text_norm else None, dtype) if reads else None
        labels = labels_of(shape.family, shape.head, shape.labels)
        self.classifier = Linear(shape.width, labels, True, dtype) if shape.head in ("sequence", "token") else None
        self.qa_outputs = Linear(shape.width, 2, True, dtype) if shape.head == "span" else None
        first_values(self, shape.std, dtype)

    @property
    def most_tokens(self) -> int:
        """The most tokens of a text."""
        padding = self.shape.padding
        return int(self.shape.context if padding is None else self.shape.positions - padding - 1)

    def forward(self, ids: mo.Tensor, mask: Any = None, types: mo.Tensor | None = None) -> mo.Tensor:
        """ids (batch, length) -> (batch, length, width). `mask` (batch, length) is 1 or True at tokens, 0 at padding;
        `types` (batch, length) are the numbers of the segments, where the family has them."""
        ids = mo.asarray(ids)
        if types is not None and not self.shape.types:
            raise fail(ArgumentError, self.model_type, "this model has no segments", "leave out types")
        if isinstance(ids.shape[1], int) and ids.shape[1] > self.most_tokens:
            raise fail(ShapeError, self.model_type, f"{ids.shape[1]} tokens are more than the {self.most_tokens} "
                                                    "positions there are", "cut the text")
        seen = None if mask is None else key_mask(self.model_type, mask, ids)
        return self.model(ids, seen, types)  # type: ignore[no-any-return]

    def pooled(self, x: mo.Tensor, mask: Any = None) -> mo.Tensor:
        """The vector that the head for texts reads, through its product and function: (batch, width)."""
        if self.text is None:
            raise fail(ArgumentError, self.model_type, "this model has no pooler", "make it with pooler=True")
        return self.text(_mean(x, mask) if self.shape.heads_of.pooling == "mean" else x[:, 0])  # type: ignore

    def classify(self, x: mo.Tensor, mask: Any = None) -> mo.Tensor:
        self._check_head("sequence")
        if self.shape.heads_of.pooling == "late":
            return _mean(self.classifier(self.text(x)), mask)  # type: ignore[misc]
        return self.classifier(self.pooled(x, mask))  # type: ignore[misc, no-any-return]

    def token_logits(self, x: mo.Tensor) -> mo.Tensor:
        return super().token_logits(self._read(x))

    def span_logits(self, x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        return super().span_logits(self._read(x))

    def _read(self, x: mo.Tensor) -> mo.Tensor:
        return self.text(x) if self.shape.heads_of.everywhere and self.text is not None else x

    def logits(self, x: mo.Tensor) -> mo.Tensor:
        """Of every token at every place: (batch, length, vocabulary)."""
        head = self.masked
        if head is None:
            raise fail(ArgumentError, self.model_type, "this model has no head for masked tokens",
                       "make it with masked_lm=True")
        x = x if head.transform is None else head.transform(x)
        x = tied_logits(x, self.model.embeddings.words) if head.decoder is None else head.decoder(x)
        return x if head.bias is None else x + head.bias


def _mean(x: mo.Tensor, mask: Any) -> mo.Tensor:
    """The mean over the tokens of each text."""
    if mask is None:
        return mo.mean(x, axis=1)
    tokens = mo.expand_dims((mo.asarray(mask) != 0).astype(x.dtype), 2)
    return mo.sum(x * tokens, axis=1) / mo.sum(tokens, axis=1)
