"""Keys by content: equal values have equal digests, in this process and in any other.

>>> import numpy as np
>>> digest(("f", np.arange(3))) == digest(("f", np.array([0, 1, 2])))
True
>>> digest(1) == digest(1.0), digest("1") == digest(b"1"), digest([1, 2]) == digest((1, 2))
(False, False, False)
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, fail
from morpho.runtime.object_cache.values import Bits

DIGEST_BYTES = 16
DEEPEST = 100  # levels of containers in a key


def digest(content: Any) -> str:
    """32 hexadecimal digits of a value: of type, dtype, shape and bytes, not of identity."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    _feed(hasher, content, 0)
    return hasher.hexdigest()


def _feed(hasher: Any, content: Any, depth: int) -> None:
    """Each part with its kind and length before it, so that no two values give the same bytes."""
    kind = type(content)
    if depth > DEEPEST:
        raise fail(ArgumentError, "cache", f"a key is more than {DEEPEST} levels deep", "is it part of itself?")
    if kind is np.ndarray or isinstance(content, np.generic):
        _array(hasher, b"array" if kind is np.ndarray else b"scalar", content.dtype.str, np.asarray(content))
    elif kind is Bits:
        _array(hasher, b"tensor", content.dtype, content.array)
    elif kind in (bool, int, float, complex, type(None)):
        _part(hasher, kind.__name__.encode(), _text(content).encode())
    elif kind is str:
        _part(hasher, b"str", content.encode("utf-8", "surrogatepass"))
    elif kind in (bytes, bytearray):
        _part(hasher, kind.__name__.encode(), content)
    elif kind is DType or isinstance(content, np.dtype):
        _part(hasher, b"dtype", str(content).encode())
    elif kind in (list, tuple, dict):  # a dict in its order, which whoever goes over it sees
        _part(hasher, kind.__name__.encode(), str(len(content)).encode())
        for item in content.items() if kind is dict else content:
            _feed(hasher, item, depth + 1)
    elif kind in (set, frozenset):
        _unordered(hasher, kind, content, depth)
    elif kind is slice:
        _part(hasher, b"slice", b"3")
        for item in (content.start, content.stop, content.step):
            _feed(hasher, item, depth + 1)
    else:
        raise fail(ArgumentError, "cache", f"a {kind.__module__}.{kind.__qualname__} is no part of a key",
                   "use tensors, arrays, numbers, texts, bytes, lists, tuples, dicts, sets, or give key=")


def _unordered(hasher: Any, kind: type, content: Any, depth: int) -> None:
    """Sets in the order of their parts' digests."""
    _part(hasher, kind.__name__.encode(), str(len(content)).encode())
    parts = []
    for item in content:
        inner = hashlib.blake2b(digest_size=DIGEST_BYTES)
        _feed(inner, item, depth + 1)
        parts.append(inner.digest())
    for part in sorted(parts):
        hasher.update(part)


def _text(content: Any) -> str:
    """A number, exactly: an int of any length, the sign of a zero."""
    return content.hex() if type(content) is float else hex(content) if type(content) is int else repr(content)


def _part(hasher: Any, kind: bytes, content: Any) -> None:
    hasher.update(b"%s:%d:" % (kind, len(content)))
    hasher.update(content)


def _array(hasher: Any, kind: bytes, dtype: str, array: np.ndarray) -> None:
    if array.dtype.kind in "OV":
        raise fail(ArgumentError, "cache", f"an array of {array.dtype} is no part of a key", "use one of numbers")
    plain = np.ascontiguousarray(array)
    _part(hasher, kind, f"{dtype}{array.shape}".encode())
    hasher.update(plain.view(np.uint8).reshape(-1).data if plain.size and plain.ndim else plain.tobytes())


def plain_key(key: Any, depth: int = 0) -> Any:
    """A key with its numbers in the one form that all equal ones share, as they are one key of a dictionary.

    >>> plain_key((1.0, True, -0.0, 0.5, "a"))
    (1, 1, 0, 0.5, 'a')
    """
    kind = type(key)
    if kind in (str, bytes) or depth > DEEPEST:
        return key
    if isinstance(key, np.generic):
        return plain_key(key.item(), depth + 1) if key.dtype.kind in "biufc" else key
    if kind is bool:
        return int(key)
    if kind is complex and key.imag == 0:
        return plain_key(key.real, depth + 1)
    if kind is float and key.is_integer():
        return int(key)
    if kind in (tuple, frozenset):
        return kind(plain_key(item, depth + 1) for item in key)
    return key
