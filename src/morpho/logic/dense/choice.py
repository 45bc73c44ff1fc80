"""Tuples or tensors: which of the two a stratum runs on, by estimated time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from morpho.base.errors import ArgumentError, fail
from morpho.logic.analysis.compile import Compiled
from morpho.logic.analysis.core import predicates_of
from morpho.logic.analysis.magic import ASK
from morpho.logic.analysis.strata import Stratum
from morpho.logic.dense.domains import Axes
from morpho.logic.dense.linear import SPMM, Prepared, linear_form, prepare
from morpho.logic.dense.rules import is_dense
from morpho.logic.syntax.terms import Atom, Variable
from morpho.logic.tuples.fixpoint import Evaluator

ENGINES = ("auto", "tuples", "dense", "sparse")
MOST_ELEMENTS = 2**28  # of one dense relation
PRODUCT_RATE = 3e10  # multiplications a second of a matrix product, and of a fused join and reduction
FUSED_RATE = 2e9
JOIN_RATE = 2e7  # rows a second that a join of tuples gives
CALL_S = 0.15  # tracing and compiling
ROUNDS = 8.0  # of a fixpoint, before anything is known of it


@dataclass(frozen=True)
class Choice:
    """Engine of a stratum, and the reason for it."""

    engine: str
    why: str
    axes: Axes | None = None
    ready: Prepared | None = None


def choose(stratum: Stratum, compiled: Compiled, evaluator: Evaluator, engine: str) -> Choice:
    """The engine for a stratum. Only strata with a recursion are worth tensors, unless those are asked for."""
    if engine not in ENGINES:
        raise fail(ArgumentError, "logic", f"engine {engine!r} is not known", f"those are {', '.join(ENGINES)}")
    if evaluator.semiring.name == "ltn":
        if engine == "tuples":
            raise fail(ArgumentError, "logic", "a mean over a domain needs dense relations", "leave engine out")
        engine = "dense"
    if engine == "tuples":
        return Choice("tuples", "asked for")
    if not evaluator.semiring.crisp and any(name.startswith(ASK) for name in stratum.predicates):
        return Choice("tuples", "questions of a goal have no values")
    linear = _linear(stratum, evaluator, engine)
    if linear is not None or engine == "sparse":
        return linear or Choice("tuples", "no linear recursion of a predicate of two terms")
    other = [rule for rule in stratum.rules if not is_dense(rule) or any(  # a subquery is no relation
        name in evaluator.subqueries for name, _ in predicates_of(rule.body))]
    if other and evaluator.semiring.name == "ltn":
        raise fail(ArgumentError, "logic",
                   f"{other[0].head.predicate} has arithmetic, an aggregate or a subquery, which has "
                   "no mean over a domain", "use another semantics")
    if other:
        return Choice("tuples", f"{other[0].head.predicate} has arithmetic, an aggregate or a subquery")
    if engine == "auto" and not stratum.recursive:
        return Choice("tuples", "no recursion")
    axes = Axes(compiled, evaluator.relations, evaluator.symbols, stratum.rules)
    largest = max(math.prod(axes.shape(rule.head.predicate)) for rule in stratum.rules)
    if largest == 0 or largest > MOST_ELEMENTS:
        return Choice("tuples", "nothing to compute" if not largest else
                      f"a dense relation would have {largest:.3g} elements")
    dense_s, tuples_s = _dense_s(stratum, axes, evaluator), _tuples_s(stratum, axes, evaluator)
    why = f"dense {dense_s:.2g} s, tuples up to {tuples_s:.2g} s, estimated"
    if engine == "dense":
        return Choice("dense", "asked for; " + why, axes)
    return Choice("dense", why, axes) if dense_s < tuples_s else Choice("tuples", why)


def _linear(stratum: Stratum, evaluator: Evaluator, engine: str) -> Choice | None:
    """Linear recursion as sparse products, where that is asked for or estimated to be the fastest."""
    form = linear_form(stratum) if evaluator.semiring.name in SPMM and engine != "dense" else None
    if form is None:
        return None
    ready = prepare(form, evaluator)
    sparse_s, tuples_s = ready.seconds
    products = float(len(ready.nodes)) ** 2 * len(ready.passengers) * ROUNDS
    dense_s = CALL_S + products / (PRODUCT_RATE if evaluator.semiring.crisp else FUSED_RATE)
    why = (f"linear recursion: sparse products {sparse_s:.2g} s, dense {dense_s:.2g} s, tuples up to {tuples_s:.2g} s, "
           "estimated")
    if engine == "sparse":
        return Choice("sparse", "asked for; " + why, None, ready)
    if sparse_s < min(tuples_s, dense_s):
        return Choice("sparse", why, None, ready)
    return Choice("tuples", why) if tuples_s < dense_s else None


def _combinations(rule_atoms: list[Atom], axes: Axes) -> float:
    """Of all variables of a join, two atoms at a time."""
    sizes: dict[Variable, int] = {}
    for atom in rule_atoms:
        for column, term in enumerate(atom.terms):
            if isinstance(term, Variable):
                sizes[term] = len(axes.of(atom.predicate, column))
    return math.prod(sizes.values()) if len(rule_atoms) <= 2 else max(
        _combinations([a, b], axes) for n, a in enumerate(rule_atoms) for b in rule_atoms[n + 1:])


def _dense_s(stratum: Stratum, axes: Axes, evaluator: Evaluator) -> float:
    rate = PRODUCT_RATE if evaluator.semiring.name in ("boolean", "or_and", "plus_times") else FUSED_RATE
    work = sum(_combinations([one for one in rule.body if isinstance(one, Atom)], axes) for rule in stratum.rules)
    return CALL_S + ROUNDS * work / rate


def _tuples_s(stratum: Stratum, axes: Axes, evaluator: Evaluator) -> float:
    """If all tuples are derived: each goes once through every join it stands in."""
    total = 0.0
    for rule in stratum.rules:
        rows = 0.0
        atoms = [one for one in rule.body if isinstance(one, Atom)]
        for atom in atoms:
            if atom.predicate in stratum.predicates:
                full = float(math.prod(axes.shape(atom.predicate)))
                others = [one for one in atoms if one is not atom]
                fan = math.prod(_fan(one, axes, stratum, evaluator) for one in others)
                rows += full * max(fan, 1.0)
        total += rows / JOIN_RATE
    return total


def _fan(atom: Atom, axes: Axes, stratum: Stratum, evaluator: Evaluator) -> float:
    """Tuples of a relation for one value of its first column."""
    shape = axes.shape(atom.predicate)
    size = math.prod(shape) if atom.predicate in stratum.predicates else len(evaluator.relation(atom.predicate))
    return size / max(1, shape[0]) if shape else 1.0
