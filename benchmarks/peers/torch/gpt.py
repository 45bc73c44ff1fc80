"""PyTorch's GPT-2: a plain module with PyTorch's own attention, and its training step.

AdamW is PyTorch's fused one, the fastest it has on a CPU. `torch.compile` gets the model with its loss, forward and
backward; clipping and AdamW are the same calls as in eager mode.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.models import gpt2
from benchmarks.train import gpt


class Block(nn.Module):
    """Attention and a feed-forward part, pre-norm; a cache is (2, batch, heads, length, depth), written at its end."""

    def __init__(self, width: int, heads: int, exact: bool) -> None:
        super().__init__()
        self.heads, self.formula = heads, "none" if exact else "tanh"
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x: torch.Tensor, cache: torch.Tensor | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.attn["c_attn"](self.ln_1(x)).split(width, dim=-1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        if cache is None:
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            cache[0, :, :, -1:], cache[1, :, :, -1:] = k, v
            seen = functional.scaled_dot_product_attention(q, cache[0], cache[1])
        x = x + self.attn["c_proj"](seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp["c_proj"](functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate=self.formula))


class GPT(nn.Module):
    """The model: its loss where there are targets, else its logits; a cache has one free place at its end."""

    def __init__(self, size: gpt2.Size, exact: bool) -> None:
        super().__init__()
        width, vocabulary = size.width, size.vocabulary
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(size.positions, width)
        self.h = nn.ModuleList(Block(width, size.heads, exact) for _ in range(size.layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = None if size.tied else nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor | None = None, cache: torch.Tensor | None = None
                ) -> torch.Tensor:
        past = 0 if cache is None else cache.shape[-2] - 1
        x = self.wte(ids) + self.wpe.weight[past:past + ids.shape[1]]
        for number, block in enumerate(self.h):
            x = block(x, None if cache is None else cache[number])
        head = self.wte if self.lm_head is None else self.lm_head
        logits = functional.linear(self.ln_f(x), head.weight)
        return logits if targets is None else functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build(weights: dict[str, np.ndarray], heads: int, exact: bool = True) -> GPT:
    """A module that holds these weights; nn.Linear has them turned. `exact` is about GELU."""
    vocabulary, width = weights["wte.weight"].shape
    size = gpt2.Size(gpt2.layers_of(weights), width, heads, vocabulary, len(weights["wpe.weight"]),
                     tied="lm_head.weight" not in weights)
    model = GPT(size, exact)
    turned = {name: torch.from_numpy(np.ascontiguousarray(array.T) if ".c_" in name and array.ndim == 2 else array)
              for name, array in weights.items()}
    model.load_state_dict(turned)
    return model


def prepare(case: str, inputs: dict[str, np.ndarray], compiled: bool = False
            ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The step and its arguments."""
    model = build(gpt.weights_of(inputs), int(inputs["heads"])).train()
    opt = torch.optim.AdamW(model.parameters(), lr=gpt.LEARNING_RATE, weight_decay=gpt.WEIGHT_DECAY, fused=True)
    forward = torch.compile(model, dynamic=False) if compiled else model
    half = case.endswith("_bf16")

    def step(ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
            loss = forward(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), gpt.CLIP)
        opt.step()
        opt.zero_grad()
        return loss.detach()

    return step, tuple(torch.from_numpy(inputs[key]) for key in ("ids", "targets"))
