"""How an encoder is built: everything in which the families differ, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.models.decoder.shape import Rope


@dataclass(frozen=True)
class Disentangled:
    """DeBERTa's scores: products of queries with vectors of distances ("c2p"), of keys with them ("p2c").

    Distances beyond half of `buckets` share vectors by their logarithm, up to `most`; without buckets all are clipped
    at `most`. `shared` uses the projections of the words for the distances too; `normed` norms the table."""

    parts: tuple[str, ...]
    most: int
    buckets: int
    shared: bool
    normed: bool

    @property
    def span(self) -> int:
        return self.buckets if self.buckets > 0 else self.most


@dataclass(frozen=True)
class Convolution:
    """A convolution beside the first layer, whose input are the embeddings."""

    size: int
    groups: int
    activation: str


@dataclass(frozen=True)
class Heads:
    """Parts between the encoder's vectors and its heads.

    The head for masked tokens is a product, `function`, a norm and the table of words, or with `plain` one product
    only. The head for texts reads the first token or, with `pooling` "mean", the mean; with "late" the classes' logits
    are averaged instead. It is a product, `text_function`, a norm with `text_norm`, and the product that gives the
    classes. `everywhere`: the classes of tokens and spans go through all of that too.
    """

    function: str = "gelu"
    plain: bool = False
    dense_bias: bool = True
    decoder_bias: bool = True
    pooling: str = "first"
    text_function: str = "tanh"
    text_bias: bool = True
    text_norm: bool = False
    everywhere: bool = False


@dataclass(frozen=True)
class EncoderShape:
    """An encoder. `windows` and `ropes` have one entry for each layer, None for "sees all" and "is not rotated"; a
    window of w sees w tokens on both sides. `order` says which set of weights each layer has.

    Norms follow the sum with the residual, or stand before each part with `before`. A table of words of `embed_width`
    is projected to the layers' width before the norm of the embeddings (`project` "before", without a bias) or after it
    ("after"). Learned `positions` are counted from 0, or with `padding` from the number after it over the tokens that
    are not it. `buckets` are those of T5's table of distances, which the layers share.
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
    std: float
    tied: bool
    head: str
    labels: int | None
    pooler: bool
    masked: bool
    heads_of: Heads
    embed_width: int
    project: str = ""
    positions: int = 0
    padding: int | None = None
    types: int = 0
    embed_norm: bool = True
    masks_embeddings: bool = False
    norm: str = "layer"
    before: bool = False
    first_norm: bool = True
    final_norm: bool = False
    qkv_bias: bool = True
    out_bias: bool = True
    mlp_bias: bool = True
    gated: bool = False
    ropes: tuple[Rope | None, ...] = ()
    windows: tuple[int | None, ...] = ()
    order: tuple[int, ...] = ()
    disentangled: Disentangled | None = None
    buckets: int = 0
    convolution: Convolution | None = None
