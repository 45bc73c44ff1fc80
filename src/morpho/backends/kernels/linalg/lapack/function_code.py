"""Square roots and logarithms of matrices: the Schur form, a function of its triangle, and back.

The root of a triangle is Bjorck and Hammarling's recurrence, a column at a time. The logarithm takes roots until the
triangle is near the identity, then a Pade approximant in partial fractions (Gauss and Legendre's points), and doubles.
"""

from __future__ import annotations

import numpy as np

from morpho.backends.code.emit import Value
from morpho.backends.code.kernel_abi import FAULT_NEGATIVE, FAULT_SINGULAR
from morpho.backends.kernels.linalg.lapack.dense_code import times
from morpho.backends.kernels.linalg.lapack.frame import Code, Place
from morpho.backends.kernels.linalg.lapack.general_code import call_gees, clear_below

Starts = list[Value]
Complex = list[Value]
POINTS = 16  # of the approximant
NEAR = 0.25  # in the 1-norm: where the approximant is exact to rounding
MOST_ROOTS = 100


def matrix_function(c: Code, starts: Starts) -> None:
    """sqrtm or logm."""
    c.take_finite(starts[0])
    call_gees(c)
    clear_below(c)
    _check_eigenvalues(c)
    if c.kernel.function == "sqrtm":
        _root(c)
        found, free = "root", "total"
    else:
        _logarithm(c)
        found, free = "total", "root"
    for left, right, form, target in (("right", found, "N", free), (free, "right", "C", "left")):
        one, none = (Place(c.given_word(c.number(value), c.number(0.0))) for value in (1.0, 0.0))
        c.call(2, "N", form, c.rows, c.rows, c.rows, one, left, c.rows, right, c.rows, none, target, c.rows,
               status=False)
    c.give_matrix(1, starts[1], c.left, (c.rows, c.rows), c.rows)


def _check_eigenvalues(c: Code) -> None:
    """A real matrix has a real result, or none; a singular one has no logarithm."""
    e = c.e

    def value(place: Value) -> Complex:
        return c.get((c.left, place * (c.rows + 1)))

    with e.loop(0, c.rows, carried=[c.number(0.0)]) as loop:
        loop.next(e.maximum(loop.values[0], c.function("hypot", *value(loop.index))))
    if not c.kernel.dtype.is_complex:
        slight = loop.values[0] * 1e-14
        with e.loop(0, c.rows) as values:
            real, imaginary = value(values.index)
            on_axis = e.fcmp("olt", real, 0.0) & e.fcmp("ole", e.absolute(imaginary), slight)
            c.fail_if(on_axis, FAULT_NEGATIVE)
    if c.kernel.function == "logm":
        with e.loop(0, c.rows) as values:
            c.fail_if(_is_zero(c, value(values.index)), FAULT_SINGULAR)


def _is_zero(c: Code, x: Complex) -> Value:
    return c.e.fcmp("oeq", x[0], 0.0) & c.e.fcmp("oeq", x[1], 0.0)


def _square_root(c: Code, x: Complex) -> Complex:
    """The principal root of a number."""
    e, (a, b) = c.e, x
    larger = e.square_root(c.function("hypot", a, b) * 0.5 + e.absolute(a) * 0.5)
    smaller = e.absolute(b) * 0.5 / larger
    right = e.fcmp("oge", a, 0.0)
    real, imaginary = e.select(right, larger, smaller), e.copysign(e.select(right, smaller, larger), b)
    none = _is_zero(c, x)
    return [e.select(none, c.number(0.0), real), e.select(none, b, imaginary)]


def _quotient(c: Code, x: Complex, y: Complex) -> Complex:
    """x / y, with y scaled so that squares neither overflow nor vanish."""
    e = c.e
    size = e.maximum(e.absolute(y[0]), e.absolute(y[1]))
    y = [part / size for part in y]
    square = y[0] * y[0] + y[1] * y[1]
    return [part / square / size for part in times(x, [y[0], -y[1]])]


def _root(c: Code) -> None:
    """The root of the triangle in "left", in "root"."""
    e = c.e
    c.copy("left", "root", c.rows * c.rows)
    with e.loop(0, c.rows) as column:
        j = column.index
        corner = _square_root(c, c.get(c.element_at("root", j, j)))
        c.put(corner, c.element_at("root", j, j))
        with c.downwards(j) as i:
            own = c.get(c.element_at("root", i, i))
            below = [a + b for a, b in zip(own, corner, strict=True)]
            left, nothing = c.get(c.element_at("root", i, j)), _is_zero(c, below)
            c.fail_if(nothing & (_is_zero(c, left) ^ True), FAULT_SINGULAR)
            one = [c.number(1.0), c.number(0.0)]
            safe = [e.select(nothing, o, b) for o, b in zip(one, below, strict=True)]
            found = _quotient(c, left, safe)
            c.put(found, c.element_at("root", i, j))
            factor = Place(c.given_word(-found[0], -found[1]))
            c.call(1, i, factor, _column(c, "root", i), 1, _column(c, "root", j), 1, status=False)


def _column(c: Code, area: str, column: Value) -> Place:
    return Place(c.e.offset(c.areas[area], "double", column * c.rows * 2))


def _logarithm(c: Code) -> None:
    """The logarithm of the triangle in "left", in "total"."""
    e = c.e
    count = _roots_until_near(c)
    _without_one(c, "left", "rest")
    zeros = [c.number(0.0)] * 2
    with e.loop(0, c.rows * c.rows) as loop:
        c.put(zeros, (c.areas["total"], loop.index))
    points, weights = np.polynomial.legendre.leggauss(POINTS)
    with e.loop(0, POINTS) as turn:
        point, weight = (_constant(c, name, values, turn.index)
                         for name, values in (("points", (points + 1) / 2), ("weights", weights / 2)))
        with e.loop(0, c.rows) as column, e.loop(0, c.rows) as row:
            place = column.index * c.rows + row.index
            rest = c.get((c.areas["rest"], place))
            c.put(rest, (c.areas["root"], place))
            one = e.select(e.icmp("eq", row.index, column.index), c.number(1.0), c.number(0.0))
            c.put([one + rest[0] * point, rest[1] * point], (c.left, place))
        c.call(3, "U", "N", "N", c.rows, c.rows, "left", c.rows, "root", c.rows, may_fail=True)
        with e.loop(0, c.rows * c.rows) as loop:
            solved, total = (c.get((c.areas[area], loop.index)) for area in ("root", "total"))
            c.put([t + s * weight for t, s in zip(total, solved, strict=True)], (c.areas["total"], loop.index))
    with e.loop(0, count, carried=[c.number(1.0)]) as doubled:
        doubled.next(doubled.values[0] * 2.0)
    with e.loop(0, c.rows * c.rows) as loop:
        whole = (c.areas["total"], loop.index)
        c.put([part * doubled.values[0] for part in c.get(whole)], whole)


def _constant(c: Code, name: str, values: np.ndarray, index: Value) -> Value:
    """A number of a table beside the function."""
    e = c.e
    numbers = ", ".join(f"double {e.constant(float(value), 'double', 1).name}" for value in values)
    e.declarations.add(f"@{name} = internal constant [{len(values)} x double] [{numbers}], align 16")
    return e.load(e.offset(f"@{name}", "double", index), "double", 1)


def _without_one(c: Code, source: str, target: str) -> None:
    """A matrix less the identity."""
    e = c.e
    with e.loop(0, c.rows) as column, e.loop(0, c.rows) as row:
        place = column.index * c.rows + row.index
        value = c.get((c.areas[source], place))
        one = e.select(e.icmp("eq", row.index, column.index), c.number(1.0), c.number(0.0))
        c.put([value[0] - one, value[1]], (c.areas[target], place))


def _roots_until_near(c: Code) -> Value:
    """Roots of the triangle in "left" until it is near the identity; how many were taken."""
    e, done = c.e, c.e.fresh("near")
    again = e.fresh("again")
    counter = c.given_word(e.constant(0, "i64", 1))
    e.branch(again)
    e.label(again)
    taken = e.load(counter, "i64", 1)
    far = e.fcmp("ogt", _distance(c), NEAR) & e.icmp("slt", taken, MOST_ROOTS)
    further = e.fresh("further")
    e.branch_if(far, further, done)
    e.label(further)
    _root(c)
    c.copy("root", "left", c.rows * c.rows)
    e.store(taken + 1, counter)
    e.branch(again)
    e.label(done)
    return taken


def _distance(c: Code) -> Value:
    """The 1-norm of the triangle in "left" less the identity."""
    e = c.e
    with e.loop(0, c.rows, carried=[c.number(0.0)]) as column:
        with e.loop(0, column.index + 1, carried=[c.number(0.0)]) as row:
            value = c.get(c.element_at("left", row.index, column.index))
            one = e.select(e.icmp("eq", row.index, column.index), c.number(1.0), c.number(0.0))
            row.next(row.values[0] + c.function("hypot", value[0] - one, value[1]))
        column.next(e.maximum(column.values[0], row.values[0]))
    return column.values[0]
