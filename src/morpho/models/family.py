"""A model family is one record: its class and configuration, the names of its weights in published files, its form in
GGUF files, its sizes by name. Loading, saving, cards of the planner, pipelines, shares and docs/families.md derive from
it.

A decoder of the common kind is a configuration with a `Shape` (`decoder/family.py`); `register` adds one from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from morpho.models.base import Model
from morpho.models.cuts import Cuts
from morpho.weights import GgufFile, Rule
from morpho.weights.keys import Key

Settings = Mapping[str, Any]


def no_rules(settings: Settings, names: Collection[str]) -> list[Rule]:
    """No table: files name weights as the model does."""
    return []


@dataclass(frozen=True)
class Names:
    """Weights in published files.

    `head` is the matrix of the head, `embedding` the one that it is where they are tied. `rules` lead from a file's
    names to the model's, `published` back; `twice` are names under which a file may repeat the numbers of another.
    `parts` says which parts and heads there are, by what the file holds.
    """

    head: str = ""
    embedding: str = ""
    rules: Callable[[Settings, Collection[str]], list[Rule]] = no_rules
    published: Callable[[Settings], list[Rule]] = lambda settings: []
    twice: Mapping[str, str] = field(default_factory=dict)
    parts: Callable[[Settings, Any], dict[str, Any]] = lambda settings, weights: {}


@dataclass(frozen=True)
class Gguf:
    """A family in GGUF files: the architecture's name, settings and names beyond those of all, and keys of the header
    that differ from Llama's. `experts` tells apart two families of one architecture; `partial` ones turn a part of a
    head."""

    architecture: str
    settings: Callable[[GgufFile], dict[str, Any]]
    rules: Callable[[GgufFile], list[Rule]]
    keys: Mapping[str, Key] = field(default_factory=dict)
    experts: bool = False
    partial: bool = False


@dataclass(frozen=True)
class Family:
    """One family. `sizes` are its models by name, with what their configurations say."""

    name: str  # `model_type`
    model: type[Model]
    sizes: Mapping[str, Mapping[str, Any]]
    names: Names = Names()
    gguf: Gguf | None = None

    @property
    def title(self) -> str:
        """The name of its class."""
        return self.model.__name__

    @property
    def cuts(self) -> Cuts | None:
        """The way to cut it into stages and shares; None where it makes no text of text."""
        return getattr(self.model, "cuts", None)

    @property
    def has_shape(self) -> bool:
        """True where a decoder's `Shape` follows from its configuration."""
        return self.cuts is not None and hasattr(self.model.config_class, "shape")


def tied_head(settings: Settings, head: str = "lm_head.weight") -> list[Rule]:
    """Where it is tied, the head in the file is known to be the embedding."""
    return [Rule(head, None)] if settings["tie_word_embeddings"] else []
