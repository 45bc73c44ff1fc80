"""Morpho: every case a function given to ``mo.compile``. The only peer file that knows Morpho's interface."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from benchmarks.core.cases import SORTS
from benchmarks.peers.prepared import Prepared


def load(threads: int) -> dict[str, str]:
    """Versions; Morpho takes the number of threads from the affinity of the worker."""
    mo.compile  # noqa: B018  an unfinished package is missing, not wrong
    return {"morpho": getattr(mo, "__version__", "unknown")}


def chain10(x, y):
    t = (x * y + x) * 0.5 - y
    return mo.maximum(mo.sqrt(t * t + 1.0) * y + x, 0.0)


def chain20(x, y):
    t = x
    for _ in range(10):
        t = t * y + x
    return t


def mean_variance(x):
    return mo.mean(x, axis=-1), mo.var(x, axis=-1)


def standardise(x):
    return (x - mo.mean(x, axis=0)) / mo.sqrt(mo.var(x, axis=0) + 1e-5)


def cross_entropy(x, labels):
    top = mo.max(x, axis=-1, keepdims=True)
    total = mo.log(mo.sum(mo.exp(x - top), axis=-1, keepdims=True)) + top
    return (total - mo.take_along_axis(x, labels.reshape((-1, 1)), axis=1)).reshape((-1,))


def squared_error(x, target):
    difference = x - target
    return mo.mean(difference * difference)


CASES = {
    "add": lambda a, b: a + b,
    "triad": lambda b, c: b + c * 3.0,
    "gelu": lambda x: mo.gelu(x),
    "chain10": chain10,
    "chain20": chain20,
    "bias_gelu_residual": lambda x, bias, residual: mo.gelu(x + bias) + residual,
    "softmax": lambda x: mo.softmax(x, axis=-1),
    "log_softmax": lambda x: mo.log_softmax(x, axis=-1),
    "layer_norm": lambda x, weight, bias: mo.layer_norm(x, weight, bias, eps=1e-5),
    "rms_norm": lambda x, weight: mo.rms_norm(x, weight, eps=1e-5),
    "mean_variance": mean_variance,
    "standardise": standardise,
    "masked_softmax": lambda x, mask: mo.softmax(mo.where(mask, x, float("-inf")), axis=-1),
    "cross_entropy": cross_entropy,
    "squared_error": squared_error,
    "sum_dot_max": lambda x, y: (mo.sum(x), mo.sum(x * y), mo.max(x)),
}
WITH_OUT = ("add", "triad", "chain20")


def draws(name: str, count: int) -> Prepared:
    """Random numbers of a key."""
    function = getattr(mo.random, name)
    made = mo.compile(lambda key: function(key, count if name == "permutation" else (count,)))
    key = mo.random.key(1)
    made(key)
    return Prepared(made, (key,))


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Compile by making the first call; those of WITH_OUT write into a tensor that is there."""
    name = case.removeprefix("function ").removeprefix("fourier ")
    home = mo.fft if case.startswith("fourier ") else mo
    if case.startswith("sorting "):
        name = SORTS[case.removeprefix("sorting ")][0]
    if case.startswith("random "):
        return draws(case.removeprefix("random "), int(inputs["count"]))
    function = mo.compile(CASES[case] if case in CASES else lambda *given: getattr(home, name)(*given))
    arguments = tuple(mo.asarray(array) for array in inputs.values())
    if case in WITH_OUT:
        out = mo.zeros(inputs[next(iter(inputs))].shape, dtype=mo.float32)
        out.numpy()  # realised: out= needs memory that exists
        return Prepared(function, arguments, {"out": out})
    function(*arguments)
    return Prepared(function, arguments)


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """Tensors to arrays."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    return tuple(tensor.numpy() for tensor in results)
