"""Values of types that neither Morpho nor NumPy has: codes, one in a byte, and the table of what they stand for.

Floats of 8 and 4 bits and integers of 4 and 2 bits have at most 256 values. Decoding is a lookup in the table of them;
encoding finds the nearest by a search among the points where rounding changes, ties to the even code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.proto.dtypes import ML_DTYPES_OF, ElementType
from morpho.onnx.proto.errors import refuse
from morpho.tensor.core import Tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Coded:
    """Codes (uint8, an array or a tensor) of a type."""

    codes: Array | Tensor
    kind: ElementType

    @property
    def shape(self) -> Any:
        return self.codes.shape


# exponent bits, mantissa bits, bias, whether there are infinities, whether NaN is negative zero's code alone
FLOATS = {"float8e4m3fn": (4, 3, 7, False, False), "float8e4m3fnuz": (4, 3, 8, False, True),
          "float8e5m2": (5, 2, 15, True, False), "float8e5m2fnuz": (5, 2, 16, False, True),
          "float4e2m1": (2, 1, 1, False, False), "float8e8m0": (8, 0, 127, False, False)}
UNSIGNED = ("float8e8m0",)


def has_sign(kind: ElementType) -> bool:
    return kind.name not in UNSIGNED


@cache
def table(kind: ElementType) -> Array:
    """Value of each code, in float32 (exact for every type)."""
    codes = np.arange(1 << kind.bits)
    if kind.name.startswith("uint"):
        return codes.astype(np.float32)
    if kind.name.startswith("int"):
        half = 1 << (kind.bits - 1)
        return np.where(codes >= half, codes - 2 * half, codes).astype(np.float32)
    exponent_bits, mantissa_bits, bias, infinite, unsigned_zero = FLOATS[kind.name]
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = codes & ((1 << mantissa_bits) - 1)
    sign = np.where((codes >> (kind.bits - 1) & 1) & has_sign(kind), -1.0, 1.0)
    small = exponent == 0
    if kind.name == "float8e8m0":
        values = np.exp2(codes.astype(np.float64) - bias)
        values[255] = np.nan
        return values.astype(np.float32)
    fraction = mantissa / (1 << mantissa_bits)
    values = sign * np.where(small, fraction * np.exp2(1.0 - bias), (1 + fraction) * np.exp2(exponent - float(bias)))
    top = (1 << exponent_bits) - 1
    if infinite:
        values = np.where(exponent == top, np.where(mantissa == 0, sign * np.inf, np.nan), values)
    elif unsigned_zero:
        values[1 << (kind.bits - 1)] = np.nan
    elif kind.name == "float8e4m3fn":
        values = np.where((exponent == top) & (mantissa == (1 << mantissa_bits) - 1), np.nan, values)
    return values.astype(np.float32)


@cache
def _ladder(kind: ElementType) -> tuple[Array, Array]:
    """(least values that round to each next code, codes), over the non-negative finite values in ascending order."""
    values = table(kind)
    codes = np.flatnonzero(np.isfinite(values) & (values >= 0) & ~np.signbit(values))
    codes = codes[np.argsort(values[codes], kind="stable")]
    steps = values[codes].astype(np.float64)
    middle = ((steps[1:] + steps[:-1]) / 2).astype(np.float32)
    to_even = codes[1:] % 2 == 0  # a tie goes up where the upper code is even
    return np.where(to_even, middle, np.nextafter(middle, np.float32(np.inf))), codes.astype(np.uint8)


def decode(value: Coded) -> Any:
    """The values in float32."""
    if isinstance(value.codes, np.ndarray):
        return table(value.kind)[value.codes]
    return mo.take(mo.asarray(table(value.kind)), mo.astype(value.codes, mo.int32), axis=0)


def encode(x: Any, kind: ElementType, saturate: bool = True) -> Coded:
    """The codes of float32 numbers. Integers wrap to their bits. Of floats, what is too large becomes the largest
    number, or NaN or infinity where `saturate` is false."""
    if isinstance(x, np.ndarray):
        return Coded(encode(mo.asarray(x), kind, saturate).codes.numpy(), kind)  # type: ignore[union-attr]
    x = mo.asarray(x)
    if kind.name.startswith(("int", "uint")):
        if x.dtype.is_float:
            x = mo.astype(mo.trunc(mo.astype(x, mo.float32)), mo.int32)
        bits = mo.bitwise_and(mo.astype(x, mo.int32), mo.asarray((1 << kind.bits) - 1, dtype=mo.int32))
        return Coded(mo.astype(bits, mo.uint8), kind)
    x = mo.astype(x, mo.float32)
    edges, codes = _ladder(kind)
    size = mo.abs(x)
    place = mo.searchsorted(mo.asarray(edges), mo.where(mo.isnan(size), 0.0, size), side="right")
    code = mo.take(mo.asarray(codes), place, axis=0)
    values, largest = table(kind), float(table(kind)[codes[-1]])
    special = np.flatnonzero(np.isnan(values))
    not_number = int(special[0]) if len(special) else int(codes[-1])
    code = mo.astype(code, mo.int32)
    if not saturate and kind.name != "float4e2m1":
        infinity = np.flatnonzero(np.isposinf(values))
        beyond = int(infinity[0]) if len(infinity) else not_number
        step = largest - float(values[codes[-2]])
        code = mo.where(size >= np.float32(largest + step / 2), beyond, code)
        if not len(infinity) and not kind.name.endswith("uz"):
            code = mo.where((size < np.float32(largest + step / 2)) & (size > largest), int(codes[-1]), code)
    zero_nan = kind.name.endswith("uz")
    negative = mo.signbit(x) & ((code != 0) & (code != not_number) if zero_nan else code >= 0)
    code = mo.where(negative, code + (1 << (kind.bits - 1)), code)
    if len(special):
        code = mo.where(mo.isnan(x), not_number, code)
    return Coded(mo.astype(code, mo.uint8), kind)


def from_array(array: Array, kind: ElementType) -> Coded:
    """The codes of an array of ml_dtypes."""
    return Coded(array.view(np.uint8) & np.uint8((1 << kind.bits) - 1), kind)


def to_array(value: Coded) -> Array:
    """An array of ml_dtypes, where it is installed."""
    codes = value.codes if isinstance(value.codes, np.ndarray) else value.codes.numpy()
    dtype = _foreign_dtype(ML_DTYPES_OF[value.kind.code])
    if value.kind.name in ("int4", "int2"):
        return table(value.kind)[codes].astype(np.int8).astype(dtype)
    return np.ascontiguousarray(codes).view(dtype)


def bfloat16_array(value: Tensor) -> Array:
    """A tensor of bfloat16 as an array of ml_dtypes."""
    wide = np.asarray(mo.astype(value, mo.float32).numpy())
    return (wide.view(np.uint32) >> 16).astype(np.uint16).view(_foreign_dtype("bfloat16"))


def _foreign_dtype(name: str) -> Any:
    try:
        import ml_dtypes  # type: ignore[import-untyped, unused-ignore]

        return getattr(ml_dtypes, name)
    except (ImportError, AttributeError):
        raise refuse(f"a result has the type {name}, which NumPy has not", "pip install -U ml_dtypes") from None
