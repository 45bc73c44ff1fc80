"""CLIP: a tower for texts and one for images, whose vectors are compared. Names are the published ones:
`text_model.encoder.layers.0.self_attn.q_proj.weight`, `visual_projection.weight`, ..."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import Model, divided, indexed_by_name, key_mask
from morpho.models.config import COMMON, Config
from morpho.models.family import Family, Names, Settings
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.convolution import Conv2d
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.norm import LayerNorm
from morpho.nn.module import Module
from morpho.nn.transformer.attention import attend, join_heads, split_heads
from morpho.nn.transformer.blocks import ACTIVATIONS, activation
from morpho.nn.transformer.positions import rows_at
from morpho.tensor.state.variable import Parameter
from morpho.weights import Rule, keys
from morpho.weights.keys import Key, KeyTable, Kind, irrelevant, used

_FACTOR = irrelevant("of first values")
_TOWER: dict[str, Key] = {  # published files say of a tower what older versions of the library say of any model
    "hidden_size": used(keys.positive(512)), "intermediate_size": used(keys.positive(2048)),
    "num_hidden_layers": used(keys.positive(12)), "num_attention_heads": used(keys.positive(8)),
    "hidden_act": used(keys.one_of(*ACTIVATIONS)), "layer_norm_eps": used(keys.number(1e-5, above=0)),
    "projection_dim": used(keys.positive(512)), "model_type": used(keys.text()), "initializer_factor": _FACTOR,
    "tie_word_embeddings": irrelevant("no text is made"),
    "attention_dropout": irrelevant("of training: attention has no dropout"), "dropout": irrelevant("of training")}
TEXT = {"vocab_size": 49408, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
        "num_attention_heads": 8, "max_position_embeddings": 77, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
        "eos_token_id": 49407}
VISION = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
          "num_channels": 3, "image_size": 224, "patch_size": 32, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
_TEXT_KEYS = KeyTable({**COMMON, **_TOWER, "vocab_size": used(keys.positive()), "eos_token_id": used(keys.token()),
                       "max_position_embeddings": used(keys.positive(77))})
_VISION_KEYS = KeyTable({**COMMON, **_TOWER, **{name: used(keys.positive()) for name in (
    "num_channels", "image_size", "patch_size")}})
_GENERATION = ("max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
               "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
               "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
               "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
               "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
               "begin_suppress_tokens", "eos_token_id")
_NO_TEXT = {name: irrelevant("no text is made") for name in _GENERATION}


@dataclass
class CLIPConfig(Config):
    """The settings of a CLIP; those of the towers are objects."""

    text_config: dict[str, Any] = field(default_factory=dict)
    vision_config: dict[str, Any] = field(default_factory=dict)
    projection_dim: int = 512
    logit_scale_init_value: float = 2.6592
    others: ClassVar[Mapping[str, Key]] = {**_NO_TEXT, "initializer_factor": _FACTOR,
                                           "text_config_dict": used(keys.record().or_null()),
                                           "vision_config_dict": used(keys.record().or_null())}

    kinds: ClassVar[Mapping[str, Kind]] = {"text_config": keys.record(), "vision_config": keys.record(),
                                           "logit_scale_init_value": keys.number(2.6592)}

    @classmethod
    def of(cls, family: str, config: Mapping[str, Any], *, strict: bool = False, file: str = "",
           ignore: Collection[str] = ()) -> Any:
        """What older files say in `text_config_dict` goes before text_config, usual values of what it leaves out too:
        so the library reads them."""
        found = dict(config)
        for name, usual in (("text_config", TEXT), ("vision_config", VISION)):
            said, part = config.get(f"{name}_dict"), config.get(name) or {}
            if isinstance(said, Mapping) and isinstance(part, Mapping) and f"{name}_dict" not in ignore:
                found[name] = {**part, **usual, **said}
        return super().of(family, found, strict=strict, file=file, ignore=ignore)

    def __post_init__(self) -> None:
        for name, usual in (("text_config", TEXT), ("vision_config", VISION)):
            given = {key: value for key, value in getattr(self, name).items() if key in usual}
            setattr(self, name, {**usual, **given})

    @classmethod
    def default(cls, name: str) -> Any:
        return {"text_config": {}, "vision_config": {}}.get(name) if name.endswith("_config") else super().default(name)

    @classmethod
    def check_parts(cls, operation: str, file: str, given: Mapping[str, Any], config: Mapping[str, Any],
                    ignore: Collection[str]) -> None:
        for name, table in (("text_config", _TEXT_KEYS), ("vision_config", _VISION_KEYS)):
            part = {key: value for key, value in (given.get(name) or {}).items() if key not in _NO_TEXT
                    or (key == "eos_token_id" and name == "text_config")}
            table.check(operation, file, part, ignore=ignore, within=name)


class Attention(Module):
    def __init__(self, width: int, heads: int, dtype: Any) -> None:
        divided("clip", width, heads, ("hidden_size", "num_attention_heads"))
        self.heads = heads
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (Linear(width, width, True, dtype) for _ in range(4))

    def forward(self, x: mo.Tensor, causal: bool, mask: Any) -> mo.Tensor:
        q, k, v = (split_heads(part(x), self.heads) for part in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(join_heads(attend(q, k, v, causal=causal, mask=mask)))  # type: ignore[no-any-return]


class MLP(Module):
    def __init__(self, config: Mapping[str, Any], dtype: Any) -> None:
        width, hidden = config["hidden_size"], config["intermediate_size"]
        self._function = activation(config["hidden_act"])
        self.fc1, self.fc2 = Linear(width, hidden, True, dtype), Linear(hidden, width, True, dtype)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return self.fc2(self._function(self.fc1(x)))  # type: ignore[no-any-return]


class Layer(Module):
    def __init__(self, config: Mapping[str, Any], dtype: Any) -> None:
        width, eps = config["hidden_size"], config["layer_norm_eps"]
        self.self_attn, self.mlp = Attention(width, config["num_attention_heads"], dtype), MLP(config, dtype)
        self.layer_norm1, self.layer_norm2 = (LayerNorm(width, eps, dtype=dtype) for _ in range(2))

    def forward(self, x: mo.Tensor, causal: bool, mask: Any) -> mo.Tensor:
        x = x + self.self_attn(self.layer_norm1(x), causal, mask)
        return x + self.mlp(self.layer_norm2(x))  # type: ignore[no-any-return]


class Encoder(Module):
    def __init__(self, config: Mapping[str, Any], dtype: Any) -> None:
        self.layers = ModuleList(Layer(config, dtype) for _ in range(config["num_hidden_layers"]))

    def forward(self, x: mo.Tensor, causal: bool = False, mask: Any = None) -> mo.Tensor:
        for layer in self.layers:
            x = layer(x, causal, mask)
        return x


class TextEmbeddings(Module):
    def __init__(self, config: Mapping[str, Any], dtype: Any) -> None:
        width = config["hidden_size"]
        self.token_embedding = Embedding(config["vocab_size"], width, dtype=dtype, std=0.02)
        self.position_embedding = Embedding(config["max_position_embeddings"], width, dtype=dtype, std=0.02)


class TextTower(Module):
    def __init__(self, config: Mapping[str, Any], dtype: Any) -> None:
        self.end = config["eos_token_id"]
        self.embeddings, self.encoder = TextEmbeddings(config, dtype), Encoder(config, dtype)
        self.final_layer_norm = LayerNorm(config["hidden_size"], config["layer_norm_eps"], dtype=dtype)

    def forward(self, ids: mo.Tensor, mask: Any) -> mo.Tensor:
        """The vector at each text's end token: (batch, width)."""
        places = rows_at(self.embeddings.position_embedding.weight, ids.shape[1], 0)
        x = self.final_layer_norm(self.encoder(self.embeddings.token_embedding(ids) + places, True, mask))
        # Files of before the end token had its number say 2, and mean the largest number.
        at = mo.argmax(ids, axis=-1) if self.end == 2 else mo.argmax((ids == self.end).astype(mo.int64), axis=-1)
        at = mo.broadcast_to(mo.reshape(at, (-1, 1, 1)), (ids.shape[0], 1, x.shape[-1]))
        return mo.take_along_axis(x, at, axis=1)[:, 0]


class VisionEmbeddings(Module):
    def __init__(self, config: Mapping[str, Any], dtype: Any) -> None:
        width, size, patch = config["hidden_size"], config["image_size"], config["patch_size"]
        self.size, count = size, (size // patch) ** 2 + 1
        self.class_embedding = Parameter(init.normal((width,), 0.02, dtype=dtype))
        self.patch_embedding = Conv2d(config["num_channels"], width, patch, stride=patch, bias=False, dtype=dtype)
        self.position_embedding = Embedding(count, width, dtype=dtype, std=0.02)

    def forward(self, images: mo.Tensor) -> mo.Tensor:
        if images.ndim != 4 or tuple(images.shape[2:]) != (self.size, self.size):
            raise fail(ArgumentError, "clip", f"images of shape {tuple(images.shape)} are not (batch, channels, "
                                              f"{self.size}, {self.size})", "make them with mo.models.ImageFeatures")
        patches = self.patch_embedding(images)
        batch, width = patches.shape[:2]
        patches = mo.matrix_transpose(mo.reshape(patches, (batch, width, -1)))
        first = mo.broadcast_to(self.class_embedding, (batch, 1, width))
        return mo.concat([first, patches], axis=1) + self.position_embedding.weight


class VisionTower(Module):
    def __init__(self, config: Mapping[str, Any], dtype: Any) -> None:
        width, eps = config["hidden_size"], config["layer_norm_eps"]
        self.embeddings, self.encoder = VisionEmbeddings(config, dtype), Encoder(config, dtype)
        self.pre_layrnorm, self.post_layernorm = (LayerNorm(width, eps, dtype=dtype) for _ in range(2))

    def forward(self, images: mo.Tensor) -> mo.Tensor:
        """The vector of each image's class token: (batch, width)."""
        x = self.encoder(self.pre_layrnorm(self.embeddings(images)))
        return self.post_layernorm(x[:, 0])  # type: ignore[no-any-return]


@indexed_by_name
class Compared(NamedTuple):
    """Result of CLIP: `logits` (images, texts), and the vectors of both, of length 1."""

    logits: mo.Tensor
    image_embeds: mo.Tensor
    text_embeds: mo.Tensor


class CLIP(Model):
    """CLIP: `model(ids, images)` compares texts with images; `model.texts(ids)` and `model.images(images)` are vectors.

    >>> tower = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> model = mo.models.create("clip-vit-b32", text_config={**tower, "vocab_size": 50, "eos_token_id": 1},
    ...                          vision_config={**tower, "image_size": 8, "patch_size": 4}, projection_dim=6)
    >>> model(mo.asarray([[3, 4, 1]]), mo.zeros((2, 3, 8, 8))).logits.shape
    (2, 1)
    """

    model_type = "clip"
    config_class = CLIPConfig

    def __init__(self, config: CLIPConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        text, vision, width = config.text_config, config.vision_config, config.projection_dim
        self.text_model, self.vision_model = TextTower(text, dtype), VisionTower(vision, dtype)
        self.visual_projection = Linear(vision["hidden_size"], width, False, dtype)
        self.text_projection = Linear(text["hidden_size"], width, False, dtype)
        self.logit_scale = Parameter(mo.full((), config.logit_scale_init_value, dtype=dtype))

    def texts(self, ids: mo.Tensor, mask: Any = None) -> mo.Tensor:
        """Vectors of texts (batch, length) -> (batch, projection_dim); `mask` is 0 at padding."""
        ids = mo.asarray(ids)
        seen = None if mask is None else key_mask("clip", mask, ids)
        return self.text_projection(self.text_model(ids, seen))  # type: ignore[no-any-return]

    def images(self, images: mo.Tensor) -> mo.Tensor:
        """Vectors of images (batch, channels, size, size) -> (batch, projection_dim)."""
        return self.visual_projection(self.vision_model(mo.asarray(images)))  # type: ignore[no-any-return]

    def forward(self, ids: mo.Tensor, images: mo.Tensor, mask: Any = None) -> Compared:
        both = [x / mo.sqrt(mo.sum(mo.square(x), axis=-1, keepdims=True))
                for x in (self.images(images), self.texts(ids, mask))]
        logits = mo.matmul(both[0], mo.matrix_transpose(both[1])) * mo.exp(self.logit_scale)
        return Compared(logits, *both)


SIZES: dict[str, dict[str, Any]] = {"clip-vit-b32": {}}


def _names(settings: Settings, names: Collection[str]) -> list[Rule]:
    return [Rule("{tower}.embeddings.position_ids", None)]


FAMILIES = (Family("clip", CLIP, SIZES, Names(rules=_names)),)
