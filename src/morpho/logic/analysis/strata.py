"""Strata: groups of predicates that depend on each other, in an order in which each is complete before it is
negated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from morpho.logic.analysis.core import CoreRule, Grouped, Negated, predicates_of
from morpho.logic.syntax.errors import fault
from morpho.logic.syntax.terms import Atom


@dataclass(frozen=True)
class Stratum:
    """Predicates that are computed together; `recursive` when a rule of theirs uses one of them."""

    predicates: frozenset[str]
    rules: tuple[CoreRule, ...]
    recursive: bool


def stratified(rules: Sequence[CoreRule]) -> list[Stratum]:
    """The strata, each after all that it uses; an error for a negation or an aggregate inside a recursion."""
    uses: dict[str, set[str]] = {}
    for rule in rules:
        uses.setdefault(rule.head.predicate, set()).update(name for name, _ in predicates_of(rule.body))
    found = []
    for group in components(uses):
        own = tuple(rule for rule in rules if rule.head.predicate in group)
        if not own:
            continue
        for rule in own:
            _check(rule, group, rules)
        recursive = any(name in group for rule in own for name, _ in predicates_of(rule.body))
        found.append(Stratum(group, own, recursive))
    return found


def _check(rule: CoreRule, group: frozenset[str], rules: Sequence[CoreRule]) -> None:
    for literal in rule.body:
        if isinstance(literal, Negated | Grouped) and literal.atom.predicate in group:
            name = literal.atom.predicate
            what = "negation" if isinstance(literal, Negated) else "an aggregate"
            if name.startswith("_"):  # an auxiliary predicate stands for a formula of the user's
                inner = next(one.predicate for other in rules if other.head.predicate == name
                             for one in _positive(other) if one.predicate in group)
                name = inner if not inner.startswith("_") else rule.head.predicate
            place = literal.atom.place or rule.head.place
            head = (rule.source or rule).head.predicate
            raise fault(f"not stratified: {head} depends on "
                        f"{name} through {what}, and {name} depends on it", place,
                        "a predicate must be complete before it is negated or aggregated")


def _positive(rule: CoreRule) -> list[Atom]:
    return [one if isinstance(one, Atom) else one.atom for one in rule.body
            if isinstance(one, Atom | Negated | Grouped)]


def components(uses: Mapping[str, Iterable[str]]) -> list[frozenset[str]]:
    """Strongly connected components (Tarjan), each behind those it uses; without a limit on depth."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    found: list[frozenset[str]] = []
    for root in sorted(uses):
        work = [(root, iter(sorted(uses.get(root, ()))))] if root not in number else []
        if work:
            number[root] = low[root] = len(number)
            path.append(root)
            on_path.add(root)
        while work:
            name, following = work[-1]
            for other in following:
                if other not in number:
                    number[other] = low[other] = len(number)
                    path.append(other)
                    on_path.add(other)
                    work.append((other, iter(sorted(uses.get(other, ())))))
                    break
                if other in on_path:
                    low[name] = min(low[name], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == number[name]:
                    cut = path.index(name)
                    found.append(frozenset(path[cut:]))
                    on_path -= found[-1]
                    del path[cut:]
    return found
