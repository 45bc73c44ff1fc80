"""Einstein summation over any number of tensors, in the order of least estimated time, each pair a matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.base import settings
from morpho.base.dims import Dim, Size, upper
from morpho.base.errors import ArgumentError, fail
from morpho.base.machine import machine
from morpho.base.units import parse_bytes
from morpho.cost.contraction import RATES, ContractionRates
from morpho.ir.node import Node, build
from morpho.ops.algebra import permute, reshape
from morpho.passes.einsum.contraction import ContractionOrder, checked_order, find_order, given_order
from morpho.passes.einsum.search import Network
from morpho.runtime import thresholds
from morpho.tensor.autodiff.precision import lowered
from morpho.tensor.core import Tensor
from morpho.tensor.functions.products.contract import Labelled, Labels, Wish, contract, held_bytes, wish_for
from morpho.tensor.functions.products.subscripts import complete, label_sizes, read_subscripts
from morpho.tensor.recorded import recorded

SHARE_OF_MEMORY = 2  # an intermediate may take one part in so many, unless the user says otherwise
METHODS = {True: "auto", False: "given", "optimal": "exact", "greedy": "greedy", "measured": "auto"}


@recorded
def einsum(*arguments: Any, optimize: Any = True, memory_limit: int | str | None = None) -> Tensor:
    """The sum of products that the subscripts describe: `einsum("ab,bc->ac", a, b)`, or `einsum(a, [0, 1], b, [1, 2])`.

    As in NumPy: a label repeated within an operand takes its diagonal, a label missing from the output is summed over,
    `...` stands for axes that broadcast, and without `->` the output has the labels that occur once, sorted. Several
    operands are contracted pair by pair in the order that `einsum_path` shows: `optimize=True` takes the fastest by
    estimate, `False` goes from left to right, `"greedy"` and `"optimal"` name the search, and a path (or the result of
    `einsum_path`) is followed. `"measured"` estimates by the rates that `morpho doctor --measure` found here, as does
    `mo.settings(fast=True)`; integers, whose bits no order changes, always do. No intermediate, the result of a pair
    that is not the last, takes more than `memory_limit` bytes (or "2 GB"; half the memory). Truth values count as the
    float32 numbers they are held as; copies that a pair makes of its operands do not count.

    >>> mo.einsum("ij,jk->ki", [[1.0, 2.0]], [[3.0], [4.0]]).tolist()
    [[11.0]]
    >>> mo.einsum("ii", mo.eye(3)).item()
    3.0
    """
    problem = _Problem(arguments)
    return Tensor.of_node(problem.contracted(problem.order(optimize, memory_limit)))


def einsum_path(*arguments: Any, optimize: Any = True, memory_limit: int | str | None = None) -> ContractionOrder:
    """The order in which `einsum` would contract the same arguments: `path`, `flops`, `largest_bytes`, `seconds`, and
    a table when printed.

    >>> a, b, c = mo.zeros((2, 300)), mo.zeros((300, 400)), mo.zeros((400, 500))
    >>> print(mo.einsum_path("ab,bc,cd->ad", a, b, c))
    step    contraction    flops  result  estimate
    (0, 1)  ab,bc->ac    4.8e+05  3.2 kB   74.6 us
    (1, 0)  ac,cd->ad      8e+05    4 kB    123 us
    1.28e+06 flops ...
    """
    return _Problem(arguments).order(optimize, memory_limit)


class _Problem:
    """An expression with its operands: diagonals taken, axes that broadcast left out, lone labels summed."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        operands, given, output = read_subscripts(arguments)
        nodes = lowered("einsum", "product", *operands)
        shapes = [node.shape for node in nodes]
        terms, self.output = complete(given, output, shapes)
        self.sizes = label_sizes(terms, shapes)
        found = [self.operand(node, term) for node, term in zip(nodes, terms, strict=True)]
        counts: dict[str, int] = {}
        for operand in found:
            for label in operand.labels:
                counts[label] = counts.get(label, 0) + 1
        self.operands = [operand.summed(label for label in operand.labels
                                        if counts[label] == 1 and label not in self.output) for operand in found]
        self.dtype = nodes[0].dtype

    def operand(self, node: Node, term: Labels) -> Labelled:
        for label in dict.fromkeys(term):
            while term.count(label) > 1:
                node, term = _diagonal(node, term, label)
        # An axis of size 1 that broadcasts, or that the result has too, is no axis; one that is summed stays.
        gone = [size == 1 and (self.sizes[label] != 1 or label in self.output)
                for label, size in zip(term, node.shape, strict=True)]
        kept = tuple(label for label, is_gone in zip(term, gone, strict=True) if not is_gone)
        shape = tuple(size for size, is_gone in zip(node.shape, gone, strict=True) if not is_gone)
        return Labelled(reshape(node, shape), kept, tuple(la for la in term if la in kept or la in self.output))

    # -- the order -----------------------------------------------------------------------------------------------------
    @property
    def network(self) -> Network:
        terms = tuple(operand.labels for operand in self.operands)
        present = dict.fromkeys(label for term in terms for label in term)
        return Network(terms, tuple(label for label in self.output if label in present),
                       tuple((label, upper(self.sizes[label])) for label in present), held_bytes(self.dtype))

    def order(self, optimize: Any, memory_limit: int | str | None) -> ContractionOrder:
        limit = self.limit_bytes(memory_limit)
        if isinstance(optimize, bool | str):
            if optimize not in METHODS:
                raise fail(ArgumentError, "einsum", f"optimize={optimize!r} is unknown",
                           'use True, False, "greedy", "optimal", "measured" or a path')
            return find_order(self.network, limit, METHODS[optimize], self.rates(optimize == "measured"))
        path = optimize.path if isinstance(optimize, ContractionOrder) else optimize
        return checked_order(given_order(self.network, _pairs(path), self.rates(False)), limit)

    def rates(self, named: bool) -> ContractionRates:
        """This machine's, where the user asks for them or no order changes a bit; else those of every machine."""
        free = named or settings.get().fast or not (self.dtype.is_float or self.dtype.is_complex)
        return thresholds.current().rates if free else RATES

    def limit_bytes(self, memory_limit: int | str | None) -> int | None:
        """The cap on intermediates. A dynamic size is capped at its largest, but only if the user gives a limit."""
        if memory_limit is not None:
            return parse_bytes(memory_limit, "einsum", "memory_limit")
        if any(isinstance(size, Dim) for size in self.sizes.values()):
            return None
        return machine().memory_bytes // SHARE_OF_MEMORY

    # -- the nodes -----------------------------------------------------------------------------------------------------
    def contracted(self, order: ContractionOrder) -> Node:
        alive = list(self.operands)
        final = tuple(label for label in self.output if any(label in operand.sizes for operand in self.operands))
        for step, wish in zip(order.steps, _wishes(order, final), strict=True):
            a, b = (alive[position] for position in step.positions)
            for position in sorted(step.positions, reverse=True):
                del alive[position]
            alive.append(contract(a, b, step.result, wish))
        return reshape(alive[0].arranged(final), tuple(self.sizes[label] for label in self.output))


def _wishes(order: ContractionOrder, final: Labels) -> list[Wish]:
    """For every step, how the one that uses its result would like it to lie; the last one makes the output."""
    wishes = [Wish((final,), run=final) for _ in order.steps]
    makers = [-1] * (len(order.steps) + 1)
    for number, step in enumerate(order.steps):
        first, second = step.positions
        for maker, own, other in ((makers[first], step.left, step.right), (makers[second], step.right, step.left)):
            if maker >= 0:
                wishes[maker] = wish_for(own, other, step.result)
        for position in sorted(step.positions, reverse=True):
            del makers[position]
        makers.append(number)
    return wishes


def _pairs(path: Any) -> list[tuple[int, ...]]:
    """A path as NumPy writes it, with or without its first word."""
    try:
        steps = [tuple(step) for step in path if step != "einsum_path"]
        if all(isinstance(position, int) for step in steps for position in step):
            return steps
    except TypeError:
        pass
    raise fail(ArgumentError, "einsum", f"optimize={path!r} is no path",
               "give tuples of positions, as in [(0, 1), (0, 1)]")


def _diagonal(node: Node, term: Labels, label: str) -> tuple[Node, Labels]:
    """The first two axes of a label as one, the last."""
    first = term.index(label)
    second = term.index(label, first + 1)
    rest = tuple(i for i in range(len(term)) if i not in (first, second))
    outer = tuple(node.shape[i] for i in rest)
    count: Size = node.shape[first]
    flat = reshape(permute(node, (*rest, first, second)), (*outer, count * count))
    zeros, ones = (0,) * len(rest), (1,) * len(rest)
    if isinstance(count, int):
        line = build("slice", flat, starts=(*zeros, 0), sizes=(*outer, count), steps=(*ones, count + 1))
    else:  # a step is a number: with one column more, the diagonal is the first column
        padded = build("pad", flat, before=(*zeros, 0), after=(*zeros, count), value=0)
        wide = reshape(padded, (*outer, count, count + 1))
        column = build("slice", wide, starts=(*zeros, 0, 0), sizes=(*outer, count, 1), steps=(*ones, 1, 1))
        line = reshape(column, (*outer, count))
    return line, (*(term[i] for i in rest), label)
