"""Texts drawn by the engine inside the training process, with the log-probability of every token, and batches of them.

The engine reads the model's own weights: nothing is copied to another process, and `sample` takes over what an
optimiser has changed since the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.models.base import LanguageModel
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Request, SamplingParams

_STEP_OF_SEEDS = 1_000_003  # prompts of one call are this far apart, so that calls with neighbouring seeds do not meet


@dataclass(frozen=True)
class Rollout:
    """One text: the tokens after `prompt`, an end token included, with their log-probabilities when they were drawn.
    `group` is the prompt's place in the call, `finish` is "stop" or "length".

    >>> import numpy as np
    >>> mo.rl.Rollout((5, 6), (7,), np.array([-0.5], np.float32), 0, "length").tokens
    (7,)
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    log_probabilities: np.ndarray  # (tokens,) float32
    group: int
    finish: str


@dataclass(frozen=True)
class Batch:
    """Texts side by side, filled up at their ends. `mask` and `log_probabilities` belong to `ids[:, 1:]`: the mask is 1
    at drawn tokens, the log-probabilities are 0 elsewhere.

    >>> import numpy as np
    >>> rollout = mo.rl.Rollout((5, 6), (7,), np.array([-0.5], np.float32), 0, "length")
    >>> mo.rl.make_batch([rollout], multiple=4).log_probabilities.tolist()
    [[0.0, -0.5, 0.0]]
    """

    ids: np.ndarray  # (texts, length) int64
    mask: np.ndarray  # (texts, length - 1) float32
    log_probabilities: np.ndarray  # (texts, length - 1) float32


def make_batch(rollouts: Sequence[Rollout], multiple: int = 32, fill: int = 0) -> Batch:
    """Put rollouts into arrays, whose length is the next multiple: few lengths mean few compilations.

    >>> import numpy as np
    >>> rollout = mo.rl.Rollout((5, 6), (7,), np.array([-0.5], np.float32), 0, "length")
    >>> batch = mo.rl.make_batch([rollout], multiple=4)
    >>> batch.ids.tolist(), batch.mask.tolist()
    ([[5, 6, 7, 0]], [[0.0, 1.0, 0.0]])
    """
    if not rollouts:
        raise fail(ArgumentError, "make_batch", "there are no rollouts")
    longest = max(len(rollout.prompt) + len(rollout.tokens) for rollout in rollouts)
    length = -(-longest // multiple) * multiple
    ids = np.full((len(rollouts), length), fill, np.int64)
    mask = np.zeros((len(rollouts), length - 1), np.float32)
    logs = np.zeros((len(rollouts), length - 1), np.float32)
    for row, rollout in enumerate(rollouts):
        begin, end = len(rollout.prompt), len(rollout.prompt) + len(rollout.tokens)
        ids[row, :begin], ids[row, begin:end] = rollout.prompt, rollout.tokens
        mask[row, begin - 1:end - 1], logs[row, begin - 1:end - 1] = 1, rollout.log_probabilities
    return Batch(ids, mask, logs)


class Rollouts:
    """Draws texts from a model that is being trained.

    Args:
        model: A language model; `sample` puts it into evaluation mode while it draws.
        temperature: Divides the logits; above 0.
        top_k: Draw from the `top_k` likeliest tokens; 0: all.
        max_tokens: Tokens of an answer at most.
        stop_token_ids: Tokens that end a text, besides the model's own.
        autocast: Dtype of products, attention and caches; None for that of the parameters.
        options: Of the engine: `pages`, `kv_bytes`, `max_batch`, `chunk`, ...

    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=64)
    >>> with mo.rl.Rollouts(model, max_tokens=4, pages=8) as rollouts:
    ...     texts = rollouts.sample([[1, 2, 3]], n=2, seed=0)
    >>> [(len(text.tokens), text.group) for text in texts]
    [(4, 0), (4, 0)]
    """

    def __init__(self, model: LanguageModel, *, temperature: float = 1.0, top_k: int = 0, max_tokens: int = 64,
                 stop_token_ids: Iterable[int] = (), autocast: Any = None, **options: Any) -> None:
        self.model, self.autocast = model, autocast
        self.params = SamplingParams(temperature=temperature, top_k=top_k, max_tokens=max_tokens, logprobs=0,
                                     stop_token_ids=tuple(stop_token_ids), processed_logprobs=True)
        training = model.training
        self._engine = Engine(model, autocast=autocast, **{"drafted": 0, **options})
        model.train(training)

    def __enter__(self) -> Rollouts:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the engine; further calls of `sample` are errors."""
        self._engine.shutdown(drain=False)

    def sample(self, prompts: Sequence[Sequence[int]], n: int = 1, seed: int = 0) -> list[Rollout]:
        """Draw `n` texts for each prompt, those of one prompt side by side, with the weights as they are now.

        The texts follow from weights, prompt and seed, whatever else runs: two calls with one seed draw the same.
        """
        if not prompts:
            raise fail(ArgumentError, "rollouts", "there are no prompts")
        training = self.model.training
        self.model.eval()
        try:
            self._engine.refresh()
            streams = [self._engine.submit(Request(tuple(map(int, prompt)), self._params(n, seed, number), str(number)))
                       for number, prompt in enumerate(prompts)]
            return [text for number, stream in enumerate(streams) for text in _texts(stream, number, n)]
        finally:
            self.model.train(training)

    def _params(self, n: int, seed: int, number: int) -> SamplingParams:
        own = self.params
        return SamplingParams(temperature=own.temperature, top_k=own.top_k, max_tokens=own.max_tokens, logprobs=0, n=n,
                              stop_token_ids=own.stop_token_ids, processed_logprobs=True,
                              seed=seed * _STEP_OF_SEEDS + number)


def _texts(stream: Any, number: int, n: int) -> list[Rollout]:
    tokens: list[list[int]] = [[] for _ in range(n)]
    logs: list[list[float]] = [[] for _ in range(n)]
    finish = [""] * n
    for event in stream:
        if event.error is not None:
            raise fail(MorphoError, "rollouts", event.error)
        if event.token is not None:
            tokens[event.index].append(event.token)
            logs[event.index].append(event.logprob)
        if event.finish is not None:
            finish[event.index] = event.finish
    prompt = tuple(stream.request.prompt)
    return [Rollout(prompt, tuple(tokens[i]), np.array(logs[i], np.float32), number, finish[i]) for i in range(n)]
