"""`x[key] = value` at once, in the memory of `x`, where nothing but `x` holds that memory.

A program that nobody compiled fills a table row by row, or updates the inside of a grid in a loop. A graph for each
assignment costs 250 us, writing costs a few. Values stay values: what else holds the memory (a view, a recording, an
array of NumPy, packed weights) keeps the old elements, and `x` gets a copy.

>>> table = mo.zeros((2, 2)).realise()
>>> first = table[0]
>>> table[0] = 1.0
>>> first.tolist(), table.tolist()
([0.0, 0.0], [[1.0, 1.0], [0.0, 0.0]])
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, float32, float64, int32, int64
from morpho.base.shapes import is_contiguous
from morpho.runtime.memory.buffer import OffHost
from morpho.tensor import recording
from morpho.tensor.core import Tensor, copied
from morpho.tensor.eager import is_quiet
from morpho.tensor.steps import Step, counts

_KINDS: dict[DType, Any] = {float32: np.float32, float64: np.float64, int32: np.int32, int64: np.int64}
_LARGEST_FLOAT, _LARGEST_INT = 3e38, 2**31 - 1  # numbers that every dtype above holds
_ALONE = 2  # references to memory that one tensor holds, as `sys.getrefcount` counts


def written(x: Tensor, key: Any, value: Any) -> bool:
    """Write to the elements that a basic key names; False, with nothing changed, where the value of the tensor is to be
    built as a graph: gradients flow, another thread may read it meanwhile, or the arguments are wrong or unusual."""
    if recording.local.recording is None or not is_quiet() or type(x) is not Tensor or \
            not recording.is_only_thread():
        return False
    kind = _KINDS.get(x.dtype)
    if kind is None or not _is_plain(x) or not _is_fit(value, kind):
        return False
    if type(value) is Tensor:
        if value.dtype is not x.dtype or not _is_plain(value):
            return False
        value = value.realise()
        if getattr(value, "_track", None) is not None or isinstance(value._storage, OffHost):
            return False
    x.realise()
    if getattr(x, "_track", None) is not None or isinstance(x._storage, OffHost) or x._layout is None:
        return False
    try:
        shape: Any = x.shape
        part = np.broadcast_to(np.empty((), kind), shape)[key]
    except (IndexError, ValueError):
        return False  # the error is told by the way with a graph
    if type(value) is Tensor and not _spreads(value.shape, part.shape):
        return False
    elements = value.numpy() if type(value) is Tensor else value
    _own(x)
    address, shape, _, _, _ = x._layout
    x.claim()
    memory = (ctypes.c_char * x.nbytes).from_address(address)
    np.frombuffer(memory, kind).reshape(shape)[key] = elements
    counts.written += 1
    return True


def _own(x: Tensor) -> None:
    """Give the tensor a copy of its elements, unless nothing else holds their memory."""
    _, shape, strides, _, writable = x._layout  # type: ignore[misc]
    if writable and is_contiguous(shape, strides):
        x.release_leaf()
        if sys.getrefcount(x._storage) <= _ALONE:
            return
        recording.flush()  # what waits there may hold the memory
        if sys.getrefcount(x._storage) <= _ALONE:
            return
    made = copied(x)
    x.claim()
    x._storage, x._layout, x._record, x._node = made._storage, made._layout, made._record, None


def _is_plain(x: Tensor) -> bool:
    """Whether a tensor is, or may be computed now as, elements that no gradient flows to."""
    if getattr(x, "_track", None) is not None or x.size == 0:
        return False
    node = x._node
    if type(node) is Step:
        return not node.tracked
    return node is None or node.op.name != "data" or bool(node.device)  # else nobody has put it on a device


def _is_fit(value: Any, kind: Any) -> bool:
    """Whether a value is a tensor, or a number that the dtype holds."""
    if type(value) is int:
        return abs(value) <= _LARGEST_INT
    if type(value) is float:
        return kind in (np.float32, np.float64) and (value != value or abs(value) <= _LARGEST_FLOAT)
    return type(value) is Tensor


def _spreads(shape: Any, wanted: tuple[int, ...]) -> bool:
    """Whether a value of this shape spreads over the wanted one, without axes of its own."""
    if len(shape) > len(wanted):
        return False
    last = wanted[len(wanted) - len(shape):]
    return all(one in (1, other) for one, other in zip(shape, last, strict=True))
