"""Attention, positions and transformer blocks as modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.nn.transformer import rope_scaling

RNG = np.random.default_rng(5)


def _reference(layer: mo.nn.MultiHeadAttention, x: np.ndarray, memory: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The same by plain NumPy in float64; `seen` is (queries, keys)."""
    def project(part: mo.nn.Linear, y: np.ndarray, heads: int) -> np.ndarray:
        found = y @ part.weight.numpy().astype(np.float64).T + (0 if part.bias is None else part.bias.numpy())
        return found.reshape(*y.shape[:2], heads, layer.head_dim).transpose(0, 2, 1, 3)

    q = project(layer.q_proj, x, layer.num_heads)
    k, v = (np.repeat(project(part, memory, layer.num_kv_heads), layer.num_heads // layer.num_kv_heads, axis=1)
            for part in (layer.k_proj, layer.v_proj))
    scores = np.where(seen, q @ k.swapaxes(-1, -2) / np.sqrt(layer.head_dim), -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    found = (powers / powers.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
    return found @ layer.o_proj.weight.numpy().astype(np.float64).T + (
        0 if layer.o_proj.bias is None else layer.o_proj.bias.numpy())


@pytest.mark.parametrize(("heads", "kv_heads", "depth", "bias", "causal"),
                         [(4, 4, None, True, True), (3, 1, 5, False, True), (6, 2, None, True, False)])
def test_attention_is_attention(heads: int, kv_heads: int, depth: int | None, bias: bool, causal: bool) -> None:
    layer = mo.nn.MultiHeadAttention(12, heads, kv_heads, depth, bias=bias, causal=causal)
    x = RNG.standard_normal((2, 7, 12))
    seen = np.tri(7, dtype=bool) if causal else np.ones((7, 7), bool)
    found = layer(mo.asarray(x.astype(np.float32))).numpy()
    np.testing.assert_allclose(found, _reference(layer, x, x, seen), rtol=2e-5, atol=2e-6)


def test_attention_over_a_memory_with_a_mask() -> None:
    layer = mo.nn.MultiHeadAttention(8, 2)
    x, memory = RNG.standard_normal((1, 3, 8)), RNG.standard_normal((1, 5, 8))
    seen = np.array([1, 1, 0, 1, 0], bool)
    found = layer(mo.asarray(x), mo.asarray(memory), mask=mo.asarray(seen)).numpy()
    np.testing.assert_allclose(found, _reference(layer, x, memory, np.tile(seen, (3, 1))), rtol=1e-5, atol=1e-6)


def test_a_window_of_keys() -> None:
    layer = mo.nn.MultiHeadAttention(8, 2, window=2)
    x = RNG.standard_normal((1, 6, 8))
    seen = np.tri(6, dtype=bool) & ~np.tri(6, k=-2, dtype=bool)
    np.testing.assert_allclose(layer(mo.asarray(x)).numpy(), _reference(layer, x, x, seen), rtol=1e-5, atol=1e-6)


def test_sequences_at_different_places() -> None:
    """One offset for each row of a batch: each goes on from its own cache as if it were alone."""
    rope = mo.nn.RotaryPositions(4, 16)
    layer = mo.nn.MultiHeadAttention(8, 2, causal=True, rope=rope)
    x = mo.asarray(RNG.standard_normal((2, 5, 8)).astype(np.float32))
    whole = layer(x).numpy()
    cache = mo.nn.KeyValueCache(2, 2, 16, 4)
    layer(x, cache=cache, offset=mo.asarray([0, 0]))
    step = mo.stack([x[0, 4], x[1, 2]])[:, None]  # row 0 goes on at 4, row 1 once more at 2
    found = layer(step, cache=cache, offset=mo.asarray([4, 2])).numpy()
    assert (found[0, 0] == whole[0, 4]).all() and (found[1, 0] == whole[1, 2]).all()


def test_heads_must_divide() -> None:
    with pytest.raises(ArgumentError, match="not a multiple of 3 num_kv_heads"):
        mo.nn.MultiHeadAttention(8, 4, 3)
    with pytest.raises(ArgumentError, match="embed_dim 10 is not a multiple"):
        mo.nn.MultiHeadAttention(10, 4)
    with pytest.raises(ArgumentError, match="head_dim is even"):
        mo.nn.RotaryPositions(5)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_turns_complex_numbers(interleaved: bool) -> None:
    rope = mo.nn.RotaryPositions(6, 32, theta=100.0, interleaved=interleaved)
    x = RNG.standard_normal((1, 2, 5, 8)).astype(np.float32)  # two numbers are left alone
    found = rope(mo.asarray(x), offset=3).numpy()
    angles = np.outer(np.arange(3, 8), 100.0 ** (-np.arange(0, 6, 2) / 6))
    first, second = (x[..., 0:6:2], x[..., 1:6:2]) if interleaved else (x[..., :3], x[..., 3:6])
    turned = (first + 1j * second) * np.exp(1j * angles)
    got = (found[..., 0:6:2] + 1j * found[..., 1:6:2]) if interleaved else found[..., :3] + 1j * found[..., 3:6]
    np.testing.assert_allclose(got, turned, atol=2e-6)
    assert (found[..., 6:] == x[..., 6:]).all()
    there = mo.compile(lambda y, at: rope(y, at))(mo.asarray(x), mo.asarray(3))  # the offset as a tensor
    assert (there.numpy() == found).all()
    each = rope(mo.asarray(np.concatenate([x, x])), mo.asarray([0, 3])).numpy()  # one for each sequence
    assert (each[1] == found[0]).all() and (each[0] == rope(mo.asarray(x)).numpy()[0]).all()


def test_rope_scalings() -> None:
    def frequencies(scaling: dict[str, Any] | None) -> np.ndarray:
        return rope_scaling.frequencies(8, 100.0, scaling, 64, 64)[0]

    plain = frequencies(None)
    np.testing.assert_allclose(frequencies({"type": "linear", "factor": 4.0}), plain / 4)
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}
    llama = frequencies(scaling)
    assert llama[0] == plain[0] and np.isclose(llama[-1], plain[-1] / 8) and (np.diff(plain / llama) >= 0).all()
    with pytest.raises(ArgumentError, match="'nothing' is unknown"):
        mo.nn.RotaryPositions(8, scaling={"type": "nothing"})


def test_sinusoidal_and_learned_positions() -> None:
    table = mo.nn.SinusoidalPositions(10, 6)
    x = mo.zeros((2, 4, 6))
    rows = table(x, 2).numpy()[0]
    np.testing.assert_allclose(rows[1, 2:4], [np.sin(3 / 10000 ** (1 / 3)), np.cos(3 / 10000 ** (1 / 3))], rtol=1e-6)
    learned = mo.nn.LearnedPositions(10, 6)
    assert (learned(x, 2).numpy()[1] == learned.weight.numpy()[2:6]).all()
    assert (learned(x, mo.asarray(2)).numpy()[1] == learned.weight.numpy()[2:6]).all()


@pytest.mark.parametrize("norm_first", [True, False])
def test_block_norms_before_or_after(norm_first: bool) -> None:
    block = mo.nn.TransformerBlock(8, 2, 12, norm_first=norm_first, activation="geglu", normalization="rmsnorm")
    x = mo.asarray(RNG.standard_normal((1, 3, 8)).astype(np.float32))
    first, second, attention, feed = (block.attention_norm, block.feed_forward_norm, block.attention,
                                      block.feed_forward)
    if norm_first:
        middle = x + attention(first(x))
        wanted = middle + feed(second(middle))
    else:
        middle = first(x + attention(x))
        wanted = second(middle + feed(middle))
    assert (block(x).numpy() == wanted.numpy()).all()


def test_decoder_block_continues_from_its_cache() -> None:
    """A whole sequence, or a piece and single steps with a cache: the same bits."""
    rope = mo.nn.RotaryPositions(4, 16)
    block = mo.nn.TransformerDecoderBlock(8, 2, 12, num_kv_heads=1, rope=rope)
    x = mo.asarray(RNG.standard_normal((2, 6, 8)).astype(np.float32))
    memory = mo.asarray(RNG.standard_normal((2, 3, 8)).astype(np.float32))
    whole = block(x, memory).numpy()
    cache = mo.nn.KeyValueCache(2, 1, 16, 4)
    parts = [block(x[:, a:b], memory, cache=cache, offset=mo.asarray(a)).numpy() for a, b in ((0, 4), (4, 5), (5, 6))]
    assert (np.concatenate(parts, axis=1) == whole).all()


def test_unknown_names_are_errors() -> None:
    with pytest.raises(ArgumentError, match="'gulu' is unknown"):
        mo.nn.FeedForward(4, 4, "gulu")
    with pytest.raises(ArgumentError, match="'bnorm' is unknown"):
        mo.nn.TransformerBlock(4, 1, 4, normalization="bnorm")


def test_frozen_values_follow_when_told() -> None:
    layer = mo.nn.Linear(3, 2)
    frozen = mo.nn.Frozen(layer)

    @mo.compile
    def apply(x: mo.Tensor) -> mo.Tensor:
        frozen.use()
        return layer(x)

    x = mo.ones((1, 3))
    before = apply(x).numpy()
    assert (before == layer(x).numpy()).all() and not frozen.refresh()
    layer.weight.assign(layer.weight * 2)
    assert (apply(x).numpy() == before).all()
    assert frozen.refresh() and (apply(x).numpy() == layer(x).numpy()).all()
    assert apply.stats["recompiles"] == 0
    assert frozen.fits(layer) and not frozen.fits(layer.astype(mo.float64))


def test_gradients_reach_every_parameter() -> None:
    block = mo.nn.TransformerBlock(8, 4, 12, num_kv_heads=2, causal=True, activation="swiglu", normalization="rmsnorm",
                                   rope=mo.nn.RotaryPositions(2, 8))
    x = mo.asarray(RNG.standard_normal((1, 5, 8)).astype(np.float32))
    with mo.settings(device="reference"):
        mo.sum(block(x) * x).backward()
        mo.realise(*[p.grad for p in block.parameters()])
    assert all(np.abs(p.grad.numpy()).sum() > 0 for name, p in block.named_parameters() if "k_proj.bias" not in name)


@pytest.mark.parametrize(("norm_first", "activation"), [(True, "gelu"), (False, "relu")])
def test_blocks_equal_those_of_torch(norm_first: bool, activation: str) -> None:
    """Encoder and decoder layer, float64, with the same weights."""
    torch = pytest.importorskip("torch", reason="PyTorch is the reference here")
    torch.manual_seed(3)
    settings = {"d_model": 12, "nhead": 3, "dim_feedforward": 20, "dropout": 0.0, "activation": activation,
                "batch_first": True, "norm_first": norm_first, "dtype": torch.float64}
    x, memory = RNG.standard_normal((2, 5, 12)), RNG.standard_normal((2, 4, 12))
    for kind in (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer):
        decoder = kind is torch.nn.TransformerDecoderLayer
        theirs = kind(**settings)
        norms = ["attention_norm", "memory_norm", "feed_forward_norm"] if decoder else ["attention_norm",
                                                                                        "feed_forward_norm"]
        made = mo.nn.TransformerDecoderBlock if decoder else mo.nn.TransformerBlock
        ours = made(12, 3, 20, activation=activation, norm_first=norm_first, causal=True, dtype=mo.float64)
        given = {}
        for name, value in theirs.state_dict().items():
            array = value.numpy() + 0.1 * RNG.standard_normal(value.shape)
            value.copy_(torch.tensor(array))
            name = name.replace("linear1", "feed_forward.up_proj").replace("linear2", "feed_forward.down_proj")
            name = name.replace("multihead_attn", "memory_attention").replace("self_attn", "attention")
            name = name.replace("out_proj", "o_proj")
            if name.startswith("norm"):
                name = norms[int(name[4]) - 1] + name[5:]
            if "in_proj_" in name:
                for part, piece in zip("qkv", np.split(array, 3), strict=True):
                    given[name.replace("in_proj_", f"{part}_proj.")] = piece
            else:
                given[name] = array
        ours.load_state_dict(given)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
        if decoder:
            wanted = theirs(torch.tensor(x), torch.tensor(memory), tgt_mask=mask)
            found = ours(mo.asarray(x), mo.asarray(memory))
        else:
            wanted, found = theirs(torch.tensor(x), src_mask=mask), ours(mo.asarray(x))
        np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("theta", [10000.0, 250000.0, 5e5, 1e6])
def test_frequencies_are_rounded_once(theta: float) -> None:
    """An angle has the error of its frequency times its position: NumPy's powers of float32 are several units off."""
    places = [float(np.float32(2 * pair) / np.float32(128)) for pair in range(64)]
    powers = np.array([theta ** place for place in places]).astype(np.float32)
    assert (rope_scaling.frequencies(128, theta, None, 64, 64)[0] == np.float32(1) / powers).all()
    longrope = {"rope_type": "longrope", "short_factor": [3.0] * 64, "long_factor": [3.0] * 64}
    assert (rope_scaling.frequencies(128, theta, longrope, 64, 64)[0] == np.float32(1) / (np.float32(3) * powers)).all()
