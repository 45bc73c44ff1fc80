"""Transformers: attention over heads and caches, positions, and the blocks that are made of them."""

from morpho.nn.transformer.blocks import (
    ACTIVATIONS,
    FeedForward,
    TransformerBlock,
    TransformerDecoderBlock,
    activation,
    norm,
)

__all__ = ["ACTIVATIONS", "FeedForward", "TransformerBlock", "TransformerDecoderBlock", "activation", "norm"]
