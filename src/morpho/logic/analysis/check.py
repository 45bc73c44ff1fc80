"""Rules of a valid program: one arity for a predicate, safe variables, one type for a column."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from morpho.logic.analysis.core import CoreRule, Grouped, Literal, Negated, binds, bound_by, variables_of
from morpho.logic.syntax.errors import Place, fault
from morpho.logic.syntax.statements import DomainDeclaration, PredicateDeclaration
from morpho.logic.syntax.terms import Arithmetic, Atom, Compare, Constant, Rule, Term, Value, Variable
from morpho.logic.syntax.walk import atoms

TYPES = ("symbol", "int", "float")


@dataclass(frozen=True)
class Type:
    """Type of a column: `symbol`, `int` or `float`, and the domain it comes from, if any."""

    base: str
    domain: str | None = None

    def __str__(self) -> str:
        return self.domain or self.base


def arities(rules: Iterable[Rule], domains: Iterable[DomainDeclaration], declared: Iterable[PredicateDeclaration],
            facts: Mapping[str, int]) -> dict[str, int]:
    """The number of terms of every predicate; an error where two uses differ."""
    found: dict[str, tuple[int, Place | None]] = {name: (size, None) for name, size in facts.items()}
    uses = [(one.name, 1, one.place) for one in domains]
    uses += [(one.name, len(one.types), one.place) for one in declared]
    uses += [(atom.predicate, len(atom.terms), atom.place)
             for rule in rules for atom in (rule.head, *atoms(rule.body))]
    for name, size, place in uses:
        other, first = found.setdefault(name, (size, place))
        if other != size:
            where = "in its facts" if first is None else "elsewhere" + (f" (line {first.line})" if place else "")
            raise fault(f"predicate {name} has {_terms(size)} here and {_terms(other)} {where}", place)
    return {name: size for name, (size, _) in found.items()}


def _terms(size: int) -> str:
    return f"{size} term{'' if size == 1 else 's'}"


def unknown(name: str, place: Place | None, known: Iterable[str]) -> Exception:
    """The error for a predicate that nothing defines."""
    close = difflib.get_close_matches(name, list(known), 1)
    hint = f"did you mean {close[0]}" if close else f"add facts or a rule for it, or declare it: predicate {name}(...)"
    return fault(f"predicate {name} has no fact, no rule and no declaration", place, hint)


def check_safety(rules: Iterable[CoreRule]) -> None:
    """Every variable has finitely many values: it stands in a positive atom, or equals what is known."""
    for rule in rules:
        bound = bound_by(rule.body)
        for term in rule.head.terms:
            made = isinstance(term, Variable) and "#v" in term.name  # arithmetic in the head: an equation of the body
            if isinstance(term,
                          Variable) and term not in bound and not made and not rule.head.predicate.startswith("_"):
                raise _unsafe(term, rule,
                              f"is in the head, and no positive atom of the body{_alternative(rule)} binds it")
        for literal in rule.body:
            if binds(literal, bound) is None:
                loose = min((one for one in variables_of(literal) if one not in bound),
                            key=lambda one: "#v" in one.name)
                what = "negated" if isinstance(literal, Negated) else "compared" if isinstance(literal, Compare) \
                    else "aggregated over"
                raise _unsafe(loose, rule, f"is {what}, and no positive atom binds it")
        for term in rule.head.terms:
            if isinstance(term, Variable) and term not in bound:
                raise _unsafe(term, rule,
                              "is used under a negation, quantifier or aggregate, and no positive atom binds it")


def _alternative(rule: CoreRule) -> str:
    return " (in one of its alternatives)" if rule.source is not None and "or" in str(rule.source.body) else ""


def _unsafe(variable: Variable, rule: CoreRule, why: str) -> Exception:
    place = variable.place or rule.head.place
    name = "the unnamed variable _" if str(variable) == "_" else f"variable {variable}"
    if "#v" in variable.name:
        name = "this term"
    return fault(f"unsafe: {name} {why}", place, "add an atom that says what it ranges over, such as a domain's")


class Types:
    """Types by unification: a class of columns and variables that must agree, with what is known of it. `facts` has the
    types of loaded columns, with a question mark behind those that are only what a file's text looks like."""

    def __init__(self, domains: Mapping[str, Sequence[Value] | range], declared: Iterable[PredicateDeclaration],
                 facts: Mapping[str, Sequence[str | None]], arity: Mapping[str, int]) -> None:
        self.parent: dict[object, object] = {}
        self.links: list[tuple[object, object, Place | None, str]] = []  # the same base, not the same domain
        self.soft: list[tuple[object, str]] = []
        self.guessed: set[object] = set()
        self.known: dict[object, tuple[str, str | None]] = {}  # base ("number": int unless a float comes), domain
        self.domains = {name: (_base(values), frozenset(values) if not isinstance(values, range) else values)
                        for name, values in domains.items()}
        self.arity = arity
        for name, (base, _) in self.domains.items():
            self._learn((name, 0), base, name, None, "")
        for one in declared:
            for column, (kind, place) in enumerate(zip(one.types, one.places or [None] * len(one.types))):
                if kind not in self.domains and kind not in TYPES:
                    close = difflib.get_close_matches(kind, [*self.domains, *TYPES], 1)
                    raise fault(f"type {kind} is not known", place,
                                f"did you mean {close[0]}" if close else "types are symbol, int, float and domains")
                base = self.domains[kind][0] if kind in self.domains else kind
                self._learn((one.name, column), base, kind if kind in self.domains else None, place, f"{one.name}")
        for name, kinds in facts.items():
            for column, found in enumerate(kinds):
                if found is not None and found.endswith("?"):
                    self.soft.append(((name, column), found[:-1]))
                elif found is not None:
                    self._learn((name, column), found, None, None, f"column {column + 1} of the facts of {name}")

    def rule(self, rule: CoreRule) -> None:
        """Learn from a rule."""
        self._atom(rule, rule.head)
        for literal in rule.body:
            if isinstance(literal, Atom):
                self._atom(rule, literal)
            elif isinstance(literal, Negated):
                self._atom(rule, literal.atom)
            elif isinstance(literal, Grouped):
                self._grouped(rule, literal)
            else:
                self._compare(rule, literal)

    def _slot(self, rule: CoreRule, variable: Variable) -> object:
        return (id(rule), variable.name)

    def _atom(self, rule: CoreRule, atom: Atom) -> None:
        for column, term in enumerate(atom.terms):
            if isinstance(term, Variable):
                self._join((atom.predicate, column), self._slot(rule, term), term.place, str(term))
            elif isinstance(term, Constant):
                self._constant((atom.predicate, column), term, f"column {column + 1} of {atom.predicate}")

    def _constant(self, slot: object, term: Constant, what: str) -> None:
        base = {str: "symbol", int: "number", float: "float"}[type(term.value)]
        self._learn(slot, base, None, term.place, f"{term}", what)
        domain = self.known[self._find(slot)][1]
        if domain is not None and term.value not in self.domains[domain][1]:
            raise fault(f"{term} is not in domain {domain}", term.place)

    def _grouped(self, rule: CoreRule, literal: Grouped) -> None:
        self._atom(rule, literal.atom)
        slot = self._slot(rule, literal.result)
        if literal.operator == "count":
            self._learn(slot, "int", None, literal.result.place, "a count")
        elif literal.value is not None:
            value = self._slot(rule, literal.value)
            if literal.operator in ("sum", "mean"):
                self._number(value, literal.result.place, f"{literal.operator} of {literal.value}")
            if literal.operator == "mean":
                self._learn(slot, "float", None, literal.result.place, "a mean")
            else:
                self._join(value, slot, literal.result.place, str(literal.value), domains=False)

    def _compare(self, rule: CoreRule, literal: Compare) -> None:
        left, right = self._expression(rule, literal.left), self._expression(rule, literal.right)
        self._join(left, right, literal.place, f"{literal}", domains=False)

    def _expression(self, rule: CoreRule, term: Term) -> object:
        if isinstance(term, Variable):
            return self._slot(rule, term)
        slot: object = (id(rule), id(term), "term")
        if isinstance(term, Constant):
            self._constant(slot, term, str(term))
        elif isinstance(term, Arithmetic):
            for part in term.parts:
                inner = self._expression(rule, part)
                self._number(inner, part.place or term.place, f"{part} in {term}")
                self._join(slot, inner, term.place, str(term), domains=False)
        return slot

    def _number(self, slot: object, place: Place | None, what: str) -> None:
        self._learn(slot, "number", None, place, what)

    def _find(self, slot: object) -> object:
        while (up := self.parent.get(slot, slot)) != slot:
            slot = up
        return slot

    def _learn(self, slot: object, base: str, domain: str | None, place: Place | None, what: str,
               where: str = "") -> None:
        root = self._find(slot)
        self.known[root] = self._merged(self.known.get(root), (base, domain), place, what, where)

    def _merged(self, one: tuple[str, str | None] | None, two: tuple[str, str | None] | None, place: Place | None,
                what: str, where: str = "", domains: bool = True) -> tuple[str, str | None]:
        if one is None or two is None:
            found = one or two
            assert found is not None
            return found if domains or one is not None else (found[0], None)
        bases = {one[0], two[0]}
        if len(bases) > 1 and not ("number" in bases and "symbol" not in bases):
            raise fault(f"types do not fit: {what} is {_named(two)}, and {where or 'the same place'} is {_named(one)}",
                        place)
        base = (bases - {"number"} or {"number"}).pop()
        if domains and one[1] and two[1] and one[1] != two[1]:
            raise fault(f"types do not fit: {what} is of domain {two[1]}, and {where or 'the same place'} "
                        f"of domain {one[1]}", place)
        return base, (one[1] or two[1]) if domains else one[1]

    def _join(self, one: object, two: object, place: Place | None, what: str, domains: bool = True) -> None:
        a, b = self._find(one), self._find(two)
        if a == b:
            return
        if a in self.known or b in self.known:
            merged = self._merged(self.known.get(a), self.known.get(b), place, what, domains=domains)
            self.known[a] = merged
        if domains:
            self.parent[b] = a
        else:  # the same base, whatever the domains: what is known goes both ways, the classes stay apart
            base = self.known[a][0] if a in self.known else None
            if base is not None:
                old = self.known.get(b)
                self.known[b] = (base, old[1] if old else None)
            self.links.append((a, b, place, what))

    def columns(self, rules: Sequence[CoreRule]) -> dict[str, tuple[Type, ...]]:
        """The types of all columns; what nothing says anything of is a symbol."""
        for rule in rules:
            self.rule(rule)
        self._through_links()
        for slot, base in self.soft:  # what a file's column looks like counts where nothing else is known
            root = self._find(slot)
            if root not in self.known or root in self.guessed:
                worst = max(base, self.known.get(root, (base, None))[0], key=["int", "float", "symbol"].index)
                self.known[root] = (worst, None)
                self.guessed.add(root)
        self._through_links()
        found = {}
        for name, size in self.arity.items():
            kinds = [self.known.get(self._find((name, column)), ("symbol", None)) for column in range(size)]
            found[name] = tuple(Type("int" if base == "number" else base, domain) for base, domain in kinds)
        return found


    def classes(self, sizes: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """Columns that variables join, by a number for each class."""
        roots: dict[object, int] = {}
        return {(name, column): roots.setdefault(self._find((name, column)), len(roots))
                for name, size in sizes.items() for column in range(size)}

    def _through_links(self) -> None:
        """Bases through comparisons and arithmetic."""
        changed = True
        while changed:
            changed = False
            for one, two, place, what in self.links:
                a, b = self._find(one), self._find(two)
                known = [self.known.get(a), self.known.get(b)]
                if known[0] is None and known[1] is None:
                    continue
                base = self._merged(known[0], known[1], place, what, domains=False)[0]
                for slot, old in zip((a, b), known):
                    if old is None or old[0] != base:
                        self.known[slot] = (base, old[1] if old else None)
                        changed = True

    def variables(self, rule: CoreRule) -> dict[Variable, Type]:
        """The types of a rule's variables, once `columns` has been asked for."""
        found = {}
        literals: list[Literal] = [rule.head, *rule.body]
        for literal in literals:
            atom = literal.atom if isinstance(literal, Negated | Grouped) else literal
            for variable in (*variables_of(literal), *variables_of(atom)):
                base, domain = self.known.get(self._find(self._slot(rule, variable)), ("symbol", None))
                found[variable] = Type("int" if base == "number" else base, domain)
        return found


def _base(values: Sequence[Value] | range) -> str:
    if isinstance(values, range) or not values:
        return "int" if isinstance(values, range) else "symbol"
    return {str: "symbol", int: "int", float: "float"}[type(values[0])]


def _named(known: tuple[str, str | None]) -> str:
    base, domain = known
    return f"of domain {domain}" if domain else {"symbol": "a symbol", "int": "an int", "float": "a float",
                                                 "number": "a number"}[base]
