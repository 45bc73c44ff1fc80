"""Guesses of next tokens by a smaller model of one vocabulary, and whether guesses are worth their time.

A guess is checked by computing all of its tokens at once, and a token is what is chosen from its logits, whether it was
guessed or not: texts have the same tokens, and logits the same bits, as without.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, Literal

import numpy as np

from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel
from morpho.models.text.generators import Generator

Source = Literal["lookup", "draft"]
SAMPLES = 8  # steps whose times and tokens are compared
FEW = 2  # tokens that are read one by one: the function of any number of tokens takes longer
FIRST = 4  # plain steps before a model guesses: the first one may wait for its function
REST = 64  # plain steps after which guesses that did not pay are tried again
LEAST_GAIN = 1.02


class DraftModel:
    """A small model that guesses, with a cache of its own for each of a few texts.

    Args:
        model: A decoder with the tokens of the model that it guesses for.
        rows: Texts that it follows at once; for another the one that was used longest ago is forgotten.
        length: Most tokens of a text.
        vocabulary: Tokens of the model that it guesses for: others are not guessed.
    """

    def __init__(self, model: LanguageModel, rows: int, length: int, vocabulary: int) -> None:
        if hasattr(model, "remember") or not isinstance(model, LanguageModel):
            raise fail(ArgumentError, "serve", f"a {type(model).__name__} does not guess tokens of a text",
                       "give a decoder as draft")
        self.model, self.rows, self.vocabulary = model.eval(), rows, vocabulary
        self.length = min(length, model.context)
        self._generators: OrderedDict[int, Generator] = OrderedDict()

    def guess(self, text: int, tokens: list[int], most: int) -> list[int]:
        """At most so many tokens that the model takes for the likeliest after those of text number `text`."""
        most = min(most, self.length - len(tokens))
        if most <= 0:
            return []
        generator = self._generator(text)
        guesses: list[int] = []
        if len(generator.ids) >= len(tokens) or generator.ids != tokens[:len(generator.ids)]:
            common = zip(generator.ids, tokens[:-1], strict=False)  # guesses that were wrong are written over
            same = next((n for n, (a, b) in enumerate(common) if a != b), min(len(generator.ids), len(tokens) - 1))
            generator.ids = generator.ids[:same]
        missing = tokens[len(generator.ids):]
        logits = generator.start(tokens) if len(missing) > FEW else [generator.step(token) for token in missing][-1]
        while True:
            guesses.append(int(np.argmax(logits[:self.vocabulary])))
            if len(guesses) == most:
                return guesses
            logits = generator.step(guesses[-1])

    def _generator(self, text: int) -> Generator:
        if text in self._generators:
            self._generators.move_to_end(text)
        elif len(self._generators) < self.rows:
            self._generators[text] = Generator(self.model, self.length)
        else:
            self._generators[text] = self._generators.popitem(last=False)[1]
        return self._generators[text]


def check_vocabularies(one: Any, other: Any, name: str) -> None:
    """Refuse a model whose tokens are not those of the model that it is to guess for."""
    count = min(one.vocab_size, other.vocab_size)
    different = next((n for n in range(count) if one.token_bytes(n) != other.token_bytes(n)), None)
    if different is not None:
        raise fail(ArgumentError, "serve", f"{name} has another vocabulary: token {different} is "
                   f"{other.token_bytes(different)!r}, not {one.token_bytes(different)!r}",
                   "a draft is a smaller model of the same family")


class Payoff:
    """Times of steps with and without guesses. Guesses pay where steps with them make more tokens a second, by the
    least times of the last few of both. Guesses that do not pay rest for a while, and are tried again.

    >>> payoff = Payoff()
    >>> for _ in range(8):
    ...     payoff.plain(1, 0.010), payoff.guessed(1, "draft", 0.025, 2)
    (None, None)
    ...
    >>> payoff.pays(1, "draft"), payoff.pays(1, "lookup")
    (False, True)
    """

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}
        self._guessed: dict[tuple[int, Source], deque[tuple[float, int]]] = {}
        self._rest: dict[tuple[int, Source], int] = {}
        self._steps = 0

    def plain(self, rows: int, seconds: float) -> None:
        """Record a step of so many texts without guesses."""
        self._plain.setdefault(rows, deque(maxlen=SAMPLES)).append(seconds)

    def guessed(self, rows: int, source: Source, seconds: float, tokens: int) -> None:
        """Record a step with guesses: its time, that of guessing among it, and the tokens that it made."""
        known = self._guessed.setdefault((rows, source), deque(maxlen=SAMPLES))
        known.append((seconds, tokens))
        self._steps += 1
        if self._steps % REST == 0:
            self._rest[rows, source] = 1  # to know what a step without takes by then
        plain = self._plain.get(rows)
        if plain is None or len(plain) < FIRST or len(known) < SAMPLES:
            return
        gained = sum(tokens for _, tokens in known) / len(known) / rows
        if gained * min(plain) < LEAST_GAIN * min(seconds for seconds, _ in known):
            self._rest[rows, source] = REST
            known.clear()

    def pays(self, rows: int, source: Source) -> bool:
        """Whether the next step of so many texts is to have guesses; counts the steps of a rest."""
        key = rows, source
        if source == "draft" and len(self._plain.get(rows, ())) < FIRST:
            return False
        left = self._rest.get(key, 0)
        if left:
            self._rest[key] = left - 1
        return not left
