"""Indexing by data: gather (a native kernel with checked indices) and scatter.

Their attribute `called` is the user's name for what they are part of, for the error about an index outside its axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import int64
from morpho.base.errors import DTypeError, IndexFault, MorphoError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import THREE, TWO, Attributes, Op, Spec, register
from morpho.ops.algebra import constant, expand, where, zeros_like
from morpho.ops.batching import along_axis


def _infer_gather(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    x, index = inputs
    axis = attributes["axis"]
    if not index.dtype.is_integer:
        raise fail(DTypeError, "take", f"indices are {index.dtype}, not integers")
    same = all(a == b for i, (a, b) in enumerate(zip(x.shape, index.shape, strict=False)) if i != axis)
    if len(x.shape) != len(index.shape) or not same:
        raise fail(ShapeError, "take_along_axis", f"shapes {x.shape} and {index.shape} differ outside axis {axis}")
    return Spec(index.shape, x.dtype)


def called(attributes: Attributes) -> dict[str, str]:
    """The user's name, for a node that stands in for one with these attributes, such as its gradient."""
    return {"called": attributes["called"]} if "called" in attributes else {}


# What an index is called, what it goes into, and the hint: by the user's operation.
_PLAIN = ("index", "an axis of size {}", "negative indices count from the end")
_SEVERAL = ("index", "its axis", "without mo.compile the error names the index")
_CLASS = ("class", "{} classes", "classes are counted from 0; ignore_index=... leaves rows out")
_LABEL = (*_CLASS[:2], "classes are counted from 0")
_WORDS = {"embedding": ("id", "a table of {} rows", "ids are counted from 0"), "cross_entropy": _CLASS,
          "nll_loss": _CLASS, "ctc_loss": _LABEL, "multi_margin_loss": _LABEL,
          "positions": ("position", "a table of {} positions", "cut the sequence")}


def out_of_range(name: str, size: object, worst: int | None = None, line: str | None = None) -> MorphoError:
    """The error about an index that leaves its axis: `name` is the user's operation, or "indices" for several axes
    indexed together, `worst` the index where it is known. What counts from the end has had the size added."""
    what, where, hint = _SEVERAL if " or " in name else _WORDS.get(name, _PLAIN)
    if name == "indices" or size is None:
        where, worst = "its axis", None
    elif worst is not None and worst < 0 and name not in _WORDS and isinstance(size, int):
        worst -= size
    said = f"{'an' if what[0] in 'aeiou' else 'a'} {what}" if worst is None else f"{what} {worst}"
    return fail(IndexFault, {"indices": "index", "gather": "index"}.get(name, name),
                f"{said} is out of range for {where.format(size)}", hint, line)


def _check(index: Any, size: int, name: str) -> None:
    if np.size(index) and (np.min(index) < 0 or np.max(index) >= size):
        worst = int(np.min(index)) if np.min(index) < 0 else int(np.max(index))
        raise out_of_range(name, size, worst)


def _reference_gather(attributes: Attributes, x: Any, index: Any) -> Any:
    axis = attributes["axis"]
    _check(index, x.shape[axis], attributes.get("called", "gather"))
    return np.take_along_axis(x, index.astype(np.int64), axis)


def _gather_rule(node: Node, ct: Node) -> list[Node | None]:
    x, index = node.inputs
    return [build("scatter", zeros_like(x), index, ct, axis=node["axis"], mode="add", **called(node.attributes)),
            None]


def _infer_scatter(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    base, index, value = inputs
    if index.shape != value.shape or base.dtype is not value.dtype:
        raise fail(ShapeError, "scatter", f"indices {index.shape} and values {value.dtype}{value.shape} do not fit "
                                          f"{base.dtype}{base.shape}")
    _infer_gather([base, index], attributes)
    return base


def _reference_scatter(attributes: Attributes, base: Any, index: Any, value: Any) -> Any:
    """Values are put or added in index order; of equal indices the last one put stays."""
    axis = attributes["axis"]
    _check(index, base.shape[axis], attributes.get("called", "scatter"))
    result = np.array(base)
    where: list[Any] = list(np.ogrid[tuple(slice(size) for size in index.shape)])
    where[axis] = index.astype(np.int64)
    if attributes["mode"] == "add":
        with np.errstate(all="ignore"):
            np.add.at(result, tuple(where), value)
    else:
        result[tuple(where)] = value
    return result


def _scatter_rule(node: Node, ct: Node) -> list[Node | None]:
    base, index, value = node.inputs
    name = called(node.attributes)
    taken = build("gather", ct, index, axis=node["axis"], **name)
    if node["mode"] == "add":
        return [ct, None, taken]
    return [build("scatter", ct, index, zeros_like(value), axis=node["axis"], mode="set", **name), None,
            where(_stays(node), taken, zeros_like(value))]


def _stays(node: Node) -> Node:
    """Which values of a `set` are still there at its end: of equal indices the last one's."""
    base, index, _ = node.inputs
    how = {"axis": node["axis"], **called(node.attributes)}
    numbers = build("iota", shape=index.shape, axis=node["axis"], dtype=int64)
    nothing = expand(constant(0, int64), base.shape)
    last = build("scatter", nothing, index, numbers, mode="set", **how)
    return build("equal", build("gather", last, index, **how), numbers)


GATHER = register(Op("gather", "index", _infer_gather, _gather_rule, _reference_gather, arity=TWO,
                      batch=along_axis))
SCATTER = register(Op("scatter", "index", _infer_scatter, _scatter_rule, _reference_scatter,
                      numerics="one chain per element, index ascending", arity=THREE, batch=along_axis))
