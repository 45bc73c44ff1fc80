"""Quantised arithmetic: scales and zero points, per tensor, per axis and in blocks."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.onnx.operators.neural.convolution import convolved
from morpho.onnx.operators.neural.windows import windows
from morpho.onnx.operators.registry import Family
from morpho.onnx.proto.dtypes import ElementType, element_type
from morpho.onnx.run.call import Call
from morpho.onnx.run.coded import Coded, decode, encode, table
from morpho.onnx.run.values import cast, element_type_of, scalar, tensor

FAMILY = Family("quantised")


def along(x: Any, shape: Any, axis: int, block: int) -> Any:
    """A scale or zero point broadcast to the shape it is for: of all, of an axis, or of blocks along it."""
    if len(x.shape) == 0 or (len(x.shape) == 1 and x.shape[0] == 1 and len(shape) != 1 and not block):
        return mo.reshape(x, ())
    if len(x.shape) == 1 and not block:
        return mo.reshape(x, [-1 if at == axis else 1 for at in range(len(shape))])
    if block:
        repeated = mo.repeat(x, block, axis=axis)
        return repeated[(slice(None),) * axis + (slice(0, shape[axis]),)]
    return x


def floats(x: Any) -> Any:
    """Any value as float numbers: codes by their table."""
    return tensor(decode(x)) if isinstance(x, Coded) else tensor(x)


def limits(kind: ElementType) -> tuple[int, int]:
    """The least and largest integer of a type."""
    if kind.dtype is None:
        values = table(kind)
        return int(values.min()), int(values.max())
    info = mo.iinfo(kind.dtype)
    return info.min, info.max


def is_integer(kind: ElementType) -> bool:
    return kind.name.startswith(("int", "uint"))


def saturated(x: Any, kind: ElementType) -> Any:
    """Rounded floats as integers of a type, clipped to what it holds."""
    low, high = limits(kind)
    clipped = mo.minimum(mo.maximum(x, scalar(low, x)), scalar(high, x))
    if kind.dtype is None:
        return encode(clipped, kind)
    return mo.astype(mo.astype(clipped, mo.int32), kind.dtype)


@FAMILY.op("QuantizeLinear")
def quantize(call: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    chosen = call.get("output_dtype", 0)
    kind = element_type_of(zero) if zero is not None else element_type(chosen or 2)
    x, scale = tensor(x), floats(scale)
    axis = call.get("axis", 1)
    axis = axis % len(x.shape) if x.shape else 0
    block = call.get("block_size", 0)
    precision = element_type(call.get("precision", 0) or 1).dtype if call.get("precision", 0) else None
    work = precision or (x.dtype if x.dtype.is_float and x.dtype.itemsize >= 4 else mo.float32)
    scaled = cast(x, work) / cast(along(scale, x.shape, axis, block), work)
    if not is_integer(kind):
        offset = None if zero is None else cast(along(floats(zero), x.shape, axis, block), work)
        return encode(scaled if offset is None else scaled + offset, kind, bool(call.get("saturate", 1)))
    rounded = mo.round(scaled)
    if zero is not None:
        rounded = rounded + cast(along(floats(zero), x.shape, axis, block), work)
    return saturated(rounded, kind)


@FAMILY.op("DequantizeLinear")
def dequantize(call: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    values, scale_kind = floats(x), floats(scale).dtype
    scale = floats(scale)
    axis = call.get("axis", 1)
    axis = axis % len(values.shape) if values.shape else 0
    block = call.get("block_size", 0)
    chosen = call.get("output_dtype", 0)
    dtype = (element_type(chosen).dtype if chosen else scale_kind) or mo.float32
    exact = values.dtype.is_integer and values.dtype.itemsize >= 4
    work = mo.float64 if exact else mo.float32
    values = cast(values, work)
    if zero is not None:
        values = values - cast(along(floats(zero), values.shape, axis, block), work)
    return cast(values * cast(along(scale, values.shape, axis, block), work), dtype)


@FAMILY.op("DynamicQuantizeLinear")
def dynamic_quantize(call: Call, x: Any) -> Any:
    """uint8, with the scale and zero point that the data's range asks for."""
    x = tensor(x)
    zero = scalar(0, x)
    low, high = mo.minimum(mo.min(x), zero), mo.maximum(mo.max(x), zero)
    scale = (high - low) / scalar(255, x)
    safe = mo.where(scale == zero, scalar(1, x), scale)
    point = mo.round(mo.clip(zero - low / safe, 0.0, 255.0))
    y = mo.clip(mo.round(x / safe) + point, 0.0, 255.0)
    return mo.astype(y, mo.uint8), scale, mo.astype(point, mo.uint8)


def centred(x: Any, zero: Any, axis: int | None) -> Any:
    """Integers less their zero point, in int32; the zero point may be one for each row or column."""
    x = mo.astype(tensor(x), mo.int32)
    if zero is None:
        return x
    zero = mo.astype(tensor(zero), mo.int32)
    if len(zero.shape) == 1 and axis is not None and zero.shape[0] != 1:
        zero = mo.reshape(zero, [-1 if at == axis % len(x.shape) else 1 for at in range(len(x.shape))])
    elif len(zero.shape) == 1:
        zero = mo.reshape(zero, ())
    return x - zero


@FAMILY.op("MatMulInteger")
def matmul_integer(call: Call, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return integer_product(a, b, a_zero, b_zero)


def integer_product(a: Any, b: Any, a_zero: Any, b_zero: Any) -> Any:
    """The exact product in int32. Where the zero points are plain, the product of the bytes is corrected by sums."""
    a, b = tensor(a), tensor(b)
    small = a.dtype.itemsize == b.dtype.itemsize == 1 and len(a.shape) >= 2 and len(b.shape) >= 2
    plain = all(zero is None or len(zero.shape) == 0 or zero.shape[-1:] == (1,) for zero in (a_zero,))
    if not small or not plain:
        return mo.matmul(centred(a, a_zero, -2), centred(b, b_zero, -1))
    y = mo.matmul(a, b, dtype=mo.int32)
    if a_zero is not None:
        y = y - mo.astype(mo.reshape(tensor(a_zero), ()), mo.int32) * mo.sum(
            mo.astype(b, mo.int32), axis=-2, keepdims=True, dtype=mo.int32)
    if b_zero is not None:
        zero = mo.astype(tensor(b_zero), mo.int32)
        zero = mo.reshape(zero, ()) if len(zero.shape) == 1 and zero.shape[0] == 1 else zero
        rows = mo.sum(centred(a, a_zero, -2), axis=-1, keepdims=True, dtype=mo.int32)
        y = y - rows * zero
    return y


@FAMILY.op("ConvInteger")
def conv_integer(call: Call, x: Any, weight: Any, x_zero: Any = None, weight_zero: Any = None) -> Any:
    return integer_conv(call, x, weight, x_zero, weight_zero)


def integer_conv(call: Call, x: Any, weight: Any, x_zero: Any, weight_zero: Any) -> Any:
    """A convolution of integers, in float64 where all sums are exact, as int32."""
    x, weight = (mo.astype(centred(value, zero, axis), mo.float64)
                 for value, zero, axis in ((x, x_zero, None), (weight, weight_zero, 0)))
    made = windows(call, x.shape[2:], weight.shape[2:])
    return mo.astype(mo.round(convolved(call, x, weight, None, made, call.get("group", 1))), mo.int32)


def requantised(y: Any, scale: Any, y_scale: Any, y_zero: Any, kind: ElementType) -> Any:
    """Sums of products in the scale of the result."""
    real = cast(y, mo.float32) * (scale / cast(tensor(y_scale), mo.float32))
    return saturated(mo.round(real) + cast(floats(y_zero), mo.float32), kind)


@FAMILY.op("QLinearMatMul")
def q_linear_matmul(call: Call, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any,
                    y_zero: Any) -> Any:
    if isinstance(y_zero, Coded) or isinstance(a, Coded):
        raise call.error(f"the type {element_type_of(y_zero).name} is not taken")
    y = integer_product(a, b, a_zero, b_zero)
    scale = cast(_row(tensor(a_scale)), mo.float32) * cast(tensor(b_scale), mo.float32)
    return requantised(y, scale, y_scale, y_zero, element_type_of(y_zero))


def _row(scale: Any) -> Any:
    """A scale for each row stands before the columns."""
    return mo.expand_dims(scale, axis=-1) if len(scale.shape) == 1 and scale.shape[0] != 1 else scale


@FAMILY.op("QLinearConv")
def q_linear_conv(call: Call, x: Any, x_scale: Any, x_zero: Any, weight: Any, w_scale: Any, w_zero: Any, y_scale: Any,
                  y_zero: Any, bias: Any = None) -> Any:
    y = integer_conv(call, x, weight, x_zero, w_zero)
    rank = len(y.shape)
    if bias is not None:
        y = y + mo.reshape(tensor(bias), (-1, *[1] * (rank - 2)))
    w_scale = cast(tensor(w_scale), mo.float32)
    w_scale = mo.reshape(w_scale, (-1, *[1] * (rank - 2))) if len(w_scale.shape) else w_scale
    return requantised(y, cast(tensor(x_scale), mo.float32) * w_scale, y_scale, y_zero, element_type_of(y_zero))


def as_real(x: Any, scale: Any, zero: Any) -> Any:
    """A quantised tensor as float32, for operators that compute so."""
    y = cast(floats(x), mo.float32)
    y = y if zero is None else y - cast(floats(zero), mo.float32)
    return y * cast(tensor(scale), mo.float32)


def as_quantised(y: Any, scale: Any, zero: Any, like: Any) -> Any:
    """Float32 in the scale and type of a result."""
    kind = element_type_of(like if zero is None else zero)
    y = mo.round(y / cast(tensor(scale), mo.float32))
    return saturated(y if zero is None else y + cast(floats(zero), mo.float32), kind)
