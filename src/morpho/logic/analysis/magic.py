"""Magic sets: rules rewritten for a goal, so that only what the goal asks for is derived (Bancilhon et al. 1986).

A predicate that is asked for with some of its terms known gets a copy for that pattern, `path/bf` for a known first
term, and a predicate of the values asked for, `_ask/path/bf`, that stands in front of each rule of the copy. Bodies
pass what they know from left to right. What is negated or aggregated is computed in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from morpho.logic.analysis.core import CoreRule, Literal, binds, predicates_of, variables_of
from morpho.logic.syntax.terms import Atom, Compare, Constant, Term, Variable

ASK = "_ask/"


def goal_directed(rules: Sequence[CoreRule], goal: str) -> list[CoreRule]:
    """The rules for `goal`'s rules: adorned copies with what is asked of them, and all that must be complete."""
    return _Magic(rules).run(goal)


class _Magic:
    def __init__(self, rules: Sequence[CoreRule]) -> None:
        self.of: dict[str, list[CoreRule]] = {}
        for rule in rules:
            self.of.setdefault(rule.head.predicate, []).append(rule)
        self.done: set[tuple[str, str]] = set()
        self.waiting: list[tuple[str, str]] = []
        self.full: set[str] = set()
        self.out: list[CoreRule] = []

    def run(self, goal: str) -> list[CoreRule]:
        for rule in self.of.get(goal, ()):
            self._rewrite(rule, rule.head, None)
        while self.waiting:
            name, pattern = self.waiting.pop()
            self._copy(name, pattern)
        return [*self.out, *self._complete(goal)]

    def _copy(self, name: str, pattern: str) -> None:
        for rule in self.of[name]:
            head = replace(rule.head, predicate=f"{name}/{pattern}")
            self._rewrite(rule, head, self._asked(name, pattern, rule.head.terms))
        terms = tuple(Variable(f"X{place}#f") for place in range(len(pattern)))  # facts of the predicate itself
        asked = self._asked(name, pattern, terms)
        self.out.append(CoreRule(Atom(f"{name}/{pattern}", terms), (asked, Atom(f"{name}", terms))))

    @staticmethod
    def _asked(name: str, pattern: str, terms: Sequence[Term]) -> Atom:
        known = tuple(term for term, letter in zip(terms, pattern) if letter == "b")
        return Atom(f"{ASK}{name}/{pattern}", known)

    def _rewrite(self, rule: CoreRule, head: Atom, asked: Atom | None) -> None:
        bound: set[Variable] = set() if asked is None else set(variables_of(asked))
        known = set(bound)  # by the prefix, in which nothing is negated or aggregated
        prefix: list[Literal] = [] if asked is None else [asked]
        body: list[Literal] = list(prefix)
        waiting = list(rule.body)
        while waiting:
            literal = self._next(waiting, bound)
            waiting.remove(literal)
            if isinstance(literal, Atom):
                literal = self._atom(literal, known, prefix)
            elif not isinstance(literal, Compare):
                self.full.add(literal.atom.predicate)
            body.append(literal)
            given = binds(literal, known) if isinstance(literal, Atom | Compare) else None
            if given is not None:
                prefix.append(literal)
                known |= given
            bound |= binds(literal, bound) or set()
        self.out.append(replace(rule, head=head, body=tuple(body)))

    @staticmethod
    def _next(waiting: Sequence[Literal], bound: set[Variable]) -> Literal:
        for literal in waiting:
            if not isinstance(literal, Atom) and binds(literal, bound) is not None:
                return literal
        atoms = [literal for literal in waiting if isinstance(literal, Atom)]

        def known(atom: Atom) -> bool:
            return any(isinstance(term, Constant) or term in bound for term in atom.terms)

        return next((atom for atom in atoms if known(atom)), atoms[0])

    def _atom(self, atom: Atom, bound: set[Variable], prefix: Sequence[Literal]) -> Atom:
        if atom.predicate not in self.of:
            return atom
        pattern = "".join("b" if isinstance(term, Constant) or term in bound else "f" for term in atom.terms)
        if "b" not in pattern:
            self.full.add(atom.predicate)
            return atom
        if (atom.predicate, pattern) not in self.done:
            self.done.add((atom.predicate, pattern))
            self.waiting.append((atom.predicate, pattern))
        asked = self._asked(atom.predicate, pattern, atom.terms)
        if tuple(prefix) != (asked,):
            self.out.append(CoreRule(asked, tuple(prefix)))
        return replace(atom, predicate=f"{atom.predicate}/{pattern}")

    def _complete(self, goal: str) -> list[CoreRule]:
        """The original rules of what must be computed in full."""
        waiting, seen = list(self.full), set(self.full)
        found: list[CoreRule] = []
        while waiting:
            for rule in self.of.get(waiting.pop(), ()):
                found.append(rule)
                for name, _ in predicates_of(rule.body):
                    if name not in seen:
                        seen.add(name)
                        waiting.append(name)
        return [rule for rule in found if rule.head.predicate != goal]
