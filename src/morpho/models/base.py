"""Models: a configuration that goes into JSON, the name of a family, and a cache if they make text."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.models.config import Config
from morpho.models.cuts import Cuts, module_at
from morpho.models.text.generation_keys import Defaults
from morpho.nn.module import Module
from morpho.nn.transformer.attention import KeyValueCache

Self = TypeVar("Self", bound="Model")
_Fields = TypeVar("_Fields", bound=tuple[Any, ...])


class Model(Module):
    """A module with `config`, a dict that `mo.models.from_config` makes an equal model from.

    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> isinstance(model, mo.models.Model), model.config["n_embd"]
    (True, 8)
    """

    model_type: ClassVar[str]
    config_class: ClassVar[type[Config]]
    config: dict[str, Any]

    @classmethod
    def from_config(cls: type[Self], config: Mapping[str, Any], strict: bool = False, dtype: Any = mo.float32,
                    ignore: Collection[str] = ()) -> Self:
        """A model of this configuration, with random weights; `strict` takes its own settings only."""
        return cls(cls.checked_config(config, strict, ignore=ignore), dtype=dtype)

    @classmethod
    def checked_config(cls, config: Mapping[str, Any], strict: bool = False, file: str = "",
                       ignore: Collection[str] = ()) -> Any:
        """The family's configuration: every setting is known and of the kind it should be. Errors name the `file`."""
        return cls.config_class.of(cls.model_type, config, strict=strict, file=file, ignore=ignore)

    def _configure(self, config: Config) -> None:
        """Keep the configuration as plain data, with the family's name in it."""
        found = {"model_type": self.model_type, **config.to_dict()}
        try:
            self.config = json.loads(json.dumps(found))
        except TypeError as error:
            raise fail(ArgumentError, self.model_type, f"the configuration is not plain data: {error}") from None


def indexed_by_name(cls: type[_Fields]) -> type[_Fields]:
    """Let a NamedTuple of results be read as transformers' outputs are: `out["logits"]`, `out.keys()`, `"logits" in
    out`, `out.to_tuple()`; `out[0]` and unpacking stay."""
    by_place = cls.__getitem__

    def item(self: Any, index: Any) -> Any:
        if not isinstance(index, str):
            return by_place(self, index)
        if index not in self._fields:
            raise KeyError(f"{cls.__name__} has {', '.join(self._fields)}; {index!r} is none of them")
        return getattr(self, index)

    def contains(self: Any, value: Any) -> bool:
        return value in self._fields if isinstance(value, str) else any(part is value for part in self)

    methods = {"__getitem__": item, "__contains__": contains, "keys": lambda self: self._fields,
               "items": lambda self: tuple(self._asdict().items()), "to_tuple": lambda self: tuple(self)}
    for name, method in methods.items():
        setattr(cls, name, method)
    return cls


@indexed_by_name
class Output(NamedTuple):
    """Result of a language model with `output_hidden_states=True`: `hidden_states` are those after the embedding
    and after every layer, (batch, length, width) each, the last one normed as the head sees it.

    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> found = model(mo.asarray([[1, 2, 3]]), output_hidden_states=True)
    >>> len(found.hidden_states), found.logits.shape, found["logits"].shape
    (2, (1, 3, 50), (1, 3, 50))
    """

    logits: mo.Tensor
    hidden_states: tuple[mo.Tensor, ...]


class LanguageModel(Model, ABC):
    """A model of the next token: `hidden` from ids to vectors, `head` from vectors to logits.

    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> hidden = model.hidden(mo.asarray([[1, 2, 3]]))
    >>> hidden.shape, model.head(hidden).shape
    ((1, 3, 8), (1, 3, 50))
    """

    eos_token_id: int | list[int] | None = None  # what ends a text
    defaults: Defaults = Defaults()  # what `generate` does where its caller does not say otherwise

    @abstractmethod
    def hidden(self, ids: mo.Tensor, caches: list[KeyValueCache] | None = None, offset: Any = 0, *, mask: Any = None,
               positions: Any = None, states: list[mo.Tensor] | None = None) -> mo.Tensor:
        """(batch, length) -> (batch, length, width); with caches, ids go on from position `offset`. `mask` is what
        `key_mask` makes, `positions` (batch, length) replace offset, offset + 1, ...; `states` collects what each layer
        gives."""

    @abstractmethod
    def head(self, x: mo.Tensor) -> mo.Tensor:
        """(..., width) -> (..., vocabulary)."""

    def tied_embedding(self) -> Any:
        """The embedding whose weights the head shares; None where it has its own."""
        return None

    def forward(self, ids: mo.Tensor, attention_mask: Any = None, position_ids: Any = None,
                output_hidden_states: bool = False) -> Any:
        """ids (batch, length) -> logits (batch, length, vocabulary), or an `Output` if the hidden states are asked for.
        `attention_mask` (batch, length) is 1 or True at tokens and 0 at padding, which nothing looks at;
        `position_ids` (batch, length) say where tokens stand, 0, 1, ... by default."""
        ids = mo.asarray(ids)
        mask = None if attention_mask is None else key_mask(self.model_type, attention_mask, ids)
        positions = None if position_ids is None else checked_positions(self.model_type, position_ids, ids)
        states: list[mo.Tensor] | None = [] if output_hidden_states else None
        x = self.hidden(ids, mask=mask, positions=positions, states=states)
        return self.head(x) if states is None else Output(self.head(x), (*states, x))

    @property
    @abstractmethod
    def context(self) -> int:
        """The most positions it knows."""

    @property
    def usual_length(self) -> int:
        """Positions of a cache where nobody says how many."""
        return self.context

    @abstractmethod
    def make_caches(self, batch: int, length: int, dtype: Any = mo.float32) -> list[KeyValueCache]:
        """An empty cache for each layer."""


class BlockModel(LanguageModel):
    """A decoder as a chain of layers: `begin`, a `step` for each block, `normed`, `head`. A pipeline's stage runs some
    of them, `hidden` all.

    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> x = model.begin(mo.asarray([[1, 2, 3]]))
    >>> x = model.step(model.blocks[0], x)
    >>> bool(mo.all(model.normed(x) == model.hidden(mo.asarray([[1, 2, 3]]))))
    True
    """

    cuts: ClassVar[Cuts]
    lm_head: Any  # None where it shares the embedding's weights

    @property
    def blocks(self) -> Any:
        """The list of blocks."""
        return module_at(self, self.cuts.blocks)

    @abstractmethod
    def begin(self, ids: mo.Tensor, places: Any = 0) -> mo.Tensor:
        """(batch, length) -> (batch, length, width); tokens stand from position `places` on, or where it says."""

    @abstractmethod
    def step(self, block: Any, x: mo.Tensor, cache: Any = None, offset: Any = 0, mask: Any = None,
             positions: Any = None) -> mo.Tensor:
        """One block."""

    def normed(self, x: mo.Tensor) -> mo.Tensor:
        """The last block's result as the head sees it."""
        for name in self.cuts.last:
            module = module_at(self, name)
            x = x if module is None else module(x)
        return x

    @abstractmethod
    def cache_shape(self, block: Any) -> tuple[int, ...]:
        """Heads of keys in a block's cache, the width of each, and that of values where it is another."""

    def tied_embedding(self) -> Any:
        return module_at(self, self.cuts.table) if self.lm_head is None else None

    def hidden(self, ids: mo.Tensor, caches: list[KeyValueCache] | None = None, offset: Any = 0, *, mask: Any = None,
               positions: Any = None, states: list[mo.Tensor] | None = None) -> mo.Tensor:
        x = self.begin(ids, offset if positions is None else positions)  # (batch, length, width)
        for layer, block in enumerate(self.blocks):
            if states is not None:
                states.append(x)
            x = self.step(block, x, None if caches is None else caches[layer], offset, mask, positions)
        return self.normed(x)

    def head(self, x: mo.Tensor) -> mo.Tensor:
        return tied_logits(x, module_at(self, self.cuts.table)) if self.lm_head is None else self.lm_head(x)

    def make_caches(self, batch: int, length: int, dtype: Any = mo.float32) -> list[KeyValueCache]:
        shapes = [self.cache_shape(block) for block in self.blocks]
        return [KeyValueCache(batch, heads, length, depth, dtype, *values) for heads, depth, *values in shapes]


def divided(operation: str, width: int, heads: int, names: tuple[str, str] = ("width", "heads")) -> int:
    """The depth of a head."""
    if heads < 1 or width % heads:
        raise fail(ArgumentError, operation, f"{names[0]}={width} is not a multiple of {names[1]}={heads}")
    return width // heads


def key_mask(operation: str, mask: Any, ids: Any) -> mo.Tensor:
    """(batch, keys), 0 or False at padding -> a boolean mask over (batch, heads, queries, keys)."""
    mask = mo.asarray(mask)
    _check_like(operation, "a mask", mask, ids)
    return mo.reshape(mask != 0, (mask.shape[0], 1, 1, mask.shape[1]))


def checked_positions(operation: str, positions: Any, ids: Any) -> mo.Tensor:
    """Where each token stands, (batch, length) or, for all rows alike, (1, length)."""
    positions = mo.asarray(positions)
    if not positions.dtype.is_integer:
        raise fail(ArgumentError, operation, f"position_ids of {positions.dtype} are no positions", "give integers")
    _check_like(operation, "position_ids", positions, ids, one_row=True)
    return mo.broadcast_to(positions, ids.shape)


def _check_like(operation: str, what: str, given: mo.Tensor, ids: Any, one_row: bool = False) -> None:
    """(batch, length) as the ids have it; sizes that are known only at run time are compared there."""
    wanted = tuple(ids.shape)
    fits = given.ndim == 2 == len(wanted) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int)) or (one_row and axis == 0 and a == 1)
        for axis, (a, b) in enumerate(zip(given.shape, wanted, strict=True)))
    if not fits:
        raise fail(ShapeError, operation, f"{what} of shape {tuple(given.shape)} is not of the ids' {wanted}",
                   "both are (batch, length)" + (": put an axis before it, x[None]" if given.ndim == 1 else ""))


def tied_logits(x: mo.Tensor, embedding: Any) -> mo.Tensor:
    """x (..., width) against every row of an embedding, packed or not: (..., vocabulary)."""
    rounded = getattr(embedding, "rounded", None)  # the same weights, for activations in 8 bits
    if rounded is not None:
        return rounded(x)  # type: ignore[no-any-return]
    weight = embedding.weight
    return mo.matmul(x, weight if isinstance(weight, mo.Quantised) else mo.matrix_transpose(weight))
