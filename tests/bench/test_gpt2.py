"""The benchmarks' GPT-2, small: Morpho's and PyTorch's are right, decoding has the bits of the forward pass."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from benchmarks.models import gpt2
from benchmarks.peers.morpho.gpt import Inference

SIZE = gpt2.Size(layers=2, width=64, heads=4, vocabulary=101, positions=64)


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return gpt2.make_weights(SIZE, seed=3)


def test_forward_is_one_native_function_and_right(weights: dict[str, np.ndarray]) -> None:
    forward = Inference(weights, heads=SIZE.heads).forward
    ids = np.random.default_rng(1).integers(0, SIZE.vocabulary, (2, 33))
    tokens = mo.asarray(ids)
    for _ in range(4):
        logits = forward(tokens).numpy()
    np.testing.assert_allclose(logits, gpt2.logits(weights, ids, SIZE.heads, exact=False), atol=2e-5)
    assert forward.stats["host_steps"] == forward.stats["fallbacks"] == 0 and forward.native_calls >= 1
    assert forward.stats["kernels"] <= 8 * SIZE.layers + 4
    assert forward.stats["prepared_steps"] == 4 * SIZE.layers + 1, "every weight is packed once"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decoding_has_the_bits_of_the_forward_pass(weights: dict[str, np.ndarray], dtype: str) -> None:
    model = Inference(weights, dtype, heads=SIZE.heads)
    ids = np.random.default_rng(2).integers(0, SIZE.vocabulary, (1, 12))
    whole = model.forward(mo.asarray(ids)).numpy()
    step = model.decoder(np.zeros((SIZE.layers, 2, 1, SIZE.heads, 20, SIZE.head_width), np.float32))
    for position in range(12):
        logits = step(mo.asarray(ids[:, position:position + 1]), mo.asarray(position))
        assert logits.numpy()[0, 0].tobytes() == whole[0, position].tobytes()
    assert step.stats["host_steps"] == step.stats["fallbacks"] == 0


def test_pytorch_computes_the_same(weights: dict[str, np.ndarray]) -> None:
    torch = pytest.importorskip("torch", reason="the peer of this benchmark")
    from benchmarks.peers.torch import gpt

    rng = np.random.default_rng(4)
    model = gpt.build(weights, SIZE.heads, exact=False).eval().requires_grad_(False)
    ids, cache = gpt2.make_ids(rng, 2, 5, SIZE), gpt2.make_cache(rng, 2, 6, SIZE)
    forward = model(torch.from_numpy(ids)).numpy()
    np.testing.assert_allclose(forward, gpt2.logits(weights, ids, SIZE.heads, exact=False), atol=2e-5)
    decoded = model(torch.from_numpy(ids[:, :1]), None, torch.from_numpy(gpt2.with_room(cache))).numpy()
    np.testing.assert_allclose(decoded, gpt2.logits(weights, ids[:, :1], SIZE.heads, False, cache), atol=2e-5)


def test_it_has_its_size_and_its_answer_its_causality() -> None:
    assert sum(int(np.prod(shape)) for shape in gpt2.shapes().values()) == 124_439_808
    assert gpt2.read_bytes("float32", 0) == 2 * gpt2.read_bytes("bfloat16", 0)
    size = gpt2.Size(layers=2, width=8, heads=2, vocabulary=11, positions=9)
    rng = np.random.default_rng(3)
    weights = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in gpt2.shapes(size).items()}
    ids = gpt2.make_ids(rng, 2, 5, size)
    logits = gpt2.logits(weights, ids, size.heads, exact=False)
    assert logits.shape == (2, 5, 11)
    np.testing.assert_allclose(gpt2.logits(weights, ids[:, :3], size.heads, exact=False), logits[:, :3], rtol=1e-12,
                               atol=1e-12)
    cache = gpt2.make_cache(rng, 2, 4, size)
    assert gpt2.logits(weights, ids[:, :1], size.heads, exact=False, cache=cache).shape == (2, 1, 11)
