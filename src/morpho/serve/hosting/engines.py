"""Engines for the models of a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from morpho.serve.engine.engine import Engine
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

    def __call__(self, network: Any, tokenizer: Any, spec: Spec) -> Engine:
        made = Engine(network, tokenizer, kv_bytes=self.kv_bytes, max_batch=self.max_batch,
                      max_waiting=self.max_waiting, max_length=self.max_length, warm=self.warm,
                      adapters=max(len(spec.adapters), 1))
        try:
            for name, folder in spec.adapters.items():
                made.add_adapter(name, folder)
        except BaseException:
            made.shutdown(drain=False)
            raise
        return made
