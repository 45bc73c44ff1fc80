"""PyTorch's side of the GPT: a plain module with PyTorch's own attention, and its training step.

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

from benchmarks.train import gpt


class Block(nn.Module):
    """Attention and a feed-forward part, pre-norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.attn["c_attn"](self.ln_1(x)).split(width, dim=-1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp["c_proj"](functional.gelu(self.mlp["c_fc"](self.ln_2(x))))


class GPT(nn.Module):
    """The model with its loss."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, positions: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.wte(ids) + self.wpe.weight[:ids.shape[1]]
        for block in self.h:
            x = block(x)
        return functional.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1), targets.flatten())


def build(weights: dict[str, np.ndarray], heads: int) -> GPT:
    """A module that holds these weights; nn.Linear has them turned."""
    vocabulary, width = weights["wte.weight"].shape
    layers = sum(name.endswith("ln_1.weight") for name in weights)
    model = GPT(layers, width, heads, vocabulary, len(weights["wpe.weight"]))
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
