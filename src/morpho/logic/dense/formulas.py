"""The truth of a formula over tensors: connectives and quantifiers of a named logic, differentiable.

A formula becomes a tensor with an axis for each of its free variables. That is what a rule is as a training loss: the
tensors are what a network says of a predicate, and `1 - truth` is what is to become small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.logic.analysis.check import Type
from morpho.logic.dense.domains import Axes
from morpho.logic.semantics.truth_values import Logic
from morpho.logic.syntax.errors import fault
from morpho.logic.syntax.terms import (
    COUNTED,
    And,
    Atom,
    Compare,
    Constant,
    Formula,
    Iff,
    IfThenElse,
    Implies,
    Not,
    Or,
    Quantified,
    Variable,
)
from morpho.logic.syntax.walk import atoms, parts_of, variables_in
from morpho.logic.tuples.codes import Codes, encode_one
from morpho.logic.tuples.terms import Scope


@dataclass(frozen=True)
class _Truth:
    """A tensor with a variable for each axis."""

    tensor: Any
    variables: tuple[Variable, ...]


class Interpretation:
    """Tensors for predicates, over the axes of a program."""

    def __init__(self, axes: Axes, tensors: Mapping[str, Any], logic: Logic) -> None:
        self.axes, self.tensors, self.logic = axes, tensors, logic
        self.codes: dict[Variable, Codes] = {}
        self.types: dict[Variable, Type] = {}
        self.dtype = next((tensor.dtype for tensor in tensors.values()), mo.float32)
        for name, tensor in tensors.items():
            if tuple(tensor.shape) != axes.shape(name):
                raise fail(ShapeError, "logic",
                           f"the tensor of {name} has shape {tuple(tensor.shape)}, and its domains "
                           f"have {axes.shape(name)} values")

    def truth(self, formula: Formula) -> Any:
        """The tensor of a formula, with an axis for each free variable in the order in which they occur."""
        for atom in atoms(formula):
            self._learn(atom)
        self._learn_quantified(formula)
        return self._of(formula).tensor

    def _learn(self, atom: Atom) -> None:
        kinds = self.axes.compiled.columns.get(atom.predicate)
        if kinds is None or atom.predicate not in self.tensors:
            raise fault(f"predicate {atom.predicate} has no tensor", atom.place)
        if len(kinds) != len(atom.terms):
            raise fault(f"predicate {atom.predicate} has {len(kinds)} terms, and here are {len(atom.terms)}",
                        atom.place)
        for column, term in enumerate(atom.terms):
            if isinstance(term, Variable):
                self._bind(term, self.axes.of(atom.predicate, column), kinds[column])

    def _bind(self, variable: Variable, codes: Codes, kind: Type) -> None:
        known = self.codes.setdefault(variable, codes)
        self.types.setdefault(variable, kind)
        if not np.array_equal(known, codes):
            raise fault(f"variable {variable} stands for {len(known)} values in one place and for {len(codes)} others",
                        variable.place, "declare a domain for both, or join them by a rule")

    def _learn_quantified(self, formula: Formula) -> None:
        if isinstance(formula, Quantified):
            for variable, domain in zip(formula.variables, formula.domains):
                if domain is not None:
                    if domain not in self.axes.compiled.domains:
                        raise fault(f"domain {domain} is not declared", variable.place)
                    self._bind(variable, self.axes.of(domain, 0), self.axes.compiled.columns[domain][0])
                elif variable not in self.codes:
                    raise fault(f"variable {variable} has no domain", variable.place,
                                "write `in` and a domain behind it")
        for part in parts_of(formula):
            self._learn_quantified(part)

    def _of(self, formula: Formula) -> _Truth:
        logic = self.logic
        match formula:
            case Atom():
                return self._atom(formula)
            case Compare():
                return self._compare(formula)
            case Not(part):
                inner = self._of(part)
                return _Truth(logic.negate(inner.tensor), inner.variables)
            case And(parts) | Or(parts):
                joins = logic.both if isinstance(formula, And) else logic.either
                found = _Truth(mo.asarray(1.0 if isinstance(formula, And) else 0.0, dtype=self.dtype), ())
                for number, part in enumerate(parts):
                    one = self._of(part)
                    found = one if number == 0 else self._joined(joins, found, one)
                return found
            case Implies(left, right):
                return self._joined(logic.implies, self._of(left), self._of(right))
            case Iff(left, right):
                return self._joined(logic.iff, self._of(left), self._of(right))
            case IfThenElse(test, yes, no):
                a, b, c = self._aligned([self._of(test), self._of(yes), self._of(no)])
                return _Truth(logic.if_then_else(a.tensor, b.tensor, c.tensor), a.variables)
            case Quantified():
                return self._quantified(formula)
        raise AssertionError(formula)

    def _atom(self, atom: Atom) -> _Truth:
        tensor = self.tensors[atom.predicate]
        index: list[Any] = []
        variables: list[Variable] = []
        for column, term in enumerate(atom.terms):
            if isinstance(term, Constant):
                codes = self.axes.of(atom.predicate, column)
                code = encode_one(term.value, self.axes.compiled.columns[atom.predicate][column], self.axes.symbols)
                place = int(np.searchsorted(codes, code))
                if place >= len(codes) or codes[place] != code:
                    raise fault(f"{term} is not among the values of {atom.predicate}", term.place)
                index.append(place)
            elif isinstance(term, Variable):
                index.append(slice(None))
                variables.append(term)
            else:
                raise fault("arithmetic inside an atom has no degree of truth", atom.place)
        tensor = tensor[tuple(index)] if len(variables) < len(index) else tensor
        while len(set(variables)) < len(variables):  # p(X, X): the diagonal
            again = next(one for one in variables if variables.count(one) > 1)
            first = variables.index(again)
            second = variables.index(again, first + 1)
            tensor = mo.diagonal(tensor, axis1=first, axis2=second)
            variables = [one for place, one in enumerate(variables) if place not in (first, second)] + [again]
        return _Truth(tensor, tuple(variables))

    def _compare(self, formula: Compare) -> _Truth:
        variables = tuple(dict.fromkeys([*variables_in(formula.left), *variables_in(formula.right)]))
        for variable in variables:
            if variable not in self.codes:
                raise fault(f"variable {variable} has no domain", variable.place,
                            "an atom or a quantifier gives it one")
        grids = np.meshgrid(*(self.codes[one] for one in variables), indexing="ij")
        shape = [len(self.codes[one]) for one in variables]
        count = int(np.prod(shape))
        scope = Scope({one: grid.ravel() for one, grid in zip(variables, grids)}, count, self.types, self.axes.symbols)
        mask = np.array(scope.test(formula)).reshape(shape)
        return _Truth(mo.asarray(mask).astype(self.dtype), variables)

    def _aligned(self, parts: list[_Truth]) -> list[_Truth]:
        """All with the same axes, those that a part lacks of size 1."""
        space = tuple(dict.fromkeys(variable for part in parts for variable in part.variables))
        found = []
        for part in parts:
            order = sorted(range(len(part.variables)), key=lambda axis: space.index(part.variables[axis]))
            tensor = mo.permute_dims(part.tensor, tuple(order)) if order != sorted(order) else part.tensor
            own = [part.variables[axis] for axis in order]
            found.append(_Truth(mo.reshape(tensor, tuple(len(self.codes[one]) if one in own else 1 for one in space)),
                                space))
        return found

    def _joined(self, function: Any, one: _Truth, two: _Truth) -> _Truth:
        a, b = self._aligned([one, two])
        return _Truth(function(a.tensor, b.tensor), a.variables)

    def _quantified(self, formula: Quantified) -> _Truth:
        inner = self._of(formula.body)
        missing = [one for one in formula.variables if one not in inner.variables]
        if missing:
            raise fault(f"variable {missing[0]} is quantified and does not occur in what follows", missing[0].place)
        axes = tuple(inner.variables.index(one) for one in formula.variables)
        kept = tuple(one for one in inner.variables if one not in formula.variables)
        logic = self.logic
        if formula.quantifier in ("exists", "forall"):
            reduce = logic.exists if formula.quantifier == "exists" else logic.forall
            return _Truth(reduce(inner.tensor, axes), kept)
        number = formula.number
        least = logic.at_least(number, inner.tensor, axes)
        most = logic.negate(logic.at_least(number + 1, inner.tensor, axes))
        assert formula.quantifier in COUNTED
        return _Truth({"at least": lambda: least, "at most": lambda: most,
                       "exactly": lambda: logic.both(least, most)}[formula.quantifier](), kept)


def check_rounds(rounds: int) -> int:
    """A number of rounds."""
    if not isinstance(rounds, int) or rounds < 1:
        raise fail(ArgumentError, "logic", f"rounds={rounds!r} is not a positive whole number")
    return rounds
