"""Small models, and what they say to a prompt when nobody else asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import morpho as mo
from morpho.models.text.generators import Generator
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Event, Request, SamplingParams

LLAMA = {"vocab_size": 97, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 512, "initializer_range": 0.3}


def llama(**settings: Any) -> Any:
    return mo.models.create("llama", **{**LLAMA, **settings})


def repeating() -> Any:
    """A model whose next token depends on the last one alone: its greedy texts must come round."""
    model = llama()
    for name, parameter in model.named_parameters():
        if "o_proj" in name or "down_proj" in name:
            parameter.assign(mo.zeros(parameter.shape))
    return model


def prompts_of(rng: np.random.Generator, count: int, longest: int = 120, words: int = 97) -> list[tuple[int, ...]]:
    """Prompts of many lengths, some of which begin alike."""
    shared = rng.integers(0, words, longest).tolist()
    found = []
    for _ in range(count):
        head, tail = int(rng.integers(0, longest)), int(rng.integers(1, longest))
        found.append((*shared[:head], *rng.integers(0, words, tail).tolist()))
    return found


def alone(model: Any, prompt: tuple[int, ...], count: int) -> tuple[list[int], list[bytes]]:
    """Greedy tokens of one prompt, and the bits of the logits that each was chosen from."""
    generator = model.__dict__.setdefault("_alone", None) or Generator(model)
    model.__dict__["_alone"] = generator
    logits = generator.start(prompt)
    tokens, bits = [], []
    for number in range(count):
        bits.append(logits.tobytes())
        tokens.append(int(logits.argmax()))
        if number + 1 < count:
            logits = generator.step(tokens[-1])
    return tokens, bits


@contextmanager
def paused(engine: Engine) -> Iterator[None]:
    """The engine waits before its next step: what is asked meanwhile is there all at once."""
    gate = threading.Event()
    with engine._changed:
        engine._calls.append(lambda: (gate.wait(), None)[1])
        engine._changed.notify()
    try:
        yield
    finally:
        gate.set()


def greedy(count: int, **others: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=count, **others)


def ask(engine: Engine, prompt: Any, params: SamplingParams, **others: Any) -> list[Event]:
    return [*engine.submit(Request(tuple(prompt), params, "test", **others))]


def text_of(events: list[Event], index: int = 0) -> str:
    return "".join(event.text for event in events if event.index == index)


def tokens_of(events: list[Event], index: int = 0) -> list[int]:
    return [event.token for event in events if event.index == index and event.token is not None]
