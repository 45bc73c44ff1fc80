"""Cards of known model families: GPT-2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.plan.card import BYTES_OF, Layer, ModelCard

NAMED: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257,
             "n_positions": 1024},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "vocab_size": 50257,
                "n_positions": 1024},
}


def card_from_config(config: str | Path | Mapping[str, Any], batch: int, context: int, dtype: str, micro_batches: int
                     ) -> ModelCard:
    """See `ModelCard.from_config`."""
    name = str(config) if not isinstance(config, Mapping) else str(config.get("model_type", "model"))
    if isinstance(config, Mapping):
        settings: Mapping[str, Any] = config
    elif name in NAMED:
        settings = NAMED[name]
    elif Path(config).is_file():
        settings = json.loads(Path(config).read_text())
    else:
        raise fail(ArgumentError, "plan", f"no model {name!r}", f"use a config.json or one of {', '.join(NAMED)}")
    size, width, tokens = BYTES_OF[dtype], settings["n_embd"], batch * context
    hidden, words = 4 * width, settings["vocab_size"]
    weights = int((4 * width * width + 2 * width * hidden) * size)
    block_flops = 8 * tokens * width**2 + 4 * tokens * context * width + 4 * tokens * width * hidden
    one = 8 * batch * width**2 + 4 * batch * context * width + 4 * batch * width * hidden
    cache = int(2 * batch * context * width * 2)
    block = Layer("block", "block", block_flops, weights, one, weights + cache, weights, cache, tokens * width,
                  batch * width, reduces=2, prefill_reduce_elements=2 * tokens * width,
                  decode_reduce_elements=2 * batch * width)
    table = int(words * width * size)
    embedding = Layer("embedding", "embedding", 0, tokens * width * 4, 0, batch * width * 4, table, 0, tokens * width,
                      batch * width)
    head = Layer("head", "head", 2 * tokens * width * words, table, 2 * batch * width * words, table, table, 0, 0, 0)
    layers = (embedding, *[block] * settings["n_layer"], head)
    return ModelCard(name, layers, batch, context, dtype, tied=(0, len(layers) - 1), tied_bytes=table,
                     micro_batches=micro_batches)
