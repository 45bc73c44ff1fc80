"""GPT-2 written with tensor functions: the forward pass is one native function, and so is the decoding of one token.

Weights go by the names of the published model; they are captured by both functions, and Morpho packs them once.

    forward, decode = build_gpt2(weights)
    logits = forward(ids)                                # (batch, length) -> (batch, length, vocabulary)
    cache = Cache.empty(batch=1, length=256)
    for token in prompt: logits = decode(token, cache); cache.position += 1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

import morpho as mo

LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT = 12, 12, 768, 50257, 1024


def random_weights(seed: int = 0, layers: int = LAYERS, width: int = WIDTH, vocabulary: int = VOCABULARY,
                   context: int = CONTEXT) -> dict[str, np.ndarray]:
    """Weights of a model of any size, (inputs, outputs) for every matrix."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (0.02 * rng.standard_normal(shape, np.float32)).astype(np.float32)

    weights = {"wte.weight": normal(vocabulary, width), "wpe.weight": normal(context, width)}
    for layer in range(layers):
        name = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            weights |= {name + norm + ".weight": 1 + normal(width), name + norm + ".bias": normal(width)}
        for part, inputs, outputs in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                      ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
            weights |= {name + part + ".weight": normal(inputs, outputs), name + part + ".bias": normal(outputs)}
    return weights | {"ln_f.weight": 1 + normal(width), "ln_f.bias": normal(width)}


class Cache:
    """Keys and values of every layer, (batch, heads, length, depth) each; the next token stands at `position`."""

    def __init__(self, layers: list[tuple[mo.State, mo.State]], position: int) -> None:
        self.layers, self.position = layers, position
        self.length = layers[0][0].value.shape[2]

    @classmethod
    def empty(cls, batch: int = 1, length: int = 256, layers: int = LAYERS, heads: int = HEADS, depth: int = 64,
              dtype: Any = mo.float32) -> Cache:
        def slot() -> mo.State:
            return mo.State(mo.zeros((batch, heads, length, depth), dtype=dtype))

        return cls([(slot(), slot()) for _ in range(layers)], 0)


def make_cache(array: np.ndarray, dtype: str = "float32") -> Cache:
    """A cache holding [layers, 2, batch, heads, past, depth], with room for one more position."""
    wide = np.concatenate([array, np.zeros_like(array[..., :1, :])], axis=-2)
    kind = getattr(mo, dtype)
    return Cache([(mo.State(mo.asarray(k).astype(kind)), mo.State(mo.asarray(v).astype(kind))) for k, v in wide],
                 array.shape[-2])


def build_gpt2(weights: dict[str, np.ndarray], dtype: str = "float32", heads: int = HEADS) -> tuple[Any, Any]:
    """`forward(ids)` and `decode(ids, cache)` over one set of weights; `decode` takes one token of each sequence."""
    kind = getattr(mo, dtype)
    w = {name: mo.asarray(array, copy=True).astype(kind).realise() for name, array in weights.items()}
    layers = sum(name.endswith("ln_1.weight") for name in w)
    depth = w["wte.weight"].shape[1] // heads

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
        x = mo.take(w["wte.weight"], ids, axis=0) + positions
        for layer in range(layers):
            x = block(x, layer, attend)
        return norm(x, "ln_f") @ mo.matrix_transpose(w["wte.weight"])

    @mo.compile
    def forward(ids: Any) -> Any:
        positions = w["wpe.weight"][:ids.shape[1]]
        return model(ids, positions, lambda layer, q, k, v: mo.attention(q, k, v, causal=True))

    steps: WeakKeyDictionary[Cache, Any] = WeakKeyDictionary()

    def step_of(cache: Cache) -> Any:
        """The decoding step over one cache, whose states it updates in place."""
        slots, length = cache.layers, cache.length

        @mo.compile
        def step(ids: Any, position: Any) -> Any:
            here = mo.reshape(mo.arange(length), (1, 1, length, 1)) == position

            def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
                for state, new in zip(slots[layer], (k, v), strict=True):
                    state.value = mo.where(here, new, state.value)
                keys, values = (state.value for state in slots[layer])
                return mo.attention(q, keys, values, causal=True, offset=position)

            return model(ids, mo.take(w["wpe.weight"], mo.reshape(position, (1,)), axis=0), attend)

        return step

    def decode(ids: Any, cache: Cache) -> Any:
        if cache not in steps:
            steps[cache] = step_of(cache)
        return steps[cache](ids, mo.asarray(cache.position))

    decode.steps = steps  # type: ignore[attr-defined]  # the compiled functions, to be looked at
    return forward, decode
