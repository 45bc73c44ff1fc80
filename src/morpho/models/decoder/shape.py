"""How a decoder is built: everything in which the families differ, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LLAMA_NORMS = {"before_attention": "input_layernorm", "before_mlp": "post_attention_layernorm"}


@dataclass(frozen=True)
class Rope:
    """Rotary positions of some layers: how many numbers of a head turn, and how fast."""

    depth: int
    theta: float
    scaling: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Shape:
    """A decoder. `windows` and `ropes` have one entry for each layer, None for "sees all" and "does not turn".

    `norm` is "rms", "rms1" (the weight is kept less 1, as Gemma's), "layer" (LayerNorm) or "plain" (LayerNorm without
    weights). `norms` maps where a norm stands (`before_attention`, `after_attention`, `before_mlp`, `after_mlp`, and
    `sum_attention`, `sum_mlp` for norms of the sum with the residual) to its name in published files. `qk_norm` is
    "head" (each head alone) or "all" (all heads together). `joined` is how one matrix holds queries, keys and values:
    "parts" (all queries, then all keys, then all values) or "heads" (those of a head side by side).
    """

    family: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    depth: int
    hidden: int
    activation: str
    context: int
    eps: float
    tied: bool
    std: float
    norms: Mapping[str, str] = field(default_factory=lambda: LLAMA_NORMS)
    norm: str = "rms"
    final_norm: bool = True
    windows: tuple[int | None, ...] = ()
    ropes: tuple[Rope | None, ...] = ()
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    gated: bool = True
    joined: str = ""
    joined_mlp: bool = False
    qk_norm: str = ""
    scale: float | None = None
    score_cap: float | None = None  # scores become cap * tanh(score / cap)
    logit_cap: float | None = None
    embed_scale: float = 1.0
    clip: float | None = None  # bound of queries, keys and values
    parallel: bool = False  # attention and feed-forward part see the same x
    experts: int = 0
    experts_used: int = 0
    learned_positions: int = 0
    position_offset: int = 0  # rows of the table of positions before the first one
    embed_width: int | None = None  # of the table of words, where it is another than the layers'
    labels: int = 0
    head: str = ""  # "" for the next token, "sequence", "token" or "span"
