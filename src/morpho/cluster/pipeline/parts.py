"""Where models can be cut: the modules of each layer of a plan, and how one layer is computed.

A plan's layers are the embedding, the blocks, and the head with the last norm. Each family says which of its modules
those are; the rest of a model is taken out before weights are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.cluster.pipeline.shares import Share, cut, rebind
from morpho.models.files.loading import load_part, part_ranges
from morpho.nn.containers import Identity
from morpho.nn.transformer.attention import KeyValueCache


@dataclass(frozen=True)
class Cuts:
    """How a family is cut: names of modules, and the computation of a layer.

    `table` is the module that a tied head shares with the embedding; `blocks` the list of blocks.
    """

    embedding: tuple[str, ...]
    table: str
    blocks: str
    norm: str
    embed: Callable[[Any, mo.Tensor, Any], mo.Tensor]
    block: Callable[[Any, mo.Tensor, KeyValueCache, Any], mo.Tensor]
    heads: Callable[[Any, Any], tuple[int, int]]  # of a model's block: heads of keys, and the width of each

    def modules(self, model: Any, layer: int, depth: int) -> tuple[str, ...]:
        """The names of the modules of one layer of a plan."""
        if layer == 0:
            return self.embedding
        if layer == depth - 1:
            return (self.norm, self.table if model.lm_head is None else "lm_head")
        return (f"{self.blocks}.{layer - 1}",)

    def depth(self, model: Any) -> int:
        """Layers as a plan counts them."""
        return len(module_at(model, self.blocks)) + 2


def _llama_embed(model: Any, ids: mo.Tensor, offset: Any) -> mo.Tensor:
    return model.model.embed_tokens(ids)  # type: ignore[no-any-return]


def _gpt2_embed(model: Any, ids: mo.Tensor, offset: Any) -> mo.Tensor:
    return model.wpe(model.wte(ids), offset)  # type: ignore[no-any-return]


def _prenorm_embed(model: Any, ids: mo.Tensor, offset: Any) -> mo.Tensor:
    x = model.embed(ids)
    return x if model.positions is None else model.positions(x, offset)  # type: ignore[no-any-return]


class EncoderDecoderCuts(Cuts):
    """T5: encoder and decoder are one chain. The tables of relative positions, which are small, are on every stage."""

    def modules(self, model: Any, layer: int, depth: int) -> tuple[str, ...]:
        encoders = len(model.encoder.block)
        if layer == 0:
            return self.embedding
        if layer == depth - 1:
            return (self.norm, self.table if model.lm_head is None else "lm_head")
        if layer <= encoders:
            last = ("encoder.final_layer_norm",) if layer == encoders else ()
            return (*_block_modules("encoder", layer - 1), *last)
        first = self.embedding if layer == encoders + 1 else ()  # where the decoder's own tokens enter
        return (*_block_modules("decoder", layer - encoders - 1), *first)

    def depth(self, model: Any) -> int:
        return len(model.encoder.block) + len(model.decoder.block) + 2


def _block_modules(stack: str, number: int) -> tuple[str, ...]:
    """The modules of a block; of the first one all but its table of relative positions."""
    here = f"{stack}.block.{number}"
    if number:
        return (here,)
    parts = ("layer_norm", *(f"SelfAttention.{name}" for name in "qkvo"))
    return (*(f"{here}.layer.0.{part}" for part in parts), *(
        f"{here}.layer.{part}" for part in range(1, 3 if stack == "decoder" else 2)))


def _t5_embed(model: Any, ids: mo.Tensor, offset: Any) -> mo.Tensor:
    return model.shared(ids)  # type: ignore[no-any-return]


def _is_no_block(*_: Any) -> Any:
    raise AssertionError("blocks of two parts are computed by their stage")


FAMILIES: dict[str, Cuts] = {
    "llama": Cuts(("model.embed_tokens",), "model.embed_tokens", "model.layers", "model.norm", _llama_embed,
                  lambda block, x, cache, offset: block(x, cache, offset, None, None),
                  lambda model, block: (block.self_attn.num_kv_heads, block.self_attn.head_dim)),
    "gpt2": Cuts(("wte", "wpe"), "wte", "h", "ln_f", _gpt2_embed,
                 lambda block, x, cache, offset: block(x, cache, offset),
                 lambda model, block: (block.attn.heads, model.config["n_embd"] // model.config["n_head"])),
    "prenorm": Cuts(("embed", "positions"), "embed", "layers", "norm", _prenorm_embed,
                    lambda block, x, cache, offset: block(x, mask=None, cache=cache, offset=offset, positions=None),
                    lambda model, block: (block.attention.num_kv_heads, block.attention.head_dim)),
    "t5": EncoderDecoderCuts(("shared",), "shared", "decoder.block", "decoder.final_layer_norm", _t5_embed,
                             _is_no_block, lambda model, block: (model.config["num_heads"], model.config["d_kv"])),
}


def cuts_of(model: Any) -> Cuts:
    """How a model is cut; one of a family that cannot be is an error that says so."""
    found = FAMILIES.get(model.model_type)
    if found is None:
        raise fail(ArgumentError, "pipeline", f"models of the family {model.model_type!r} are not cut into stages",
                   f"those of {', '.join(FAMILIES)} are")
    return found


def depth_of(model: Any) -> int:
    """Layers as a plan counts them: the blocks, the embedding and the head."""
    return cuts_of(model).depth(model)


def module_at(model: Any, path: str) -> Any:
    """A module by its dotted name."""
    for name in path.split("."):
        model = getattr(model, name)
    return model


def _put(model: Any, path: str, module: Any) -> None:
    owner, _, name = path.rpartition(".")
    setattr(module_at(model, owner) if owner else model, name, module)


class Part:
    """The layers of a model that one worker holds; more are read from the files, and others let go, when a plan
    changes. What is held already is not read again."""

    def __init__(self, place: str, dtype: Any = mo.float32) -> None:
        self._place, self._dtype = place, dtype
        self.model: Any = None
        self.layers: frozenset[int] = frozenset()
        self.share: Share | None = None
        self.read: list[int] = []  # layers in the order in which they were read from files

    def hold(self, layers: Iterable[int], share: Share | None = None) -> None:
        """Hold these layers of the plan and no others; with a share, a part of each."""
        wanted = frozenset(layers)
        if not (share is self.share or (share is not None and share.like(self.share))):
            self.model, self.layers = None, frozenset()  # other columns than those there are
        self.share = share
        missing = wanted - self.layers
        if self.model is None or (missing and share is None):
            self._read(sorted(missing) if share is None else [], wanted)
        for layer in sorted(missing) if share is not None else ():  # one after another: whole layers are larger
            self._read([layer], wanted)
        self._strip(self.model, wanted)
        self.layers = wanted
        if share is not None:
            rebind(self.model, share.group)

    def _read(self, missing: list[int], wanted: frozenset[int]) -> None:
        """Read layers and put what is held already beside them."""
        fresh = load_part(self._place, lambda model: self._strip(model, missing), dtype=self._dtype)
        if self.share is not None:
            cut(fresh.model_type, fresh, self._blocks(fresh, missing), self.share)
        if self.model is not None:
            self._move(fresh, wanted & self.layers)
        self.model, self.layers = fresh, (wanted & self.layers).union(missing)
        self.read += missing

    def _blocks(self, model: Any, layers: Iterable[int]) -> list[Any]:
        blocks, depth = module_at(model, cuts_of(model).blocks), depth_of(model)
        return [blocks[layer - 1] for layer in layers if 0 < layer < depth - 1]

    @staticmethod
    def ranges(place: str, layers: Iterable[int]) -> list[tuple[str, int, int]]:
        """Which bytes of a model's files layers are read from, as (file, start, stop); a GGUF file is read as a whole.

        >>> len(Part.ranges(str(mo.models.SHIPPED), [])), len(Part.ranges(str(mo.models.SHIPPED), [1])) > 4
        (0, True)
        """
        path = Path(place)
        if path.is_file():
            return [(path.name, 0, path.stat().st_size)]
        kept = frozenset(layers)
        return part_ranges(path, lambda model: Part(place)._strip(model, kept)) if kept else []

    def _names(self, model: Any, layers: Iterable[int], depth: int) -> set[str]:
        return {name for layer in layers for name in cuts_of(model).modules(model, layer, depth)}

    def _strip(self, model: Any, layers: Iterable[int]) -> None:
        """Take out the modules of all other layers."""
        depth = depth_of(model)
        kept = self._names(model, layers, depth)
        for name in self._names(model, range(depth), depth) - kept:
            if module_at(model, name) is not None:
                _put(model, name, Identity())

    def _move(self, fresh: Any, layers: Iterable[int]) -> None:
        """Put modules that are held already into a model that was just read."""
        depth = depth_of(fresh)
        for name in self._names(fresh, layers, depth):
            if isinstance(module_at(fresh, name), Identity):
                _put(fresh, name, module_at(self.model, name))
