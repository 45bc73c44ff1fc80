"""`morpho run`: text from a model, as it is made."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.weights.chat import render_chat


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen."""

    tokens: int = 120
    temperature: float = 0.8
    top_k: int = 50
    top_p: float = 1.0
    penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


def find(name: str) -> Path:
    """The folder or file of a model: a path, or a name that `morpho models pull` has fetched."""
    place = Path(name)
    if place.exists():
        return place
    from morpho.weights.pull import model_path

    return model_path(name)


def run(model: str | None, prompt: str, sampling: Sampling, *, chat: bool | None) -> None:
    """Print the prompt and what the model makes of it, then how fast it was."""
    place = mo.models.SHIPPED if model is None else find(model)
    network, tokenizer = mo.models.load_with_tokenizer(place)
    if tokenizer is None:
        raise fail(ArgumentError, "run", f"{place} has no tokenizer.json", "put it beside config.json")
    if not isinstance(network, mo.models.LanguageModel):
        raise fail(ArgumentError, "run", f"{place.name} is a {type(network).__name__}, which makes no text",
                   "use it from Python: mo.models.load(folder)")
    talks = bool(tokenizer.chat_template) if chat is None else chat
    text = render_chat([{"role": "user", "content": prompt}], tokenizer.chat_template) if talks else prompt
    ids = tokenizer.encode(text)
    if not ids:
        raise fail(ArgumentError, "run", "the prompt is empty", "give some text to begin with")
    if not talks:
        print(prompt, end="", flush=True)
    _stream(network, tokenizer, ids, sampling)


def _stream(network: Any, tokenizer: Any, ids: list[int], sampling: Sampling) -> None:
    seed = sampling.seed if sampling.seed is not None else time.time_ns() % (1 << 32)
    stream, count = tokenizer.stream(), 0
    started = time.perf_counter()
    first = started
    for token in mo.models.generate(network, ids, max_new_tokens=sampling.tokens, temperature=sampling.temperature,
                                    top_k=sampling.top_k, top_p=sampling.top_p, repetition_penalty=sampling.penalty,
                                    seed=seed, stop=sampling.stop, tokenizer=tokenizer):
        count += 1
        if count == 1:
            first = time.perf_counter()
        print(stream.push(token), end="", flush=True)
    print(stream.finish(), flush=True)
    ended = time.perf_counter()
    speed = f"{(count - 1) / (ended - first):.1f} tokens/s" if count > 1 and ended > first else "-"
    print(f"[{count} tokens, first after {first - started:.2f} s, {speed}, seed {seed}]", file=sys.stderr)
