"""Text from speech: the generator of a model that listens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.text.generators import Generator
from morpho.models.text.sampling import forbidden


class Listener(Generator):
    """A generator whose decoder looks at sound."""

    def __init__(self, model: Any) -> None:
        super().__init__(model, model.context)
        self.hear = mo.compile(self._listen)

    def _listen(self, features: mo.Tensor) -> mo.Tensor:
        self.frozen.use()
        with mo.no_grad():
            return self.model.listen(features, self.caches)  # type: ignore[no-any-return]


def transcribed(model: Any, features: np.ndarray, prompt: Sequence[int], max_new_tokens: int | None) -> Iterator[int]:
    """See `Whisper.transcribe`."""
    features = features[None] if features.ndim == 2 else features
    if features.shape[0] != 1:
        raise fail(ArgumentError, "whisper", f"{features.shape[0]} sounds are given, and one is transcribed at a time")
    begin = [*prompt] or [model.config["decoder_start_token_id"]]
    most = model.context - len(begin)
    most = most if max_new_tokens is None else min(most, max_new_tokens)
    ends = model.eos_token_id if isinstance(model.eos_token_id, list) else [model.eos_token_id]
    listener = model.__dict__.get("_listener")
    if listener is None or not listener.frozen.fits(model):
        listener = model.__dict__["_listener"] = Listener(model)
    listener.frozen.refresh()
    listener.hear(mo.asarray(features.astype(np.float32)))
    listener.ids = []
    logits = listener.start(begin)
    for count in range(most):
        token = int(np.argmax(forbidden(logits, model.defaults, count, most)))
        if token in ends:
            return
        yield token
        if count + 1 < most:
            logits = listener.step(token)
