"""Terms and comparisons over columns of codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from morpho.logic.analysis.check import Type
from morpho.logic.syntax.errors import fault
from morpho.logic.syntax.terms import Arithmetic, Compare, Constant, Term, Variable
from morpho.logic.tuples.codes import Codes, Symbols, comparable, encode_one, numbers_of

Mask = NDArray[np.bool_]
LIMIT = 2.0**63
_TESTS = {"=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


class Scope:
    """Columns and types of a rule's variables."""

    def __init__(self, columns: Mapping[Variable, Codes], count: int, types: Mapping[Variable, Type],
                 symbols: Symbols) -> None:
        self.columns, self.count, self.types, self.symbols = columns, count, types, symbols

    def numbers(self, term: Term) -> tuple[NDArray[Any], Mask | None]:
        """A term's numbers, and where it has one at all (None: everywhere)."""
        if isinstance(term, Variable):
            return numbers_of(self.columns[term], self.types[term]), None
        if isinstance(term, Constant):
            return np.asarray(term.value), None
        assert isinstance(term, Arithmetic)
        (left, some), (right, more) = (self.numbers(part) for part in term.parts)
        there = some if more is None else more if some is None else some & more
        if term.operator in ("/", "mod"):
            exists = np.broadcast_to(right != 0, np.broadcast_shapes(left.shape, right.shape))
            there = exists if there is None else there & exists
            right = np.where(right != 0, right, 1)
        return _arithmetic(term, left, right), there

    def test(self, literal: Compare) -> Mask:
        """Where a comparison holds."""
        if self._is_symbol(literal.left):
            sides = [self._symbols(side) for side in (literal.left, literal.right)]
            if literal.operator not in ("=", "!="):  # both have numbers now: a new symbol moves the others' ranks
                sides = [comparable(side, Type("symbol"), self.symbols) for side in sides]
            return np.broadcast_to(_TESTS[literal.operator](*sides), (self.count,))
        (left, some), (right, more) = self.numbers(literal.left), self.numbers(literal.right)
        found = _TESTS[literal.operator](left, right)
        for there in (some, more):
            if there is not None:
                found = found & there
        return np.broadcast_to(found, (self.count,))

    def codes(self, term: Term, kind: Type) -> tuple[Codes, Mask | None]:
        """A term's codes as values of a type."""
        if kind.base == "symbol":
            return np.broadcast_to(self._symbols(term), (self.count,)), None
        numbers, there = self.numbers(term)
        numbers = np.broadcast_to(numbers, (self.count,))
        if kind.base == "float":
            numbers = np.ascontiguousarray(numbers.astype(np.float64) + 0.0)
            known = ~np.isnan(numbers)
            return numbers.view(np.int64), known if there is None else known & there
        return numbers.astype(np.int64), there

    def _is_symbol(self, term: Term) -> bool:
        if isinstance(term, Variable):
            return self.types[term].base == "symbol"
        return isinstance(term, Constant) and isinstance(term.value, str)

    def _symbols(self, term: Term) -> Codes:
        if isinstance(term, Variable):
            return self.columns[term]
        assert isinstance(term, Constant)
        return np.asarray(encode_one(term.value, Type("symbol"), self.symbols), np.int64)


def _arithmetic(term: Arithmetic, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    whole = left.dtype.kind == "i" and right.dtype.kind == "i"
    with np.errstate(all="ignore"):
        if term.operator == "/":
            return np.asarray(np.floor_divide(left, right) if whole else np.divide(left, right))
        if term.operator == "mod":
            return np.asarray(np.mod(left, right))
        function = {"+": np.add, "-": np.subtract, "*": np.multiply}[term.operator]
        found = np.asarray(function(left, right))
        if whole and found.size:
            exact = np.asarray(function(left.astype(np.float64), right.astype(np.float64)))
            if np.abs(exact).max() >= LIMIT * 0.999:
                raise fault(f"{term} is more than 64 bits hold", term.place)
    return found
