"""A model that writes: how it chooses tokens, and its text on standard output as it is made."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.cli.text.stop_text import StopText
from morpho.weights.text.chat import render_chat


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen."""

    tokens: int = 120
    temperature: float | None = None  # None: 0 when talking, else 0.8
    top_k: int = 50
    top_p: float = 1.0
    penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Writer:
    """A model that writes, and how."""

    network: Any
    tokenizer: Any
    sampling: Sampling
    talks: bool  # by the chat template of the model

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt, at least one."""
        ids = self.tokenizer.encode(text)
        if not ids:
            raise fail(ArgumentError, "run", "the prompt is empty", "give some text to begin with")
        return list(ids)

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The tokens of a conversation, up to where the model's answer begins."""
        return self.encode(render_chat(messages, self.tokenizer.chat_template))


def answer(writer: Writer, prompt: str) -> str:
    """Write one answer; gives its text."""
    if writer.talks:
        return stream(writer, writer.chat([{"role": "user", "content": prompt}]))
    return stream(writer, writer.encode(prompt), prompt)


def stream(writer: Writer, ids: list[int], prompt: str = "") -> str:
    """Print what follows these tokens, after the prompt and up to a stop text, and on standard error how fast that was;
    gives the text."""
    sampling, network = writer.sampling, writer.network
    seed = sampling.seed if sampling.seed is not None else time.time_ns() % (1 << 32)
    decoder, stop, text, count = writer.tokenizer.stream(), StopText(sampling.stop), [], 0
    interrupted = False
    first = started = time.perf_counter()

    def show(piece: str) -> None:
        text.append(piece)
        print(piece, end="", flush=True)

    tokens = mo.models.generate(network, ids, max_new_tokens=sampling.tokens, temperature=sampling.temperature,
                                top_k=sampling.top_k, top_p=sampling.top_p, seed=seed,
                                repetition_penalty=sampling.penalty)
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
    speed = time.perf_counter() - first
    rate = f"{(count - 1) / speed:.1f} tokens/s" if count > 1 and speed > 0 else "-"
    full = len(ids) + count >= network.context and count < sampling.tokens and not stop.found
    ending = f", the context of {network.context} tokens is full" if full else ", interrupted" if interrupted else ""
    print(f"[{count} tokens, first after {first - started:.2f} s, {rate}, seed {seed}{ending}]", file=sys.stderr)
    return "".join(text)
