"""A rule as a contraction: atoms are tensors with a label for each variable, comparisons are masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import morpho as mo
from morpho.logic.analysis.core import CoreRule, Grouped, Negated, is_unnamed
from morpho.logic.dense.contract import Labels, TensorSemiring, contract
from morpho.logic.dense.domains import Axes
from morpho.logic.syntax.terms import Atom, Compare, Constant, Term, Variable
from morpho.logic.tuples.codes import Codes, encode_one
from morpho.logic.tuples.terms import Scope

Read = Callable[[str, int], Any]  # predicate and position in the body -> tensor


def is_dense(rule: CoreRule) -> bool:
    """Whether a rule has what tensors can do: atoms, and comparisons of the variables of atoms."""
    bound = {term for literal in rule.body if isinstance(literal, Atom) for term in literal.terms
             if isinstance(term, Variable)}
    for literal in rule.body:
        if isinstance(literal, Grouped) or (isinstance(literal, Atom) and literal.predicate.startswith("_given/")):
            return False
        if isinstance(literal, Negated) and not all(isinstance(term, Constant) or term in bound or is_unnamed(term)
                                                    for term in literal.atom.terms):
            return False
        if isinstance(literal, Compare) and not all(isinstance(side, Constant) or side in bound
                                                    for side in (literal.left, literal.right)):
            return False
    return all(isinstance(term, Constant) or term in bound for term in rule.head.terms)


@dataclass
class Operand:
    """A tensor with labels; `wildcards` are axes to be summed."""

    tensor: Any
    labels: Labels


class DenseRule:
    """One rule over the axes of a stratum."""

    def __init__(self, rule: CoreRule, axes: Axes, semiring: TensorSemiring, dtype: Any,
                 types: Mapping[Variable, Any]) -> None:
        self.rule, self.axes, self.semiring, self.dtype, self.types = rule, axes, semiring, dtype, types
        self.numbers: dict[Variable, int] = {}
        self.codes: dict[int, Codes] = {}
        for literal in rule.body:
            if isinstance(literal, Atom):
                self._number(literal)
        self.fresh = len(self.numbers) + 1000

    def _number(self, atom: Atom) -> None:
        for column, term in enumerate(atom.terms):
            if isinstance(term, Variable):
                label = self.numbers.setdefault(term, len(self.numbers))
                self.codes[label] = self.axes.of(atom.predicate, column)

    def run(self, read: Read, weight: Any = None) -> Any:
        """The head's tensor; `read` gives the tensor that an atom at a position reads."""
        operands: list[Operand] = []
        for position, literal in enumerate(self.rule.body):
            if isinstance(literal, Atom):
                operands.append(self._atom(literal, read(literal.predicate, position)))
            elif isinstance(literal, Negated):
                operands.append(self._negated(literal.atom, read(literal.atom.predicate, position)))
            elif isinstance(literal, Compare):
                operands.append(self._mask(literal))
        output = self._head(operands)
        given = self.rule.weight if weight is None else weight
        ring, given = self.semiring.ring, self.rule.weight if weight is None else weight
        given = None if ring.crisp else given
        if given is not None and operands and not ring.distributive:  # a factor of each derivation, not of their sum
            dtype = operands[0].tensor.dtype
            operands.append(Operand(mo.asarray(given, dtype=dtype) if isinstance(given, float) else given, ()))
            given = None
        found = contract(self.semiring, [one.tensor for one in operands], [one.labels for one in operands], output) \
            if operands else self._constant_one(())
        if given is not None:
            found = self.semiring.times(found, mo.asarray(given, dtype=found.dtype) if isinstance(given, float)
                                        else given)
        return found

    def _fresh(self) -> int:
        self.fresh += 1
        return self.fresh

    def _atom(self, atom: Atom, tensor: Any) -> Operand:
        index: list[Any] = []
        labels: list[int] = []
        for column, term in enumerate(atom.terms):
            if isinstance(term, Constant):
                index.append(self._place(atom.predicate, column, term))
            else:
                index.append(slice(None))
                labels.append(self.numbers[term] if isinstance(term, Variable) and term in self.numbers
                              else self._fresh())
        return Operand(tensor[tuple(index)] if len(labels) < len(index) else tensor, tuple(labels))

    def _place(self, name: str, column: int, term: Constant) -> int:
        code = encode_one(term.value, self.axes.compiled.columns[name][column], self.axes.symbols)
        return int(np.searchsorted(self.axes.of(name, column), code))

    def _negated(self, atom: Atom, tensor: Any) -> Operand:
        one = self._atom(atom, tensor)
        unknown = tuple(axis for axis, label in enumerate(one.labels) if label >= 1000)
        if unknown:
            one = Operand(self.semiring.reduce(one.tensor, unknown), tuple(x for x in one.labels if x < 1000))
        ring = self.semiring.ring
        if ring.crisp:
            return Operand(mo.logical_not(one.tensor), one.labels)
        if ring.unit:
            return Operand(1 - one.tensor, one.labels)
        absent = one.tensor == ring.zero
        return Operand(mo.where(absent, mo.asarray(ring.one, dtype=one.tensor.dtype),
                                mo.asarray(ring.zero, dtype=one.tensor.dtype)), one.labels)

    def _truth(self, mask: NDArray[np.bool_]) -> Any:
        ring = self.semiring.ring
        return mo.asarray(mask if ring.crisp else np.where(mask, ring.one, ring.zero).astype(self.dtype))

    def _mask(self, literal: Compare) -> Operand:
        found = [side for side in dict.fromkeys((literal.left, literal.right)) if isinstance(side, Variable)]
        labels = tuple(self.numbers[side] for side in found)
        grids = np.meshgrid(*(self.codes[label] for label in labels), indexing="ij")
        columns = {side: grid.ravel() for side, grid in zip(found, grids)}
        count = int(np.prod([len(self.codes[label]) for label in labels])) if labels else 1
        mask = Scope(columns, count, self.types, self.axes.symbols).test(literal)
        return Operand(self._truth(np.array(mask).reshape([len(self.codes[label]) for label in labels])), labels)

    def _head(self, operands: list[Operand]) -> Labels:
        """Labels of the result; a constant, or a variable that is there twice, is a mask with a label of its own."""
        head, output = self.rule.head, []
        for column, term in enumerate(head.terms):
            codes = self.axes.of(head.predicate, column)
            label = self._label(term)
            if label is None or label in output:
                own = self._fresh()
                mask = np.zeros(len(codes), bool) if label is None else codes[:, None] == self.codes[label][None, :]
                if label is None:
                    assert isinstance(term, Constant)
                    mask[self._place(head.predicate, column, term)] = True
                operands.append(Operand(self._truth(mask), (own,) if label is None else (own, label)))
                label = own
            output.append(label)
        return tuple(output)

    def _label(self, term: Term) -> int | None:
        return self.numbers[term] if isinstance(term, Variable) else None

    def _constant_one(self, shape: tuple[int, ...]) -> Any:
        return self._truth(np.ones(shape, bool))
