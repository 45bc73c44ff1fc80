"""com.microsoft: quantised layers. Elementwise ones compute in float32 between their scales."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.arrays.shape import joined
from morpho.onnx.operators.neural.quantised import (
    as_quantised,
    as_real,
    dequantize,
    dynamic_quantize,
    integer_product,
    quantize,
    requantised,
)
from morpho.onnx.operators.registry import MICROSOFT, Family
from morpho.onnx.proto.tensors import unpacked
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, element_type_of, scalar, tensor

FAMILY = Family("fused quantised", MICROSOFT)
FAMILY.op("QuantizeLinear")(quantize)
FAMILY.op("DequantizeLinear")(dequantize)


def _binary(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def apply(call: Call, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any,
              zero: Any = None) -> Any:
        return as_quantised(function(as_real(a, a_scale, a_zero), as_real(b, b_scale, b_zero)), scale, zero, a)

    return apply


FAMILY.op("QLinearAdd")(_binary(mo.add))
FAMILY.op("QLinearMul")(_binary(mo.multiply))


def _unary(function: Callable[[Call, Any], Any]) -> Callable[..., Any]:
    def apply(call: Call, x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any = None) -> Any:
        return as_quantised(function(call, as_real(x, x_scale, x_zero)), scale, zero, x)

    return apply


FAMILY.op("QLinearSigmoid")(_unary(lambda call, x: mo.sigmoid(x)))
FAMILY.op("QLinearLeakyRelu")(_unary(lambda call, x: mo.where(x < 0, x * scalar(call.get("alpha", 0.01), x), x)))


def _softmax(call: Call, x: Any) -> Any:
    """Over one axis, or as before opset 13 over all from one on."""
    axis = call.axis(call.get("axis", -1), len(x.shape))
    if call.get("opset", 13) >= 13:
        return mo.softmax(x, axis=axis)
    flat = mo.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return mo.reshape(mo.softmax(flat, axis=-1), x.shape)


FAMILY.op("QLinearSoftmax")(_unary(_softmax))


@FAMILY.op("QLinearGlobalAveragePool")
def global_average_pool(call: Call, x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any = None) -> Any:
    real = as_real(x, x_scale, x_zero)
    last = bool(call.get("channels_last", 0))
    axes = tuple(range(1, len(real.shape) - 1)) if last else tuple(range(2, len(real.shape)))
    return as_quantised(mo.mean(real, axis=axes, keepdims=True), scale, zero, x)


@FAMILY.op("QLinearConcat")
def q_concat(call: Call, scale: Any, zero: Any, *inputs: Any) -> Any:
    parts = [as_real(*inputs[at:at + 3]) for at in range(0, len(inputs), 3)]
    return as_quantised(joined(call, parts, call.need("axis")), scale, zero, inputs[0])


@FAMILY.op("MatMulIntegerToFloat")
def matmul_integer_to_float(call: Call, a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None,
                            b_zero: Any = None, bias: Any = None) -> Any:
    y = cast(integer_product(a, b, a_zero, b_zero), mo.float32) * (tensor(a_scale) * tensor(b_scale))
    return y if bias is None else y + tensor(bias)


@FAMILY.op("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(call: Call, a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None) -> Any:
    codes, scale, zero = dynamic_quantize(call, a)
    return matmul_integer_to_float(call, codes, b, scale, b_scale, zero, b_zero, bias)


@FAMILY.op("QGemm")
def q_gemm(call: Call, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, c: Any = None,
           y_scale: Any = None, y_zero: Any = None) -> Any:
    a = mo.matrix_transpose(tensor(a)) if call.get("transA", 0) else tensor(a)
    b = mo.matrix_transpose(tensor(b)) if call.get("transB", 0) else tensor(b)
    y = integer_product(a, b, a_zero, b_zero)
    y = y if c is None else y + tensor(c)
    scale = tensor(a_scale) * tensor(b_scale) * call.get("alpha", 1.0)
    if y_scale is None:
        return cast(y, mo.float32) * scale
    return requantised(y, scale, y_scale, y_zero, element_type_of(y_zero))


@FAMILY.op("MatMulNBits")
def matmul_n_bits(call: Call, a: Any, b: Any, scales: Any, zeros: Any = None, places: Any = None,
                  bias: Any = None) -> Any:
    """Weights of 2, 4 or 8 bits in blocks along k: unpacked once, and a constant of the program."""
    a, outputs, length = tensor(a), call.need("N"), call.need("K")
    bits, block = call.get("bits", 4), call.need("block_size")
    if places is not None:
        raise call.error("g_idx is not taken")
    if bits not in (2, 4, 8) or block < 1 or outputs < 1 or length < 1:
        raise call.error(f"bits={bits}, block_size={block}, N={outputs} and K={length} are not possible")
    blocks = -(-length // block)
    weights = call.static(b, "its weights").reshape(outputs * blocks, -1)
    codes = _codes(weights.reshape(-1), bits, weights.size * 8 // bits).reshape(outputs, blocks, block)
    factors = call.static(scales, "its scales").astype(np.float32).reshape(outputs, blocks, 1)
    offsets: Any = np.float32(1 << (bits - 1))
    if zeros is not None:
        points = call.static(zeros, "its zero points")
        if points.dtype == np.uint8:
            rows = points.reshape(outputs, -1)
            each = rows.shape[1] * 8 // bits
            points = _codes(rows.reshape(-1), bits, rows.size * 8 // bits).reshape(outputs, each)[:, :blocks]
        offsets = points.reshape(outputs, blocks, 1).astype(np.float32)
    weight = ((codes.astype(np.float32) - offsets) * factors).reshape(outputs, blocks * block)[:, :length]
    y = mo.matmul(a, cast(mo.asarray(np.ascontiguousarray(weight.T)), a.dtype))
    return y if bias is None else y + tensor(bias)


def _codes(octets: Any, bits: int, count: int) -> Any:
    return octets if bits == 8 else unpacked(octets, bits, count)
