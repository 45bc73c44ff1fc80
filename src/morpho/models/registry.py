"""The models by name: which family, with which settings."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import Model

# model_type -> file in this folder, and class
FAMILIES = {
    "gpt2": ("gpt2", "GPT2"),
    "llama": ("llama", "Llama"),
    "bert": ("encoders.bert", "Bert"),
    "t5": ("seq2seq.t5", "T5"),
    "prenorm": ("transformer", "PreNormTransformer"),
    "resnet": ("vision.resnet", "ResNet"),
    "vit": ("vision.vit", "ViT"),
    "mlp": ("small", "MLP"),
    "cnn": ("small", "CNN"),
    "roberta": ("encoders.roberta", "Roberta"),
    "distilbert": ("encoders.distilbert", "DistilBert"),
    "bart": ("seq2seq.bart", "Bart"),
    "whisper": ("seq2seq.whisper", "Whisper"),
    "clip": ("vision.clip", "CLIP"),
    "mistral": ("decoder.families.llama_like", "Mistral"),
    "mixtral": ("decoder.families.llama_like", "Mixtral"),
    "qwen2": ("decoder.families.llama_like", "Qwen2"),
    "qwen3": ("decoder.families.llama_like", "Qwen3"),
    "smollm3": ("decoder.families.llama_like", "SmolLM3"),
    "phi3": ("decoder.families.llama_like", "Phi3"),
    "gemma2": ("decoder.families.gemma", "Gemma2"),
    "gemma3_text": ("decoder.families.gemma", "Gemma3"),
    "olmo": ("decoder.families.others", "Olmo"),
    "olmo2": ("decoder.families.others", "Olmo2"),
    "gpt_neox": ("decoder.families.others", "NeoX"),
    "opt": ("decoder.families.others", "OPT"),
}


def _family(model_type: Any) -> tuple[type[Model], dict[str, dict[str, Any]]]:
    """The class, and the settings of each of its models by name; a family without a table has one, of its own name."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise fail(ArgumentError, "models", f"there is no family {model_type!r}", "one of " + ", ".join(FAMILIES))
    file, name = FAMILIES[model_type]
    module = importlib.import_module("morpho.models." + file)
    return getattr(module, name), getattr(module, "SIZES", {model_type: {}})


def names() -> list[str]:
    """`mo.models.list()`: the names that `create` takes.

    >>> "gpt2-xl" in mo.models.list()
    True
    """
    return sorted(name for model_type in FAMILIES for name in _family(model_type)[1])


def create(name: str, *, dtype: Any = mo.float32, **overrides: Any) -> Any:
    """A model with random weights; `overrides` replace settings of its configuration.

    >>> model = mo.models.create("gpt2", vocab_size=100, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> model.parameter_count()
    1816
    """
    kind, sizes = _named("models.create", name)
    return kind.from_config({**sizes, **overrides}, strict=True, dtype=dtype)


def config_of(name: str) -> dict[str, Any]:
    """The configuration of a model by name, without the model.

    >>> from morpho.models.registry import config_of
    >>> config_of("smollm2-135m")["num_hidden_layers"]
    30
    """
    kind, sizes = _named("models.config_of", name)
    return {"model_type": kind.model_type, **kind.checked_config(sizes, strict=True).to_dict()}


def _named(operation: str, name: str) -> tuple[type[Model], dict[str, Any]]:
    for model_type in FAMILIES:
        kind, sizes = _family(model_type)
        if name in sizes:
            return kind, sizes[name]
    raise fail(ArgumentError, operation, f"there is no model {name!r}", "one of " + ", ".join(names()))


def from_config(config: Mapping[str, Any], *, dtype: Any = mo.float32) -> Any:
    """A model with random weights from a configuration as `model.config` or a published config.json holds it;
    `model_type` says the family.

    >>> model = mo.models.create("gpt2", vocab_size=100, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> mo.models.from_config(model.config).config == model.config
    True
    """
    return family(config).from_config(config, dtype=dtype)


def family(config: Mapping[str, Any]) -> type[Model]:
    """The class of the models that a configuration is of."""
    if "model_type" not in config:
        raise fail(ArgumentError, "models.from_config", "the configuration has no model_type",
                   "one of " + ", ".join(FAMILIES))
    return _family(config["model_type"])[0]
