"""A logic program: its statements from text or from Python, its facts, and the ways to run it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.logic.analysis.compile import Compiled, Statements, check_complete, compiled, statements, typed, uses
from morpho.logic.analysis.core import is_unnamed
from morpho.logic.analysis.magic import goal_directed
from morpho.logic.dense.function import TensorProgram
from morpho.logic.explain import explained
from morpho.logic.facts import Facts, from_rows, read_facts
from morpho.logic.model import Answer, Model
from morpho.logic.provenance.proofs import Proof, proof
from morpho.logic.semantics.semirings import Semiring, semiring
from morpho.logic.syntax.parser import parse, parse_formula
from morpho.logic.syntax.statements import DomainDeclaration, Parsed
from morpho.logic.syntax.terms import And, Atom, Constant, Formula, Rule, Term, Value, Variable, as_term, show_value
from morpho.logic.syntax.walk import atoms, free
from morpho.logic.tuples.codes import Symbols

GOAL = "_goal"


class Predicate:
    """A predicate to build atoms of: `edge(X, "b")`. `Program.predicate` makes it.

    >>> edge = mo.logic.Predicate("edge", 2)
    >>> print(edge(mo.logic.Variable("X"), "b"))
    edge(X, b)
    """

    def __init__(self, name: str, arity: int) -> None:
        self.name, self.arity = name, arity

    def __call__(self, *terms: Any) -> Atom:
        if len(terms) != self.arity:
            raise fail(ArgumentError, "logic",
                       f"predicate {self.name} has {self.arity} terms, and {len(terms)} are given")
        return Atom(self.name, tuple(map(as_term, terms)))

    def __repr__(self) -> str:
        return f"Predicate({self.name!r}, {self.arity})"


def variables(names: str) -> tuple[Variable, ...]:
    """Variables by their names, which begin with a capital letter.

    >>> mo.logic.variables("X Y")
    (Variable(name='X'), Variable(name='Y'))
    """
    found = tuple(Variable(name) for name in names.replace(",", " ").split())
    for one in found:
        if not (one.name.isidentifier() and one.name.isascii() and one.name[0].isupper()):
            raise fail(ArgumentError, "logic", f"{one.name!r} is no name of a variable",
                       "variables begin with a capital letter")
    return found


class Program:
    """Facts, rules and queries. Statements come from a text, from the builder's methods, or from both; facts also from
    arrays and files. `run` derives everything, `query` what a goal asks for.

    >>> program = mo.logic.Program('''
    ...     path(X, Y) :- edge(X, Y).
    ...     path(X, Z) :- path(X, Y), edge(Y, Z).
    ... ''')
    >>> program.add("edge", [("a", "b"), ("b", "c")])
    >>> program.query("path(a, X)")
    Answer(X: (b), (c))

    The same with the builder:

    >>> program = mo.logic.Program()
    >>> edge, path = program.predicate("edge", 2), program.predicate("path", 2)
    >>> X, Y, Z = mo.logic.variables("X Y Z")
    >>> program.rule(path(X, Y), edge(X, Y))
    >>> program.rule(path(X, Z), path(X, Y) & edge(Y, Z))
    >>> program.fact(edge("a", "b"))
    >>> list(program.run()["path"])
    [('a', 'b')]

    text: statements in the language of docs/logic.md
    name: what messages call the text, such as a file's name
    """

    def __init__(self, text: str = "", name: str = "program") -> None:
        self.parsed = parse(text, name)
        self.loaded: dict[str, list[Facts]] = {}
        self._compiled: Compiled | None = None
        if self.parsed.rules or self.parsed.domains or self.parsed.predicates:
            self._compile()  # mistakes are told where the program is written, not where it runs

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Program:
        """A program from a file."""
        from morpho.logic.facts import MissingTable

        try:
            with open(path, encoding="utf-8-sig") as file:
                return Program(file.read(), os.path.basename(os.fspath(path)))
        except FileNotFoundError:
            raise fail(MissingTable, "logic", f"there is no file {os.fspath(path)}") from None
        except UnicodeDecodeError:
            raise fail(ArgumentError, "logic", f"{os.fspath(path)} is no text in UTF-8") from None

    # The builder.

    def domain(self, name: str, values: Iterable[Value] | range) -> Predicate:
        """Declare a domain: a named finite set, and the predicate of its members."""
        listed = values if isinstance(values, range) else tuple(dict.fromkeys(values))
        if not listed or len({type(value) for value in listed}) > 1:
            raise fail(ArgumentError, "logic",
                       f"domain {name} has {'values of several types' if listed else 'no values'}")
        self._extend(Parsed(domains=[DomainDeclaration(name, listed)]))
        return Predicate(name, 1)

    def predicate(self, name: str, *types: str | int | Predicate) -> Predicate:
        """Declare a predicate, by its number of terms or by their types: domains, `symbol`, `int`, `float`."""
        if len(types) == 1 and isinstance(types[0], int):
            if not (name.isascii() and name.isidentifier() and name[0].islower()):
                raise fail(ArgumentError, "logic", f"{name!r} is no name of a predicate",
                           "it begins with a small letter")
            self.loaded.setdefault(name, []).append(Facts([[]] * types[0], ["any"] * types[0], 0))
            return Predicate(name, types[0])
        names = [one.name if isinstance(one, Predicate) else str(one) for one in types]
        self._extend(parse(f"predicate {name}{'(' + ', '.join(names) + ')' if names else ''}.", "builder"))
        return Predicate(name, len(names))

    def rule(self, head: Atom, body: Formula | None = None, weight: float | None = None) -> None:
        """Add `head :- body.`, with a weight for semantics that have them."""
        rule = Rule(head, And(()) if body is None else body, weight)
        parsed = parse(_writable(rule), f"rule {len(self.parsed.rules) + 1}")
        self._extend(parsed)

    def fact(self, atom: Atom, weight: float | None = None) -> None:
        """Add a fact."""
        self.rule(atom, None, weight)

    def _extend(self, more: Parsed) -> None:
        before = self.parsed
        self.parsed = Parsed([*before.rules, *more.rules], [*before.queries, *more.queries],
                             [*before.domains, *more.domains], [*before.predicates, *more.predicates])
        self._compiled = None
        try:
            self._compile()
        except Exception:
            self.parsed = before
            raise

    def add(self, name: str, rows: Any, weights: Any = None) -> None:
        """Add facts: a list of tuples, or an array of integers or floats with a row for each."""
        self._take(name, from_rows(rows, weights, name))

    def read(self, name: str, path: str | os.PathLike[str], table: str | None = None, header: bool | None = None,
             weights: bool = False) -> None:
        """Add the facts of a file (`mo.logic.read_facts`)."""
        self._take(name, read_facts(path, table, header, weights))

    def _take(self, name: str, facts: Facts) -> None:
        self.loaded.setdefault(name, []).append(facts)
        self._compiled = None
        try:
            if facts.count:
                self._compile()
        except Exception:
            self.loaded[name].pop()
            raise

    def undefined(self) -> list[str]:
        """Predicates that bodies read and nothing defines: facts are to be added for them."""
        made = self._compile()
        used = (atom.predicate for rule in self.parsed.rules for atom in atoms(rule.body))
        return [name for name in dict.fromkeys(used) if name not in made.known]

    @property
    def predicates(self) -> dict[str, tuple[str, ...]]:
        """The types of all predicates."""
        made = self._compile()
        return {name: tuple(map(str, kinds)) for name, kinds in made.columns.items() if not name.startswith("_")}

    # Compiling and running.

    def _statements(self, more: Sequence[Rule] = ()) -> Statements:
        kinds: dict[str, list[str | None]] = {}
        for name, parts in self.loaded.items():
            sizes = {len(part.kinds) for part in parts if part.kinds}
            if len(sizes) > 1:
                raise fail(ArgumentError, "logic",
                           f"facts of {name} have {' and '.join(map(str, sorted(sizes)))} columns")
            found: list[str | None] = [None] * max(sizes, default=0)
            for part in parts:
                found = [_joined(a, None if b == "any" else b, name) for a, b in zip(found, part.kinds or found)]
            if sizes:
                kinds[name] = found
        made = statements(self.parsed, kinds)
        return replace(made, rules=[*made.rules, *more])

    def _compile(self) -> Compiled:
        if self._compiled is None:
            self._compiled = compiled(self._statements())
        return self._compiled

    def run(self, semantics: str | Semiring = "boolean", engine: str = "auto") -> Model:
        """Derive everything that follows from the facts, on sorted `tuples`, on `dense` tensors, by `sparse` products
        where the recursion is linear, or on what is estimated to be the fastest (`auto`)."""
        made = self._compile()
        check_complete(self._statements(), made.known)
        return self._model(made, semiring(semantics), engine)

    def tensors(self, semantics: str | Semiring = "product", rounds: int = 8) -> TensorProgram:
        """The program as a differentiable function of tensors: `rounds` rounds of every recursion.

        >>> f = mo.logic.Program("0.5 :: p(X) :- q(X). q(a).").tensors("max_times")
        >>> float(f()["p"][0]), float(f(weights=mo.asarray([0.25]))["p"][0])
        (0.5, 0.25)
        """
        made = self._compile()
        check_complete(self._statements(), made.known)
        return TensorProgram(self._based(made, semiring(semantics)), rounds)

    def _based(self, compiled_: Compiled, ring: Semiring) -> Model:
        model = Model(compiled_, ring, Symbols())
        model.rules = [rule for rule in self.parsed.rules if not rule.is_fact]
        model.facts({name: [part for part in parts if part.count or part.kinds] for name, parts in self.loaded.items()
                     if name in compiled_.columns}, [rule for rule in self.parsed.rules if rule.is_fact])
        return model

    def _model(self, compiled_: Compiled, ring: Semiring, engine: str = "auto") -> Model:
        model = self._based(compiled_, ring)
        model.compute(engine)
        return model

    def query(self, goal: str | Formula, semantics: str | Semiring = "boolean", engine: str = "auto") -> Answer:
        """The bindings of a formula's variables for which it holds; only what the goal needs is derived."""
        model, names = self.goal(goal, semantics, engine)
        answer = model[GOAL]
        return Answer(names, answer.rows, answer.weights)

    def goal(self, goal: str | Formula, semantics: str | Semiring = "boolean",
             engine: str = "auto") -> tuple[Model, tuple[str, ...]]:
        """The model that answers a query, with its counters and plan; and the names of the answer's columns."""
        ring = semiring(semantics)
        formula = parse_formula(goal) if isinstance(goal, str) else goal
        asked = [one for one in dict.fromkeys(free(formula)) if not is_unnamed(one)]
        rule = Rule(Atom(GOAL, tuple(asked)), formula)
        program = self._statements([rule])
        made = compiled(program)
        check_complete(program, made.known)
        rules = goal_directed(made.rules, GOAL) if ring.idempotent else _needed(made, GOAL)
        sizes = {name: len(kinds) for name, kinds in made.columns.items()}
        made = typed(rules, program, made.domains, sizes, made.known)
        return self._model(made, ring, engine), tuple(map(str, asked))


    def proofs(self, goal: str, answer: Answer) -> list[Proof]:
        """A proof of each row of an answer: for a query of one atom, of that; else of the query as a rule."""
        formula = parse_formula(goal)
        model = self.run()
        if isinstance(formula, Atom):
            rows = [dict(zip(answer.names, row)) for row in answer]
            return [proof(model, formula.predicate, *(_value_of(term, row) for term in formula.terms)) for row in rows]
        asked = [one for one in dict.fromkeys(free(formula)) if not is_unnamed(one)]
        whole = Program()
        whole.parsed, whole.loaded = self.parsed, self.loaded
        whole._extend(Parsed([Rule(Atom("answer_", tuple(asked)), formula)]))
        model = whole.run()
        return [proof(model, "answer_", *row) for row in answer]

    def explain(self, goal: str | None = None, semantics: str | Semiring = "boolean", engine: str = "auto") -> str:
        """Explain a run: every rule, its plan, and the kernels of its native code."""
        model = self.run(semantics, engine) if goal is None else self.goal(goal, semantics, engine)[0]
        return explained(model)


def _value_of(term: Term, row: dict[str, Value]) -> Value:
    if isinstance(term, Constant):
        return term.value
    if str(term) not in row:
        raise fail(ArgumentError, "logic", "a proof needs a name for every variable of the query",
                   "write X instead of _")
    return row[str(term)]


def _needed(made: Compiled, goal: str) -> list[Any]:
    reads = uses(made.rules)
    waiting, seen = [goal], {goal}
    while waiting:
        for name in reads.get(waiting.pop(), ()):
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return [rule for rule in made.rules if rule.head.predicate in seen]


def _joined(one: str | None, two: str | None, name: str) -> str | None:
    if one is None or two is None or one == two:
        return one or two
    hard = {kind for kind in (one, two) if not kind.endswith("?")}
    if len(hard) == 1:
        return hard.pop()
    if hard == {"int", "float"}:
        return "float"
    if hard:
        raise fail(ArgumentError, "logic", f"facts of {name} have {one} and {two} in the same column")
    return max(one, two, key=["int?", "float?", "symbol?"].index)


def _writable(rule: Rule) -> str:
    """A rule's text, which the parser reads like a user's, so that messages can point into it."""
    for term in rule.head.terms:
        _check_constant(term)
    return str(rule)


def _check_constant(term: Term) -> None:
    if isinstance(term, Constant) and isinstance(term.value, float) and term.value != term.value:
        raise fail(ArgumentError, "logic", f"{show_value(term.value)} is no constant")
