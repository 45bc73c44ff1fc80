"""Formulas to core rules: negations pushed inwards, then Lloyd and Topor's transformation.

    or                  one core rule for each alternative
    exists              its variables become variables of the rule
    not exists, forall  an auxiliary predicate, negated
    at least n, ...     an auxiliary predicate, counted
    aggregates          an auxiliary predicate with the bindings, grouped
    if-then-else, ->    (test and yes) or (not test and no); not left or right

An auxiliary rule whose own body does not bind all of its variables is a subquery: it is evaluated for the values that
the rule using it asks about (`_given/...`), so that neither their degree of truth nor their recursion matters to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from morpho.logic.analysis.core import GIVEN, CoreRule, Grouped, Literal, Negated, bound_by, is_unnamed
from morpho.logic.analysis.scope import renamed_apart
from morpho.logic.syntax.errors import fault
from morpho.logic.syntax.terms import (
    COMPARISONS,
    COUNTED,
    Aggregate,
    And,
    Arithmetic,
    Atom,
    Compare,
    Constant,
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
from morpho.logic.syntax.walk import free

MOST_ALTERNATIVES = 512
NEGATED_COUNTS = {"at least": "<", "at most": ">", "exactly": "!="}


def lowered(rules: Sequence[Rule]) -> list[CoreRule]:
    """All rules in core form."""
    return [core for number, rule in enumerate(rules) for core in _Lowering(rule, number).run()]


def normal(formula: Formula, positive: bool = True) -> Formula:
    """Negations in front of atoms, `exists` and what may have no value only; no `->`, `<->`, `if`, `forall`."""
    match formula:
        case Not(part):
            return normal(part, not positive)
        case And(parts) | Or(parts):
            kind = And if isinstance(formula, And) == positive else Or
            return kind(tuple(normal(part, positive) for part in parts), formula.place)
        case Implies(left, right):
            return normal(Or((Not(left), right), formula.place), positive)
        case Iff(left, right):
            return normal(Or((And((left, right)), And((Not(left), Not(right)))), formula.place), positive)
        case IfThenElse(test, yes, no):
            return normal(Or((And((test, yes)), And((Not(test), no))), formula.place), positive)
        case Compare(operator) if not positive and not _may_have_no_value(formula):
            return replace(formula, operator=COMPARISONS[operator])
        case Quantified(quantifier="forall"):
            return normal(Not(replace(formula, quantifier="exists", body=Not(formula.body))), positive)
        case Quantified(quantifier="exists"):
            formula = replace(formula, body=normal(_with_domains(formula)))
        case Quantified():
            formula = replace(formula, body=normal(_with_domains(formula)))
    return formula if positive else Not(formula, formula.place)


def _with_domains(formula: Quantified) -> Formula:
    ranges = [Atom(domain, (variable,), variable.place)
              for variable, domain in zip(formula.variables, formula.domains) if domain]
    return And((*ranges, formula.body)) if ranges else formula.body


def _may_have_no_value(formula: Compare) -> bool:
    def partial(term: Term) -> bool:
        if isinstance(term, Aggregate):
            return term.operator in ("min", "max", "mean")
        return isinstance(term, Arithmetic) and (term.operator in "/mod" or any(map(partial, term.parts)))

    return partial(formula.left) or partial(formula.right)


class _Lowering:
    """One rule of the program."""

    def __init__(self, rule: Rule, number: int) -> None:
        self.rule, self.number = rule, number
        self.out: list[CoreRule] = []
        self.made = 0

    def run(self) -> list[CoreRule]:
        rule = renamed_apart(self.rule)
        terms, extra = self._plain_terms(rule.head.terms)
        body = And((*extra, normal(rule.body)))
        for literals in self._alternatives([body]):
            self._emit(replace(rule.head, terms=terms), literals, rule.weight)
        return self.out

    def _emit(self, head: Atom, literals: Sequence[Literal], weight: float | None = None) -> None:
        self.out.append(CoreRule(head, tuple(literals), weight, self.rule, self.number))

    def _fresh(self, what: str) -> Variable:
        self.made += 1
        return Variable(f"{what}#v{self.made}")

    def _plain_terms(self, terms: Iterable[Term]) -> tuple[tuple[Term, ...], list[Formula]]:
        """Terms with arithmetic and aggregates replaced by variables, and the equations of those."""
        plain: list[Term] = []
        extra: list[Formula] = []
        for term in terms:
            if isinstance(term, Variable | Constant):
                plain.append(term)
            else:
                variable = replace(self._fresh("V"), place=term.place)
                plain.append(variable)
                extra.append(Compare("=", variable, term, term.place))
        return tuple(plain), extra

    def _alternatives(self, parts: Sequence[Formula]) -> list[list[Literal]]:
        """The disjunctive normal form of a conjunction."""
        easy, split, hard = self._sorted_parts(parts)
        found: list[list[Literal]] = [easy]
        for part in split:
            found = [[*one, *more] for one in found for branch in part.parts
                     for more in self._alternatives([branch])]
            if len(found) > MOST_ALTERNATIVES:
                raise fault(f"this body has more than {MOST_ALTERNATIVES} alternatives", part.place or self.rule.place,
                            "give a part of it a name with a rule of its own")
        for formula in hard:
            found = [[*one, *self._auxiliary(formula)] for one in found]
        return found

    def _sorted_parts(self, parts: Sequence[Formula]) -> tuple[list[Literal], list[Or], list[Formula]]:
        easy: list[Literal] = []
        split: list[Or] = []
        hard: list[Formula] = []
        waiting = list(parts)
        while waiting:
            part = waiting.pop(0)
            match part:
                case And(inner):
                    waiting[:0] = inner
                case Quantified(quantifier="exists"):
                    waiting.insert(0, part.body)
                case Or():
                    split.append(part)
                case Atom():
                    terms, extra = self._plain_terms(part.terms)
                    easy.append(replace(part, terms=terms))
                    waiting[:0] = extra
                case Compare() if _has_aggregate(part.left) or _has_aggregate(part.right):
                    hard.append(part)
                case Compare():
                    easy.append(part)
                case Not(Atom() as atom):
                    terms, extra = self._plain_terms(atom.terms)
                    if extra:
                        waiting[:0] = extra
                    easy.append(Negated(replace(atom, terms=terms)))
                case _:
                    hard.append(part)
        return easy, split, hard

    def _auxiliary(self, formula: Formula) -> list[Literal]:
        match formula:
            case Not(Quantified(quantifier=quantifier) as inner) if quantifier in COUNTED:
                return self._counted(inner, NEGATED_COUNTS[quantifier])
            case Not(part):
                name = f"_not_{self.number}_{len(self.out)}"
                shared = [variable for variable in dict.fromkeys(free(part)) if not is_unnamed(variable)]
                atom = Atom(name, tuple(shared), formula.place)
                self._define(atom, part, shared)
                return [Negated(atom)]
            case Quantified():
                return self._counted(formula, COUNTED[formula.quantifier])
            case Compare():
                return self._compared(formula)
        raise AssertionError(formula)

    def _counted(self, formula: Quantified, operator: str) -> list[Literal]:
        variable = self._fresh("N")
        own = formula.variables
        shared = [one for one in dict.fromkeys(free(formula.body)) if one not in own and not is_unnamed(one)]
        atom = Atom(f"_count_{self.number}_{len(self.out)}", (*shared, *own), formula.place)
        self._define(atom, formula.body, shared)
        return [Grouped(variable, "count", None, atom, tuple(shared)),
                Compare(operator, variable, Constant(formula.number), formula.place)]

    def _compared(self, formula: Compare) -> list[Literal]:
        literals: list[Literal] = []

        def flat(term: Term) -> Term:
            if isinstance(term, Arithmetic):
                return replace(term, parts=tuple(map(flat, term.parts)))
            if not isinstance(term, Aggregate):
                return term
            literals.extend(self._grouped(term))
            last = literals[-1]
            assert isinstance(last, Grouped)
            return replace(last.result, place=term.place)

        compared = replace(formula, left=flat(formula.left), right=flat(formula.right))
        return [*literals, compared]

    def _grouped(self, term: Aggregate) -> list[Literal]:
        """The bindings of the body's variables as a predicate: first those shared with the rule, then its own."""
        own = list(term.own)
        shared = [one for one in dict.fromkeys(free(term.body)) if one not in own]
        body, value = normal(term.body), term.value
        if value is not None and not isinstance(value, Variable):
            variable = self._fresh("V")
            body, value = And((body, Compare("=", variable, value, value.place))), variable
            own.append(variable)
        terms = (*shared, *own)
        atom = Atom(f"_group_{self.number}_{len(self.out)}", terms, term.place)
        self._define(atom, body, shared)
        return [Grouped(replace(self._fresh("A"), place=term.place), term.operator, value, atom, tuple(shared))]

    def _define(self, atom: Atom, body: Formula, shared: Sequence[Variable]) -> None:
        mark = len(self.out)
        self.out.append(CoreRule(atom, (), None, self.rule, self.number))  # takes the name
        for literals in self._alternatives([body]):
            self._emit(atom, [*_given(atom, shared, bound_by(literals)), *literals])
        del self.out[mark]
        if not any(rule.head.predicate == atom.predicate for rule in self.out):  # a body that is `false`
            false = Compare("!=", Constant(0), Constant(0))
            self._emit(atom, [*_given(atom, shared, set()), false])


def _given(atom: Atom, shared: Sequence[Variable], bound: set[Variable]) -> list[Literal]:
    """Literals in front of an auxiliary rule that does not bind all its shared variables."""
    return [] if set(shared) <= bound else [Atom(GIVEN + atom.predicate, tuple(shared))]


def _has_aggregate(term: Term) -> bool:
    if isinstance(term, Arithmetic):
        return any(map(_has_aggregate, term.parts))
    return isinstance(term, Aggregate)
