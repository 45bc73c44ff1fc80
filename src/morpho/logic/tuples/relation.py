"""A relation: the set of its tuples as sorted columns, with a value for each where a semiring gives them one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from morpho.logic.semantics.semirings import Semiring
from morpho.logic.tuples.codes import Codes, Columns, packed

Values = NDArray[np.float64]


class Relation:
    """Distinct tuples in lexicographic order; immutable, so that an index of it stays true. Parts of a relation that
    leave columns out may be in another order (`ordered`) and have tuples twice."""

    def __init__(self, columns: Sequence[Codes], count: int, values: Values | None = None,
                 ordered: bool = True) -> None:
        self._columns: Columns | None = tuple(columns)
        self.count = count
        self.values = values
        self.ordered = ordered
        self._indices: dict[tuple[int, ...], Codes] = {}
        self._parts: dict[tuple[object, ...], Relation] = {}

    def __len__(self) -> int:
        return self.count

    @property
    def columns(self) -> Columns:
        """The codes of all tuples, column by column."""
        assert self._columns is not None
        return self._columns

    @property
    def arity(self) -> int:
        """Columns of a tuple."""
        return len(self.columns)

    @staticmethod
    def empty(arity: int, semiring: Semiring) -> Relation:
        """No tuples."""
        values = None if semiring.crisp else np.empty(0)
        return Relation([np.empty(0, np.int64)] * arity, 0, values)

    @staticmethod
    def of(columns: Sequence[Codes], count: int, values: Values | None, semiring: Semiring) -> Relation:
        """From tuples in any order; those that are there twice are one, their values added in the semiring, and those
        whose value is the semiring's zero are not there."""
        if not columns:
            if values is None or not count:
                return Relation((), min(count, 1), None if values is None else values[:0])
            return Relation((), 1, semiring.plus_all(values, np.zeros(1, np.int64)))
        key, = packed(columns)
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.ones(count, bool)
        first[1:] = key[1:] != key[:-1]
        starts = np.flatnonzero(first)
        rows = order[starts]
        if values is not None:
            values = semiring.plus_all(values[order], starts) if len(starts) else values[:0]
            there = values != semiring.zero
            if not there.all():
                rows, values = rows[there], values[there]
        return Relation([column[rows] for column in columns], len(rows), values)

    def index(self, columns: tuple[int, ...]) -> Codes:
        """Rows in the order of some columns: a join looks up ranges of them."""
        found = self._indices.get(columns)
        if found is None:
            if self.ordered and columns == tuple(range(len(columns))):
                found = np.arange(self.count)
            else:
                key, = packed([self.columns[column] for column in columns])
                found = np.argsort(key, kind="stable").astype(np.int64)
            self._indices[columns] = found
        return found

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Relation:
        """Some of the tuples, in order."""
        columns = [column[rows] for column in self.columns]
        count = len(columns[0]) if columns else int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)
        return Relation(columns, count, None if self.values is None else self.values[rows])

    def selected(self, key: tuple[object, ...], rows: NDArray[np.bool_], kept: Sequence[int]) -> Relation:
        """Rows of a mask, some columns; remembered under `key`, so that its indices are too."""
        found = self._parts.get(key)
        if found is None:
            part = self.take(rows)
            found = self._parts[key] = Relation([part.columns[column] for column in kept], part.count, part.values,
                                                False)
        return found

    def remembered(self, key: tuple[object, ...]) -> Relation | None:
        """Earlier result of `selected` for this key."""
        return self._parts.get(key)


class LazyRelation(Relation):
    """A relation that is held in another form, and becomes tuples when they are asked for; how many is known."""

    def __init__(self, arity: int, count: int, make: Callable[[], Columns]) -> None:
        super().__init__((), count)
        self._columns, self._make, self._arity = None, make, arity

    @property
    def columns(self) -> Columns:
        """The codes of all tuples, made now if they were not before."""
        if self._columns is None:
            self._columns = self._make()
        return self._columns

    @property
    def arity(self) -> int:
        """Columns of a tuple."""
        return self._arity


def union(one: Relation, two: Relation, semiring: Semiring) -> Relation:
    """Tuples of either, values added."""
    if not len(one) or not len(two):
        return two if not len(one) else one
    columns = [np.concatenate(parts) for parts in zip(one.columns, two.columns)]
    values = None
    if one.values is not None and two.values is not None:
        values = np.concatenate([one.values, two.values])
    return Relation.of(columns, len(one) + len(two), values, semiring)


def places(one: Relation, two: Relation) -> tuple[NDArray[np.bool_], Codes]:
    """For every tuple of `one`: whether `two` has it, and its row there."""
    if not one.arity or not len(two) or not len(one):
        there = np.full(len(one), bool(not one.arity and len(two)))
        return there, np.zeros(len(one), np.int64)
    mine, theirs = packed(one.columns, two.columns)
    rows = np.minimum(np.searchsorted(theirs, mine), len(two) - 1)
    return theirs[rows] == mine, rows.astype(np.int64)


def difference(one: Relation, two: Relation) -> Relation:
    """Tuples of `one` that `two` does not have."""
    there, _ = places(one, two)
    return one.take(~there) if there.any() else one
