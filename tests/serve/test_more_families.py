"""The generation engine over pages gives the tokens of `mo.models.generate` for the families that it takes, and refuses
the others with a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.serve.engine.runner import ModelRunner, Row

SMALL = {"vocab_size": 61, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 2, "max_position_embeddings": 256}
TAKEN: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 5}, "qwen2": {"use_sliding_window": True, "sliding_window": 70,
                                                "max_window_layers": 1}, "qwen3": {"head_dim": 8}}


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_pages_give_the_bits_of_the_whole_text(name: str) -> None:
    model = mo.models.create(name, **SMALL, **TAKEN[name]).eval()
    ids = np.random.default_rng(3).integers(0, 61, 80).tolist()
    whole = model(mo.asarray([ids])).numpy()[0]
    runner = ModelRunner(model, pages=4, max_batch=2, chunk=64)
    assert (runner.prefill(Row(ids[:64], 0, [1])) == whole[63]).all()
    assert (runner.prefill(Row(ids[64:78], 64, [1, 3])) == whole[77]).all()  # over the end of a page
    assert (runner.decode([Row([ids[78]], 78, [1, 3])])[0, 0] == whole[78]).all()


@pytest.mark.parametrize(("name", "settings", "reason"), [
    ("gemma2", {}, "capped scores are not computed over pages"),
    ("phi3", {"num_key_value_heads": 6, "rope_scaling": {
        "type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [2.0, 3.0],
        "original_max_position_embeddings": 64}}, "its angles follow from the length of the text"),
    ("qwen2", {"head": "token", "labels": 3}, "its head is not that of the next token")])
def test_others_are_refused(name: str, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ArgumentError, match=f"like this is not served: .*{reason}"):
        ModelRunner(mo.models.create(name, **{**SMALL, **settings}), pages=2)
