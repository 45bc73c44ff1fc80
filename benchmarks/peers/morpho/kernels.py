"""Morpho: every case a compiled function that captures its constants. The only file that knows Morpho's interface.

A captured tensor that owns its memory cannot change behind the function's back, so that its packing is done once.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.kernels import cases
from benchmarks.kernels.fma_peak import FmaPeak
from benchmarks.peers.prepared import Prepared

CASES_MODULE = "benchmarks.kernels.cases"
THREADS = 1


def load(threads: int) -> dict[str, str]:
    """Versions; Morpho takes the number of threads from the affinity of the worker."""
    global THREADS
    THREADS = threads
    mo.compile  # noqa: B018  an unfinished package is missing, not wrong
    return {"morpho": getattr(mo, "__version__", "unknown")}


def why_not(case: str) -> str | None:
    """What this version of Morpho lacks for a case."""
    if "int8" in case and "dtype" not in inspect.signature(mo.matmul).parameters:
        return "mo.matmul has no dtype= for int8 products in int32"
    for word, names in (("attention", ("attention",)), ("conv", ("conv2d", "batch_norm"))):
        missing = [name for name in names if word in case and not hasattr(mo, name)]
        if missing:
            return f"there is no mo.{missing[0]}"
    return None


def matmul_int8(x, weight):
    return mo.matmul(x, weight, dtype=mo.int32)


def norm_linear(x, weight, bias, scale, shift):
    return mo.layer_norm(x, scale, shift, eps=cases.EPSILON) @ weight + bias


def conv_bn_relu(x, weight, mean, variance, scale, shift):
    image = mo.conv2d(x, weight, padding=weight.shape[-1] // 2)
    return mo.relu(mo.batch_norm(image, mean, variance, scale, shift, cases.EPSILON))


def mlp(x, weight1, weight2, bias1, bias2):
    return mo.gelu(x @ weight1 + bias1) @ weight2 + bias2


FUNCTIONS = {
    "linear_gelu": lambda x, weight, bias: mo.gelu(x @ weight + bias),
    "linear_relu": lambda x, weight, bias: mo.relu(x @ weight + bias),
    "norm_linear": norm_linear,
    "conv_bn_relu": conv_bn_relu,
    "attention": lambda q, k, v: mo.attention(q, k, v),
    "attention_causal": lambda q, k, v: mo.attention(q, k, v, causal=True),
    "mlp": mlp,
    "read_sweep": lambda x: mo.sum(x),
    **{f"{kind}{dtype}": lambda x, weight: x @ weight
       for kind in ("matmul", "linear") for dtype in ("", "_bf16", "_f16")},
    "matmul_int8": matmul_int8,
    "linear_int8": matmul_int8,
}
WITH_OUT = ("mlp",)  # a call of a microsecond: making its result in Python would be most of it


def tensor(array: np.ndarray, dtype: str) -> mo.Tensor:
    """A tensor that owns its memory; float32 values become the case's type."""
    made = mo.asarray(array, copy=True)
    if array.dtype == np.float32 and dtype != "float32":
        made = mo.astype(made, getattr(mo, dtype))
    mo.realise(made)
    return made


def compiled(name: str, tensors: dict[str, mo.Tensor]) -> tuple[Any, tuple[mo.Tensor, ...]]:
    """The function of a case, which captures its constants, and its arguments."""
    case = cases.of(name)
    constants = {key: value for key, value in tensors.items() if key not in case.arguments}
    function, names = FUNCTIONS[name], ", ".join(case.arguments)
    made = mo.compile(eval(f"lambda {names}: function({names}, **constants)",
                           {"function": function, "constants": constants}))
    return made, tuple(tensors[key] for key in case.arguments)


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Capture the constants, compile by making the first call."""
    if name == "fma_peak":
        return Prepared(FmaPeak(*map(int, inputs["sizes"]), threads=THREADS), ())
    case = cases.of(name)
    if name.startswith("gpt2"):
        return gpt2(name, inputs, case.dtype)
    function, arguments = compiled(name, {key: tensor(array, case.dtype) for key, array in inputs.items()})
    result = function(*arguments)
    return Prepared(function, arguments, {"out": mo.zeros_like(result)} if name in WITH_OUT else {})


def gpt2(name: str, inputs: dict[str, np.ndarray], dtype: str) -> Prepared:
    """Forward or decode of Morpho's GPT-2 on the seeded weights."""
    from benchmarks.models.gpt2 import with_room
    from benchmarks.peers.morpho.gpt import Inference

    model, ids = Inference(cases.gpt2_weights(dtype), dtype), tensor(inputs["ids"], "int64")
    if "cache" not in inputs:
        model.forward(ids)
        return Prepared(model.forward, (ids,))
    decode, position = model.decoder(with_room(inputs["cache"])), mo.asarray(inputs["cache"].shape[-2])
    decode(ids, position)
    return Prepared(decode, (ids, position))


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """The first tensor to an array, bfloat16 as float32; the peak's kernel answers with a number."""
    first = result[0] if isinstance(result, (tuple, list)) else result
    if not isinstance(first, mo.Tensor):
        return (np.asarray(first),)
    return ((mo.astype(first, mo.float32) if first.dtype == mo.bfloat16 else first).numpy(),)
