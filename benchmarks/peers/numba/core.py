"""Numba: explicit loops, rows in parallel, no fast-math. Small inputs take the serial version of the same loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import prange

from benchmarks.peers.prepared import Prepared

SERIAL_BELOW = 32768  # elements; under this, starting Numba's threads costs more than the work
ROOT_HALF = np.float32(math.sqrt(0.5))
EPSILON = np.float32(1e-5)
HALF, ONE, ZERO = np.float32(0.5), np.float32(1.0), np.float32(0.0)


def load(threads: int) -> dict[str, str]:
    """Set the threads."""
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    return {"numba": numba.__version__}


def triad(b, c, out):
    for i in prange(b.size):
        out[i] = b[i] + c[i] * np.float32(3.0)


def gelu(x):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = HALF * x[i, j] * (ONE + math.erf(x[i, j] * ROOT_HALF))
    return out


def chain10(x, y):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            t = (x[i, j] * y[i, j] + x[i, j]) * HALF - y[i, j]
            out[i, j] = max(math.sqrt(t * t + ONE) * y[i, j] + x[i, j], ZERO)
    return out


def chain20(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        t = x[i]
        for _ in range(10):
            t = t * y[i] + x[i]
        out[i] = t
    return out


def bias_gelu_residual(x, bias, residual):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            t = x[i, j] + bias[j]
            out[i, j] = HALF * t * (ONE + math.erf(t * ROOT_HALF)) + residual[i, j]
    return out


def softmax(x):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(1, x.shape[1]):
            top = max(top, x[i, j])
        total = ZERO
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - top)
            total += out[i, j]
        scale = ONE / total
        for j in range(x.shape[1]):
            out[i, j] *= scale
    return out


def log_softmax(x):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(1, x.shape[1]):
            top = max(top, x[i, j])
        total = ZERO
        for j in range(x.shape[1]):
            total += math.exp(x[i, j] - top)
        shift = top + math.log(total)
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] - shift
    return out


def layer_norm(x, weight, bias):
    out = np.empty_like(x)
    columns = np.float32(x.shape[1])
    for i in prange(x.shape[0]):
        total = ZERO
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = total / columns
        squares = ZERO
        for j in range(x.shape[1]):
            squares += (x[i, j] - mean) * (x[i, j] - mean)
        scale = ONE / math.sqrt(squares / columns + EPSILON)
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) * scale * weight[j] + bias[j]
    return out


def rms_norm(x, weight):
    out = np.empty_like(x)
    columns = np.float32(x.shape[1])
    for i in prange(x.shape[0]):
        squares = ZERO
        for j in range(x.shape[1]):
            squares += x[i, j] * x[i, j]
        scale = ONE / math.sqrt(squares / columns + EPSILON)
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * scale * weight[j]
    return out


def mean_variance(x):
    means = np.empty(x.shape[0], np.float32)
    variances = np.empty(x.shape[0], np.float32)
    columns = np.float32(x.shape[1])
    for i in prange(x.shape[0]):
        total = ZERO
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = total / columns
        squares = ZERO
        for j in range(x.shape[1]):
            squares += (x[i, j] - mean) * (x[i, j] - mean)
        means[i] = mean
        variances[i] = squares / columns
    return means, variances


def standardise(x):
    rows, columns = x.shape
    out = np.empty_like(x)
    blocks = (columns + 63) // 64
    for block in prange(blocks):
        first, last = block * 64, min(block * 64 + 64, columns)
        total = np.zeros(64, np.float32)
        squares = np.zeros(64, np.float32)
        for i in range(rows):
            for j in range(first, last):
                total[j - first] += x[i, j]
        mean = total / np.float32(rows)
        for i in range(rows):
            for j in range(first, last):
                squares[j - first] += (x[i, j] - mean[j - first]) * (x[i, j] - mean[j - first])
        scale = ONE / np.sqrt(squares / np.float32(rows) + EPSILON)
        for i in range(rows):
            for j in range(first, last):
                out[i, j] = (x[i, j] - mean[j - first]) * scale[j - first]
    return out


def masked_softmax(x, mask):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        top = np.float32(-np.inf)
        for j in range(x.shape[1]):
            if mask[i, j]:
                top = max(top, x[i, j])
        total = ZERO
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - top) if mask[i, j] else ZERO
            total += out[i, j]
        scale = ONE / total
        for j in range(x.shape[1]):
            out[i, j] *= scale
    return out


def cross_entropy(x, labels):
    out = np.empty(x.shape[0], np.float32)
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(1, x.shape[1]):
            top = max(top, x[i, j])
        total = ZERO
        for j in range(x.shape[1]):
            total += math.exp(x[i, j] - top)
        out[i] = math.log(total) + top - x[i, labels[i]]
    return out


def squared_error(x, target):
    total = 0.0
    for i in prange(x.shape[0]):
        row = ZERO
        for j in range(x.shape[1]):
            row += (x[i, j] - target[i, j]) * (x[i, j] - target[i, j])
        total += row
    return np.float32(total / x.size)


def sum_dot_max(x, y):
    total, dot, top = 0.0, 0.0, x[0, 0]
    for i in prange(x.shape[0]):
        row_sum, row_dot, row_top = ZERO, ZERO, x[i, 0]
        for j in range(x.shape[1]):
            row_sum += x[i, j]
            row_dot += x[i, j] * y[i, j]
            row_top = max(row_top, x[i, j])
        total += row_sum
        dot += row_dot
        top = max(top, row_top)
    return np.float32(total), np.float32(dot), top


CASES: dict[str, Callable[..., Any]] = {function.__name__: function for function in (
    triad, gelu, chain10, chain20, bias_gelu_residual, softmax, log_softmax, layer_norm, rms_norm, mean_variance,
    standardise, masked_softmax, cross_entropy, squared_error, sum_dot_max)}
COMPILED: dict[tuple[str, bool], Callable[..., Any]] = {}


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Compile (once per case and version) by making the first call."""
    arguments = tuple(inputs.values())
    parallel = max(array.size for array in arguments) >= SERIAL_BELOW
    if (case, parallel) not in COMPILED:
        COMPILED[case, parallel] = numba.njit(CASES[case], parallel=parallel, fastmath=False, error_model="numpy")
    function = COMPILED[case, parallel]
    if case == "triad":
        return Prepared(writes_last(function), (*arguments, np.empty_like(arguments[0])))
    function(*arguments)
    return Prepared(function, arguments)


def writes_last(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the array that a function without result filled."""

    def call(b: np.ndarray, c: np.ndarray, out: np.ndarray) -> np.ndarray:
        function(b, c, out)
        return out

    return call


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """Results are arrays already."""
    return result if isinstance(result, tuple) else (result,)
