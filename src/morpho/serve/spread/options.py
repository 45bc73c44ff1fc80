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

LEAST_TEXTS = 4  # of full length


@dataclass(frozen=True)
class PipelineOptions:
    """Engines whose model runs as a pipeline: `make(place, streams, positions)` starts the workers of one. At most
    `max_batch` texts are on their way at once, as long as their tokens, those that they may make among them, fit into
    `kv_bytes`; four of full length always do."""

    make: Callable[[Path, int, int], Pipeline]
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
        pipeline = self.make(spec.place, self.max_batch, self.positions(spec.place, network))
        try:
            return PipelineEngine(pipeline.wait(), tokenizer, self.max_waiting, self.max_length)
        except BaseException:
            pipeline.close()
            raise

    def positions(self, place: Path, network: Any) -> int:
        """Tokens that all texts together may have: each has keys and values in float32 at every layer."""
        length = most_tokens(network, self.max_length)
        card = ModelCard.from_config(config_of(place), context=length, dtype="f32")
        each = max(sum(layer.kv_bytes for layer in card.layers), 1)
        return max((self.kv_bytes or KV_BYTES) * length // each, LEAST_TEXTS * length)
