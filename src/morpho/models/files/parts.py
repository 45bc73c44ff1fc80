"""Which parts and heads a folder's weights have: their names say it, and `architectures` where names do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from morpho.models.files.decoder_names import FAMILIES as DECODERS

Config = dict[str, Any]
HEADS = {"bert": "cls.predictions", "roberta": "lm_head.", "distilbert": "vocab_"}  # of masked tokens


def with_parts(family: str, config: Mapping[str, Any], weights: Any) -> Config:
    """The configuration with what the weights say about parts, unless it says so itself."""
    found = dict(config)
    if family in HEADS:
        found = {"masked_lm": any(name.startswith(HEADS[family]) for name in weights),
                 **_encoder_head(family, config, weights), **found}
        if family != "distilbert":
            found = {"pooler": any("pooler." in name for name in weights), **found}
    if family == "vit" and "id2label" not in config:  # published files leave two labels unsaid
        found = {"num_labels": 2, **found}
    if family == "bart" and "final_logits_bias" not in weights:
        found = {**_bart_head(weights), **found}
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


def _encoder_head(family: str, config: Mapping[str, Any], weights: Any) -> Config:
    """A classifier reads texts where something stands before it, or where `architectures` says so; else tokens."""
    if "qa_outputs.weight" in weights:
        return {"head": "span"}
    last = next((name for name in ("classifier.out_proj.weight", "classifier.weight") if name in weights), None)
    if last is None:
        return {}
    said = " ".join(map(str, config.get("architectures") or ()))
    texts = "out_proj" in last or "pre_classifier.weight" in weights or "SequenceClassification" in said or (
        family == "bert" and "TokenClassification" not in said and any("pooler." in name for name in weights))
    return {"head": "sequence" if texts else "token", "labels": int(weights.shapes[last][0])}


def _bart_head(weights: Any) -> Config:
    if "qa_outputs.weight" in weights:
        return {"head": "span"}
    last = "classification_head.out_proj.weight"
    return {"head": "sequence", "labels": int(weights.shapes[last][0])} if last in weights else {}
