"""Norms and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.media.randomness import legacy_mask
from morpho.onnx.operators.neural.pooling import _norm
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, scalar, tensor

FAMILY = Family("norms")


def over_channels(x: Any, rank: int) -> Any:
    """A value for each channel, shaped to broadcast along axis 1."""
    return mo.reshape(tensor(x), (1, -1, *[1] * (rank - 2)) if rank > 1 else (-1,))


@FAMILY.op("BatchNormalization")
def batch_norm(call: Call, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    x, epsilon, rank = tensor(x), call.get("epsilon", 1e-5), len(x.shape)
    known = [_known(call, value) for value in (scale, bias, mean, variance)]
    if not call.get("training_mode", 0) and x.dtype is mo.float32 and all(value is not None for value in known):
        a, b = _folded(known, epsilon)
        return x * over_channels(a, rank) + over_channels(b, rank)
    mean, variance = tensor(mean), tensor(variance)
    if not call.get("training_mode", 0):
        same = {tensor(value).dtype for value in (x, scale, bias, mean, variance)}
        if rank > 2 and len(same) == 1:
            return mo.batch_norm(x, mean, variance, tensor(scale), tensor(bias), eps=epsilon)
        return _normalised(x, mean, variance, scale, bias, epsilon)
    axes = (0, *range(2, rank))
    wide = cast(x, mo.float32) if x.dtype.itemsize < 4 else x
    now, spread = mo.mean(wide, axis=axes), mo.var(wide, axis=axes)
    momentum = call.get("momentum", 0.9)
    new_mean = mean * scalar(momentum, mean) + cast(now, mean.dtype) * scalar(1 - momentum, mean)
    new_variance = variance * scalar(momentum, variance) + cast(spread, variance.dtype) * scalar(1 - momentum, variance)
    return _normalised(x, now, spread, scale, bias, epsilon), new_mean, new_variance


def _known(call: Call, value: Any) -> Any:
    """The array of a constant of the file; None for anything else."""
    return value if isinstance(value, np.ndarray) else call.walk.known(value)


def _folded(known: list[Any], epsilon: float) -> tuple[Any, Any]:
    """A norm by constants as a factor and an addend of each channel."""
    scale, bias, mean, variance = (value.astype(np.float64) for value in known)
    factor = scale / np.sqrt(variance + epsilon)
    return factor.astype(np.float32), (bias - mean * factor).astype(np.float32)


def _normalised(x: Any, mean: Any, variance: Any, scale: Any, bias: Any, epsilon: float) -> Any:
    rank, wide = len(x.shape), mo.result_type(x.dtype, tensor(mean).dtype)
    mean, variance, scale, bias = (cast(over_channels(value, rank), wide) for value in (mean, variance, scale, bias))
    y = (cast(x, wide) - mean) / mo.sqrt(variance + scalar(epsilon, variance)) * scale + bias
    return cast(y, x.dtype)


@FAMILY.op("InstanceNormalization")
def instance_norm(call: Call, x: Any, scale: Any, bias: Any) -> Any:
    x, rank = tensor(x), len(x.shape)
    y = standardised(x, tuple(range(2, rank)), call.get("epsilon", 1e-5))
    return y * over_channels(scale, rank) + over_channels(bias, rank)


def standardised(x: Any, axes: Any, epsilon: float) -> Any:
    """Zero mean and unit variance over axes."""
    mean = mo.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    return centred / mo.sqrt(mo.mean(mo.square(centred), axis=axes, keepdims=True) + scalar(epsilon, x))


@FAMILY.op("GroupNormalization")
def group_norm(call: Call, x: Any, scale: Any, bias: Any) -> Any:
    """Scale and bias are of groups in opset 18, of channels from 21 on."""
    x, groups = tensor(x), call.need("num_groups")
    wide = cast(x, mo.float32) if call.get("stash_type", 1) == 1 and x.dtype.itemsize < 4 else x
    rows = mo.reshape(wide, (x.shape[0], groups, -1))
    y = cast(standardised(rows, 2, call.get("epsilon", 1e-5)), x.dtype)
    if tensor(scale).shape[0] == groups and call.version < 21:
        y = y * mo.reshape(tensor(scale), (1, groups, 1)) + mo.reshape(tensor(bias), (1, groups, 1))
        return mo.reshape(y, x.shape)
    y, rank = mo.reshape(y, x.shape), len(x.shape)
    return y * over_channels(scale, rank) + over_channels(bias, rank)


@FAMILY.op("LayerNormalization")
def layer_norm(call: Call, x: Any, scale: Any, bias: Any = None) -> Any:
    x, epsilon = tensor(x), call.get("epsilon", 1e-5)
    axis = call.axis(call.get("axis", -1), len(x.shape))
    outputs = [name for name in call.node.outputs if name]
    scale, bias = tensor(scale), None if bias is None else tensor(bias)
    if len(outputs) == 1 and axis == len(x.shape) - 1 and scale.shape == x.shape[-1:] and x.dtype is mo.float32:
        return mo.layer_norm(x, scale, bias, eps=epsilon)
    wide = cast(x, mo.float32) if x.dtype.itemsize < 4 else x
    axes = tuple(range(axis, len(x.shape)))
    mean = mo.mean(wide, axis=axes, keepdims=True)
    centred = wide - mean
    inverse = scalar(1, wide) / mo.sqrt(mo.mean(mo.square(centred), axis=axes, keepdims=True) + scalar(epsilon, wide))
    y = cast(centred * inverse, x.dtype) * scale
    return y if bias is None else y + bias, mean, inverse


@FAMILY.op("RMSNormalization")
def rms_norm(call: Call, x: Any, scale: Any) -> Any:
    x = tensor(x)
    axis = call.axis(call.get("axis", -1), len(x.shape))
    return rms_normalised(x, tensor(scale), axis, call.get("epsilon", 1e-5))


def rms_normalised(x: Any, scale: Any, axis: int, epsilon: float) -> Any:
    """Divided by the root of the mean square over the axes from one on."""
    if axis == len(x.shape) - 1 and x.dtype is mo.float32 and scale.shape == x.shape[-1:] and scale.dtype is x.dtype:
        return mo.rms_norm(x, scale, eps=epsilon)
    wide = cast(x, mo.float32) if x.dtype.itemsize < 4 else x
    axes = tuple(range(axis, len(x.shape)))
    size = mo.sqrt(mo.mean(mo.square(wide), axis=axes, keepdims=True) + scalar(epsilon, wide))
    return cast(wide / size, x.dtype) * scale


@FAMILY.op("LpNormalization")
def lp_norm(call: Call, x: Any) -> Any:
    x = tensor(x)
    axis = call.axis(call.get("axis", -1), len(x.shape))
    size = _norm(x, call.get("p", 2), axis, keepdims=True)
    return mo.where(size == scalar(0, x), scalar(0, x), x / size)


@FAMILY.op("MeanVarianceNormalization")
def mean_variance_norm(call: Call, x: Any) -> Any:
    x, axes = tensor(x), tuple(call.get("axes", [0, 2, 3]))
    mean = mo.mean(x, axis=axes, keepdims=True)
    spread = mo.sqrt(mo.mean(mo.square(x), axis=axes, keepdims=True) - mo.square(mean))
    return (x - mean) / (spread + scalar(1e-9, x))


@FAMILY.op("LRN")
def local_response_norm(call: Call, x: Any) -> Any:
    x, size = tensor(x), call.need("size")
    alpha, beta, bias = call.get("alpha", 1e-4), call.get("beta", 0.75), call.get("bias", 1.0)
    low = (size - 1) // 2
    squares = mo.pad(mo.square(x), ((0, 0), (low, size - 1 - low), *[(0, 0)] * (len(x.shape) - 2)))
    total: Any = None
    for shift in range(size):
        part = squares[:, shift:shift + x.shape[1]]
        total = part if total is None else total + part
    return x / mo.pow(scalar(bias, x) + scalar(alpha / size, x) * total, scalar(beta, x))


@FAMILY.op("Dropout")
def dropout(call: Call, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """The identity, except where the model says that it is trained; the draws then follow from the seed."""
    x = tensor(x)
    share = call.get("ratio", 0.5) if ratio is None else float(call.static(ratio, "its ratio").reshape(-1)[0])
    trained = training is not None and bool(call.static(training, "its mode").reshape(-1)[0])
    if not trained or share == 0.0:
        mask_type = mo.bool if call.version >= 10 else x.dtype
        return x, mo.ones(x.shape, dtype=mask_type)
    keep = mo.asarray(legacy_mask(call.get("seed", 0), x.shape, share))
    return mo.where(keep, x * scalar(1 / (1 - share), x), scalar(0, x)), keep
