"""PyTorch, eager. Weights lie as given (x @ weight) or, in the variant ``@F.linear``, turned as F.linear likes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.kernels import cases
from benchmarks.models.gpt2 import SMALL, with_room
from benchmarks.peers.prepared import Prepared
from benchmarks.peers.torch import core as torch_peer
from benchmarks.peers.torch import gpt

CASES_MODULE = "benchmarks.kernels.cases"
Tensor = torch.Tensor
load = torch_peer.load


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """The operator's own function."""
    return torch.matmul(x, weight)


def int8_product(x: Tensor, weight: Tensor) -> Tensor:
    """int8 x int8 in int32."""
    return torch._int_mm(x, weight)


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Exact GELU of a linear layer; the weight is turned."""
    return functional.gelu(functional.linear(x, weight, bias))


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """ReLU of a linear layer; the weight is turned."""
    return functional.relu(functional.linear(x, weight, bias))


def norm_linear(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """A linear layer of a layer norm; the weight is turned."""
    return functional.linear(functional.layer_norm(x, scale.shape, scale, shift, cases.EPSILON), weight, bias)


def conv_bn_relu(x: Tensor, weight: Tensor, mean: Tensor, variance: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Convolution, batch norm with stored statistics, ReLU."""
    image = functional.conv2d(x, weight, padding=weight.shape[-1] // 2)
    return functional.relu(functional.batch_norm(image, mean, variance, scale, shift, eps=cases.EPSILON))


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's own attention."""
    return functional.scaled_dot_product_attention(q, k, v)


def attention_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's own attention, causal."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def mlp(x: Tensor, weight1: Tensor, weight2: Tensor, bias1: Tensor, bias2: Tensor) -> Tensor:
    """Linear, exact GELU, linear; the weights are turned."""
    return functional.linear(functional.gelu(functional.linear(x, weight1, bias1)), weight2, bias2)


FUNCTIONS = {
    **{f"{kind}{dtype}": matmul for kind in ("matmul", "linear") for dtype in ("", "_bf16", "_f16")},
    **{f"linear{dtype}@F.linear": functional.linear for dtype in ("", "_bf16", "_f16")},
    "matmul_int8": int8_product,
    "linear_int8": int8_product,
    "linear_gelu": linear_gelu,
    "linear_relu": linear_relu,
    "norm_linear": norm_linear,
    "conv_bn_relu": conv_bn_relu,
    "attention": attention,
    "attention_causal": attention_causal,
    "mlp": mlp,
    "read_sweep": torch.sum,
}
TURNED = ("linear_gelu", "linear_relu", "norm_linear", "mlp")


def tensors(name: str, inputs: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """The inputs in the case's type, weights turned where the function wants them so."""
    dtype = cases.of(name).dtype
    turned = name in TURNED or name.endswith("@F.linear")
    found: dict[str, Tensor] = {}
    for key, array in inputs.items():
        given = np.ascontiguousarray(array.T) if turned and key.startswith("weight") else array
        found[key] = torch.from_numpy(given)
        if array.dtype == np.float32:
            found[key] = found[key].to(getattr(torch, dtype))
    return found


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Constants are arguments like the others: eager PyTorch knows no difference."""
    if name.startswith("gpt2"):
        return gpt2(name, inputs)
    return Prepared(FUNCTIONS[name], tuple(tensors(name, inputs).values()))


def gpt2(name: str, inputs: dict[str, np.ndarray], compiled: bool = False) -> Prepared:
    """Forward or decode of the plain module, its weights frozen."""
    kind = cases.of(name).dtype
    model = gpt.build(cases.gpt2_weights(kind), SMALL.heads, exact=False).to(getattr(torch, kind)).eval()
    module = torch.compile(model.requires_grad_(False), dynamic=False) if compiled else model.requires_grad_(False)
    ids = torch.from_numpy(inputs["ids"])
    if "cache" not in inputs:
        return Prepared(lambda ids: module(ids), (ids,))
    cache = torch.from_numpy(with_room(inputs["cache"])).to(getattr(torch, kind))
    return Prepared(lambda ids, cache: module(ids, None, cache), (ids, cache))


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """A tensor to an array; NumPy has no bfloat16."""
    return ((result.float() if result.dtype == torch.bfloat16 else result).numpy(),)
