"""com.microsoft: fused layers that exporters and optimisers of ONNX Runtime write."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.onnx.operators.arrays.linear import affine, product
from morpho.onnx.operators.neural import activations
from morpho.onnx.operators.neural.convolution import conv
from morpho.onnx.operators.neural.norms import rms_normalised
from morpho.onnx.operators.registry import MICROSOFT, Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, scalar, tensor

FAMILY = Family("fused layers", MICROSOFT)


@FAMILY.op("FusedMatMul", "TransposeMatMul")
def fused_matmul(call: Call, a: Any, b: Any) -> Any:
    a, b = tensor(a), tensor(b)
    if call.get("transBatchA", 0) or call.get("transBatchB", 0):
        raise call.error("transBatchA and transBatchB are not taken")
    a = mo.matrix_transpose(a) if call.get("transA", 0) and len(a.shape) > 1 else a
    b = mo.matrix_transpose(b) if call.get("transB", 0) and len(b.shape) > 1 else b
    y = product(a, b)
    return y if call.get("alpha", 1.0) == 1.0 else y * scalar(call.get("alpha", 1.0), y)


@FAMILY.op("Gelu")
def gelu(call: Call, x: Any) -> Any:
    return mo.gelu(tensor(x))


@FAMILY.op("BiasGelu")
def bias_gelu(call: Call, x: Any, bias: Any) -> Any:
    return mo.gelu(tensor(x) + tensor(bias))


@FAMILY.op("FastGelu")
def fast_gelu(call: Call, x: Any, bias: Any = None) -> Any:
    x = tensor(x)
    return mo.gelu(x if bias is None else x + tensor(bias), approximate="tanh")


@FAMILY.op("QuickGelu")
def quick_gelu(call: Call, x: Any) -> Any:
    x = tensor(x)
    return x * mo.sigmoid(scalar(call.get("alpha", 1.702), x) * x)


ACTIVATIONS = {"Relu": mo.relu, "Sigmoid": mo.sigmoid, "Tanh": mo.tanh}


def activated(call: Call, y: Any) -> Any:
    """The activation that a fused node names, with its parameters."""
    name, numbers = call.get("activation", ""), call.get("activation_params", [])
    if not numbers and "activation_beta" in call.attributes:  # as FusedGemm has them
        numbers = [call.get("activation_alpha", 0.0), call.get("activation_beta")]
    if name in ACTIVATIONS:
        return ACTIVATIONS[name](y)
    if name == "LeakyRelu":
        alpha = numbers[0] if numbers else call.get("activation_alpha", call.get("leaky_relu_alpha", 0.01))
        return mo.where(y < 0, y * scalar(alpha, y), y)
    if name == "Clip":
        return mo.clip(y, numbers[0], numbers[1])
    if name == "HardSigmoid":
        return mo.clip(scalar(numbers[0], y) * y + scalar(numbers[1], y), 0.0, 1.0)
    if name:
        raise call.error(f"the activation {name!r} is not known")
    return y


@FAMILY.op("FusedConv")
def fused_conv(call: Call, x: Any, weight: Any, bias: Any = None, added: Any = None) -> Any:
    y = conv(call, x, weight, bias)
    return activated(call, y if added is None else y + tensor(added))


@FAMILY.op("FusedGemm")
def fused_gemm(call: Call, a: Any, b: Any, c: Any = None) -> Any:
    a = mo.matrix_transpose(tensor(a)) if call.get("transA", 0) else tensor(a)
    b = mo.matrix_transpose(tensor(b)) if call.get("transB", 0) else tensor(b)
    c = None if c is None else tensor(c)
    return activated(call, affine(a, b, c, call.get("alpha", 1.0), call.get("beta", 1.0)))


def layer_normalised(x: Any, scale: Any, bias: Any, epsilon: float) -> Any:
    """Layer norm over the last axis, computed in float32 at least."""
    scale, bias = tensor(scale), None if bias is None else tensor(bias)
    if x.dtype is mo.float32:
        return mo.layer_norm(x, scale, bias, eps=epsilon)
    wide = mo.layer_norm(cast(x, mo.float32), cast(scale, mo.float32),
                         None if bias is None else cast(bias, mo.float32), eps=epsilon)
    return cast(wide, x.dtype)


@FAMILY.op("SkipLayerNormalization")
def skip_layer_norm(call: Call, x: Any, skip: Any, scale: Any, beta: Any = None, bias: Any = None) -> Any:
    total = tensor(x) + tensor(skip)
    total = total if bias is None else total + tensor(bias)
    return layer_normalised(total, scale, beta, call.get("epsilon", 1e-12)), None, None, total


@FAMILY.op("SkipSimplifiedLayerNormalization")
def skip_rms_norm(call: Call, x: Any, skip: Any, scale: Any, bias: Any = None) -> Any:
    total = tensor(x) + tensor(skip)
    total = total if bias is None else total + tensor(bias)
    y = rms_normalised(total, tensor(scale), len(total.shape) - 1, call.get("epsilon", 1e-12))
    return y, None, None, total


@FAMILY.op("SimplifiedLayerNormalization", domain="")
@FAMILY.op("SimplifiedLayerNormalization")
def simplified_layer_norm(call: Call, x: Any, scale: Any) -> Any:
    """Root mean square norm; ONNX Runtime writes it into the domain ai.onnx too."""
    x = tensor(x)
    axis = call.axis(call.get("axis", -1), len(x.shape))
    return rms_normalised(x, tensor(scale), axis, call.get("epsilon", 1e-5))


@FAMILY.op("EmbedLayerNormalization")
def embed_layer_norm(call: Call, ids: Any, segments: Any, words: Any, positions: Any, kinds: Any, scale: Any, bias: Any,
                     mask: Any = None, places: Any = None) -> Any:
    ids = tensor(ids)
    batch, length = ids.shape
    total = mo.embedding(tensor(words), ids)
    if places is None:
        total = total + tensor(positions)[:length]
    else:
        total = total + mo.embedding(tensor(positions), mo.broadcast_to(tensor(places), (batch, length)))
    if segments is not None and kinds is not None:
        total = total + mo.embedding(tensor(kinds), tensor(segments))
    counted = mo.zeros(batch, dtype=mo.int32) if mask is None else mo.sum(cast(tensor(mask), mo.int32), axis=1,
                                                                          dtype=mo.int32)
    return layer_normalised(total, scale, bias, call.get("epsilon", 1e-12)), counted, total


@FAMILY.op("BiasAdd")
def bias_add(call: Call, x: Any, bias: Any, skip: Any) -> Any:
    return tensor(x) + tensor(bias) + tensor(skip)


@FAMILY.op("BiasSplitGelu")
def bias_split_gelu(call: Call, x: Any, bias: Any) -> Any:
    total = tensor(x) + tensor(bias)
    half = total.shape[-1] // 2
    return total[..., :half] * mo.gelu(total[..., half:])


FAMILY.op("Swish")(activations.swish)
