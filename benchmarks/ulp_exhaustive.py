"""Checks vector_math functions on all 2**32 float32 inputs, or on a sample of them.

    python benchmarks/ulp_exhaustive.py exp log tanh erf sigmoid gelu silu softplus
    python benchmarks/ulp_exhaustive.py gelu --sample 67108864 --processes 2

Prints the largest error in units of the last place and the input where it stands. References are float64 with a
relative error below 2**-40; erf and gelu need scipy.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "backends" / "cpu"))
from ulp import Array, Compiled, ulp_errors

from morpho.backends.code.vector_math import ONE_ARGUMENT

CHUNK = 1 << 21
SQRT_HALF, SQRT_HALF_LOW = 0.7071067811865476, -4.833646656726457e-17


def sigmoid(x: Array) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small / (1 + small), 1 / (1 + small))


def weighted(x: Array, factor: Array) -> Any:
    """x * factor, with the limit -0.0 at -inf."""
    return np.where(np.isneginf(x), -0.0, x * factor)


def normal_tail(t: Array) -> Any:
    """Phi(-t) for t >= 0 that were float32: the argument t / sqrt(2) is corrected for its rounding."""
    from scipy.special import erfc

    argument = t * SQRT_HALF
    head = float(np.float32(SQRT_HALF))
    error = ((t * head - argument) + t * (SQRT_HALF - head)) + t * SQRT_HALF_LOW
    slope = 2 / np.sqrt(np.pi) * np.exp(-np.minimum(argument * argument, 700.0))
    return np.where(t > 1e4, 0.0, (erfc(argument) - slope * error) / 2)


def gelu(x: Array) -> Any:
    t = np.abs(x)
    side = np.where(np.isinf(t), 0.0, t * normal_tail(t))
    return np.where(x < 0, -side, t - side)


def mish(x: Array) -> Any:
    n = np.exp(-np.abs(x))
    below = n * (n + 2) / (n * (n + 2) + 2)
    return weighted(x, np.where(x < 0, below, (1 + 2 * n) / (1 + 2 * n + 2 * n * n)))


def gelu_tanh(x: Array) -> Any:
    return weighted(x, sigmoid(np.clip(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x), -1e4, 1e4)))


def softplus(x: Array) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def erf(x: Array) -> Any:
    from scipy.special import erf as reference

    return reference(x)


def erfc(x: Array) -> Any:
    from scipy.special import erfc as reference

    return reference(x)


OWN: dict[str, Callable[[Array], Any]] = {
    "sigmoid": sigmoid,
    "silu": lambda x: weighted(x, sigmoid(x)),
    "softplus": softplus,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "mish": mish,
    "erf": erf,
    "erfc": erfc,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}


def reference(name: str) -> Callable[[Array], Any]:
    """The function in float64: our own where NumPy lacks it, else NumPy's."""
    return OWN[name] if name in OWN else getattr(np, name)


def worst_in(task: tuple[str, int, int, int, int]) -> tuple[float, float, float, float]:
    """The largest error among inputs with bit patterns start, start + stride, ... below stop."""
    name, start, stop, stride, lanes = task
    compiled, true = Compiled(ONE_ARGUMENT[name], np.float32, lanes), reference(name)
    worst = (-1.0, 0.0, 0.0, 0.0)
    for first in range(start, stop, CHUNK * stride):
        patterns = np.arange(first, min(stop, first + CHUNK * stride), stride, dtype=np.uint64)
        x = patterns.astype(np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            got, want = compiled(x), true(x.astype(np.float64))
            errors = ulp_errors(got, want)
        place = int(np.argmax(errors))
        if errors[place] > worst[0]:
            worst = (float(errors[place]), float(x[place]), float(got[place]), float(want[place]))
    return worst


def check(name: str, stride: int, processes: int, lanes: int) -> tuple[float, float, float, float]:
    """The worst input of one function, with a progress line."""
    pieces = 64
    size = (1 << 32) // pieces
    tasks = [(name, i * size, (i + 1) * size, stride, lanes) for i in range(pieces)]
    worst, began = (-1.0, 0.0, 0.0, 0.0), time.perf_counter()
    with multiprocessing.Pool(processes) as pool:
        for done, found in enumerate(pool.imap_unordered(worst_in, tasks), 1):
            worst = max(worst, found)
            print(f"\r{name}: {100 * done // pieces:3d}%  {worst[0]:.4f} ulp", end="", file=sys.stderr, flush=True)
    print(f"\r{' ' * 60}\r", end="", file=sys.stderr)
    print(
        f"{name:10s} max {worst[0]:.4f} ulp at {worst[1]!r} ({float.hex(worst[1])}): "
        f"got {worst[2]!r}, true {worst[3]!r}"
        f"  [{(1 << 32) // stride:,} inputs, {time.perf_counter() - began:.0f} s]",
        flush=True,
    )
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="+", choices=sorted(ONE_ARGUMENT), metavar="function")
    parser.add_argument(
        "--sample", type=int, default=1 << 32, help="number of inputs, evenly spread over all bit patterns"
    )
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=8)
    options = parser.parse_args()
    # an odd stride, so that the low bits of the mantissa vary
    stride = max(1, (1 << 32) // max(1, options.sample))
    stride += 1 - stride % 2
    for name in options.functions:
        check(name, stride, options.processes, options.lanes)


if __name__ == "__main__":
    main()
