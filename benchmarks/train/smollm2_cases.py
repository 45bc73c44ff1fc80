"""SmolLM2 from its GGUF file: a prompt of English text, and the text that follows it.

A size is (tokens of the prompt, new tokens). What the logits are worth is measured by `smollm2_parity.py`; here both
sides only have to give as many tokens as they were asked for, and their texts are compared by the theme.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np

import morpho as mo
from benchmarks.core.cases import Arrays, Shape

SIZE = (256, 64)
CONTEXT = 512
CORPUS = Path(__file__).parents[1] / "corpus" / "corpus.txt.xz"


def make_inputs(name: str, shape: Shape) -> Arrays:
    """The first tokens of the corpus."""
    prompt, new = shape
    with lzma.open(CORPUS, "rt", encoding="utf-8") as file:
        text = file.read(20 * prompt)
    ids = mo.weights.load_gguf(mo.weights.model_path("smollm2")).tokenizer.encode(text)
    return {"ids": np.asarray(ids[:prompt], np.int64), "new": np.asarray(new)}


def check(name: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """The number of tokens is right, or ValueError."""
    expected = int(inputs["new"]) if name.endswith("_decode") else 1
    if int(results[0]) != expected:
        raise ValueError(f"{name}: {int(results[0])} tokens instead of {expected}")
    return 0.0


def answer(name: str, results: tuple[np.ndarray, ...]) -> str:
    """The text."""
    return str(results[1])
