"""The training step of the GPT in numbers: its sizes, its inputs, the loss of the first step in float64.

The model is `benchmarks/models/gpt2.py`. A size is a tuple, as the harness sends it to the peers:

    (layers, width, heads, vocabulary, batch, length)
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from benchmarks.core.cases import Arrays, Shape, log_sum_exp
from benchmarks.models import gpt2

SIZE = (6, 384, 6, 8192, 8, 256)  # what "the GPT" means in all themes
SMALL = (6, 384, 6, 8192, 1, 8)  # a batch small enough for a peer that emulates a type
LEARNING_RATE, WEIGHT_DECAY, CLIP = 1e-3, 0.01, 1.0
SEED = 20261117
ALLOWED = {"float32": 1e-3, "bfloat16": 1e-2}  # of the loss


def dtype_of(case: str) -> str:
    """What a case computes its products in; `auto` may be either, and is held to the looser bound."""
    return "bfloat16" if case.endswith(("_bf16", "_auto")) else "float32"


def make_inputs(name: str, shape: Shape) -> Arrays:
    """Tokens, the tokens that follow them, and the weights."""
    layers, width, heads, vocabulary, batch, length = shape
    tokens = np.random.default_rng(SEED + 1).integers(0, vocabulary, (batch, length + 1), dtype=np.int64)
    size = gpt2.Size(layers, width, heads, vocabulary, length, tied=False)
    return {"ids": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy(), "heads": np.asarray(heads),
            **gpt2.make_weights(size, SEED, keep_spread=True)}


def weights_of(inputs: Arrays) -> Arrays:
    """The weights among the inputs of a case."""
    return {name: array for name, array in inputs.items() if "." in name}


@lru_cache(maxsize=4)
def loss(shape: Shape) -> float:
    """The loss of the first step in float64: the mean cross entropy over every position."""
    inputs = make_inputs("gpt_step", shape)
    rows = gpt2.logits(weights_of(inputs), inputs["ids"], int(inputs["heads"]))
    picked = np.take_along_axis(rows, inputs["targets"][..., None], -1)
    return float(np.mean(log_sum_exp(rows) - picked))


def check(name: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """The error of the first step's loss as a share of what is allowed; ValueError when above 1."""
    weights = weights_of(inputs)
    vocabulary, width = weights["wte.weight"].shape
    layers = gpt2.layers_of(weights)
    expected = loss((layers, width, int(inputs["heads"]), vocabulary, *inputs["ids"].shape))
    share = abs(float(results[0]) - expected) / (ALLOWED[dtype_of(name)] * expected)
    if not share <= 1.0:
        raise ValueError(f"{name}: the loss is {float(results[0])}, expected {expected}")
    return share


def answer(name: str, results: tuple[np.ndarray, ...]) -> list[float]:
    """The losses of the first two steps: the second one tells whether gradients, clipping and AdamW agree."""
    return [float(value) for value in results]
