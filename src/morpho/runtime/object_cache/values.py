"""Values of a cache: frozen, so that no caller changes another's, and as bytes, without pickle.

A value is None, a bool, int, float, complex, str, bytes, a NumPy array or scalar, a tensor (here as `Bits`: its dtype's
name and the elements), or a list, tuple or dict of those.

As bytes: the magic, the length of the header (u64, little-endian), the header as JSON, spaces up to a multiple of 64,
then the data of arrays and bytes, each at a multiple of 64. In the header's tree None, bools, ints and texts stand for
themselves, and everything else is an object with one key that says what it is:

| key | what |
|---|---|
| `i` | an int of more than 4096 bits, in hexadecimal digits |
| `f`, `c` | a float, a complex number, as C's hexadecimal floats |
| `b` | bytes: [offset, count] |
| `a`, `s`, `t` | array, NumPy scalar, tensor: [dtype, shape, offset] |
| `l`, `u`, `d` | list, tuple, dict: [...], [...], [[key, value], ...] |

>>> decode(encode({"a": [1.5, (None, b"x")]}))
{'a': [1.5, (None, b'x')]}
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np

from morpho.base.dtypes import BY_NAME
from morpho.base.errors import ArgumentError, fail

MAGIC = b"MOVALUE1"
ALIGNMENT = 64
LEAF_BYTES = 64  # what an object costs beside its content, about
LONGEST = 4096  # bits of an int that JSON has as it is: readers limit its digits
LENGTH = struct.Struct("<Q")


class Corrupt(Exception):
    """Bytes that are no value; the text says why."""


class Bits:
    """A tensor's value: the name of its dtype, and its elements, read-only and contiguous (bfloat16 as uint16)."""

    __slots__ = ("dtype", "array")

    def __init__(self, dtype: str, array: np.ndarray) -> None:
        self.dtype, self.array = dtype, array


class Frozen:
    """A container of frozen values, rebuilt for each caller."""

    __slots__ = ("kind", "items")

    def __init__(self, kind: type, items: tuple[Any, ...]) -> None:
        self.kind, self.items = kind, items  # of a dict: (key, value) pairs


PLAIN = (bool, int, float, complex, str, bytes, type(None))


DEEPEST = 100  # levels of containers in a value


def freeze(value: Any, depth: int = 0) -> Any:
    """The value as it is kept: arrays are copied and read-only, containers are `Frozen`."""
    kind = type(value)
    if kind in PLAIN or kind is Bits or kind is Frozen:
        return value
    if kind is np.ndarray:
        return _own(value)
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return value
    if depth > DEEPEST:
        raise fail(ArgumentError, "cache", f"a value is more than {DEEPEST} levels deep", "is it part of itself?")
    if kind in (list, tuple):
        return Frozen(kind, tuple(freeze(item, depth + 1) for item in value))
    if kind is dict:
        return Frozen(dict, tuple((freeze(key, depth + 1), freeze(item, depth + 1)) for key, item in value.items()))
    raise fail(ArgumentError, "cache", f"a {kind.__module__}.{kind.__qualname__} cannot be kept",
               "keep tensors, arrays, numbers, texts, bytes, or lists, tuples and dicts of them")


def _own(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "biufc":
        raise fail(ArgumentError, "cache", f"an array of {array.dtype} cannot be kept", "keep numbers or bools")
    kept = np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
    kept.flags.writeable = False
    return kept


def thaw(frozen: Any, tensor: Any = None) -> Any:
    """The value for a caller: containers are new ones; `tensor` makes a tensor of `Bits`."""
    if type(frozen) is Bits and tensor is not None:
        return tensor(frozen)
    if type(frozen) is not Frozen:
        return frozen
    if frozen.kind is dict:
        return {thaw(key, tensor): thaw(item, tensor) for key, item in frozen.items}
    return frozen.kind(thaw(item, tensor) for item in frozen.items)


def size_of(frozen: Any) -> int:
    """The bytes that a frozen value takes, about."""
    if type(frozen) is Frozen:
        pairs = frozen.kind is dict
        return LEAF_BYTES + sum(size_of(key) + size_of(item) for key, item in frozen.items) if pairs else (
            LEAF_BYTES + sum(map(size_of, frozen.items)))
    if type(frozen) is Bits:
        return LEAF_BYTES + frozen.array.nbytes
    if type(frozen) is np.ndarray:
        return LEAF_BYTES + frozen.nbytes
    return LEAF_BYTES + (len(frozen) if isinstance(frozen, str | bytes) else 0)


# -- bytes -------------------------------------------------------------------------------------------------------------
def encode(value: Any, **more: Any) -> bytes:
    """A value as bytes; `more` goes into the header."""
    parts: list[bytes] = []
    tree = _node(freeze(value), parts, [0])
    header = json.dumps({**more, "value": tree}, separators=(",", ":")).encode()
    before = len(MAGIC) + LENGTH.size + len(header)
    return b"".join([MAGIC, LENGTH.pack(len(header)), header, b" " * (-before % ALIGNMENT), *parts])


def _place(content: bytes, parts: list[bytes], used: list[int]) -> int:
    offset = used[0]
    parts += [content, bytes(-len(content) % ALIGNMENT)]
    used[0] += len(content) + len(parts[-1])
    return offset


def _array_node(dtype: str, array: np.ndarray, parts: list[bytes], used: list[int]) -> list[Any]:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return [dtype, list(array.shape), _place(little.tobytes(), parts, used)]


def _node(frozen: Any, parts: list[bytes], used: list[int]) -> Any:
    kind = type(frozen)
    if frozen is None or kind in (bool, str) or (kind is int and frozen.bit_length() <= LONGEST):
        return frozen
    if kind is int:
        return {"i": hex(frozen)}
    if kind is float:
        return {"f": frozen.hex()}
    if kind is complex:
        return {"c": [frozen.real.hex(), frozen.imag.hex()]}
    if kind is bytes:
        return {"b": [_place(frozen, parts, used), len(frozen)]}
    if kind is np.ndarray:
        return {"a": _array_node(frozen.dtype.name, frozen, parts, used)}
    if isinstance(frozen, np.generic):
        return {"s": _array_node(frozen.dtype.name, np.asarray(frozen), parts, used)}
    if kind is Bits:
        return {"t": _array_node(frozen.dtype, frozen.array, parts, used)}
    if frozen.kind is dict:
        return {"d": [[_node(key, parts, used), _node(item, parts, used)] for key, item in frozen.items]}
    return {"l" if frozen.kind is list else "u": [_node(item, parts, used) for item in frozen.items]}


def decode_frozen(content: bytes) -> tuple[Any, dict[str, Any]]:
    """(a frozen value, the header); raises `Corrupt` for anything that `encode` does not write."""
    try:
        if content[:len(MAGIC)] != MAGIC:
            raise Corrupt("it does not begin like a value")
        start = len(MAGIC) + LENGTH.size
        length = LENGTH.unpack_from(content, len(MAGIC))[0]
        if length > len(content) - start:
            raise Corrupt("its header is cut off")
        header = json.loads(content[start:start + length])
        data = memoryview(content)[start + length + -(start + length) % ALIGNMENT:]
        return _value(header["value"], data), header
    except Corrupt:
        raise
    except (ValueError, TypeError, KeyError, IndexError, struct.error, RecursionError, OverflowError) as error:
        raise Corrupt(f"its header cannot be read: {type(error).__name__}") from None


def decode(content: bytes) -> Any:
    """The value of bytes that `encode` wrote; tensors as `Bits`."""
    return thaw(decode_frozen(content)[0])


def _value(node: Any, data: memoryview) -> Any:
    if node is None or isinstance(node, bool | int | str):
        return node
    ((kind, content),) = node.items()
    if kind == "i":
        return int(content, 16)
    if kind == "f":
        return float.fromhex(content)
    if kind == "c":
        return complex(*map(float.fromhex, content))
    if kind == "b":
        return bytes(_piece(data, *content))
    if kind in "ast":
        return _array(kind, content, data)
    if kind == "d":
        return Frozen(dict, tuple((_value(key, data), _value(item, data)) for key, item in content))
    return Frozen({"l": list, "u": tuple}[kind], tuple(_value(item, data) for item in content))


def _piece(data: memoryview, offset: Any, count: Any) -> memoryview:
    if type(offset) is not int or type(count) is not int or not 0 <= offset <= offset + count <= len(data):
        raise Corrupt("it points outside its data")
    return data[offset:offset + count]


def _array(kind: str, content: Any, data: memoryview) -> Any:
    name, shape, offset = content
    if any(type(size) is not int or size < 0 for size in shape):
        raise Corrupt(f"it has the shape {shape!r}"[:100])
    dtype = BY_NAME[name].numpy if kind == "t" else np.dtype(name)
    if dtype.kind not in "biufc":
        raise Corrupt(f"it has the dtype {name!r}"[:100])
    piece = _piece(data, offset, math.prod(shape) * dtype.itemsize)
    array = _own(np.frombuffer(piece, dtype.newbyteorder("<")).reshape(shape))
    return array[()] if kind == "s" else Bits(name, array) if kind == "t" else array
