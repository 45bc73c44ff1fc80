"""Solves and factorisations that NumPy has too, as it calls LAPACK for them: with the same bits."""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.code.kernel_abi import FAULT_ENDLESS
from morpho.backends.kernels.linalg.lapack.frame import Code, Shape

Starts = list[Value]  # where the matrix begins in every operand


def solve(c: Code, starts: Starts) -> None:
    """gesv, as NumPy's solve and inv: with the right side, or ones on the diagonal."""
    e = c.e
    c.take(0, starts[0], c.left, c.rows)
    if c.kernel.name == "solve":
        c.take(1, starts[1], c.right, c.count)
    else:
        with e.loop(0, c.rows) as column, e.loop(0, c.rows) as row:
            one = e.select(e.icmp("eq", row.index, column.index), c.number(1.0), c.number(0.0))
            c.put([one, c.number(0.0)][:c.kernel.parts], c.element_at("right", row.index, column.index))
    c.call(0, c.rows, c.count, "left", c.rows, "order", "right", c.rows)
    last = len(c.bases) - 1
    c.give_matrix(last, starts[last], c.right, (c.rows, c.count), c.rows)


def solve_triangular(c: Code, starts: Starts) -> None:
    """trtrs of one triangle."""
    c.take(0, starts[0], c.left, c.rows)
    c.take(1, starts[1], c.right, c.count)
    c.call(0, "U" if c.kernel.upper else "L", "N", "U" if c.kernel.unit else "N", c.rows, c.count, "left", c.rows,
           "right", c.rows)
    c.give_matrix(2, starts[2], c.right, (c.rows, c.count), c.rows)


def cholesky(c: Code, starts: Starts) -> None:
    """potrf of the lower half, and zeros in the other."""
    e, upper, found = c.e, c.kernel.upper, c.kernel.found_parts
    c.take(0, starts[0], c.left, c.rows)
    c.call(0, "L", c.rows, "left", c.rows)
    with e.loop(0, c.rows) as row, e.loop(0, c.rows) as column:
        target = c.at(1, starts[1], *((column.index, row.index) if upper else (row.index, column.index)))
        for below in e.both(e.icmp("sge", row.index, column.index)):
            if below:
                c.give((c.left, column.index * c.rows + row.index), target, conjugate=upper)
                continue
            for part in range(found):  # the conjugate of 0 has a part of -0
                zero = e.constant(-0.0 if part and upper else 0.0, c.element, 1)
                c.store(zero, target, part, c.element, found)


def determinant(c: Code, starts: Starts) -> None:
    """getrf; the sign by the rows it changed, and the sum of the logarithms of the diagonal."""
    e = c.e
    c.take(0, starts[0], c.left, c.columns)
    status = c.call(0, c.rows, c.rows, "left", c.rows, "order", may_fail=True)
    singular = e.icmp("ne", e.load(status, "i64", 1), 0)
    sign, total = (_complex_signs if c.kernel.parts == 2 else _real_signs)(c)
    sign = [e.select(singular, 0.0, part) for part in sign]
    total = e.select(singular, c.number(float("-inf")), total)
    if c.kernel.name == "slogdet":
        c.give_parts(sign, (c.bases[1], starts[1]))
        e.store(e.convert("fptrunc", total, c.element), e.offset(c.bases[2], c.element, starts[2]))
        return
    size = c.function("exp", total)
    if c.kernel.parts == 1:
        c.give_parts([sign[0] * size], (c.bases[1], starts[1]))
    else:
        c.give_parts(times(sign, [size, c.number(0.0)]), (c.bases[1], starts[1]))


def times(a: list[Value], b: list[Value]) -> list[Value]:
    """A product of complex numbers, each operation rounded."""
    return [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]


def _numpys_product(c: Code, a: list[Value], b: list[Value]) -> list[Value]:
    """A product of complex numbers as NumPy's own code has it: its compiler joins the first multiplication with the
    addition wherever the instruction is in every processor of the architecture."""
    if not c.contracts:
        return times(a, b)
    return [c.e.fma(a[0], b[0], -(a[1] * b[1])), c.e.fma(a[0], b[1], a[1] * b[0])]


def _changed(c: Code, step: Value) -> Value:
    """Whether a step of getrf exchanged rows."""
    return c.e.icmp("ne", c.e.load(c.e.offset(c.areas["order"], "i64", step), "i64", 1), step + 1)


def _real_signs(c: Code) -> tuple[list[Value], Value]:
    e = c.e
    with e.loop(0, c.rows, carried=[c.number(1.0), c.number(0.0)]) as loop:
        (pivot,) = c.get((c.left, loop.index * (c.rows + 1)))
        sign, total = loop.values
        negative = e.fcmp("olt", pivot, 0.0)
        sign = e.select(_changed(c, loop.index), -sign, sign)
        sign = e.select(negative, -sign, sign)
        loop.next(sign, total + c.function("log", e.select(negative, -pivot, pivot)))
    return [loop.values[0]], loop.values[1]


def _complex_signs(c: Code) -> tuple[list[Value], Value]:
    """The sign of the exchanges first, then times that of every pivot: so does NumPy."""
    e = c.e
    with e.loop(0, c.rows, carried=[c.number(1.0)]) as loop:
        loop.next(e.select(_changed(c, loop.index), -loop.values[0], loop.values[0]))
    with e.loop(0, c.rows, carried=[loop.values[0], c.number(0.0), c.number(0.0)]) as loop:
        pivot = c.get((c.left, loop.index * (c.rows + 1)))
        size = c.function("hypot", *pivot)
        sign = _numpys_product(c, loop.values[:2], [part / size for part in pivot])
        loop.next(*sign, loop.values[2] + c.function("log", size))
    return loop.values[:2], loop.values[2]


def qr(c: Code, starts: Starts) -> None:
    """geqrf, the triangle, then orgqr of its reflections in as many columns as the factor has."""
    e, found = c.e, c.kernel.found_parts
    c.take(0, starts[0], c.left, c.columns)
    c.call(0, c.rows, c.columns, "left", c.rows, "tau", "work", c.sizes[0])
    with e.loop(0, c.count) as row, e.loop(0, c.columns) as column:
        target = c.at(2, starts[2], row.index, column.index)
        for in_triangle in e.both(e.icmp("sle", row.index, column.index)):
            if in_triangle:
                c.give((c.left, column.index * c.rows + row.index), target)
            else:
                for part in range(found):
                    c.store(e.constant(0.0, c.element, 1), target, part, c.element, found)
    c.copy("left", "right", c.inner * c.rows)
    c.call(1, c.rows, c.count, c.inner, "right", c.rows, "tau", "work", c.sizes[0])
    c.give_matrix(1, starts[1], c.right, (c.rows, c.count), c.rows)


def svd(c: Code, starts: Starts) -> None:
    """gesdd: U, the values, and the conjugate transpose of V."""
    vectors, real = c.kernel.name == "svd", ("real",) if c.kernel.parts == 2 else ()
    c.take_finite(starts[0], FAULT_ENDLESS)  # OpenBLAS's gesdd does not end for some complex matrices with infinities
    form = "N" if not vectors else "A" if c.kernel.full else "S"
    wide = c.columns if c.kernel.full else c.inner
    c.call(0, form, c.rows, c.columns, "left", c.rows, "values", "right", c.rows, "other", wide, "work", c.sizes[0],
           *real, "whole")
    _give_values(c, 2 if vectors else 1, starts)
    if vectors:
        c.give_matrix(1, starts[1], c.right, (c.rows, c.count), c.rows)
        c.give_matrix(3, starts[3], c.areas["other"], (wide, c.columns), wide)
        _fix_signs(c, 1, starts, (c.rows, c.count), 3)


def eigh(c: Code, starts: Starts) -> None:
    """syevd or heevd of the lower half."""
    vectors, real = c.kernel.name == "eigh", ("real", c.sizes[1]) if c.kernel.parts == 2 else ()
    c.take(0, starts[0], c.left, c.columns)
    c.call(0, "V" if vectors else "N", "L", c.rows, "left", c.rows, "values", "work", c.sizes[0], *real, "whole",
           c.sizes[2])
    _give_values(c, 1, starts)
    if vectors:
        c.give_matrix(2, starts[2], c.left, (c.rows, c.rows), c.rows)
        _fix_signs(c, 2, starts, (c.rows, c.rows), None)


def _give_values(c: Code, operand: int, starts: Starts) -> None:
    """Real values to an operand with one axis."""
    e = c.e
    with e.loop(0, c.inner) as loop:
        value = e.load(e.offset(c.areas["values"], "double", loop.index), "double", 1)
        place = starts[operand] + loop.index * c.strides[operand][c.kernel.outer_rank]
        e.store(e.convert("fptrunc", value, c.element), e.offset(c.bases[operand], c.element, place))


def _fix_signs(c: Code, decisive: int, starts: Starts, shape: Shape, other: int | None) -> None:
    """Turn columns round, and the rows of `other` that belong to them, as `ops/linalg/lapack.py` says: the first
    element that is at least half as large as the largest is positive. On the results, as they were rounded."""
    if c.kernel.parts == 2:
        return
    e = c.e

    def element(operand: int, row: Value, column: Value) -> str:
        base, place = c.at(operand, starts[operand], row, column)
        return e.offset(base, c.element, place)

    def turn(place: str) -> None:
        e.store(e.load(place, c.element, 1) * -1.0, place)

    zero = e.constant(0.0, c.element, 1)
    with e.loop(0, shape[1]) as column:
        with e.loop(0, shape[0], carried=[zero]) as row:
            size = e.absolute(e.load(element(decisive, row.index, column.index), c.element, 1))
            row.next(e.select(e.fcmp("ogt", size, row.values[0]), size, row.values[0]))
        half = row.values[0] * 0.5
        first = e.first_without(e.constant(0, "i64", 1), shape[0] - 1, lambda at: e.fcmp(
            "olt", e.absolute(e.load(element(decisive, at, column.index), c.element, 1)), half))
        with e.when(e.fcmp("olt", e.load(element(decisive, first, column.index), c.element, 1), 0.0)):
            with e.loop(0, shape[0]) as row:
                turn(element(decisive, row.index, column.index))
            if other is not None:
                with e.when(e.icmp("slt", column.index, c.inner)), e.loop(0, c.columns) as along:
                    turn(element(other, column.index, along.index))
