"""Activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, scalar, tensor

FAMILY = Family("activations")


def _plain(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda call, x: function(tensor(x))


for _op, _function in {"Relu": mo.relu, "Sigmoid": mo.sigmoid, "Softplus": mo.softplus, "Mish": mo.mish,
                       "Softsign": lambda x: x / (scalar(1, x) + mo.abs(x))}.items():
    FAMILY.op(_op)(_plain(_function))


def floating(function: Callable[..., Any]) -> Callable[..., Any]:
    """An activation on a tensor, with float attributes."""
    return lambda call, x: function(call, tensor(x))


@FAMILY.op("LeakyRelu")
@floating
def leaky_relu(call: Call, x: Any) -> Any:
    return mo.where(x < 0, x * scalar(call.get("alpha", 0.01), x), x)


@FAMILY.op("Elu")
@floating
def elu(call: Call, x: Any) -> Any:
    return mo.elu(x, alpha=call.get("alpha", 1.0))


@FAMILY.op("Celu")
@floating
def celu(call: Call, x: Any) -> Any:
    alpha = scalar(call.get("alpha", 1.0), x)
    zero = scalar(0, x)
    return mo.maximum(zero, x) + mo.minimum(zero, alpha * mo.expm1(x / alpha))


@FAMILY.op("Selu")
@floating
def selu(call: Call, x: Any) -> Any:
    alpha, gamma = call.get("alpha", 1.67326319217681884765625), call.get("gamma", 1.05070102214813232421875)
    return scalar(gamma, x) * mo.elu(x, alpha=alpha)


@FAMILY.op("HardSigmoid")
@floating
def hard_sigmoid(call: Call, x: Any) -> Any:
    alpha, beta = scalar(call.get("alpha", 0.2), x), scalar(call.get("beta", 0.5), x)
    return mo.minimum(mo.maximum(alpha * x + beta, scalar(0, x)), scalar(1, x))


@FAMILY.op("HardSwish")
@floating
def hard_swish(call: Call, x: Any) -> Any:
    return x * mo.minimum(mo.maximum(x * scalar(1 / 6, x) + scalar(0.5, x), scalar(0, x)), scalar(1, x))


@FAMILY.op("Swish")
@floating
def swish(call: Call, x: Any) -> Any:
    alpha = call.get("alpha", 1.0)
    return mo.silu(x) if alpha == 1.0 else x * mo.sigmoid(scalar(alpha, x) * x)


@FAMILY.op("SwiGLU")
def swiglu(call: Call, gate: Any, value: Any) -> Any:
    return swish(call, gate) * tensor(value)


@FAMILY.op("Gelu")
@floating
def gelu(call: Call, x: Any) -> Any:
    return mo.gelu(x, approximate=call.choice("approximate", "none", ("none", "tanh")))


@FAMILY.op("ThresholdedRelu")
@floating
def thresholded_relu(call: Call, x: Any) -> Any:
    return mo.where(x > scalar(call.get("alpha", 1.0), x), x, scalar(0, x))


@FAMILY.op("Shrink")
@floating
def shrink(call: Call, x: Any) -> Any:
    bias, edge = scalar(call.get("bias", 0.0), x), scalar(call.get("lambd", 0.5), x)
    return mo.where(x < -edge, x + bias, mo.where(x > edge, x - bias, scalar(0, x)))


@FAMILY.op("PRelu")
def prelu(call: Call, x: Any, slope: Any) -> Any:
    x, slope = tensor(x), tensor(slope)
    if call.version < 7 and len(slope.shape) == 1 and len(x.shape) > 2:
        slope = mo.reshape(slope, (-1, *[1] * (len(x.shape) - 2)))
    return mo.where(x < scalar(0, x), x * slope, x)


def _over_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """Softmax and its kin: over all axes from one on before opset 13, over one axis from then on."""
    def apply(call: Call, x: Any) -> Any:
        x = tensor(x)
        if call.version >= 13:
            return function(x, call.axis(call.get("axis", -1), len(x.shape)))
        axis = call.get("axis", 1)
        axis = axis + len(x.shape) if axis < 0 else axis
        rows = mo.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
        return mo.reshape(function(rows, 1), x.shape)

    return apply


def _hardmax(x: Any, axis: int) -> Any:
    place = mo.argmax(x, axis=axis, keepdims=True)
    size = x.shape[axis]
    steps = mo.reshape(mo.arange(size), [size if at == axis else 1 for at in range(len(x.shape))])
    return cast(steps == place, x.dtype)


FAMILY.op("Softmax")(_over_rows(lambda x, axis: mo.softmax(x, axis=axis)))
FAMILY.op("LogSoftmax")(_over_rows(lambda x, axis: mo.log_softmax(x, axis=axis)))
FAMILY.op("Hardmax")(_over_rows(_hardmax))
