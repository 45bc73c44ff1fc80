"""What every model has: a configuration that goes into JSON, a name of its family, and, if it makes text, a cache."""

from __future__ import annotations

import dataclasses
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import morpho as mo
from morpho.base.checks import shown
from morpho.base.errors import ArgumentError, fail
from morpho.nn.module import Module
from morpho.nn.transformer.attention import KeyValueCache

MOST = 1 << 40  # of any size
Self = TypeVar("Self", bound="Model")


class Config:
    """Base of the families' configurations, which are dataclasses. Names are those of the published config.json."""

    renamed: ClassVar[Mapping[str, str]] = {}  # other names of fields: theirs -> ours
    fixed: ClassVar[Mapping[str, Any]] = {}  # published settings that are computed for one value only

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def checked(cls, name: str, value: Any) -> Any:
        """A setting, if it is of the kind of its default: sizes are positive, and none is beyond any machine."""
        default = next(field.default for field in dataclasses.fields(cls) if field.name == name)  # type: ignore
        if isinstance(value, Mapping) or default is None or default is dataclasses.MISSING:
            return value
        if value is None and (type(default) is not int or name.endswith("_id")):  # published files say null for "none"
            return value
        if isinstance(default, bool | str):
            fits, wanted = isinstance(value, type(default)), "true or false" if isinstance(default, bool) else "a name"
        elif isinstance(default, int):
            least = 0 if default == 0 or name.endswith("_id") else 1
            fits = isinstance(value, list) or (isinstance(value, int) and least <= value < MOST)
            wanted = "a positive whole number" if least else "a whole number"
        else:
            fits, wanted = isinstance(value, int | float) and math.isfinite(value), "a number"
        if not fits or (isinstance(value, bool) and not isinstance(default, bool)):
            raise fail(ArgumentError, "models", f"{name} is {shown(value)}", f"give {wanted}, such as {default!r}")
        return value


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
    def from_config(cls: type[Self], config: Mapping[str, Any], strict: bool = False, dtype: Any = mo.float32) -> Self:
        """A model of this configuration, with random weights; `strict` refuses settings that it does not know."""
        return cls(cls.checked_config(config, strict), dtype=dtype)

    @classmethod
    def checked_config(cls, config: Mapping[str, Any], strict: bool = False) -> Config:
        """The family's configuration, with each setting of the kind it should be."""
        kind = cls.config_class
        known = kind.names()
        given = {kind.renamed.get(name, name): value for name, value in config.items()}
        unknown = [name for name in given if name not in known and name != "model_type"]
        if strict and unknown:
            raise fail(ArgumentError, cls.model_type, "unknown settings: " + ", ".join(unknown),
                       "one of " + ", ".join(known))
        for name, wanted in kind.fixed.items():
            if given.get(name, wanted) not in (wanted, None):
                raise fail(ArgumentError, cls.model_type, f"{name}={given[name]!r} is not supported, only {wanted!r}")
        return kind(**{name: kind.checked(name, value) for name, value in given.items() if name in known})

    def _configure(self, config: Config) -> None:
        """Keep the configuration as plain data, with the family's name in it."""
        found = {"model_type": self.model_type, **config.to_dict()}
        try:
            self.config = json.loads(json.dumps(found))
        except TypeError as error:
            raise fail(ArgumentError, self.model_type, f"the configuration is not plain data: {error}") from None


class LanguageModel(Model, ABC):
    """A model of the next token: `hidden` from ids to vectors, `head` from vectors to logits.

    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    >>> hidden = model.hidden(mo.asarray([[1, 2, 3]]))
    >>> hidden.shape, model.head(hidden).shape
    ((1, 3, 8), (1, 3, 50))
    """

    eos_token_id: int | list[int] | None = None  # what ends a text

    @abstractmethod
    def hidden(self, ids: mo.Tensor, caches: list[KeyValueCache] | None = None, offset: Any = 0) -> mo.Tensor:
        """(batch, length) -> (batch, length, width); with caches, ids go on from position `offset`."""

    @abstractmethod
    def head(self, x: mo.Tensor) -> mo.Tensor:
        """(..., width) -> (..., vocabulary)."""

    def forward(self, ids: mo.Tensor) -> mo.Tensor:
        return self.head(self.hidden(ids))

    @property
    @abstractmethod
    def context(self) -> int:
        """The most positions it knows."""

    @abstractmethod
    def make_caches(self, batch: int, length: int, dtype: Any = mo.float32) -> list[KeyValueCache]:
        """An empty cache for each layer."""


def divided(operation: str, width: int, heads: int) -> int:
    """The depth of a head."""
    if heads < 1 or width % heads:
        raise fail(ArgumentError, operation, f"a width of {width} is not a multiple of {heads} heads")
    return width // heads


def tied_logits(x: mo.Tensor, embedding: Any) -> mo.Tensor:
    """x (..., width) against every row of an embedding, packed or not: (..., vocabulary)."""
    weight = embedding.weight
    return mo.matmul(x, weight if isinstance(weight, mo.Quantised) else mo.matrix_transpose(weight))
