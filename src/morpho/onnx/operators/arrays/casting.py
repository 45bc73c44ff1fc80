"""Types: Cast, CastLike, BitCast, constants."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.proto.dtypes import STRING, ElementType, element_type
from morpho.onnx.run.call import Call
from morpho.onnx.run.coded import Coded, decode, encode
from morpho.onnx.run.values import Array, bfloat16, cast, dtype_of, element_type_of, is_text
from morpho.tensor.core import Tensor

FAMILY = Family("types")


@FAMILY.op("Cast")
def cast_to(call: Call, x: Any) -> Any:
    to = call.need("to")
    if isinstance(to, str):  # opset 1 has names
        to = next((code for code in range(1, 27) if element_type(code).name.upper() == to), 0)
    return converted(call, x, element_type(to))


@FAMILY.op("CastLike")
def cast_like(call: Call, x: Any, like: Any) -> Any:
    return converted(call, x, element_type_of(like))


def converted(call: Call, x: Any, kind: ElementType) -> Any:
    """A value in another type."""
    if element_type_of(x) is kind:
        return x
    if isinstance(x, Coded):
        x = decode(x)
    if is_text(x):
        return _from_text(call, x, kind)
    if kind is STRING:
        return _to_text(call.static(x, "what becomes a text"))
    if kind.dtype is not None:
        if isinstance(x, Tensor) and x.dtype.is_float and kind.dtype.is_integer:
            return mo.astype(mo.trunc(x), kind.dtype)
        return cast(x, kind.dtype)
    return rounded_to(call, x, kind)


def rounded_to(call: Call, x: Any, kind: ElementType) -> Coded:
    """A value in a type that has codes."""
    if kind.name == "float8e8m0":
        mode = call.choice("round_mode", "up", ("up", "down", "nearest"))
        if isinstance(x, Tensor):
            x = call.static(mo.astype(x, mo.float32), "what is rounded to powers of two")
        return Coded(_power_code(x, mode, bool(call.get("saturate", 1))), kind)
    return encode(x, kind, bool(call.get("saturate", 1)))


def _power_code(x: Array, mode: str, saturate: bool) -> Array:
    """E8M0 from the bits of float32: its exponent, and one more where the mantissa says so."""
    bits = np.abs(x.astype(np.float32)).view(np.int32)
    exponent, mantissa = bits >> 23, bits & ((1 << 23) - 1)
    half_up = (mantissa > 1 << 22) | ((mantissa == 1 << 22) & (exponent > 0))
    more = {"up": mantissa > 0, "nearest": half_up, "down": mantissa < 0}[mode]
    code = np.minimum(exponent + more, 254 if saturate else 255)
    return np.where(np.isnan(x.astype(np.float32)), 255, code).astype(np.uint8)


def _from_text(call: Call, x: Array, kind: ElementType) -> Any:
    if kind is STRING:
        return x
    try:
        numbers = [float(text) for text in x.reshape(-1).tolist()]
    except ValueError as error:
        raise call.error(f"a text is no number: {error}") from None
    if kind.dtype is None:
        return encode(np.asarray(numbers, np.float32).reshape(x.shape), kind)
    if kind.dtype.is_integer:
        return np.asarray([int(text) if text.strip().lstrip("+-").isdigit() else int(float(text))
                           for text in x.reshape(-1).tolist()], kind.dtype.numpy).reshape(x.shape)
    return cast(np.asarray(numbers).reshape(x.shape), kind.dtype)


def _to_text(x: Array) -> Array:
    made = np.empty(x.size, object)
    made[:] = [_written(item) for item in x.reshape(-1)]
    return made.reshape(x.shape)


def _written(number: Any) -> str:
    if isinstance(number, np.floating):
        if np.isnan(number):
            return "NaN"
        if np.isinf(number):
            return "INF" if number > 0 else "-INF"
        return np.format_float_positional(number, unique=True, trim="-") if abs(number) < 1e16 else str(number)
    return str(number)


@FAMILY.op("BitCast")
def bit_cast(call: Call, x: Any) -> Any:
    """The same bits as another type of the same size. There is no such operation in a graph: the value is asked for."""
    kind = element_type(call.need("to"))
    if isinstance(x, Coded):
        if kind.bits != x.kind.bits:
            raise call.error(f"{x.kind.name} and {kind.name} have different sizes")
        codes = call.static(x.codes, "its operand")
        return Coded(codes, kind) if kind.dtype is None else codes.view(kind.dtype.numpy)
    if element_type_of(x).bits != kind.bits:
        raise call.error(f"{element_type_of(x).name} and {kind.name} have different sizes")
    source = call.static(x, "its operand")
    if dtype_of(x) is mo.bfloat16:
        source = (np.asarray(mo.astype(x, mo.float32).numpy()).view(np.uint32) >> 16).astype(np.uint16)
    if kind.dtype is None:
        return Coded(source.view(np.uint8), kind)
    return bfloat16(source.view(np.uint16)) if kind.dtype is mo.bfloat16 else source.view(kind.dtype.numpy)


@FAMILY.op("Constant")
def constant(call: Call) -> Any:
    """Value of a Constant node, from whichever attribute holds it."""
    attributes = call.attributes
    if "value" in attributes:
        return attributes["value"]
    if "sparse_value" in attributes:
        return attributes["sparse_value"]
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64),
                        ("value_ints", np.int64), ("value_string", object), ("value_strings", object)):
        if name in attributes:
            return np.asarray(attributes[name], dtype)
    raise call.error("it has no value")
