"""The models by name: which family, with which settings."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.family import Family

FILES = ("gpt2", "llama", "encoders.bert", "seq2seq.t5", "transformer", "vision.resnet", "vision.vit", "small",
         "encoders.roberta", "encoders.distilbert", "encoders.families", "seq2seq.bart", "seq2seq.bart_kin",
         "seq2seq.whisper", "vision.clip",
         "decoder.families.llama_like", "decoder.families.gemma", "decoder.families.others",
         "decoder.families.kin", "decoder.families.mixtures",
         "decoder.families.gpts", "decoder.families.hybrid")
_unread = [*FILES]
_records: dict[str, Family] = {}


def register(family: Family) -> Family:
    """Add a family: from then on it is created, loaded, saved, planned, cut and shared as all others."""
    if _records.get(family.name, family) is not family:
        raise fail(ArgumentError, "models", f"there is a family {family.name!r} already")
    _records[family.name] = family
    return family


def _read() -> None:
    """Register the families of the next file."""
    for family in importlib.import_module("morpho.models." + _unread[0]).FAMILIES:
        register(family)
    _unread[:1] = []


def families() -> dict[str, Family]:
    """All families by `model_type`.

    >>> from morpho.models.registry import families
    >>> families()["gemma2"].title
    'Gemma2'
    """
    while _unread:
        _read()
    return _records


def record(model_type: Any) -> Family:
    """The record of a family."""
    known = isinstance(model_type, str)
    while known and _unread and model_type not in _records:
        _read()
    if not known or model_type not in _records:
        raise fail(ArgumentError, "models", f"there is no family {model_type!r}", "one of " + ", ".join(families()))
    return _records[model_type]


def names() -> list[str]:
    """`mo.models.list()`: the names that `create` takes.

    >>> "gpt2-xl" in mo.models.list()
    True
    """
    return sorted(name for family in families().values() for name in family.sizes)


def create(name: str, *, dtype: Any = mo.float32, **overrides: Any) -> Any:
    """A model with random weights; `overrides` replace settings of its configuration.

    >>> model = mo.models.create("gpt2", vocab_size=100, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> model.parameter_count()
    1816
    """
    family, sizes = _named("models.create", name)
    return family.model.from_config({**sizes, **overrides}, strict=True, dtype=dtype)


def config_of(name: str) -> dict[str, Any]:
    """The configuration of a model by name, without the model.

    >>> from morpho.models.registry import config_of
    >>> config_of("smollm2-135m")["num_hidden_layers"]
    30
    """
    family, sizes = _named("models.config_of", name)
    return {"model_type": family.name, **family.model.checked_config(sizes, strict=True).to_dict()}


def _named(operation: str, name: str) -> tuple[Family, Mapping[str, Any]]:
    while True:
        for family in _records.values():
            if name in family.sizes:
                return family, family.sizes[name]
        if not _unread:
            break
        _read()
    raise fail(ArgumentError, operation, f"there is no model {name!r}", "one of " + ", ".join(names()))


def from_config(config: Mapping[str, Any], *, dtype: Any = mo.float32) -> Any:
    """A model with random weights from a configuration as `model.config` or a published config.json holds it;
    `model_type` says the family.

    >>> model = mo.models.create("gpt2", vocab_size=100, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> mo.models.from_config(model.config).config == model.config
    True
    """
    return family(config).model.from_config(config, dtype=dtype)


def family(config: Mapping[str, Any]) -> Family:
    """The family that a configuration is of."""
    if "model_type" not in config:
        raise fail(ArgumentError, "models.from_config", "the configuration has no model_type",
                   "one of " + ", ".join(families()))
    return record(config["model_type"])
