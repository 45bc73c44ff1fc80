"""Elementwise work on values put together: piece by piece, with the same bits, without copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo


def concat(m: Any, parts: list[Any], axis: int) -> Any:
    return mo.concat(parts, axis=axis) if m is mo else np.concatenate(parts, axis=axis)


def labels(f: Any) -> list[str]:
    return [step.label for step in f.current.plan.program.steps]


def laplace(x: Any, by: Any = mo) -> Any:
    return (by.roll(x, 1, axis=0) + by.roll(x, -1, axis=0) + by.roll(x, 1, axis=1) + by.roll(x, -1, axis=1)
            - 4 * x)


def test_a_stencil_of_rolls_copies_nothing(rng: np.random.Generator) -> None:
    """A kernel for the inner part, one for the borders along each axis, one for the corners; all read x itself."""
    x = rng.standard_normal((90, 70))
    f = mo.compile(laplace)
    np.testing.assert_array_equal(f(mo.asarray(x)).numpy(), laplace(x, np))
    assert f.stats["kernels"] == 4 and "copy" not in labels(f) and f.stats["arena_bytes"] == 0


def test_inside_a_loop(rng: np.random.Generator) -> None:
    x = rng.standard_normal((80, 80))
    f = mo.compile(lambda x: mo.fori_loop(0, 5, lambda i, x: x + 0.125 * laplace(x), x))
    want = x
    for _ in range(5):
        want = want + 0.125 * laplace(want, np)
    np.testing.assert_array_equal(f(mo.asarray(x)).numpy(), want)
    assert labels(f).count("copy") == 1  # of the argument, which is not written


CASES: dict[str, tuple[Callable[..., Any], int]] = {  # kernels
    "pad": (lambda x, m: m.pad(x, ((1, 1), (0, 2))) * 2.0 + 1.0, 6),
    "part of a pad": (lambda x, m: m.pad(x, ((1, 1), (1, 1)))[1:-1, 2:] * 2.0 + x, 2),
    "concat": (lambda x, m: m.exp(concat(m, [x[:, :20] * 2.0, x[:, 20:]], axis=1)) + 1.0, 2),
    "two": (lambda x, m: m.roll(x, (1, 3), axis=(0, 1)) * x, 4),
    "shared": (lambda x, m: m.roll(x, 2, axis=1) * x - m.sqrt(m.abs(m.roll(x, 2, axis=1))), 2),
    "stacked": (lambda x, m: concat(m, [m.roll(x, 1, axis=0) + x, x - 1.0], axis=0) * 3.0, 3),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_of_kernels(name: str, rng: np.random.Generator) -> None:
    function, kernels = CASES[name]
    x = rng.standard_normal((75, 60)).astype("f")
    f = mo.compile(lambda x: function(x, mo))
    found = f(mo.asarray(x)).numpy()
    with mo.settings(passes_off="pieces"):
        plain = mo.compile(lambda x: function(x, mo))(mo.asarray(x)).numpy()
    assert found.tobytes() == plain.tobytes()
    np.testing.assert_allclose(found, function(x, np), rtol=1e-6)
    assert f.stats["kernels"] == kernels
    assert "copy" not in labels(f) or name == "pad"  # whose corners are equal, and computed once


def test_a_value_that_others_want_too_is_put_together_once(rng: np.random.Generator) -> None:
    x = rng.standard_normal((64, 64))
    f = mo.compile(lambda x: (mo.roll(x, 1, axis=0) + x, mo.sum(mo.roll(x, 1, axis=0), axis=1)))
    first, second = f(mo.asarray(x))
    np.testing.assert_array_equal(first.numpy(), np.roll(x, 1, 0) + x)
    np.testing.assert_allclose(second.numpy(), np.roll(x, 1, 0).sum(1), rtol=1e-12)


def joined(rng: np.random.Generator, x: Any, m: Any, depth: int) -> Any:
    """A random program of values moved and put together, of one shape."""
    if depth == 0:
        return x
    one, other = (joined(rng, x, m, depth - 1) for _ in range(2))
    kind, axis, shift = rng.integers(6), int(rng.integers(2)), int(rng.integers(-3, 4))
    if kind == 0:
        return m.roll(one, shift, axis=axis) + other
    if kind == 1:
        width = [(1, 2), (0, 0)] if axis == 0 else [(0, 0), (2, 0)]
        padded = m.pad(one, width)
        return (padded[1:-2] if axis == 0 else padded[:, 1:-1] if rng.random() < 0.5 else padded[:, 2:]) * other
    if kind == 2:
        cut = int(rng.integers(1, one.shape[axis]))
        key = [slice(None), slice(None)]
        parts = []
        for part in (slice(cut, None), slice(0, cut)):
            key[axis] = part
            parts.append(one[tuple(key)])
        return concat(m, parts, axis=axis) - other
    if kind == 3:
        return m.maximum(one, m.roll(other, shift, axis=axis))
    return one * 0.5 + other if kind == 4 else m.abs(other)


@pytest.mark.parametrize("number", range(12))
def test_random_programs(number: int, session_seed: int) -> None:
    seed = (session_seed + number) & 0xFFFFFFFF
    x = np.random.default_rng(seed).standard_normal((70, 61))
    f = mo.compile(lambda x: joined(np.random.default_rng(seed), x, mo, 3))
    np.testing.assert_array_equal(f(mo.asarray(x)).numpy(), joined(np.random.default_rng(seed), x, np, 3))
