"""Protocol buffers' wire format, read within bounds: every length is checked against what is left of the file, and
messages nest no deeper than a number. Nothing is allocated for what a file merely announces.

>>> decode(memoryview(b"\\x08\\x0a"), "Model")["ir_version"]
10
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.onnx.proto.errors import refuse
from morpho.onnx.proto.schema import SCHEMA

Message = dict[str, Any]
MOST_NESTED = 48  # messages in messages; a branch inside a branch takes three
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIRE_OF = {"int": VARINT, "float": FIXED32, "double": FIXED64}
PACKED: dict[str, np.dtype[Any]] = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """(number, place after it): seven bits a byte, at most ten bytes."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise refuse("the file ends in the middle of a number: it is cut off, or no ONNX file")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise refuse("a number of the file is longer than ten bytes: it is damaged, or no ONNX file")


def signed(value: int) -> int:
    """A varint as the int64 it stands for."""
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >= 1 << 63 else value


def decode(data: memoryview, kind: str, depth: int = 0) -> Message:
    """A message as a dict from names of fields to values; lists where they may repeat."""
    if depth > MOST_NESTED:
        raise refuse(f"messages of the file nest deeper than {MOST_NESTED}: no model does")
    known = SCHEMA[kind]
    found: Message = {}
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if number not in known:
            raise refuse(f"field {number} of {kind} is not known: the file is damaged, no ONNX file, or of a later "
                         "version")
        name, what, many = known[number]
        value, at = _value(data, at, wire, kind, name)
        if what == "skip":
            continue
        if what == "refuse":
            raise refuse(f"{name} of {kind} is not taken")
        if wire == BYTES and what in WIRE_OF:
            if not many:
                raise refuse(f"{name} of {kind} is a list, and should be a number: the file is damaged")
            found.setdefault(name, []).append(_packed(value, what))
            continue
        if wire != WIRE_OF.get(what, BYTES):
            raise refuse(f"{name} of {kind} has the wrong wire type: the file is damaged, or no ONNX file")
        value = READ[what](value) if what in READ else decode(value, what, depth + 1)
        if many:
            found.setdefault(name, []).append(value)
        elif what in SCHEMA and name in found:
            found[name] = {**found[name], **value}  # protobuf merges messages that are given twice
        else:
            found[name] = value
    return found


def _value(data: memoryview, at: int, wire: int, kind: str, name: str) -> tuple[Any, int]:
    if wire == VARINT:
        return varint(data, at)
    if wire == BYTES:
        length, at = varint(data, at)
    elif wire in (FIXED64, FIXED32):
        length = 8 if wire == FIXED64 else 4
    else:
        raise refuse(f"{name} of {kind} has wire type {wire}, which is not known: the file is damaged, or no ONNX file")
    if length > len(data) - at:
        raise refuse(f"{name} of {kind} is {length} bytes long, and the file has {len(data) - at} more: it is cut off, "
                     "or no ONNX file")
    return data[at:at + length], at + length


def _packed(data: memoryview, what: str) -> np.ndarray[Any, Any]:
    """A list of numbers, written without keys between them."""
    if what in PACKED:
        if len(data) % PACKED[what].itemsize:
            raise refuse(f"a list of {what} has {len(data)} bytes: the file is damaged")
        return np.frombuffer(data, PACKED[what])
    return _varints(np.frombuffer(data, np.uint8))


def _varints(octets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Many varints at once: where each ends, and the sum of its shifted bytes."""
    ends = np.flatnonzero(octets < 0x80)
    if not len(octets):
        return np.zeros(0, np.int64)
    if not len(ends) or ends[-1] != len(octets) - 1:
        raise refuse("a list of numbers ends in the middle of one: the file is damaged")
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends - starts).max() > 9:
        raise refuse("a number of the file is longer than ten bytes: it is damaged, or no ONNX file")
    place = np.arange(len(octets)) - np.repeat(starts, ends - starts + 1)
    bits = (octets & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts).view(np.int64)


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise refuse("a name of the file is not UTF-8: it is damaged, or no ONNX file") from None


READ: dict[str, Callable[[Any], Any]] = {
    "int": signed, "float": lambda d: struct.unpack("<f", d)[0], "double": lambda d: struct.unpack("<d", d)[0],
    "bytes": lambda d: d, "text": _text,
}


def numbers(found: Message, name: str) -> np.ndarray[Any, Any]:
    """A repeated number of a message, whichever way it was written."""
    parts = found.get(name, [])
    if not parts:
        return np.zeros(0)
    if len(parts) == 1 and isinstance(parts[0], np.ndarray):
        return parts[0]
    return np.concatenate([np.atleast_1d(np.asarray(part)) for part in parts])
