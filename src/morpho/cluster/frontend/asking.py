"""Checks of a request by a model's configuration alone, without its weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.cluster.pipeline.parts import context_of, cuts_of
from morpho.models.files.loading import outline
from morpho.models.text.generation import settled
from morpho.models.text.sampling import Sampling
from morpho.models.text.stop_strings import StopStrings

Asked = tuple[tuple[int, ...], int, Sampling, int, tuple[int, ...]]  # the fields of a request after its number


class Asking:
    """A model without its weights."""

    def __init__(self, place: str) -> None:
        self.model, self.tokenizer = outline(place)
        if not isinstance(self.model, mo.models.LanguageModel):
            kind = type(self.model).__name__
            raise fail(ArgumentError, "pipeline", f"{Path(place).name} is a {kind}, which makes no text")
        cuts_of(self.model)

    @property
    def two_parts(self) -> bool:
        """Whether it has an encoder and a decoder."""
        return hasattr(self.model, "remember")

    @property
    def context(self) -> int:
        """The most positions of a text."""
        return context_of(self.model)

    @property
    def defaults(self) -> Any:
        """Generation settings of the model's files."""
        return self.model.defaults

    def requests(self, ids: Any, **settings: Any) -> tuple[list[Asked], bool, Callable[[Any], StopStrings]]:
        """Requests of `mo.models.generate`, as data: for each prompt the fields of a request; whether there are
        several; and what watches for stop strings after a prompt."""
        if settings.get("seed") is None:
            settings["seed"] = time.time_ns() % (1 << 32)
        found = settled(self.model, ids, **settings)
        longest = max((len(prompt) for prompt in found.prompts), default=0)
        if not self.two_parts and longest > self.context:
            raise fail(ArgumentError, "pipeline", f"a prompt of {longest} tokens is longer than the {self.context} "
                       "after which this model's angles are others", "use mo.models.generate")
        counts = found.counts if self.two_parts else [min(count, self.context - len(prompt)) for prompt, count in zip(
            found.prompts, found.counts, strict=True)]
        rows = [(tuple(prompt), count, found.sampling, int(settings["seed"]), tuple(sorted(found.stops)))
                for prompt, count in zip(found.prompts, counts, strict=True)]
        return rows, found.several, lambda prompt: StopStrings(found.strings, settings.get("tokenizer"),
                                                               () if self.two_parts else prompt)
