"""Attention of bfloat16 on matrix units in software: the bits of vectors, at every kind of edge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import amx_emulator
import numpy as np
import pytest

import morpho as mo
from morpho.backends.code.compiler import llvm, queue
from morpho.backends.kernels.attention.attention import AttentionKernel
from morpho.backends.kernels.generators import generate
from morpho.base.machine import ISAS, Isa, choose_isa, foreign_machine


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Matrix units in software, as an instruction set of their own."""
    plain = llvm.compile_text

    def compile_text(text: str, isa: Isa, *rest: Any) -> bytes:
        return plain(amx_emulator.emulated(text) if isa.name == amx_emulator.NAME else text, isa, *rest)

    monkeypatch.setitem(ISAS, amx_emulator.NAME, amx_emulator.emulated_isa())
    monkeypatch.setattr(llvm, "compile_text", compile_text)
    monkeypatch.setattr(queue, "MOST_PROCESSES", 1)  # another process knows nothing of it
    with mo.settings(cache=False):
        yield


def drawn(rng: np.random.Generator, *shape: int) -> mo.Tensor:
    return mo.asarray(rng.standard_normal(shape).astype("f")).astype(mo.bfloat16).realise()


def bits(*operands: mo.Tensor, isa: str, **options: Any) -> np.ndarray:
    with mo.settings(isa=isa):
        return mo.attention(*operands, **options).astype(mo.float32).numpy()


def same(*operands: mo.Tensor, **options: Any) -> np.ndarray:
    """The result on units, after a look that vectors have the same bits."""
    found = bits(*operands, isa=amx_emulator.NAME, **options)
    np.testing.assert_array_equal(found, bits(*operands, isa="vector512", **options))
    return found


@pytest.mark.parametrize("queries, keys, depth, width", [
    (7, 5, 32, 32), (16, 64, 64, 64), (33, 70, 40, 24), (70, 129, 96, 17), (64, 200, 1, 1), (40, 31, 128, 130)])
def test_sizes(unit: None, rng: np.random.Generator, queries: int, keys: int, depth: int, width: int) -> None:
    q, k, v = drawn(rng, 2, queries, depth), drawn(rng, 2, keys, depth), drawn(rng, 2, keys, width)
    found = same(q, k, v)
    q32, k32, v32 = (x.astype(mo.float32).numpy().astype("d") for x in (q, k, v))
    scores = q32 @ k32.transpose(0, 2, 1) / np.sqrt(depth)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights @ v32 / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, want, atol=2e-2, rtol=2e-2)


def test_causal_windows_and_masks(unit: None, rng: np.random.Generator) -> None:
    q, k, v = (drawn(rng, 2, 100, 64) for _ in range(3))
    whole = same(q, k, v, causal=True)
    same(q, k, v, causal=True, window=30)
    same(q, k, v, mask=mo.asarray(rng.random((100, 100)) > 0.5))
    same(q, k, v, mask=mo.asarray(rng.standard_normal((100, 100)).astype("f")))
    same(q, k, v, scale=-0.3)
    last = bits(q[:, 96:], k, v, isa=amx_emulator.NAME, causal=True, offset=96)  # few rows: vectors
    np.testing.assert_array_equal(last, whole[:, 96:])


def test_strides_and_grouped_heads(unit: None, rng: np.random.Generator) -> None:
    qkv = drawn(rng, 1, 70, 3, 2, 64)
    same(*(mo.permute_dims(qkv[:, :, i], (0, 2, 1, 3)) for i in range(3)), causal=True)
    k, v = (mo.permute_dims(drawn(rng, 1, 2, 32, 70), (0, 1, 3, 2)) for _ in range(2))
    same(drawn(rng, 1, 4, 20, 32), k, v)


def test_what_is_not_finite_stays_where_it_is_seen(unit: None, rng: np.random.Generator) -> None:
    q, k, v = (rng.standard_normal((1, 80, 32)).astype("f") for _ in range(3))
    v[0, 50], k[0, 70] = np.inf, np.nan
    found = same(*(mo.asarray(x).astype(mo.bfloat16) for x in (q, k, v)), causal=True)
    assert np.isfinite(found[0, :50]).all() and np.isinf(found[0, 50:70]).all() and np.isnan(found[0, 70:]).all()
    same(*(mo.asarray(x * 3e38).astype(mo.bfloat16) for x in (q, k)), mo.asarray(q).astype(mo.bfloat16))


def test_weights_are_rounded_and_small_ones_are_zero(unit: None) -> None:
    """A key so far below the largest that its weight is under 2**-64 takes no part, even with a large value."""
    q, k = np.ones((1, 20, 32), "f"), np.zeros((1, 2, 32), "f")
    k[0, 1], v = -2.0, np.array([[[1.0] * 32, [2.0**100] * 32]], "f")
    operands = [mo.asarray(x).astype(mo.bfloat16) for x in (q, k, v)]
    assert (same(*operands, scale=1.0) == 1).all()
    assert (same(*operands, scale=0.5) > 1).all()


def test_the_unit_multiplies_and_nothing_is_widened() -> None:
    isa = choose_isa("amx", foreign_machine("x86_64", ISAS["amx"].needs))
    text = generate(AttentionKernel(mo.bfloat16, 1, None, False), isa, "f")
    assert text.count("@llvm.x86.tdpbf16ps(i8 ") == 8 and "ldtilecfg" in text and "tilerelease" in text
    assert "tdpbf16ps" not in generate(AttentionKernel(mo.float16, 1, None, False), isa, "f")


def test_tall_tiles(unit: None, rng: np.random.Generator) -> None:
    """As many rows as there is room for: 256, and a last tile of a few."""
    with mo.settings(threads=1):
        same(*(drawn(rng, 6, 259, 32) for _ in range(3)), causal=True)
