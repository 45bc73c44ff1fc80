"""A tensor cut into parts along an axis, each a view."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dims import Dim, quotient_down
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import as_integer, normalise_axis
from morpho.ir.node import Node
from morpho.tensor.core import Tensor
from morpho.tensor.functions.move import slice_node
from morpho.tensor.operands import as_node
from morpho.tensor.recorded import recorded


@recorded
def split(x: Any, sections: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """As many equal parts as `sections` says, or parts that end where its numbers say (NumPy's and JAX's meaning; for
    parts of a given size write `range(size, n, size)`).

    >>> [part.tolist() for part in mo.split(mo.arange(6), 3)]
    [[0, 1], [2, 3], [4, 5]]
    >>> [part.tolist() for part in mo.split(mo.arange(6), [1, 4])]
    [[0], [1, 2, 3], [4, 5]]
    """
    return _parts("split", x, sections, axis, equal=True)


@recorded
def array_split(x: Any, sections: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """`split` whose parts need not be equal: the first ones are longer by one where the size is no multiple.

    >>> [part.tolist() for part in mo.array_split(mo.arange(5), 3)]
    [[0, 1], [2, 3], [4]]
    """
    return _parts("array_split", x, sections, axis, equal=False)


def hsplit(x: Any, sections: Any, /) -> tuple[Tensor, ...]:
    """`split` along the second axis, or the first of a vector.

    >>> [part.tolist() for part in mo.hsplit(mo.asarray([[1, 2], [3, 4]]), 2)]
    [[[1], [3]], [[2], [4]]]
    """
    return _parts("hsplit", x, sections, 1 if len(as_node(x, "hsplit").shape) > 1 else 0, equal=True)


def vsplit(x: Any, sections: Any, /) -> tuple[Tensor, ...]:
    """`split` along the first axis of two or more.

    >>> [part.tolist() for part in mo.vsplit(mo.asarray([[1, 2], [3, 4]]), 2)]
    [[[1, 2]], [[3, 4]]]
    """
    if len(as_node(x, "vsplit").shape) < 2:
        raise fail(ShapeError, "vsplit", f"shape {as_node(x, 'vsplit').shape} has no rows", "use mo.split")
    return _parts("vsplit", x, sections, 0, equal=True)


@recorded
def chunk(x: Any, chunks: int, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """At most so many parts, all but the last of one size (PyTorch's meaning).

    >>> [part.tolist() for part in mo.chunk(mo.arange(5), 3)]
    [[0, 1], [2, 3], [4]]
    """
    count = as_integer(chunks, "chunk", "the number of chunks")
    node = as_node(x, "chunk")
    number = normalise_axis(axis, len(node.shape), "chunk")
    size = _known("chunk", node, number)
    if count < 1:
        raise fail(ArgumentError, "chunk", f"{count} chunks cannot be made")
    length = max(-(-size // count), 1)
    ends = [*range(length, size, length), size]
    return _between(node, number, ends)


def _known(name: str, node: Node, axis: int) -> int:
    size = node.shape[axis]
    if isinstance(size, Dim):
        raise fail(ShapeError, name, f"the parts of the dynamic size {size} are not known",
                   "give a number of sections that divides it, or slice")
    return size


def _parts(name: str, x: Any, sections: Any, axis: Any, equal: bool) -> tuple[Tensor, ...]:
    node = as_node(x, name)
    number = normalise_axis(axis, len(node.shape), name)
    if isinstance(sections, Tensor):
        sections = sections.numpy()
    if isinstance(sections, tuple | list | range | np.ndarray) and np.ndim(sections) == 1:
        size = _known(name, node, number)
        ends = [as_integer(end, name, "an end") for end in sections]
        return _between(node, number, [*(min(max(end + size if end < 0 else end, 0), size) for end in ends), size])
    count = as_integer(sections, name, "the number of sections")
    if count < 1:
        raise fail(ArgumentError, name, f"{count} sections cannot be made")
    whole = node.shape[number]
    if equal:
        length = quotient_down(whole, count)
        if length is None or length * count != whole:
            raise fail(ShapeError, name, f"size {whole} of axis {number} is not divisible into {count} equal sections",
                       "mo.array_split makes unequal ones")
        return _between(node, number, [length * (i + 1) for i in range(count)])
    short, longer = divmod(_known(name, node, number), count)
    return _between(node, number, [short * (i + 1) + min(i + 1, longer) for i in range(count)])


def _between(node: Node, axis: int, ends: list[Any]) -> tuple[Tensor, ...]:
    """The parts up to each end; one that ends before it begins is empty."""
    parts, rank, start = [], len(node.shape), 0
    for end in ends:
        size = end - start if not isinstance(end, int) or end > start else 0
        starts = tuple(start if i == axis and size != 0 else 0 for i in range(rank))
        sizes = tuple(size if i == axis else s for i, s in enumerate(node.shape))
        parts.append(Tensor.of_node(slice_node(node, starts, sizes, (1,) * rank)))
        start = end
    return tuple(parts)
