"""Cost of the layers of models: FLOPs, bytes moved, parameters, caches, by formula from their sizes.

A multiply-add is two FLOPs. B sequences of S tokens make T = B S rows; H is the width, F that of the MLP, V the words.

    linear          2 T I O                                  parameters I O (+ O)
    attention       4 B S K A                                A = heads x head width, K keys; both products, no halving
    block, prefill  8 T H^2 + 4 B S^2 H + 4 T H F            for as many key heads as heads and a plain MLP
    block, decode   the same with one row per sequence, and the keys of the whole context
    head            2 T H V
    convolution     2 B (height x width of the output) O I kh kw
    norm            8 per element

Bytes count every operand of every product once: weights, inputs, outputs, and the cache where it is read or written.

>>> block = BlockShape(width=768, hidden=3072, heads=12)
>>> S, H, F = 1024, 768, 3072
>>> block.flops(rows=S, keys=S, batch=1) - block.norm_flops(S) == 8*S*H*H + 4*S*S*H + 4*S*H*F
True
"""

from __future__ import annotations

from dataclasses import dataclass

NORM_FLOPS = 8  # mean, variance, scale and shift: what the operation's own record counts


def linear_flops(rows: int, inputs: int, outputs: int) -> int:
    """A product with a matrix of weights.

    >>> linear_flops(2, 3, 4)
    48
    """
    return 2 * rows * inputs * outputs


def attention_flops(batch: int, queries: int, keys: int, width: int) -> int:
    """Scores and weighted sum over all heads: `width` is heads times head width."""
    return 4 * batch * queries * keys * width


def convolution_flops(batch: int, height: int, width: int, inputs: int, outputs: int, kernel: tuple[int, int]) -> int:
    """A convolution whose output is height x width.

    >>> convolution_flops(1, 2, 2, 3, 4, (3, 3))
    864
    """
    return 2 * batch * height * width * outputs * inputs * kernel[0] * kernel[1]


def norm_flops(rows: int, width: int) -> int:
    """A layer or RMS norm."""
    return NORM_FLOPS * rows * width


@dataclass(frozen=True, slots=True)
class BlockShape:
    """A transformer block: self-attention, perhaps attention to an encoder's output, and an MLP, each after a norm.

    `key_heads` below `heads` is grouped-query attention; `gated` is SwiGLU or GeGLU (three matrices); `cross` adds
    cross-attention; `biased` adds a bias to every product of attention, and of the MLP unless `mlp_biased` says
    otherwise;
    `norm_parameters` is 2 for layer norm, 1 for RMS norm. Of `experts` each token goes through `experts_used`, each of
    them an MLP; where a call has more tokens than that, all are computed.
    """

    width: int
    hidden: int
    heads: int
    key_heads: int = 0
    head_width: int = 0
    gated: bool = False
    cross: bool = False
    biased: bool = False
    mlp_biased: bool | None = None
    norm_parameters: int = 2
    experts: int = 0
    experts_used: int = 0
    more_parameters: int = 0  # than by these sizes: other norms, biases here and there

    @property
    def queries(self) -> int:
        """Width of all query heads."""
        return self.heads * (self.head_width or self.width // self.heads)

    @property
    def cached(self) -> int:
        """Width of all key heads: what one token adds to the cache, once for keys and once for values."""
        return (self.key_heads or self.heads) * (self.head_width or self.width // self.heads)

    @property
    def norms(self) -> int:
        """How many norms there are."""
        return 3 if self.cross else 2

    def parameters(self) -> int:
        """Weights, biases and norms.

        >>> BlockShape(768, 3072, 12, biased=True).parameters() == 12 * 768**2 + 13 * 768
        True
        """
        attention = 2 * self.width * self.queries + 2 * self.width * self.cached
        mlp = (3 if self.gated else 2) * self.width * self.hidden
        biases = (self.queries + 2 * self.cached + self.width) * (2 if self.cross else 1) if self.biased else 0
        if self.biased if self.mlp_biased is None else self.mlp_biased:
            biases += (2 if self.gated else 1) * self.hidden + self.width
        mlp = mlp * (self.experts or 1) + self.experts * self.width
        return ((2 if self.cross else 1) * attention + mlp + biases + self.norms * self.norm_parameters * self.width
                + self.more_parameters)

    def computed_experts(self, rows: int) -> int:
        """MLPs that each of so many tokens goes through.

        >>> BlockShape(8, 8, 2, experts=8, experts_used=2).computed_experts(1)
        2
        """
        return self.experts_used if self.experts and rows * self.experts_used < self.experts else self.experts or 1

    def unread(self, rows: int) -> int:
        """Parameters of experts that no token of a call goes through."""
        used = min(self.experts, rows * self.experts_used) if self.experts else 0
        return (self.experts - used) * (3 if self.gated else 2) * self.width * self.hidden

    def norm_flops(self, rows: int) -> int:
        """Of all norms."""
        return self.norms * norm_flops(rows, self.width)

    def flops(self, rows: int, keys: int, batch: int, source: int = 0, source_rows: int = 0) -> int:
        """`rows` tokens in all, each attending to `keys` of its own sequence.

        A cross block attends to `source` tokens of the encoder, and projects `source_rows` of them (none when cached).
        """
        attention = 2 * linear_flops(rows, self.width, self.queries) + 2 * linear_flops(rows, self.width, self.cached)
        attention += attention_flops(batch, rows // batch, keys, self.queries)
        if self.cross:
            attention += 2 * linear_flops(rows, self.width, self.queries)
            attention += 2 * linear_flops(source_rows, self.width, self.cached)
            attention += attention_flops(batch, rows // batch, source, self.queries)
        mlp = (3 if self.gated else 2) * linear_flops(rows, self.width, self.hidden) * self.computed_experts(rows)
        mlp += linear_flops(rows, self.width, self.experts)
        return attention + mlp + self.norm_flops(rows)

    def activations(self, rows: int, source_rows: int = 0) -> int:
        """Numbers read and written by the products and norms: every input and output once."""
        attention = rows * (self.width + self.queries + 2 * self.cached)  # q, k, v from the row
        attention += rows * (2 * self.queries + 2 * self.cached)  # attention itself
        attention += rows * (self.queries + self.width)  # back to the row
        if self.cross:
            attention += rows * (2 * self.width + 4 * self.queries) + source_rows * (self.width + 4 * self.cached)
        mlp = rows * (2 * self.width + (4 if self.gated else 2) * self.hidden) * self.computed_experts(rows)
        return attention + mlp + 2 * self.norms * rows * self.width

    def cache(self, tokens: int, source: int = 0) -> int:
        """Numbers in the cache of keys and values for some tokens, and for the encoder's where there are any."""
        return 2 * self.cached * (tokens + (source if self.cross else 0))

    def workspace(self, rows: int) -> int:
        """Numbers alive at once inside the block: the row twice, and the widest of q, k, v and the MLP's middle."""
        middle = max(self.queries + 2 * self.cached, (2 if self.gated else 1) * self.hidden)
        return rows * (2 * self.width + middle)
