"""A model with a cache, for one sequence or for several: what `generate` runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

import morpho as mo
from morpho.backends.registry import HOST
from morpho.base import settings
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel
from morpho.models.text.prompts import checked_ids
from morpho.nn.frozen import Frozen
from morpho.nn.transformer.caches import joined
from morpho.tensor.jit.native.entries import entries

CHUNK = 512  # tokens of a prompt that go through at once: bounds the memory of long ones
LEAST_LENGTH = 256  # positions of the smallest cache


class _There:
    """Whoever computes beside a model's weights."""

    place: str  # the device of the weights

    def there(self, values: Any) -> mo.Tensor:
        """Whole numbers on that device, or on the one that settings say."""
        return mo.asarray(values) if self.place == HOST else mo.asarray(np.asarray(values), device=self.place)


class Generator(_There):
    """A model with a cache for one sequence: `start` with a prompt, then `step` with each token; both give the logits
    of the next one. `generate` does this; use it for what `generate` does not do.

    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=32)
    >>> generator = mo.models.Generator(model)
    >>> generator.start([1, 2, 3]).shape, generator.step(4).shape, generator.compilations
    ((50,), (50,), 2)
    """

    def __init__(self, model: LanguageModel, length: int | None = None) -> None:
        self.model, self.rows, self.place = model, 1, device_of(model)
        self.loop: Any = None  # that chooses tokens on the model's device, where `generate` wants it
        self.length = min(model.context, length or model.usual_length)
        self.frozen = Frozen(model)
        self.ids: list[int] = []  # what the cache holds
        kind = next((p.dtype for p in model.parameters()), mo.float32)
        with placed(model):
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
        prompt = checked_ids(ids, self.length, self.model)
        if self.frozen.refresh():
            self.ids = []
        kept = min(_common(self.ids, prompt), len(prompt) - 1)
        self.ids = self.ids[:kept]
        with evaluating(self.model):
            while True:
                part = prompt[len(self.ids):len(self.ids) + CHUNK]
                logits = self.prefill(self.there([part]), self.there(len(self.ids)))
                self.ids += part
                if len(self.ids) == len(prompt):
                    return logits.numpy()  # type: ignore[no-any-return]

    def step(self, token: int) -> np.ndarray:
        """The logits after one more token."""
        if len(self.ids) >= self.length:
            raise fail(ArgumentError, "generate", f"the cache is full: {self.length} positions",
                       "make the Generator with a larger length, up to the model's context")
        with evaluating(self.model):
            logits = self.decode(self.there([[token]]), self.there(len(self.ids)))
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

    def _remember(self, ids: mo.Tensor, lengths: mo.Tensor) -> mo.Tensor:
        self.frozen.use()
        with mo.no_grad():
            return self.model.remember(ids, self.caches, lengths)  # type: ignore[no-any-return]

    def start(self, ids: Sequence[int]) -> np.ndarray:
        prompt = checked_ids(ids, self.length, self.model)
        self.frozen.refresh()
        with evaluating(self.model):
            self.encode(self.there([prompt]), self.there([len(prompt)]))
        self.ids = []
        return super().start([self.model.config["decoder_start_token_id"] or 0])

    @property
    def compilations(self) -> int:
        """Three: the encoder, the first token, the others."""
        return super().compilations + len(self.encode.specialisations)


class JoinedGenerators(_There):
    """The next tokens of several `Generator`s in one call: each row attends over its own generator's cache, and all
    else is computed together, so that each has the bits it has alone. A generator that has no token this time is
    computed beside the others; what that writes into its cache lies behind what it holds."""

    def __init__(self, generators: Sequence[Generator]) -> None:
        self.generators, first = tuple(generators), generators[0]
        self.model, self.frozen, self.place = first.model, first.frozen, first.place
        self.caches = joined([each.caches for each in generators])
        self.decode = mo.compile(self._logits)

    def _logits(self, ids: mo.Tensor, positions: mo.Tensor) -> mo.Tensor:
        """ids (rows, 1) at a position each -> (rows, vocabulary)."""
        self.frozen.use()
        with mo.no_grad():
            x = self.model.hidden(ids, self.caches, positions)
            return mo.reshape(self.model.head(x), (len(self.generators), -1)).astype(mo.float32)

    def step(self, tokens: Mapping[int, int]) -> np.ndarray:
        """The logits after one more token of some generators, by their places: (rows, vocabulary)."""
        for number, each in enumerate(self.generators):
            if number not in tokens and len(each.ids) == each.length:
                each.ids.pop()  # its last place is written over
        ids = [[tokens.get(number, 0)] for number in range(len(self.generators))]
        with evaluating(self.model):
            logits = self.decode(self.there(ids), self.there([len(each.ids) for each in self.generators]))
        for number, token in tokens.items():
            self.generators[number].ids.append(int(token))
        return logits.numpy()  # type: ignore[no-any-return]


class BatchGenerator(_There):
    """As a `Generator`, for several sequences of any lengths at once. Prompts are filled up on the right: no token
    looks at what comes after it, so that each row has the bits it has alone, and what stands there in the cache is
    written over before anything looks at it."""

    def __init__(self, model: LanguageModel, rows: int, length: int) -> None:
        self.model, self.rows, self.length, self.place = model, rows, length, device_of(model)
        self.frozen = Frozen(model)
        self.lengths = np.zeros(rows, np.int64)  # what the cache holds of each
        kind = next((p.dtype for p in model.parameters()), mo.float32)
        with placed(model):
            self.caches = model.make_caches(rows, length, kind)
        self.two_parts = hasattr(model, "remember")
        many = {"ids": {1: mo.Dim("n", 1, length if self.two_parts else min(CHUNK, length))}}
        self.prefill = mo.compile(self._remember if self.two_parts else self._logits, dynamic=many)
        self.decode = mo.compile(self._logits)

    def _remember(self, ids: mo.Tensor, lengths: mo.Tensor) -> mo.Tensor:
        self.frozen.use()
        with mo.no_grad():
            return self.model.remember(ids, self.caches, lengths)  # type: ignore[no-any-return]

    def _logits(self, ids: mo.Tensor, position: mo.Tensor, last: mo.Tensor) -> mo.Tensor:
        """ids (rows, n) from `position` on -> (rows, vocabulary), from the place `last` of each row."""
        self.frozen.use()
        with mo.no_grad():
            x = self.model.hidden(ids, self.caches, position)
            width = x.shape[-1]
            picked = mo.take_along_axis(x, mo.broadcast_to(mo.reshape(last, (-1, 1, 1)), (self.rows, 1, width)), axis=1)
            return mo.reshape(self.model.head(picked), (self.rows, -1)).astype(mo.float32)

    def start(self, prompts: Sequence[Sequence[int]]) -> np.ndarray:
        """The logits after each prompt: (rows, vocabulary). Fewer prompts than rows leave the last rows idle."""
        self.frozen.refresh()
        filled = [*prompts, *[prompts[0][:1]] * (self.rows - len(prompts))]
        lengths = np.array([len(row) for row in filled])
        ids = np.zeros((self.rows, lengths.max()), np.int64)
        for row, tokens in enumerate(filled):
            ids[row, :len(tokens)] = tokens
        with evaluating(self.model):
            if self.two_parts:
                self.prefill(self.there(ids), self.there(lengths))
                self.lengths = np.zeros(self.rows, np.int64)
                return self.step([self.model.config["decoder_start_token_id"] or 0] * self.rows)
            self.lengths = lengths
            return self._through(ids)

    def _through(self, ids: np.ndarray) -> np.ndarray:
        """All prompts, a piece of each at a time."""
        found: np.ndarray | None = None
        for begin in range(0, ids.shape[1], CHUNK):
            part, last = ids[:, begin:begin + CHUNK], self.lengths - 1 - begin
            inside = (last >= 0) & (last < part.shape[1])
            logits = self.prefill(*map(self.there, (part, begin, last.clip(0, part.shape[1] - 1))))
            found = logits.numpy(copy=True) if found is None else found
            found[inside] = logits.numpy()[inside]
        assert found is not None
        return found

    def step(self, tokens: Sequence[int]) -> np.ndarray:
        """The logits after one more token of each row."""
        places = self.lengths.clip(0, self.length - 1)  # rows that have ended stay where they are
        position = places.max() if self.two_parts else places
        with evaluating(self.model):
            ids = np.array(tokens, np.int64).reshape(self.rows, 1)
            logits = self.decode(*map(self.there, (ids, position, np.zeros(self.rows, np.int64))))
        self.lengths = self.lengths + 1
        return logits.numpy()  # type: ignore[no-any-return]

    @property
    def compilations(self) -> int:
        """Two, whatever the lengths."""
        return len(self.prefill.specialisations) + len(self.decode.specialisations)


def _common(a: list[int], b: list[int]) -> int:
    """How many tokens two sequences begin with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class Idle:
    """The generators of a model that nobody uses at the moment; a copy of the model begins without any."""

    def __init__(self) -> None:
        self.free: list[Any] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Idle:
        return Idle()


@contextmanager
def lending(model: LanguageModel, rows: int = 1) -> Iterator[Callable[[int], Any]]:
    """A function that lends a generator with room for so many tokens, which nobody else uses until the end; all are
    kept on the model for the next time. Caches have a power of two of positions: a few functions serve all lengths.
    More than one row is a `BatchGenerator`."""
    idle = model.__dict__.setdefault("_generators", Idle()).free
    idle[:] = [kept for kept in idle if kept.frozen.fits(model) and kept.place == device_of(model)]
    lent: list[Any] = []

    def lend(wanted: int) -> Any:
        length = LEAST_LENGTH
        while length < min(wanted, model.context):
            length *= 2
        switch = getattr(model, "switch", None)  # beyond which all angles are others: a cache is for one side of it
        length = min(length, model.context) if switch is None or wanted > switch else min(length, switch)
        found = next((kept for kept in idle if kept.length == length and kept.rows == rows), None)
        if found is not None:
            idle.remove(found)
        elif rows > 1:
            found = BatchGenerator(model, rows, length)
        else:
            found = (TwoPartGenerator if hasattr(model, "remember") else Generator)(model, length)
        lent.append(found)
        return found

    try:
        yield lend
    finally:
        idle.extend(lent)


def device_of(model: LanguageModel) -> str:
    """Where a model's weights lie."""
    return next((parameter.device for parameter in model.parameters()), HOST)


def placed(model: LanguageModel) -> AbstractContextManager[Any]:
    """A block in which tensors are made where the model's weights lie."""
    place = device_of(model)
    return nullcontext() if place == HOST or place == settings.get().device else mo.device(place)


@contextmanager
def evaluating(model: LanguageModel) -> Iterator[None]:
    """The model in evaluation mode for a moment. Settings stay as they are: native entries serve those they know. What
    was in that mode before, such as a frozen part, is so afterwards."""
    changed = [module for module in model.modules() if module._training] if model._training else []
    for module in changed:
        module._training = False
    if changed:
        entries.forget()
    try:
        yield
    finally:
        for module in changed:
            module._training = True
        if changed:
            entries.forget()
