"""Element types of ONNX: their numbers, names, and what holds them here.

Morpho and NumPy have no 8-bit and narrower floats and no 4- and 2-bit integers: of those, the codes are held, one in a
byte (`Coded` of `run/coded.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from morpho.base import dtypes
from morpho.base.dtypes import DType
from morpho.onnx.proto.errors import refuse


class ElementType(NamedTuple):
    """One element type: its name in ONNX, bits of an element in a file, and the dtype here, if there is one."""

    code: int
    name: str
    bits: int
    dtype: DType | None = None


STRING = ElementType(8, "string", 0)
TYPES = {kind.code: kind for kind in (
    ElementType(1, "float", 32, dtypes.float32), ElementType(2, "uint8", 8, dtypes.uint8),
    ElementType(3, "int8", 8, dtypes.int8), ElementType(4, "uint16", 16, dtypes.uint16),
    ElementType(5, "int16", 16, dtypes.int16), ElementType(6, "int32", 32, dtypes.int32),
    ElementType(7, "int64", 64, dtypes.int64), STRING, ElementType(9, "bool", 8, dtypes.bool_),
    ElementType(10, "float16", 16, dtypes.float16), ElementType(11, "double", 64, dtypes.float64),
    ElementType(12, "uint32", 32, dtypes.uint32), ElementType(13, "uint64", 64, dtypes.uint64),
    ElementType(14, "complex64", 64, dtypes.complex64), ElementType(15, "complex128", 128, dtypes.complex128),
    ElementType(16, "bfloat16", 16, dtypes.bfloat16),
    ElementType(17, "float8e4m3fn", 8), ElementType(18, "float8e4m3fnuz", 8), ElementType(19, "float8e5m2", 8),
    ElementType(20, "float8e5m2fnuz", 8), ElementType(21, "uint4", 4), ElementType(22, "int4", 4),
    ElementType(23, "float4e2m1", 4), ElementType(24, "float8e8m0", 8), ElementType(25, "uint2", 2),
    ElementType(26, "int2", 2),
)}
OF_DTYPE = {kind.dtype: kind for kind in TYPES.values() if kind.dtype is not None}
BFLOAT16 = TYPES[16]
# Names that ml_dtypes gives to what NumPy does not have.
OF_ML_DTYPES = {"float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20, "uint4": 21,
                "int4": 22, "float4_e2m1fn": 23, "float8_e8m0fnu": 24, "uint2": 25, "int2": 26, "bfloat16": 16}
ML_DTYPES_OF = {code: name for name, code in OF_ML_DTYPES.items()}


def element_type(code: int) -> ElementType:
    """The type of a number in a file."""
    if code not in TYPES:
        raise refuse(f"element type {code} is not known")
    return TYPES[code]


def type_of_array(array: np.ndarray[Any, Any]) -> ElementType:
    """The type of a NumPy array, also one of ml_dtypes."""
    if array.dtype.name in OF_ML_DTYPES:
        return TYPES[OF_ML_DTYPES[array.dtype.name]]
    if array.dtype.kind in "OUST":
        return STRING
    return OF_DTYPE[dtypes.as_dtype(array.dtype)]
