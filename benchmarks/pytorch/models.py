"""Models built from configurations, with random weights: what `morpho bench torch` measures. No network is needed."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.pytorch.vision import NETWORKS

Made = tuple[torch.nn.Module, tuple[Any, ...]]


def _layers(quick: bool) -> int:
    return 2 if quick else 12


def _text(quick: bool, vocabulary: int) -> tuple[Any, ...]:
    return (torch.randint(vocabulary, (1, 32 if quick else 128)),)


def bert(quick: bool) -> Made:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(num_hidden_layers=_layers(quick))), _text(quick, 30522)


def gpt2(quick: bool) -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=_layers(quick), use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return GPT2LMHeadModel(config), _text(quick, 50257)


def llama(quick: bool) -> Made:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(hidden_size=768, intermediate_size=2048, num_hidden_layers=_layers(quick),
                         num_attention_heads=12, num_key_value_heads=4, vocab_size=32000, use_cache=False)
    return LlamaModel(config), _text(quick, 32000)


def t5(quick: bool) -> Made:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(T5Config(num_layers=2 if quick else 6, vocab_size=32128)), _text(quick, 32128)


def whisper(quick: bool) -> Made:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    places = 100 if quick else 500
    config = WhisperConfig(encoder_layers=2 if quick else 6, d_model=512, encoder_attention_heads=8,
                           encoder_ffn_dim=2048, max_source_positions=places)
    return WhisperEncoder(config), (torch.randn(1, 80, 2 * places),)


def vit(quick: bool) -> Made:
    from transformers import ViTConfig, ViTModel

    size = 64 if quick else 224
    return ViTModel(ViTConfig(num_hidden_layers=_layers(quick), image_size=size)), (torch.randn(1, 3, size, size),)


def convnext(quick: bool) -> Made:
    from transformers import ConvNextConfig, ConvNextModel

    size = 64 if quick else 224
    depths = [1, 1, 2, 1] if quick else [3, 3, 9, 3]
    return ConvNextModel(ConvNextConfig(depths=depths, image_size=size)), (torch.randn(1, 3, size, size),)


def _vision(name: str) -> Callable[[bool], Made]:
    def make(quick: bool) -> Made:
        size = 64 if quick else 224
        return NETWORKS[name](), (torch.randn(1, 3, size, size),)

    return make


MODELS: dict[str, Callable[[bool], Made]] = {
    "bert": bert, "gpt2": gpt2, "llama": llama, "t5": t5, "whisper": whisper, "vit": vit, "convnext": convnext,
    **{name: _vision(name) for name in NETWORKS},
}


def available() -> dict[str, str]:
    """Every model, with what it lacks here; empty where it can be built."""
    lack = "" if importlib.util.find_spec("transformers") else "transformers is not installed"
    return {name: "" if name in NETWORKS else lack for name in MODELS}


def build(name: str, quick: bool) -> Made:
    """A model with its arguments, the same every time."""
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    return MODELS[name](quick)


def result(output: Any) -> torch.Tensor:
    """The main tensor of what a model returns."""
    for name in ("logits", "last_hidden_state"):
        if getattr(output, name, None) is not None:
            return getattr(output, name)
    return output[0] if isinstance(output, tuple) else output
