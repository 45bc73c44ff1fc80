"""How engines over pipelines are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from morpho.base.errors import ArgumentError, fail
from morpho.cluster.frontend.pipeline import Pipeline
from morpho.models.files.loading import outline
from morpho.serve.engine.engine import KV_BYTES
from morpho.serve.engine.runner import page_bytes
from morpho.serve.hosting.registry import Spec
from morpho.serve.spread.engine import PipelineEngine

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

    both_parts: ClassVar[bool] = True

    def load(self, place: Path) -> tuple[Any, Any]:
        """A model without its weights, which only the workers read, and its tokenizer."""
        network, tokenizer = outline(str(place))
        return network, tokenizer()

    def __call__(self, network: Any, tokenizer: Any, spec: Spec) -> PipelineEngine:
        if spec.adapters:
            raise fail(ArgumentError, "serve", f"--lora {next(iter(spec.adapters))}: a pipeline of workers has no LoRA "
                                               "adapters", "leave out --nodes, --hosts and --plan")
        pipeline = self.make(spec.place, self.streams(network))
        try:
            return PipelineEngine(pipeline.wait(), tokenizer, self.max_waiting, self.max_length)
        except BaseException:
            pipeline.close()
            raise

    def streams(self, network: Any) -> int:
        """Texts at once."""
        length = int(min(self.max_length or network.context, network.context))
        try:
            each = max(page_bytes(network) * -(-length // 64), 1)
        except (AttributeError, KeyError, TypeError):  # families that the engine of one process does not know
            return min(LEAST_STREAMS, self.max_batch)
        return max(min((self.kv_bytes or KV_BYTES) // each, self.max_batch), min(LEAST_STREAMS, self.max_batch))
