"""`mo.vmap`: a function of one row as a function of many, by the batching rule of every op."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from morpho.base.checks import as_whole
from morpho.base.dims import Size
from morpho.base.errors import ArgumentError, AxisError, ShapeError, fail
from morpho.base.trees import LEAF, flatten, unflatten
from morpho.ir.node import Node
from morpho.ops.algebra import permute
from morpho.ops.batching import batch_of, in_front, row_leaf
from morpho.ops.collective import come_after, of_a_body
from morpho.tensor.autodiff.arguments import with_numbers
from morpho.tensor.autodiff.autograd import settle
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor


def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """A function that calls another one on every row of its arguments, at once: it has the bits of the loop.

    The function is called once, with tensors that stand for one row each and have its shape; its operations are then
    built for all rows. Inside it a value has no number of its own: `numpy()`, `item()` and `if` on one are errors, and
    so is giving a `mo.State` a new value. A random draw from a key of the surroundings is the same for every row; give
    each row a key of its own with `mo.random.split(key, n)`.

    function: of tensors, or of trees of them; it may be compiled, use `mo.grad` and its like, or `vmap` itself.
    in_axes: where the rows of each argument lie: one number for all, or one for each argument; None for an argument
        that is the same for every row. A tree of numbers says it for the parts of an argument. Arguments given by name
        have theirs along axis 0.
    out_axes: where the rows of the result lie, in the same way; None for what does not depend on the row.

    >>> import morpho as mo
    >>> mo.vmap(mo.vecdot)(mo.asarray([[1.0, 2.0], [3.0, 4.0]]), mo.ones((2, 2))).tolist()
    [3.0, 7.0]
    >>> table = mo.vmap(mo.vmap(lambda a, b: a - b, (None, 0)), (0, None))    # every a with every b
    >>> table(mo.asarray([1.0, 2.0]), mo.asarray([10.0, 20.0, 30.0])).tolist()
    [[-9.0, -19.0, -29.0], [-8.0, -18.0, -28.0]]
    """
    if not callable(function):
        raise fail(ArgumentError, "vmap", f"{type(function).__name__} is not a function")

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        axes = _of_arguments(in_axes, len(arguments))
        rows = _Batch()
        placed = [rows.placed(argument, axis, f"argument {number}")
                  for number, (argument, axis) in enumerate(zip(arguments, axes, strict=True))]
        by_name = {name: rows.placed(argument, 0, f"argument {name}") for name, argument in named.items()}
        rows.check()
        tracing.batched += 1
        try:
            with of_a_body() as groups:
                result = function(*placed, **by_name)
        finally:
            tracing.batched -= 1
        return rows.results(result, out_axes, groups)

    return call


def _of_arguments(in_axes: Any, count: int) -> Sequence[Any]:
    """The axis, or the tree of axes, of each argument."""
    if in_axes is None or as_whole(in_axes) is not None:
        return [in_axes] * count
    if not isinstance(in_axes, tuple | list):
        raise fail(ArgumentError, "vmap", f"in_axes={in_axes!r} is neither a number nor one for each argument",
                   "write in_axes=0, or in_axes=(0, None)")
    if len(in_axes) != count:
        raise fail(ArgumentError, "vmap", f"in_axes names {len(in_axes)} axes for {count} arguments",
                   "give one for each argument by position; those by name have their rows along axis 0")
    return in_axes


def _axes_of(axes: Any, structure: Any, what: str) -> Iterator[Any]:
    """The axis of every leaf of a tree, from a number or from a tree of numbers that ends no later."""
    if axes is None or as_whole(axes) is not None or structure is LEAF:
        if axes is not None and as_whole(axes) is None:
            raise fail(ArgumentError, "vmap", f"the axis of {what} is {axes!r}, not a number or None")
        number = None if axes is None else as_whole(axes)
        yield from [number] * _leaves_in(structure)
        return
    kind, content = structure[0], structure[-1]
    if kind == "dict" and isinstance(axes, dict) and axes.keys() == {key for key, _ in content}:
        pairs = [(axes[key], item) for key, item in content]
    elif kind in ("tuple", "list", "named") and isinstance(axes, tuple | list) and len(axes) == len(content):
        pairs = list(zip(axes, content, strict=True))
    else:
        raise fail(ArgumentError, "vmap", f"the axes {axes!r} are not arranged like {what}")
    for axis, item in pairs:
        yield from _axes_of(axis, item, what)


def _leaves_in(structure: Any) -> int:
    if structure is LEAF:
        return 1
    if structure[0] == "static":
        return 0
    return sum(_leaves_in(item[1] if structure[0] == "dict" else item) for item in structure[-1])


class _Batch:
    """The arguments of one call: how many rows they have, and the leaf that stands for a row of each."""

    def __init__(self) -> None:
        self.size: Size | None = None
        self.first = ""  # who said so
        self.leaves: dict[int, Node] = {}

    def placed(self, argument: Any, axes: Any, what: str) -> Any:
        """The argument with a row in place of each tensor that has rows."""
        if isinstance(argument, int | float | complex | np.number) and not isinstance(argument, bool | np.bool):
            if axes is None:
                return argument
            raise fail(ShapeError, "vmap", f"{what} is a number, which has no rows", "give in_axes=None for it")
        tensors: list[Any] = []
        structure = flatten(argument, tensors)
        rows = [self._row(asarray(tensor), axis, what) if axis is not None else tensor
                for tensor, axis in zip(tensors, _axes_of(axes, structure, what), strict=True)]
        return unflatten(structure, iter(rows))

    def _row(self, tensor: Tensor, axis: int, what: str) -> Tensor:
        rank = len(tensor.shape)
        if not -rank <= axis < rank:
            raise fail(AxisError, "vmap", f"{what} has shape {tensor.shape} and no axis {axis} for its rows",
                       "give in_axes=None where it is the same for every row")
        axis %= rank
        size = tensor.shape[axis]
        if self.size is None:
            self.size, self.first = size, what
        elif size != self.size:
            raise fail(ShapeError, "vmap", f"{what} has {size} rows along axis {axis} and {self.first} has {self.size}")
        node = permute(tensor.program(), (axis, *[i for i in range(rank) if i != axis]))
        leaf = row_leaf(node.shape[1:], node.dtype, node.device)
        self.leaves[leaf.serial] = node
        return Tensor.of_node(leaf)

    def check(self) -> None:
        if self.size is None:
            raise fail(ArgumentError, "vmap", "no argument has rows", "give at least one an axis in in_axes")

    def results(self, result: Any, axes: Any, groups: set[int]) -> Any:
        """The result with the rows of every tensor along its axis; `groups` have collectives in it."""
        tensors: list[Any] = []
        structure = flatten(with_numbers(result), tensors)
        nodes = [asarray(tensor).program() for tensor in tensors]
        assert self.size is not None
        found = batch_of(nodes, self.leaves, self.size)
        come_after(groups, [node for node, _ in found])
        placed = [self._with_rows(*one, axis)
                  for one, axis in zip(found, _axes_of(axes, structure, "the result"), strict=True)]
        settle(groups, placed)
        return unflatten(structure, iter(placed))

    def _with_rows(self, node: Node, batched: bool, axis: int | None) -> Tensor:
        assert self.size is not None
        if axis is None:
            if batched:
                raise fail(ArgumentError, "vmap", "out_axes is None for a result that depends on the row",
                           "give it an axis, or reduce over the rows outside")
            return Tensor.of_node(node)
        node = in_front(node, batched, self.size)
        rank = len(node.shape)
        if not -rank <= axis < rank:
            raise fail(AxisError, "vmap", f"a result of shape {node.shape[1:]} has no axis {axis} for its rows")
        order = list(range(1, rank))
        order.insert(axis % rank, 0)
        return Tensor.of_node(permute(node, tuple(order)))

