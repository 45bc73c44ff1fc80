"""GPT-2 with tensor functions, small: one native function each, decoding equal to the forward pass bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from benchmarks.gpt2 import Cache, build_gpt2, random_weights

LAYERS, HEADS, WIDTH, VOCABULARY = 2, 4, 64, 101


def by_float64(weights: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """The logits of a sequence, plainly."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"] + w[name + ".bias"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[name + ".weight"] + w[name + ".bias"]

    length = len(ids)
    x = w["wte.weight"][ids] + w["wpe.weight"][:length]
    hidden = np.triu(np.full((length, length), -np.inf), 1)
    for layer in range(LAYERS):
        name = f"h.{layer}."
        q, k, v = (part.reshape(length, HEADS, -1).transpose(1, 0, 2)
                   for part in np.split(linear(norm(x, name + "ln_1"), name + "attn.c_attn"), 3, -1))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]) + hidden
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (powers / powers.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(length, -1)
        x = x + linear(seen, name + "attn.c_proj")
        inner = linear(norm(x, name + "ln_2"), name + "mlp.c_fc")
        inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        x = x + linear(inner, name + "mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return random_weights(3, LAYERS, WIDTH, VOCABULARY, context=64)


def test_forward_is_one_native_function_and_right(weights: dict[str, np.ndarray]) -> None:
    forward, _ = build_gpt2(weights, heads=HEADS)
    ids = np.random.default_rng(1).integers(0, VOCABULARY, (2, 33))
    tokens = mo.asarray(ids)
    for _ in range(4):
        logits = forward(tokens).numpy()
    np.testing.assert_allclose(logits[1], by_float64(weights, ids[1]), atol=2e-5)
    assert forward.stats["host_steps"] == forward.stats["fallbacks"] == 0 and forward.native_calls >= 1
    assert forward.stats["kernels"] <= 8 * LAYERS + 4
    assert forward.stats["prepared_steps"] == 4 * LAYERS + 1, "every weight is packed once"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decoding_has_the_bits_of_the_forward_pass(weights: dict[str, np.ndarray], dtype: str) -> None:
    forward, decode = build_gpt2(weights, dtype, heads=HEADS)
    ids = np.random.default_rng(2).integers(0, VOCABULARY, (1, 12))
    whole = forward(mo.asarray(ids)).numpy()
    cache = Cache.empty(1, 20, LAYERS, HEADS, WIDTH // HEADS, getattr(mo, dtype))
    for position in range(12):
        logits = decode(mo.asarray(ids[:, position:position + 1]), cache)
        assert logits.numpy()[0, 0].tobytes() == whole[0, position].tobytes()
        cache.position += 1
    (step,) = decode.steps.values()
    assert step.stats["host_steps"] == step.stats["fallbacks"] == 0
