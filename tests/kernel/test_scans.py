"""Running sums, products and extremes of long lines on the emulated GPU: kernels of the engine over tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.cuda.blocks import look_back
from morpho.backends.cuda.blocks.scan import TILE
from morpho.backends.cuda.emulator.install import install
from morpho.backends.cuda.tiles.scans import LEAST, SHORT

LENGTHS = (LEAST - 1, LEAST, SHORT, SHORT + 1, TILE + 1, 5 * TILE + 77)
REFERENCES: dict[str, Any] = {"cumulative_sum": np.cumsum, "cumulative_prod": np.cumprod,
                              "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}


def of(name: str, x: mo.Tensor, axis: int = -1) -> np.ndarray:
    result = getattr(mo, name)(x, axis=axis)
    return np.asarray((result[0] if isinstance(result, tuple) else result).numpy())


@pytest.mark.parametrize("length", LENGTHS)
def test_whole_numbers_have_numpys_values(length: int, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, length)
    assert np.array_equal(of("cumulative_sum", mo.asarray(x).to(install())), np.cumsum(x))


@pytest.mark.parametrize("name", REFERENCES)
def test_lines_of_floats(name: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, TILE + 500, 3)).astype(np.float32)
    x = 1 + x * 1e-3 if name == "cumulative_prod" else x
    there = mo.asarray(x).to(install())
    want = REFERENCES[name](x.astype(np.float64), axis=1)
    got = of(name, there, 1)
    np.testing.assert_allclose(got, want, 1e-4, 1e-3)
    if name in ("cummax", "cummin"):
        assert got.tobytes() == of(name, mo.asarray(x), 1).tobytes()
    line = np.ascontiguousarray(x[0, :, 0])  # the bits do not depend on what lies around the line
    assert of(name, mo.asarray(line).to(install())).tobytes() == np.ascontiguousarray(got[0, :, 0]).tobytes()


def tree_of(x: np.ndarray) -> np.ndarray:
    """Running sums in the order of `look_back.py`, written for NumPy."""

    def doubling(values: np.ndarray) -> np.ndarray:
        for distance in (1, 2, 4, 8, 16):
            later = values[..., distance:] + values[..., :-distance]
            values = np.concatenate([values[..., :distance], later], -1)
        return values

    def below(values: np.ndarray) -> np.ndarray:
        return np.concatenate([np.full_like(values[..., :1], -0.0), values[..., :-1]], -1)

    tiles, group, warps = -(-len(x) // TILE), look_back.GROUP, look_back.WARPS
    groups = -(-tiles // group)
    items = np.pad(x, (0, tiles * TILE - len(x)), constant_values=-0.0).reshape(tiles, warps, 4, 32, 4).copy()
    for k in range(3):
        items[..., k + 1] += items[..., k]
    scanned, carry = doubling(items[..., 3]), np.full((tiles, warps), -0.0, x.dtype)
    first = below(scanned)
    for row in range(4):
        items[:, :, row] += (carry[..., None] + first[:, :, row])[..., None]
        carry = carry + scanned[:, :, row, 31]
    sums_of_warps = np.cumsum(carry, 1, dtype=x.dtype)
    sums = doubling(np.pad(sums_of_warps[:, -1], (0, groups * group - tiles)).reshape(groups, group))
    before = below(np.cumsum(sums[:, -1], dtype=x.dtype))[:, None] + below(sums)
    offsets = before.reshape(-1)[:tiles, None] + below(sums_of_warps)
    return np.asarray((offsets[:, :, None, None, None] + items).reshape(-1)[:len(x)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_have_the_bits_of_a_fixed_tree(dtype: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal(35 * TILE + 5).astype(dtype)  # two groups of tiles, blocks that run by turns
    got = of("cumulative_sum", mo.asarray(x).to(install()))
    assert (got.view(np.uint8) == tree_of(x).view(np.uint8)).all()


def test_more_groups_than_one_look(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr(look_back, "GROUP", 2)  # the only kernel of uint32 in these tests
    x = rng.integers(0, 9, TILE * 2 * 34 + 5).astype(np.uint32)
    assert np.array_equal(of("cumulative_sum", mo.asarray(x).to(install())), np.cumsum(x, dtype=np.uint32))


def test_log_sums_backwards_and_gradients(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, SHORT + 700)).astype(np.float32)
    there = mo.asarray(x).to(install())
    want = np.logaddexp.accumulate(x.astype(float), axis=1)
    np.testing.assert_allclose(of("logcumsumexp", there), want, 1e-5)
    back = mo.flip(mo.cumulative_sum(mo.flip(there, axis=1), axis=1), axis=1).numpy()
    np.testing.assert_allclose(back, np.cumsum(x[:, ::-1].astype(float), 1)[:, ::-1], 1e-4, 1e-3)
    grad = mo.grad(lambda t: (mo.cumulative_sum(t, axis=1) * 0.5).sum())(there).numpy()
    np.testing.assert_allclose(grad[0], 0.5 * np.arange(x.shape[1], 0, -1), 1e-5)


def test_half_floats_carry_float32(rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal(TILE + 9).astype(np.float32)).astype("bfloat16")
    want = np.cumsum(x.astype("float32").numpy().astype(float))
    got = mo.cumulative_sum(x.to(install())).astype("float32").numpy()
    np.testing.assert_allclose(got, want, 0.01, 0.01)


# -- counts and selections ---------------------------------------------------------------------------------------------
def test_counts_of_whole_numbers(rng: np.random.Generator) -> None:
    x = rng.integers(0, 50, 3001)
    there = mo.asarray(x).to(install())
    f = mo.compile(lambda t: mo.bincount(t, length=60))
    assert np.array_equal(f(there).numpy(), np.bincount(x, minlength=60)) and "TileGrid" in str(f.explain())
    with pytest.raises(mo.errors.IndexFault, match="scatter_add"):
        mo.bincount(there, length=20).numpy()
    y = rng.random(2000).astype(np.float32)
    assert np.array_equal(mo.histogram(mo.asarray(y).to(install()), bins=20, range=(0, 1))[0].numpy(),
                          np.histogram(y, 20, (0, 1))[0])


@pytest.mark.parametrize("length", [255, 256, 5000])
def test_what_a_mask_selects_stays_on_the_device(length: int, rng: np.random.Generator) -> None:
    x = np.round(rng.standard_normal((length, 2)).astype(np.float32), 1)
    x[x < 0] = 0
    there = mo.asarray(x).to(install())
    for got, want in zip(mo.nonzero(there), np.nonzero(x), strict=True):
        assert np.array_equal(got.numpy(), want) and got.device == install()
    assert np.array_equal(there[there > 0.5].numpy(), x[x > 0.5])
    assert np.array_equal(there[there[:, 0] > 0].numpy(), x[x[:, 0] > 0])
    assert there[there > 100].shape == (0,)
    assert np.array_equal(mo.flatnonzero(there).numpy(), np.flatnonzero(x))
    assert np.array_equal(mo.argwhere(there).numpy(), np.argwhere(x))
    wants = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    for got, want in zip(mo.unique_all(there), wants, strict=True):
        assert np.array_equal(got.numpy().reshape(-1), want.reshape(-1))
