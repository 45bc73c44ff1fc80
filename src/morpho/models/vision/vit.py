"""ViT: an image cut into patches that a transformer encoder looks at. Names are those of the files on the Hugging Face
hub: `vit.encoder.layer.0.attention.attention.query.weight`, ..."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import Model
from morpho.models.config import Config
from morpho.models.encoders.encoder import Dense, SelfAttention
from morpho.models.family import Family, Names, Settings
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.convolution import Conv2d
from morpho.nn.layers.dropout import Dropout
from morpho.nn.layers.linear import Linear
from morpho.nn.layers.norm import LayerNorm
from morpho.nn.module import Module
from morpho.nn.transformer.blocks import ACTIVATIONS, activation
from morpho.tensor.state.variable import Parameter
from morpho.weights import Rule
from morpho.weights.keys import Key, Kind, irrelevant, one_of


@dataclass
class ViTConfig(Config):
    """The settings of a ViT."""

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    layer_norm_eps: float = 1e-12
    image_size: int = 224
    patch_size: int = 16
    num_channels: int = 3
    qkv_bias: bool = True
    num_labels: int = 1000
    initializer_range: float = 0.02
    renamed: ClassVar[Mapping[str, str]] = {"id2label": "num_labels"}  # published files name the labels
    others: ClassVar[Mapping[str, Key]] = {
        "attention_probs_dropout_prob": irrelevant("of training: attention has no dropout"),
        "encoder_stride": irrelevant("of a decoder of masked patches"), "pooler_*": irrelevant("there is no pooler"),
        "eos_token_id": irrelevant("no text is made")}
    kinds: ClassVar[Mapping[str, Kind]] = {
        "hidden_act": one_of(*ACTIVATIONS),
        "id2label": Kind(lambda value: isinstance(value, dict) and bool(value), "an object with a name for each label")}

    def __post_init__(self) -> None:
        if isinstance(self.num_labels, Mapping):
            self.num_labels = len(self.num_labels)


class Projection(Module):
    def __init__(self, config: ViTConfig, dtype: Any) -> None:
        size = config.patch_size
        self.projection = Conv2d(config.num_channels, config.hidden_size, size, stride=size, dtype=dtype)


class Embeddings(Module):
    """Patches as vectors behind one of the class, with learned positions added."""

    def __init__(self, config: ViTConfig, dtype: Any) -> None:
        if config.image_size % config.patch_size:
            raise fail(ArgumentError, "vit", f"image_size={config.image_size} is not a multiple of "
                                             f"patch_size={config.patch_size}")
        self.size, width = config.image_size, config.hidden_size
        count = (config.image_size // config.patch_size) ** 2
        self.cls_token = Parameter(init.normal((1, 1, width), config.initializer_range, dtype=dtype))
        self.position_embeddings = Parameter(init.normal((1, count + 1, width), config.initializer_range, dtype=dtype))
        self.patch_embeddings = Projection(config, dtype)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, images: mo.Tensor) -> mo.Tensor:
        if tuple(images.shape[2:]) != (self.size, self.size):
            raise fail(ArgumentError, "vit", f"images of {tuple(images.shape[2:])} are not {self.size} by {self.size}")
        patches = self.patch_embeddings.projection(images)  # (batch, width, rows, columns)
        batch, width = patches.shape[:2]
        patches = mo.matrix_transpose(mo.reshape(patches, (batch, width, -1)))  # (batch, patches, width)
        first = mo.broadcast_to(self.cls_token, (batch, 1, width))
        return self.dropout(mo.concat([first, patches], axis=1) + self.position_embeddings)  # type: ignore


class Attention(Module):
    def __init__(self, config: ViTConfig, dtype: Any) -> None:
        self.attention = SelfAttention("vit", config.hidden_size, config.num_attention_heads, config.qkv_bias, dtype)
        self.output = Dense(config.hidden_size, config.hidden_size, dtype)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return self.output(self.attention(x))  # type: ignore[no-any-return]


class Layer(Module):
    def __init__(self, config: ViTConfig, dtype: Any) -> None:
        width, hidden = config.hidden_size, config.intermediate_size
        self._function = activation(config.hidden_act)
        self.attention = Attention(config, dtype)
        self.intermediate = Dense(width, hidden, dtype)
        self.output = Dense(hidden, width, dtype)
        self.layernorm_before, self.layernorm_after = (LayerNorm(width, config.layer_norm_eps, dtype=dtype)
                                                       for _ in range(2))
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        x = x + self.dropout(self.attention(self.layernorm_before(x)))
        inner = self._function(self.intermediate(self.layernorm_after(x)))
        return x + self.dropout(self.output(inner))  # type: ignore[no-any-return]


class Encoder(Module):
    def __init__(self, config: ViTConfig, dtype: Any) -> None:
        self.layer = ModuleList(Layer(config, dtype) for _ in range(config.num_hidden_layers))


class Body(Module):
    def __init__(self, config: ViTConfig, dtype: Any) -> None:
        self.embeddings = Embeddings(config, dtype)
        self.encoder = Encoder(config, dtype)
        self.layernorm = LayerNorm(config.hidden_size, config.layer_norm_eps, dtype=dtype)

    def forward(self, images: mo.Tensor) -> mo.Tensor:
        x = self.embeddings(images)
        for layer in self.encoder.layer:
            x = layer(x)
        return self.layernorm(x)  # type: ignore[no-any-return]


class ViT(Model):
    """ViT: images (batch, channels, size, size) -> logits (batch, labels).

    >>> model = mo.models.create("vit-b16", hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...                          intermediate_size=16, image_size=8, patch_size=4, num_labels=5)
    >>> model(mo.zeros((2, 3, 8, 8))).shape
    (2, 5)
    """

    model_type = "vit"
    config_class = ViTConfig

    def __init__(self, config: ViTConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self.vit = Body(config, dtype)
        self.classifier = Linear(config.hidden_size, config.num_labels, True, dtype)
        for name, parameter in self.named_parameters():
            if parameter.ndim in (2, 4):
                parameter.assign(init.normal(parameter.shape, config.initializer_range, dtype=dtype))  # type: ignore[arg-type]
            elif name.endswith("bias"):
                parameter.assign(mo.zeros(parameter.shape, dtype=dtype))

    def forward(self, images: mo.Tensor) -> mo.Tensor:
        return self.classifier(self.vit(images)[:, 0])  # type: ignore[no-any-return]


SIZES: dict[str, dict[str, Any]] = {
    "vit-b16": {},
    "vit-l16": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
}


def _names(settings: Settings, names: Collection[str]) -> list[Rule]:
    """Files of later versions name the parts of a layer otherwise."""
    here = "vit.encoder.layer.{i}."
    parts = {"attention.q_proj": "attention.attention.query", "attention.k_proj": "attention.attention.key",
             "attention.v_proj": "attention.attention.value", "attention.o_proj": "attention.output.dense",
             "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}
    return [
        Rule("vit.pooler.{rest:*}", None),
        *(Rule(f"vit.layers.{{i}}.{theirs}.{{what}}", f"{here}{ours}.{{what}}") for theirs, ours in parts.items()),
        Rule("vit.layers.{i}.{rest:*}", here + "{rest}"),
    ]


def _parts(settings: Settings, weights: Any) -> dict[str, Any]:
    return {} if "id2label" in settings else {"num_labels": 2}  # published files leave two labels unsaid


FAMILIES = (Family("vit", ViT, SIZES, Names(rules=_names, parts=_parts)),)
