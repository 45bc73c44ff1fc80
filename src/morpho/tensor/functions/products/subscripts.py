"""The language of einsum: `"ab,bc->ac"`, or operands interleaved with lists of numbers, as labels of every axis.

>>> read_subscripts(("ij,jk", "first", "second"))
(['first', 'second'], [('i', 'j'), ('j', 'k')], None)
>>> complete([("...", "i"), ("i",)], None, [(5, 3), (3,)])
([('.1', 'i'), ('i',)], ('.1',))
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from typing import Any

from morpho.base.dims import Shape, Size
from morpho.base.errors import ArgumentError, ShapeError, ValueFault, fail
from morpho.passes.einsum.contraction import spelled

Term = tuple[str, ...]
GAP = "..."


def read_subscripts(arguments: Sequence[Any]) -> tuple[list[Any], list[Term], Term | None]:
    """Operands, the labels of each (with `...` where an ellipsis stands), and those of the result if they are given."""
    if not arguments:
        raise fail(ArgumentError, "einsum", "no subscripts and no operands are given", 'call einsum("ab,bc->ac", a, b)')
    if isinstance(arguments[0], str):
        terms, output = _from_text(arguments[0])
        operands = list(arguments[1:])
    else:
        terms, output, operands = _from_lists(arguments)
    if len(terms) != len(operands):
        raise fail(ArgumentError, "einsum", f"the subscripts are for {len(terms)} operands, {len(operands)} are given")
    return operands, terms, output


def _from_text(text: str) -> tuple[list[Term], Term | None]:
    inputs, *outputs = "".join(text.split()).split("->")
    if len(outputs) > 1:
        raise fail(ValueFault, "einsum", f"the subscripts {text!r} hold more than one '->'")
    return [_term(part, text) for part in inputs.split(",")], _term(outputs[0], text) if outputs else None


def _term(part: str, text: str) -> Term:
    """The labels of one operand: a letter each, and at most one ellipsis."""
    before, *after = part.split(GAP)
    if len(after) > 1:
        raise fail(ValueFault, "einsum", f"{part!r} in the subscripts {text!r} holds more than one ellipsis")
    for letter in before + "".join(after):
        if not letter.isalpha():
            raise fail(ValueFault, "einsum", f"{letter!r} in the subscripts {text!r} is not a letter",
                       "write letters, ',', '->' and '...', as in 'ab,bc->ac'")
    return (*before, GAP, *after[0]) if after else tuple(before)


def _from_lists(arguments: Sequence[Any]) -> tuple[list[Term], Term | None, list[Any]]:
    count = len(arguments) // 2
    if not count:
        raise fail(ArgumentError, "einsum", "an operand is given without subscripts", 'call einsum("ab->ba", a)')
    terms = [_listed(arguments[2 * i + 1]) for i in range(count)]
    output = _listed(arguments[-1]) if len(arguments) % 2 else None
    return terms, output, [arguments[2 * i] for i in range(count)]


def _listed(numbers: Any) -> Term:
    """The labels of a list of numbers, and at most one Ellipsis."""
    if not isinstance(numbers, list | tuple):
        raise fail(ArgumentError, "einsum", f"{type(numbers).__name__} stands where a list of labels should",
                   "call einsum(a, [0, 1], b, [1, 2], [0, 2])")
    labels = []
    for number in numbers:
        try:
            labels.append(GAP if number is Ellipsis else str(operator.index(number)))
        except TypeError:
            raise fail(ArgumentError, "einsum", f"the label {number!r} is neither an integer nor an Ellipsis") from None
        if labels[-1].startswith("-"):
            raise fail(ValueFault, "einsum", f"the label {number} is negative")
    if labels.count(GAP) > 1:
        raise fail(ValueFault, "einsum", f"the list of labels {list(numbers)} holds more than one Ellipsis")
    return tuple(labels)


def complete(terms: Sequence[Term], output: Term | None, shapes: Sequence[Shape]) -> tuple[list[Term], Term]:
    """Every axis with a label: ellipses written out as `.1`, `.2`, ... counted from the last axis, and an output that
    is not given put together as NumPy does."""
    full = [_written_out(number, term, shape) for number, (term, shape) in enumerate(zip(terms, shapes, strict=True))]
    depths = [len(term) - len(given) + 1 for term, given in zip(full, terms, strict=True) if GAP in given]
    depth = max(depths, default=0)
    gap = _gap_labels(depth)
    if output is None:
        counts = Counter(label for term in terms for label in term if label != GAP)
        once = [label for label, count in counts.items() if count == 1]
        return full, (*gap, *sorted(once, key=lambda label: (len(label), label)))  # numbers in order, too
    if gap and GAP not in output:
        raise fail(ValueFault, "einsum", f"the operands have {depth} axes under '...', the output has no '...'",
                   "write '...' in the output too, or name the axes to sum over them")
    at = output.index(GAP) if GAP in output else 0
    labels = (*output[:at], *gap, *output[at + 1:]) if GAP in output else output
    known = {label for term in full for label in term}
    for label in labels:
        if label not in known:
            raise fail(ValueFault, "einsum", f"the output label {label!r} stands in no operand")
        if labels.count(label) > 1:
            raise fail(ValueFault, "einsum", f"the output label {label!r} stands twice in the output")
    return full, labels


def _gap_labels(depth: int) -> Term:
    return tuple(f".{position}" for position in range(depth, 0, -1))


def _written_out(number: int, term: Term, shape: Shape) -> Term:
    named = len(term) - (GAP in term)
    if named > len(shape) or (named < len(shape) and GAP not in term):
        raise fail(ShapeError, "einsum", f"operand {number} of shape {shape} has {len(shape)} dimensions, "
                                         f"its subscripts {spelled(term)!r} name {named}")
    if GAP not in term:
        return term
    at = term.index(GAP)
    return (*term[:at], *_gap_labels(len(shape) - named), *term[at + 1:])


def label_sizes(terms: Sequence[Term], shapes: Sequence[Shape]) -> dict[str, Size]:
    """The size of every label; an axis of size 1 goes with any size, but not within one operand."""
    sizes: dict[str, Size] = {}
    found_in: dict[str, int] = {}
    for number, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        here: dict[str, Size] = {}
        for label, size in zip(term, shape, strict=True):
            if here.setdefault(label, size) != size:
                raise fail(ShapeError, "einsum", f"label {label!r} has sizes {here[label]} and {size} within operand "
                                                 f"{number} of shape {shape}")
        for label, size in here.items():
            if sizes.get(label, 1) == 1:
                sizes[label], found_in[label] = size, number
            elif size not in (1, sizes[label]):
                name = f"label {label!r}" if label[0] != "." else f"axis -{label[1:]} of '...'"
                raise fail(ShapeError, "einsum", f"{name} has size {sizes[label]} in operand {found_in[label]} and "
                                                 f"{size} in operand {number}")
    return sizes
