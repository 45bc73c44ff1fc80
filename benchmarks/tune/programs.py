"""Programs that are tuned: products, layers, convolutions and loops of sizes where defaults may or may not be best."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import morpho as mo
from morpho.runtime import thresholds
from morpho.runtime.tuner import store

Program = tuple[Callable[..., Any], tuple[Any, ...]]
SLICE_S = 5e-3


def programs(quick: bool) -> dict[str, Program]:
    """By name, a function and its arguments."""
    rng = np.random.default_rng(1)

    def draw(*shape: int) -> Any:
        return mo.asarray(rng.standard_normal(shape).astype(np.float32), copy=True)

    found: dict[str, Program] = {
        "matmul 64": (lambda a, b: a @ b, (draw(64, 64), draw(64, 64))),
        "matmul 256": (lambda a, b: a @ b, (draw(256, 256), draw(256, 256))),
        "linear gelu 512x64x64": (lambda x, w, b: mo.gelu(x @ w + b), (draw(512, 64), draw(64, 64), draw(64))),
        "gemv 768x2304": (lambda x, w: x @ w, (draw(1, 768), draw(768, 2304))),
        "softmax 256x768": (lambda x: mo.softmax(x), (draw(256, 768),)),
    }
    if not quick:
        found |= {
            "matmul 8x1024x1024": (lambda a, b: a @ b, (draw(8, 1024), draw(1024, 1024))),
            "matmul 1000": (lambda a, b: a @ b, (draw(1000, 1000), draw(1000, 1000))),
            "transposed 128x768x768": (lambda a, b: a @ b.T, (draw(128, 768), draw(768, 768))),
            "norm linear 512x256x768": (lambda x, w: mo.layer_norm(x) @ w, (draw(512, 256), draw(256, 768))),
            "batched 16x64x64x64": (lambda a, b: a @ b, (draw(16, 64, 64), draw(16, 64, 64))),
            "conv 1x32x56x56": (lambda x, w: mo.relu(mo.conv2d(x, w)), (draw(1, 32, 56, 56), draw(64, 32, 3, 3))),
            "chain 1M": (lambda x: mo.tanh(x * 2 + 1) * x, (draw(1 << 20),)),
        }
    return found


@contextmanager
def own_choices() -> Iterator[None]:
    """A store of its own: the user's choices stay as they are."""
    with TemporaryDirectory() as folder, mo.settings(cache_dir=folder):
        thresholds.tuned_anew()
        try:
            yield
        finally:
            store._kept.cache_clear()
            thresholds.tuned_anew()


def pairs(one: Callable[[], float], other: Callable[[], float], count: int) -> list[tuple[float, float]]:
    """Seconds of two ways, in turns, each first every other time."""
    found = []
    for number in range(count):
        if number % 2:
            second, first = other(), one()
        else:
            first, second = one(), other()
        found.append((first, second))
    return found
