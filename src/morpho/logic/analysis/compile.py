"""From a program's statements to strata of core rules with types: all checks, in the order in which they make sense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from morpho.logic.analysis.check import Type, Types, arities, check_safety, unknown
from morpho.logic.analysis.core import GIVEN, CoreRule, predicates_of
from morpho.logic.analysis.lower import lowered
from morpho.logic.analysis.strata import Stratum, stratified
from morpho.logic.syntax.errors import fault
from morpho.logic.syntax.statements import DomainDeclaration, Parsed, PredicateDeclaration
from morpho.logic.syntax.terms import Atom, Rule, Value, Variable
from morpho.logic.syntax.walk import atoms


@dataclass(frozen=True)
class Compiled:
    """A program that can run: facts are apart, `columns` has the types of every predicate, auxiliary ones too; `known`
    are the predicates that something defines."""

    rules: tuple[CoreRule, ...]
    strata: tuple[Stratum, ...]
    columns: Mapping[str, tuple[Type, ...]]
    variables: Mapping[int, Mapping[Variable, Type]]
    domains: Mapping[str, Sequence[Value] | range]
    known: frozenset[str]
    classes: Mapping[tuple[str, int], int]  # columns of the same class hold the same kind of thing


@dataclass(frozen=True)
class Statements:
    """Input of a compilation: rules without facts, facts' atoms for their types, declarations, loaded columns."""

    rules: Sequence[Rule]
    facts: Sequence[Rule]
    domains: Sequence[DomainDeclaration]
    predicates: Sequence[PredicateDeclaration]
    loaded: Mapping[str, Sequence[str | None]]


def statements(parsed: Parsed, loaded: Mapping[str, Sequence[str | None]]) -> Statements:
    """A program's statements, its facts apart from its rules."""
    facts = [rule for rule in parsed.rules if rule.is_fact]
    return Statements([rule for rule in parsed.rules if not rule.is_fact], facts, parsed.domains, parsed.predicates,
                      loaded)


def check_complete(program: Statements, known: frozenset[str]) -> None:
    """Every predicate of a body is defined by something."""
    for rule in program.rules:
        for atom in atoms(rule.body):
            if atom.predicate not in known:
                raise unknown(atom.predicate, atom.place, known)


def compiled(program: Statements) -> Compiled:
    """Check and lower a program; what it reads may still be without facts."""
    domains = _domains(program)
    arity = arities([*program.rules, *program.facts], program.domains, program.predicates,
                    {name: len(kinds) for name, kinds in program.loaded.items()})
    known = {*domains, *(one.name for one in program.predicates), *program.loaded,
             *(rule.head.predicate for rule in (*program.rules, *program.facts))}
    rules = lowered(program.rules)
    check_safety(rules)
    return typed(rules, program, domains, arity, frozenset(known))


def typed(rules: Sequence[CoreRule], program: Statements, domains: Mapping[str, Sequence[Value] | range],
          arity: Mapping[str, int], known: frozenset[str]) -> Compiled:
    """Core rules with strata and types; those that a transformation has made too."""
    strata = stratified(rules)
    sizes = {**arity, **{rule.head.predicate: len(rule.head.terms) for rule in rules}}
    sizes |= {one.predicate: len(one.terms) for rule in rules for one in rule.body
              if isinstance(one, Atom) and one.predicate.startswith(GIVEN)}
    types = Types(domains, program.predicates, program.loaded, sizes)
    facts = [CoreRule(rule.head, ()) for rule in program.facts]
    columns = types.columns([*facts, *rules])
    variables = {id(rule): types.variables(rule) for rule in rules}
    return Compiled(tuple(rules), tuple(strata), columns, variables, domains, known, types.classes(sizes))


def _domains(program: Statements) -> dict[str, Sequence[Value] | range]:
    found: dict[str, Sequence[Value] | range] = {}
    heads = {rule.head.predicate: rule.head.place for rule in (*program.rules, *program.facts)}
    for one in program.domains:
        if one.name in found:
            raise fault(f"domain {one.name} is declared twice", one.place)
        if one.name in heads:
            raise fault(f"{one.name} is a domain, and here is the head of a rule", heads[one.name],
                        "a domain has the values of its declaration")
        found[one.name] = one.values
    return found


def uses(rules: Sequence[CoreRule]) -> dict[str, set[str]]:
    """Predicate -> what its rules read."""
    found: dict[str, set[str]] = {}
    for rule in rules:
        found.setdefault(rule.head.predicate, set()).update(name for name, _ in predicates_of(rule.body))
    return found
