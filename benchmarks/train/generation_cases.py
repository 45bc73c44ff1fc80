"""Greedy text from a model of GPT-2's form with random weights: what every token is checked against in float64.

A size is (layers, width, heads, vocabulary, tokens of the prompt, new tokens).
"""

from __future__ import annotations

import numpy as np

from benchmarks.core.cases import Arrays, Shape
from benchmarks.models import gpt2
from benchmarks.train import gpt

SIZE = (12, 768, 12, 50257, 32, 64)  # GPT-2 124M
SMALL = (12, 768, 12, 50257, 2, 2)  # for a peer that emulates a type
POSITIONS = 1024
ALLOWED = {"float32": 0.01, "bfloat16": 0.3}  # how far below the largest logit a token's may be; logits spread by 1


def make_inputs(name: str, shape: Shape) -> Arrays:
    """A prompt of random tokens, and the weights."""
    layers, width, heads, vocabulary, prompt, new = shape
    ids = np.random.default_rng(gpt.SEED + 2).integers(0, vocabulary, prompt, dtype=np.int64)
    return {"ids": ids, "heads": np.asarray(heads), "new": np.asarray(new),
            **gpt2.make_weights(gpt2.Size(layers, width, heads, vocabulary, POSITIONS), gpt.SEED, keep_spread=True)}


def check(name: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """Every token must be the likeliest in float64, up to rounding; the worst one as a share of what is allowed."""
    prompt, tokens = inputs["ids"], np.asarray(results[0], np.int64)
    if len(tokens) != int(inputs["new"]):
        raise ValueError(f"{name}: {len(tokens)} tokens instead of {int(inputs['new'])}")
    seen = np.concatenate([prompt, tokens[:-1]])[None]
    rows = gpt2.logits(gpt.weights_of(inputs), seen, int(inputs["heads"]), exact=False)[0, len(prompt) - 1:]
    gaps = rows.max(-1) - np.take_along_axis(rows, tokens[:, None], -1)[:, 0]
    share = float(gaps.max()) / ALLOWED[gpt.dtype_of(name)]
    if not share <= 1.0:
        raise ValueError(f"{name}: token {int(gaps.argmax())} is {gaps.max():.3g} below the likeliest one")
    return share


def answer(name: str, results: tuple[np.ndarray, ...]) -> list[int]:
    """The tokens."""
    return [int(token) for token in results[0]]
