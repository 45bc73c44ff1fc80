"""NumPy (with SciPy for erf) as its users write it: in place where a fresh array is at hand."""

from __future__ import annotations

import operator

import numpy as np

from benchmarks.kernels import cases
from benchmarks.peers.numpy import core as numpy_peer
from benchmarks.peers.prepared import Prepared

CASES_MODULE = "benchmarks.kernels.cases"
load, to_numpy = numpy_peer.load, numpy_peer.to_numpy


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """x @ weight + bias."""
    t = x @ weight
    t += bias
    return t


def linear_gelu(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Exact GELU of a linear layer."""
    return numpy_peer.gelu(linear(x, weight, bias))


def linear_relu(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """ReLU of a linear layer."""
    t = linear(x, weight, bias)
    return np.maximum(t, 0.0, out=t)


def norm_linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, scale: np.ndarray, shift: np.ndarray
                ) -> np.ndarray:
    """A linear layer of a layer norm."""
    return linear(numpy_peer.layer_norm(x, scale, shift), weight, bias)


def mlp(x: np.ndarray, weight1: np.ndarray, weight2: np.ndarray, bias1: np.ndarray, bias2: np.ndarray) -> np.ndarray:
    """Linear, exact GELU, linear."""
    return linear(linear_gelu(x, weight1, bias1), weight2, bias2)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    """The whole matrix of scores, its softmax in place, then the mixture: the unfused form with least memory."""
    scores = q @ k.swapaxes(-1, -2)
    scores *= np.float32(q.shape[-1] ** -0.5)
    if causal:
        np.copyto(scores, np.float32(-np.inf), where=~np.tri(q.shape[-2], k.shape[-2], dtype=bool))
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores @ v


FUNCTIONS = {
    "matmul": operator.matmul,
    "linear": operator.matmul,
    "linear_gelu": linear_gelu,
    "linear_relu": linear_relu,
    "norm_linear": norm_linear,
    "conv_bn_relu": lambda *inputs: cases.conv_bn_relu(*inputs)[0],
    "attention": attention,
    "attention_causal": lambda q, k, v: attention(q, k, v, causal=True),
    "mlp": mlp,
    "read_sweep": lambda x: x.sum(),
}


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Constants are arguments like the others."""
    return Prepared(FUNCTIONS[name], tuple(inputs.values()))
