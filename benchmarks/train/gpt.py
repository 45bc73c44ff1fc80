"""The GPT of the training benchmarks in numbers: sizes, weights from a seed, and its loss and logits in float64.

Weights go by the names of GPT-2's file and have its layout, (inputs, outputs), so that one set serves Morpho's model,
a plain PyTorch module and the transformers library. A size is a tuple, as the harness sends it to the peers:

    (layers, width, heads, vocabulary, batch, length)
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from benchmarks.core.cases import Arrays, Shape, gelu, layer_norm, log_sum_exp, softmax

SIZE = (6, 384, 6, 8192, 8, 256)  # what "the GPT" means in all themes
SMALL = (6, 384, 6, 8192, 1, 8)  # a batch small enough for a peer that emulates a type
LEARNING_RATE, WEIGHT_DECAY, CLIP = 1e-3, 0.01, 1.0
SEED = 20261117
ALLOWED = {"float32": 1e-3, "bfloat16": 1e-2}  # of the loss


def dtype_of(case: str) -> str:
    """What a case computes its products in; `auto` may be either, and is held to the looser bound."""
    return "bfloat16" if case.endswith(("_bf16", "_auto")) else "float32"


def shapes(layers: int, width: int, vocabulary: int, positions: int, tied: bool = False) -> dict[str, Shape]:
    """Names and shapes of all weights."""
    found: dict[str, Shape] = {"wte.weight": (vocabulary, width), "wpe.weight": (positions, width)}
    for layer in range(layers):
        for name, shape in (("ln_1", (width,)), ("attn.c_attn", (width, 3 * width)), ("attn.c_proj", (width, width)),
                            ("ln_2", (width,)), ("mlp.c_fc", (width, 4 * width)), ("mlp.c_proj", (4 * width, width))):
            found[f"h.{layer}.{name}.weight"], found[f"h.{layer}.{name}.bias"] = shape, shape[-1:]
    found |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    return found if tied else {**found, "lm_head.weight": (vocabulary, width)}


def make_weights(layers: int, width: int, vocabulary: int, positions: int, tied: bool = False) -> Arrays:
    """Products keep the spread of their inputs, so that the logits are spread by 1 and the loss tells models apart."""
    rng = np.random.default_rng(SEED)
    found: Arrays = {}
    for name, shape in shapes(layers, width, vocabulary, positions, tied).items():
        inputs = width if name.startswith(("wte", "lm_head")) else shape[0]
        spread = inputs**-0.5 if len(shape) == 2 and not name.startswith("wpe") else 0.02
        values = rng.standard_normal(shape, dtype=np.float32) * np.float32(spread)
        found[name] = values + np.float32("ln_" in name and name.endswith("weight"))
    return found


def make_inputs(name: str, shape: Shape) -> Arrays:
    """Tokens, the tokens that follow them, and the weights."""
    layers, width, heads, vocabulary, batch, length = shape
    tokens = np.random.default_rng(SEED + 1).integers(0, vocabulary, (batch, length + 1), dtype=np.int64)
    return {"ids": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy(), "heads": np.asarray(heads),
            **make_weights(layers, width, vocabulary, length)}


def weights_of(inputs: Arrays) -> Arrays:
    """The weights among the inputs of a case."""
    return {name: array for name, array in inputs.items() if "." in name}


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """GPT-2's GELU."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def logits(weights: Arrays, ids: np.ndarray, heads: int, exact: bool = True,
           cache: np.ndarray | None = None) -> np.ndarray:
    """(batch, length) -> (batch, length, vocabulary), in float64; with a cache of keys and values, (layers, 2, batch,
    heads, past, depth), the ids go on from where it ends."""
    def get(name: str) -> np.ndarray:
        return weights[name].astype(np.float64)

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ get(f"{name}.weight") + get(f"{name}.bias")

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return layer_norm(x, get(f"{name}.weight"), get(f"{name}.bias"))[0]

    (batch, length), width = ids.shape, weights["wte.weight"].shape[1]
    past = 0 if cache is None else cache.shape[-2]
    seen = np.tri(length, past + length, past, dtype=bool)
    x = (weights["wte.weight"][ids] + weights["wpe.weight"][past:past + length]).astype(np.float64)
    for layer in range(sum(name.endswith("ln_1.weight") for name in weights)):
        qkv = linear(norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn.c_attn")
        q, k, v = np.moveaxis(qkv.reshape(batch, length, 3, heads, -1), (2, 3), (0, 2))  # (batch, heads, length, depth)
        if cache is not None:
            k, v = (np.concatenate([old, new], axis=-2) for old, new in zip(cache[layer], (k, v), strict=True))
        scores = np.where(seen, q @ np.swapaxes(k, -1, -2) / math.sqrt(width // heads), -np.inf)
        x = x + linear(np.swapaxes(softmax(scores) @ v, 1, 2).reshape(batch, length, width), f"h.{layer}.attn.c_proj")
        hidden = linear(norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")
        x = x + linear((gelu if exact else gelu_tanh)(hidden), f"h.{layer}.mlp.c_proj")
    return norm(x, "ln_f") @ get("lm_head.weight" if "lm_head.weight" in weights else "wte.weight").T


@lru_cache(maxsize=4)
def loss(shape: Shape) -> float:
    """The loss of the first step in float64: the mean cross entropy over every position."""
    inputs = make_inputs("gpt_step", shape)
    rows = logits(weights_of(inputs), inputs["ids"], int(inputs["heads"]))
    picked = np.take_along_axis(rows, inputs["targets"][..., None], -1)
    return float(np.mean(log_sum_exp(rows) - picked))


def check(name: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """The error of the first step's loss as a share of what is allowed; ValueError when above 1."""
    weights = weights_of(inputs)
    vocabulary, width = weights["wte.weight"].shape
    layers = sum(key.endswith("ln_1.weight") for key in weights)
    expected = loss((layers, width, int(inputs["heads"]), vocabulary, *inputs["ids"].shape))
    share = abs(float(results[0]) - expected) / (ALLOWED[dtype_of(name)] * expected)
    if not share <= 1.0:
        raise ValueError(f"{name}: the loss is {float(results[0])}, expected {expected}")
    return share


def answer(name: str, results: tuple[np.ndarray, ...]) -> list[float]:
    """The losses of the first two steps: the second one tells whether gradients, clipping and AdamW agree."""
    return [float(value) for value in results]
