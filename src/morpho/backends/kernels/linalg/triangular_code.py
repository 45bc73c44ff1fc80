"""Matrices of more rows than registers hold: elimination, Cholesky and substitution, a row at a time in vectors.

The operations on an element, and their order, are those of `unrolled.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from morpho.backends.code.emit import Value
from morpho.backends.code.vector_math import FUNCTIONS
from morpho.backends.kernels.linalg.frame import Frame, Panel, add_multiple, copy_in, copy_out, masked
from morpho.backends.kernels.linalg.matrix import LANES


class Factored(NamedTuple):
    """Both factors in one matrix, the number of the row that each row was, and the sign of the exchanges."""

    both: Panel
    order: Panel
    sign: Value


def factorise(f: Frame, check: bool) -> Factored:
    """Gaussian elimination; the pivot of a column is the first of its largest elements."""
    e, n = f.e, f.kernel.rows
    both, order = f.panel(n, n), f.panel(1, n, "i64")
    copy_in(f, both, 0, n, n)
    with e.loop(0, n) as loop:
        order.put(loop.index, 0, loop.index)
    with e.loop(0, n, carried=[f.number(1.0)]) as steps:
        k = steps.index
        first = e.absolute(both.get(k, k))
        with e.loop(k + 1, n, carried=[first, k]) as search:
            best, place = search.values
            size = e.absolute(both.get(search.index, k))
            larger = e.fcmp("ogt", size, best)
            search.next(e.select(larger, size, best), e.select(larger, search.index, place))
        place = search.values[1]
        both.exchange(k, place)
        one, other = order.get(0, k), order.get(0, place)
        order.put(one, 0, place)
        order.put(other, 0, k)
        pivot = both.get(k, k)
        none = e.fcmp("oeq", pivot, 0.0)
        if check:
            f.fail_if(none)
        row, behind = both.row(k), both.columns_after(k)
        with e.loop(k + 1, n) as rest:
            left = both.get(rest.index, k)
            factor = left / pivot
            if not check:
                factor = e.select(none, left, factor)
            old = both.row(rest.index)
            both.put_row(masked(e, behind, add_multiple(e, -factor, row, old), old), rest.index)
            both.put(factor, rest.index, k)
        sign = steps.values[0]
        steps.next(e.select(e.icmp("ne", place, k), -sign, sign))
    return Factored(both, order, steps.values[0])


def lower_then_upper(f: Frame, a: Panel, right: Panel) -> None:
    """Both substitutions on a block of columns of a right side."""
    substitute(f, a, right, upper=False, unit=True)
    substitute(f, a, right, upper=True, unit=False)


def substitute(f: Frame, a: Panel, right: Panel, upper: bool, unit: bool) -> None:
    """Each x is taken off all rows that are still to be solved."""
    e, n = f.e, f.kernel.rows
    with e.loop(0, n) as loop:
        j = n - 1 - loop.index if upper else loop.index
        found = right.row(j)
        if not unit:
            pivot = e.splat(a.get(j, j), LANES)
            found = [x / pivot for x in found]
            right.put_row(found, j)
        with e.loop(0, j) if upper else e.loop(j + 1, n) as others:
            i = others.index
            right.put_row(add_multiple(e, -a.get(i, j), found, right.row(i)), i)


def solve(f: Frame) -> None:
    """Any number of right sides, eight at a time: those beyond the last one repeat it."""
    e, n, kernel = f.e, f.kernel.rows, f.kernel
    order = None
    if kernel.name == "solve_triangular":
        both = f.panel(n, n)
        copy_in(f, both, 0, n, n)
        if "unit" not in kernel.options:
            with e.loop(0, n) as loop:
                f.fail_if(e.fcmp("oeq", both.get(loop.index, loop.index), 0.0))
    else:
        both, order, _ = factorise(f, check=True)
    right = f.panel(n, LANES)
    with e.loop(0, f.count, LANES) as block:
        last = f.count - 1
        with e.loop(0, n) as i, e.loop(0, LANES) as lane:
            column = block.index + lane.index
            column = e.select(e.icmp("sgt", column, last), last, column)
            row = i.index if order is None else order.get(0, i.index)
            right.put(f.load(1, row, column), i.index, lane.index)
        if order is None:
            substitute(f, both, right, "upper" in kernel.options, "unit" in kernel.options)
        else:
            lower_then_upper(f, both, right)
        left = f.count - block.index
        width = e.select(e.icmp("sgt", left, LANES), e.constant(LANES, "i64", 1), left)
        with e.loop(0, n) as i, e.loop(0, width) as lane:
            f.store(right.get(i.index, lane.index), 2, i.index, block.index + lane.index)


def inverse(f: Frame) -> None:
    """The solution whose right side is the identity."""
    e, n = f.e, f.kernel.rows
    both, order, _ = factorise(f, check=True)
    right = f.panel(n, n)
    right.clear(n)
    with e.loop(0, n) as loop:
        right.put(f.number(1.0), loop.index, order.get(0, loop.index))
    lower_then_upper(f, both, right)
    copy_out(f, right, 1, n, n)


def determinant(f: Frame) -> None:
    """The product of the pivots, or the sum of their logarithms, from the first one on."""
    e, n = f.e, f.kernel.rows
    both, _, sign = factorise(f, check=False)
    if f.kernel.name == "det":
        with e.loop(0, n, carried=[sign]) as loop:
            loop.next(loop.values[0] * both.get(loop.index, loop.index))
        f.store(loop.values[0], 1)
        return
    with e.loop(0, n, carried=[sign, f.number(0.0)]) as loop:
        pivot = both.get(loop.index, loop.index)
        own = e.select(e.fcmp("ogt", pivot, 0.0), f.number(1.0), e.select(e.fcmp("olt", pivot, 0.0), -1.0, pivot))
        size = FUNCTIONS["log"](e, e.absolute(pivot))
        loop.next(loop.values[0] * own, loop.values[1] + size)
    f.store(loop.values[0], 1)
    f.store(loop.values[1], 2)


def lu(f: Frame) -> None:
    """The factors themselves, and the number of the row that each row of their product is."""
    e, n = f.e, f.kernel.rows
    both, order, _ = factorise(f, check=False)
    with e.loop(0, n) as i:
        f.store(order.get(0, i.index), 1, i.index)
        with e.loop(0, n) as j:
            value = both.get(i.index, j.index)
            below = e.icmp("sgt", i.index, j.index)
            diagonal = e.select(e.icmp("eq", i.index, j.index), f.number(1.0), 0.0)
            f.store(e.select(below, value, diagonal), 2, i.index, j.index)
            f.store(e.select(below, f.number(0.0), value), 3, i.index, j.index)


def cholesky(f: Frame) -> None:
    """From the lower triangle: row j of the factor's transpose is taken off all rows below."""
    e, n = f.e, f.kernel.rows
    upper = f.panel(n, n)
    copy_in(f, upper, 0, n, n, turned=True)
    with e.loop(0, n) as steps:
        j = steps.index
        size = upper.get(j, j)
        f.fail_if(e.fcmp("ule", size, 0.0))
        root = e.square_root(size)
        wide = e.splat(root, LANES)
        row = [x / wide for x in upper.row(j)]
        upper.put_row(row, j)
        upper.put(root, j, j)
        with e.loop(j + 1, n) as rest:
            upper.put_row(add_multiple(e, -upper.get(j, rest.index), row, upper.row(rest.index)), rest.index)
    turned = "upper" not in f.kernel.options
    with e.loop(0, n) as rows, e.loop(0, n) as columns:
        i, c = rows.index, columns.index
        value = e.select(e.icmp("sgt", i, c), 0.0, upper.get(i, c))
        f.store(value, 1, *((c, i) if turned else (i, c)))
