"""A model: the relations that a program's rules derive from its facts, kept up to date when facts come and go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from morpho.base.errors import ArgumentError, fail
from morpho.logic.analysis.check import Type
from morpho.logic.analysis.compile import Compiled
from morpho.logic.analysis.core import Negated
from morpho.logic.dense.choice import Choice, choose
from morpho.logic.dense.fixpoint import Native, run_dense
from morpho.logic.dense.linear import run_linear
from morpho.logic.facts import Facts, from_rows
from morpho.logic.semantics.semirings import Semiring
from morpho.logic.syntax.terms import Constant, Rule, Value, show_value
from morpho.logic.tuples.codes import Symbols, decode, encode
from morpho.logic.tuples.fixpoint import Evaluator
from morpho.logic.tuples.incremental import update
from morpho.logic.tuples.relation import Relation


class Answer:
    """Tuples with a name for each column: what a query gives.

    >>> answer = mo.logic.Program("edge(a, b). edge(b, c).").query("edge(X, Y)")
    >>> answer.names, list(answer)
    (('X', 'Y'), [('a', 'b'), ('b', 'c')])
    >>> len(answer), ("a", "b") in answer
    (2, True)
    """

    def __init__(self, names: tuple[str, ...], rows: list[tuple[Value, ...]],
                 weights: NDArray[np.float64] | None = None) -> None:
        self.names, self.rows, self.weights = names, rows, weights

    def __iter__(self) -> Iterator[tuple[Value, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, row: object) -> bool:
        return row in self.rows

    def __bool__(self) -> bool:
        return bool(self.rows)

    def weight(self, *row: Value) -> float:
        """The value of a tuple in the semiring; 1 or 0 where there are no values."""
        if row not in self.rows:
            return 0.0
        return 1.0 if self.weights is None else float(self.weights[self.rows.index(row)])

    def __repr__(self) -> str:
        shown = [f"({', '.join(show_value(value) for value in row)})" for row in self.rows[:10]]
        return f"Answer({', '.join(self.names)}: {', '.join(shown)}{', ...' if len(self) > 10 else ''})"


class Model(Mapping[str, Answer]):
    """Tuples of each predicate, from `Program.run`; `add` and `remove` change facts and everything they support.

    >>> model = mo.logic.Program("path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z). edge(a, b).").run()
    >>> model.add("edge", [("b", "c")])
    >>> list(model["path"])
    [('a', 'b'), ('a', 'c'), ('b', 'c')]
    >>> model.remove("edge", [("a", "b")])
    >>> list(model["path"])
    [('b', 'c')]
    """

    def __init__(self, compiled: Compiled, semiring: Semiring, symbols: Symbols) -> None:
        self.compiled = compiled
        self.rules: list[Rule] = []
        self.evaluator = Evaluator(semiring, compiled.columns, compiled.variables, symbols)
        self.base: dict[str, Relation] = {}
        self.choices: dict[frozenset[str], Choice] = {}
        self.natives: dict[frozenset[str], Native] = {}

    @property
    def symbols(self) -> Symbols:
        """The table of symbols."""
        return self.evaluator.symbols

    def facts(self, facts: Mapping[str, list[Facts]], own: list[Rule]) -> None:
        """Take the facts that the rules start from."""
        semiring = self.evaluator.semiring
        for name, values in self.compiled.domains.items():
            codes = encode(list(values), self.compiled.columns[name][0], self.symbols)
            weights = None if semiring.crisp else np.full(len(codes), semiring.one)
            self.base[name] = Relation.of([codes], len(codes), weights, semiring)
        for name in {*facts, *(rule.head.predicate for rule in own)}:
            kinds = self.compiled.columns[name]
            parts = [self._relation(each, kinds, name) for each in facts.get(name, ())]
            mine = [rule for rule in own if rule.head.predicate == name]
            if mine:
                parts.append(self._of_rules(mine, kinds, name))
            parts.append(Relation.empty(len(kinds), semiring))
            columns = [np.concatenate(column) for column in zip(*(part.columns for part in parts))]
            weights = None if semiring.crisp else np.concatenate([p.values for p in parts if p.values is not None])
            self.base[name] = Relation.of(columns, sum(map(len, parts)), weights, semiring)
        self.evaluator.relations.update(self.base)

    def _relation(self, facts: Facts, kinds: tuple[Type, ...], name: str) -> Relation:
        semiring = self.evaluator.semiring
        codes = facts.codes(kinds, self.symbols, name) or [np.empty(0, np.int64)] * len(kinds)
        weights = None
        if not semiring.crisp:
            weights = np.full(facts.count, semiring.one) if facts.weights is None else self._meant(facts.weights, name)
        return Relation.of(codes, facts.count, weights, semiring)

    def _of_rules(self, rules: list[Rule], kinds: tuple[Type, ...], name: str) -> Relation:
        rows = [[term.value for term in rule.head.terms if isinstance(term, Constant)] for rule in rules]
        codes = [encode([_number(row[place], kind) for row in rows], kind, self.symbols)
                 for place, kind in enumerate(kinds)]
        semiring, weights = self.evaluator.semiring, None
        if not semiring.crisp:
            weights = np.asarray([semiring.one if rule.weight is None else rule.weight for rule in rules], np.float64)
            weights = self._meant(weights, name)
        return Relation.of(codes, len(rows), weights, semiring)

    def _meant(self, weights: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        """Weights of facts that are degrees where degrees are asked for: 1 - a and a + b - ab mean nothing of others,
        and each engine would have results of its own."""
        semiring = self.evaluator.semiring
        negates = any(isinstance(literal, Negated) for rule in self.compiled.rules for literal in rule.body)
        if not semiring.unit or (semiring.distributive and not negates):
            return weights
        wrong = weights[~((weights >= 0) & (weights <= 1))]
        if len(wrong):
            raise fail(ArgumentError, "logic", f"a fact of {name} has the weight {wrong[0]:g}, and {semiring.name} has "
                                               "degrees from 0 to 1",
                       "scale the weights, or choose semantics of any numbers: (+, x), (min, +), (max, min)")
        return weights

    def compute(self, engine: str = "auto") -> None:
        """All strata, each on tuples or on tensors: what `engine` says, or what is estimated to be faster."""
        for stratum in self.compiled.strata:
            choice = choose(stratum, self.compiled, self.evaluator, engine)
            if choice.engine == "dense" and choice.axes is not None:
                found, native = run_dense(stratum, choice.axes, self.evaluator.semiring, self.evaluator.relations,
                                          self.compiled.variables, self.evaluator.relation)
                self.evaluator.relations.update(found)
                self.evaluator.counters.rounds += native.rounds
                self.natives[stratum.predicates] = native
            elif choice.ready is not None:
                relation, native = run_linear(choice.ready, self.evaluator.semiring)
                self.evaluator.relations[choice.ready.form.predicate] = relation
                self.evaluator.counters.rounds += native.rounds
                self.natives[stratum.predicates] = native
            else:
                self.evaluator.stratum(stratum)
            self.choices[stratum.predicates] = replace(choice, axes=None, ready=None)

    def __getitem__(self, name: str) -> Answer:
        if name not in self.compiled.columns:
            raise fail(ArgumentError, "logic", f"there is no predicate {name}", f"those are {', '.join(self)}")
        relation = self.evaluator.relation(name)
        kinds = self.compiled.columns[name]
        columns = [decode(column, kind, self.symbols) for column, kind in zip(relation.columns, kinds)]
        rows = list(zip(*columns)) if columns else [()] * len(relation)
        order = sorted(range(len(rows)), key=rows.__getitem__)
        weights = None if relation.values is None else relation.values[np.asarray(order, np.int64)]
        return Answer(tuple(f"{number + 1}" for number in range(len(kinds))), [rows[row] for row in order], weights)

    def count(self, name: str) -> int:
        """How many tuples a predicate has, without making them where they are held as bits.

        >>> mo.logic.Program("p(X) :- q(X). q(a). q(b).").run().count("p")
        2
        """
        if name not in self.compiled.columns:
            raise fail(ArgumentError, "logic", f"there is no predicate {name}", f"those are {', '.join(self)}")
        return len(self.evaluator.relation(name))

    def __contains__(self, name: object) -> bool:
        return name in self.compiled.columns

    def get(self, name: str, default: Any = None) -> Any:
        """The tuples of a predicate, or `default` where there is none of that name."""
        return self[name] if name in self.compiled.columns else default

    def __iter__(self) -> Iterator[str]:
        return (name for name in sorted(self.compiled.columns) if not name.startswith("_"))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def counters(self) -> dict[str, int]:
        """Rounds of fixpoints, rules run, and tuples they gave, since the model was made."""
        return dict(vars(self.evaluator.counters))

    def add(self, name: str, rows: Any, weights: Any = None) -> None:
        """Add facts, and what follows from them. Only that is computed, unless negations or aggregates need more."""
        self._change(name, rows, weights, True)

    def remove(self, name: str, rows: Any) -> None:
        """Take facts away, and what is no longer derived from what is left."""
        self._change(name, rows, None, False)

    def _change(self, name: str, rows: Any, weights: Any, adds: bool) -> None:
        if name not in self.compiled.columns or name in self.compiled.domains:
            raise fail(ArgumentError, "logic", f"facts of {name}: there is no such predicate",
                       f"those are {', '.join(self)}")
        facts = from_rows(rows, weights, name)
        kinds = self.compiled.columns[name]
        if not facts.count:
            return
        if len(facts.columns) != len(kinds):
            raise fail(ArgumentError, "logic",
                       f"{name} has {len(kinds)} terms, and the facts have {len(facts.columns)}")
        for number, (found, kind) in enumerate(zip(facts.kinds, kinds)):
            if (found == "symbol") != (kind.base == "symbol") or (found == "float" and kind.base == "int"):
                raise fail(ArgumentError, "logic",
                           f"column {number + 1} of {name} is {kind}, and the facts have {found}")
            domain = set(self.compiled.domains.get(kind.domain or "", ()))
            wrong = [value for value in facts.columns[number] if value not in domain] if domain else []
            if wrong:
                raise fail(ArgumentError, "logic", f"{show_value(wrong[0])} is not in domain {kind.domain}")
        update(self.evaluator, self.compiled.strata, self.base, name, self._relation(facts, kinds, name), adds)


def _number(value: Value, kind: Type) -> Value:
    return float(value) if kind.base == "float" and not isinstance(value, str) else value
