"""Random numbers: the same draws whatever the batching, sharding or level; distributions as they should be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.ops.special import threefry

R = mo.random


def test_known_answer() -> None:
    """Threefry-2x32 with 20 rounds: the published vectors (Random123) at counter 0, and the reference elsewhere."""
    assert R.bits(R.key(0), (1,)).tolist() == [0x6B200159]
    found = R.bits(R.key((123 << 32) | 456), (1000,)).numpy()
    expected = threefry(np.uint32(123), np.uint32(456), np.arange(1000, dtype=np.uint32))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("draw", [
    lambda key, shape, **o: R.bits(key, shape, dtype="uint64", **o), lambda key, shape, **o: R.bits(key, shape, **o),
    R.uniform, R.normal, lambda key, shape, **o: R.normal(key, shape, dtype="float64", **o),
    lambda key, shape, **o: R.randint(key, shape, 0, 1000, **o),
    lambda key, shape, **o: R.bernoulli(key, 0.3, shape, **o),
])
def test_an_element_depends_on_its_key_and_number_only(draw: Any) -> None:
    """Reshaped, drawn in parts, for several keys at once, recomputed, at another level: the same numbers."""
    key = R.key(7)
    whole = draw(key, (60,)).numpy()
    np.testing.assert_array_equal(draw(key, (5, 12)).numpy().reshape(-1), whole)
    parts = [draw(key, (20,), start=start).numpy() for start in (0, 20, 40)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    keys = R.split(key, 3)
    batch = draw(keys, (4, 5)).numpy()
    for i in range(3):
        np.testing.assert_array_equal(batch[i], draw(keys[i], (4, 5)).numpy())
    with mo.settings(level=0, threads=1):
        np.testing.assert_array_equal(draw(key, (60,)).numpy(), whole)
    np.testing.assert_array_equal(mo.compile(lambda k: draw(k, (60,)))(key).numpy(), whole)


def test_keys() -> None:
    """Splitting is deterministic; children differ from each other, from their parent and from its draws."""
    key = R.key(3)
    assert key.shape == (2,) and key.dtype is mo.uint32 and R.key(2**64 - 1).tolist() == [2**32 - 1] * 2
    children = R.split(key, 100)
    np.testing.assert_array_equal(children.numpy(), R.split(key, 100).numpy())
    np.testing.assert_array_equal(children.numpy()[:2], R.split(key).numpy())
    everything = [*children.numpy().reshape(-1).tolist(), *R.bits(key, (200,)).tolist(), *key.tolist()]
    assert len(set(everything)) == len(everything)
    first, second = R.split(key)
    assert np.corrcoef(R.normal(first, (5000,)).numpy(), R.normal(second, (5000,)).numpy())[0, 1] < 0.05


@pytest.mark.parametrize(("dtype", "digits"), [("float32", 24), ("float64", 53), ("float16", 11), ("bfloat16", 8)])
def test_uniform(dtype: str, digits: int) -> None:
    """In [0, 1), multiples of 2**-digits, evenly spread."""
    found = R.uniform(R.key(1), (20000,), dtype=dtype)
    assert found.dtype is getattr(mo, dtype)
    x = found.numpy().astype(np.float64)
    assert x.min() >= 0 and x.max() < 1 and np.all(x * 2.0**digits % 1 == 0)
    counts = np.histogram(x, 16, (0, 1))[0]
    assert ((counts - 1250) ** 2 / 1250).sum() < 45  # chi-square, 15 degrees of freedom
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.03
    y = R.uniform(R.key(1), (2000,), low=-3, high=5, dtype=dtype).numpy()
    assert y.min() >= -3 and y.max() < 5 and abs(y.astype(np.float64).mean() - 1) < 0.3


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize(("dtype", "low", "high"), [
    ("float16", -40000.0, 60000.0), ("float32", -2e38, 2e38), ("float64", -1e308, 1.5e308), ("bfloat16", -3e38, 3e38),
    ("float16", -65504, 65504)])
def test_uniform_over_more_than_the_largest_number(dtype: str, low: float, high: float, tensors: bool) -> None:
    """Evenly spread although high - low is infinite in the dtype."""
    bounds = [mo.asarray(bound, dtype=dtype) if tensors else bound for bound in (low, high)]
    x = R.uniform(R.key(1), (20000,), low=bounds[0], high=bounds[1], dtype=dtype).numpy().astype(np.longdouble)
    unit = (x - low) / (np.longdouble(high) - low)
    assert -0.01 < unit.min() < 0.01 and 0.99 < unit.max() < 1.01
    counts = np.histogram(unit.astype(np.float64), 8, (0, 1))[0]
    assert np.abs(counts - 2500).max() < (300 if dtype == "bfloat16" else 200)


def test_uniform_keeps_the_bits_of_other_bounds_in_the_same_draw() -> None:
    """A tensor of bounds, one pair too far apart: the others draw what they draw alone."""
    low, high = mo.asarray([-2e38, -3.0, 0.1], dtype="float32"), mo.asarray([2e38, 5.0, 0.7], dtype="float32")
    x = R.uniform(R.key(1), (500, 3), low=low, high=high).numpy()
    unit = R.uniform(R.key(1), (500, 3)).numpy()
    want = unit[:, 1:] * (high.numpy()[1:] - low.numpy()[1:]) + low.numpy()[1:]
    np.testing.assert_array_equal(x[:, 1:], want)
    assert np.ptp(x[:, 0] / 2e38) > 1.9


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_normal(dtype: str) -> None:
    """Moments and tails of a normal distribution."""
    x = R.normal(R.key(2), (40000,), dtype=dtype).numpy().astype(np.float64)
    assert np.all(np.isfinite(x))
    assert abs(x.mean()) < 0.02 and abs(x.std() - 1) < 0.02
    assert abs((x**3).mean()) < 0.06 and abs((x**4).mean() - 3) < 0.2
    for limit in (0.5, 1.0, 2.0):
        assert abs((np.abs(x) < limit).mean() - math.erf(limit / math.sqrt(2))) < 0.015
    y = R.normal(R.key(2), (1000,), mean=10.0, std=0.5, dtype=dtype).numpy().astype(np.float64)
    assert abs(y.mean() - 10) < 0.1 and abs(y.std() - 0.5) < 0.05


def test_integers_and_coins() -> None:
    """Every value of a range equally often, with both ends right; probabilities as given."""
    x = R.randint(R.key(5), (7000,), -3, 4).numpy()
    counts = np.bincount(x + 3)
    assert counts.size == 7 and ((counts - 1000) ** 2 / 1000).sum() < 25
    assert R.randint(R.key(5), (50,), 10).numpy().max() < 10
    small = R.randint(R.key(5), (2000,), -128, 128, dtype="int8").numpy()
    assert small.min() == -128 and small.max() == 127
    whole = R.randint(R.key(5), (2000,), -(2**63), 2**63).numpy()
    assert abs((whole < 0).mean() - 0.5) < 0.05
    assert abs(R.bernoulli(R.key(6), 0.25, (8000,)).numpy().mean() - 0.25) < 0.02
    p = mo.asarray([0.0, 1.0])
    assert R.bernoulli(R.key(6), p).tolist() == [False, True]
    assert abs(np.unpackbits(R.bits(R.key(9), (1000,), dtype="uint8").numpy()).mean() - 0.5) < 0.02


def test_permutation() -> None:
    """A reordering of numbers or of an axis, the same for the same key."""
    order = R.permutation(R.key(4), 100)
    assert sorted(order.tolist()) == list(range(100)) and order.tolist() != list(range(100))
    assert order.tolist() == R.permutation(R.key(4), 100).tolist() != R.permutation(R.key(5), 100).tolist()
    x = mo.asarray(np.arange(12).reshape(3, 4))
    assert sorted(R.permutation(R.key(4), x, axis=1)[0].tolist()) == [0, 1, 2, 3]
    assert R.permutation(R.key(4), np.int32(100)).tolist() == order.tolist()
    firsts = np.bincount([R.permutation(R.key(i), 4).tolist()[0] for i in range(200)], minlength=4)
    assert firsts.min() > 25


@pytest.mark.parametrize(("use", "kind", "message"), [
    (lambda: R.key(1.5), TypeError, "random.key"),
    (lambda: R.key(2**64), ValueError, r"random.key\].*18446744073709551616 is not in 0..2\*\*64-1"),
    (lambda: R.key(-1), ValueError, "random.key"),
    (lambda: R.uniform(R.key(0), high=1e300), ValueError, r"random.uniform\] high 1e\+300 .*float32"),
    (lambda: R.uniform(R.key(0), low=np.float64(-1e39)), ValueError, r"random.uniform\] low -1e\+39 .*float32"),
    (lambda: R.uniform(R.key(0), high=65520, dtype="float16"), ValueError, "random.uniform.*float16"),
    (lambda: R.uniform(R.key(0), high=math.inf), ValueError, "random.uniform"),
    (lambda: R.uniform(R.key(0), high=2**2000, dtype="float64"), ValueError, "random.uniform"),
    (lambda: R.uniform(R.key(0), high=1j), TypeError, "random.uniform.*complex"),
    (lambda: R.normal(R.key(0), std=1e39), ValueError, r"random.normal\] std 1e\+39"),
    (lambda: R.normal(R.key(0), mean=math.nan), ValueError, r"random.normal\] mean nan"),
    (lambda: R.normal(R.key(0), std=-1), ValueError, "random.normal.*negative"),
    (lambda: R.uniform(key=mo.asarray([1, 2])), TypeError, "random.uniform.*key"),
    (lambda: R.uniform(R.key(0), (2,), dtype="int32"), TypeError, "random.uniform.*int32"),
    (lambda: R.uniform(R.key(0), low=2, high=1), ValueError, "random.uniform"),
    (lambda: R.bits(R.key(0), (2,), dtype="int32"), TypeError, "random.bits"),
    (lambda: R.bits(R.key(0), (-1,)), ValueError, "random.bits"),
    (lambda: R.permutation(R.key(0), -1), ValueError, "random.permutation.*negative"),
    (lambda: R.uniform(R.key(0), (2,), start=1.5), TypeError, "random.uniform.*start 1.5"),
    (lambda: R.bits(R.key(0), (2**20,), start=2**32 - 5), ValueError, "random.bits"),
    (lambda: R.randint(R.key(0), (2,), 5, 5), ValueError, "random.randint"),
    (lambda: R.randint(R.key(0), (2,), 0, 300, dtype="int8"), ValueError, "random.randint"),
    (lambda: R.bernoulli(R.key(0), 1.5), ValueError, "random.bernoulli"),
    (lambda: R.permutation(R.key(0), mo.asarray(1.0)), ValueError, "random.permutation"),
])
def test_errors(use: Any, kind: type[Exception], message: str) -> None:
    """One sentence with the function's name."""
    with pytest.raises(kind, match=message):
        use()


@pytest.mark.parametrize("arguments", [(R.key(0), 0, 10, (3,)), (R.key(0), (3,), 0.5, 3),
                                       (R.key(0), (3,)), (R.key(0), (3,), "a", "b")])
def test_randint_says_its_order(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^\[random.randint\].*the order is mo.random.randint\(key, sh"):
        R.randint(*arguments)


def test_wrong_counts_and_axes() -> None:
    with pytest.raises(TypeError, match=r"\[random.split\] the number of keys 'a' is not an integer"):
        mo.random.split(mo.random.key(0), "a")
    with pytest.raises(IndexError, match=r"\[random.permutation\] axis 5 is out of range"):
        mo.random.permutation(mo.random.key(0), mo.zeros((2, 2)), axis=5)
