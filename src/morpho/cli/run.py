"""`morpho run`: text from a model, as it is made."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
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


def find(name: str) -> Path:
    """The folder or file of a model: a path, or a name that `morpho models pull` has fetched."""
    from morpho.weights.pull import MODELS, model_path

    place = Path(name)
    if place.exists():
        return place
    if name not in MODELS:
        raise fail(ArgumentError, "run", f"there is no folder or file {name}, and no model of that name",
                   f"the names are {', '.join(MODELS)}; a prompt of several words needs quotes")
    return model_path(name)


def looks_like_a_model(word: str) -> bool:
    """Whether a word that stands alone is more likely a model without a prompt."""
    place = Path(word)
    return (place / "config.json").exists() or (place.suffix == ".gguf" and place.exists())


def run(model: str | None, prompt: str, sampling: Sampling, *, chat: bool | None) -> None:
    """Print the prompt and what the model makes of it, then how fast it was."""
    if model is None and looks_like_a_model(prompt):
        raise fail(ArgumentError, "run", f"{prompt} is a model, and there is no prompt",
                   f'write: morpho run {prompt} "Once"')
    place = mo.models.SHIPPED if model is None else find(model)
    network, tokenizer = mo.models.load_with_tokenizer(place)
    if tokenizer is None:
        raise fail(ArgumentError, "run", f"{place} has no tokenizer.json", "put it beside config.json")
    if not isinstance(network, mo.models.LanguageModel):
        raise fail(ArgumentError, "run", f"{place.name} is a {type(network).__name__}, which makes no text",
                   "use it from Python: mo.models.load(folder)")
    talks = bool(tokenizer.chat_template) if chat is None else chat
    if talks and not tokenizer.chat_template:
        raise fail(ArgumentError, "run", f"{place.name} has no chat template", "leave out --chat")
    text = render_chat([{"role": "user", "content": prompt}], tokenizer.chat_template) if talks else prompt
    ids = tokenizer.encode(text)
    if not ids:
        raise fail(ArgumentError, "run", "the prompt is empty", "give some text to begin with")
    if not talks:
        print(prompt, end="", flush=True)
    usual = 0.0 if talks else 0.8
    _stream(network, tokenizer, ids, replace(sampling, temperature=usual) if sampling.temperature is None else sampling)


def _stream(network: Any, tokenizer: Any, ids: list[int], sampling: Sampling) -> None:
    seed = sampling.seed if sampling.seed is not None else time.time_ns() % (1 << 32)
    stream, count = tokenizer.stream(), 0
    started = time.perf_counter()
    first = started
    interrupted = False
    try:
        for token in mo.models.generate(network, ids, max_new_tokens=sampling.tokens, temperature=sampling.temperature,
                                        top_k=sampling.top_k, top_p=sampling.top_p, seed=seed, stop=sampling.stop,
                                        repetition_penalty=sampling.penalty, tokenizer=tokenizer):
            count += 1
            if count == 1:
                first = time.perf_counter()
            print(stream.push(token), end="", flush=True)
    except KeyboardInterrupt:
        interrupted = True
    print(stream.finish(), flush=True)
    ended = time.perf_counter()
    speed = f"{(count - 1) / (ended - first):.1f} tokens/s" if count > 1 and ended > first else "-"
    full = len(ids) + count >= network.context and count < sampling.tokens
    ending = f", the context of {network.context} tokens is full" if full else ", interrupted" if interrupted else ""
    print(f"[{count} tokens, first after {first - started:.2f} s, {speed}, seed {seed}{ending}]", file=sys.stderr)
