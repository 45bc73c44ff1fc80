"""Settings of a training run, the report after each step, and the text it reads."""

from __future__ import annotations

import dataclasses
import lzma
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.base.machine import machine
from morpho.weights import FileFault, MissingFile

LEAST_VOCABULARY = 257  # one token per byte and one for the end of a text


@dataclass(frozen=True)
class Settings:
    """Everything that decides a run. Small enough for two cores by default."""

    layers: int = 4
    width: int = 256
    heads: int = 4
    kv_heads: int = 0  # 0: as many as heads
    hidden: int = 0  # 0: 8/3 of the width, rounded up to 64
    vocabulary: int = 2048
    context: int = 256
    batch: int = 8
    accumulate: int = 1
    steps: int = 1000
    lr: float = 1e-3
    least_lr: float = 0.1  # of lr, at the end
    warmup: int = 50
    weight_decay: float = 0.1
    beta2: float = 0.95
    clip: float = 1.0
    dropout: float = 0.0
    seed: int = 0

    def check(self) -> Settings:
        """Itself, or an error that names the field."""
        for name in ("layers", "width", "heads", "vocabulary", "context", "batch", "accumulate", "steps"):
            if getattr(self, name) < 1:
                raise fail(ArgumentError, "train", f"{name}={getattr(self, name)} is not positive")
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise fail(ArgumentError, "train", f"a width of {self.width} does not divide into {self.heads} heads of an "
                                               f"even size", "choose a width that is a multiple of 2 * heads")
        if self.kv_heads and self.heads % self.kv_heads:
            raise fail(ArgumentError, "train", f"{self.heads} heads do not divide into {self.kv_heads} groups")
        if self.vocabulary < LEAST_VOCABULARY:
            raise fail(ArgumentError, "train", f"vocabulary={self.vocabulary} is too small",
                       "257 is one token per byte and one for the end of a text")
        if not 0 <= self.dropout < 1:
            raise fail(ArgumentError, "train", f"dropout={self.dropout} does not lie in [0, 1)")
        if not 0 < self.lr < math.inf:
            raise fail(ArgumentError, "train", f"lr={self.lr} is not a positive number")
        self._check_memory()
        return self

    def _check_memory(self) -> None:
        """Refuse what no memory holds, which would otherwise be found when all of the machine's is taken. Counted is
        what is certain to be there: the logits of a batch; weights, gradients and the two means of each."""
        logits = 4 * self.batch * self.context * LEAST_VOCABULARY
        parameters = self.layers * 8 * self.width ** 2 + LEAST_VOCABULARY * self.width
        needed, there = logits + 16 * parameters, machine().memory_bytes
        if needed > there:
            raise fail(ArgumentError, "train", f"batch={self.batch} of context={self.context}, layers={self.layers} of "
                       f"width={self.width} need {needed / 1e9:,.0f} GB of memory at least, and {there / 1e9:,.0f} GB "
                       "are there", "choose smaller ones; accumulate adds up the gradients of several small batches")

    @classmethod
    def known(cls, found: Any, path: Path) -> Settings:
        """Those that a file holds."""
        kinds = {field.name: type(field.default) for field in dataclasses.fields(cls)}
        for name, value in found.items() if isinstance(found, dict) else ():
            fits = kinds.get(name) is type(value) or (kinds.get(name) is float and type(value) is int)
            if not fits:
                raise fail(FileFault, "train", f"{path} has the setting {name}={value!r}, which no run has",
                           "begin another run")
        if not isinstance(found, dict):
            raise fail(FileFault, "train", f"{path} holds no settings", "begin another run")
        return cls(**found)

    def rate(self, step: int) -> float:
        """The learning rate of a step: a rise, then half a cosine."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        share = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.lr * (self.least_lr + (1 - self.least_lr) * 0.5 * (1 + math.cos(math.pi * min(1.0, share))))

    def model_config(self, vocabulary: int, eos: int | None) -> dict[str, Any]:
        """The model, in the form of Llama's config.json."""
        hidden = self.hidden or -(-8 * self.width // (3 * 64)) * 64
        return {"model_type": "prenorm", "width": self.width, "layers": self.layers, "heads": self.heads,
                "kv_heads": self.kv_heads or self.heads, "hidden": hidden, "vocab_size": vocabulary,
                "max_seq_len": self.context, "attention_bias": False, "dropout": self.dropout, "eos_token_id": eos}


@dataclass(frozen=True)
class Progress:
    """Where a run is after a step."""

    step: int
    steps: int
    loss: float
    held_out: float | None
    rate: float
    tokens: int  # of this step
    seconds: float  # of this step
    parts: dict[str, float] = dataclasses.field(default_factory=dict)  # seconds of data, step, check and save


def read_text(path: str | os.PathLike[str]) -> str:
    """A text file, UTF-8, also compressed as .xz."""
    place = Path(path)
    if not place.is_file():
        what = f"{place} is no file of text" if place.exists() else f"there is no text file {place}"
        raise fail(MissingFile, "train", what, "give one with --data")
    try:
        raw = lzma.decompress(place.read_bytes()) if place.suffix == ".xz" else place.read_bytes()
        text = raw.decode("utf-8")
    except (UnicodeDecodeError, lzma.LZMAError) as error:
        raise fail(ArgumentError, "train", f"{place} is not a text in UTF-8: {error}") from None
    if not text.strip():
        raise fail(ArgumentError, "train", f"{place} is empty", "give a text with --data")
    return text
