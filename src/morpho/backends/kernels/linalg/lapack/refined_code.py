"""Solves in float64 by factors in float32: getrf, then getrs and a residual, as often as it takes.

A matrix by rows is its transpose by columns, so the factors are those of the transpose, and getrs solves with their
transpose: nothing is turned. The step before has rounded the matrix to where it is factorised.
"""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.kernels.linalg.lapack.frame import Code, Place

FACTOR, SOLVE, TIMES_VECTOR, TIMES_MATRIX = range(4)  # routines
MATRIX, LOW, SIZE, RIGHT, FOUND, COUNT, ERROR = range(7)  # operands
ENOUGH = 2.0**-52


def solve_refined(c: Code, starts: list[Value]) -> None:
    """One matrix. Turns go on while the error is too large; the first is the solution itself, those after correct."""
    e = c.e
    low, matrix = (Place(e.offset(c.bases[n], kind, starts[n])) for n, kind in ((LOW, "float"), (MATRIX, "double")))
    count_at, error_at = (e.offset(c.bases[n], kind, starts[n]) for n, kind in ((COUNT, "i64"), (ERROR, "double")))
    size = e.load(e.offset(c.bases[SIZE], "double", starts[SIZE]), "double", 1)
    c.call(FACTOR, c.rows, c.rows, low, c.rows, "order", may_fail=True)  # what is singular has an error that says so
    with e.loop(0, c.rows * c.count) as loop:
        e.store(c.number(0.0), _at(c, "right", loop.index))
    _take_right_sides(c, starts[RIGHT])
    e.store(e.constant(-1, "i64", 1), count_at)
    e.store(c.number(float("inf")), error_at)
    with e.loop(0, c.kernel.most + 1) as turn, e.when(e.fcmp("ogt", e.load(error_at, "double", 1), ENOUGH)):
        _correct(c, low)
        _take_right_sides(c, starts[RIGHT])
        _subtract_product(c, matrix)
        e.store(_error(c, size, starts[RIGHT]), error_at)
        e.store(turn.index, count_at)
    c.give_matrix(FOUND, starts[FOUND], c.right, (c.rows, c.count), c.rows)


def _at(c: Code, area: str, place: Value) -> str:
    return c.e.offset(c.areas[area], "double", place)


def _take_right_sides(c: Code, start: Value) -> None:
    """To where the residuals will be."""
    e = c.e
    with e.loop(0, c.count) as column, e.loop(0, c.rows) as row:
        base, place = c.at(RIGHT, start, row.index, column.index)
        e.store(e.load(e.offset(base, "double", place), "double", 1),
                _at(c, "residual", column.index * c.rows + row.index))


def _largest(c: Code, area: str, column: Value) -> Value:
    """The largest size of a column; no number where one of them is none."""
    e = c.e
    with e.loop(0, c.rows, carried=[c.number(0.0)]) as loop:
        value = e.load(_at(c, area, column * c.rows + loop.index), "double", 1)
        loop.next(e.maximum(loop.values[0], e.absolute(value)))
    return loop.values[0]


def _or_one(c: Code, value: Value) -> Value:
    return c.e.select(c.e.fcmp("oeq", value, 0.0), c.number(1.0), value)


def _correct(c: Code, low: Place) -> None:
    """x + what the factors make of the residual, which is scaled to the range of float32."""
    e = c.e

    def scaled(place: Value) -> str:
        return e.offset(c.areas["rounded"], "float", place)

    with e.loop(0, c.count) as column:
        scale = _or_one(c, _largest(c, "residual", column.index))
        e.store(scale, _at(c, "scales", column.index))
        with e.loop(0, c.rows) as row:
            place = column.index * c.rows + row.index
            value = e.load(_at(c, "residual", place), "double", 1) / scale
            e.store(e.convert("fptrunc", value, "float"), scaled(place))
    c.call(SOLVE, "T", c.rows, c.count, low, c.rows, "order", "rounded", c.rows)
    with e.loop(0, c.count) as column:
        scale = e.load(_at(c, "scales", column.index), "double", 1)
        with e.loop(0, c.rows) as row:
            place = column.index * c.rows + row.index
            found = e.convert("fpext", e.load(scaled(place), "float", 1), "double")
            x = e.load(_at(c, "right", place), "double", 1)
            e.store(x + found * scale, _at(c, "right", place))


def _subtract_product(c: Code, matrix: Place) -> None:
    """b - a x: a matrix times a vector has a routine of its own."""
    minus, one = (Place(c.given_word(c.number(value))) for value in (-1.0, 1.0))
    for vector in c.e.both(c.e.icmp("eq", c.count, 1)):
        if vector:
            c.call(TIMES_VECTOR, "T", c.rows, c.rows, minus, matrix, c.rows, "right", 1, one, "residual", 1,
                   status=False)
        else:
            c.call(TIMES_MATRIX, "T", "N", c.rows, c.count, c.rows, minus, matrix, c.rows, "right", c.rows, one,
                   "residual", c.rows, status=False)


def _error(c: Code, size: Value, start: Value) -> Value:
    """The largest |b - a x| / (|a| |x| + |b|) of a column."""
    e = c.e
    with e.loop(0, c.count, carried=[c.number(0.0)]) as column:
        with e.loop(0, c.rows, carried=[c.number(0.0)]) as row:
            base, place = c.at(RIGHT, start, row.index, column.index)
            value = e.load(e.offset(base, "double", place), "double", 1)
            row.next(e.maximum(row.values[0], e.absolute(value)))
        below = _or_one(c, size * _largest(c, "right", column.index) + row.values[0])
        column.next(e.maximum(column.values[0], _largest(c, "residual", column.index) / below))
    return column.values[0]
