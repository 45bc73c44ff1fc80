"""Ground instances of rules: all ways in which the facts of a model derive a tuple, found backwards from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from morpho.base.errors import MemoryLimit, fail
from morpho.logic.analysis.compile import Compiled
from morpho.logic.analysis.core import CoreRule, Grouped, Negated, is_unnamed, variables_of
from morpho.logic.semantics.semirings import SEMIRINGS
from morpho.logic.syntax.terms import Atom, Constant, Variable
from morpho.logic.tuples.codes import encode_one
from morpho.logic.tuples.fixpoint import Evaluator
from morpho.logic.tuples.relation import Relation

Fact = tuple[str, tuple[int, ...]]  # predicate and codes
MOST_INSTANCES = 1_000_000
GROUND = "_instance"


@dataclass(frozen=True)
class Instance:
    """A rule with values for its variables: the facts that its positive atoms are, and its other literals."""

    rule: CoreRule
    head: Fact
    body: tuple[Fact, ...]
    others: tuple[tuple[Negated | Grouped, tuple[tuple[Variable, int], ...]], ...]


def instances_of(goal: Fact, compiled: Compiled, evaluator: Evaluator) -> dict[Fact, list[Instance]]:
    """Of the goal and of everything it may rest on, the instances that derive it; facts without any are given."""
    crisp = _crisp(evaluator)
    of: dict[str, list[CoreRule]] = {}
    for rule in compiled.rules:
        of.setdefault(rule.head.predicate, []).append(_named(rule, crisp))
    found: dict[Fact, list[Instance]] = {goal: []}
    wave, count = {goal}, 0
    while wave:
        following: set[Fact] = set()
        for name in sorted({fact[0] for fact in wave}):
            rows = np.asarray([fact[1] for fact in wave if fact[0] == name], np.int64)
            asked = Relation.of(list(rows.T), len(rows), None, crisp.semiring)
            for rule in of.get(name, ()):
                for one in _ground(rule, asked, crisp):
                    found[one.head].append(one)
                    count += 1
                    following.update(one.body)
        if count > MOST_INSTANCES:
            raise fail(MemoryLimit, "logic", f"more than {MOST_INSTANCES} instances of rules stand behind this fact",
                       "ask about a smaller set of facts")
        wave = {fact for fact in following if fact not in found}
        found.update((fact, []) for fact in wave)
    return found


def _crisp(evaluator: Evaluator) -> Evaluator:
    """The same relations without values: what is derived is what is asked."""
    ring = SEMIRINGS["boolean"]
    relations = {name: Relation(one.columns, one.count) for name, one in evaluator.relations.items()}
    return Evaluator(ring, dict(evaluator.columns), dict(evaluator.variables), evaluator.symbols, relations,
                     subqueries=evaluator.subqueries)


def _named(rule: CoreRule, evaluator: Evaluator) -> CoreRule:
    """A rule whose `_` in positive atoms have names, so that an instance says what they are."""
    types = evaluator.variables[id(rule)]
    names = {one: Variable(f"W{number}#w") for number, one in enumerate(types) if is_unnamed(one)}
    body = tuple(replace(one, terms=tuple(names.get(t, t) if isinstance(t, Variable) else t for t in one.terms))
                 if isinstance(one, Atom) else one for one in rule.body)
    made = replace(rule, body=body)
    evaluator.variables = {**evaluator.variables, id(made): {
        **types, **{names[one]: types[one] for one in names}}}
    return made


def _ground(rule: CoreRule, asked: Relation, evaluator: Evaluator) -> list[Instance]:
    types = evaluator.variables[id(rule)]
    variables = sorted({one for literal in (rule.head, *rule.body) for one in variables_of(literal)
                        if not is_unnamed(one)}, key=lambda one: one.name)
    head = Atom(GROUND, tuple(variables))
    guard = replace(rule.head, predicate=rule.head.predicate)
    ground = CoreRule(head, (guard, *rule.body))
    evaluator.columns = {**evaluator.columns, GROUND: tuple(types[one] for one in variables)}
    evaluator.variables = {**evaluator.variables, id(ground): types}
    relation = evaluator.run(evaluator.plan(ground, 0, {0: "delta"}), {rule.head.predicate: asked})
    rows = np.stack(relation.columns, axis=1).tolist() if relation.columns else [[]] * len(relation)
    return [_instance(rule, dict(zip(variables, row)), evaluator) for row in rows]


def _instance(rule: CoreRule, values: dict[Variable, int], evaluator: Evaluator) -> Instance:
    def fact(atom: Atom) -> Fact:
        kinds = evaluator.columns[atom.predicate]
        return atom.predicate, tuple(
            encode_one(term.value, kind, evaluator.symbols) if isinstance(term, Constant) else values[term]
            for term, kind in zip(atom.terms, kinds) if isinstance(term, Constant | Variable))

    others = tuple((one, tuple((v, values[v]) for v in variables_of(one)))
                   for one in rule.body if isinstance(one, Negated | Grouped))
    return Instance(rule, fact(rule.head), tuple(fact(one) for one in rule.body if isinstance(one, Atom)), others)
