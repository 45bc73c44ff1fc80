"""Walks over formulas: parts, terms, free variables, atoms, substitution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from morpho.logic.syntax.terms import (
    Aggregate,
    And,
    Arithmetic,
    Atom,
    Compare,
    Formula,
    Iff,
    IfThenElse,
    Implies,
    Not,
    Or,
    Quantified,
    Term,
    Variable,
)


def parts_of(formula: Formula) -> tuple[Formula, ...]:
    """The formulas directly inside one."""
    match formula:
        case Not(part):
            return (part,)
        case And(parts) | Or(parts):
            return parts
        case Implies(left, right) | Iff(left, right):
            return (left, right)
        case IfThenElse(test, yes, no):
            return (test, yes, no)
        case Quantified():
            return (formula.body,)
    return ()


def terms_of(formula: Formula) -> tuple[Term, ...]:
    """The terms that stand in a formula itself."""
    if isinstance(formula, Atom):
        return formula.terms
    return (formula.left, formula.right) if isinstance(formula, Compare) else ()


def variables_in(term: Term) -> Iterator[Variable]:
    """Variables of a term, those free in an aggregate's body included."""
    if isinstance(term, Variable):
        yield term
    elif isinstance(term, Arithmetic):
        for part in term.parts:
            yield from variables_in(part)
    elif isinstance(term, Aggregate):
        yield from (one for one in free(term.body) if one not in term.own)


def free(formula: Formula) -> Iterator[Variable]:
    """Free variables, as often as they occur."""
    for term in terms_of(formula):
        yield from variables_in(term)
    bound = set(formula.variables) if isinstance(formula, Quantified) else set()
    for part in parts_of(formula):
        for variable in free(part):
            if variable not in bound:
                yield variable


def atoms(formula: Formula) -> Iterator[Atom]:
    """Every atom, those inside aggregates too."""
    if isinstance(formula, Atom):
        yield formula
    for term in terms_of(formula):
        yield from _atoms_in(term)
    for part in parts_of(formula):
        yield from atoms(part)


def _atoms_in(term: Term) -> Iterator[Atom]:
    if isinstance(term, Aggregate):
        yield from atoms(term.body)
    elif isinstance(term, Arithmetic):
        for part in term.parts:
            yield from _atoms_in(part)


def substitute_term(term: Term, values: dict[Variable, Term]) -> Term:
    """A term with variables replaced."""
    if isinstance(term, Variable):
        found = values.get(term)
        return term if found is None else replace(found, place=term.place or found.place)  # type: ignore[type-var]
    if isinstance(term, Arithmetic):
        return replace(term, parts=tuple(substitute_term(part, values) for part in term.parts))
    if isinstance(term, Aggregate):
        value = None if term.value is None else substitute_term(term.value, values)
        return replace(term, value=value, body=substitute(term.body, values))
    return term


def substitute(formula: Formula, values: dict[Variable, Term]) -> Formula:
    """A formula with its free variables replaced."""
    match formula:
        case Atom(_, terms):
            return replace(formula, terms=tuple(substitute_term(term, values) for term in terms))
        case Compare(_, left, right):
            return replace(formula, left=substitute_term(left, values), right=substitute_term(right, values))
        case Not(part):
            return replace(formula, part=substitute(part, values))
        case And(parts) | Or(parts):
            return replace(formula, parts=tuple(substitute(part, values) for part in parts))
        case Implies(left_, right_) | Iff(left_, right_):
            return replace(formula, left=substitute(left_, values), right=substitute(right_, values))
        case IfThenElse(test, yes, no):
            return IfThenElse(substitute(test, values), substitute(yes, values), substitute(no, values), formula.place)
        case Quantified():
            inner = {variable: term for variable, term in values.items() if variable not in formula.variables}
            return replace(formula, body=substitute(formula.body, inner))
    raise AssertionError(formula)
