"""A model that writes: how it chooses tokens, and its text on standard output as it is made."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.cli.text.stop_text import StopText
from morpho.models.text.generation_keys import USUAL_TOP_K, Defaults, usual_temperature

USUAL_TOKENS = 120
ALL = 1 << 30  # more tokens than any vocabulary has


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; None where the user does not say."""

    tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None  # 0: all
    top_p: float | None = None
    penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def completed(self, said: Defaults, talks: bool) -> Sampling:
        """With what the model's files say (generation_config.json) where the user does not, else what is usual here. A
        file that says how to draw says all of it: without its `top_k` there is none.

        >>> Sampling(top_p=0.5).completed(Defaults(temperature=0.6, top_k=20), talks=True)
        Sampling(tokens=120, temperature=0.6, top_k=20, top_p=0.5, penalty=1.0, seed=None, stop=())
        """
        draws = said.temperature is not None
        tokens = self.tokens if self.tokens is not None else said.max_new_tokens
        if tokens is None and said.max_length is None:
            tokens = USUAL_TOKENS  # else the length of the prompt decides
        return replace(
            self, tokens=tokens,
            temperature=_first(self.temperature, said.temperature, usual_temperature(talks)),
            top_k=_first(self.top_k, said.top_k, ALL if draws else USUAL_TOP_K) or ALL,
            top_p=_first(self.top_p, said.top_p, 1.0), penalty=_first(self.penalty, said.repetition_penalty, 1.0))


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


@dataclass(frozen=True)
class Writer:
    """A model that writes, and how."""

    network: Any
    tokenizer: Any
    sampling: Sampling
    talks: bool  # by the chat template of the model
    cache: Any = None  # PromptCache of what was read before, in a file
    commit: Path | None = None  # where the commitment of the answer goes
    draft: Any = None  # a smaller model that guesses tokens

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt, at least one."""
        ids = self.tokenizer.encode(text)
        if not ids:
            raise fail(ArgumentError, "run", "the prompt is empty", "give some text to begin with")
        return list(ids)

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The tokens of a conversation, up to where the model's answer begins."""
        return list(mo.weights.encode_chat(self.tokenizer, messages))


def answer(writer: Writer, prompt: str) -> str:
    """Write one answer; gives its text."""
    if writer.talks:
        return stream(writer, writer.chat([{"role": "user", "content": prompt}]))
    return stream(writer, writer.encode(prompt), prompt)


def _generate(network: Any, cache: Any = None) -> Any:
    """Generator of tokens: a model in this process, or a pipeline."""
    return network.generate if hasattr(network, "generate") else partial(mo.models.generate, network,
                                                                         prompt_cache=cache)


def stream(writer: Writer, ids: list[int], prompt: str = "") -> str:
    """Print what follows these tokens, after the prompt and up to a stop text, and on standard error how fast that was;
    gives the text."""
    sampling, network = writer.sampling, writer.network
    seed = sampling.seed if sampling.seed is not None else time.time_ns() % (1 << 32)
    decoder = writer.tokenizer.stream(after=() if writer.talks else ids)
    stop, text, count = StopText(sampling.stop), [], 0
    interrupted = False
    first = started = time.perf_counter()

    def show(piece: str) -> None:
        text.append(piece)
        print(piece, end="", flush=True)

    tokens: Any
    if writer.commit is not None or writer.draft is not None:
        tokens = _by_engine(writer, ids, seed)
    else:
        tokens = _generate(network, writer.cache)(ids, max_new_tokens=sampling.tokens,
                                                  temperature=sampling.temperature, top_k=sampling.top_k,
                                                  top_p=sampling.top_p, seed=seed, repetition_penalty=sampling.penalty)
    print(prompt, end="", flush=True)  # mistakes, such as too long a prompt, were said without it
    try:
        for token in tokens:
            count += 1
            if count == 1:
                first = time.perf_counter()
            show(stop.push(decoder.push(token)))
            if stop.found:
                break
        else:
            show(stop.push(decoder.finish()))
        show(stop.finish())
    except KeyboardInterrupt:
        interrupted = True
    print(flush=True)
    ended = time.perf_counter()
    if writer.cache is not None:
        tokens.close()  # which writes the file
    speed = ended - first
    rate = f"{(count - 1) / speed:.1f} tokens/s" if count > 1 and speed > 0 else "-"
    full = len(ids) + count >= network.context and count < (sampling.tokens or ALL) and not stop.found
    ending = f", the context of {network.context} tokens is full" if full else ", interrupted" if interrupted else ""
    print(f"[{count} tokens, first after {first - started:.2f} s, {rate}, seed {seed}{ending}]", file=sys.stderr)
    return "".join(text)


def _by_engine(writer: Writer, ids: Sequence[int], seed: int) -> Iterator[int]:
    """The tokens that `mo.models.generate` draws, drawn by the engine, with guesses of a smaller model where there is
    one; a commitment is written when the text ends."""
    import json

    from morpho.base.errors import MorphoError, fail
    from morpho.serve.engine.engine import Engine
    from morpho.serve.engine.request import Request, SamplingParams
    from morpho.weights.atomic import atomic_file

    network, file, sampling = writer.network, writer.commit, cast(Any, writer.sampling)  # completed
    params = SamplingParams(temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p, seed=seed,
                            max_tokens=sampling.tokens, stop=sampling.stop, repetition_penalty=sampling.penalty,
                            commitment=file is not None)
    most = network.context if sampling.tokens is None else min(network.context, len(ids) + sampling.tokens)
    with Engine(network, writer.tokenizer, pages=-(-most // 64) + 1, max_batch=1, draft=writer.draft) as engine:
        stream, text = engine.submit(Request(tuple(ids), params, "run")), []
        try:
            for event in stream:
                text.append(event.text)
                if event.error is not None:
                    raise fail(MorphoError, "run", event.error)
                if event.commitment is not None and file is not None:
                    with atomic_file(file) as opened:  # before its token is shown: who meets a stop text reads no more
                        opened.write(json.dumps({**event.commitment, "text": "".join(text)}).encode())
                if event.token is not None:
                    yield event.token
        finally:
            stream.cancel()
            if writer.draft is not None:
                stats = engine.stats()
                print(f"[{stats.accepted} of {stats.drafted} guesses were right, {stats.steps} steps]", file=sys.stderr)
