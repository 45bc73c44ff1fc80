"""Facts that come and go: only what depends on them is computed again, stratum by stratum.

What is added runs on from the new tuples, semi-naively. What is taken away is deleted with everything that has a
derivation through it, and then derived again where another derivation is left (delete and rederive, Gupta, Mumick and
Subrahmanian 1993). A stratum that negates or aggregates what has changed, and removals in a semiring with values, are
computed anew from the facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from morpho.logic.analysis.core import CoreRule, predicates_of
from morpho.logic.analysis.strata import Stratum
from morpho.logic.syntax.terms import Atom
from morpho.logic.tuples.fixpoint import Evaluator
from morpho.logic.tuples.relation import Relation, difference, places, union


@dataclass
class _Change:
    before: Relation
    added: Relation
    removed: Relation


def update(evaluator: Evaluator, strata: Sequence[Stratum], base: dict[str, Relation], name: str, rows: Relation,
           adds: bool) -> None:
    """Change the facts of a predicate, and all relations that depend on it."""
    semiring = evaluator.semiring
    known = base.get(name, Relation.empty(len(evaluator.columns[name]), semiring))
    there, _ = places(known, rows)
    base[name] = union(known, rows, semiring) if adds else known.take(~there)
    changed: dict[str, _Change] = {}
    if all(name not in stratum.predicates for stratum in strata):
        changed[name] = _replaced(evaluator, name, base[name])
    for stratum in strata:
        touched = {used for rule in stratum.rules for used, _ in predicates_of(rule.body) if used in changed}
        own = name if name in stratum.predicates else None
        if not touched and own is None:
            continue
        changed.update(_stratum(evaluator, stratum, base, changed, own, rows if own else None, adds))


def _replaced(evaluator: Evaluator, name: str, now: Relation) -> _Change:
    before = evaluator.relation(name)
    evaluator.relations[name] = now
    return _changed(before, now)


def _changed(before: Relation, now: Relation) -> _Change:
    added = difference(now, before)
    if now.values is not None and before.values is not None and len(before) and len(now):  # or a value that is another
        there, rows = places(now, before)
        added = now.take(~there | (now.values != before.values[rows]))
    return _Change(before, added, difference(before, now))


def _stratum(evaluator: Evaluator, stratum: Stratum, base: dict[str, Relation], changed: dict[str, _Change],
             own: str | None, rows: Relation | None, adds: bool) -> dict[str, _Change]:
    before = {name: evaluator.relation(name) for name in stratum.predicates}
    waits = any(must_wait and used in changed for rule in stratum.rules for used, must_wait in predicates_of(rule.body))
    removes = any(len(each.removed) for each in changed.values()) or (own is not None and not adds)
    valued = not evaluator.semiring.crisp
    if waits or (removes and valued) or not evaluator.semiring.idempotent:
        _anew(evaluator, stratum, base)
    else:
        if removes:
            _delete_and_rederive(evaluator, stratum, base, changed, own, rows if own and not adds else None)
        _add(evaluator, stratum, changed, own, rows if own and adds else None)
    return {name: _changed(before[name], evaluator.relation(name)) for name in stratum.predicates}


def _anew(evaluator: Evaluator, stratum: Stratum, base: dict[str, Relation]) -> None:
    for name in stratum.predicates:
        evaluator.relations[name] = base.get(name, Relation.empty(len(evaluator.columns[name]), evaluator.semiring))
    evaluator.stratum(stratum)


def _derived(evaluator: Evaluator, rule: CoreRule, position: int, delta: dict[str, Relation]) -> Relation:
    """Tuples that a rule derives if one of its atoms reads a delta."""
    return evaluator.run(evaluator.plan(rule, position, {position: "delta"}), delta)


def _through(evaluator: Evaluator, stratum: Stratum, delta: dict[str, Relation]) -> dict[str, Relation]:
    """All heads derived through the tuples of `delta`."""
    found: dict[str, Relation] = {}
    for rule in stratum.rules:
        for position, literal in enumerate(rule.body):
            if isinstance(literal, Atom) and len(delta.get(literal.predicate, ())):
                new = _derived(evaluator, rule, position, delta)
                name = rule.head.predicate
                found[name] = union(found[name], new, evaluator.semiring) if name in found else new
    return found


def _add(evaluator: Evaluator, stratum: Stratum, changed: dict[str, _Change], own: str | None,
         rows: Relation | None) -> None:
    inputs = {name: each.added for name, each in changed.items()}
    found = _through(evaluator, stratum, inputs)
    if own is not None and rows is not None:
        found[own] = union(found[own], rows, evaluator.semiring) if own in found else rows
    delta = {name: evaluator.absorb(name, new) for name, new in found.items()}
    empty = {name: Relation.empty(len(evaluator.columns[name]), evaluator.semiring) for name in stratum.predicates}
    if stratum.recursive:
        evaluator.continue_with(stratum, {**empty, **delta})


def _delete_and_rederive(evaluator: Evaluator, stratum: Stratum, base: dict[str, Relation],
                         changed: dict[str, _Change], own: str | None, rows: Relation | None) -> None:
    deleted = _overdeleted(evaluator, stratum, changed, own, rows)
    for name, gone in deleted.items():
        evaluator.relations[name] = difference(evaluator.relation(name), gone)
    back: dict[str, Relation] = {}
    for name, gone in deleted.items():
        there, _ = places(gone, base.get(name, gone.take(np.zeros(len(gone), bool))))
        back[name] = gone.take(there)
    for rule in stratum.rules:
        name = rule.head.predicate
        if len(deleted.get(name, ())):  # only heads that were deleted: they are an atom of the body, read first
            guarded = replace(rule, body=(rule.head, *rule.body))
            evaluator.variables = {**evaluator.variables, id(guarded): evaluator.variables[id(rule)]}
            found = evaluator.run(evaluator.plan(guarded, 0, {0: "delta"}), deleted)
            back[name] = union(back[name], found, evaluator.semiring)
    delta = {name: evaluator.absorb(name, again) for name, again in back.items()}
    empty = {name: Relation.empty(len(evaluator.columns[name]), evaluator.semiring) for name in stratum.predicates}
    if stratum.recursive:
        evaluator.continue_with(stratum, {**empty, **delta})


def _overdeleted(evaluator: Evaluator, stratum: Stratum, changed: dict[str, _Change], own: str | None,
                 rows: Relation | None) -> dict[str, Relation]:
    """Everything with a derivation through a tuple that went, as things were before it did."""
    now = {name: evaluator.relation(name) for name in changed}
    evaluator.relations.update({name: each.before for name, each in changed.items()})
    wave = _through(evaluator, stratum, {name: each.removed for name, each in changed.items()})
    if own is not None and rows is not None:
        wave[own] = union(wave[own], rows, evaluator.semiring) if own in wave else rows
    deleted: dict[str, Relation] = {}
    while wave:
        fresh: dict[str, Relation] = {}
        for name, found in wave.items():
            there, _ = places(found, evaluator.relation(name))
            new = found.take(there)
            if name in deleted:
                new = difference(new, deleted[name])
            if len(new):
                fresh[name] = new
                deleted[name] = union(deleted[name], new, evaluator.semiring) if name in deleted else new
        wave = _through(evaluator, stratum, fresh)
    evaluator.relations.update(now)
    return deleted
