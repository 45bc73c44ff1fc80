"""Indexing by data: gather (a native kernel with checked indices) and scatter.

Their attribute `called` is the user's name for what they are part of, for the error about an index outside its axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dims import product
from morpho.base.dtypes import int64
from morpho.base.errors import DTypeError, IndexFault, MorphoError, ShapeError, ValueFault, fail
from morpho.ir.node import Node, build
from morpho.ir.op import THREE, TWO, Attributes, Op, Spec, register
from morpho.ops.algebra import cast, constant, constant_like, div, expand, mul, reshape, where, zeros_like
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
          "positions": ("position", "a table of {} positions", "cut the sequence"),
          "Loop": ("turn", "a loop whose end depends on data", "after 2**24 turns its condition still holds")}


# Values that an operation refuses, which kernels report as an index outside of a line of one element: see `require`.
_REFUSED = {
    "histogram": ("the data has a NaN or an infinity, so that the bins have no range", "give range=(low, high)"),
    "random.choice": ("the probabilities are not all 0 or more with a sum of 1", "divide them by their sum"),
    "random.multinomial": ("the probabilities are not all 0 or more with a sum of 1", "divide them by their sum"),
    "random.categorical": ("the logits of a draw have a NaN, or are all -inf", "a category needs a finite logit"),
    "random.dirichlet": ("a concentration is not positive", ""),
}
for _name in ("histogram2d", "histogram_bin_edges"):
    _REFUSED[_name] = _REFUSED["histogram"]


def refusal(name: str, line: str | None = None) -> MorphoError:
    """The error about a value that an operation refuses."""
    words, hint = _REFUSED[name]
    return fail(ValueFault, name, words, hint, line)


def require(name: str, node: Node, right: Node) -> Node:
    """A value that is an error where it is not right, when it is computed."""
    count = product(node.shape)
    right = reshape(expand(right, node.shape), (1, count))
    index = where(right, constant_like(cast(right, int64), 0), constant_like(cast(right, int64), 1))
    return reshape(build("gather", reshape(node, (1, count)), index, axis=0, called=name), node.shape)


def out_of_range(name: str, size: object, worst: int | None = None, line: str | None = None) -> MorphoError:
    """The error about an index that leaves its axis: `name` is the user's operation, or "indices" for several axes
    indexed together, `worst` the index where it is known. What counts from the end has had the size added."""
    refused = [one for one in name.split(" or ") if one in _REFUSED]
    if refused:
        return refusal(refused[0], line)
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


# how values that meet at an index are combined; "set" puts them
COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _infer_scatter(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    base, index, value = inputs
    if index.shape != value.shape or base.dtype is not value.dtype:
        raise fail(ShapeError, "scatter", f"indices {index.shape} and values {value.dtype}{value.shape} do not fit "
                                          f"{base.dtype}{base.shape}")
    _infer_gather([base, index], attributes)
    return base


def _reference_scatter(attributes: Attributes, base: Any, index: Any, value: Any) -> Any:
    """Values are put or combined in index order; of equal indices the last one put stays."""
    axis = attributes["axis"]
    _check(index, base.shape[axis], attributes.get("called", "scatter"))
    result = np.array(base)
    where: list[Any] = list(np.ogrid[tuple(slice(size) for size in index.shape)])
    where[axis] = index.astype(np.int64)
    combine = COMBINE.get(attributes["mode"])
    if combine is None:
        result[tuple(where)] = value
        return result
    with np.errstate(all="ignore"):
        combine.at(result, tuple(where), value)
    return result


def _scatter_rule(node: Node, ct: Node) -> list[Node | None]:
    base, index, value = node.inputs
    name = called(node.attributes)
    taken = build("gather", ct, index, axis=node["axis"], **name)
    if node["mode"] == "add":
        return [ct, None, taken]
    if node["mode"] == "mul":
        return _product_rule(node, ct)
    if node["mode"] in ("max", "min"):
        return _extreme_rule(node, ct)
    return [build("scatter", ct, index, zeros_like(value), axis=node["axis"], mode="set", **name), None,
            where(_stays(node), taken, zeros_like(value))]


def _added(node: Node, base: Node, values: Node) -> Node:
    """Values added where those of a scatter went."""
    return build("scatter", base, node.inputs[1], values, axis=node["axis"], mode="add", **called(node.attributes))


def _at_indices(node: Node, x: Node) -> Node:
    """x where the values of a scatter went."""
    return build("gather", x, node.inputs[1], axis=node["axis"], **called(node.attributes))


def _extreme_rule(node: Node, ct: Node) -> list[Node | None]:
    """Shared evenly among all that attain the extreme, the base among them."""
    base, _, value = node.inputs
    hits = [build("equal", base, node), build("equal", value, _at_indices(node, node))]
    numbers = [cast(hit, ct.dtype.compute) for hit in hits]
    ties = cast(_added(node, *numbers), ct.dtype)
    share = div(ct, where(build("equal", ties, zeros_like(ties)), constant_like(ties, 1), ties))  # none: NaN won
    return [where(hits[0], share, zeros_like(share)), None,
            where(hits[1], _at_indices(node, share), zeros_like(value))]


def _product_rule(node: Node, ct: Node) -> list[Node | None]:
    """The product of the others, without dividing by a zero: zeros are counted and left out."""
    base, index, value = node.inputs
    how = {"axis": node["axis"], **called(node.attributes)}
    zero = [build("equal", x, zeros_like(x)) for x in (base, value)]
    others = [where(none, constant_like(x, 1), x) for none, x in zip(zero, (base, value), strict=True)]
    rest = mul(build("scatter", others[0], index, others[1], mode="mul", **how), ct)
    zeros = _added(node, *[cast(none, int64) for none in zero])
    found: list[Node | None] = []
    for none, other, spread, count in ((zero[0], others[0], rest, zeros),
                                       (zero[1], others[1], _at_indices(node, rest), _at_indices(node, zeros))):
        plain = where(build("equal", count, zeros_like(count)), div(spread, other), zeros_like(spread))
        alone = build("logical_and", none, build("equal", count, constant_like(count, 1)))
        found.append(where(alone, spread, plain))
    return [found[0], None, found[1]]


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
