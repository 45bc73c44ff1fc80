"""Which parts and heads a folder's weights have: their names say it, and `architectures` where names do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from morpho.models.files.decoder_names import FAMILIES as DECODERS

Config = dict[str, Any]


def with_parts(family: str, config: Mapping[str, Any], weights: Any) -> Config:
    """The configuration with what the weights say about parts, unless it says so itself."""
    found = dict(config)
    if family == "bert":
        found = {"masked_lm": any(name.startswith("cls.predictions") for name in weights),
                 "pooler": any("pooler." in name for name in weights), **found}
    if family == "vit" and "id2label" not in config:  # published files leave two labels unsaid
        found = {"num_labels": 2, **found}
    if family in DECODERS:
        found = {**_decoder_head(config, weights), **found}
    return found


def _decoder_head(config: Mapping[str, Any], weights: Any) -> Config:
    if "qa_outputs.weight" in weights:
        return {"head": "span"}
    if "score.weight" in weights:
        return {"head": "token" if "score.bias" in weights else "sequence",
                "labels": int(weights.shapes["score.weight"][0])}
    return {}
