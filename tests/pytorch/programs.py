"""PyTorch programs for the tests: operations in groups, and small models. Imported only where PyTorch is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Named = dict[str, Callable[..., Any]]

# Each is a function of x (4, 6) float32, p of its positive values, i (4, 6) int64 with both signs, b (4, 6) bool.
POINTWISE: Named = {
    "abs": lambda x, p, i, b: i.abs(), "acos": lambda x, p, i, b: (x / 4).acos(), "add": lambda x, p, i, b: x + i,
    "add bools": lambda x, p, i, b: b + b, "alpha": lambda x, p, i, b: torch.add(x, p, alpha=2.5),
    "atan2": lambda x, p, i, b: torch.atan2(x, p), "bitwise": lambda x, p, i, b: (i & 3) ^ ~i,
    "clamp": lambda x, p, i, b: i.clamp(min=-1.5), "clamp tensor": lambda x, p, i, b: x.clamp(p - 1, p),
    "compare": lambda x, p, i, b: (x > i) | (i != 1), "order of bools": lambda x, p, i, b: (b < True) | (b >= ~b),
    "maximum of bools": lambda x, p, i, b: torch.maximum(b, ~b) & torch.minimum(b, b),
    "copysign": lambda x, p, i, b: torch.copysign(p, i),
    "div integers": lambda x, p, i, b: i / 2, "div floor": lambda x, p, i, b: torch.div(i, 3, rounding_mode="floor"),
    "div trunc": lambda x, p, i, b: torch.div(i, 3, rounding_mode="trunc"), "elu": lambda x, p, i, b: F.elu(x, 0.7),
    "erf": lambda x, p, i, b: x.erf(), "exp of integers": lambda x, p, i, b: i.exp(),
    "fmod": lambda x, p, i, b: torch.fmod(i, 3), "gelu": lambda x, p, i, b: F.gelu(x),
    "gelu tanh": lambda x, p, i, b: F.gelu(x, approximate="tanh"), "hardswish": lambda x, p, i, b: F.hardswish(x),
    "hardtanh": lambda x, p, i, b: F.hardtanh(x), "isnan": lambda x, p, i, b: (x / 0).isnan() | i.isnan(),
    "leaky": lambda x, p, i, b: F.leaky_relu(x, 0.2), "lerp": lambda x, p, i, b: torch.lerp(x, p, 0.3),
    "log": lambda x, p, i, b: p.log() + p.log1p() + p.log2(), "logical": lambda x, p, i, b: torch.logical_and(x, i),
    "maximum": lambda x, p, i, b: torch.maximum(x, i), "pow": lambda x, p, i, b: p ** x + p ** 2 + 2.0 ** x,
    "reciprocal": lambda x, p, i, b: p.reciprocal() + p.rsqrt(), "remainder": lambda x, p, i, b: i % -3,
    "round": lambda x, p, i, b: x.round() + x.floor() + x.ceil() + x.trunc(), "sign": lambda x, p, i, b: x.sign(),
    "silu": lambda x, p, i, b: F.silu(x) + F.mish(x), "softplus": lambda x, p, i, b: F.softplus(x, 2.0),
    "where": lambda x, p, i, b: torch.where(b, x, i), "scalar types": lambda x, p, i, b: i * 2.5 + True,
    "0-d": lambda x, p, i, b: x.bfloat16() * torch.ones((), dtype=torch.float64),
    "half": lambda x, p, i, b: x.half() + 1,
}
REDUCTIONS: Named = {
    "sum of bools": lambda x, p, i, b: b.sum(), "sum": lambda x, p, i, b: i.sum(0, keepdim=True),
    "mean": lambda x, p, i, b: x.mean((0, 1)), "mean of integers": lambda x, p, i, b: i.mean(1, dtype=torch.float32),
    "mean bfloat16": lambda x, p, i, b: x.bfloat16().mean(1), "amax": lambda x, p, i, b: x.amax(0) + x.amin(0),
    "max": lambda x, p, i, b: x.max(1),
    "min of integers": lambda x, p, i, b: i.min(),
    "any": lambda x, p, i, b: x.any(1),
    "all": lambda x, p, i, b: b.all(), "argmax": lambda x, p, i, b: x.argmax(), "var": lambda x, p, i, b: x.var(1),
    "std": lambda x, p, i, b: x.std(0, correction=0), "prod": lambda x, p, i, b: p.prod(1),
    "cumsum": lambda x, p, i, b: b.cumsum(1), "sort": lambda x, p, i, b: x.sort(1, descending=True),
    "topk": lambda x, p, i, b: x.topk(3), "softmax": lambda x, p, i, b: x.softmax(0),
    "log_softmax": lambda x, p, i, b: x.log_softmax(1), "logsumexp": lambda x, p, i, b: x.logsumexp((0, 1)),
    "norm": lambda x, p, i, b: torch.linalg.vector_norm(x, dim=1), "count": lambda x, p, i, b: x.count_nonzero(),
}
MOVES: Named = {
    "transpose": lambda x, p, i, b: x.t().contiguous() + 1, "view": lambda x, p, i, b: x.view(2, -1) + 1,
    "expand": lambda x, p, i, b: x[:, None].expand(-1, 3, -1) * 2, "slice": lambda x, p, i, b: x[1:, ::2] + 1,
    "select": lambda x, p, i, b: x[:, -1] * 2, "cat": lambda x, p, i, b: torch.cat([x, i], 1),
    "stack": lambda x, p, i, b: torch.stack([x, p], -1), "split": lambda x, p, i, b: [s + 1 for s in x.split(4, 1)],
    "flip": lambda x, p, i, b: x.flip(0, 1), "roll": lambda x, p, i, b: x.roll(2, 1),
    "repeat": lambda x, p, i, b: x.repeat(2, 1, 2), "pad": lambda x, p, i, b: F.pad(x, (1, -2, 2, 0), value=3.0),
    "reflect": lambda x, p, i, b: F.pad(x[None], (2, 1), mode="reflect"), "tril": lambda x, p, i, b: x.tril(1),
    "diagonal": lambda x, p, i, b: x.diagonal(1) * 2, "unfold": lambda x, p, i, b: x.unfold(1, 3, 2) + 0,
    "strided": lambda x, p, i, b: torch.as_strided(x, (3, 3), (1, 2), 1) + 0,
    "to": lambda x, p, i, b: x.to(torch.int32),
    "index": lambda x, p, i, b: x[:, i[0].abs() % 6], "index both": lambda x, p, i, b: x[i[:, 0] % 4, i[:, 1] % 6],
    "gather": lambda x, p, i, b: x.gather(1, i[:, :2].abs() % 6), "embedding": lambda x, p, i, b: F.embedding(i % 4, x),
    "scatter": lambda x, p, i, b: x.scatter(1, torch.arange(6).flip(0)[None], 2.0),
    "scatter_add": lambda x, p, i, b: x.scatter_add(0, i.abs() % 4, p),
    "masked_fill": lambda x, p, i, b: x.masked_fill(b, 9),
    "index_put": lambda x, p, i, b: x.index_put((i[:, 0].abs() % 4,), p, accumulate=True),
    "arange": lambda x, p, i, b: torch.arange(1, 7, 2) + torch.full((3,), 2),
    "matmul": lambda x, p, i, b: x @ p.t(), "integer product": lambda x, p, i, b: i @ i.t(),
    "einsum": lambda x, p, i, b: torch.einsum("ij,kj->ki", x, p),
    "addmm": lambda x, p, i, b: torch.addmm(x[:, :4], x, p.t(), beta=0.5),
    "norms": lambda x, p, i, b: F.layer_norm(x, (6,)) + F.rms_norm(x, (6,)) + F.group_norm(x, 3),
    "conv": lambda x, p, i, b: F.conv1d(x[None], p[None, :, :3].expand(2, 4, 3), padding=1),
    "max_pool": lambda x, p, i, b: F.max_pool2d(x[None], 2), "avg_pool": lambda x, p, i, b: F.avg_pool2d(x[None], 2),
    "adaptive pool": lambda x, p, i, b: F.adaptive_avg_pool2d(x[None], (2, 4)),
    "resize": lambda x, p, i, b: F.interpolate(x[None, None], (5, 9), mode="bilinear"),
    "fft": lambda x, p, i, b: torch.fft.rfft(x).abs(), "loss": lambda x, p, i, b: F.cross_entropy(x, i[:, 0].abs() % 6),
}
GROUPS = {"pointwise": POINTWISE, "reductions": REDUCTIONS, "moves": MOVES}


def operands() -> tuple[torch.Tensor, ...]:
    """x, p, i, b of the operations above."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 6, generator=generator)
    return x, x.abs() + 0.1, torch.randint(-5, 6, (4, 6), generator=generator), x > 0.2


class Group(nn.Module):
    """All operations of a group as one module."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.functions = GROUPS[name]

    def forward(self, x: Any, p: Any, i: Any, b: Any) -> dict[str, Any]:
        return {name: function(x, p, i, b) for name, function in self.functions.items()}


class Block(nn.Module):
    """A transformer's block: causal attention and a feed-forward network, each after a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, width = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Language(nn.Module):
    """A small GPT: embeddings, two blocks, logits by the same weights."""

    def __init__(self, vocabulary: int = 50, width: int = 32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(16, width)
        self.blocks = nn.ModuleList([Block(width, 4), Block(width, 4)])
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.t()


class Images(nn.Module):
    """A small residual network with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=4), nn.BatchNorm2d(8), nn.SiLU())
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.head((x + self.deep(x)).mean((2, 3)))
