"""1. Straight-line programs of products and reductions: linear algebra, statistics, layers of networks.

    morpho bench programs --only dense
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.programs.board import measure
from benchmarks.programs.program import Arrays, Program, table, uniform

Array = np.ndarray
ALPHA, BETA = 1.5, 1.2
SINGLE = {"relative": 2e-5, "absolute": 1e-6}


def gemm(a: Array, b: Array, c: Array) -> Array:
    """alpha A B + beta C."""
    return ALPHA * (a @ b) + BETA * c


def two_mm(a: Array, b: Array, c: Array, d: Array) -> Array:
    """alpha A B C + beta D."""
    return ALPHA * (a @ b) @ c + BETA * d


def three_mm(a: Array, b: Array, c: Array, d: Array) -> Array:
    """(A B) (C D)."""
    return (a @ b) @ (c @ d)


def atax(a: Array, x: Array) -> Array:
    """A' (A x)."""
    return (a @ x) @ a


def bicg(a: Array, p: Array, r: Array) -> tuple[Array, Array]:
    """r A and A p: both halves of a step of biconjugate gradients."""
    return r @ a, a @ p


def mvt(x1: Array, x2: Array, y1: Array, y2: Array, a: Array) -> tuple[Array, Array]:
    """x1 + A y1 and x2 + A' y2."""
    return x1 + a @ y1, x2 + y2 @ a


def gesummv(a: Array, b: Array, x: Array) -> Array:
    """alpha A x + beta B x."""
    return ALPHA * (a @ x) + BETA * (b @ x)


def syrk(a: Array, c: Array) -> Array:
    """The lower half of alpha A A' + beta C; the upper one is C's."""
    return np.where(np.tri(len(c), dtype=bool), ALPHA * (a @ a.T) + BETA * c, c)


def syr2k(a: Array, b: Array, c: Array) -> Array:
    """The lower half of alpha (A B' + B A') + beta C; the upper one is C's."""
    return np.where(np.tri(len(c), dtype=bool), ALPHA * (a @ b.T + b @ a.T) + BETA * c, c)


def covariance(data: Array) -> Array:
    """Of the columns, over the rows."""
    centred = data - data.mean(axis=0)
    return centred.T @ centred / (len(data) - 1.0)


def correlation(data: Array) -> Array:
    """Of the columns, over the rows; a column that hardly varies counts as having unit deviation."""
    deviation = data.std(axis=0)
    scaled = (data - data.mean(axis=0)) / (np.sqrt(len(data)) * np.where(deviation <= 0.1, 1.0, deviation))
    return scaled.T @ scaled


def doitgen(a: Array, c: Array) -> Array:
    """The last axis of a tensor of three through a matrix, as in multiresolution analysis."""
    return a @ c


def softmax(x: Array) -> Array:
    """Along the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def mlp(x: Array, w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array) -> Array:
    """Two layers with ReLU, then a softmax over classes."""
    x = np.maximum(x @ w1 + b1, 0)
    x = np.maximum(x @ w2 + b2, 0)
    return softmax(x @ w3 + b3)


def correlate(x: Array, weight: Array) -> Array:
    """Images (n, height, width, channels) with a window (k, k, channels, out), without padding."""
    k = weight.shape[0]
    height, width = x.shape[1] - k + 1, x.shape[2] - k + 1
    total = np.zeros((len(x), height, width, weight.shape[-1]), x.dtype)
    for i in range(k):
        for j in range(k):
            total += x[:, i:i + height, j:j + width] @ weight[i, j]
    return total


def conv2d(x: Array, weight: Array, bias: Array) -> Array:
    """A convolution with a bias."""
    return correlate(x, weight) + bias


def normalised(x: Array) -> Array:
    """Batch norm over all but the channels, without scale and shift."""
    return (x - x.mean(axis=(0, 1, 2))) / np.sqrt(x.var(axis=(0, 1, 2)) + 1e-5)


def resnet(x: Array, w1: Array, w2: Array, w3: Array) -> Array:
    """A bottleneck block: 1 x 1, 3 x 3 and 1 x 1 convolutions with batch norms and ReLUs, and the input added."""
    t = np.maximum(normalised(correlate(x, w1)), 0)
    t = np.pad(t, ((0, 0), (1, 1), (1, 1), (0, 0)))
    t = np.maximum(normalised(correlate(t, w2)), 0)
    return np.maximum(normalised(correlate(t, w3)) + x, 0)


def drawn(rng: np.random.Generator, scale: float, *shape: int) -> Array:
    """Normal numbers in float32."""
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)


def mlp_inputs(rng: np.random.Generator, n: int, width: int, classes: int) -> Arrays:
    """Weights that keep the size of values."""
    layers = ((width, width), (width, width), (width, classes))
    found = {"x": drawn(rng, 1.0, n, width)}
    for number, (k, m) in enumerate(layers, 1):
        found |= {f"w{number}": drawn(rng, k**-0.5, k, m), f"b{number}": drawn(rng, 0.1, m)}
    return found


def conv2d_inputs(rng: np.random.Generator, n: int, size: int, c: int, out: int, k: int) -> Arrays:
    """Images, windows, biases."""
    return {"x": drawn(rng, 1.0, n, size, size, c), "weight": drawn(rng, 1 / (k * c**0.5), k, k, c, out),
            "bias": drawn(rng, 1.0, out)}


def resnet_inputs(rng: np.random.Generator, n: int, size: int, c: int, narrow: int) -> Arrays:
    """Images and three windows."""
    return {"x": drawn(rng, 1.0, n, size, size, c), "w1": drawn(rng, c**-0.5, 1, 1, c, narrow),
            "w2": drawn(rng, 1 / (3 * narrow**0.5), 3, 3, narrow, narrow),
            "w3": drawn(rng, narrow**-0.5, 1, 1, narrow, c)}


def softmax_inputs(rng: np.random.Generator, *shape: int) -> Arrays:
    """Scores."""
    return {"x": drawn(rng, 1.0, *shape)}


PROGRAMS = table(
    Program(gemm, uniform(a="ik", b="kj", c="ij"), (9, 12, 7), (400, 420, 380)),
    Program(two_mm, uniform(a="ij", b="jk", c="kl", d="il"), (9, 12, 7, 5), (300, 320, 280, 340)),
    Program(three_mm, uniform(a="ij", b="ji", c="ik", d="ki"), (9, 12, 7), (300, 320, 280)),
    Program(atax, uniform(a="ij", x="j"), (9, 12), (1800, 2200)),
    Program(bicg, uniform(a="ij", p="j", r="i"), (9, 12), (1800, 2200)),
    Program(mvt, uniform(x1="i", x2="i", y1="i", y2="i", a="ii"), (11,), (2000,)),
    Program(gesummv, uniform(a="ii", b="ii", x="i"), (11,), (1400,)),
    Program(syrk, uniform(a="ij", c="ii"), (9, 12), (400, 300)),
    Program(syr2k, uniform(a="ij", b="ij", c="ii"), (9, 12), (320, 260)),
    Program(covariance, uniform(data="ij"), (13, 7), (700, 500)),
    Program(correlation, uniform(data="ij"), (13, 7), (700, 500)),
    Program(doitgen, uniform(a="ijk", c="kk"), (5, 6, 7), (60, 64, 128)),
    Program(softmax, softmax_inputs, (2, 3, 5, 17), (8, 8, 128, 128), **SINGLE),
    Program(mlp, mlp_inputs, (5, 24, 6), (64, 1024, 10), **SINGLE),
    Program(conv2d, conv2d_inputs, (2, 8, 3, 5, 3), (4, 64, 16, 16, 5), relative=5e-5, absolute=1e-5),
    Program(resnet, resnet_inputs, (2, 6, 16, 4), (4, 28, 128, 32), relative=1e-4, absolute=1e-5))


def run(session: Session) -> ThemeResult:
    """A row per program."""
    return measure("dense", PROGRAMS, session)
