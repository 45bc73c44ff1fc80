"""Axes of dense relations: every class of columns has the values that occur in it, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from morpho.logic.analysis.compile import Compiled
from morpho.logic.analysis.core import CoreRule, Grouped, Negated
from morpho.logic.syntax.terms import Atom, Constant
from morpho.logic.tuples.codes import Codes, Symbols, encode, encode_one
from morpho.logic.tuples.relation import Relation


class Axes:
    """Codes of each class of columns, sorted; a relation's axes follow from its columns' classes."""

    def __init__(self, compiled: Compiled, relations: Mapping[str, Relation], symbols: Symbols,
                 rules: Iterable[CoreRule]) -> None:
        self.compiled, self.symbols = compiled, symbols
        found: dict[int, list[Codes]] = {}
        for (name, column), number in compiled.classes.items():
            if name in relations and relations[name].arity > column:
                found.setdefault(number, []).append(relations[name].columns[column])
            kind = compiled.columns[name][column]
            if kind.domain is not None:
                values = list(compiled.domains[kind.domain])
                found.setdefault(number, []).append(encode(values, kind, symbols))
        for rule in rules:
            for literal in (rule.head, *rule.body):
                atom = literal.atom if isinstance(literal, Negated | Grouped) else literal
                if isinstance(atom, Atom):
                    self._constants(atom, found)
        self.codes = {number: np.unique(np.concatenate(parts)) for number, parts in found.items()}

    def _constants(self, atom: Atom, found: dict[int, list[Codes]]) -> None:
        for column, term in enumerate(atom.terms):
            if isinstance(term, Constant):
                code = encode_one(term.value, self.compiled.columns[atom.predicate][column], self.symbols)
                number = self.compiled.classes[atom.predicate, column]
                found.setdefault(number, []).append(np.asarray([code], np.int64))

    def of(self, name: str, column: int) -> Codes:
        """The codes along an axis of a relation."""
        return self.codes.get(self.compiled.classes[name, column], np.empty(0, np.int64))

    def shape(self, name: str) -> tuple[int, ...]:
        """Sizes of a relation's axes."""
        return tuple(len(self.of(name, column)) for column in range(len(self.compiled.columns[name])))

    def places(self, name: str, columns: Sequence[Codes]) -> tuple[NDArray[np.int64], ...]:
        """Indices of tuples."""
        return tuple(np.searchsorted(self.of(name, column), codes).astype(np.int64)
                     for column, codes in enumerate(columns))

    def dense(self, name: str, relation: Relation, dtype: str, zero: float, one: float) -> NDArray[np.generic]:
        """A relation as an array."""
        found = np.full(self.shape(name), zero, dtype)
        if len(relation):
            values = one if relation.values is None else relation.values
            found[self.places(name, relation.columns)] = values if relation.columns else np.max(values)
        return found

    def sparse(self, name: str, array: NDArray[np.generic], zero: float) -> tuple[list[Codes], NDArray[np.float64]]:
        """The tuples of an array: columns, and the values that are not zero."""
        if not array.ndim:
            return [], array.reshape(1)[array.reshape(1) != zero].astype(np.float64)
        places = np.nonzero(array != zero)
        return [self.of(name, column)[at] for column, at in enumerate(places)], array[places].astype(np.float64)
