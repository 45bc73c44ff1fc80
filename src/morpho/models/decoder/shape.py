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
    scale_by_layer: bool = False  # the scores of layer i are divided by i + 1
    score_cap: float | None = None  # scores become cap * tanh(score / cap)
    logit_cap: float | None = None
    embed_scale: float = 1.0
    residual_scale: float = 1.0  # of what each part adds
    logit_divisor: float = 1.0
    clip: float | None = None  # bound of queries, keys and values
    parallel: bool = False  # attention and feed-forward part see the same x
    experts: int = 0
    experts_used: int = 0
    learned_positions: int = 0
    position_offset: int = 0  # rows of the table of positions before the first one
    embed_width: int | None = None  # of the table of words, where it is another than the layers'
    labels: int = 0
    head: str = ""  # "" for the next token, "sequence", "token" or "span"

    # -- parameters ----------------------------------------------------------------------------------------------------
    def _norm(self, width: int) -> int:
        return width * {"rms": 1, "rms1": 1, "layer": 2, "plain": 0}[self.norm]

    @property
    def expert_parameters(self) -> int:
        """Parameters of a feed-forward part, or of one of its experts."""
        biases = (2 if self.gated else 1) * self.hidden + self.width if self.mlp_bias else 0
        return (3 if self.gated else 2) * self.width * self.hidden + biases

    @property
    def block_parameters(self) -> int:
        """Parameters of one block."""
        queries, keys = self.heads * self.depth, self.kv_heads * self.depth
        attention = 2 * self.width * (queries + keys) + (queries + 2 * keys if self.qkv_bias else 0)
        attention += self.width if self.out_bias else 0
        if self.qk_norm:
            attention += sum(self._norm(width) for width in ((queries, keys) if self.qk_norm == "all" else
                                                             (self.depth, self.depth)))
        router = self.experts * self.width
        return (attention + router + (self.experts or 1) * self.expert_parameters
                + len(self.norms) * self._norm(self.width))

    @property
    def table_parameters(self) -> int:
        """Parameters of the table of words, which a tied head shares."""
        return self.vocabulary * (self.embed_width or self.width)

    @property
    def _projection(self) -> int:
        return 0 if self.embed_width in (None, self.width) else (self.embed_width or 0) * self.width

    @property
    def embedding_parameters(self) -> int:
        """Parameters before the first block."""
        rows = self.learned_positions + self.position_offset if self.learned_positions else 0
        return self.table_parameters + rows * self.width + self._projection

    @property
    def head_parameters(self) -> int:
        """Parameters behind the last block, with a table of words that the head shares."""
        bias = self.vocabulary if self.head_bias and not self.tied else 0
        return self.table_parameters + bias + self._projection + (self._norm(self.width) if self.final_norm else 0)
