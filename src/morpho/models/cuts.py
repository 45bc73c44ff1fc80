"""Cuts of models: the modules of each layer of a plan.

A plan's layers are the embedding, the blocks, and the head with what stands before it. A stage of a pipeline holds some
of them; the rest of a model is taken out before weights are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def module_at(model: Any, path: str) -> Any:
    """A module by its dotted name."""
    for name in path.split("."):
        model = getattr(model, name)
    return model


@dataclass(frozen=True)
class Cuts:
    """Names of a decoder's modules: `table` is the one that a tied head shares with the embedding, `blocks` the list of
    blocks, `last` what stands between them and the head. Names of modules that a model lacks are None there."""

    embedding: tuple[str, ...]
    table: str
    blocks: str
    last: tuple[str, ...]

    def modules(self, model: Any, layer: int) -> tuple[str, ...]:
        """The modules of one layer of a plan."""
        if layer == 0:
            return self.embedding
        if layer == self.depth(model) - 1:
            return (*self.last, self.table if model.lm_head is None else "lm_head")
        return (f"{self.blocks}.{layer - 1}",)

    def depth(self, model: Any) -> int:
        """Layers as a plan counts them."""
        return len(module_at(model, self.blocks)) + 2

    def held_blocks(self, model: Any, layers: Any) -> list[Any]:
        """The blocks among some layers of a plan."""
        blocks, last = module_at(model, self.blocks), self.depth(model) - 1
        return [blocks[layer - 1] for layer in layers if 0 < layer < last]


@dataclass(frozen=True)
class TwoPartCuts(Cuts):
    """An encoder and a decoder as one chain. `blocks` and `last` are the decoder's; `encoder_last` ends the encoder,
    `entry` are modules through which the decoder's own tokens enter."""

    encoder_blocks: str = ""
    encoder_last: tuple[str, ...] = ()
    entry: tuple[str, ...] = ()
    # Modules that stay on every stage, such as tables that all blocks of a stack read, by the block that has them.
    everywhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def modules(self, model: Any, layer: int) -> tuple[str, ...]:
        encoders = len(module_at(model, self.encoder_blocks))
        if layer == 0:
            return self.embedding
        if layer == self.depth(model) - 1:
            return (*self.last, self.table if model.lm_head is None else "lm_head")
        if layer <= encoders:
            last = self.encoder_last if layer == encoders else ()
            return (*self._block(f"{self.encoder_blocks}.{layer - 1}"), *last)
        first = self.entry if layer == encoders + 1 else ()
        return (*self._block(f"{self.blocks}.{layer - encoders - 1}"), *first)

    def _block(self, name: str) -> tuple[str, ...]:
        return tuple(f"{name}.{part}" for part in self.everywhere[name]) if name in self.everywhere else (name,)

    def depth(self, model: Any) -> int:
        return len(module_at(model, self.encoder_blocks)) + len(module_at(model, self.blocks)) + 2

    def held_blocks(self, model: Any, layers: Any) -> list[Any]:
        blocks = [*module_at(model, self.encoder_blocks), *module_at(model, self.blocks)]
        return [blocks[layer - 1] for layer in layers if 0 < layer <= len(blocks)]
