"""GPT-2 124M with random weights: the weights, the answer in float64, and a plain PyTorch implementation.

Morpho's side is ``benchmarks/gpt2.py``, which the benchmark calls so:

    build_gpt2(weights, dtype) -> (forward, decode)     # dict of float32 arrays, "float32" or "bfloat16"
    forward(ids) -> logits                              # int64 [batch, length] -> [batch, length, 50257]
    decode(ids, cache) -> logits                        # int64 [batch, 1], cache [12, 2, batch, 12, past, 64]
    make_cache(array, dtype) -> cache                   # optional: the cache as decode likes it; else a tensor

``decode`` may return a tuple whose first member is the logits. The names and shapes of the weights are those of the
published model, so its file fits: ``h.0.attn.c_attn.weight`` is 768 x 2304 and is multiplied from the right, the head
is the embedding transposed, GELU is the tanh formula, norms have an epsilon of 1e-5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

LAYERS, HEADS, WIDTH, VOCABULARY, POSITIONS = 12, 12, 768, 50257, 1024
HEAD_WIDTH = WIDTH // HEADS
EPSILON = 1e-5
SEED = 20261116
Arrays = dict[str, np.ndarray]


def shapes(layers: int = LAYERS) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights, in the order of the published file."""
    from benchmarks.train import gpt

    return gpt.shapes(layers, WIDTH, VOCABULARY, POSITIONS, tied=True)


@lru_cache(maxsize=1)
def make_weights(dtype: str = "float32", layers: int = LAYERS) -> Arrays:
    """The weights of the seed, with the spread of the published initialisation, rounded to the type."""
    from benchmarks.kernels.cases import rounded

    rng = np.random.default_rng(SEED)
    found: Arrays = {}
    for name, shape in shapes(layers).items():
        values = rng.standard_normal(shape, dtype=np.float32)
        values *= np.float32(0.02)
        if "ln_" in name and name.endswith("weight"):
            values += 1.0
        found[name] = rounded(values, dtype)
    return found


def weight_count() -> int:
    """Numbers that every token meets: all weights but the positions'."""
    return sum(math.prod(shape) for name, shape in shapes().items() if name != "wpe.weight")


def read_bytes(dtype: str, past: int) -> int:
    """Bytes that decoding one token must read: the weights and the cache."""
    return (weight_count() + 2 * LAYERS * WIDTH * past) * (2 if dtype == "bfloat16" else 4)


def make_ids(rng: np.random.Generator, batch: int, length: int) -> np.ndarray:
    """Random tokens."""
    return rng.integers(0, VOCABULARY, (batch, length), dtype=np.int64)


def make_cache(rng: np.random.Generator, batch: int, past: int) -> np.ndarray:
    """Random keys and values of every layer: layers x 2 x batch x heads x past x width of a head."""
    return rng.standard_normal((LAYERS, 2, batch, HEADS, past, HEAD_WIDTH), dtype=np.float32)


def reference(weights: Arrays, ids: np.ndarray, cache: np.ndarray | None = None) -> np.ndarray:
    """The logits in float64."""
    from benchmarks.train import gpt

    return gpt.logits(weights, ids, HEADS, exact=False, cache=cache)


def build_torch(weights: Arrays, dtype: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``forward(ids)`` and ``decode(ids, cache)`` of a PyTorch module; the cache has one free place at its end."""
    import torch

    module = _module_class()(weights, getattr(torch, dtype)).eval()
    return lambda ids: module(ids), lambda ids, cache: module(ids, cache)


def build_torch_compiled(weights: Arrays, dtype: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The same through ``torch.compile`` with its weights frozen."""
    import torch

    module = torch.compile(_module_class()(weights, getattr(torch, dtype)).eval(), dynamic=False)
    return lambda ids: module(ids), lambda ids, cache: module(ids, cache)


def torch_cache(array: np.ndarray, dtype: str) -> Any:
    """A cache with room for one more token: writing there makes decoding repeatable and copies nothing."""
    import torch

    roomy = np.concatenate([array, np.zeros_like(array[..., :1, :])], axis=-2)
    return torch.from_numpy(roomy).to(getattr(torch, dtype))


@lru_cache(maxsize=1)
def _module_class() -> Any:
    """The module's class, made when PyTorch is there."""
    import torch
    from torch.nn import functional

    class Gpt2(torch.nn.Module):
        """GPT-2, as plainly as PyTorch allows: its own attention, its own GELU, weights as F.linear likes them."""

        def __init__(self, weights: Arrays, dtype: torch.dtype) -> None:
            super().__init__()
            for name, array in weights.items():
                turned = array.T if array.ndim == 2 and name.startswith("h.") else array
                values = torch.from_numpy(np.ascontiguousarray(turned)).to(dtype)
                self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(values, requires_grad=False))

        def linear(self, x: Any, name: str) -> Any:
            return functional.linear(x, getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias"))

        def norm(self, x: Any, name: str) -> Any:
            weight, bias = getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")
            return functional.layer_norm(x, (WIDTH,), weight, bias, EPSILON)

        def attend(self, x: Any, layer: int, cache: Any) -> Any:
            batch, length, _ = x.shape
            parts = self.linear(x, f"h_{layer}_attn_c_attn").split(WIDTH, dim=-1)
            q, k, v = (part.view(batch, length, HEADS, HEAD_WIDTH).transpose(1, 2) for part in parts)
            if cache is None:
                mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                keys, values = cache[layer][0], cache[layer][1]
                keys[:, :, -1:] = k
                values[:, :, -1:] = v
                mixed = functional.scaled_dot_product_attention(q, keys, values)
            return self.linear(mixed.transpose(1, 2).reshape(batch, length, WIDTH), f"h_{layer}_attn_c_proj")

        def forward(self, ids: Any, cache: Any = None) -> Any:
            past = 0 if cache is None else cache.shape[-2] - 1
            x = functional.embedding(ids, self.wte_weight) + self.wpe_weight[past:past + ids.shape[1]]
            for layer in range(LAYERS):
                x = x + self.attend(self.norm(x, f"h_{layer}_ln_1"), layer, cache)
                hidden = self.linear(self.norm(x, f"h_{layer}_ln_2"), f"h_{layer}_mlp_c_fc")
                x = x + self.linear(functional.gelu(hidden, approximate="tanh"), f"h_{layer}_mlp_c_proj")
            return functional.linear(self.norm(x, "ln_f"), self.wte_weight)

    return Gpt2
