"""Terms and formulas: what both front ends make, and all that the compiler reads.

Everything is immutable; places are for messages and take no part in comparison. Formulas join with `&`, `|`, `~`,
`>>` (implies) and `.iff`; terms compare with `==`'s methods `eq`, `ne` and the operators `<`, `<=`, `>`, `>=`, and add,
subtract, multiply and divide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from morpho.logic.syntax.errors import Place

Value = str | int | float
COMPARISONS = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}  # with their negations
AGGREGATES = ("count", "sum", "min", "max", "mean")


class Term:
    """A variable, a constant, arithmetic of terms, or an aggregate."""

    place: Place | None

    def __add__(self, other: Any) -> Arithmetic:
        return Arithmetic("+", (self, as_term(other)))

    def __radd__(self, other: Any) -> Arithmetic:
        return Arithmetic("+", (as_term(other), self))

    def __sub__(self, other: Any) -> Arithmetic:
        return Arithmetic("-", (self, as_term(other)))

    def __rsub__(self, other: Any) -> Arithmetic:
        return Arithmetic("-", (as_term(other), self))

    def __mul__(self, other: Any) -> Arithmetic:
        return Arithmetic("*", (self, as_term(other)))

    def __rmul__(self, other: Any) -> Arithmetic:
        return Arithmetic("*", (as_term(other), self))

    def __truediv__(self, other: Any) -> Arithmetic:
        return Arithmetic("/", (self, as_term(other)))

    def __mod__(self, other: Any) -> Arithmetic:
        return Arithmetic("mod", (self, as_term(other)))

    def __lt__(self, other: Any) -> Compare:
        return Compare("<", self, as_term(other))

    def __le__(self, other: Any) -> Compare:
        return Compare("<=", self, as_term(other))

    def __gt__(self, other: Any) -> Compare:
        return Compare(">", self, as_term(other))

    def __ge__(self, other: Any) -> Compare:
        return Compare(">=", self, as_term(other))

    def eq(self, other: Any) -> Compare:
        """`self = other`."""
        return Compare("=", self, as_term(other))

    def ne(self, other: Any) -> Compare:
        """`self != other`."""
        return Compare("!=", self, as_term(other))


@dataclass(frozen=True)
class Variable(Term):
    """A name with a capital letter, or an underscore in front; `_` alone is a new variable wherever it stands.

    >>> X = mo.logic.Variable("X")
    >>> print(X + 1 < 3)
    X + 1 < 3
    """

    name: str
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return "_" if self.name.startswith("_#") else self.name.partition("#")[0]


@dataclass(frozen=True)
class Constant(Term):
    """A symbol, an integer or a float."""

    value: Value
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return show_value(self.value)


@dataclass(frozen=True)
class Arithmetic(Term):
    """`+ - * / mod`, of integers or of floats; `/` of integers rounds down, and has no value for a divisor of 0."""

    operator: str
    parts: tuple[Term, ...]
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        left, right = (f"({part})" if isinstance(part, Arithmetic) else str(part) for part in self.parts)
        return f"{left} {self.operator} {right}"


@dataclass(frozen=True)
class Aggregate(Term):
    """`sum V : { body }` over the distinct bindings of the body's own variables, for each value of those it shares."""

    operator: str
    value: Term | None
    body: Formula
    place: Place | None = field(default=None, compare=False, repr=False)
    own: tuple[Variable, ...] = ()  # variables of the body that stand nowhere else, once names are apart

    def __str__(self) -> str:
        return f"{self.operator}{'' if self.value is None else f' {self.value}'} : {{ {self.body} }}"


class Formula:
    """A statement about terms that is true or false."""

    place: Place | None

    def __and__(self, other: Formula) -> And:
        return And((*(self.parts if isinstance(self, And) else (self,)), other))

    def __or__(self, other: Formula) -> Or:
        return Or((*(self.parts if isinstance(self, Or) else (self,)), other))

    def __invert__(self) -> Not:
        return Not(self)

    def __rshift__(self, other: Formula) -> Implies:
        return Implies(self, other)

    def iff(self, other: Formula) -> Iff:
        """True where both have the same truth value."""
        return Iff(self, other)


@dataclass(frozen=True)
class Atom(Formula):
    """A predicate of terms: `edge(X, b)`."""

    predicate: str
    terms: tuple[Term, ...]
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.predicate}({', '.join(map(str, self.terms))})" if self.terms else self.predicate


@dataclass(frozen=True)
class Compare(Formula):
    """`=`, `!=`, `<`, `<=`, `>` or `>=` of two terms."""

    operator: str
    left: Term
    right: Term
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True)
class Not(Formula):
    """Negation."""

    part: Formula
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"not {grouped(self.part)}"


@dataclass(frozen=True)
class And(Formula):
    """All of several formulas; of none, true."""

    parts: tuple[Formula, ...]
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return ", ".join(map(grouped, self.parts)) or "true"


@dataclass(frozen=True)
class Or(Formula):
    """Disjunction of formulas; false if empty."""

    parts: tuple[Formula, ...]
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return " or ".join(map(grouped, self.parts)) or "false"


@dataclass(frozen=True)
class Implies(Formula):
    """`left -> right`."""

    left: Formula
    right: Formula
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{grouped(self.left)} -> {grouped(self.right)}"


@dataclass(frozen=True)
class Iff(Formula):
    """`left <-> right`."""

    left: Formula
    right: Formula
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{grouped(self.left)} <-> {grouped(self.right)}"


@dataclass(frozen=True)
class IfThenElse(Formula):
    """`if test then yes else no`."""

    test: Formula
    yes: Formula
    no: Formula
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"if {grouped(self.test)} then {grouped(self.yes)} else {grouped(self.no)}"


@dataclass(frozen=True)
class Quantified(Formula):
    """`exists X in d: body`, `forall ...`, `at least 2 ...`, `at most 2 ...`, `exactly 2 ...`: variables with the
    domain of each, or None where the body's predicates say what they range over."""

    quantifier: Literal["exists", "forall", "at least", "at most", "exactly"]
    variables: tuple[Variable, ...]
    domains: tuple[str | None, ...]
    body: Formula
    number: int = 0
    place: Place | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        bound = ", ".join(f"{variable}{f' in {domain}' if domain else ''}"
                          for variable, domain in zip(self.variables, self.domains))
        word = self.quantifier + (f" {self.number}" if self.quantifier in COUNTED else "")
        return f"{word} {bound}: {grouped(self.body)}"


COUNTED = {"at least": ">=", "at most": "<=", "exactly": "="}


@dataclass(frozen=True)
class Rule:
    """`weight :: head :- body.`; a fact is a rule whose body is true."""

    head: Atom
    body: Formula = And(())
    weight: float | None = None
    place: Place | None = field(default=None, compare=False, repr=False)

    @property
    def is_fact(self) -> bool:
        """Whether the head holds by itself, and has constants alone."""
        return self.body == And(()) and all(isinstance(term, Constant) for term in self.head.terms)

    def __str__(self) -> str:
        weight = f"{self.weight!r} :: " if self.weight is not None else ""
        return f"{weight}{self.head}{'' if self.body == And(()) else f' :- {self.body}'}."


def grouped(formula: Formula) -> str:
    """Text of a formula, in parentheses unless it is an atom, a comparison or a negation."""
    return str(formula) if isinstance(formula, Atom | Compare | Not) else f"({formula})"


def show_value(value: Value) -> str:
    """A constant as the language writes it.

    >>> show_value("ann"), show_value("Ann Lee"), show_value(3)
    ('ann', '"Ann Lee"', '3')
    """
    if isinstance(value, str):
        plain = value.isascii() and value.isidentifier() and value[0].islower() and value not in RESERVED
        return value if plain else '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return repr(value)


RESERVED = frozenset(("not", "and", "or", "exists", "forall", "in", "if", "then", "else", "true", "false", "mod",
                      "domain", "predicate", "at", "least", "most", "exactly", *AGGREGATES))


def as_term(value: Any) -> Term:
    """A term as it is; a str, int or float as a constant."""
    if isinstance(value, Term):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        from morpho.logic.syntax.errors import fault

        raise fault(f"{value!r} is no term", None, "terms are variables, strings, integers and floats")
    return Constant(value)
