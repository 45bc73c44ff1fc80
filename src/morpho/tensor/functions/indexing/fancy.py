"""Indexing by integer tensors: several broadcast together, any axes between them, as one gather or scatter.

The indexed axes are brought together and flattened, the indices become one number per element, and the native `gather`
reads along that axis. Axes that stand together stay where they are, so that rows are read as rows. An index outside
its axis makes the number -1, which the kernel reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold

from morpho.base.dims import Shape, Size, product
from morpho.base.dtypes import int64, uint64
from morpho.base.errors import IndexFault, fail
from morpho.base.shapes import broadcast
from morpho.ir.node import Node, build
from morpho.ops.algebra import add, cast, constant_like, expand, mul, permute, reshape, size_value, where
from morpho.tensor.core import Tensor


def wrapped(index: Node, size: Size) -> Node:
    """Indices as int64, those below zero counted from the end. Those of uint64 stay: the largest are out of range, and
    would be told as negative ones."""
    if index.dtype.kind == "u":
        return index if index.dtype is uint64 else cast(index, int64)
    index = cast(index, int64)
    length = expand(size_value(size, int64), index.shape)
    return where(build("less", index, constant_like(index, 0)), add(index, length), index)


def _checked(index: Node, size: Size, linear: Node) -> Node:
    """The linear index, or -1 where this part of it is outside its axis."""
    length = expand(size_value(size, int64), index.shape)
    inside = build("logical_and", build("greater_equal", index, constant_like(index, 0)), build("less", index, length))
    return where(inside, linear, constant_like(linear, -1))


class Fancy:
    """One key of integer tensors on a view. `fancy` lists the axes with their indices, None for a single integer (an
    axis of size 1 that disappears); `together` says whether they stand side by side, so that the result does too."""

    def __init__(self, shape: Shape, fancy: Sequence[tuple[int, Tensor | None]], together: bool) -> None:
        self.shape = shape
        self.indexed = [axis for axis, indices in fancy if indices is not None]
        indices = [indices.node for _, indices in fancy if indices is not None]
        dropped = [axis for axis, found in fancy if found is None]
        self.kept = [axis for axis in range(len(shape)) if axis not in self.indexed and axis not in dropped]
        self.rest = tuple(shape[axis] for axis in self.kept)
        self.common = broadcast("index", *[node.shape for node in indices])
        first = min(axis for axis, _ in fancy)
        self.place = sum(axis < first for axis in self.kept) if together else 0
        self.order = (*self.kept[:self.place], *dropped, *self.indexed, *self.kept[self.place:])
        self.linear = self._linear([expand(node, self.common) for node in indices])

    def _linear(self, indices: list[Node]) -> Node:
        sizes = [self.shape[axis] for axis in self.indexed]
        if any(size == 0 for size in sizes) and product(self.common) != 0:
            raise fail(IndexFault, "index", f"indices of shape {self.common} read an axis of size 0")
        parts = [wrapped(node, size) for node, size in zip(indices, sizes, strict=True)]
        if len(parts) == 1:
            return parts[0]
        parts = [cast(part, int64) for part in parts]
        scaled = [mul(part, expand(size_value(product(tuple(sizes[i + 1:])), int64), part.shape))
                  for i, part in enumerate(parts)]
        linear = fold(add, scaled)
        for part, size in zip(parts, sizes, strict=True):
            linear = _checked(part, size, linear)
        return linear

    @property
    def called(self) -> str:
        """Name of the operation in errors, without the internal number of combined indices."""
        return "index" if len(self.indexed) == 1 else "indices"

    @property
    def result(self) -> Shape:
        """The shape of the value the key names."""
        return self._around(self.common)

    def _lines(self, view: Node) -> Node:
        """Indexed axes side by side and flattened: (kept..., elements, kept...)."""
        flat = product(tuple(self.shape[axis] for axis in self.indexed))
        return reshape(permute(view, self.order), self._around((flat,)))

    def _around(self, middle: Shape) -> Shape:
        return (*self.rest[:self.place], *middle, *self.rest[self.place:])

    def _spread(self) -> Node:
        """The linear index for every line: (kept..., indices, kept...)."""
        count = product(self.common)
        behind = len(self.rest) - self.place
        return expand(reshape(self.linear, (1,) * self.place + (count,) + (1,) * behind), self._around((count,)))

    def read(self, view: Node) -> Node:
        """The elements at the indices."""
        return reshape(build("gather", self._lines(view), self._spread(), axis=self.place, called=self.called),
                       self.result)

    def write(self, view: Node, value: Node, mode: str = "set") -> Node:
        """The view with the elements at the indices replaced, of equal indices the last one stays; or combined with
        the value, as often as there are equal ones."""
        lines, index = self._lines(view), self._spread()
        filled = build("scatter", lines, index, reshape(value, index.shape), axis=self.place, mode=mode,
                       called=self.called)
        ordered = reshape(filled, tuple(self.shape[axis] for axis in self.order))
        return permute(ordered, tuple(self.order.index(i) for i in range(len(self.order))))
