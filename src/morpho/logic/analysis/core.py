"""Core rules: a head and a conjunction of literals, which is all that the engines know.

Formulas of any depth become core rules with auxiliary predicates (Lloyd and Topor's transformation, `lower.py`);
names of those begin with `_`, which no name of a text can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from morpho.logic.syntax.terms import Atom, Compare, Constant, Rule, Term, Variable
from morpho.logic.syntax.walk import variables_in

GIVEN = "_given/"  # in front of an auxiliary predicate's name: the values that a rule asks about


@dataclass(frozen=True)
class Negated:
    """No tuple of the atom; its unnamed variables (`_`) stand for anything."""

    atom: Atom

    def __str__(self) -> str:
        return f"not {self.atom}"


@dataclass(frozen=True)
class Grouped:
    """`result` is the aggregate of `value` over the tuples of `atom` whose variables in `group` are the rule's."""

    result: Variable
    operator: str
    value: Variable | None
    atom: Atom
    group: tuple[Variable, ...]

    def __str__(self) -> str:
        return f"{self.result} = {self.operator}{'' if self.value is None else f' {self.value}'} : {{ {self.atom} }}"


Literal = Atom | Negated | Compare | Grouped


@dataclass(frozen=True)
class CoreRule:
    """`head :- literals`; `source` is the rule of the program that it comes from, `number` its place there."""

    head: Atom
    body: tuple[Literal, ...]
    weight: float | None = None
    source: Rule | None = field(default=None, compare=False)
    number: int = -1

    def __str__(self) -> str:
        return f"{self.head}{' :- ' if self.body else ''}{', '.join(map(str, self.body))}."


def is_unnamed(term: Term) -> bool:
    """Whether it is a `_`."""
    return isinstance(term, Variable) and term.name.startswith("_#")


def plain(atom: Atom) -> bool:
    """Whether its terms are variables and constants alone."""
    return all(isinstance(term, Variable | Constant) for term in atom.terms)


def variables_of(literal: Literal) -> Iterator[Variable]:
    """The variables of a literal that the rest of its rule sees."""
    if isinstance(literal, Atom):
        for term in literal.terms:
            yield from variables_in(term)
    elif isinstance(literal, Negated):
        yield from (term for term in literal.atom.terms if isinstance(term, Variable) and not is_unnamed(term))
    elif isinstance(literal, Compare):
        yield from variables_in(literal.left)
        yield from variables_in(literal.right)
    else:
        yield literal.result
        yield from literal.group


def needs(literal: Literal) -> set[Variable]:
    """Variables that must have values before the literal can be evaluated, when it gives none itself."""
    if isinstance(literal, Atom):
        return set()
    if isinstance(literal, Grouped):
        return set(literal.group)
    return set(variables_of(literal))


def binds(literal: Literal, bound: set[Variable]) -> set[Variable] | None:
    """Variables that a literal binds once `bound` are known; None if it cannot be evaluated yet."""
    if isinstance(literal, Atom):
        return set(variables_of(literal))
    if isinstance(literal, Compare):
        for side, other in ((literal.left, literal.right), (literal.right, literal.left)):
            known = set(variables_in(other)) <= bound
            if literal.operator == "=" and isinstance(side, Variable) and side not in bound and known:
                return {side}
    if isinstance(literal, Grouped):
        return {literal.result} if set(literal.group) <= bound else None
    return set() if needs(literal) <= bound else None


def bound_by(literals: Iterable[Literal], given: Iterable[Variable] = ()) -> set[Variable]:
    """All variables that a conjunction gives values to."""
    bound, waiting = set(given), list(literals)
    while True:
        ready = [(one, found) for one in waiting if (found := binds(one, bound)) is not None]
        if not ready:
            return bound
        for one, found in ready:
            bound |= found
            waiting.remove(one)


def predicates_of(body: Iterable[Literal]) -> Iterator[tuple[str, bool]]:
    """Predicates of a body, and whether the rule must wait until they are complete (negation, aggregates)."""
    for literal in body:
        if isinstance(literal, Atom):
            yield literal.predicate, False
        elif isinstance(literal, Negated | Grouped):
            yield literal.atom.predicate, True
