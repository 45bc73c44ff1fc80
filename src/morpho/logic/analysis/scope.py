"""Variables: every quantifier and aggregate gets names of its own, so that a name means one variable in a rule."""

from __future__ import annotations

import itertools
from dataclasses import replace

from morpho.logic.syntax.errors import fault
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
    Rule,
    Term,
    Variable,
)
from morpho.logic.syntax.walk import free, parts_of, substitute, substitute_term, terms_of, variables_in


def renamed_apart(rule: Rule) -> Rule:
    """The rule with quantified variables, and those of aggregates alone, under names of their own."""
    fresh = itertools.count(1)
    outside = {variable for term in rule.head.terms for variable in _outside_aggregates(term)}
    body = _apart(rule.body, outside | _level(rule.body), frozenset(outside), fresh)
    return replace(rule, body=body, head=replace(rule.head, terms=tuple(
        _term(term, outside | _level(rule.body), fresh) for term in rule.head.terms)))


def _outside_aggregates(term: Term) -> set[Variable]:
    if isinstance(term, Variable):
        return {term}
    return {v for part in term.parts for v in _outside_aggregates(part)} if isinstance(term, Arithmetic) else set()


def _level(formula: Formula) -> set[Variable]:
    """Variables that occur outside aggregates and are not quantified."""
    own = {variable for term in terms_of(formula) for variable in _outside_aggregates(term)}
    own |= {variable for part in parts_of(formula) for variable in _level(part)}
    return own - set(formula.variables) if isinstance(formula, Quantified) else own


def _unnamed_of_positive_atoms(formula: Formula) -> set[Variable]:
    if isinstance(formula, Atom):
        return {one for one in formula.terms if isinstance(one, Variable) and one.name.startswith("_#")}
    if isinstance(formula, And | Or) or (isinstance(formula, Quantified) and formula.quantifier == "exists"):
        return {one for part in parts_of(formula) for one in _unnamed_of_positive_atoms(part)}
    return set()


def _apart(formula: Formula, level: set[Variable], quantified: frozenset[Variable],
           fresh: itertools.count[int]) -> Formula:
    def inside(part: Formula) -> Formula:
        return _apart(part, level, quantified, fresh)

    match formula:
        case Atom():
            return replace(formula, terms=tuple(_term(term, level, fresh) for term in formula.terms))
        case Compare():
            return replace(formula, left=_term(formula.left, level, fresh), right=_term(formula.right, level, fresh))
        case Not():
            return replace(formula, part=inside(formula.part))
        case And() | Or():
            return replace(formula, parts=tuple(map(inside, formula.parts)))
        case Implies() | Iff():
            return replace(formula, left=inside(formula.left), right=inside(formula.right))
        case IfThenElse():
            return IfThenElse(inside(formula.test), inside(formula.yes), inside(formula.no), formula.place)
        case Quantified():
            return _quantifier(formula, level, quantified, fresh)
    raise AssertionError(formula)


def _quantifier(formula: Quantified, level: set[Variable], quantified: frozenset[Variable],
                fresh: itertools.count[int]) -> Formula:
    used = set(free(formula.body))
    for variable in formula.variables:
        if variable in level or variable in quantified:
            raise fault(f"variable {variable} is quantified here and used outside of the quantifier too",
                        variable.place, "give one of them another name")
        if variable not in used:
            raise fault(f"variable {variable} is quantified and does not occur in what follows", variable.place)
        if formula.variables.count(variable) > 1:
            raise fault(f"variable {variable} is quantified twice", variable.place)
    new = tuple(replace(variable, name=f"{variable.name}#{next(fresh)}") for variable in formula.variables)
    values: dict[Variable, Term] = dict(zip(formula.variables, new))
    body = substitute(formula.body, values)
    return replace(formula, variables=new, body=_apart(body, level | _level(body), quantified | set(formula.variables),
                                                       fresh))


def _term(term: Term, level: set[Variable], fresh: itertools.count[int]) -> Term:
    if isinstance(term, Arithmetic):
        return replace(term, parts=tuple(_term(part, level, fresh) for part in term.parts))
    if not isinstance(term, Aggregate):
        return term
    inner = _level(term.body)
    for variable in variables_in(term.value) if term.value is not None else ():
        if variable not in inner:
            raise fault(f"variable {variable} is aggregated and does not occur in the braces", variable.place)
    # A variable that stands nowhere else is the aggregate's own, and so is a `_` of a positive atom.
    counted = _unnamed_of_positive_atoms(term.body)
    own = sorted((one for one in inner - level if not one.name.startswith("_#") or one in counted),
                 key=lambda one: one.name)
    values: dict[Variable, Term] = {one: Variable(f"{one.name.lstrip('_#') or 'W'}#{next(fresh)}", one.place)
                                    for one in own}
    body = substitute(term.body, values)
    value = None if term.value is None else substitute_term(term.value, values)
    renamed = tuple(substitute_term(variable, values) for variable in own)
    return replace(term, value=value, body=_apart(body, level | _level(body), frozenset(), fresh),
                   own=tuple(one for one in renamed if isinstance(one, Variable)))
