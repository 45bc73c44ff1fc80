"""PyTorch, eager, with its own fused functions where it has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.core.cases import SORTS
from benchmarks.peers.prepared import Prepared

EPSILON = 1e-5
Tensor = torch.Tensor


def load(threads: int) -> dict[str, str]:
    """Set the threads, switch gradients off."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return {"torch": torch.__version__}


def gelu(x: Tensor) -> Tensor:
    """Exact GELU."""
    return functional.gelu(x)


def chain10(x: Tensor, y: Tensor) -> Tensor:
    """Ten elementwise operations."""
    t = (x * y + x) * 0.5 - y
    return torch.relu(torch.sqrt(t * t + 1.0) * y + x)


def chain20(x: Tensor, y: Tensor) -> Tensor:
    """Twenty elementwise operations."""
    t = x
    for _ in range(10):
        t = t * y + x
    return t


def bias_gelu_residual(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    """gelu(x + bias) + residual."""
    return functional.gelu(x + bias) + residual


def softmax(x: Tensor) -> Tensor:
    """Softmax along rows."""
    return functional.softmax(x, dim=-1)


def log_softmax(x: Tensor) -> Tensor:
    """Log-softmax along rows."""
    return functional.log_softmax(x, dim=-1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Layer norm along rows."""
    return functional.layer_norm(x, weight.shape, weight, bias, EPSILON)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm along rows."""
    return functional.rms_norm(x, weight.shape, weight, EPSILON)


def mean_variance(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each row."""
    variance, mean = torch.var_mean(x, dim=-1, correction=0)
    return mean, variance


def standardise(x: Tensor) -> Tensor:
    """Each column to mean 0 and variance 1."""
    variance, mean = torch.var_mean(x, dim=0, correction=0)
    return (x - mean) * torch.rsqrt(variance + EPSILON)


def masked_softmax(x: Tensor, mask: Tensor) -> Tensor:
    """Softmax over what the mask lets through."""
    return functional.softmax(torch.where(mask, x, float("-inf")), dim=-1)


def cross_entropy(x: Tensor, labels: Tensor) -> Tensor:
    """The loss of each row."""
    return functional.cross_entropy(x, labels, reduction="none")


def squared_error(x: Tensor, target: Tensor) -> Tensor:
    """Mean squared error."""
    return functional.mse_loss(x, target)


def sum_dot_max(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum, dot product and maximum."""
    return x.sum(), torch.dot(x.view(-1), y.view(-1)), x.max()


CASES = {function.__name__: function for function in (
    gelu, chain10, chain20, bias_gelu_residual, softmax, log_softmax, layer_norm, rms_norm, mean_variance,
    standardise, masked_softmax, cross_entropy, squared_error, sum_dot_max)}


def draws(name: str, count: int) -> Prepared:
    """Random numbers of the default generator."""
    if name == "exponential":
        return Prepared(lambda: torch.empty(count).exponential_(), ())
    names = {"uniform": torch.rand, "normal": torch.randn, "permutation": torch.randperm}
    return Prepared(names[name], (count,))


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Make the call ready; ``add`` and ``triad`` write into a tensor that is there."""
    arguments = tuple(torch.from_numpy(array) for array in inputs.values())
    if case == "add":
        return Prepared(torch.add, arguments, {"out": torch.empty_like(arguments[0])})
    if case == "triad":
        return Prepared(torch.add, arguments, {"alpha": 3.0, "out": torch.empty_like(arguments[0])})
    if case == "function sort":
        return Prepared(lambda x: torch.sort(x)[0], arguments)
    if case.startswith("function "):
        return Prepared(getattr(torch, case.removeprefix("function ")), arguments)
    if case.startswith("fourier "):
        return Prepared(getattr(torch.fft, case.removeprefix("fourier ")), arguments)
    if case.startswith("sorting "):
        name = SORTS[case.removeprefix("sorting ")][0]
        return Prepared(torch.argsort if name == "argsort" else lambda x: torch.sort(x)[0], arguments)
    if case.startswith("random "):
        return draws(case.removeprefix("random "), int(inputs["count"]))
    return Prepared(CASES[case], arguments)


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """Tensors to arrays."""
    results = result if isinstance(result, tuple) else (result,)
    return tuple(tensor.numpy() for tensor in results)
