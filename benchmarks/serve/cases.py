"""Prompts of English text, a different one for each stream; a size is (streams, tokens of a prompt, new tokens)."""

from __future__ import annotations

import numpy as np

from benchmarks.core.cases import Arrays, Shape
from benchmarks.train import smollm2_cases

LONG = 2048  # tokens of the prompts that come while others run


def make_inputs(name: str, shape: Shape) -> Arrays:
    """Rows of prompts, cut from the corpus one after another; then, for the stalls, a few long ones."""
    streams, prompt, new = shape
    extra = 3 * LONG if name == "serve_stalls" else 0
    ids = smollm2_cases.make_inputs(name, (streams * prompt + extra, new))["ids"]
    found = {"prompts": ids[:streams * prompt].reshape(streams, prompt), "new": np.asarray(new)}
    if extra:
        found["long"] = ids[streams * prompt:].reshape(3, LONG)
    return found


def check(name: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """Every stream has as many tokens as were asked for, or ValueError."""
    expected = inputs["prompts"].shape[0] * int(inputs["new"])
    if int(results[0]) != expected:
        raise ValueError(f"{name}: {int(results[0])} tokens instead of {expected}")
    return 0.0


def answer(name: str, results: tuple[np.ndarray, ...]) -> str:
    """The text of the first stream."""
    return str(results[1])
