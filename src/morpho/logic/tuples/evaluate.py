"""Rules over tuples: each step turns a table of bindings into the next one.

A join looks up the range of rows for every key in a sorted index and expands the ranges. Where that would give more
than `BLOCK_ROWS` rows it is done a block of keys at a time, each of which goes on to the end of the rule, so that
what is held is bounded by a block and the distinct results.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from morpho.base.errors import MemoryLimit, fail
from morpho.base.machine import machine
from morpho.base.units import format_bytes
from morpho.logic.analysis.check import Type
from morpho.logic.analysis.core import Grouped, Negated, is_unnamed
from morpho.logic.semantics.semirings import Semiring
from morpho.logic.syntax.terms import Atom, Compare, Constant, Variable
from morpho.logic.tuples.aggregate import aggregated
from morpho.logic.tuples.codes import Codes, Symbols, encode_one, packed
from morpho.logic.tuples.plan import RulePlan, Step
from morpho.logic.tuples.relation import Relation, Values
from morpho.logic.tuples.terms import Scope

BLOCK_ROWS = 4_000_000
SHARE_OF_MEMORY = 4  # what a rule gives may take one part of so many; the others are to sort it


@dataclass
class Table:
    """Bindings: a column for each variable, and a value for each row in a semiring that has them."""

    columns: dict[Variable, Codes]
    count: int
    values: Values | None

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_], kept: tuple[Variable, ...]) -> Table:
        columns = {one: self.columns[one][rows] for one in kept if one in self.columns}
        count = int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)
        return Table(columns, count, None if self.values is None else self.values[rows])


@dataclass
class Context:
    """Relations by name and version, types, and the semiring."""

    read: Callable[[str, str], Relation]
    columns: Mapping[str, tuple[Type, ...]]
    variables: Mapping[Variable, Type]
    symbols: Symbols
    semiring: Semiring
    subquery: Callable[[str, Table, Atom], Relation | None]


def run_rule(plan: RulePlan, context: Context) -> Relation:
    """The tuples of the head that a rule derives."""
    semiring = context.semiring
    start = Table({}, 1, None if semiring.crisp else np.full(1, semiring.one))
    head = plan.rule.head
    pieces: list[Relation] = []
    row_bytes = 8 * (len(head.terms) + (not semiring.crisp))
    rows, most = 0, machine().memory_bytes // SHARE_OF_MEMORY // max(row_bytes, 1)
    for table in _run(plan.steps, 0, start, context):
        columns = [_head_column(term, table, context.columns[head.predicate][place], context)
                   for place, term in enumerate(head.terms)]
        values = table.values
        if values is not None and plan.rule.weight is not None:
            values = np.asarray(semiring.times(values, plan.rule.weight))
        pieces.append(Relation.of(columns, table.count, values, semiring))
        rows += len(pieces[-1])
        if rows <= most:
            continue
        pieces = [_together(pieces, len(head.terms), semiring)]
        rows = len(pieces[0])
        if rows > most // 2:
            raise fail(MemoryLimit, "logic", f"the rule {_shown(plan)} gives more than {rows:,} tuples, "
                       f"{format_bytes(rows * row_bytes)} so far, and sorting them takes three times as much",
                       "ask for fewer variables at once, or for a query's part with `query`")
    return _together(pieces, len(head.terms), semiring)


def _together(pieces: list[Relation], arity: int, semiring: Semiring) -> Relation:
    """The tuples of all pieces, those of several once."""
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return Relation.empty(arity, semiring)
    columns = [np.concatenate(parts) for parts in zip(*(piece.columns for piece in pieces))]
    values = None if semiring.crisp else np.concatenate([piece.values for piece in pieces if piece.values is not None])
    return Relation.of(columns, sum(map(len, pieces)), values, semiring)


def _shown(plan: RulePlan) -> str:
    return str(plan.rule.source or plan.rule)


def _head_column(term: object, table: Table, kind: Type, context: Context) -> Codes:
    if isinstance(term, Variable):
        return table.columns[term]
    assert isinstance(term, Constant)
    return np.full(table.count, encode_one(term.value, kind, context.symbols), np.int64)


def _run(steps: tuple[Step, ...], number: int, table: Table, context: Context) -> Iterator[Table]:
    while number < len(steps) and table.count:
        step = steps[number]
        if step.kind in ("scan", "join"):
            pieces = list(_blocks(step, table, context))
            if len(pieces) != 1:
                for piece in pieces:
                    yield from _run(steps, number + 1, _expanded(step, table, piece, context), context)
                return
            table = _expanded(step, table, pieces[0], context)
        else:
            table = _filtered(step, table, context)
        number += 1
        if number < len(steps) and step.kind == "join" and context.semiring.distributive:
            table = _distinct(table, step, context.semiring)
    if table.count:
        yield table


def _distinct(table: Table, step: Step, semiring: Semiring) -> Table:
    """A join may drop variables: rows that are now the same are one."""
    assert isinstance(step.literal, Atom)
    dropped = any(isinstance(term, Variable) and term not in table.columns for term in step.literal.terms)
    if not dropped and set(step.key) <= set(table.columns):
        return table
    names = list(table.columns)
    relation = Relation.of([table.columns[name] for name in names], table.count, table.values, semiring)
    return Table(dict(zip(names, relation.columns)), relation.count, relation.values)


def part_of(atom: Atom, relation: Relation, context: Context) -> tuple[Relation, list[Variable]]:
    """The tuples that fit an atom's constants and repeated variables, as columns of its variables in order."""
    names: list[Variable] = []
    kept: list[int] = []
    tests: list[tuple[str, int, int]] = []
    for column, term in enumerate(atom.terms):
        if isinstance(term, Constant):
            kind = context.columns[atom.predicate][column]
            tests.append(("constant", column, encode_one(term.value, kind, context.symbols)))
        elif isinstance(term, Variable) and not is_unnamed(term):
            if term in names:
                tests.append(("same", column, kept[names.index(term)]))
            else:
                names.append(term)
                kept.append(column)
    if not tests and len(kept) == relation.arity:
        return relation, names
    key = (*tests, tuple(kept))
    found = relation.remembered(key)
    if found is None:
        mask = np.ones(len(relation), bool)
        for kind_, column, other in tests:
            right = relation.columns[other] if kind_ == "same" else other
            mask &= relation.columns[column] == right
        found = relation.selected(key, mask, kept)
    return found, names


@dataclass
class _Ranges:
    """For rows of the table, the rows of the part that go with each: `order[low:high]`."""

    rows: Codes
    low: Codes
    high: Codes
    order: Codes
    part: Relation
    names: list[Variable]


def _ranges(step: Step, atom: Atom, table: Table, context: Context) -> _Ranges:
    relation = context.subquery(atom.predicate, table, atom) if step.kind == "antijoin" else None
    if relation is None:
        relation = context.read(atom.predicate, step.source)
    part, names = part_of(atom, relation, context)
    key = [name for name in names if name in table.columns]
    rows = np.arange(table.count)
    if not key:
        zero = np.zeros(table.count, np.int64)
        return _Ranges(rows, zero, np.full(table.count, len(part)), np.arange(len(part)), part, names)
    places = tuple(names.index(name) for name in key)
    order = part.index(places)
    left: Codes
    right: Codes
    if len(key) == 1:
        left, right = table.columns[key[0]], part.columns[places[0]][order]
    else:
        left, right = packed([table.columns[name] for name in key], [part.columns[place] for place in places])
        right = right[order]
    low, high = np.searchsorted(right, left, "left"), np.searchsorted(right, left, "right")
    return _Ranges(rows, low.astype(np.int64), high.astype(np.int64), order, part, names)


def _blocks(step: Step, table: Table, context: Context) -> Iterator[_Ranges]:
    assert isinstance(step.literal, Atom)
    found = _ranges(step, step.literal, table, context)
    sizes = np.cumsum(found.high - found.low)
    total = int(sizes[-1]) if len(sizes) else 0
    if total <= BLOCK_ROWS:
        yield found
        return
    cuts = np.searchsorted(sizes, np.arange(BLOCK_ROWS, total, BLOCK_ROWS), "left")
    edges = np.unique(np.concatenate([[0], cuts, [table.count]]))
    for first, last in itertools.pairwise(edges.tolist()):
        yield _Ranges(found.rows[first:last], found.low[first:last], found.high[first:last], found.order, found.part,
                      found.names)


def _expanded(step: Step, table: Table, found: _Ranges, context: Context) -> Table:
    counts = found.high - found.low
    left = np.repeat(found.rows, counts)
    ends = np.cumsum(counts)
    within = np.arange(len(left)) - np.repeat(ends - counts, counts)
    right = found.order[np.repeat(found.low, counts) + within]
    joined = table.take(left, step.kept)
    for name, column in zip(found.names, found.part.columns):
        if name in step.kept and name not in joined.columns:
            joined.columns[name] = column[right]
    if joined.values is not None and found.part.values is not None:
        with np.errstate(over="ignore", invalid="ignore"):  # sums without end become infinite, and are told
            joined.values = np.asarray(context.semiring.times(joined.values, found.part.values[right]))
    return joined


def _filtered(step: Step, table: Table, context: Context) -> Table:
    literal = step.literal
    scope = Scope(table.columns, table.count, context.variables, context.symbols)
    if isinstance(literal, Negated):
        return _without(step, literal.atom, table, context)
    if isinstance(literal, Grouped):
        relation = context.subquery(literal.atom.predicate, table, literal.atom)
        if relation is None:
            relation = context.read(literal.atom.predicate, "total")
        codes, there = aggregated(literal, table.columns, table.count, part_of(literal.atom, relation, context),
                                  context.variables)
        columns = {**table.columns, literal.result: codes}
        kept = Table(columns, table.count, table.values)
        if literal.result in table.columns:
            there = there & (table.columns[literal.result] == codes)
        return kept.take(there, step.kept)
    if isinstance(literal, Atom):
        return _semijoined(step, literal, table, context)
    if step.kind == "bind":
        return _bound(step, literal, table, scope)
    return table.take(scope.test(literal), step.kept)


def _bound(step: Step, literal: Compare, table: Table, scope: Scope) -> Table:
    swap = not (isinstance(literal.left, Variable) and literal.left not in table.columns)
    target, term = (literal.right, literal.left) if swap else (literal.left, literal.right)
    assert isinstance(target, Variable)
    codes, there = scope.codes(term, scope.types[target])
    found = Table({**table.columns, target: codes}, table.count, table.values)
    return found.take(np.ones(table.count, bool) if there is None else np.broadcast_to(there, (table.count,)),
                      step.kept)


def _semijoined(step: Step, atom: Atom, table: Table, context: Context) -> Table:
    """An atom that brings no new variable: a look whether it is there, and how much of it."""
    found = _ranges(step, atom, table, context)
    if table.values is None or found.part.values is None:
        return table.take(found.high > found.low, step.kept)
    if not context.semiring.distributive:
        return _expanded(step, table, found, context)
    full = found.high > found.low
    ends = np.stack([found.low[full], found.high[full]], axis=1)
    kept = table.take(full, step.kept)
    if kept.count:
        assert kept.values is not None
        sums = _sums(found.part.values[found.order], ends, context.semiring)
        kept.values = np.asarray(context.semiring.times(kept.values, sums))
    return kept


def _sums(values: Values, ends: Codes, semiring: Semiring) -> Values:
    """`plus` over ranges of values, whatever their order."""
    lengths = ends[:, 1] - ends[:, 0]
    starts = np.cumsum(lengths) - lengths
    rows = np.arange(int(lengths.sum())) - np.repeat(starts, lengths) + np.repeat(ends[:, 0], lengths)
    return semiring.plus_all(values[rows], starts)


def _without(step: Step, atom: Atom, table: Table, context: Context) -> Table:
    """Rows for which there is no tuple; where truth has degrees, 1 - degree is what is left."""
    found = _ranges(step, atom, table, context)
    semiring = context.semiring
    there = found.high > found.low
    if table.values is None or found.part.values is None or not semiring.unit:
        return table.take(~there, step.kept)
    degree = np.zeros(table.count)
    if there.any():
        ends = np.stack([found.low[there], found.high[there]], axis=1)
        degree[there] = _sums(found.part.values[found.order], ends, semiring)
    kept = degree < 1.0
    values = np.asarray(semiring.times(table.values, 1.0 - degree))
    return Table(table.columns, table.count, values).take(kept, step.kept)
