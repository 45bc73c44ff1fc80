"""The order in which the literals of a rule are evaluated: what filters as soon as it can, then the smallest join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from morpho.logic.analysis.core import CoreRule, Grouped, Literal, Negated, binds, is_unnamed, variables_of
from morpho.logic.syntax.terms import Atom, Compare, Constant, Variable
from morpho.logic.syntax.walk import variables_in


@dataclass(frozen=True)
class Step:
    """One literal: `kind` is scan, join, semijoin, antijoin, test, bind or group; `source` is which version of a
    relation an atom reads: all of it, what the last round added (delta), or what was there before that (old)."""

    kind: str
    literal: Literal
    source: str
    key: tuple[Variable, ...]
    kept: tuple[Variable, ...]
    estimate: float = 0.0

    def __str__(self) -> str:
        atom = self.literal.atom if isinstance(self.literal, Negated | Grouped) else self.literal
        on = f" on {', '.join(map(str, self.key))}" if self.key else ""
        version = {"total": "", "delta": "Δ", "old": "old "}[self.source]
        rows = f"  (~{self.estimate:.3g} rows)" if self.kind in ("scan", "join") else ""
        what = str(self.literal) if self.kind in ("test", "bind", "group") else f"{version}{atom}"
        return f"{self.kind} {what}{on}{rows}"


@dataclass(frozen=True)
class RulePlan:
    """Steps, for one choice of the atom that reads the delta (None: all read everything)."""

    rule: CoreRule
    delta: int | None
    steps: tuple[Step, ...]


def plan_rule(rule: CoreRule, sizes: Mapping[str, int], sources: Mapping[int, str],
              delta: int | None = None) -> RulePlan:
    """A greedy order. `sources` says for positions of atoms which version they read, where that is not all of it."""
    waiting = list(enumerate(rule.body))
    bound: set[Variable] = set()
    chosen: list[tuple[str, Literal, str, tuple[Variable, ...], float]] = []
    rows = 1.0
    while waiting:
        position, literal, kind = _next(waiting, bound, sizes, delta, rows)
        waiting = [each for each in waiting if each[0] != position]
        key = tuple(one for one in dict.fromkeys(variables_of(literal)) if one in bound) \
            if not isinstance(literal, Compare) else ()
        if kind in ("scan", "join"):
            assert isinstance(literal, Atom)
            rows *= _fanout(literal, bound, sizes)
        chosen.append((kind, literal, sources.get(position, "total"), key, rows))
        bound |= binds(literal, bound) or set()
    return RulePlan(rule, delta, _with_kept(chosen, rule))


def _next(waiting: list[tuple[int, Literal]], bound: set[Variable], sizes: Mapping[str, int], delta: int | None,
          rows: float) -> tuple[int, Literal, str]:
    for position, literal in waiting:
        found = binds(literal, bound) if not isinstance(literal, Atom) else None
        if found is not None:
            kind = "antijoin" if isinstance(literal, Negated) else "group" if isinstance(literal, Grouped) else \
                "bind" if found else "test"
            return position, literal, kind
    atoms = [(position, literal) for position, literal in waiting if isinstance(literal, Atom)]
    assert atoms, f"nothing can be evaluated of {waiting}"
    if delta is not None and any(position == delta for position, _ in atoms):
        position, literal = next(each for each in atoms if each[0] == delta)
    else:
        position, literal = min(atoms, key=lambda each: (_fanout(each[1], bound, sizes), each[0]))
    return position, literal, "join" if bound & set(variables_of(literal)) else "scan"


def _fanout(atom: Atom, bound: set[Variable], sizes: Mapping[str, int]) -> float:
    """Tuples that go with one row: the relation's size, the less the more of its columns are known."""
    size = max(sizes.get(atom.predicate, 1000), 0.5)
    known = sum(isinstance(term, Constant) or term in bound for term in atom.terms)
    return float(size ** (1.0 - known / len(atom.terms))) if atom.terms else 1.0


def _with_kept(chosen: list[tuple[str, Literal, str, tuple[Variable, ...], float]], rule: CoreRule) -> tuple[Step, ...]:
    """Of each step, the variables that what follows still asks for: the others are dropped."""
    needed = {variable for term in rule.head.terms for variable in variables_in(term)}
    steps: list[Step] = []
    for kind, literal, source, key, rows in reversed(chosen):
        kept = frozenset(needed)
        own = {one for one in variables_of(literal) if not is_unnamed(one)}
        if kind == "join" and not (own - set(key)) & kept:
            kind = "semijoin"
        steps.append(Step(kind, literal, source, key, tuple(sorted(kept, key=lambda one: one.name)), rows))
        needed |= own
    return tuple(reversed(steps))
