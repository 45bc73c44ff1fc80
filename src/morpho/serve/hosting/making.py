"""A registry for a kind of engine: those over pipelines load models without weights, and can run an encoder's too."""

from __future__ import annotations

from collections.abc import Sequence

from morpho.models import load_with_tokenizer
from morpho.serve.hosting.registry import MakeEngine, Registry, Spec


def registry_of(specs: Sequence[Spec], make_engine: MakeEngine, memory_bytes: int | None = None) -> Registry:
    """The registry of models whose engines are made so."""
    return Registry(specs, make_engine, memory_bytes, getattr(make_engine, "load", load_with_tokenizer),
                    getattr(make_engine, "without_weights", False))
