"""Engines for the models of a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from morpho.models import load_with_tokenizer
from morpho.serve.engine.adapters import rank_of
from morpho.serve.engine.drafts import check_vocabularies
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.slots import check_adapters
from morpho.serve.hosting.registry import Spec


@dataclass(frozen=True)
class EngineOptions:
    """How engines are made: the bytes of their KV cache, texts at once, requests that wait, the most tokens of a prompt
    and its answer; None leaves it to the engine."""

    kv_bytes: int | None = None
    max_batch: int = 64
    max_waiting: int = 256
    max_length: int | None = None
    warm: bool = True
    activations: str = "exact"  # or "int8": see docs/numerics.md, rule 6
    device: str = "cpu"  # where models run
    prefixes: Path | None = None  # folder with a file of shared prefixes for each model
    draft: Path | None = None  # a smaller model that guesses tokens

    without_weights: ClassVar[bool] = False

    def load(self, place: Path) -> tuple[Any, Any]:
        """A model and its tokenizer."""
        network, tokenizer = load_with_tokenizer(place, activations=self.activations)
        return (network if self.device == "cpu" else network.to(self.device)), tokenizer

    def __call__(self, network: Any, tokenizer: Any, spec: Spec) -> Engine:
        check_adapters(network, spec.adapters)  # before functions are compiled
        draft = None
        if self.draft is not None:
            draft, words = self.load(self.draft)
            check_vocabularies(tokenizer, words, self.draft.name)
        made = Engine(network, tokenizer, kv_bytes=self.kv_bytes, max_batch=self.max_batch,
                      max_waiting=self.max_waiting, max_length=self.max_length, warm=self.warm,
                      draft=draft,
                      prefix_file=None if self.prefixes is None else self.prefixes / f"{spec.name}.prefixes",
                      adapters=max(len(spec.adapters), 1),
                      adapter_rank=max((rank_of(folder) for folder in spec.adapters.values()), default=16))
        try:
            for name, folder in spec.adapters.items():
                made.add_adapter(name, folder)
        except BaseException:
            made.shutdown(drain=False)
            raise
        return made
