"""Tensors whose axes have labels, and the contraction of two of them as one matrix product.

Axes are put into groups (batch, rows, columns, summed) in an order in which the reshapes to matrices are views,
where there is one, and in which the result lies as the next contraction, or the user, wants it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations

from morpho.base.dims import Size, product, upper
from morpho.base.dtypes import DType, bool_, float32
from morpho.base.shapes import contiguous_strides, reshape_strides
from morpho.ir.node import Node, build
from morpho.ir.views import strides_of
from morpho.ops.algebra import cast, expand, mul, permute, reduce, reshape, zeros_like

Labels = tuple[str, ...]
COUNTS = float32  # the dtype in which products of truth values are summed


class Labelled:
    """A node with a label for every axis.

    `written` are these labels and those of axes left out because they have size 1, in the order of the expression:
    choices that rounding depends on look at it, so that a batch of one gives the bits of a batch of many.
    """

    __slots__ = ("labels", "node", "sizes", "strides", "written")

    def __init__(self, node: Node, labels: Labels, written: Labels) -> None:
        self.node, self.labels, self.written = node, labels, written
        self.sizes: dict[str, Size] = dict(zip(labels, node.shape, strict=True))
        found = strides_of(node)
        self.strides: dict[str, Size] = dict(zip(labels, contiguous_strides(node.shape) if found is None else found,
                                                 strict=True))

    @property
    def elements(self) -> int:
        return upper(product(self.node.shape))

    def in_order(self, labels: Iterable[str]) -> Labels:
        """Labels as they lie in memory, the widest stride first; batches of equal strides as they are named."""
        return tuple(sorted(labels, key=lambda label: -abs(upper(self.strides[label]))))

    def merges(self, labels: Labels) -> bool:
        """Whether these axes are one axis without a copy."""
        if len(labels) < 2:
            return True
        sizes = tuple(self.sizes[label] for label in labels)
        strides = tuple(self.strides[label] for label in labels)
        return reshape_strides(sizes, strides, (product(sizes),)) is not None

    def arranged(self, labels: Labels) -> Node:
        """The node with its axes in this order."""
        return permute(self.node, tuple(self.labels.index(label) for label in labels))

    def spread(self, labels: Labels, sizes: dict[str, Size]) -> Node:
        """The node expanded to these labels, some of which it may lack."""
        own = self.arranged(tuple(label for label in labels if label in self.sizes))
        with_ones = reshape(own, tuple(self.sizes.get(label, 1) for label in labels))
        return expand(with_ones, tuple(sizes[label] for label in labels))

    def summed(self, labels: Iterable[str]) -> Labelled:
        """Without some labels: the sum over them."""
        gone = {*labels}
        if not gone:
            return self
        kept = tuple(label for label in self.labels if label not in gone)
        total = _total(self.node, tuple(i for i, label in enumerate(self.labels) if label in gone))
        node = reshape(total, tuple(self.sizes[label] for label in kept))
        return Labelled(node, kept, tuple(label for label in self.written if label not in gone))


@dataclass(frozen=True)
class Wish:
    """How a result should lie: `orders` worth trying, labels in any order but side by side, labels in this order."""

    orders: tuple[Labels, ...] = ()
    together: Labels = ()
    run: Labels = ()

    def is_granted(self, labels: Labels) -> bool:
        in_this_order = tuple(label for label in labels if label in self.run) == self.run
        return in_this_order and _together(self.run, labels) and _together(self.together, labels)


def _together(group: Labels, labels: Labels) -> bool:
    places = sorted(labels.index(label) for label in group)
    return not places or places[-1] - places[0] == len(places) - 1


def wish_for(labels: Iterable[str], partner: Labels, result: Iterable[str]) -> Wish:
    """Preferred layout of a tensor before a contraction with `partner`: its kept and summed labels next to each
    other."""
    labels, kept = tuple(labels), {*result}
    summed = tuple(label for label in partner if label in labels and label not in kept)
    if not summed:
        return Wish()
    batch = tuple(label for label in labels if label in partner and label in kept)
    own = tuple(label for label in labels if label not in partner)
    return Wish(((*batch, *own, *summed), (*batch, *summed, *own)), own, summed)


def contract(a: Labelled, b: Labelled, kept: Iterable[str], wish: Wish) -> Labelled:
    """The product of two tensors, summed over the labels both have and `kept` has not."""
    kept = {*kept}
    inner = _inner(a, b, {label for label in a.labels if label in b.sizes and label not in kept})
    if not inner:
        return _multiplied(a, b, wish)
    if {*a.written} == {*b.written}:  # nothing but batches: a row of each times a row of the other, one fused kernel
        return _multiplied(a, b, wish, inner).summed(inner)
    return _matrix_product(_best_layout(a, b, inner, wish), inner)


def _inner(a: Labelled, b: Labelled, summed: set[str]) -> Labels:
    """The order of the summed labels, which decides the rounding: that of the first, unless only the second has them
    side by side."""
    first, second = (tuple(label for label in x.written if label in summed) for x in (a, b))
    return second if _together(second, b.written) and not _together(first, a.written) else first


def _written(a: Labelled, b: Labelled, labels: Labels) -> Labels:
    missing = [label for x in (a, b) for label in x.written if label not in x.sizes and label not in labels]
    return (*labels, *dict.fromkeys(missing))


def _multiplied(a: Labelled, b: Labelled, wish: Wish, inner: Labels = ()) -> Labelled:
    """The product, element by element, with the labels in the wished order and `inner` last."""
    sizes = a.sizes | b.sizes
    outer = {label: None for label in (*(wish.orders[0] if wish.orders else ()), *sizes) if label in sizes}
    labels = (*(label for label in outer if label not in inner), *inner)
    one, other = a.spread(labels, sizes), b.spread(labels, sizes)
    node = build("logical_and", one, other) if one.dtype is bool_ else mul(one, other)
    return Labelled(node, labels, _written(a, b, labels))


def _total(node: Node, axes: tuple[int, ...]) -> Node:
    return reduce("any" if node.dtype is bool_ else "sum", node, axes)


# -- matrix products -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Layout:
    """Which operand is the left one, the order of labels in each group, and how many elements must be copied for it."""

    left: Labelled
    right: Labelled
    batch: Labels
    rows: Labels
    columns: Labels
    moved: float


def _best_layout(a: Labelled, b: Labelled, inner: Labels, wish: Wish) -> _Layout:
    """The first that moves nothing, or else the one that moves least."""
    found = []
    for layout in _layouts(a, b, inner, wish):
        found.append(layout)
        if not layout.moved:
            return layout
    return min(found, key=lambda layout: layout.moved)


def _layouts(a: Labelled, b: Labelled, inner: Labels, wish: Wish) -> Iterator[_Layout]:
    """The layouts worth looking at: groups as they lie in an operand or as they are wished, either operand first."""
    shared = tuple(label for label in a.labels if label in b.sizes and label not in inner)
    for left, right in ((a, b), (b, a)):
        batches = _orders(shared, (left, right), wish)
        rows = _orders([label for label in left.labels if label not in right.sizes], (left,), wish)
        columns = _orders([label for label in right.labels if label not in left.sizes], (right,), wish)
        for choice in combinations(batches, rows, columns):
            yield _Layout(left, right, *choice, _moved(left, right, inner, *choice, wish))


def _orders(labels: Sequence[str], operands: Sequence[Labelled], wish: Wish) -> list[Labels]:
    found = [operand.in_order(labels) for operand in operands]
    found += [tuple(label for label in order if label in labels) for order in wish.orders]
    return list(dict.fromkeys(found))


def _moved(left: Labelled, right: Labelled, inner: Labels, batch: Labels, rows: Labels, columns: Labels,
           wish: Wish) -> float:
    """Elements copied: operands whose groups do not merge, and a result that is not as wished. Batches that have more
    than one stride are copied by some kernels only."""
    total = 0.0
    for operand, own in ((left, rows), (right, columns)):
        if not (operand.merges(own) and operand.merges(inner)):
            total += operand.elements
        elif not operand.merges(batch):
            total += operand.elements / 2
    if not wish.is_granted((*batch, *rows, *columns)):
        sizes = left.sizes | right.sizes
        total += upper(product(tuple(sizes[label] for label in (*batch, *rows, *columns))))
    return total


def _matrix_product(layout: _Layout, inner: Labels) -> Labelled:
    left, right = layout.left, layout.right
    sizes = left.sizes | right.sizes
    one = _matrices(left, layout.batch, layout.rows, inner)
    other = _matrices(right, layout.batch, inner, layout.columns)
    labels = (*layout.batch, *layout.rows, *layout.columns)
    node = reshape(_matmul(one, other), tuple(sizes[label] for label in labels))
    return Labelled(node, labels, _written(left, right, labels))


def _matrices(x: Labelled, batch: Labels, rows: Labels, columns: Labels) -> Node:
    """Stacked matrices: batch axes as they are, the two groups merged to one axis each."""
    groups = [product(tuple(x.sizes[label] for label in group)) for group in (rows, columns)]
    return reshape(x.arranged((*batch, *rows, *columns)), (*(x.sizes[label] for label in batch), *groups))


def _matmul(one: Node, other: Node) -> Node:
    if one.dtype is not bool_:
        return build("matmul", one, other)
    counts = build("matmul", cast(one, COUNTS), cast(other, COUNTS))  # never back to 0: only that it is not 0 is used
    return build("not_equal", counts, zeros_like(counts))


def held_bytes(dtype: DType) -> int:
    """Bytes of an element of a contraction's result: truth values lie there as what they are counted in,
    between a product and the next one too; all others, small integers and half floats among them, as they are.

    >>> held_bytes(bool_), held_bytes(float32)
    (4, 4)
    """
    return COUNTS.itemsize if dtype is bool_ else dtype.itemsize
