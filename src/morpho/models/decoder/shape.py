"""How a decoder is built: everything in which the families differ, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NORM_WEIGHTS = {"rms": 1, "rms1": 1, "rms0": 0, "layer": 2, "layer1": 2, "layer0": 1, "plain": 0}
LLAMA_NORMS = {"before_attention": "input_layernorm", "before_mlp": "post_attention_layernorm"}


@dataclass(frozen=True)
class Rope:
    """Rotary positions of some layers: how many numbers of a head turn, how fast, and whether pairs are neighbours."""

    depth: int
    theta: float
    scaling: Mapping[str, Any] | None = None
    interleaved: bool = False
    backwards: bool = False


@dataclass(frozen=True)
class Latent:
    """Attention whose keys and values are products of one short vector for each token, which is what a cache keeps.

    Queries go through `query_rank` numbers where there is one. Of a head's queries and keys `depth` numbers do not
    turn; those of a key that turn are shared by all heads. A head's values have `value_depth` numbers.
    """

    rank: int
    query_rank: int | None
    depth: int
    value_depth: int


@dataclass(frozen=True)
class Mixture:
    """Experts: each token goes through `used` of `count`, each of `hidden` numbers inside.

    `router` makes shares of a token's logits: "softmax", "sigmoid", "after" (softmax of the chosen ones' logits),
    "mixer" (Phi's sparse mixer) or "input" (a sigmoid that scales what the expert reads). `normed` divides the chosen
    shares by their sum, at least `least`; `scale` multiplies them. `correction` adds a number for each expert to what
    is compared. Of `groups` of experts the best `groups_used` take part, by their two best ones or, with "max", the
    best one. `shared` numbers belong to an expert of all tokens, which has a gate of its own with `shared_gate`.
    `limit` and `alpha` are those of gates that are clipped (gpt-oss), whose products have biases.
    """

    count: int
    used: int
    hidden: int
    router: str = "softmax"
    normed: bool = True
    least: float = 0.0
    scale: float = 1.0
    correction: bool = False
    router_bias: bool = False
    groups: int = 1
    groups_used: int = 1
    group_score: str = "sum"
    shared: int = 0
    shared_gate: bool = False
    jitter: float = 0.0
    limit: float | None = None
    alpha: float = 1.0


@dataclass(frozen=True)
class Shape:
    """A decoder. `windows` and `ropes` have one entry for each layer, None for "sees all" and "does not turn".

    `norm` is "rms", "rms1" (the weight is kept less 1, as Gemma's), "rms0" (no weight), "layer" (LayerNorm), "layer1"
    (its weight is kept less 1), "layer0" (no bias) or "plain" (LayerNorm without weights). `norms` maps where a norm
    stands (`before_attention`, `after_attention`, `before_mlp`, `after_mlp`, and `sum_attention`, `sum_mlp` for norms
    of the sum with the residual) to its name in published files; parts in parallel share a norm where one is named.
    `qk_norm` is "head" (each head alone), "heads" (each head alone, with weights of its own) or "all" (all heads
    together), by a norm of the kind `qk_kind`, before the turn or after it (`qk_late`). `joined` is how one matrix
    holds queries, keys and values: "parts" (all queries, then all keys, then all values) or "heads" (the queries, the
    key and the value of each key head side by side). `alibi` are slopes of the heads.
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
    mixture: Mixture | None = None
    dense: tuple[int, ...] = ()  # layers without experts, where others have them
    latent: Latent | None = None
    qk_kind: str = ""
    qk_late: bool = False
    qk_turned: bool = False  # only layers with positions norm queries and keys
    sinks: bool = False  # each head has a score that nothing is read for
    alibi: tuple[float, ...] = ()
    alibi_rounded: bool = False  # slopes times positions are bfloat16, and multiplied by the scale of the scores
    chunks: tuple[int | None, ...] = ()  # a layer's tokens see only those of their own piece of the text
    warmth: tuple[tuple[float, float, float] | None, ...] = ()  # queries times 1 + a log(1 + floor((place + b) / c))
    convolutions: tuple[int, ...] = ()  # tokens that a layer without attention mixes, 0 for one with attention
    convolution_bias: bool = False
    embed_norm: bool = False
    learned_positions: int = 0
    positions_by_mask: bool = False  # learned positions are counted from the first token that is not padding
    sinusoids: bool = False  # positions are a table of sines that no file has, with a row of zeros
    blank_position: int = -1
    position_offset: int = 0  # rows of the table of positions before the first one
    embed_width: int | None = None  # of the table of words, where it is another than the layers'
    labels: int = 0
    head: str = ""  # "" for the next token, "sequence", "token" or "span"

    # -- parameters ----------------------------------------------------------------------------------------------------
    def _norm(self, width: int) -> int:
        return width * NORM_WEIGHTS[self.norm]

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
        rows = self.learned_positions + self.position_offset if self.learned_positions and not self.sinusoids else 0
        norm = self._norm(self.width) if self.embed_norm else 0
        return self.table_parameters + rows * self.width + self._projection + norm

    @property
    def head_parameters(self) -> int:
        """Parameters behind the last block, with a table of words that the head shares."""
        bias = self.vocabulary if self.head_bias and not self.tied else 0
        return self.table_parameters + bias + self._projection + (self._norm(self.width) if self.final_norm else 0)
