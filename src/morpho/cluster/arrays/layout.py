"""Layout of distributed arrays: a grid of ranks, and how the axes of an array are cut along it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from morpho.base.errors import ArgumentError, fail
from morpho.runtime.groups.group import Group

Cuts = tuple[tuple[int, ...], ...]  # for each axis the axes of the grid along which it is cut; () where it is not
ROWS, COLUMNS = 0, 1
WHOLE: tuple[int, ...] = ()
ALL = (ROWS, COLUMNS)


@dataclass(frozen=True)
class Grid:
    """Ranks in rows and columns; rank r stands in row r // columns. `along` are this rank's groups: of its column, of
    its row, and everybody."""

    group: Group
    rows: int
    columns: int
    along: dict[tuple[int, ...], Group] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(group: Group, shape: tuple[int, int] | None = None) -> Grid:
        """The grid of a group; nearly square unless a shape is given. All ranks call this."""
        rows, columns = shape or nearly_square(group.size)
        if rows * columns != group.size:
            raise fail(ArgumentError, "cluster.array", f"a grid of {rows} x {columns} has not {group.size} ranks")
        row, column = divmod(group.rank, columns)
        same_column, same_row = group.split(column, row), group.split(row, column)
        assert same_column is not None and same_row is not None
        return Grid(group, rows, columns, {(ROWS,): same_column, (COLUMNS,): same_row, ALL: group})

    def place(self, rank: int) -> tuple[int, int]:
        """Row and column of a rank."""
        return divmod(rank, self.columns)

    def parts(self, cut: Sequence[int]) -> int:
        """Into how many blocks an axis with this cut goes."""
        return math.prod((self.rows, self.columns)[axis] for axis in cut)

    def part(self, cut: Sequence[int], rank: int) -> int:
        """The number of a rank's block along an axis with this cut."""
        place, found = self.place(rank), 0
        for axis in cut:
            found = found * (self.rows, self.columns)[axis] + place[axis]
        return found

    def block(self, shape: Sequence[int], cuts: Cuts, rank: int) -> tuple[slice, ...]:
        """The block of a rank.

        >>> from morpho.cluster.groups.one import OneGroup
        >>> Grid.of(OneGroup()).block((4, 6), ((0,), (1,)), 0)
        (slice(0, 4, None), slice(0, 6, None))
        """
        return tuple(slice(*bounds(size, self.parts(cut), self.part(cut, rank)))
                     for size, cut in zip(shape, cuts, strict=True))


def bounds(size: int, parts: int, part: int) -> tuple[int, int]:
    """Where a block begins and ends: blocks differ by one at most.

    >>> [bounds(7, 3, part) for part in range(3)]
    [(0, 2), (2, 4), (4, 7)]
    """
    return size * part // parts, size * (part + 1) // parts


def nearly_square(count: int) -> tuple[int, int]:
    """Rows and columns of so many ranks, as square as can be.

    >>> nearly_square(6), nearly_square(7)
    ((2, 3), (1, 7))
    """
    rows = max(n for n in range(1, math.isqrt(count) + 1) if count % n == 0)
    return rows, count // rows


def usual_cuts(dimensions: int) -> Cuts:
    """A vector over all ranks, a matrix in blocks, more axes along their first two.

    >>> usual_cuts(1), usual_cuts(3)
    (((0, 1),), ((0,), (1,), ()))
    """
    if dimensions == 1:
        return (ALL,)
    return (((ROWS,), (COLUMNS,)) + (WHOLE,) * (dimensions - 2))[:dimensions]


def check_cuts(shape: Sequence[int], cuts: Cuts) -> Cuts:
    """That every axis of the grid cuts one axis of the array at most."""
    used = [axis for cut in cuts for axis in cut]
    if len(cuts) != len(shape) or len(used) != len(set(used)) or not set(used) <= {ROWS, COLUMNS}:
        raise fail(ArgumentError, "cluster.array", f"cuts {cuts} do not fit an array of {len(shape)} axes",
                   "name for each axis the grid axes (0, 1) along which it is cut, each once")
    return cuts
