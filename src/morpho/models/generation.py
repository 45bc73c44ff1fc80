"""Text from a language model, a token at a time: the prompt goes through one native function of any length, each token
after it through another; both update a cache of keys and values in place, and neither is compiled again.

>>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=32)
>>> first = [*mo.models.generate(model, [1, 2, 3], max_new_tokens=5, temperature=0.8, seed=7)]
>>> first == [*mo.models.generate(model, [1, 2, 3], max_new_tokens=5, temperature=0.8, seed=7)]
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel
from morpho.models.sampling import Sampling
from morpho.nn.frozen import Frozen

CHUNK = 512  # tokens of a prompt that go through at once: bounds the memory of long ones
LEAST_LENGTH = 256  # positions of the smallest cache
AHEAD = 256  # new tokens that a cache has room for at first; more move to one of twice the length


class Generator:
    """A model with a cache for one sequence: `start` with a prompt, then `step` with each token; both give the logits
    of the next one. `generate` does this; use it for what `generate` does not do.

    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=32)
    >>> generator = mo.models.Generator(model)
    >>> generator.start([1, 2, 3]).shape, generator.step(4).shape, generator.compilations
    ((50,), (50,), 2)
    """

    def __init__(self, model: LanguageModel, length: int | None = None) -> None:
        self.model = model
        self.length = min(model.context, length or model.context)
        self.frozen = Frozen(model)
        self.ids: list[int] = []  # what the cache holds
        kind = next((p.dtype for p in model.parameters()), mo.float32)
        self.caches = model.make_caches(1, self.length, kind)
        self.prefill = mo.compile(self._last_logits, dynamic={"ids": {1: mo.Dim("n", 1, min(CHUNK, self.length))}})
        self.decode = mo.compile(self._last_logits)

    def _last_logits(self, ids: mo.Tensor, position: mo.Tensor) -> mo.Tensor:
        """ids (1, n) from `position` on -> (vocabulary,): the head sees the last row only."""
        self.frozen.use()
        with mo.no_grad():
            x = self.model.hidden(ids, self.caches, position)
            return mo.reshape(self.model.head(x[:, -1:]), (-1,)).astype(mo.float32)

    def start(self, ids: Sequence[int]) -> np.ndarray:
        """The logits after a prompt. What it has in common with the last sequence is not computed again."""
        prompt = _checked_ids(ids, self.length)
        if self.frozen.refresh():
            self.ids = []
        kept = min(_common(self.ids, prompt), len(prompt) - 1)
        self.ids = self.ids[:kept]
        with _evaluating(self.model):
            while True:
                part = prompt[len(self.ids):len(self.ids) + CHUNK]
                logits = self.prefill(mo.asarray([part]), mo.asarray(len(self.ids)))
                self.ids += part
                if len(self.ids) == len(prompt):
                    return logits.numpy()  # type: ignore[no-any-return]

    def step(self, token: int) -> np.ndarray:
        """The logits after one more token."""
        if len(self.ids) >= self.length:
            raise fail(ArgumentError, "generate", f"the cache is full: {self.length} positions",
                       "make the Generator with a larger length, up to the model's context")
        with _evaluating(self.model):
            logits = self.decode(mo.asarray([[token]]), mo.asarray(len(self.ids)))
        self.ids.append(int(token))
        return logits.numpy()  # type: ignore[no-any-return]

    @property
    def compilations(self) -> int:
        """How often a function was compiled: two, whatever the lengths of prompts and answers."""
        return len(self.prefill.specialisations) + len(self.decode.specialisations)


class TwoPartGenerator(Generator):
    """For a model with an encoder: the prompt goes through it, and the decoder begins with a token of its own."""

    def __init__(self, model: LanguageModel, length: int | None = None) -> None:
        super().__init__(model, length)
        self.encode = mo.compile(self._remember, dynamic={"ids": {1: mo.Dim("n", 1, self.length)}})

    def _remember(self, ids: mo.Tensor) -> mo.Tensor:
        self.frozen.use()
        with mo.no_grad():
            return self.model.remember(ids, self.caches)  # type: ignore[no-any-return]

    def start(self, ids: Sequence[int]) -> np.ndarray:
        prompt = _checked_ids(ids, self.length)
        self.frozen.refresh()
        with _evaluating(self.model):
            self.encode(mo.asarray([prompt]))
        self.ids = []
        return super().start([self.model.config["decoder_start_token_id"] or 0])

    @property
    def compilations(self) -> int:
        """Three: the encoder, the first token, the others."""
        return super().compilations + len(self.encode.specialisations)


def generate(model: LanguageModel, ids: Sequence[int], *, max_new_tokens: int | None = None, temperature: float = 0.0,
             top_k: int | None = None, top_p: float | None = None, repetition_penalty: float = 1.0,
             seed: int | None = None, stop: Sequence[int | str] | int | str = (),
             tokenizer: Any = None) -> Iterator[int]:
    """The tokens that follow `ids`, one by one as they are made.

    It ends after `max_new_tokens` (by default when the model's context is full), before a token of `stop` (the model's
    own end tokens always are), or after a token that completes one of `stop`'s strings, which needs a `tokenizer` with
    `decode`, from ids to text. Temperature 0 takes the likeliest token; otherwise see `Sampling`. The same `seed` gives
    the same text; None gives another one each time.

    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=32)
    >>> len([*mo.models.generate(model, [1, 2, 3], max_new_tokens=5, top_k=10, temperature=1.0, seed=0)])
    5
    """
    if not isinstance(model, LanguageModel):
        raise fail(ArgumentError, "generate", f"{type(model).__name__} is no language model")
    sampling = Sampling(temperature, top_k, top_p, repetition_penalty)
    prompt = _checked_ids(ids, model.context)
    tokens, strings = _stops(stop, tokenizer, model.eos_token_id)
    room = model.context - len(prompt)
    count = room if max_new_tokens is None else min(max_new_tokens, room)
    if max_new_tokens is not None and max_new_tokens < 0:
        raise fail(ArgumentError, "generate", f"max_new_tokens={max_new_tokens} is negative")
    number = as_whole(seed)
    if seed is not None and (number is None or number < 0):
        raise fail(ArgumentError, "generate", f"seed={seed!r} is not a whole number of at least 0")
    return _tokens(model, prompt, count, sampling, np.random.default_rng(number), tokens, strings, tokenizer)


def _tokens(model: LanguageModel, prompt: list[int], count: int, sampling: Sampling, rng: np.random.Generator,
            stops: set[int], strings: list[str], tokenizer: Any) -> Iterator[int]:
    made: list[int] = []
    with _lending(model) as lend:
        # A cache much longer than the text would cost time at every step; that of an encoder is filled once.
        ahead = count if hasattr(model, "remember") else min(count, AHEAD)
        generator = lend(len(prompt) + ahead)
        while len(made) < count:
            if not made:
                logits = generator.start(prompt)
            elif len(generator.ids) < generator.length:
                logits = generator.step(made[-1])
            else:
                generator = lend(generator.length + 1)
                logits = generator.start(prompt + made)
            token = sampling.choose(logits, prompt + made, rng)
            if token in stops:
                return
            made.append(token)
            yield token
            if strings and any(string in tokenizer.decode(made) for string in strings):
                return


def _checked_ids(ids: Sequence[int], most: int) -> list[int]:
    if isinstance(ids, str):
        raise fail(ArgumentError, "generate", "the prompt is text, and the model takes token numbers",
                   "pass tokenizer.encode(text)")
    found = [int(token) for token in np.asarray(ids.numpy() if isinstance(ids, mo.Tensor) else ids).reshape(-1)]
    if not found:
        raise fail(ArgumentError, "generate", "the prompt is empty", "begin with one token at least")
    if len(found) > most:
        raise fail(ArgumentError, "generate", f"the prompt has {len(found)} tokens, and there is room for {most}",
                   "cut it, or keep its end only")
    return found


def _stops(stop: Any, tokenizer: Any, ends: Any) -> tuple[set[int], list[str]]:
    parts = [stop] if isinstance(stop, int | str) else [*stop]
    strings = [part for part in parts if isinstance(part, str)]
    if strings and tokenizer is None:
        raise fail(ArgumentError, "generate", f"the stop string {strings[0]!r} needs text",
                   "pass tokenizer=, which has decode()")
    ends = [] if ends is None else [ends] if isinstance(ends, int) else ends
    return {int(part) for part in parts if not isinstance(part, str)} | {*ends}, strings


def _common(a: list[int], b: list[int]) -> int:
    """How many tokens two sequences begin with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class Idle:
    """The generators of a model that nobody uses at the moment; a copy of the model begins without any."""

    def __init__(self) -> None:
        self.free: list[Generator] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Idle:
        return Idle()


@contextmanager
def _lending(model: LanguageModel) -> Iterator[Callable[[int], Generator]]:
    """A function that lends a generator with room for so many tokens, which nobody else uses until the end; all are
    kept on the model for the next time. Caches have a power of two of positions: a few functions serve all lengths."""
    idle = model.__dict__.setdefault("_generators", Idle()).free
    idle[:] = [kept for kept in idle if kept.frozen.fits(model)]
    lent: list[Generator] = []

    def lend(wanted: int) -> Generator:
        length = LEAST_LENGTH
        while length < min(wanted, model.context):
            length *= 2
        length = min(length, model.context)
        found = next((kept for kept in idle if kept.length == length), None)
        if found is not None:
            idle.remove(found)
        else:
            found = (TwoPartGenerator if hasattr(model, "remember") else Generator)(model, length)
        lent.append(found)
        return found

    try:
        yield lend
    finally:
        idle.extend(lent)


@contextmanager
def _evaluating(model: LanguageModel) -> Iterator[None]:
    """The model in evaluation mode for a moment."""
    changed = [module for module in model.modules() if module._training] if model._training else []
    if changed:
        model.eval()
    try:
        yield
    finally:
        if changed:
            model.train()
