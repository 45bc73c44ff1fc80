"""A stratum as one native function: rules are contractions, their fixpoint a `while_loop` until nothing changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ValueFault, fail
from morpho.logic.analysis.core import predicates_of
from morpho.logic.analysis.strata import Stratum
from morpho.logic.dense.contract import TensorSemiring, tensor_semiring
from morpho.logic.dense.domains import Axes
from morpho.logic.dense.rules import DenseRule
from morpho.logic.semantics.semirings import Semiring
from morpho.logic.syntax.terms import Atom
from morpho.logic.tuples.relation import Relation

MOST_ROUNDS = 10_000  # or one for every tuple that there may be: so long is the longest chain of them
TOLERANCE = 1e-12


@dataclass(frozen=True)
class Native:
    """The compiled function of a stratum, and the turns its loop made."""

    function: Any
    rounds: int


class DenseStratum:
    """The rules of a stratum over tensors; `compiled` is its native function."""

    def __init__(self, stratum: Stratum, axes: Axes, semiring: TensorSemiring, dtype: str,
                 types: Mapping[int, Mapping[Any, Any]]) -> None:
        self.stratum, self.axes, self.semiring, self.dtype = stratum, axes, semiring, dtype
        self.names = sorted(stratum.predicates)
        self.rules = [DenseRule(rule, axes, semiring, dtype, types[id(rule)]) for rule in stratum.rules]
        self.inputs = sorted({name for rule in stratum.rules for name, _ in predicates_of(rule.body)} - set(self.names))

    def start(self, read: Callable[[str, int], Any], facts: Mapping[str, Any], own: bool) -> dict[str, Any]:
        """Facts, and what rules without recursion give (`own`: with it)."""
        found = dict(facts)
        for rule in self.rules:
            if own or not self._positions(rule):
                name = rule.rule.head.predicate
                found[name] = self.semiring.plus(found[name], rule.run(read))
        return found

    def _positions(self, rule: DenseRule) -> list[int]:
        return [position for position, literal in enumerate(rule.rule.body)
                if isinstance(literal, Atom) and literal.predicate in self.stratum.predicates]

    def fixpoint(self, inputs: list[Any], facts: list[Any], most: Any) -> list[Any]:
        """The function that is compiled: relations of other strata, facts of this one and the most rounds -> its
        relations, and rounds."""
        known = dict(zip(self.inputs, inputs))
        begin = self.start(lambda name, _: known[name], dict(zip(self.names, facts)), False) \
            if self.semiring.ring.distributive else dict(zip(self.names, facts))
        if not self.stratum.recursive:
            if not self.semiring.ring.distributive:
                begin = self.start(lambda name, _: known[name], begin, True)
            return [begin[name] for name in self.names] + [mo.asarray(1)]
        turn = self._semi_naive if self.semiring.ring.idempotent else self._again
        return turn(known, [begin[name] for name in self.names], facts, most)

    def _semi_naive(self, known: dict[str, Any], begin: list[Any], facts: list[Any], most: Any) -> list[Any]:
        zero = self.semiring.ring.zero
        crisp = self.semiring.ring.crisp

        def turn(state: Any) -> Any:
            totals, deltas, rounds = state
            total, delta = dict(zip(self.names, totals)), dict(zip(self.names, deltas))
            new: dict[str, Any] = {}
            for rule in self.rules:
                for position in self._positions(rule):
                    found = rule.run(_reader(position, delta, {**known, **total}))
                    name = rule.rule.head.predicate
                    new[name] = self.semiring.plus(new[name], found) if name in new else found
            after = [self.semiring.plus(total[name], new[name]) if name in new else total[name] for name in self.names]
            if crisp:
                fresh = [mo.logical_and(now, mo.logical_not(total[name])) for name, now in zip(self.names, after)]
            else:
                fresh = [mo.where(now != total[name], now, mo.asarray(zero, dtype=now.dtype))
                         for name, now in zip(self.names, after)]
            return tuple(after), tuple(fresh), rounds + 1

        def goes_on(state: Any) -> Any:
            some = [mo.any(delta) if crisp else mo.any(delta != zero) for delta in state[1]]
            test = some[0]
            for more in some[1:]:
                test = mo.logical_or(test, more)
            return mo.logical_and(test, state[2] < most)

        totals, _, rounds = mo.while_loop(goes_on, turn, (tuple(begin), tuple(begin), mo.asarray(0)))
        return [*totals, rounds]

    def _again(self, known: dict[str, Any], begin: list[Any], facts: list[Any], most: Any) -> list[Any]:
        """Everything again from the last round: for sums and for logics that do not distribute."""
        def turn(state: Any) -> Any:
            totals, _, rounds = state
            total = dict(zip(self.names, totals))
            found = self.start(lambda name, _: total.get(name, known.get(name)), dict(zip(self.names, facts)), True)
            after = [found[name] for name in self.names]
            return tuple(after), largest_change(after, totals), rounds + 1

        def goes_on(state: Any) -> Any:
            return mo.logical_and(state[1] > TOLERANCE, state[2] < most)

        large = mo.asarray(1.0, dtype=begin[0].dtype)
        totals, _, rounds = mo.while_loop(goes_on, turn, (tuple(begin), large, mo.asarray(0)))
        return [*totals, rounds]


def _reader(position: int, delta: dict[str, Any], known: dict[str, Any]) -> Callable[[str, int], Any]:
    """Relations that atoms read: the delta at one position, everything at the others."""
    return lambda name, at: delta[name] if at == position else known[name]


def largest_change(after: list[Any], before: Any) -> Any:
    """The largest relative change; equal infinities do not differ."""
    largest = None
    for now, old in zip(after, before):
        same = now == old
        step = mo.abs(mo.where(same, mo.zeros_like(now), now) - mo.where(same, mo.zeros_like(old), old))
        scaled = mo.max(step / mo.maximum(mo.abs(mo.where(same, mo.ones_like(now), now)), mo.ones_like(now) * 1e-300))
        largest = scaled if largest is None else mo.maximum(largest, scaled)
    return largest


def endless_hint(ring: Semiring) -> str:
    """Describe a cycle that makes values better without end."""
    return ("a cycle must not make values better without end" if ring.idempotent else
            "sums over a cycle whose product is 1 or more have no limit")


def run_dense(stratum: Stratum, axes: Axes, ring: Semiring, relations: Mapping[str, Relation],
              types: Mapping[int, Mapping[Any, Any]],
              empty: Callable[[str], Relation]) -> tuple[dict[str, Relation], Native]:
    """A stratum's relations from dense ones, and the native function that computed them."""
    semiring = tensor_semiring(ring)
    dtype = "bool" if ring.crisp else "float64"
    dense = DenseStratum(stratum, axes, semiring, dtype, types)

    def array(name: str) -> Any:
        return mo.asarray(axes.dense(name, relations.get(name) or empty(name), dtype, ring.zero, ring.one))

    function = mo.compile(dense.fixpoint)
    facts = [array(name) for name in dense.names]
    most = max(MOST_ROUNDS, 2 + sum(math.prod(one.shape) for one in facts))
    *found, rounds = function([array(name) for name in dense.inputs], facts, mo.asarray(most))
    turns = int(rounds.item())
    endless = not ring.idempotent and any(bool(mo.any(tensor == np.inf).item()) for tensor in found)
    if turns >= most or endless:
        raise fail(ValueFault, "logic", f"no end after {turns} rounds of {', '.join(dense.names)}", endless_hint(ring))
    made = {}
    for name, tensor in zip(dense.names, found):
        columns, values = axes.sparse(name, np.asarray(tensor.numpy()), ring.zero)
        made[name] = Relation(columns, len(values), None if ring.crisp else values)
    return made, Native(function, turns)
