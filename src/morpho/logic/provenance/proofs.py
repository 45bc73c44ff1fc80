"""Proof trees, and minimal supports: the smallest sets of facts from which a tuple follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, MemoryLimit, fail
from morpho.logic.analysis.core import Grouped, Negated
from morpho.logic.model import Model
from morpho.logic.provenance.instances import Fact, Instance, instances_of
from morpho.logic.syntax.terms import Atom, Constant, Rule, Value, Variable, show_value
from morpho.logic.tuples.codes import decode, encode_one

MOST_SUPPORTS = 5_000


@dataclass(frozen=True)
class Proof:
    """A tree: what holds, the rule that gives it (None: it is a given fact), and what that rule rests on.

    >>> model = mo.logic.Program("p(X) :- q(X). q(a).").run()
    >>> print(mo.logic.proof(model, "p", "a"))
    p(a)    by p(X) :- q(X).
      q(a)    given
    """

    text: str
    rule: Rule | None
    parts: tuple[Proof, ...]
    kind: str = "given"

    def __str__(self) -> str:
        return "\n".join(self._lines(0))

    def _lines(self, depth: int) -> Iterable[str]:
        why = f"by {self.rule}" if self.rule is not None else self.kind
        yield f"{'  ' * depth}{self.text}    {why}"
        for part in self.parts:
            yield from part._lines(depth + 1)

    @property
    def facts(self) -> frozenset[str]:
        """The given facts at its leaves."""
        if self.rule is None:
            return frozenset([self.text]) if self.kind == "given" else frozenset()
        return frozenset().union(*(part.facts for part in self.parts))


def proof(model: Model, name: str, *row: Value) -> Proof:
    """The flattest proof that a tuple holds.

    >>> program = mo.logic.Program("path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z).")
    >>> program.add("edge", [("a", "b"), ("b", "c")])
    >>> print(mo.logic.proof(program.run(), "path", "a", "c"))
    path(a, c)    by path(X, Z) :- path(X, Y), edge(Y, Z).
      path(a, b)    by path(X, Y) :- edge(X, Y).
        edge(a, b)    given
      edge(b, c)    given
    """
    return _Explained(model, name, row).proof()


def supports(model: Model, name: str, *row: Value) -> list[frozenset[str]]:
    """All minimal sets of given facts from which a tuple follows, the smallest first.

    >>> program = mo.logic.Program("p(X) :- q(X). p(X) :- r(X), s(X). q(a). r(a). s(a).")
    >>> [sorted(one) for one in mo.logic.supports(program.run(), "p", "a")]
    [['q(a)'], ['r(a)', 's(a)']]
    """
    return _Explained(model, name, row).supports()


class _Explained:
    def __init__(self, model: Model, name: str, row: tuple[Value, ...]) -> None:
        self.model = model
        if name not in model.compiled.columns:
            raise fail(ArgumentError, "logic", f"there is no predicate {name}", f"those are {', '.join(model)}")
        kinds = model.compiled.columns[name]
        if len(row) != len(kinds):
            raise fail(ArgumentError, "logic", f"{name} has {len(kinds)} terms, and {len(row)} are given")
        self.goal: Fact = (name, tuple(encode_one(value, kind, model.symbols) for value, kind in zip(row, kinds)))
        if not self._holds(self.goal):
            raise fail(ArgumentError, "logic", f"{self.show(self.goal)} does not hold, so that nothing supports it")
        self.instances = instances_of(self.goal, model.compiled, model.evaluator)

    def _holds(self, fact: Fact) -> bool:
        columns = self.model.evaluator.relation(fact[0]).columns
        if not columns:
            return bool(len(self.model.evaluator.relation(fact[0])))
        same = columns[0] == fact[1][0]
        for column, code in zip(columns[1:], fact[1][1:]):
            same = same & (column == code)
        return bool(same.any())

    def is_given(self, fact: Fact) -> bool:
        """Whether it is a fact of the program's."""
        base = self.model.base.get(fact[0])
        if base is None:
            return False
        if not base.columns:
            return bool(len(base))
        same = base.columns[0] == fact[1][0]
        for column, code in zip(base.columns[1:], fact[1][1:]):
            same = same & (column == code)
        return bool(same.any())

    def show(self, fact: Fact) -> str:
        """As the language writes it."""
        name, codes = fact
        kinds = self.model.compiled.columns[name]
        values = [decode(_column(code), kind, self.model.symbols)[0] for code, kind in zip(codes, kinds)]
        return f"{name.partition('/')[0]}({', '.join(map(show_value, values))})" if values else name

    def proof(self) -> Proof:
        heights: dict[Fact, int] = {fact: 0 for fact in self.instances if self.is_given(fact)}
        chosen: dict[Fact, Instance] = {}
        level = 0
        while self.goal not in heights:
            level += 1
            new = {fact: one for fact, many in self.instances.items() if fact not in heights
                   for one in many if all(part in heights for part in one.body)}
            assert new, "a tuple that holds has a proof"
            heights.update(dict.fromkeys(new, level))
            chosen.update(new)
        return self._tree(self.goal, chosen)

    def _tree(self, fact: Fact, chosen: dict[Fact, Instance]) -> Proof:
        one = chosen.get(fact)
        if one is None:
            return Proof(self.show(fact), None, ())
        parts = [self._tree(part, chosen) for part in one.body]
        parts += [Proof(self._other(literal, dict(values)), None, (), "holds") for literal, values in one.others]
        return Proof(self.show(fact), one.rule.source, tuple(parts))

    def _other(self, literal: Negated | Grouped, values: dict[Variable, int]) -> str:
        atom = literal.atom
        if atom.predicate.startswith("_"):
            known = ", ".join(f"{variable} = {self._value(literal, variable, code)}" for variable,
                              code in values.items())
            what = "a negated or quantified part" if isinstance(literal, Negated) else f"{literal.operator}"
            return f"{what} with {known}" if known else what
        terms = [self._value(literal, term, values[term]) if isinstance(term, Variable) and term in values
                 else str(term)
                 for term in atom.terms]
        return f"not {Atom(atom.predicate, ())}({', '.join(terms)})" if terms else f"not {atom.predicate}"

    def _value(self, literal: Negated | Grouped, variable: Variable, code: int) -> str:
        for column, term in enumerate(literal.atom.terms):
            if term == variable:
                kind = self.model.compiled.columns[literal.atom.predicate][column]
                return str(Constant(decode(_column(code), kind, self.model.symbols)[0]))
        return str(code)

    def supports(self) -> list[frozenset[str]]:
        found: dict[Fact, set[frozenset[Fact]]] = {
            fact: {frozenset([fact])} if self.is_given(fact) else set() for fact in self.instances}
        changed = True
        while changed:
            changed = False
            for fact, many in self.instances.items():
                for one in many:
                    new = _smallest(found[fact] | _products([found[part] for part in one.body]))
                    if new != found[fact]:
                        found[fact], changed = new, True
        ordered = sorted(found[self.goal], key=lambda one: (len(one), sorted(map(self.show, one))))
        return [frozenset(map(self.show, one)) for one in ordered]


def _column(code: int) -> Any:
    return np.asarray([code], np.int64)


def _products(parts: list[set[frozenset[Fact]]]) -> set[frozenset[Fact]]:
    found: set[frozenset[Fact]] = {frozenset()}
    for part in parts:
        found = _smallest({one | other for one in found for other in part})
    return found


def _smallest(sets: set[frozenset[Fact]]) -> set[frozenset[Fact]]:
    """Without those that contain another."""
    kept: list[frozenset[Fact]] = []
    for one in sorted(sets, key=len):
        if not any(other <= one for other in kept):
            kept.append(one)
    if len(kept) > MOST_SUPPORTS:
        raise fail(MemoryLimit, "logic", f"there are more than {MOST_SUPPORTS} minimal supports", "ask for one proof")
    return set(kept)
