"""Text from a language model, a token at a time: the prompt goes through one native function of any length, each token
after it through another; both update a cache of keys and values in place, and neither is compiled again.

>>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=32)
>>> first = [*mo.models.generate(model, [1, 2, 3], max_new_tokens=5, temperature=0.8, seed=7)]
>>> first == [*mo.models.generate(model, [1, 2, 3], max_new_tokens=5, temperature=0.8, seed=7)]
True
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel
from morpho.models.text.device_loop import DeviceLoop, suits
from morpho.models.text.generation_keys import Defaults
from morpho.models.text.generators import evaluating, lending
from morpho.models.text.prompt_cache import PromptCache
from morpho.models.text.prompts import prompts_of
from morpho.models.text.sampling import Sampling, forbidden
from morpho.models.text.stop_strings import StopStrings

MOST_ROWS = 16  # prompts that go through at once
AHEAD = 256  # new tokens that a cache has room for at first; more move to one of twice the length


def generate(model: LanguageModel, ids: Any, *, mask: Any = None, max_new_tokens: int | None = None,
             temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
             repetition_penalty: float | None = None, seed: int | None = None,
             stop: Sequence[int | str] | int | str = (), tokenizer: Any = None,
             prompt_cache: str | PathLike[str] | PromptCache | None = None) -> Iterator[Any]:
    """The tokens that follow `ids`, one by one as they are made; of several prompts, a list of lists or an array of two
    axes, the list that follows each, which is the one it has alone.

    It ends after `max_new_tokens` (by default when the model's context is full), before a token of `stop` (the model's
    own end tokens always are), or after a token that completes one of `stop`'s strings, which needs a `tokenizer` with
    `decode`, from ids to text. Temperature 0 takes the likeliest token; otherwise see `Sampling`. The same `seed` gives
    the same text; None gives another one each time. What is left out is as the model's files say (`model.defaults`),
    else temperature 0. `mask` is 0 at the padding of an array of prompts. The model is in evaluation mode until the
    last token is taken. `prompt_cache` is a file with what the model has computed for a text: where one prompt begins
    like it, that is not computed again, and the tokens are the same; when the text ends, the file has all of it.

    >>> model = mo.models.create("gpt2", vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=32)
    >>> len([*mo.models.generate(model, [1, 2, 3], max_new_tokens=5, top_k=10, temperature=1.0, seed=0)])
    5
    >>> [len(each) for each in mo.models.generate(model, [[1, 2, 3], [4]], max_new_tokens=5)]
    [5, 5]
    """
    found = settled(model, ids, mask=mask, max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k,
                    top_p=top_p, repetition_penalty=repetition_penalty, seed=seed, stop=stop, tokenizer=tokenizer)
    if prompt_cache is not None and found.several:
        raise fail(ArgumentError, "generate", f"{len(found.prompts)} prompts share no prompt cache",
                   "call generate for each")
    cache = prompt_cache if prompt_cache is None or isinstance(prompt_cache, PromptCache) else PromptCache(
        prompt_cache, model)
    two_parts = hasattr(model, "remember")  # their text begins anew
    answers = [_Answer(prompt, count, found.sampling, np.random.default_rng(found.seed), found.stops,
                       StopStrings(found.strings, tokenizer, () if two_parts else prompt), model.defaults)
               for prompt, count in zip(found.prompts, found.counts, strict=True)]
    return _rows(model, answers) if found.several else _tokens(model, answers[0], cache)


@dataclass(frozen=True)
class Settled:
    """What a call of `generate` asks for, checked, with the model's defaults put in."""

    prompts: list[list[int]]
    several: bool
    counts: list[int]
    sampling: Sampling
    seed: int | None
    stops: set[int]
    strings: list[str]


def settled(model: LanguageModel, ids: Any, *, mask: Any = None, max_new_tokens: int | None = None,
            temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
            repetition_penalty: float | None = None, seed: int | None = None,
            stop: Sequence[int | str] | int | str = (), tokenizer: Any = None) -> Settled:
    """The arguments of `generate`, checked; whoever makes the tokens, these are the same."""
    if not isinstance(model, LanguageModel):
        raise fail(ArgumentError, "generate", f"{type(model).__name__} is no language model")
    if hasattr(model, "listen"):
        raise fail(ArgumentError, "generate", f"{type(model).__name__} makes text of sound",
                   "use model.transcribe(features)")
    prompts, several = prompts_of(ids, mask, model)
    said = model.defaults
    sampling = Sampling(*(ours if ours is not None else theirs if theirs is not None else usual for ours, theirs, usual  # type: ignore[arg-type]
                          in ((temperature, said.temperature, 0.0), (top_k, said.top_k, None),
                              (top_p, said.top_p, None), (repetition_penalty, said.repetition_penalty, 1.0))))
    counts = [_count(model, max_new_tokens, len(prompt)) for prompt in prompts]
    number = as_whole(seed)
    if seed is not None and (number is None or number < 0):
        raise fail(ArgumentError, "generate", f"seed={seed!r} is not a whole number of at least 0")
    return Settled(prompts, several, counts, sampling, number, *_stops(stop, tokenizer, model))


def _count(model: LanguageModel, wanted: Any, prompt: int) -> int:
    """How many tokens are made at most."""
    two_parts, said = hasattr(model, "remember"), model.defaults
    number = as_whole(wanted)
    if wanted is not None and (number is None or number < 0):
        raise fail(ArgumentError, "generate", f"max_new_tokens={wanted!r} is not a whole number of at least 0")
    if number is None:
        number = said.max_new_tokens
    if number is None and said.max_length is not None:
        number = max(said.max_length - (1 if two_parts else prompt), 0)
    if number is None:
        number = model.usual_length if two_parts else model.context
    return number if two_parts else min(number, model.context - prompt)


class _Answer:
    """What follows one prompt, as far as it is made."""

    def __init__(self, prompt: list[int], count: int, sampling: Sampling, rng: np.random.Generator, stops: set[int],
                 strings: StopStrings, said: Defaults = Defaults()) -> None:  # noqa: B008 (it never changes)
        self.said = said
        self.prompt, self.count, self.sampling, self.rng = prompt, count, sampling, rng
        self.stops, self.strings = stops, strings
        self.made: list[int] = []
        self.seen = set(prompt)  # for the penalty of repetition
        self.ended = count == 0

    def take(self, logits: np.ndarray) -> int | None:
        """The next token, or None if it ends the text."""
        logits = forbidden(logits, self.said, len(self.made), self.count)
        return self.accept(self.sampling.choose(logits, self.seen, self.rng))

    def accept(self, token: int) -> int | None:
        """A token that was chosen, or None if it ends the text."""
        if token in self.stops:
            self.ended = True
            return None
        self.made.append(token)
        self.seen.add(token)
        self.ended = self.strings.push(token) or len(self.made) >= self.count
        return token


def _tokens(model: LanguageModel, answer: _Answer, cache: PromptCache | None = None) -> Iterator[int]:
    prompt, made = answer.prompt, answer.made
    with lending(model) as lend, evaluating(model):  # switched once: every switch would send a call through Python
        # A cache much longer than the text would cost time at every step; that of an encoder is filled once.
        two_parts = hasattr(model, "remember")
        wanted = max(len(prompt), answer.count + 1) if two_parts else len(prompt) + min(answer.count, AHEAD)
        switch = getattr(model, "switch", None)  # beyond which all angles are others: a text begins on its own side
        generator = lend(wanted if switch is None or len(prompt) > switch else min(wanted, switch))
        if cache is not None:
            cache.fill(generator, prompt)
        try:
            while not answer.ended:
                if not made:
                    logits = generator.start(prompt)
                elif len(generator.ids) < generator.length:
                    logits = generator.step(made[-1])
                else:
                    generator = lend(generator.length + 1)
                    logits = generator.start(prompt + made)
                token = answer.take(logits)
                if token is not None:
                    yield token
                if not answer.ended and suits(model, answer.sampling, answer.said) and not two_parts:
                    yield from _followed(generator, answer)
        except GeneratorExit:  # nobody wants the rest
            if cache is not None:
                cache.keep(generator)
            raise
        if cache is not None:
            cache.keep(generator)


def _followed(generator: Any, answer: _Answer) -> Iterator[int]:
    """Tokens that the model's own device chooses, until the text ends or the cache is full."""
    if generator.loop is None:
        generator.loop = DeviceLoop(generator)
    for token in generator.loop.tokens(answer.made[-1], answer.count - len(answer.made), answer.sampling, answer.rng):
        if answer.accept(token) is None:
            return
        yield token
        if answer.ended:
            return


def _rows(model: LanguageModel, answers: list[_Answer]) -> Iterator[list[int]]:
    """Several prompts, some at a time; one by one where a text's length changes all that is computed."""
    most = 1 if getattr(model, "switch", None) else MOST_ROWS
    for begin in range(0, len(answers), most):
        group = answers[begin:begin + most]
        if len(group) == 1:
            yield [*_tokens(model, group[0])]
        else:
            _together(model, group)
            yield from (answer.made for answer in group)


def _together(model: LanguageModel, answers: list[_Answer]) -> None:
    """All rows step by step until the last has ended; the number of rows is a power of two, so that a few functions
    serve all."""
    two_parts, rows = hasattr(model, "remember"), 1 << (len(answers) - 1).bit_length()
    with lending(model, rows) as lend, evaluating(model):
        room = max(max(len(each.prompt), each.count + 1) if two_parts else len(each.prompt) + min(each.count, AHEAD)
                   for each in answers)
        generator, logits = lend(room), None
        while not all(answer.ended for answer in answers):
            if logits is None:
                logits = generator.start([answer.prompt for answer in answers])
            elif max(generator.lengths[row] for row, each in enumerate(answers) if not each.ended) < generator.length:
                tokens = [answer.made[-1] if answer.made else 0 for answer in answers]
                logits = generator.step(tokens + [0] * (rows - len(answers)))
            else:
                generator = lend(generator.length + 1)
                logits = generator.start([answer.prompt + answer.made for answer in answers])
            for row, answer in enumerate(answers):
                if not answer.ended:
                    answer.take(logits[row])


def _stops(stop: Any, tokenizer: Any, model: LanguageModel) -> tuple[set[int], list[str]]:
    parts = [stop] if isinstance(stop, int | str) else [*stop]
    strings = [part for part in parts if isinstance(part, str)]
    if "" in strings:
        raise fail(ArgumentError, "generate", "an empty text cannot be stopped at", "leave it out of stop=")
    if strings and tokenizer is None:
        raise fail(ArgumentError, "generate", f"the stop string {strings[0]!r} needs text",
                   "pass tokenizer=, which has decode()")
    numbers = [as_whole(part) for part in parts if not isinstance(part, str)]
    if None in numbers:
        raise fail(ArgumentError, "generate", f"stop={stop!r} holds what is neither a token number nor a text")
    ends = model.eos_token_id
    ends = [] if ends is None else [ends] if isinstance(ends, int) else ends
    return {*numbers, *ends}, strings  # type: ignore[arg-type]
