"""T5: an encoder and a decoder with relative positions as biases of the scores, no scale, RMS norms. Names are the
published ones: `encoder.block.0.layer.0.SelfAttention.q.weight`, ..."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import tied_logits
from morpho.models.config import Config
from morpho.models.cuts import TwoPartCuts
from morpho.models.family import Family, Names, Settings, tied_head
from morpho.models.seq2seq.two_part import Cross, TwoPartModel
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.dropout import Dropout
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.norm import RMSNorm
from morpho.nn.module import Module
from morpho.nn.transformer.attention import KeyValueCache, Parts, attend, join_heads, split_heads
from morpho.nn.transformer.blocks import ACTIVATIONS, activation
from morpho.weights import Rule
from morpho.weights.keys import Key, Kind, irrelevant, one_of, only, text, used

MOST_APART = 1 << 20  # of relative_attention_max_distance


@dataclass
class T5Config(Config):
    """The settings of a T5. `feed_forward_proj` is "relu", or "gated-gelu" as in T5 1.1."""

    vocab_size: int = 32128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int | None = None
    num_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str = "relu"
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None  # whether the head sees x / sqrt(d_model); where it is tied by default
    dropout_rate: float = 0.0
    eos_token_id: int | list[int] | None = 1
    decoder_start_token_id: int | None = 0
    n_positions: int = 512  # tokens that are made where nothing says how many; there is no limit
    shared: ClassVar[tuple[str, ...]] = ("num_heads", "d_ff", "d_model")
    renamed: ClassVar[Mapping[str, str]] = {"hidden_size": "d_model", "num_attention_heads": "num_heads",
                                            "num_hidden_layers": "num_layers", "head_dim": "d_kv"}
    others: ClassVar[Mapping[str, Key]] = {
        "is_encoder_decoder": only(True), "initializer_factor": irrelevant("of first values"),
        "dense_act_fn": used(text().or_null()), "is_gated_act": used(Kind(lambda value: isinstance(value, bool),
                                                                          "true or false"))}
    kinds: ClassVar[Mapping[str, Kind]] = {
        "feed_forward_proj": one_of(*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS)),
        "relative_attention_max_distance": Kind(lambda value: type(value) is int and 1 < value <= MOST_APART,
                                                f"a whole number from 2 to {MOST_APART}"),
        "relative_attention_num_buckets": Kind(lambda value: type(value) is int and 4 <= value <= 1 << 20,
                                               "a whole number of at least 4")}

    @classmethod
    def check_parts(cls, operation: str, file: str, given: Mapping[str, Any], config: Mapping[str, Any],
                    ignore: Collection[str]) -> None:
        """Newer files say the function twice; buckets beyond the exact ones need distances beyond theirs."""
        most, count = (given.get(f"relative_attention_{name}", usual) for name, usual in (("max_distance", 128),
                                                                                         ("num_buckets", 32)))
        if most <= count // 2:
            raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}relative_attention_max_distance is "
                                                 f"{most}, not more than half of relative_attention_num_buckets, "
                                                 f"{count}")
        gated, name = function_of(given.get("feed_forward_proj", "relu"))
        for key, wanted in (("dense_act_fn", name), ("is_gated_act", gated)):
            if key not in ignore and config.get(key, wanted) not in (wanted, None):
                raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}{key} is {config[key]!r}, and "
                                                     f"feed_forward_proj makes it {wanted!r}")


def function_of(projection: str) -> tuple[bool, str]:
    """Whether the feed-forward part is gated, and its function: "gated-gelu" means the one of T5 1.1."""
    gated, name = projection.startswith("gated-"), projection.removeprefix("gated-")
    return gated, "gelu_new" if gated and name == "gelu" else name


def buckets(both_ways: bool, count: int, most: int) -> np.ndarray:
    """The bucket of every distance -most..most (key minus query): near ones have one each, farther ones share them by
    the logarithm of their distance; all that are farther apart than `most` are in the last."""
    distance = np.arange(-most, most + 1)
    found = np.zeros(distance.shape, np.int64)
    if both_ways:
        count //= 2
        found += np.where(distance > 0, count, 0)
        distance = np.abs(distance)
    else:
        distance = -np.minimum(distance, 0)
    exact = count // 2
    with np.errstate(divide="ignore"):
        share = np.log(distance.astype(np.float32) / exact) / np.log(most / exact) * (count - exact)
    far = np.minimum(exact + np.where(distance < exact, 0, share).astype(np.int64), count - 1)
    return found + np.where(distance < exact, distance, far)


class Attention(Module):
    def __init__(self, config: T5Config, decoder: bool, biased: bool, dtype: Any) -> None:
        self.heads, inner = config.num_heads, config.num_heads * config.d_kv
        self.q, self.k, self.v = (Linear(config.d_model, inner, False, dtype) for _ in range(3))
        self.o = Linear(inner, config.d_model, False, dtype)
        count = config.relative_attention_num_buckets
        self.relative_attention_bias = Embedding(count, config.num_heads, dtype=dtype, std=0.02) if biased else None
        self._farthest = most = config.relative_attention_max_distance
        self._buckets = mo.asarray(buckets(not decoder, count, most)).realise()

    def bias(self, queries: Any, keys: Any, offset: Any = 0) -> mo.Tensor:
        """What is added to the scores of queries that stand from `offset` on: (1, heads, queries, keys), or of each
        row where there is an offset for each: (rows, heads, queries, keys)."""
        one = isinstance(offset, int) or not offset.ndim
        places = mo.expand_dims(mo.arange(queries) + (offset if one else mo.expand_dims(offset, axis=1)), axis=-1)
        distance = mo.clip(mo.arange(keys) - places, -self._farthest, self._farthest)
        found = self.relative_attention_bias(mo.take(self._buckets, distance + self._farthest))  # type: ignore[misc]
        found = mo.moveaxis(found, -1, -3)
        return mo.expand_dims(found, axis=0) if one else found

    def parts(self) -> Parts:
        tables = () if self.relative_attention_bias is None else ("relative_attention_bias",)
        return Parts({"q": (), "k": (), "v": ()}, "o", ("heads",), tables=tables)

    def keys_and_values(self, memory: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        return split_heads(self.k(memory), self.heads), split_heads(self.v(memory), self.heads)

    def forward(self, x: mo.Tensor, source: mo.Tensor, *, mask: mo.Tensor | None = None, causal: bool = False,
                cache: KeyValueCache | None = None, offset: Any = 0) -> mo.Tensor:
        k, v = self.keys_and_values(source)
        return self.over(x, lambda q: attend(q, k, v, causal=causal, mask=mask, scale=1.0, cache=cache, offset=offset))

    def over(self, x: mo.Tensor, look: Callable[[mo.Tensor], mo.Tensor]) -> mo.Tensor:
        """Attention over keys and values that were computed before: `look` takes queries."""
        return self.o(join_heads(look(split_heads(self.q(x), self.heads))))  # type: ignore[no-any-return]


class FeedForward(Module):
    """wo(act(wi(x))), or wo(act(wi_0(x)) * wi_1(x)) where gated."""

    def __init__(self, config: T5Config, dtype: Any) -> None:
        self.gated, name = function_of(config.feed_forward_proj)
        self._function = activation(name)
        names = ("wi_0", "wi_1") if self.gated else ("wi",)
        for each in names:
            setattr(self, each, Linear(config.d_model, config.d_ff, False, dtype))
        self.wo = Linear(config.d_ff, config.d_model, False, dtype)

    def parts(self) -> Parts:
        return Parts({"wi_0": (), "wi_1": ()} if self.gated else {"wi": ()}, "wo")

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        inner = self._function(self.wi_0(x)) * self.wi_1(x) if self.gated else self._function(self.wi(x))
        return self.wo(inner)  # type: ignore[no-any-return]


class Part(Module):
    """A norm and what follows it, under the name that the files give it; the residual is added around both."""

    def __init__(self, name: str, part: Module, config: T5Config, dtype: Any) -> None:
        self.layer_norm = RMSNorm(config.d_model, config.layer_norm_epsilon, dtype=dtype)
        self.dropout = Dropout(config.dropout_rate)
        self._name = name
        setattr(self, name, part)

    @property
    def part(self) -> Any:
        return vars(self)[self._name]


class T5Block(Module):
    """Attention over itself, in a decoder also over the encoder's result, then the feed-forward part."""

    def __init__(self, config: T5Config, decoder: bool, first: bool, dtype: Any) -> None:
        parts = [Part("SelfAttention", Attention(config, decoder, first, dtype), config, dtype)]
        if decoder:
            parts.append(Part("EncDecAttention", Attention(config, decoder, False, dtype), config, dtype))
        parts.append(Part("DenseReluDense", FeedForward(config, dtype), config, dtype))
        self.layer = ModuleList(parts)

    def forward(self, x: mo.Tensor, bias: mo.Tensor | None, causal: bool = False, cross: Any = None,
                cache: KeyValueCache | None = None, offset: Any = 0) -> mo.Tensor:
        """`cross(attention, y)` attends to the encoder's result."""
        first, *middle, last = self.layer
        y = first.layer_norm(x)
        x = x + first.dropout(first.part(y, y, mask=bias, causal=causal, cache=cache, offset=offset))
        for each in middle:
            x = x + each.dropout(cross(each.part, each.layer_norm(x)))
        return x + last.dropout(last.part(last.layer_norm(x)))  # type: ignore[no-any-return]


class Stack(Module):
    """The blocks of the encoder or of the decoder."""

    def __init__(self, config: T5Config, decoder: bool, dtype: Any) -> None:
        layers = config.num_layers if not decoder or config.num_decoder_layers is None else config.num_decoder_layers
        self.block = ModuleList(T5Block(config, decoder, number == 0, dtype) for number in range(layers))
        self.final_layer_norm = RMSNorm(config.d_model, config.layer_norm_epsilon, dtype=dtype)
        self.dropout = Dropout(config.dropout_rate)

    def bias(self, queries: Any, keys: Any, offset: Any = 0) -> mo.Tensor:
        return self.block[0].layer[0].part.bias(queries, keys, offset)  # type: ignore[no-any-return]


class T5(TwoPartModel):
    """T5 with its head. `model(ids, decoder_ids)` gives logits for each of the decoder's places; `mo.models.generate`
    takes the encoder's ids.

    >>> model = mo.models.create("t5-small", vocab_size=100, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    >>> model(mo.asarray([[5, 6, 7, 1]]), mo.asarray([[0, 8]])).shape
    (1, 2, 100)
    """

    model_type = "t5"
    config_class = T5Config
    cuts = TwoPartCuts(
        ("shared",), "shared", "decoder.block", ("decoder.final_layer_norm",), "encoder.block",
        ("encoder.final_layer_norm",), ("shared",),
        {f"{stack}.block.0": ("layer.0.layer_norm", *(f"layer.0.SelfAttention.{name}" for name in "qkvo"), *(
            f"layer.{number}" for number in range(1, count))) for stack, count in (("encoder", 2), ("decoder", 3))})
    cross_scale = 1.0

    def __init__(self, config: T5Config, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self.eos_token_id = config.eos_token_id
        self.shared = Embedding(config.vocab_size, config.d_model, dtype=dtype, std=1.0)
        self.encoder, self.decoder = Stack(config, False, dtype), Stack(config, True, dtype)
        self.lm_head = None if config.tie_word_embeddings else Linear(config.d_model, config.vocab_size, False, dtype)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and name.endswith(("q.weight", "k.weight", "v.weight", "o.weight")):
                parameter.assign(init.normal(parameter.shape, parameter.shape[1] ** -0.5, dtype=dtype))  # type: ignore[arg-type, operator]

    def enter(self, ids: mo.Tensor, decoder: bool, offset: Any = 0) -> mo.Tensor:
        return (self.decoder if decoder else self.encoder).dropout(self.shared(ids))  # type: ignore[no-any-return]

    def bias(self, decoder: bool, queries: Any, keys: Any, offset: Any = 0) -> mo.Tensor:
        return (self.decoder if decoder else self.encoder).bias(queries, keys, offset)

    def encoder_step(self, block: Any, x: mo.Tensor, bias: Any) -> mo.Tensor:
        return block(x, bias)  # type: ignore[no-any-return]

    def decoder_step(self, block: Any, x: mo.Tensor, bias: Any, cross: Cross, cache: Any, offset: Any) -> mo.Tensor:
        return block(x, bias, True, cross, cache, offset)  # type: ignore[no-any-return]

    def leave(self, x: mo.Tensor, decoder: bool) -> mo.Tensor:
        part = self.decoder if decoder else self.encoder
        return part.dropout(part.final_layer_norm(x))  # type: ignore[no-any-return]

    def cross_attention(self, block: Any) -> Attention:
        return block.layer[1].part  # type: ignore[no-any-return]

    def cache_shape(self, block: Any) -> tuple[int, int]:
        return block.layer[0].part.heads, self.config["d_kv"]

    def tied_embedding(self) -> Any:
        return self.shared if self.lm_head is None else None

    def head(self, x: mo.Tensor) -> mo.Tensor:
        scaled = self.config["scale_decoder_outputs"]
        if self.lm_head is None if scaled is None else scaled:
            x = x * self.config["d_model"] ** -0.5
        return tied_logits(x, self.shared) if self.lm_head is None else self.lm_head(x)

    # -- generation ----------------------------------------------------------------------------------------------------
    @property
    def context(self) -> int:
        """Relative positions have no end; this is only more than any machine's memory."""
        return 1 << 30

    @property
    def usual_length(self) -> int:
        return int(self.config["n_positions"])


SIZES: dict[str, dict[str, Any]] = {
    "t5-small": {},
    "t5-base": {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    "t5-large": {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
}


TWICE = {"encoder.embed_tokens.weight": "shared.weight", "decoder.embed_tokens.weight": "shared.weight"}


def _names(settings: Settings, names: Collection[str]) -> list[Rule]:
    return [
        *tied_head(settings),
        *(Rule(name, None) for name in TWICE),
        Rule("decoder.block.{i}.layer.1.EncDecAttention.relative_attention_bias.weight", None),  # never used
    ]


FAMILIES = (Family("t5", T5, SIZES, Names("lm_head.weight", "shared.weight", _names, twice=TWICE)),)
