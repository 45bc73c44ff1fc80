"""Eigenvalues of symmetric matrices and singular values, by Jacobi's rotations of pairs (p, q), all of them again and
again until none is worth a rotation.

Eigenvalues: rotations of rows and columns. Singular values: rotations of the columns of the taller form of the matrix,
until all are orthogonal (Hestenes). Both find small values of graded matrices to their own precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from morpho.backends.code.emit import Value
from morpho.backends.kernels.linalg.frame import Frame, Index, Panel, add_multiple
from morpho.backends.kernels.linalg.householder_code import factorise, fold, form_q, largest, power_of_two, scale
from morpho.backends.kernels.linalg.matrix import LANES

MOST_SWEEPS = 40  # six to ten are usual
ROUNDING = {"float": 2.0**-24, "double": 2.0**-53}
HUGE = {"float": 2.0**60, "double": 2.0**500}  # cotangents whose square is not a number any more
NOTHING = {"float": 2.0**-80, "double": 2.0**-800}  # squares of singular values that count as zero, the largest being 1


class Rotation(NamedTuple):
    """Tangent and sine of the angle, and the tangent of its half."""

    tangent: Value
    sine: Value
    half: Value


def angle(f: Frame, p: Value, q: Value, between: Value) -> Rotation:
    """The smaller one that makes the matrix [[p, between], [between, q]] diagonal."""
    e = f.e
    cotangent = (q - p) / (between + between)
    size = e.absolute(cotangent)
    tangent = f.number(1.0) / (size + e.square_root(e.fma(cotangent, cotangent, 1.0)))
    tangent = e.select(e.fcmp("ogt", size, HUGE[f.element]), f.number(0.5) / size, tangent)
    tangent = e.copysign(tangent, cotangent)
    cosine = f.number(1.0) / e.square_root(e.fma(tangent, tangent, 1.0))
    sine = tangent * cosine
    return Rotation(tangent, sine, sine / (cosine + 1.0))


def rotate(f: Frame, panel: Panel, p: Index, q: Index, turn: Rotation) -> None:
    """Rows p and q: x - s (y + h x) and y + s (x - h y)."""
    e, one, other = f.e, panel.row(p), panel.row(q)
    first = add_multiple(e, -turn.sine, add_multiple(e, turn.half, one, other), one)
    second = add_multiple(e, turn.sine, add_multiple(e, -turn.half, other, one), other)
    panel.put_row(first, p)
    panel.put_row(second, q)


def sweeps(f: Frame, n: int, one_round: Callable[[Value, Panel], None]) -> None:
    """All rounds of a tournament, until a sweep rotates none: `one_round` marks the panel that it is given where it
    does."""
    e, marks = f.e, f.panel(1, 1, "i64")
    with e.loop(0, MOST_SWEEPS) as loop:
        marks.put(e.constant(0, "i64", 1), 0)
        with e.loop(0, n - 1 + n % 2) as rounds:
            one_round(rounds.index, marks)
        loop.step = e.select(e.icmp("ne", marks.get(0), 0), e.constant(1, "i64", 1), MOST_SWEEPS)


def games(f: Frame, n: int, number: Value, game: Callable[[Value, Value, Value], None]) -> None:
    """The pairs p < q of a round, each with its number: they have no row in common, so that the processor can begin one
    before the last is over. In round r the last row plays r, and r + k plays r - k, around the others; where rows are
    odd in number, r does not play."""
    e, others = f.e, n - 1 + n % 2
    around = e.constant(others, "i64", 1)
    with e.loop(n % 2, (others + 1) // 2) as loop:
        one, other = number + loop.index, number - loop.index
        one = e.select(e.icmp("sge", one, around), one - around, one)
        other = e.select(e.icmp("slt", other, 0), other + around, other)
        one = e.select(e.icmp("eq", loop.index, 0), e.constant(n - 1, "i64", 1), one)
        low, high = (e.select(e.icmp(order, one, other), one, other) for order in ("slt", "sgt"))
        game(low, high, loop.index)


def in_order(f: Frame, keys: Panel, n: int, predicate: str, others: list[Panel]) -> None:
    """Numbers in order, and rows of matrices with them: the first of the best of those that are left goes first."""
    e = f.e
    with e.loop(0, n) as loop:
        k = loop.index
        with e.loop(k + 1, n, carried=[keys.get(0, k), k]) as search:
            best, place = search.values
            value = keys.get(0, search.index)
            better = e.fcmp(predicate, value, best)
            search.next(e.select(better, value, best), e.select(better, search.index, place))
        best, place = search.values
        keys.put(keys.get(0, k), 0, place)
        keys.put(best, 0, k)
        for panel in others:
            panel.exchange(k, place)


def fix_signs(f: Frame, decisive: Panel, others: list[Panel], n: int, length: int) -> None:
    """Turn vectors round, and those that belong to them, so that the first element that is at least half as large as
    the largest is positive: signs do then not depend on who computes."""
    e = f.e
    with e.loop(0, n) as rows:
        row = decisive.row(rows.index)
        size = e.absolute(row[0])
        for part in row[1:]:
            size = e.maximum(size, e.absolute(part))
        enough = fold(f, size, e.maximum) * 0.5
        place = e.first_without(e.constant(0, "i64", 1), e.constant(length - 1, "i64", 1),
                                lambda i: e.fcmp("olt", e.absolute(decisive.get(rows.index, i)), enough))
        with e.when(e.fcmp("olt", decisive.get(rows.index, place), 0.0)):
            for panel in (decisive, *others):
                panel.put_row([-x for x in panel.row(rows.index)], rows.index)


# -- eigenvalues -------------------------------------------------------------------------------------------------------
def eigh(f: Frame) -> None:
    """Eigenvalues, ascending, and eigenvectors as columns, from the lower triangle."""
    e, n = f.e, f.kernel.rows
    wanted = f.kernel.name == "eigh"
    a, values = f.panel(n, n), f.panel(1, n)
    a.clear(n)
    with e.loop(0, n) as i, e.loop(0, i.index + 1) as j:
        x = f.load(0, i.index, j.index)
        a.put(x, i.index, j.index)
        a.put(x, j.index, i.index)
    size = largest(f, a, n)
    f.fail_if(e.fcmp("uge", size, float("inf")))
    factor, undo = power_of_two(f, size)
    scale(f, a, n, factor)
    vectors = [f.panel(n, n)] if wanted else []
    for panel in vectors:
        panel.identity(n, n)

    _diagonalise(f, a, vectors, n)
    with e.loop(0, n) as loop:
        values.put(a.get(loop.index, loop.index) * undo, 0, loop.index)
    in_order(f, values, n, "olt", vectors)
    for panel in vectors:
        fix_signs(f, panel, [], n, n)
    with e.loop(0, n) as i:
        f.store(values.get(0, i.index), 1, i.index)
        for panel in vectors:
            with e.loop(0, n) as j:
                f.store(panel.get(j.index, i.index), 2, i.index, j.index)


def _diagonalise(f: Frame, a: Panel, vectors: list[Panel], n: int) -> None:
    """J' A J for all pairs of a round at once: rows are rotated, what came of it is turned over, and rows are rotated
    again. So nothing is written element by element that is soon read as a row."""
    e = f.e
    lines = f.panel(5, n)  # of every pair: sine, tangent of half the angle, both new diagonal elements, if it turns

    def find(p: Value, q: Value, game: Value, marks: Panel) -> None:
        between, one, other = a.get(p, q), a.get(p, p), a.get(q, q)
        limit = e.absolute(one * ROUNDING[f.element]) * e.absolute(other * ROUNDING[f.element])
        turns = e.fcmp("ogt", between * between, limit)
        lines.put(e.select(turns, f.number(1.0), 0.0), 4, game)
        with e.when(turns):
            marks.put(e.constant(1, "i64", 1), 0)
            turn = angle(f, one, other, between)
            found = (turn.sine, turn.half, e.fma(-turn.tangent, between, one), e.fma(turn.tangent, between, other))
            for line, value in enumerate(found):
                lines.put(value, line, game)

    def rotate_rows(panels: list[Panel]) -> Callable[[Value, Value, Value], None]:
        def game(p: Value, q: Value, number: Value) -> None:
            with e.when(e.fcmp("une", lines.get(4, number), 0.0)):
                for panel in panels:
                    rotate(f, panel, p, q, Rotation(lines.get(0, number), lines.get(0, number), lines.get(1, number)))

        return game

    def settle(p: Value, q: Value, number: Value) -> None:
        with e.when(e.fcmp("une", lines.get(4, number), 0.0)):
            for value, place in ((lines.get(2, number), (p, p)), (lines.get(3, number), (q, q)),
                                 (f.number(0.0), (p, q)), (f.number(0.0), (q, p))):
                a.put(value, *place)

    def one_round(number: Value, marks: Panel) -> None:
        games(f, n, number, lambda p, q, game: find(p, q, game, marks))
        games(f, n, number, rotate_rows([a, *vectors]))
        with e.loop(1, n) as i, e.loop(0, i.index) as j:
            one, other = a.get(i.index, j.index), a.get(j.index, i.index)
            a.put(one, j.index, i.index)
            a.put(other, i.index, j.index)
        games(f, n, number, rotate_rows([a]))
        games(f, n, number, settle)

    sweeps(f, n, one_round)


# -- singular values ---------------------------------------------------------------------------------------------------
def dot(f: Frame, one: list[Value], other: list[Value]) -> Value:
    """Lane i of the sum has the elements i, i + 8, ... in order; then the lanes by halves."""
    total = f.number(0.0, LANES)
    for a, b in zip(one, other, strict=True):
        total = f.e.fma(a, b, total)
    return fold(f, total)


def svd(f: Frame) -> None:
    """Singular values, descending, and both sets of vectors."""
    e, kernel = f.e, f.kernel
    turned = kernel.rows < kernel.columns  # then its transpose is decomposed
    tall, n = max(kernel.rows, kernel.columns), min(kernel.rows, kernel.columns)
    wanted = kernel.name == "svd"
    w, sizes = f.panel(n, tall), f.panel(1, n)
    w.clear(n)
    with e.loop(0, kernel.rows) as i, e.loop(0, kernel.columns) as j:
        w.put(f.load(0, i.index, j.index), *((i.index, j.index) if turned else (j.index, i.index)))
    size = largest(f, w, n)
    f.fail_if(e.fcmp("uge", size, float("inf")))
    factor, undo = power_of_two(f, size)
    scale(f, w, n, factor)
    vectors = [f.panel(n, n)] if wanted else []
    for panel in vectors:
        panel.identity(n, n)
    limit = max(4.0, tall**0.5) * ROUNDING[f.element]

    def pair(p: Value, q: Value, marks: Panel) -> None:
        one, other = w.row(p), w.row(q)
        first, second, between = dot(f, one, one), dot(f, other, other), dot(f, one, other)
        least = e.square_root(first) * e.square_root(second) * limit
        there = e.fcmp("oge", first, NOTHING[f.element]) & e.fcmp("oge", second, NOTHING[f.element])
        with e.when(there & e.fcmp("ogt", e.absolute(between), least)):
            marks.put(e.constant(1, "i64", 1), 0)
            turn = angle(f, first, second, between)
            for panel in (w, *vectors):
                rotate(f, panel, p, q, turn)

    sweeps(f, n, lambda number, marks: games(f, n, number, lambda p, q, _: pair(p, q, marks)))
    with e.loop(0, n) as loop:
        row = w.row(loop.index)
        square = dot(f, row, row)
        square = e.select(e.fcmp("oge", square, NOTHING[f.element]), square, 0.0)
        sizes.put(e.square_root(square), 0, loop.index)
    in_order(f, sizes, n, "ogt", [w, *vectors])
    with e.loop(0, n) as loop:
        f.store(sizes.get(0, loop.index) * undo, 2 if wanted else 1, loop.index)
    if wanted:
        _store_vectors(f, w, vectors[0], sizes, (tall, n), turned)


def _store_vectors(f: Frame, w: Panel, rights: Panel, sizes: Panel, shape: tuple[int, int], turned: bool) -> None:
    """Store the vectors: those of the taller side are the columns, scaled to length 1; the others are the rotations."""
    e, (tall, n) = f.e, shape
    with e.loop(0, n) as loop:
        size = sizes.get(0, loop.index)
        whole = e.splat(e.select(e.fcmp("oeq", size, 0.0), f.number(1.0), size), LANES)
        none = e.splat(e.fcmp("oeq", size, 0.0), LANES)
        w.put_row([e.select(none, 0.0, x / whole) for x in w.row(loop.index)], loop.index)
    if turned:
        fix_signs(f, rights, [w], n, n)
    else:
        fix_signs(f, w, [rights], n, tall)
    left, right = (3, 1) if turned else (1, 3)
    full = tall if "full" in f.kernel.options else n
    _store(f, w, left, n, tall, rows_first=turned)
    _store(f, rights, right, n, n, rows_first=not turned)
    missing = e.fcmp("oeq", sizes.get(0, n - 1), 0.0) if full == n else e.constant(True, "i1", 1)
    with e.when(missing):
        _complete(f, w, sizes, (tall, n, full), left, turned)


def _store(f: Frame, panel: Panel, operand: int, count: int, length: int, rows_first: bool) -> None:
    """Rows of a panel as rows or as columns of an operand."""
    with f.e.loop(0, count) as i, f.e.loop(0, length) as j:
        place = (i.index, j.index) if rows_first else (j.index, i.index)
        f.store(panel.get(i.index, j.index), operand, *place)


def _complete(f: Frame, w: Panel, sizes: Panel, shape: tuple[int, int, int], left: int, turned: bool) -> None:
    """Vectors of singular values that are zero, or that there are none for: the others' QR has them."""
    e, (tall, n, full) = f.e, shape
    a, q, taus = f.panel(tall, n), f.panel(tall, full), f.panel(1, tall)
    a.clear(tall)
    with e.loop(0, n) as i, e.loop(0, tall) as j:
        a.put(w.get(i.index, j.index), j.index, i.index)
    factorise(f, a, taus, tall, n)
    form_q(f, q, a, taus, (tall, full), n)
    with e.loop(0, full) as column:
        known = e.select(e.icmp("slt", column.index, n), column.index, e.constant(n - 1, "i64", 1))
        has_own = e.icmp("slt", column.index, n) & e.fcmp("une", sizes.get(0, known), 0.0)
        with e.when(has_own ^ True), e.loop(0, tall) as row:
            place = (column.index, row.index) if turned else (row.index, column.index)
            f.store(q.get(row.index, column.index), left, *place)
