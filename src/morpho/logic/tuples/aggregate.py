"""Aggregates of groups of tuples, looked up for every row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from morpho.logic.analysis.check import Type
from morpho.logic.analysis.core import Grouped
from morpho.logic.syntax.errors import fault
from morpho.logic.syntax.terms import Variable
from morpho.logic.tuples.codes import Codes, codes_of, numbers_of, packed
from morpho.logic.tuples.relation import Relation

LIMIT = 2.0**63


def aggregated(literal: Grouped, columns: Mapping[Variable, Codes], count: int, part: tuple[Relation, list[Variable]],
               types: Mapping[Variable, Type]) -> tuple[Codes, NDArray[np.bool_]]:
    """The aggregate for every row, and where there is one: counts and sums of nothing are 0, the others have none."""
    relation, names = part
    places = [names.index(one) for one in literal.group]
    if places:
        mine, theirs = packed([columns[one] for one in literal.group], [relation.columns[place] for place in places])
    else:
        mine, theirs = np.zeros(count, np.int64), np.zeros(len(relation), np.int64)
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.empty(0, np.int64)
    kind = types[literal.result]
    if literal.operator == "count":
        found = np.diff(np.r_[starts, len(ordered)])
    else:
        assert literal.value is not None
        own = types[literal.value]
        found = _reduced(literal, relation.columns[names.index(literal.value)][order], own, starts)
    empty = np.zeros((), found.dtype)
    if not len(starts):
        looked, there = np.full(count, empty), np.zeros(count, bool)
    else:
        keys = ordered[starts]
        rows = np.minimum(np.searchsorted(keys, mine), len(keys) - 1)
        there = keys[rows] == mine
        looked = np.where(there, found[rows], empty)
    if literal.operator in ("count", "sum"):
        there = np.ones(count, bool)
    if kind.base == "symbol":
        return looked.astype(np.int64), there
    return codes_of(looked, kind), there


def _reduced(literal: Grouped, codes: Codes, kind: Type, starts: Codes) -> NDArray[Any]:
    """One number for each group of a sorted column; `min` and `max` of symbols are by their codes' names elsewhere."""
    if kind.base == "symbol":
        raise fault(f"{literal.operator} of symbols has no meaning here", literal.result.place,
                    "aggregate integers or floats")
    numbers = numbers_of(codes, kind)
    if not len(starts):
        return np.empty(0, np.float64 if literal.operator == "mean" else numbers.dtype)
    if literal.operator in ("min", "max"):
        return np.asarray((np.minimum if literal.operator == "min" else np.maximum).reduceat(numbers, starts))
    if kind.base == "int" and np.abs(np.add.reduceat(numbers.astype(np.float64), starts)).max() >= LIMIT * 0.999:
        raise fault(f"a sum of {literal.value} is more than 64 bits hold", literal.result.place)
    total = np.add.reduceat(numbers, starts)
    if literal.operator == "sum":
        return np.asarray(total)
    return np.asarray(total / np.diff(np.r_[starts, len(numbers)]))
