"""One model that is loaded and answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base.errors import MorphoError
from morpho.models.text.generation_keys import Defaults
from morpho.serve.engine.request import EngineProtocol
from morpho.serve.hosting.embedder import Embedder, Scorer
from morpho.weights import render_chat

LOG = logging.getLogger("morpho.serve")
TOOL = {"type": "function", "function": {"name": "probe_of_tools", "description": "", "parameters": {
    "type": "object", "properties": {}}}}


@dataclass(eq=False)
class Served:
    """A loaded model under a name: a language model has an `engine`, an encoder an `embedder`. `users` counts the
    requests that hold it; it is closed when it is `retired` and the last of them has ended."""

    name: str
    place: Path
    network: Any
    tokenizer: Any
    engine: EngineProtocol | None
    embedder: Embedder | None
    nbytes: int
    adapter: str | None = None
    scorer: Scorer | None = None  # of an encoder with a head of one class
    created: int = field(default_factory=lambda: int(time.time()))
    users: int = 0
    retired: bool = False
    told_of_tools: bool = False
    last_used: float = field(default_factory=time.monotonic)

    @property
    def defaults(self) -> Defaults:
        found = getattr(self.network, "defaults", None)
        return found if isinstance(found, Defaults) else Defaults()

    @cached_property
    def context(self) -> int:
        config: Mapping[str, Any] = self.network.config
        found = getattr(self.engine, "max_length", None) or getattr(self.network, "context", None) \
            or config.get("max_position_embeddings")
        return int(found) if found is not None else 1 << 30

    @cached_property
    def vocabulary(self) -> int:
        return int(self.network.config.get("vocab_size") or self.tokenizer.vocab_size)

    @property
    def width(self) -> int:
        config = self.network.config
        return int(next(config[name] for name in ("hidden_size", "d_model", "n_embd", "dim") if name in config))

    @property
    def talks(self) -> bool:
        return bool(self.tokenizer.chat_template) and self.engine is not None

    def knows_tools(self) -> bool:
        """Whether the chat template writes tools."""
        return self._knows_tools

    def note_tool_prompt(self) -> None:
        """Say once that tools are told by a message of the system."""
        if not self.told_of_tools:
            self.told_of_tools = True
            reason = "the chat template does not know tools: they are described in the message of the system"
            LOG.warning("tools_by_prompt", extra={"model": self.name, "reason": reason})

    @cached_property
    def _knows_tools(self) -> bool:
        chat = [{"role": "user", "content": "x"}]
        try:
            return "probe_of_tools" in render_chat(chat, self.tokenizer.chat_template, tools=[TOOL])
        except MorphoError:
            return False

    def embed(self, rows: list[list[int]]) -> np.ndarray:
        assert self.embedder is not None
        return self.embedder(rows)

    def close(self, drain: bool = True, timeout_s: float | None = None) -> None:
        if self.engine is not None:
            self.engine.shutdown(drain, timeout_s)
