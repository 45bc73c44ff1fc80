"""The cases of the kernel benchmarks: inputs from a seed, which of them are constants, and the answer in float64.

A name may carry a variant after "@", another way to compute the same: ``linear@F.linear``. Values for bfloat16 and
float16 are rounded to that type beforehand, so that every peer and the reference start from the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from benchmarks.core.cases import Arrays, Shape, gelu, layer_norm, softmax
from benchmarks.models import gpt2

SEED, GPT2_SEED = 20261115, 20261116
EPSILON = 1e-5
PRODUCT_ERRORS = {  # absolute and relative: the order of the sums, and the last place of a result near 1
    "float32": (2e-5, 5e-5), "bfloat16": (2.0**-8, 2.0**-7), "float16": (2.0**-10, 2.0**-10), "int8": (0.0, 0.0)}


@dataclass(frozen=True)
class Case:
    """One computation. Inputs named in ``arguments`` change from call to call; the others are constants (weights).

    ``by_row`` names the inputs that split along axis 0, ``sample`` how many of those rows are checked.
    """

    inputs: Callable[[np.random.Generator, Shape], Arrays]
    reference: Callable[..., tuple[np.ndarray, ...]]
    arguments: tuple[str, ...] = ("x",)
    by_row: tuple[str, ...] = ("x",)
    sample: int = 64
    dtype: str = "float32"
    absolute: float = 2e-5
    relative: float = 5e-5


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """A float32 array whose values the type can hold; to nearest, ties to even."""
    if dtype == "float16":
        return array.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return array


def product_inputs(rng: np.random.Generator, shape: Shape) -> Arrays:
    """x of m x k and a weight of k x n whose products are about 1."""
    m, k, n = shape
    weight = rng.standard_normal((k, n), dtype=np.float32)
    weight *= np.float32(k**-0.5)
    return {"x": rng.standard_normal((m, k), dtype=np.float32), "weight": weight}


def linear_inputs(rng: np.random.Generator, shape: Shape) -> Arrays:
    """x, a weight and a bias."""
    return {**product_inputs(rng, shape), "bias": rng.standard_normal(shape[2], dtype=np.float32)}


def norm_linear_inputs(rng: np.random.Generator, shape: Shape) -> Arrays:
    """x, a weight, a bias, and the scale and shift of the norm."""
    scale, shift = (rng.standard_normal(shape[1], dtype=np.float32) for _ in range(2))
    return {**linear_inputs(rng, shape), "scale": scale, "shift": shift}


def int8_inputs(rng: np.random.Generator, shape: Shape) -> Arrays:
    """Two int8 matrices."""
    m, k, n = shape
    return {"x": rng.integers(-128, 128, (m, k), dtype=np.int8),
            "weight": rng.integers(-128, 128, (k, n), dtype=np.int8)}


def conv_inputs(rng: np.random.Generator, shape: Shape) -> Arrays:
    """An image of n x c x h x w, weights of out x c x kernel x kernel, the statistics of a batch norm."""
    n, c, h, w, out, kernel = shape
    weight = rng.standard_normal((out, c, kernel, kernel), dtype=np.float32)
    weight *= np.float32((c * kernel * kernel) ** -0.5)
    mean, scale, shift = (rng.standard_normal(out, dtype=np.float32) for _ in range(3))
    return {"x": rng.standard_normal((n, c, h, w), dtype=np.float32), "weight": weight, "mean": mean,
            "variance": rng.random(out, dtype=np.float32) + np.float32(0.5), "scale": scale, "shift": shift}


def attention_inputs(rng: np.random.Generator, shape: Shape) -> Arrays:
    """Queries, keys and values of batch x heads x length x width."""
    return {name: rng.standard_normal(shape, dtype=np.float32) for name in "qkv"}


def mlp_inputs(rng: np.random.Generator, shape: Shape) -> Arrays:
    """x of batch x width and two layers of width x width."""
    width = shape[1]
    weights = {f"weight{i}": rng.standard_normal((width, width), dtype=np.float32) * np.float32(width**-0.5)
               for i in (1, 2)}
    biases = {f"bias{i}": rng.standard_normal(width, dtype=np.float32) for i in (1, 2)}
    return {"x": rng.standard_normal(shape, dtype=np.float32), **weights, **biases}


def norm_linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, scale: np.ndarray, shift: np.ndarray
                ) -> tuple[np.ndarray, ...]:
    """Layer norm along rows, then a linear layer."""
    return (layer_norm(x, scale, shift)[0] @ weight + bias,)


def convolve(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A convolution that keeps the size, as one product over windows."""
    kernel = weight.shape[-1]
    margin = kernel // 2
    padded = np.pad(x, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
    return np.moveaxis(np.tensordot(windows, weight, axes=((1, 4, 5), (1, 2, 3))), -1, 1)


def conv_bn_relu(x: np.ndarray, weight: np.ndarray, mean: np.ndarray, variance: np.ndarray, scale: np.ndarray,
                 shift: np.ndarray) -> tuple[np.ndarray, ...]:
    """Convolution, batch norm with stored statistics, ReLU."""
    factor = scale / np.sqrt(variance + x.dtype.type(EPSILON))
    t = convolve(x, weight) * factor[:, None, None]
    return (np.maximum(t + (shift - mean * factor)[:, None, None], 0),)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> tuple[np.ndarray, ...]:
    """softmax(q k^T / sqrt(width)) v with the whole matrix of scores in memory."""
    scores = q @ np.swapaxes(k, -1, -2)
    scores *= scores.dtype.type(q.shape[-1] ** -0.5)
    if causal:
        scores[..., ~np.tri(q.shape[-2], k.shape[-2], dtype=bool)] = -np.inf
    return (softmax(scores) @ v,)


def mlp(x: np.ndarray, weight1: np.ndarray, weight2: np.ndarray, bias1: np.ndarray, bias2: np.ndarray
        ) -> tuple[np.ndarray, ...]:
    """Linear, exact GELU, linear."""
    return (gelu(x @ weight1 + bias1) @ weight2 + bias2,)


def product(dtype: str, constant: bool, inputs: Callable[[np.random.Generator, Shape], Arrays] = product_inputs
            ) -> Case:
    """x @ weight in a type; the weight is a constant or another argument."""
    absolute, relative = PRODUCT_ERRORS[dtype]
    return Case(inputs, lambda x, weight: (x @ weight,), ("x",) if constant else ("x", "weight"), dtype=dtype,
                absolute=absolute, relative=relative)


@lru_cache(maxsize=1)
def gpt2_weights(dtype: str) -> Arrays:
    """GPT-2's, of a seed, rounded to the type."""
    weights = gpt2.make_weights(gpt2.SMALL, GPT2_SEED)
    return {name: rounded(array, dtype) for name, array in weights.items()}


def gpt2_case(kind: str, dtype: str) -> Case:
    """GPT-2 on tokens alone (shape: batch, length) or on one token after a cache (shape: batch, its length)."""
    short = dtype == "bfloat16"
    decode = kind == "decode"

    def inputs(rng: np.random.Generator, shape: Shape) -> Arrays:
        ids = gpt2.make_ids(rng, shape[0], 1 if decode else shape[1])
        return {"ids": ids, "cache": rounded(gpt2.make_cache(rng, *shape), dtype)} if decode else {"ids": ids}

    def reference(ids: np.ndarray, cache: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        return (gpt2.logits(gpt2_weights(dtype), ids.astype(np.int64), gpt2.SMALL.heads, exact=False, cache=cache),)

    return Case(inputs, reference, ("ids", "cache") if decode else ("ids",), () if decode else ("ids",), sample=1,
                dtype=dtype, absolute=0.15 if short else 1e-3, relative=0.05 if short else 1e-3)


CASES: dict[str, Case] = {
    "matmul": product("float32", constant=False),
    "linear": product("float32", constant=True),
    "matmul_bf16": product("bfloat16", constant=False),
    "linear_bf16": product("bfloat16", constant=True),
    "matmul_f16": product("float16", constant=False),
    "linear_f16": product("float16", constant=True),
    "matmul_int8": product("int8", constant=False, inputs=int8_inputs),
    "linear_int8": product("int8", constant=True, inputs=int8_inputs),
    "linear_gelu": Case(linear_inputs, lambda x, weight, bias: (gelu(x @ weight + bias),)),
    "linear_relu": Case(linear_inputs, lambda x, weight, bias: (np.maximum(x @ weight + bias, 0.0),)),
    "norm_linear": Case(norm_linear_inputs, norm_linear, absolute=1e-4),
    "conv_bn_relu": Case(conv_inputs, conv_bn_relu, absolute=1e-4, sample=1),
    "attention": Case(attention_inputs, attention, ("q", "k", "v"), ("q", "k", "v"), sample=1),
    "attention_causal": Case(attention_inputs, lambda q, k, v: attention(q, k, v, causal=True), ("q", "k", "v"),
                             ("q", "k", "v"), sample=1),
    "mlp": Case(mlp_inputs, mlp),
    "gpt2_forward": gpt2_case("forward", "float32"),
    "gpt2_forward_bf16": gpt2_case("forward", "bfloat16"),
    "gpt2_decode": gpt2_case("decode", "float32"),
    "gpt2_decode_bf16": gpt2_case("decode", "bfloat16"),
    # All of an array is read once; a shape of one number. The sum proves that it was.
    "read_sweep": Case(lambda rng, shape: {"x": np.full(shape, 0.5, np.float32)}, lambda x: (x.sum(),), by_row=()),
    # As many multiply-adds as the product m x k x n has, in registers alone; the check is that all were done.
    "fma_peak": Case(lambda rng, shape: {"sizes": np.array(shape)}, lambda sizes: (np.float64(1.0),), (), ()),
}


def of(name: str) -> Case:
    """The case of a name, its variant left aside."""
    return CASES[name.partition("@")[0]]


def make_inputs(name: str, shape: Shape) -> Arrays:
    """The inputs of a case: the same in every process."""
    case = of(name)
    made = case.inputs(np.random.default_rng(SEED), shape)
    return {key: rounded(array, case.dtype) if array.dtype == np.float32 else array for key, array in made.items()}


def check(name: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """The worst error as a share of what is allowed; ValueError when above 1. Rows beyond the sample are skipped."""
    case = of(name)
    step = max(1, len(inputs[case.by_row[0]]) // case.sample) if case.by_row else 1
    wide = {key: (array[::step] if key in case.by_row else array).astype(np.float64) for key, array in inputs.items()}
    expected = case.reference(**wide)
    if len(results) != len(expected):
        raise ValueError(f"{name}: {len(results)} results, expected {len(expected)}")
    worst = 0.0
    for result, right in zip(results, expected, strict=True):
        seen = np.asarray(result)[::step] if case.by_row else np.asarray(result)
        if seen.shape != np.shape(right):
            raise ValueError(f"{name}: result of shape {seen.shape}, expected {np.shape(right)} of every {step} rows")
        allowed = np.maximum(case.absolute + case.relative * np.abs(right), np.finfo(np.float64).tiny)
        share = np.abs(seen.astype(np.float64) - right) / allowed
        worst = float(np.maximum(worst, np.max(share)))  # unlike max(), keeps NaN
    if not worst <= 1.0:
        raise ValueError(f"{name}: wrong result, {worst:.3g} times the allowed error")
    return worst
