"""Tokens chosen where the model lies: every step takes the token that the step before it has chosen, so that the device
works on while the host reads what was made. Token, position, random numbers and the cache are states of the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

import morpho as mo
from morpho.backends.registry import HOST
from morpho.base.errors import ArgumentError, fail
from morpho.models.text.generation_keys import Defaults
from morpho.models.text.generators import Generator, device_of, evaluating, placed
from morpho.models.text.sampling import Sampling
from morpho.runtime.memory.device_memory import Fetch, fetch

STEPS_AHEAD = 4  # that are queued before the host has read the first of them
NOT_FINITE = -1  # in place of a token


def suits(model: Any, sampling: Sampling, said: Defaults) -> bool:
    """Whether tokens can be chosen on the model's device: it is not the host, and the choice needs nothing but the
    logits. Sorting for top_k and top_p, and penalties of what was said, are the host's."""
    vocabulary = model.config.get("vocab_size", 0)
    whole = (sampling.top_k is None or sampling.top_k >= vocabulary) and sampling.top_p in (None, 1)
    plain = not said.suppress_tokens and said.forced_eos_token_id is None
    return (device_of(model) != HOST and sampling.repetition_penalty == 1 and plain
            and (sampling.temperature == 0 or whole))


class DeviceLoop:
    """The steps of one generator.

    >>> from morpho.models.text.device_loop import DeviceLoop
    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=32)
    >>> generator = mo.models.Generator(model)
    >>> first = int(generator.start([1, 2, 3]).argmax())
    >>> loop = DeviceLoop(generator)
    >>> [*loop.tokens(first, 4)] == [*mo.models.generate(model, [1, 2, 3], max_new_tokens=5)][1:]
    True
    """

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        with placed(generator.model):
            self.token = mo.State(mo.zeros((1, 1), dtype=mo.int64))
            self.position = mo.State(mo.zeros((), dtype=mo.int64))
            self.draws = mo.State(mo.zeros((generator.length,), dtype=mo.float64))  # one of every position
            self.temperature = mo.State(mo.ones((), dtype=mo.float64))
        self.greedy, self.drawn = mo.compile(self._greedy), mo.compile(self._drawn)

    # -- on the device -------------------------------------------------------------------------------------------------
    def _greedy(self) -> mo.Tensor:
        logits = self.generator._last_logits(self.token.value, self.position.value)
        return self._take(logits, mo.argmax(logits))

    def _drawn(self) -> mo.Tensor:
        logits = self.generator._last_logits(self.token.value, self.position.value)
        draw = mo.take(self.draws.value, mo.reshape(self.position.value, (1,)), axis=0)
        return self._take(logits, drawn(logits.astype(mo.float64) / self.temperature.value, draw))

    def _take(self, logits: mo.Tensor, token: mo.Tensor) -> mo.Tensor:
        """The next step's token and position; returned is the token, or that the logits are not finite."""
        finite = mo.isfinite(mo.max(logits))
        self.token.value = mo.reshape(token, (1, 1))
        self.position.value = self.position.value + 1
        return mo.where(finite, token, NOT_FINITE)

    # -- on the host ---------------------------------------------------------------------------------------------------
    def tokens(self, token: int, most: int, sampling: Sampling = Sampling(), rng: Any = None) -> Iterator[int]:  # noqa: B008 (it never changes)
        """At most so many tokens that follow `token`, which the cache does not hold yet; fewer where it is full. The
        cache holds all but the last one that was taken."""
        generator = self.generator
        at = len(generator.ids)
        most = min(most, generator.length - at)
        if most <= 0:
            return
        step = self._begin(token, at, most, sampling, rng)
        queued: deque[Fetch] = deque()
        started = 0
        for _ in range(most):
            while started < most and len(queued) < STEPS_AHEAD:
                queued.append(step())
                started += 1
            found = int(queued.popleft()().reshape(()))
            generator.ids.append(token)
            if found == NOT_FINITE:
                raise fail(ArgumentError, "generate", "the logits are not finite", "look at the model's weights")
            token = found
            yield token

    def _begin(self, token: int, at: int, most: int, sampling: Sampling, rng: Any) -> Any:
        """Set the states of the first step; what queues one."""
        run, there = self.greedy, self.generator.there
        self.token.value, self.position.value = there([[token]]), there(at)
        if sampling.temperature:
            numbers = np.zeros(self.generator.length)
            numbers[at:at + most] = rng.random(most)
            self.draws.value = there(numbers)
            self.temperature.value = there(np.float64(sampling.temperature))
            run = self.drawn

        def step() -> Fetch:
            with evaluating(self.generator.model):
                return fetch(run().elements())

        return step


def drawn(scores: mo.Tensor, draw: mo.Tensor) -> mo.Tensor:
    """The number whose part of the sum of all powers of e holds `draw`, between 0 and 1. Sums go by rows of a square:
    a row at a time first, then within the row.

    >>> from morpho.models.text.device_loop import drawn
    >>> scores = mo.asarray([0.0, 1.0, 2.0], dtype=mo.float64)
    >>> [drawn(scores, mo.asarray([u], dtype=mo.float64)).item() for u in (0.08, 0.1, 0.3, 0.4)]
    [0, 1, 1, 2]
    """
    count = int(scores.shape[0])
    width = 1 << max(0, (count - 1).bit_length() + 1) // 2
    rows = -(-count // width)
    powers = mo.pad(mo.exp(scores - mo.max(scores)), (0, rows * width - count))
    square = mo.reshape(powers, (rows, width))
    heights = mo.cumulative_sum(mo.sum(square, axis=1))
    target = draw * heights[-1:]
    row = mo.minimum(mo.sum(heights <= target), rows - 1)
    below = mo.where(row > 0, mo.take(heights, mo.reshape(mo.maximum(row - 1, 0), (1,)), axis=0), 0.0)
    mine = mo.reshape(mo.take(square, mo.reshape(row, (1,)), axis=0), (width,))
    column = mo.sum(below + mo.cumulative_sum(mine) <= target)
    return mo.minimum(row * width + mo.minimum(column, width - 1), count - 1)
