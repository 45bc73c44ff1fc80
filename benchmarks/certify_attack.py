"""Attack `mo.certify`: the worst error over samples of every kind beside the bound, for standard blocks.

    python -m benchmarks.certify_attack [ROWS [DTYPE ...]]

Rows are uniform, at the ends of the range, nearly equal, nearly at one end, of one large element, and of few bits;
sums and functions are compared with NumPy in float64, programs of float64 with NumPy's 80 bits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import morpho as mo

BATCH = 1000


def rows(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """Elements in [low, high], each row along the last axis of another kind."""
    kinds = []
    uniform = rng.uniform(low, high, shape)
    centre = rng.uniform(low, high, (*shape[:-1], 1))
    width = (high - low) * 2.0 ** -rng.integers(0, 40, (*shape[:-1], 1))
    kinds += [uniform, rng.choice([low, high], shape), centre + rng.uniform(-1, 1, shape) * width,
              high - rng.uniform(0, 1, shape) * width, low + rng.uniform(0, 1, shape) * width,
              np.where(rng.random(shape) < 2 / shape[-1], high, low + rng.uniform(0, 1, shape) * width),
              np.round(uniform * 16) / 16, np.where(rng.random(shape) < 0.5, uniform, 0 if low <= 0 <= high else low)]
    alone = rng.random() < 0.3  # all rows of one kind: both sides of a product at one end
    which = np.full((*shape[:-1], 1), rng.integers(len(kinds))) if alone else rng.integers(
        len(kinds), size=(*shape[:-1], 1))
    return np.clip(np.choose(which, kinds), low, high)


def biased(shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """float32 rows whose running sums are all rounded up by nearly half a unit: the worst of a chain of additions."""
    bits, result, total = 24, np.full(shape, high), np.zeros(shape[:-1])
    for place in range(shape[-1]):
        unit = 2.0 ** (np.floor(np.log2(np.maximum(total + high * 0.99, 1e-30))) - bits + 1)
        wanted = (np.floor((total + high) / unit) - 0.49) * unit - total
        result[..., place] = np.clip(np.where(unit > high * 2.0 ** (1 - bits), wanted, high), low, high)
        result[..., place] = result[..., place].astype(np.float32)
        total = (np.rint((total + result[..., place]) / unit)) * unit
    return result


def erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(np.asarray(x, np.float64))


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def layer_norm(x: Any, centre: bool = True) -> Any:
    x = x - x.mean(-1, keepdims=True) if centre else x
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + type(x.flat[0])(1e-5))


def attention(q: Any, k: Any, v: Any) -> Any:
    return softmax(q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]))) @ v


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


Case = tuple[str, Callable[..., Any], Callable[..., Any], list[tuple[tuple[int, ...], float, float]]]


def cases(kind: str) -> list[Case]:
    n, lines = 64, (BATCH, 64)
    wide = [(lines, -1.0, 1.0)]
    found: list[Case] = [
        ("softmax", lambda x: mo.softmax(x, axis=-1), softmax, wide),
        ("softmax of -8 to 8", lambda x: mo.softmax(x, axis=-1), softmax, [(lines, -8.0, 8.0)]),
        ("softmax of 1000", lambda x: mo.softmax(x, axis=-1), softmax, [((BATCH // 10, 1000), -2.0, 2.0)]),
        ("log_softmax", lambda x: mo.log_softmax(x, axis=-1), lambda x: np.log(softmax(x)), wide),
        ("logsumexp", lambda x: mo.logsumexp(x, axis=-1),
         lambda x: np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1)) + x.max(-1), wide),
        ("layer_norm", mo.layer_norm, layer_norm, wide),
        ("layer_norm of 5 to 6", mo.layer_norm, layer_norm, [(lines, 5.0, 6.0)]),
        ("rms_norm", mo.rms_norm, lambda x: layer_norm(x, False), wide),
        ("sum of 64", lambda x: mo.sum(x, axis=-1), lambda x: x.sum(-1), wide),
        ("sum of 5000", lambda x: mo.sum(x, axis=-1), lambda x: x.sum(-1), [((BATCH // 10, 5000), -1.0, 1.0)]),
        ("mean, variance", lambda x: mo.mean(x, axis=-1) + mo.var(x, axis=-1), lambda x: x.mean(-1) + x.var(-1), wide),
        ("matmul 64", lambda x, w: x @ w, lambda x, w: x @ w, [(lines, -1.0, 1.0), ((n, 16), -1.0, 1.0)]),
        ("matmul of positives", lambda x, w: x @ w, lambda x, w: x @ w, [(lines, 0.0, 1.0), ((n, 16), 0.0, 1.0)]),
        ("matmul 300", lambda x, w: x @ w, lambda x, w: x @ w, [((BATCH // 4, 300), -1.0, 1.0),
                                                               ((300, 16), -1.0, 1.0)]),
        ("gelu, exp, division", lambda x: mo.gelu(x) * 0.5 + mo.exp(x) / (1 + mo.square(x)),
         lambda x: gelu(x) * 0.5 + np.exp(x) / (1 + x * x), wide),
        ("tanh, sigmoid, log1p", lambda x: mo.tanh(x) * mo.sigmoid(x) - mo.log1p(mo.square(x)),
         lambda x: np.tanh(x) / (1 + np.exp(-x)) - np.log1p(x * x), [(lines, -4.0, 4.0)]),
        ("feed-forward", lambda x, a, b: mo.gelu(x @ a) @ b, lambda x, a, b: gelu(x @ a) @ b,
         [((BATCH // 4, 32), -1.0, 1.0), ((32, 64), -0.2, 0.2), ((64, 8), -0.2, 0.2)]),
    ]
    if kind != "bfloat16":
        found += [("attention", mo.attention, attention, [((BATCH // 20, 16, 16), -1.0, 1.0),
                                                          ((BATCH // 20, 64, 16), -1.0, 1.0)]
                   + [((BATCH // 20, 64, 16), -1.0, 1.0)]),
                  ("attention of 200", mo.attention, attention, [((BATCH // 50, 16, 32), -2.0, 2.0)]
                   + [((BATCH // 50, 200, 32), -2.0, 2.0)] * 2)]
    return found


def attack(kind: str, total: int, seed: int = 0, chosen: set[str] | None = None) -> Iterator[tuple[str, float, float]]:
    """(name, bound, worst error) of each block."""
    rng = np.random.default_rng(seed)
    reference = np.longdouble if kind == "float64" else np.float64
    for name, function, real, ranges in cases(kind):
        if chosen is not None and name not in chosen:
            continue
        spread = [mo.within(shape, low, high, kind) for shape, low, high in ranges]
        bound = mo.certify(function, *spread).error
        compiled, worst, done = mo.compile(function), 0.0, 0
        while done < total:
            arrays = [rows(rng, shape, low, high) for shape, low, high in ranges]
            if name.startswith("matmul") and kind == "float32" and not done:
                arrays = [biased(*ranges[0]), np.full(ranges[1][0], ranges[1][2])]
            given = [mo.asarray(array).astype(kind) for array in arrays]
            arrays = [each.astype("float64").numpy() for each in given]
            value = compiled(*given).astype("float64").numpy()
            wanted = real(*[each.astype(reference) for each in arrays])
            worst = max(worst, float(np.abs(value - wanted).max()))
            done += math.prod(ranges[0][0][:-1])
        yield name, bound, worst


def main(total: int, kinds: list[str]) -> None:
    wrong = 0
    for kind in kinds or ["float32", "bfloat16", "float16", "float64"]:
        for name, bound, worst in attack(kind, total):
            if kind == "float64" and any(word in name for word in ("gelu", "feed")):
                continue  # NumPy has no erf in 80 bits
            wrong += worst > bound
            note = "  UNSOUND" if worst > bound else ""
            print(f"{kind:9s} {name:22s} bound {bound:9.3g}  worst {worst:9.3g}  ratio {bound / worst:6.1f}{note}",
                  flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, sys.argv[2:])
