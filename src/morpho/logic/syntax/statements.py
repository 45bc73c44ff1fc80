"""The statements of a program: what a parser or a builder gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from morpho.logic.syntax.errors import Place
from morpho.logic.syntax.terms import Formula, Rule, Value


@dataclass(frozen=True)
class DomainDeclaration:
    """`domain person = {ann, bob}.` or `domain year = 1900..2100.`"""

    name: str
    values: tuple[Value, ...] | range
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True)
class PredicateDeclaration:
    """`predicate parent(person, person).`; a type is a domain, `symbol`, `int` or `float`."""

    name: str
    types: tuple[str, ...]
    places: tuple[Place | None, ...] = field(default=(), compare=False)
    place: Place | None = field(default=None, compare=False)


@dataclass
class Parsed:
    """A program's statements."""

    rules: list[Rule] = field(default_factory=list)
    queries: list[Formula] = field(default_factory=list)
    domains: list[DomainDeclaration] = field(default_factory=list)
    predicates: list[PredicateDeclaration] = field(default_factory=list)
