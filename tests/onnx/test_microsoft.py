"""Operators of com.microsoft against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_building import helper, model, onnx, runtime, value

import morpho as mo

RNG = np.random.default_rng(5)
MS = "com.microsoft"


def f(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 0.5).astype(np.float32)


def q(*shape: int) -> Any:
    return RNG.integers(0, 255, shape).astype(np.uint8)


S, Z = np.float32(0.02), np.uint8(120)
IDS, KINDS = (RNG.integers(0, most, (2, 5)).astype(np.int32) for most in (9, 2))
MASK = np.ones((2, 5), np.int32)
MASK[1, 3:] = 0
# operator: inputs (None: absent), attributes, how many outputs are compared
CASES: dict[str, tuple[list[Any], dict[str, Any], int]] = {
    "FusedMatMul": ([f(2, 3, 4), f(2, 5, 4)], {"transB": 1, "alpha": 0.5}, 1),
    "Gelu": ([f(3, 4)], {}, 1), "BiasGelu": ([f(3, 4), f(4)], {}, 1), "FastGelu": ([f(3, 4), f(4)], {}, 1),
    "QuickGelu": ([f(3, 4)], {"alpha": 1.702}, 1),
    "FusedConv": ([f(1, 2, 5, 5), f(3, 2, 3, 3), f(3)], {"activation": "Relu", "pads": [1, 1, 1, 1]}, 1),
    "FusedGemm": ([f(3, 4), f(4, 5), f(5)], {"activation": "Relu"}, 1),
    "SkipLayerNormalization": ([f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)], {"epsilon": 1e-5}, 1),
    "SkipSimplifiedLayerNormalization": ([f(2, 3, 8), f(2, 3, 8), f(8)], {"epsilon": 1e-5}, 1),
    "EmbedLayerNormalization": ([IDS, KINDS, f(9, 8), f(6, 8), f(2, 8), f(8), f(8), MASK], {"epsilon": 1e-5}, 1),
    "Attention": ([f(2, 5, 8), f(8, 24), f(24), MASK], {"num_heads": 2}, 1),
    "MultiHeadAttention": ([f(2, 5, 8), f(2, 5, 8), f(2, 5, 8), f(24)], {"num_heads": 2}, 1),
    "RotaryEmbedding": ([f(2, 5, 16), np.asarray([0], np.int64), f(8, 4), f(8, 4)], {"num_heads": 2}, 1),
    "QLinearAdd": ([q(3, 4), S, Z, q(3, 4), S, Z, np.float32(0.05), Z], {}, 1),
    "QLinearMul": ([q(3, 4), S, Z, q(3, 4), S, Z, np.float32(0.05), Z], {}, 1),
    "QLinearSigmoid": ([q(3, 4), S, Z, np.float32(1 / 256), np.uint8(0)], {}, 1),
    "QLinearLeakyRelu": ([q(3, 4), S, Z, S, Z], {"alpha": 0.1}, 1),
    "QLinearGlobalAveragePool": ([q(1, 3, 4, 4), S, Z, S, Z], {"channels_last": 0}, 1),
    "QLinearConcat": ([S, Z, q(2, 3), S, Z, q(2, 4), np.float32(0.04), Z], {"axis": 1}, 1),
    "MatMulIntegerToFloat": ([q(3, 4), q(4, 5), S, S, Z, Z], {}, 1),
    "DynamicQuantizeMatMul": ([f(3, 4), q(4, 5), S, Z], {}, 1),
    "MatMulNBits": ([f(3, 32), q(6, 2, 8), f(12)], {"K": 32, "N": 6, "bits": 4, "block_size": 16}, 1),
}


@pytest.mark.parametrize("op", CASES)
def test_equals_the_runtime(op: str) -> None:
    arrays, attributes, count = CASES[op]
    names = [f"x{at}" for at in range(len(arrays))]
    constant = {"MatMulNBits": {1, 2}, "DynamicQuantizeMatMul": {1, 2, 3}}.get(op, set())
    given = {name: np.asarray(array) for at, (name, array) in enumerate(zip(names, arrays)) if at not in constant}
    extra = ["m"] if op == "EmbedLayerNormalization" else []
    node = helper.make_node(op, names, [*(f"y{at}" for at in range(count)), *extra], domain=MS, **attributes)
    inputs = [value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in given.items()]
    outputs = [onnx.ValueInfoProto(name=f"y{at}") for at in range(count)]
    data = model([node], inputs, outputs, {names[at]: np.asarray(arrays[at]) for at in constant},
                 opsets=[helper.make_opsetid(MS, 1)])
    expected = runtime(data, given)
    got = [np.asarray(value) for value in mo.onnx.loads(data).run(given).values()]
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype
        if theirs.dtype == np.uint8:  # a rounding of a half may go either way
            assert np.abs(ours.astype(int) - theirs).max() <= 1
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=2e-3 if "Fast" in op or "Gelu" in op else 1e-4)
