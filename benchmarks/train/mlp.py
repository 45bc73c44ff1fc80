"""The small network of `mlp_step` in numbers: two layers of width x width, the loss of the first step in float64."""

from __future__ import annotations

import numpy as np

from benchmarks.core.cases import Arrays, Shape

SEED = 20261115
LEARNING_RATE = 0.01
ALLOWED = 2e-5  # of a loss near log(64)


def make_inputs(name: str, shape: Shape) -> Arrays:
    """x of batch x width, its classes, and two layers of width x width: the same in every process."""
    batch, width = shape
    rng = np.random.default_rng(SEED)
    weights = {f"weight{i}": rng.standard_normal((width, width), dtype=np.float32) * np.float32(width**-0.5)
               for i in (1, 2)}
    biases = {f"bias{i}": rng.standard_normal(width, dtype=np.float32) for i in (1, 2)}
    return {"x": rng.standard_normal(shape, dtype=np.float32), "classes": rng.integers(0, width, batch), **weights,
            **biases}


def loss(x: np.ndarray, classes: np.ndarray, weight1: np.ndarray, weight2: np.ndarray, bias1: np.ndarray,
         bias2: np.ndarray) -> float:
    """Cross entropy of linear, ReLU, linear."""
    logits = np.maximum(x @ weight1 + bias1, 0) @ weight2 + bias2
    shifted = logits - logits.max(-1, keepdims=True)
    picked = np.take_along_axis(shifted, classes[:, None], -1)[:, 0]
    return float(np.mean(np.log(np.exp(shifted).sum(-1)) - picked))


def check(name: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """The error of the first step's loss as a share of what is allowed; ValueError when above 1."""
    wide = {key: array.astype(np.float64) if array.dtype == np.float32 else array for key, array in inputs.items()}
    expected = loss(**wide)
    share = abs(float(results[0]) - expected) / (ALLOWED * abs(expected))
    if not share <= 1.0:
        raise ValueError(f"{name}: the loss is {float(results[0])}, expected {expected}")
    return share


def answer(name: str, results: tuple[np.ndarray, ...]) -> list[float]:
    """The losses that were computed."""
    return [float(value) for value in results]
