"""Tokens to rules: a recursive descent, one method for each line of the grammar.

    statement   = "domain" name "=" ("{" constants "}" | integer ".." integer) "."
                | "predicate" name "(" types ")" "."
                | "?-" formula "."
                | [number "::"] atom [":-" formula] "."
    formula     = implication {"<->" implication}
    implication = either ["->" implication]
    either      = both {("or" | ";") both}
    both        = unary {("and" | ",") unary}
    unary       = ("not" | "!") unary | quantified ":" unary | "if" formula "then" formula "else" unary | primary
    quantified  = ("exists" | "forall" | "at least" n | "at most" n | "exactly" n) variable ["in" name] {"," ...}
    primary     = "(" formula ")" | "true" | "false" | atom | term comparison term
    term        = product {("+" | "-") product};  product = factor {("*" | "/" | "mod") factor}
    factor      = variable | constant | "-" factor | "(" term ")" | aggregate
    aggregate   = ("count" | ("sum" | "min" | "max" | "mean") term) ":" "{" formula "}"
"""

from __future__ import annotations

from typing import Literal, cast

from morpho.logic.syntax.errors import LogicError, Source, fault
from morpho.logic.syntax.lexer import MOST_INTEGER, Token, tokens
from morpho.logic.syntax.statements import DomainDeclaration, Parsed, PredicateDeclaration
from morpho.logic.syntax.terms import (
    AGGREGATES,
    COMPARISONS,
    RESERVED,
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
    Value,
    Variable,
)

DEEPEST = 60  # formulas inside formulas
MOST_OPERATORS = 200  # in one term: each makes its tree deeper by one
MOST_OF_A_RANGE = 10_000_000


def parse(text: str, name: str = "program") -> Parsed:
    """A program's statements from its text.

    >>> print(parse("path(X, Z) :- path(X, Y), edge(Y, Z).").rules[0])
    path(X, Z) :- path(X, Y), edge(Y, Z).
    """
    return _Parser(Source(text, name)).program()


def parse_formula(text: str, name: str = "query") -> Formula:
    """One formula, as a query has it; a `?-` in front and a full stop behind may be left out.

    >>> print(parse_formula("path(a, X), X != b"))
    path(a, X), X != b
    """
    parser = _Parser(Source(text, name))
    parser.take("?-")
    found = parser.formula()
    parser.take(".")
    if parser.token.kind != "end":
        raise parser.expected("the end of the query")
    return found


class _Parser:
    """`at` is the position in `all`; a method reads what it is named after and goes on behind it."""

    def __init__(self, source: Source) -> None:
        self.all = tokens(source)
        self.at = self.depth = self.unnamed = self.open_terms = self.operators = 0

    @property
    def token(self) -> Token:
        return self.all[self.at]

    def is_at(self, *texts: str) -> bool:
        return self.token.text in texts and self.token.kind in ("sign", "name")

    def take(self, *texts: str) -> Token | None:
        if not self.is_at(*texts):
            return None
        self.at += 1
        return self.all[self.at - 1]

    def need(self, text: str, after: str) -> Token:
        found = self.take(text)
        if found is None:
            raise self.expected(f"`{text}` {after}")
        return found

    def expected(self, what: str) -> LogicError:
        found = f"`{self.token.text}`" if self.token.text else "the end of the text"
        return fault(f"expected {what}, and here is {found}", self.token.place)

    def kind(self, kind: str, what: str) -> Token:
        if self.token.kind != kind:
            raise self.expected(what)
        self.at += 1
        return self.all[self.at - 1]

    def name(self, what: str) -> Token:
        found = self.kind("name", what)
        if found.text in RESERVED:
            raise fault(f"`{found.text}` is a word of the language and cannot be {what}", found.place)
        return found

    def program(self) -> Parsed:
        parsed = Parsed()
        while self.token.kind != "end":
            following = self.all[self.at + 1] if self.at + 1 < len(self.all) else self.token
            if self.is_at("domain") and following.kind == "name":
                parsed.domains.append(self.domain())
            elif self.is_at("predicate") and following.kind == "name":
                parsed.predicates.append(self.predicate())
            elif self.take("?-"):
                parsed.queries.append(self.formula())
                self.need(".", "behind a query")
            else:
                parsed.rules.append(self.rule())
        return parsed

    def domain(self) -> DomainDeclaration:
        self.at += 1
        name = self.name("the name of a domain")
        self.need("=", "behind a domain's name")
        values: tuple[Value, ...] | range
        if self.take("{"):
            listed = [self.constant()]
            while self.take(","):
                listed.append(self.constant())
            self.need("}", "behind a domain's values")
            values = tuple(dict.fromkeys(one.value for one in listed))
            kinds = {type(value) for value in values}
            if len(kinds) > 1:
                odd = next(one for one in listed if type(one.value) is not type(listed[0].value))
                raise fault(f"domain {name.text} mixes {_kind(listed[0].value)} with {_kind(odd.value)}", odd.place)
        else:
            low = self.whole()
            self.need("..", "between the ends of a range")
            high = self.whole()
            if high - low >= MOST_OF_A_RANGE:
                raise fault(f"a range of {high - low + 1} values is more than {MOST_OF_A_RANGE}", name.place)
            values = range(low, high + 1)
        self.need(".", "behind a domain")
        return DomainDeclaration(name.text, values, name.place)

    def whole(self) -> int:
        sign = -1 if self.take("-") else 1
        token = self.kind("number", "an integer")
        if not isinstance(token.value, int):
            raise fault(f"`{token.text}` is no integer", token.place)
        return sign * token.value

    def predicate(self) -> PredicateDeclaration:
        self.at += 1
        name = self.name("the name of a predicate")
        types: list[Token] = []
        if self.take("("):
            types.append(self.kind("name", "a type"))
            while self.take(","):
                types.append(self.kind("name", "a type"))
            self.need(")", "behind the types")
        self.need(".", "behind a declaration")
        return PredicateDeclaration(name.text, tuple(one.text for one in types), tuple(one.place for one in types),
                                    name.place)

    def rule(self) -> Rule:
        weight, start = None, self.token.place
        if self.token.kind == "number":
            number = self.kind("number", "a weight")
            self.need("::", "behind a weight")
            weight = float(number.value)
        head = self.atom()
        body: Formula = And(())
        if self.take(":-"):
            body = self.formula()
        if not self.take("."):
            raise self.expected("`.` at the end of a rule" if body != And(())
                                else "`:-` or `.` behind the head of a rule")
        return Rule(head, body, weight, start)

    def atom(self) -> Atom:
        name = self.name("a predicate")
        terms: list[Term] = []
        if self.take("("):
            terms.append(self.term())
            while self.take(","):
                terms.append(self.term())
            self.need(")", "behind the terms of a predicate")
        return Atom(name.text, tuple(terms), name.place)

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise fault(f"more than {DEEPEST} formulas inside each other", self.token.place,
                        "give a part of it a name with a rule of its own")

    def formula(self) -> Formula:
        self.deeper()
        found, signs = self.implication(), 0
        while sign := self.take("<->"):
            signs += 1
            if signs > DEEPEST:
                raise fault(f"more than {DEEPEST} `<->` in one formula", sign.place,
                            "give a part of it a name with a rule of its own")
            found = Iff(found, self.implication(), sign.place)
        self.depth -= 1
        return found

    def implication(self) -> Formula:
        left = self.either()
        if sign := self.take("->"):
            self.deeper()
            left = Implies(left, self.implication(), sign.place)
            self.depth -= 1
        return left

    def either(self) -> Formula:
        parts = [self.both()]
        while self.take("or", ";"):
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts), parts[0].place)

    def both(self) -> Formula:
        parts = [self.unary()]
        while self.take("and", ","):
            parts.append(self.unary())
        return parts[0] if len(parts) == 1 else And(tuple(parts), parts[0].place)

    def unary(self) -> Formula:
        self.deeper()
        try:
            if sign := self.take("not", "!"):
                return Not(self.unary(), sign.place)
            if word := self.take("if"):
                test = self.formula()
                self.need("then", "behind the test of an `if`")
                yes = self.formula()
                self.need("else", "behind the first branch of an `if`")
                return IfThenElse(test, yes, self.unary(), word.place)
            if self.is_at("exists", "forall", "at", "exactly"):
                return self.quantified()
            return self.primary()
        finally:
            self.depth -= 1

    def quantified(self) -> Formula:
        word, number = self.token, 0
        self.at += 1
        quantifier = word.text
        if quantifier == "at":
            bound = self.take("least", "most")
            if bound is None:
                raise self.expected("`least` or `most` behind `at`")
            quantifier = f"at {bound.text}"
        if quantifier not in ("exists", "forall"):
            number = self.whole()
        variables, domains = [], []
        while True:
            variable = self.kind("variable", "a variable")
            variables.append(Variable(variable.text, variable.place))
            if variable.text == "_":
                raise fault("a quantified variable needs a name", variable.place)
            domains.append(self.name("a domain").text if self.take("in") else None)
            if not self.take(","):
                break
        self.need(":", "behind quantified variables")
        kind = cast(Literal["exists", "forall", "at least", "at most", "exactly"], quantifier)
        return Quantified(kind, tuple(variables), tuple(domains), self.unary(), number, word.place)

    def primary(self) -> Formula:
        if self.is_at("("):
            start, unnamed, depth = self.at, self.unnamed, self.depth
            try:
                self.at += 1
                found = self.formula()
                self.need(")", "behind a formula")
                if not self.is_at(*COMPARISONS, "+", "-", "*", "/", "mod"):
                    return found
            except LogicError as error:  # perhaps the parenthesis of a term
                reached = self.at
                self.at, self.unnamed, self.depth = start, unnamed, depth
                try:
                    return self.comparison()
                except LogicError as other:
                    raise (error if reached >= self.at else other) from None
            self.at, self.unnamed = start, unnamed
            return self.comparison()
        if word := self.take("true", "false"):
            return And((), word.place) if word.text == "true" else Or((), word.place)
        if self.token.kind == "name" and self.token.text not in AGGREGATES:
            following = self.all[self.at + 1]
            if following.text not in COMPARISONS and following.text not in ("+", "-", "*", "/", "mod"):
                return self.atom()
        return self.comparison()

    def comparison(self) -> Formula:
        left = self.term()
        sign = self.take(*COMPARISONS)
        if sign is None:
            raise self.expected("a comparison (`=`, `!=`, `<`, `<=`, `>`, `>=`)")
        return Compare(sign.text, left, self.term(), sign.place)

    def term(self) -> Term:
        self.deeper()
        if not self.open_terms:
            self.operators = 0
        self.open_terms += 1
        try:
            found = self.product()
            while sign := self.take("+", "-"):
                found = self.joined(sign, found, self.product())
        finally:
            self.open_terms -= 1
        self.depth -= 1
        return found

    def product(self) -> Term:
        found = self.factor()
        while sign := self.take("*", "/", "mod"):
            found = self.joined(sign, found, self.factor())
        return found

    def joined(self, sign: Token, left: Term, right: Term) -> Term:
        """Two parts of a term by an operator, of which a term has only so many."""
        self.operators += 1
        if self.operators > MOST_OPERATORS:
            raise fault(f"more than {MOST_OPERATORS} operators in one term", sign.place,
                        "give a part of it a name: Y = X + 1")
        return Arithmetic(sign.text, (left, right), sign.place)

    def factor(self) -> Term:
        token = self.token
        if token.kind == "variable":
            self.at += 1
            if token.text == "_":
                self.unnamed += 1
                return Variable(f"_#{self.unnamed}", token.place)
            return Variable(token.text, token.place)
        if self.take("("):
            found = self.term()
            self.need(")", "behind a term")
            return found
        if token.kind == "name" and token.text in AGGREGATES:
            return self.aggregate()
        if self.take("-"):
            if self.token.kind == "number":
                return Constant(_negated(self.kind("number", "a number").value), token.place)
            self.deeper()
            part = self.factor()
            self.depth -= 1
            return Arithmetic("-", (Constant(0), part), token.place)
        return self.constant()

    def constant(self) -> Constant:
        token = self.token
        if token.kind in ("number", "string"):
            self.at += 1
            return Constant(token.value, token.place)
        if self.take("-"):
            return Constant(_negated(self.kind("number", "a number").value), token.place)
        return Constant(self.name("a constant").text, token.place)

    def aggregate(self) -> Term:
        word = self.kind("name", "an aggregate")
        value = None if word.text == "count" else self.term()
        self.need(":", f"between `{word.text}` and its body")
        self.need("{", f"around the body of `{word.text}`")
        body = self.formula()
        self.need("}", f"behind the body of `{word.text}`")
        return Aggregate(word.text, value, body, word.place)


def _negated(value: Value) -> Value:
    assert not isinstance(value, str) and value <= MOST_INTEGER
    return -value


def _kind(value: Value) -> str:
    return {str: "symbols", int: "integers", float: "floats"}[type(value)]
