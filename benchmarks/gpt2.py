"""GPT-2 written with tensor functions: one native function per forward pass, one per decoded token.

`build_gpt2(weights)` captures the weights, which Morpho packs once; `random_weights` makes some of any size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import morpho as mo

LAYERS, WIDTH, HEADS, VOCABULARY, CONTEXT = 12, 768, 12, 50257, 1024


def random_weights(seed: int = 0, layers: int = LAYERS, width: int = WIDTH, vocabulary: int = VOCABULARY,
                   context: int = CONTEXT) -> dict[str, np.ndarray]:
    """Weights by the names of the published model, (inputs, outputs) for every matrix."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (0.02 * rng.standard_normal(shape, np.float32)).astype(np.float32)

    weights = {"wte": normal(vocabulary, width), "wpe": normal(context, width)}
    for layer in range(layers):
        name = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            weights |= {name + norm + ".weight": 1 + normal(width), name + norm + ".bias": normal(width)}
        for part, inputs, outputs in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                      ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
            weights |= {name + part + ".weight": normal(inputs, outputs), name + part + ".bias": normal(outputs)}
    return weights | {"ln_f.weight": 1 + normal(width), "ln_f.bias": normal(width)}


@dataclass
class GPT2:
    """The compiled functions of one model: `forward(ids)` and `decode(ids, position)`."""

    forward: Any  # (batch, length) of token numbers -> (batch, length, vocabulary) of logits
    decode: Any  # (batch, 1) of token numbers and their position -> (batch, 1, vocabulary); keys and values are kept
    prefill: Callable[[Any], Any]  # fills the cache from a prompt, token by token
    caches: list[tuple[mo.State, mo.State]]


def build_gpt2(weights: dict[str, np.ndarray], dtype: Any = mo.float32, heads: int = HEADS, batch: int = 1,
               cache_length: int = 256) -> GPT2:
    """Both functions over one set of weights; the cache holds `cache_length` positions of `batch` sequences."""
    w = {name: mo.asarray(array, copy=True).astype(dtype).realise() for name, array in weights.items()}
    layers = sum(name.endswith("ln_1.weight") for name in w)
    width = w["wte"].shape[1]
    depth = width // heads
    shape = (batch, heads, cache_length, depth)
    caches = [(mo.State(mo.zeros(shape, dtype=dtype)), mo.State(mo.zeros(shape, dtype=dtype))) for _ in range(layers)]

    def linear(x: Any, name: str) -> Any:
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def norm(x: Any, name: str) -> Any:
        return mo.layer_norm(x, w[name + ".weight"], w[name + ".bias"])

    def split(x: Any) -> list[Any]:  # (batch, length, 3 * width) -> three of (batch, heads, length, depth)
        rows, length, _ = x.shape
        parts = mo.reshape(x, (rows, length, 3, heads, depth))
        return [mo.permute_dims(parts[:, :, i], (0, 2, 1, 3)) for i in range(3)]

    def block(x: Any, layer: int, attend: Callable[..., Any]) -> Any:
        name = f"h.{layer}."
        seen = attend(layer, *split(linear(norm(x, name + "ln_1"), name + "attn.c_attn")))
        joined = mo.reshape(mo.permute_dims(seen, (0, 2, 1, 3)), x.shape)
        x = x + linear(joined, name + "attn.c_proj")
        hidden = mo.gelu(linear(norm(x, name + "ln_2"), name + "mlp.c_fc"), approximate="tanh")
        return x + linear(hidden, name + "mlp.c_proj")

    def model(ids: Any, positions: Any, attend: Callable[..., Any]) -> Any:
        x = mo.take(w["wte"], ids, axis=0) + positions
        for layer in range(layers):
            x = block(x, layer, attend)
        return norm(x, "ln_f") @ mo.matrix_transpose(w["wte"])

    @mo.compile
    def forward(ids: Any) -> Any:
        return model(ids, w["wpe"][:ids.shape[1]], lambda layer, q, k, v: mo.attention(q, k, v, causal=True))

    @mo.compile
    def decode(ids: Any, position: Any) -> Any:
        here = mo.reshape(mo.arange(cache_length), (1, 1, cache_length, 1)) == position

        def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
            for state, new in zip(caches[layer], (k, v), strict=True):
                state.value = mo.where(here, new, state.value)
            keys, values = (state.value for state in caches[layer])
            return mo.attention(q, keys, values, causal=True, offset=position)

        return model(ids, mo.take(w["wpe"], mo.reshape(position, (1,)), axis=0), attend)

    def prefill(ids: Any) -> Any:
        result = None
        for position in range(ids.shape[1]):
            result = decode(ids[:, position:position + 1].realise(), mo.asarray(position))
        return result

    return GPT2(forward, decode, prefill, caches)
