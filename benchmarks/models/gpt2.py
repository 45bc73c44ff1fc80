"""GPT-2 of any size in numbers: names and shapes of its weights, weights from a seed, its logits in float64.

Names and layout are those of the published file, so that one set serves Morpho's model, a plain PyTorch module and the
transformers library: ``h.0.attn.c_attn.weight`` is (width, 3 * width) and is multiplied from the right, the head of a
``tied`` model is the embedding transposed, norms have an epsilon of 1e-5.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from benchmarks.core.cases import Arrays, Shape, gelu, layer_norm, softmax

INITIAL_SPREAD = 0.02  # the standard deviation of the published initialisation


class Size(NamedTuple):
    """The sizes of a model."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024
    tied: bool = True

    @property
    def head_width(self) -> int:
        """Numbers of a head's keys."""
        return self.width // self.heads


SMALL = Size()  # GPT-2 124M


def shapes(size: Size = SMALL) -> dict[str, Shape]:
    """Names and shapes of all weights, in the order of the published file."""
    width = size.width
    found: dict[str, Shape] = {"wte.weight": (size.vocabulary, width), "wpe.weight": (size.positions, width)}
    for layer in range(size.layers):
        for name, shape in (("ln_1", (width,)), ("attn.c_attn", (width, 3 * width)), ("attn.c_proj", (width, width)),
                            ("ln_2", (width,)), ("mlp.c_fc", (width, 4 * width)), ("mlp.c_proj", (4 * width, width))):
            found[f"h.{layer}.{name}.weight"], found[f"h.{layer}.{name}.bias"] = shape, shape[-1:]
    found |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    return found if size.tied else {**found, "lm_head.weight": (size.vocabulary, width)}


def make_weights(size: Size, seed: int, keep_spread: bool = False) -> Arrays:
    """Weights with the published initialisation's spread; with `keep_spread`, products keep the spread of their inputs,
    so that the logits are spread by 1 and a loss tells models apart."""
    rng = np.random.default_rng(seed)
    found: Arrays = {}
    for name, shape in shapes(size).items():
        inputs = size.width if name.startswith(("wte", "lm_head")) else shape[0]
        matrix = len(shape) == 2 and not name.startswith("wpe")
        spread = inputs**-0.5 if keep_spread and matrix else INITIAL_SPREAD
        values = rng.standard_normal(shape, dtype=np.float32) * np.float32(spread)
        found[name] = values + np.float32("ln_" in name and name.endswith("weight"))
    return found


def layers_of(weights: Arrays) -> int:
    """How many blocks these weights are of."""
    return sum(name.endswith("ln_1.weight") for name in weights)


def weight_count(size: Size = SMALL) -> int:
    """Numbers that every token meets: all weights but the positions'."""
    return sum(math.prod(shape) for name, shape in shapes(size).items() if name != "wpe.weight")


def read_bytes(dtype: str, past: int, size: Size = SMALL) -> int:
    """Bytes that decoding one token must read: the weights and the cache."""
    return (weight_count(size) + 2 * size.layers * size.width * past) * (2 if dtype == "bfloat16" else 4)


def make_ids(rng: np.random.Generator, batch: int, length: int, size: Size = SMALL) -> np.ndarray:
    """Random tokens."""
    return rng.integers(0, size.vocabulary, (batch, length), dtype=np.int64)


def make_cache(rng: np.random.Generator, batch: int, past: int, size: Size = SMALL) -> np.ndarray:
    """Random keys and values of every layer: layers x 2 x batch x heads x past x width of a head."""
    return rng.standard_normal((size.layers, 2, batch, size.heads, past, size.head_width), dtype=np.float32)


def with_room(cache: np.ndarray) -> np.ndarray:
    """The same with room for one more token: writing there makes decoding repeatable and copies nothing."""
    return np.concatenate([cache, np.zeros_like(cache[..., :1, :])], axis=-2)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """GPT-2's GELU."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def logits(weights: Arrays, ids: np.ndarray, heads: int, exact: bool = True,
           cache: np.ndarray | None = None) -> np.ndarray:
    """(batch, length) -> (batch, length, vocabulary), in float64; with a cache of keys and values, (layers, 2, batch,
    heads, past, depth), the ids go on from where it ends. `exact` is about GELU."""
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
    for layer in range(layers_of(weights)):
        qkv = linear(norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn.c_attn")
        q, k, v = np.moveaxis(qkv.reshape(batch, length, 3, heads, -1), (2, 3), (0, 2))  # (batch, heads, length, depth)
        if cache is not None:
            k, v = (np.concatenate([old, new], axis=-2) for old, new in zip(cache[layer], (k, v), strict=True))
        scores = np.where(seen, q @ np.swapaxes(k, -1, -2) / math.sqrt(width // heads), -np.inf)
        x = x + linear(np.swapaxes(softmax(scores) @ v, 1, 2).reshape(batch, length, width), f"h.{layer}.attn.c_proj")
        hidden = linear(norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")
        x = x + linear((gelu if exact else gelu_tanh)(hidden), f"h.{layer}.mlp.c_proj")
    return norm(x, "ln_f") @ get("lm_head.weight" if "lm_head.weight" in weights else "wte.weight").T
