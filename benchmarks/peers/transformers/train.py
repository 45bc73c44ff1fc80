"""The transformers library on PyTorch: its GPT-2 and its `generate`, greedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.models import gpt2
from benchmarks.peers.prepared import Prepared
from benchmarks.peers.torch import core as torch_peer
from benchmarks.train import gpt

CASES_MODULE = "benchmarks.train.cases"


def load(threads: int) -> dict[str, str]:
    """Set the threads, switch gradients off."""
    transformers.logging.set_verbosity_error()
    return {**torch_peer.load(threads), "transformers": transformers.__version__}


def build(weights: dict[str, np.ndarray], heads: int) -> Any:
    """The library's model with these weights; its head is its embedding."""
    vocabulary, width = weights["wte.weight"].shape
    layers = gpt2.layers_of(weights)
    config = transformers.GPT2Config(vocab_size=vocabulary, n_positions=len(weights["wpe.weight"]), n_embd=width,
                                     n_layer=layers, n_head=heads, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval()
    named = {f"transformer.{name}": torch.from_numpy(array) for name, array in weights.items()}
    missing, extra = model.load_state_dict(named, strict=False)
    if extra or any(name != "lm_head.weight" and not name.endswith((".attn.bias", ".attn.masked_bias"))
                    for name in missing):
        raise ValueError(f"the weights do not fit: {missing} {extra}")
    return model


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Greedy tokens after the prompt."""
    if not name.startswith("generate"):
        raise KeyError(name)
    model = build(gpt.weights_of(inputs), int(inputs["heads"]))
    if gpt.dtype_of(name) == "bfloat16":
        model = model.to(torch.bfloat16)
    ids, new = torch.from_numpy(inputs["ids"])[None], int(inputs["new"])

    def run() -> list[int]:
        made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False,
                              eos_token_id=None, pad_token_id=0)
        return made[0, ids.shape[1]:].tolist()

    return Prepared(run, ())


def to_numpy(result: list[int]) -> tuple[np.ndarray, ...]:
    """The tokens."""
    return (np.asarray(result),)
