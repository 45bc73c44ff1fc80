"""How engines over pipelines are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from morpho.base.errors import ArgumentError, fail
from morpho.cluster.frontend.local import config_of
from morpho.cluster.frontend.pipeline import Pipeline
from morpho.models.files.loading import outline
from morpho.plan import ModelCard
from morpho.serve.engine.engine import KV_BYTES
from morpho.serve.hosting.registry import Spec
from morpho.serve.spread.engine import PipelineEngine, most_tokens

LEAST_STREAMS = 4


@dataclass(frozen=True)
class PipelineOptions:
    """Engines whose model runs as a pipeline: `make(place, streams)` starts the workers of one. So many texts are on
    their way at once as `kv_bytes` have room for at full length, four at least and `max_batch` at most."""

    make: Callable[[Path, int], Pipeline]
    kv_bytes: int | None = None
    max_batch: int = 64
    max_waiting: int = 256
    max_length: int | None = None

    without_weights: ClassVar[bool] = True

    def load(self, place: Path) -> tuple[Any, Any]:
        """A model without its weights, which only the workers read, and its tokenizer."""
        network, tokenizer = outline(str(place))
        return network, tokenizer()

    def __call__(self, network: Any, tokenizer: Any, spec: Spec) -> PipelineEngine:
        if spec.adapters:
            raise fail(ArgumentError, "serve", f"--lora {next(iter(spec.adapters))}: a pipeline of workers has no LoRA "
                                               "adapters", "leave out --nodes, --hosts and --plan")
        pipeline = self.make(spec.place, self.streams(spec.place, network))
        try:
            return PipelineEngine(pipeline.wait(), tokenizer, self.max_waiting, self.max_length)
        except BaseException:
            pipeline.close()
            raise

    def streams(self, place: Path, network: Any) -> int:
        """Texts at once: each has a cache in float32 at every stage, for as many positions as a text may have."""
        length = most_tokens(network, self.max_length)
        card = ModelCard.from_config(config_of(place), context=length, dtype="f32")
        each = max(sum(layer.kv_bytes for layer in card.layers), 1)
        return max(min((self.kv_bytes or KV_BYTES) // each, self.max_batch), min(LEAST_STREAMS, self.max_batch))
