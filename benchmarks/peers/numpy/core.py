"""NumPy (with SciPy for erf) as its users write it: few temporaries, in place where a fresh array is at hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.core.cases import FUNCTIONS, SORTS
from benchmarks.harness.session import INSTALL
from benchmarks.peers.prepared import Prepared

EPSILON = np.float32(1e-5)


def load(threads: int) -> dict[str, str]:
    """Versions of NumPy and SciPy."""
    found = {"numpy": np.__version__}
    try:
        import scipy
    except ImportError:
        return found
    return {**found, "scipy": scipy.__version__}


def gelu(x: np.ndarray) -> np.ndarray:
    """Exact GELU."""
    try:
        from scipy.special import erf
    except ImportError:
        raise ImportError(f"NumPy has no erf, and SciPy is missing; {INSTALL}") from None
    t = x * np.float32(1.0 / math.sqrt(2.0))
    erf(t, out=t)
    t += 1.0
    t *= x
    t *= 0.5
    return t


def chain10(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Ten elementwise operations."""
    t = x * y
    t += x
    t *= 0.5
    t -= y
    t *= t
    t += 1.0
    np.sqrt(t, out=t)
    t *= y
    t += x
    return np.maximum(t, 0.0, out=t)


def chain20(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Twenty elementwise operations."""
    t = x
    for _ in range(10):
        t = t * y + x
    return t


def bias_gelu_residual(x: np.ndarray, bias: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """gelu(x + bias) + residual."""
    t = gelu(x + bias)
    t += residual
    return t


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax along rows."""
    t = x - x.max(axis=-1, keepdims=True)
    np.exp(t, out=t)
    t /= t.sum(axis=-1, keepdims=True)
    return t


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Log-softmax along rows."""
    t = x - x.max(axis=-1, keepdims=True)
    t -= np.log(np.exp(t).sum(axis=-1, keepdims=True))
    return t


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Layer norm along rows."""
    t = x - x.mean(axis=-1, keepdims=True)
    t /= np.sqrt(np.mean(t * t, axis=-1, keepdims=True) + EPSILON)
    t *= weight
    t += bias
    return t


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """RMS norm along rows."""
    t = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON)
    t *= weight
    return t


def mean_variance(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each row."""
    return x.mean(axis=-1), x.var(axis=-1)


def standardise(x: np.ndarray) -> np.ndarray:
    """Each column to mean 0 and variance 1."""
    t = x - x.mean(axis=0)
    t /= np.sqrt(np.mean(t * t, axis=0) + EPSILON)
    return t


def masked_softmax(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Softmax over what the mask lets through."""
    return softmax(np.where(mask, x, np.float32(-np.inf)))


def cross_entropy(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The loss of each row."""
    top = x.max(axis=-1)
    t = x - top[:, None]
    np.exp(t, out=t)
    return np.log(t.sum(axis=-1)) + top - x[np.arange(len(labels)), labels]


def squared_error(x: np.ndarray, target: np.ndarray) -> np.floating[Any]:
    """Mean squared error."""
    t = x - target
    return np.vdot(t, t) / np.float32(t.size)


def sum_dot_max(x: np.ndarray, y: np.ndarray) -> tuple[Any, Any, Any]:
    """Sum, dot product and maximum."""
    return x.sum(), np.vdot(x, y), x.max()


CASES = {function.__name__: function for function in (
    gelu, chain10, chain20, bias_gelu_residual, softmax, log_softmax, layer_norm, rms_norm, mean_variance,
    standardise, masked_softmax, cross_entropy, squared_error, sum_dot_max)}


def draws(name: str, count: int) -> Prepared:
    """Random numbers of a generator."""
    generator = np.random.default_rng(1)
    if name == "permutation":
        return Prepared(generator.permutation, (count,))
    names = {"uniform": "random", "normal": "standard_normal", "exponential": "standard_exponential"}
    return Prepared(getattr(generator, names[name]), (count,), {"dtype": np.float32})


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Make the call ready; ``add`` writes into an array that is there."""
    arguments = tuple(inputs.values())
    if case == "add":
        return Prepared(np.add, arguments, {"out": np.empty_like(arguments[0])})
    if case.startswith("function "):
        return Prepared(getattr(np, FUNCTIONS[case.removeprefix("function ")][1]), arguments)
    if case.startswith("fourier "):
        return Prepared(getattr(np.fft, case.removeprefix("fourier ")), arguments)
    if case.startswith("sorting "):
        return Prepared(getattr(np, SORTS[case.removeprefix("sorting ")][0]), arguments)
    if case.startswith("random "):
        return draws(case.removeprefix("random "), int(inputs["count"]))
    return Prepared(CASES[case], arguments)


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """Results are arrays already."""
    return result if isinstance(result, tuple) else (result,)
