"""Strata to relations: rules once, then semi-naive rounds until nothing is new.

In a round every recursive rule runs once for each of its recursive atoms, with that atom reading only what the round
before added. In an idempotent semiring a tuple is new when its value got better. In one that is not (sums), atoms
before that one read everything and those behind it what was there before, so that every derivation is counted once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from morpho.base.errors import MemoryLimit, ValueFault, fail
from morpho.logic.analysis.check import Type
from morpho.logic.analysis.core import GIVEN, CoreRule, Literal, predicates_of
from morpho.logic.analysis.magic import ASK
from morpho.logic.analysis.strata import Stratum
from morpho.logic.semantics.semirings import Semiring
from morpho.logic.syntax.terms import Arithmetic, Atom, Compare, Term, Variable
from morpho.logic.tuples.codes import Symbols
from morpho.logic.tuples.evaluate import Context, Table, run_rule
from morpho.logic.tuples.plan import RulePlan, plan_rule
from morpho.logic.tuples.relation import Relation, places, union

MOST_ROUNDS = 100_000  # of sums, and of numbers that a comparison may end; more where there are more tuples
MOST_UNBOUNDED_ROUNDS = 10_000  # of a recursion in which nothing ends what arithmetic makes, beside one for each tuple
MOST_TUPLES = 200_000_000
TOLERANCE = 1e-12


@dataclass
class Counters:
    """Work done: rounds of fixpoints, rules run, tuples they gave (before those known were left out)."""

    rounds: int = 0
    rules: int = 0
    tuples: int = 0


@dataclass
class Evaluator:
    """Relations by name, and what is needed to compute more of them."""

    semiring: Semiring
    columns: Mapping[str, tuple[Type, ...]]
    variables: Mapping[int, Mapping[Variable, Type]]
    symbols: Symbols
    relations: dict[str, Relation] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    plans: list[RulePlan] = field(default_factory=list)
    limit: int = MOST_TUPLES
    subqueries: dict[str, list[CoreRule]] = field(default_factory=dict)

    def relation(self, name: str) -> Relation:
        """The tuples of a predicate; none where nothing is known of it."""
        found = self.relations.get(name)
        return Relation.empty(len(self.columns[name]), self.semiring) if found is None else found

    def stratum(self, stratum: Stratum) -> None:
        """Compute the predicates of a stratum; all that they use is there."""
        if asking := [rule for rule in stratum.rules for used, _ in predicates_of(rule.body) if used.startswith(GIVEN)]:
            self.subqueries[asking[0].head.predicate] = list(stratum.rules)
            return
        if not stratum.recursive:
            for rule in stratum.rules:
                self.grow(rule.head.predicate, self.run(self.plan(rule)))
        elif not self.semiring.distributive:
            self._round_by_round(stratum)
        else:
            self._semi_naive(stratum)

    def plan(self, rule: CoreRule, delta: int | None = None, sources: Mapping[int, str] | None = None) -> RulePlan:
        """The plan of a rule for the sizes of now."""
        sizes = {name: len(relation) for name, relation in self.relations.items()}
        plan = plan_rule(rule, sizes, sources or {}, delta)
        self.plans.append(plan)
        return plan

    def run(self, plan: RulePlan, deltas: Mapping[str, Relation] | None = None,
            old: Mapping[str, Relation] | None = None) -> Relation:
        """Tuples that a rule derives."""
        versions = {"delta": deltas or {}, "old": old or {}}

        def read(name: str, source: str) -> Relation:
            return self.relation(name) if source == "total" else versions[source].get(
                name) or Relation.empty(len(self.columns[name]), self.semiring)

        found = run_rule(plan, Context(read, self.columns, self.variables[id(plan.rule)], self.symbols, self.semiring,
                                       self._subquery))
        if found.values is not None and plan.rule.head.predicate.startswith(ASK):  # a question has no degree
            found = Relation(found.columns, len(found), np.full(len(found), self.semiring.one))
        self.counters.rules += 1
        self.counters.tuples += len(found)
        return found

    def _subquery(self, name: str, table: Table, atom: Atom) -> Relation | None:
        """An auxiliary predicate whose rules ask for the values they are about: its tuples for those of a table."""
        rules = self.subqueries.get(name)
        if rules is None:
            return None
        found = Relation.empty(len(self.columns[name]), self.semiring)
        for rule in rules:
            given = next((one for one in rule.body if isinstance(one, Atom) and one.predicate == GIVEN + name), None)
            if given is not None:
                columns = [table.columns[one] for one in given.terms if isinstance(one, Variable)]
                ones = None if self.semiring.crisp else np.full(table.count, self.semiring.one)
                asked = Relation.of(columns, table.count, ones, self.semiring)
                if asked.values is not None:  # however many rows ask for them
                    asked.values = np.full(len(asked), self.semiring.one)
                self.relations[GIVEN + name] = asked
            found = union(found, self.run(self.plan(rule)), self.semiring)
        self.relations.pop(GIVEN + name, None)
        return found

    def grow(self, name: str, found: Relation) -> None:
        """Join tuples to a relation."""
        self.relations[name] = union(self.relation(name), found, self.semiring)
        if len(self.relations[name]) > self.limit:
            raise fail(MemoryLimit, "logic", f"{name} has more than {self.limit} tuples",
                       "a recursion that makes new numbers needs a comparison that ends it")

    def _semi_naive(self, stratum: Stratum) -> None:
        delta = {name: self.relation(name) for name in stratum.predicates}
        for rule in stratum.rules:
            if not _positions(rule, stratum.predicates):
                found = self.run(self.plan(rule))
                name = rule.head.predicate
                self.grow(name, found)
                delta[name] = self.relation(name)
        self.continue_with(stratum, delta)

    def continue_with(self, stratum: Stratum, delta: dict[str, Relation]) -> None:
        """Rounds from what is new in the stratum's own predicates (and is in the relations already)."""
        plans = self._delta_plans(stratum)
        old = {name: Relation.empty(len(self.columns[name]), self.semiring) for name in stratum.predicates}
        rounds, most = 0, self._most_rounds(stratum)
        makes_numbers = any(_computes(literal) for rule in stratum.rules for literal in rule.body)
        while any(len(each) for each in delta.values()):
            rounds += 1
            if rounds > most and (makes_numbers or rounds > 2 + self._tuples(stratum)):
                raise self._endless(stratum.predicates, rounds)
            new: dict[str, Relation] = {}
            for plan in plans:
                if plan.delta is not None and len(delta[_predicate(plan.rule, plan.delta)]):
                    found = self.run(plan, delta, old)
                    name = plan.rule.head.predicate
                    new[name] = union(new[name], found, self.semiring) if name in new else found
            old = {name: self.relation(name) for name in stratum.predicates}
            delta = {name: self.absorb(name, new[name]) if name in new else
                     Relation.empty(len(self.columns[name]), self.semiring) for name in stratum.predicates}
        self.counters.rounds += rounds

    def _delta_plans(self, stratum: Stratum) -> list[RulePlan]:
        plans = []
        for rule in stratum.rules:
            positions = _positions(rule, stratum.predicates)
            for position in positions:
                sources = {position: "delta"}
                if not self.semiring.idempotent:
                    sources |= {other: "old" for other in positions if other > position}
                plans.append(self.plan(rule, position, sources))
        return plans

    def absorb(self, name: str, found: Relation) -> Relation:
        """Join what was found to the relation; what is new about it."""
        known = self.relation(name)
        there, rows = places(found, known)
        if found.values is None or known.values is None:
            new = found.take(~there)
            self.grow(name, new)
            return new
        before = np.where(there, known.values[rows], self.semiring.zero) if len(known) else \
            np.full(len(found), self.semiring.zero)
        with np.errstate(over="ignore"):
            after = np.asarray(self.semiring.plus(before, found.values))
        self.grow(name, found)
        if self.semiring.idempotent:
            return Relation(found.columns, len(found), after).take(~there | (after != before))
        if np.isposinf(after).any():
            raise self._endless(frozenset([name]), self.counters.rounds)
        with np.errstate(invalid="ignore"):
            scale = 1.0 if self.semiring.name == "log_sum_exp" else np.maximum(np.abs(after), 1e-300)
            return found.take(~there | (np.abs(after - before) > TOLERANCE * scale))

    def _round_by_round(self, stratum: Stratum) -> None:
        """Everything again from what the last round gave, until it stays: for logics that do not distribute."""
        facts = {name: self.relation(name) for name in stratum.predicates}
        plans = [self.plan(rule) for rule in stratum.rules]
        for rounds in itertools.count():
            if rounds >= MOST_ROUNDS and rounds > 2 + self._tuples(stratum):
                raise self._endless(stratum.predicates, rounds + 1)
            self.counters.rounds += 1
            found = dict(facts)
            for plan in plans:
                name = plan.rule.head.predicate
                found[name] = union(found[name], self.run(plan), self.semiring)
            same = all(_close(found[name], self.relation(name)) for name in stratum.predicates)
            self.relations.update(found)
            if same:
                return

    def _tuples(self, stratum: Stratum) -> int:
        """How many there are by now. Where no numbers are made, a chain that is longer has a tuple twice: a cycle."""
        return sum(len(self.relation(name)) for name in stratum.predicates)

    def _most_rounds(self, stratum: Stratum) -> int:
        """How many rounds are waited for: as long a chain as there are tuples ends in any case."""
        literals = [literal for rule in stratum.rules for literal in rule.body]
        if not self.semiring.idempotent or any(_ends(literal) for literal in literals):
            return max(MOST_ROUNDS, sum(len(relation) for relation in self.relations.values()))
        return max(MOST_UNBOUNDED_ROUNDS, sum(len(relation) for relation in self.relations.values()))

    def _endless(self, names: frozenset[str], rounds: int) -> Exception:
        numbers = "a recursion that makes new numbers needs a comparison that ends it"
        hint = (numbers if self.semiring.crisp else f"{numbers}; a cycle must not make values better without end"
                ) if self.semiring.idempotent else "sums over a cycle whose product is 1 or more have no limit"
        return fail(ValueFault, "logic", f"no end after {rounds - 1} rounds of {', '.join(sorted(names))}", hint)


def _ends(literal: Literal) -> bool:
    """Whether a literal may bound the numbers that a recursion makes: a comparison, what is absent, a remainder."""
    if isinstance(literal, Compare):
        return literal.operator != "=" or _divides(literal.left) or _divides(literal.right)
    return not isinstance(literal, Atom)


def _computes(literal: Literal) -> bool:
    return isinstance(literal, Compare) and isinstance(literal.left, Arithmetic) | isinstance(literal.right, Arithmetic)


def _divides(term: Term) -> bool:
    return isinstance(term, Arithmetic) and (term.operator in ("/", "mod") or any(map(_divides, term.parts)))


def _close(one: Relation, two: Relation) -> bool:
    return len(one) == len(two) and all(np.array_equal(a, b) for a, b in zip(one.columns, two.columns)) and (
        one.values is None or two.values is None or bool(np.all(np.abs(one.values - two.values) <= TOLERANCE)))


def _positions(rule: CoreRule, predicates: frozenset[str]) -> list[int]:
    return [position for position, literal in enumerate(rule.body)
            if isinstance(literal, Atom) and literal.predicate in predicates]


def _predicate(rule: CoreRule, position: int) -> str:
    literal = rule.body[position]
    assert isinstance(literal, Atom)
    return literal.predicate
