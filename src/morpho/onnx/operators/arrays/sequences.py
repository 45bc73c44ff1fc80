"""Sequences and optionals."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.arrays.shape import joined, pieces
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import EMPTY, Empty, is_static, tensor

FAMILY = Family("sequences")
MOST_ITEMS = 1 << 20


def _sequence(call: Call, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise call.error("it takes a sequence")
    return value


def _place(call: Call, position: Any, count: int, default: int, more: int = 0) -> int:
    if position is None:
        return default
    at = int(call.integers(position, "its position")[0])
    if not -count <= at < count + more:
        raise call.error(f"position {at} is outside a sequence of {count}")
    return at + count if at < 0 else at


@FAMILY.op("SequenceEmpty")
def sequence_empty(call: Call) -> Any:
    return []


@FAMILY.op("SequenceConstruct")
def sequence_construct(call: Call, *items: Any) -> Any:
    return [*items]


@FAMILY.op("SequenceAt")
def sequence_at(call: Call, sequence: Any, position: Any) -> Any:
    items = _sequence(call, sequence)
    return items[_place(call, position, len(items), 0)]


@FAMILY.op("SequenceInsert")
def sequence_insert(call: Call, sequence: Any, item: Any, position: Any = None) -> Any:
    items = [*_sequence(call, sequence)]
    if len(items) >= MOST_ITEMS:
        raise call.error(f"a sequence has more than {MOST_ITEMS} items")
    items.insert(_place(call, position, len(items), len(items), 1), item)
    return items


@FAMILY.op("SequenceErase")
def sequence_erase(call: Call, sequence: Any, position: Any = None) -> Any:
    items = [*_sequence(call, sequence)]
    if not items:
        raise call.error("the sequence is empty")
    del items[_place(call, position, len(items), len(items) - 1)]
    return items


@FAMILY.op("SequenceLength")
def sequence_length(call: Call, sequence: Any) -> Any:
    return np.asarray(len(_sequence(call, sequence)), np.int64)


@FAMILY.op("ConcatFromSequence")
def concat_from_sequence(call: Call, sequence: Any) -> Any:
    items, axis = _sequence(call, sequence), call.need("axis")
    if not items:
        raise call.error("the sequence is empty")
    if call.get("new_axis", 0):
        if is_static(*items):
            return np.stack(items, axis=axis)
        return mo.stack([tensor(item) for item in items], axis=axis)
    return joined(call, items, axis)


@FAMILY.op("SplitToSequence")
def split_to_sequence(call: Call, x: Any, lengths: Any = None) -> Any:
    axis = call.axis(call.get("axis", 0), len(x.shape))
    size = x.shape[axis]
    if not isinstance(size, int):
        raise call.error("the size of the axis must be known")
    if lengths is None:
        parts = pieces(x, axis, [1] * size)
        if call.get("keepdims", 1):
            return parts
        return [part.reshape(tuple(s for at, s in enumerate(part.shape) if at != axis)) for part in parts]
    given = call.static(lengths, "its lengths")
    if given.ndim:
        return pieces(x, axis, [int(length) for length in given])
    each = int(given)
    if each < 1:
        raise call.error(f"a length of {each} is not positive")
    return pieces(x, axis, [min(each, size - at) for at in range(0, size, each)])


@FAMILY.op("SequenceMap")
def sequence_map(call: Call, sequence: Any, *others: Any) -> Any:
    """The body for each item; further sequences go along, tensors are the same for all."""
    items, body = _sequence(call, sequence), call.body("body")
    rows = [body(item, *(other[at] if isinstance(other, list) else other for other in others))
            for at, item in enumerate(items)]
    return tuple([row[place] for row in rows] for place in range(len(call.node.outputs)))


@FAMILY.op("Optional")
def optional(call: Call, value: Any = None) -> Any:
    return EMPTY if value is None else value


@FAMILY.op("OptionalGetElement")
def optional_get(call: Call, value: Any) -> Any:
    if isinstance(value, Empty):
        raise call.error("the optional is empty")
    return value


@FAMILY.op("OptionalHasElement")
def optional_has(call: Call, value: Any = None) -> Any:
    return np.asarray(value is not None and not isinstance(value, Empty))
