"""Protocol buffers' wire format, written: messages from dicts, by the same schema that reads them.

>>> encode("Model", {"ir_version": 10})
b'\\x08\\n'
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from morpho.onnx.proto.dtypes import BFLOAT16, OF_DTYPE, ElementType
from morpho.onnx.proto.schema import SCHEMA

NUMBERS = {kind: {name: (number, what, many) for number, (name, what, many) in fields.items()}
           for kind, fields in SCHEMA.items()}


def varint(value: int) -> bytes:
    """Seven bits a byte."""
    value &= 0xFFFFFFFFFFFFFFFF
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def encode(kind: str, values: Mapping[str, Any]) -> bytes:
    """A message of a kind; fields that are None are left out."""
    made = bytearray()
    for name, value in values.items():
        if value is None:
            continue
        number, what, many = NUMBERS[kind][name]
        for item in value if many else [value]:
            made += _field(number, what, item)
    return bytes(made)


def _field(number: int, what: str, value: Any) -> bytes:
    if what == "int":
        return varint(number << 3) + varint(int(value))
    if what == "float":
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if what == "double":
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if what in ("text", "bytes"):
        data = value.encode() if isinstance(value, str) else bytes(value)
    else:
        data = encode(what, value)
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor_message(array: np.ndarray[Any, Any], kind: ElementType, name: str = "") -> dict[str, Any]:
    """A tensor; `array` holds bits of bfloat16 as uint16."""
    return {"dims": [*array.shape], "data_type": kind.code, "name": name or None,
            "raw_data": np.ascontiguousarray(array).tobytes()}


def value_message(name: str, kind: ElementType, shape: Any) -> dict[str, Any]:
    """An input or output: its type, and sizes that are numbers or names."""
    dims = [{"dim_value": size} if isinstance(size, int) else {"dim_param": str(size)} for size in shape]
    return {"name": name, "type": {"tensor_type": {"elem_type": kind.code, "shape": {"dim": dims}}}}


def attribute_message(name: str, value: Any) -> dict[str, Any]:
    """An attribute by the type of its value."""
    if isinstance(value, dict):
        kind = "g" if "node" in value else "t"
        return {"name": name, kind: value, "type": 5 if kind == "g" else 4}
    if isinstance(value, bool | int):
        return {"name": name, "i": int(value), "type": 2}
    if isinstance(value, float):
        return {"name": name, "f": value, "type": 1}
    if isinstance(value, str):
        return {"name": name, "s": value, "type": 3}
    if all(isinstance(item, int) for item in value):
        return {"name": name, "ints": [*value], "type": 7}
    return {"name": name, "floats": [float(item) for item in value], "type": 6}


def kind_of(dtype: Any) -> ElementType:
    """The element type of a dtype."""
    return OF_DTYPE[dtype]


__all__ = ["BFLOAT16", "attribute_message", "encode", "kind_of", "tensor_message", "value_message", "varint"]
