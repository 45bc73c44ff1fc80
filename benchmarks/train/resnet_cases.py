"""ResNet-18 in numbers: images, classes, weights by torchvision's names, and the loss of the first step in float64.

A size is (width of the first stage, classes, batch, side of the images).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from benchmarks.core.cases import Arrays, Shape, log_sum_exp

SIZE = (64, 1000, 16, 64)
STAGES, BLOCKS, CHANNELS = 4, 2, 3
LEARNING_RATE, MOMENTUM = 0.01, 0.9
EPSILON = 1e-5
SEED = 20261118
ALLOWED = 1e-3  # of the loss


def convolutions(width: int) -> dict[str, tuple[Shape, str]]:
    """The weights' shapes of all convolutions, each with the name of the norm that follows it."""
    found = {"conv1": ((width, CHANNELS, 7, 7), "bn1")}
    inputs = width
    for stage in range(STAGES):
        outputs = width << stage
        for block in range(BLOCKS):
            name = f"layer{stage + 1}.{block}."
            found[name + "conv1"] = ((outputs, inputs, 3, 3), name + "bn1")
            found[name + "conv2"] = ((outputs, outputs, 3, 3), name + "bn2")
            if block == 0 and stage:
                found[name + "downsample.0"] = ((outputs, inputs, 1, 1), name + "downsample.1")
            inputs = outputs
    return found


def make_weights(width: int, classes: int) -> Arrays:
    """All that is trained; running statistics begin at 0 and 1."""
    rng = np.random.default_rng(SEED)
    found: Arrays = {}
    for name, (shape, norm) in convolutions(width).items():
        spread = np.float32((2 / (shape[1] * shape[2] * shape[3])) ** 0.5)
        found[f"{name}.weight"] = rng.standard_normal(shape, dtype=np.float32) * spread
        found[f"{norm}.weight"] = 1 + 0.1 * rng.standard_normal(shape[0], dtype=np.float32)
        found[f"{norm}.bias"] = 0.1 * rng.standard_normal(shape[0], dtype=np.float32)
    last = width << (STAGES - 1)
    found["fc.weight"] = rng.standard_normal((classes, last), dtype=np.float32) * np.float32(last**-0.5)
    found["fc.bias"] = 0.1 * rng.standard_normal(classes, dtype=np.float32)
    return found


def make_inputs(name: str, shape: Shape) -> Arrays:
    """Images, their classes, and the weights."""
    width, classes, batch, side = shape
    rng = np.random.default_rng(SEED + 1)
    return {"x": rng.standard_normal((batch, CHANNELS, side, side), dtype=np.float32),
            "classes": rng.integers(0, classes, batch), **make_weights(width, classes)}


def weights_of(inputs: Arrays) -> Arrays:
    """The weights among the inputs of a case."""
    return {name: array for name, array in inputs.items() if "." in name}


def windows(x: np.ndarray, size: int, stride: int, fill: float = 0.0) -> np.ndarray:
    """(batch, channels, height, width) -> (batch, channels, rows, columns, size, size), with a margin of size // 2."""
    margin = size // 2
    wide = np.pad(x, ((0, 0), (0, 0), (margin, margin), (margin, margin)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(wide, (size, size), (2, 3))[:, :, ::stride, ::stride]


def logits(weights: Arrays, x: np.ndarray) -> np.ndarray:
    """(batch, channels, side, side) -> (batch, classes), in float64; norms by the statistics of the batch."""
    def normed(x: np.ndarray, name: str, norm: str, stride: int) -> np.ndarray:
        kernel = weights[f"{name}.weight"].astype(np.float64)
        seen = windows(x, kernel.shape[-1], stride)
        y = np.moveaxis(np.tensordot(seen, kernel, ((1, 4, 5), (1, 2, 3))), -1, 1)
        axes, column = (0, 2, 3), (-1, 1, 1)
        y = (y - y.mean(axes, keepdims=True)) / np.sqrt(y.var(axes, keepdims=True) + EPSILON)
        return y * weights[f"{norm}.weight"].reshape(column) + weights[f"{norm}.bias"].reshape(column)

    x = np.maximum(normed(x.astype(np.float64), "conv1", "bn1", 2), 0)
    x = windows(x, 3, 2, -np.inf).max((4, 5))
    for stage in range(STAGES):
        for block in range(BLOCKS):
            name, stride = f"layer{stage + 1}.{block}.", 2 if stage and not block else 1
            y = np.maximum(normed(x, name + "conv1", name + "bn1", stride), 0)
            y = normed(y, name + "conv2", name + "bn2", 1)
            if f"{name}downsample.0.weight" in weights:
                x = normed(x, name + "downsample.0", name + "downsample.1", stride)
            x = np.maximum(x + y, 0)
    return x.mean((2, 3)) @ weights["fc.weight"].T.astype(np.float64) + weights["fc.bias"]


@lru_cache(maxsize=4)
def loss(shape: Shape) -> float:
    """The mean cross entropy of the first step in float64."""
    inputs = make_inputs("resnet_step", shape)
    rows = logits(weights_of(inputs), inputs["x"])
    return float(np.mean(log_sum_exp(rows)[:, 0] - rows[np.arange(len(rows)), inputs["classes"]]))


def check(name: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """The error of the first step's loss as a share of what is allowed; ValueError when above 1."""
    batch, _, side, _ = inputs["x"].shape
    expected = loss((len(inputs["conv1.weight"]), len(inputs["fc.bias"]), batch, side))
    share = abs(float(results[0]) - expected) / (ALLOWED * expected)
    if not share <= 1.0:
        raise ValueError(f"{name}: the loss is {float(results[0])}, expected {expected}")
    return share


def answer(name: str, results: tuple[np.ndarray, ...]) -> list[float]:
    """The losses of the first two steps."""
    return [float(value) for value in results]
