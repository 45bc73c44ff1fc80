"""Linear recursion as a sparse product (SpMM): `path(X, Z) :- path(X, Y), edge(Y, Z)` for all X at once.

The recursive atom hands one of its terms, the passenger X, on as it is; what takes Y to Z is a sparse matrix, and the
relation a matrix with a row for each node and a column for each passenger. In Boolean logic a column is a bit, 64 of
them to a word, so that a round over a million edges and a thousand passengers reads sixteen words for each edge. The
loop is native, semi-naive, and ends when a round brings nothing new. Literals about Y and Z alone are part of the
matrix, those about X alone a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import morpho as mo
from morpho.base.errors import ValueFault, fail
from morpho.ir.node import build
from morpho.logic.analysis.core import CoreRule, Literal, bound_by, is_unnamed, variables_of
from morpho.logic.analysis.strata import Stratum
from morpho.logic.dense.fixpoint import MOST_ROUNDS, TOLERANCE, Native, endless_hint, largest_change
from morpho.logic.semantics.semirings import Semiring
from morpho.logic.syntax.terms import Atom, Variable
from morpho.logic.tuples.codes import Codes, Columns
from morpho.logic.tuples.fixpoint import Evaluator
from morpho.logic.tuples.relation import LazyRelation, Relation
from morpho.tensor.core import Tensor

EDGE, KEEP = "_edge", "_keep"
CLOSE = 8  # values lie close where their range is so many times their number, at most
SPMM = {"boolean": "bits", "or_and": "bits", "min_plus": "min_plus", "max_min": "max_min", "goedel": "max_min",
        "max_times": "max_times", "plus_times": "plus_times"}
WORD = 64
# Measured: tracing and a stored plan's kernels; rows a second of recursive joins; steps of a word or a number.
CALL_S, JOIN_RATE, BIT_RATE, NUMBER_RATE = 0.05, 5e6, 1e9, 4e8


@dataclass(frozen=True)
class LinearRule:
    """A recursive rule apart: what gives the edges, and what keeps a passenger (None: everything does)."""

    rule: CoreRule
    edge: CoreRule
    keep: CoreRule | None


@dataclass(frozen=True)
class Linear:
    """A stratum of one predicate of two terms whose recursive rules are linear; `passenger` is the term handed on."""

    predicate: str
    passenger: int
    base: tuple[CoreRule, ...]
    rules: tuple[LinearRule, ...]


def linear_form(stratum: Stratum) -> Linear | None:
    """A stratum as linear recursion, where it is one."""
    if len(stratum.predicates) != 1 or not stratum.recursive:
        return None
    name = next(iter(stratum.predicates))
    inner = [[one for one in rule.body if isinstance(one, Atom) and one.predicate == name] for rule in stratum.rules]
    base = tuple(rule for rule, atoms in zip(stratum.rules, inner) if not atoms)
    if any(len(atoms) > 1 for atoms in inner) or len(stratum.rules[0].head.terms) != 2:
        return None
    for passenger in (0, 1):
        parts = [_apart(rule, atoms[0], passenger) for rule, atoms in zip(stratum.rules, inner) if atoms]
        found = [part for part in parts if part is not None]
        if len(found) == len(parts):
            return Linear(name, passenger, base, tuple(found))
    return None


def _apart(rule: CoreRule, inner: Atom, passenger: int) -> LinearRule | None:
    terms = (*rule.head.terms, *inner.terms)
    if not all(isinstance(term, Variable) and not is_unnamed(term) for term in terms):
        return None
    who, to, again, start = (rule.head.terms[passenger], rule.head.terms[1 - passenger], inner.terms[passenger],
                             inner.terms[1 - passenger])
    if who != again or who in (to, start) or to == start:
        return None
    edge: list[Literal] = []
    keep: list[Literal] = []
    for literal in rule.body:
        if literal is inner:
            continue
        used = {one for one in variables_of(literal) if not is_unnamed(one)}
        if who in used and used != {who}:
            return None
        (keep if who in used else edge).append(literal)
    if not {start, to} <= bound_by(edge) or (keep and who not in bound_by(keep)):
        return None
    return LinearRule(rule, CoreRule(Atom(EDGE, (start, to)), tuple(edge), rule.weight),
                      CoreRule(Atom(KEEP, (who,)), tuple(keep)) if keep else None)


@dataclass
class Prepared:
    """A linear stratum with its relations: where it starts, the edges of each rule, whom it keeps, and the axes."""

    form: Linear
    start: Relation
    edges: list[Relation]
    keeps: list[Relation | None]
    passengers: Codes
    nodes: Codes

    @property
    def seconds(self) -> tuple[float, float]:
        """Estimates: of the sparse products, and of joins of tuples if everything is derived."""
        count = float(sum(map(len, self.edges)))
        crisp = self.start.values is None
        width = -(-len(self.passengers) // WORD) if crisp else len(self.passengers)
        rounds = 8.0
        return (CALL_S + rounds * (count + len(self.nodes)) * width / (BIT_RATE if crisp else NUMBER_RATE),
                count * len(self.passengers) / JOIN_RATE)


def prepare(form: Linear, evaluator: Evaluator) -> Prepared:
    """Evaluate what is not recursive: facts and base rules, edges, masks."""
    facts = evaluator.relation(form.predicate)
    for rule in form.base:
        evaluator.grow(form.predicate, evaluator.run(evaluator.plan(rule)))
    start = evaluator.relation(form.predicate)
    evaluator.relations[form.predicate] = facts  # another engine may still be chosen
    edges = [_evaluated(one.edge, one.rule, evaluator) for one in form.rules]
    keeps = [None if one.keep is None else _evaluated(one.keep, one.rule, evaluator) for one in form.rules]
    nodes = _distinct([start.columns[1 - form.passenger], *(c for edge in edges for c in edge.columns)])
    return Prepared(form, start, edges, keeps, _distinct([start.columns[form.passenger]]), nodes)


def _distinct(columns: Sequence[Codes]) -> Codes:
    """The values of columns, ascending: by a mark for each where they lie close, as numbers of nodes do."""
    filled = [column for column in columns if len(column)]
    low, high = min((int(c.min()) for c in filled), default=0), max((int(c.max()) for c in filled), default=-1)
    if high - low > CLOSE * sum(map(len, filled)):
        return np.unique(np.concatenate(filled))
    there = np.zeros(high - low + 1, bool)
    for column in filled:
        there[column - low] = True
    return np.flatnonzero(there) + low


def _places(values: Codes, column: Codes) -> Codes:
    """Where the values of a column stand among distinct ones, which hold them all."""
    low, span = (int(values[0]), int(values[-1]) - int(values[0]) + 1) if len(values) else (0, 0)
    if span > CLOSE * len(column):
        return np.searchsorted(values, column).astype(np.int64)
    table = np.zeros(span, np.int64)
    table[values - low] = np.arange(len(values))
    return table[column - low]


def _evaluated(rule: CoreRule, source: CoreRule, evaluator: Evaluator) -> Relation:
    types = evaluator.variables[id(source)]
    kinds = tuple(types[term] for term in rule.head.terms if isinstance(term, Variable))
    evaluator.columns = {**evaluator.columns, rule.head.predicate: kinds}
    evaluator.variables = {**evaluator.variables, id(rule): types}
    return evaluator.run(evaluator.plan(rule))


def run_linear(ready: Prepared, ring: Semiring) -> tuple[Relation, Native]:
    """The relation of a linear stratum, and the native function that computed it."""
    if not len(ready.start):
        return ready.start, Native(None, 0)
    first = _packed(ready) if ring.crisp else _matrix(ready, ring)
    matrices = [_csr(edge, ready, ring) for edge in ready.edges]
    masks = [None if keep is None else mo.asarray(_mask(keep, ready, ring)) for keep in ready.keeps]
    loop = _Loop(ring, [mask is not None for mask in masks])
    function = mo.compile(loop.run)
    most = max(MOST_ROUNDS, 2 + len(ready.nodes))  # a passenger comes to no node twice with anything new
    found, rounds = function(mo.asarray(first), matrices, [mask for mask in masks if mask is not None],
                             mo.asarray(most))
    turns = int(rounds.item())
    values = found.numpy()
    if turns >= most or (not ring.idempotent and bool(np.isposinf(values).any())):
        raise fail(ValueFault, "logic", f"no end after {turns} rounds of {ready.form.predicate}",
                   endless_hint(ring))
    return _relation(values, ready, ring), Native(function, turns)


class _Loop:
    """The function that is compiled: start, matrices, masks, most rounds -> the whole relation, and rounds."""

    def __init__(self, ring: Semiring, masked: Sequence[bool]) -> None:
        self.ring, self.masked = ring, masked
        self.plus: Callable[[Any, Any], Any] = {"bits": mo.bitwise_or, "min_plus": mo.minimum,
                                                "plus_times": mo.add}.get(
            SPMM[ring.name], mo.maximum)
        self.times: Callable[[Any, Any], Any] = {"bits": mo.bitwise_and, "min_plus": mo.add, "max_min": mo.minimum}.get(
            SPMM[ring.name], mo.multiply)

    def run(self, start: Any, matrices: Any, masks: Any, most: Any) -> Any:
        """Rounds until nothing is new."""
        if not self.ring.idempotent:
            return self._sums(start, matrices, masks, most)
        zero = mo.asarray(0 if self.ring.crisp else self.ring.zero, dtype=start.dtype)

        def turn(state: Any) -> Any:
            total, delta, rounds = state
            after = self.plus(total, self._product(delta, matrices, masks))
            if self.ring.crisp:
                return after, mo.bitwise_xor(after, total), rounds + 1
            return after, mo.where(after != total, after, zero), rounds + 1

        def goes_on(state: Any) -> Any:
            return mo.logical_and(mo.any(state[1] != zero), state[2] < most)

        total, _, rounds = mo.while_loop(goes_on, turn, (start, start, mo.asarray(0)))
        return total, rounds

    def _product(self, x: Any, matrices: Any, masks: Any) -> Any:
        total, used = None, 0
        how = SPMM[self.ring.name]
        for (indices, indptr, data), masked in zip(matrices, self.masked):
            node = build("spmm", *(one.node for one in (x, indices, indptr, data)), axis=0,
                         **({} if how == "plus_times" else {"semiring": how}))
            found: Any = Tensor.of_node(node)
            if how.startswith("max") and self.ring.zero == 0.0:  # a row without edges has the largest of nothing, -inf
                found = mo.maximum(found, mo.asarray(0.0, dtype=found.dtype))
            if masked:
                found = self.times(found, mo.expand_dims(masks[used], axis=0))
                used += 1
            total = found if total is None else self.plus(total, found)
        return total

    def _sums(self, start: Any, matrices: Any, masks: Any, most: Any) -> Any:
        def turn(state: Any) -> Any:
            total, _, rounds = state
            after = start + self._product(total, matrices, masks)
            return after, largest_change([after], [total]), rounds + 1

        def goes_on(state: Any) -> Any:
            return mo.logical_and(state[1] > TOLERANCE, state[2] < most)

        total, _, rounds = mo.while_loop(goes_on, turn, (start, mo.asarray(1.0, dtype=start.dtype), mo.asarray(0)))
        return total, rounds


def _rows(ready: Prepared) -> tuple[Codes, Codes]:
    """Of the tuples to start with: rows (nodes) and columns (passengers)."""
    columns = ready.start.columns
    return (_places(ready.nodes, columns[1 - ready.form.passenger]),
            _places(ready.passengers, columns[ready.form.passenger]))


def _packed(ready: Prepared) -> NDArray[np.uint64]:
    rows, columns = _rows(ready)
    words = np.zeros((len(ready.nodes), -(-len(ready.passengers) // WORD)), np.uint64)
    np.bitwise_or.at(words, (rows, columns // WORD), np.uint64(1) << (columns % WORD).astype(np.uint64))
    return words


def _matrix(ready: Prepared, ring: Semiring) -> NDArray[np.float64]:
    found = np.full((len(ready.nodes), len(ready.passengers)), ring.zero)
    found[_rows(ready)] = ready.start.values
    return found


def _csr(edge: Relation, ready: Prepared, ring: Semiring) -> tuple[Any, Any, Any]:
    """Row: where an edge leads; column: where it comes from."""
    start, to = (_places(ready.nodes, column) for column in edge.columns)
    size = max(1, len(ready.nodes))
    key = to * size + start
    data: NDArray[Any] = np.full(len(edge), np.iinfo(np.uint64).max, np.uint64)
    if ring.crisp:
        key = np.sort(key)
    else:
        assert edge.values is not None
        order = np.argsort(key, kind="stable")
        key, data = key[order], edge.values[order]
    indptr = np.zeros(len(ready.nodes) + 1, np.int32)
    np.cumsum(np.bincount(to, minlength=len(ready.nodes)), out=indptr[1:])
    return mo.asarray((key % size).astype(np.int32)), mo.asarray(indptr), mo.asarray(data)


def _mask(keep: Relation, ready: Prepared, ring: Semiring) -> NDArray[Any]:
    there = np.isin(ready.passengers, keep.columns[0])
    if not ring.crisp:
        found = np.full(len(ready.passengers), ring.zero)
        places = np.searchsorted(keep.columns[0], ready.passengers[there])
        assert keep.values is not None
        found[there] = keep.values[places]
        return found
    bits = np.zeros(-(-len(ready.passengers) // WORD) * WORD, bool)
    bits[: len(there)] = there
    return np.packbits(bits, bitorder="little").view(np.uint64)


def _relation(values: NDArray[Any], ready: Prepared, ring: Semiring) -> Relation:
    if not ring.crisp:
        turned = values.T if ready.form.passenger == 0 else values
        places = np.nonzero(turned != ring.zero)
        return Relation(_columns(places, ready), len(places[0]), turned[places])
    count = int(np.bitwise_count(values).sum())

    def make() -> Columns:
        bits = np.unpackbits(values.view(np.uint8), axis=1, bitorder="little", count=len(ready.passengers)).view(bool)
        return _columns(np.nonzero(bits.T if ready.form.passenger == 0 else bits), ready)

    return LazyRelation(2, count, make)


def _columns(places: tuple[NDArray[np.int64], ...], ready: Prepared) -> Columns:
    """Rows in lexicographic order of the tuples, whichever term the passenger is."""
    first, second = (ready.passengers, ready.nodes) if ready.form.passenger == 0 else (ready.nodes, ready.passengers)
    return first[places[0]], second[places[1]]
