"""Matrices that need not be symmetric: geev as NumPy calls it, gees, getrf; and the factors of sytrf as matrices."""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.code.kernel_abi import FAULT_ENDLESS
from morpho.backends.kernels.linalg.lapack.frame import Address, Code, Place

Starts = list[Value]


def eig(c: Code, starts: Starts) -> None:
    """Eigenvalues, and vectors where they are asked for."""
    vectors, complex_ = c.kernel.name == "eig", c.kernel.parts == 2
    c.take_finite(starts[0])
    values = ("numbers",) if complex_ else ("numbers", "imaginary")
    c.call(0, "N", "V" if vectors else "N", c.rows, "left", c.rows, *values, "left", c.rows, "right", c.rows, "work",
           c.sizes[0], *(("real",) if complex_ else ()))
    e, outer = c.e, c.kernel.outer_rank
    with e.loop(0, c.rows) as loop:
        target = c.bases[1], starts[1] + loop.index * c.strides[1][outer]
        c.give_parts(_eigenvalue(c, loop.index), target)
    if not vectors:
        return
    if complex_:
        c.give_matrix(2, starts[2], c.right, (c.rows, c.rows), c.rows)
        return
    with e.loop(0, c.rows) as column:
        column.step = _give_real_pair(c, starts[2], column.index)


def _eigenvalue(c: Code, place: Value) -> list[Value]:
    """Real matrices have the parts of their eigenvalues apart."""
    if c.kernel.parts == 2:
        return c.get((c.areas["numbers"], place))
    return [c.e.load(c.e.offset(c.areas[area], "double", place), "double", 1) for area in ("numbers", "imaginary")]


def _give_real_pair(c: Code, start: Value, column: Value) -> Value:
    """The vector of a real eigenvalue, or the two of a pair, whose parts lie in neighbouring columns; how many."""
    e = c.e
    alone = e.fcmp("oeq", _eigenvalue(c, column)[1], 0.0)
    with e.loop(0, c.rows) as row:
        (first,) = c.get(c.element_at("right", row.index, column))
        for single in e.both(alone):
            if single:
                c.give_parts([first], c.at(2, start, row.index, column))
                continue
            (second,) = c.get(c.element_at("right", row.index, column + 1))
            c.give_parts([first, second], c.at(2, start, row.index, column))
            c.give_parts([first, -second], c.at(2, start, row.index, column + 1))
    return e.select(alone, e.constant(1, "i64", 1), e.constant(2, "i64", 1))


def call_gees(c: Code) -> None:
    """T in "left", Z in "right", eigenvalues in "numbers"."""
    nowhere = Place("null")  # eigenvalues are not sorted
    c.call(0, "V", "N", nowhere, c.rows, "left", c.rows, 0, "numbers", "right", c.rows, "work", c.sizes[0], "real",
           "whole")


def schur(c: Code, starts: Starts) -> None:
    """gees, in complex numbers; below the diagonal of T there are zeros."""
    c.take_finite(starts[0])
    call_gees(c)
    clear_below(c)
    c.give_matrix(1, starts[1], c.left, (c.rows, c.rows), c.rows)
    c.give_matrix(2, starts[2], c.right, (c.rows, c.rows), c.rows)


def clear_below(c: Code) -> None:
    """Zeros below the diagonal of the matrix in "left"."""
    zeros = [c.number(0.0)] * c.kernel.parts
    with c.e.loop(0, c.rows) as column, c.e.loop(column.index + 1, c.rows) as row:
        c.put(zeros, c.element_at("left", row.index, column.index))


def lu(c: Code, starts: Starts) -> None:
    """getrf: the number of the row that each row of L U is, L with ones on its diagonal, and U."""
    e = c.e
    c.take(0, starts[0], c.left, c.columns)
    c.call(0, c.rows, c.rows, "left", c.rows, "order", may_fail=True)  # what is singular has these factors too
    c.count_rows(1, starts[1])
    with e.loop(0, c.rows) as step:
        other = e.load(e.offset(c.areas["order"], "i64", step.index), "i64", 1) - 1
        c.swap(c.order_of(1, starts[1], step.index), c.order_of(1, starts[1], other), "i64")
    nothing = [c.number(0.0)] * c.kernel.parts
    one = [c.number(1.0), c.number(0.0)][:c.kernel.parts]
    with e.loop(0, c.rows) as row, e.loop(0, c.rows) as column:
        value = c.get(c.element_at("left", row.index, column.index))
        below = e.icmp("sgt", row.index, column.index)
        beside = e.icmp("eq", row.index, column.index)
        lower = [e.select(below, v, e.select(beside, o, z)) for v, o, z in zip(value, one, nothing, strict=True)]
        upper = [e.select(below, z, v) for v, z in zip(value, nothing, strict=True)]
        c.give_parts(lower, c.at(2, starts[2], row.index, column.index))
        c.give_parts(upper, c.at(3, starts[3], row.index, column.index))


# -- L D L^H -----------------------------------------------------------------------------------------------------------
def ldl(c: Code, starts: Starts) -> None:
    """sytrf or hetrf of the lower half. It leaves rows of L as they were before later exchanges: these are done here,
    on the results."""
    e = c.e
    c.take(0, starts[0], c.left, c.columns)
    status = c.call(0, "L", c.rows, "left", c.rows, "order", "work", c.sizes[0], may_fail=True)
    c.fail_if(e.icmp("slt", e.load(status, "i64", 1), 0), FAULT_ENDLESS)  # a D that is singular is none
    c.count_rows(1, starts[1])
    with e.loop(0, c.rows) as row, e.loop(0, c.rows) as column:
        beside = e.icmp("eq", row.index, column.index)
        one = e.select(beside, c.number(1.0), c.number(0.0))
        c.give_parts([one, c.number(0.0)], c.at(2, starts[2], row.index, column.index))
        c.give_parts([c.number(0.0)] * 2, c.at(3, starts[3], row.index, column.index))
    with e.loop(0, c.rows) as step:
        step.step = _block(c, starts, step.index)


def _block(c: Code, starts: Starts, k: Value) -> Value:
    """The block of D in this row, the columns of L that belong to it, and their exchange; how many rows it has."""
    e = c.e
    pivot = e.load(e.offset(c.areas["order"], "i64", k), "i64", 1)
    double = e.icmp("slt", pivot, 0)
    wide = e.select(double, e.constant(2, "i64", 1), e.constant(1, "i64", 1))
    other, moved = e.select(double, -pivot, pivot) - 1, k + wide - 1

    def diagonal(place: Value) -> None:
        value = c.get(c.element_at("left", place, place))
        c.give_parts([value[0], c.number(0.0)][:len(value)], c.at(3, starts[3], place, place))

    diagonal(k)
    with e.when(double):
        diagonal(k + 1)
        below = c.get(c.element_at("left", k + 1, k))
        c.give_parts(below, c.at(3, starts[3], k + 1, k))
        c.give_parts(below, c.at(3, starts[3], k, k + 1), conjugate=True)
    with e.loop(k, k + wide) as column, e.loop(k + wide, c.rows) as row:
        c.give(c.element_at("left", row.index, column.index), c.at(2, starts[2], row.index, column.index))
    with e.when(e.icmp("ne", other, moved)):
        c.swap(c.order_of(1, starts[1], moved), c.order_of(1, starts[1], other), "i64")
        with e.loop(0, k) as column:
            _swap_elements(c, c.at(2, starts[2], moved, column.index), c.at(2, starts[2], other, column.index))
    return wide


def _swap_elements(c: Code, one: Address, other: Address) -> None:
    found = c.kernel.found_parts
    for part in range(found):
        first, second = (c.e.offset(base, c.element, place * found + part) for base, place in (one, other))
        c.swap(first, second, c.element)
