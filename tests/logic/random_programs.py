"""Random logic programs, against the oracle.

    python tests/logic/random_programs.py --count 100000 --seed 1

compares as many programs with `oracle.model` and prints the first that differ.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import datalog_oracle as oracle

import morpho as mo

SYMBOLS = ["a", "b", "c", "d"]
NUMBERS = [0, 1, 2, 3]
DOMAINS: dict[str, list[Any]] = {"thing": SYMBOLS, "digit": NUMBERS}
GIVEN = {"e": "ss", "f": "s", "g": "si", "h": "i"}  # columns: symbols, integers


class Maker:
    """One program: `rules` and `facts` as the oracle takes them, `text` as Morpho does."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kinds = dict(GIVEN)
        self.facts = {name: {tuple(self.constant(kind) for kind in kinds) for _ in range(self.random.randint(0, 6))}
                      for name, kinds in GIVEN.items()}
        groups = self.random.randint(1, 3)
        self.group: dict[str, int] = {}
        for number in range(self.random.randint(1, 5)):
            name = f"p{number}"
            self.kinds[name] = "".join(self.random.choice("ssi") for _ in range(self.random.randint(0, 3)))
            self.group[name] = self.random.randrange(groups)
        self.rules = [self.rule(name) for name in self.group for _ in range(self.random.randint(1, 3))]

    def constant(self, kind: str) -> Any:
        return self.random.choice(SYMBOLS if kind == "s" else NUMBERS)

    def below(self, level: int) -> list[str]:
        """Predicates that are complete before a group is computed."""
        return [name for name in self.kinds if self.group.get(name, -1) < level]

    def rule(self, head: str) -> Any:
        level = self.group[head]
        names = [*self.below(level), *(name for name in self.group if self.group[name] == level)]
        known: dict[str, str] = {}
        guards: list[Any] = [self.atom(self.random.choice(names), known, new=True)
                             for _ in range(self.random.randint(1, 3))]
        numbers = [name for name, kind in known.items() if kind == "i"]
        if numbers and self.random.random() < 0.25:
            guards.append(("let", "L", (self.random.choice(["+", "-", "*", "/", "mod"]), self.random.choice(numbers),
                                        self.random.choice([*numbers, 1, 2]))))
            known["L"] = "i"
        for kind in self.kinds[head]:
            if kind not in known.values():
                variable = "S" if kind == "s" else "I"
                guards.append(("atom", "thing" if kind == "s" else "digit", (variable,)))
                known[variable] = kind
        conditions = [self.formula(known, level, 2) for _ in range(self.random.choice([0, 0, 1, 1, 2]))]
        if "L" in known:  # numbers must not grow without end
            conditions += [("compare", "<", "L", 9), ("compare", ">", "L", -9)]
        terms = tuple(self.random.choice([name for name, one in known.items() if one == kind]) if
                      self.random.random() < 0.9 else self.constant(kind) for kind in self.kinds[head])
        return (head, terms), guards, conditions

    def atom(self, name: str, known: dict[str, str], new: bool) -> Any:
        """Its variables are known ones, or, where it guards, new ones too."""
        terms: list[Any] = []
        for kind in self.kinds[name]:
            mine = [variable for variable, other in known.items() if other == kind]
            choice = self.random.random()
            if new and (choice < 0.6 or not mine) and choice < 0.85:
                variable = self.random.choice("XYZ" if kind == "s" else "MN")
                known[variable] = kind
                terms.append(variable)
            elif choice < 0.1:
                terms.append("_")
            elif mine and choice < 0.9:
                terms.append(self.random.choice(mine))
            else:
                terms.append(self.constant(kind))
        return ("atom", name, tuple(terms))

    def formula(self, known: dict[str, str], level: int, depth: int) -> Any:
        """A formula of known variables; what it names is complete before."""
        kind = self.random.choice(["atom", "not", "compare", "aggregate"] if depth == 0 else
                                  ["atom", "not", "and", "or", "implies", "iff", "if", "exists", "forall", "count",
                                   "compare", "aggregate"])
        inside = lambda more=known: self.formula(more, level, depth - 1)
        if kind == "atom":
            return self.atom(self.random.choice(self.below(level)), known, new=False)
        if kind == "not":
            return ("not", self.atom(self.random.choice(self.below(level)), known, new=False) if depth == 0
                    else inside())
        if kind in ("and", "or"):
            return (kind, [inside() for _ in range(self.random.randint(1, 3))])
        if kind in ("implies", "iff"):
            return (kind, inside(), inside())
        if kind == "if":
            return ("if", inside(), inside(), inside())
        if kind == "compare":
            return self.compare(known)
        if kind == "aggregate":
            return self.aggregate(known, level)
        variable, domain, one = self.random.choice([("Q", "thing", "s"), ("R", "digit", "i"), ("T", "thing", "s")])
        if variable in known:
            return self.compare(known)
        within = inside({**known, variable: one})
        member = ("atom", domain, (variable,))
        if self.random.random() < 0.1:
            body: Any = ("or", [("compare", "=", variable, variable), within])
        else:
            body = ("implies", member, within) if kind == "forall" else ("and", [member, within])
        if kind == "count":
            return (self.random.choice(["at least", "at most", "exactly"]), self.random.randint(0, 3), variable, domain,
                    body)
        return (kind, variable, domain, body)

    def compare(self, known: dict[str, str]) -> Any:
        kinds = [kind for kind in "si" if kind in known.values()]
        kind = self.random.choice(kinds or ["i"])
        mine = [name for name, one in known.items() if one == kind] or [self.constant(kind)]
        right: Any = self.random.choice([*mine, self.constant(kind)])
        if kind == "i" and self.random.random() < 0.3:
            right = (self.random.choice(["+", "-", "*", "/", "mod"]), right, self.random.choice([*mine, 1, 0]))
        return ("compare", self.random.choice(list(oracle.COMPARE)), self.random.choice(mine), right)

    def aggregate(self, known: dict[str, str], level: int) -> Any:
        own = dict(known)
        name = self.random.choice(self.below(level))
        guard = self.atom(name, own, new=True)
        fresh: list[Any] = []  # new names, so that which variables are shared is plain
        rename = {term: f"{term}0" for term in guard[2] if term in ("X", "Y", "Z", "M", "N") and term not in known}
        fresh = [rename.get(term, term) for term in guard[2]]
        fresh = [f"W{place}" if term == "_" else term for place, term in enumerate(fresh)]
        guards = [("atom", name, tuple(fresh))]
        numbers = [term for term, kind in zip(fresh, self.kinds[name]) if kind == "i" and term in rename.values()]
        sign = self.random.choice(["sum", "min", "max", "mean"] if numbers else ["count"])
        expression = None if sign == "count" else self.random.choice(numbers)
        if expression is not None and self.random.random() < 0.2:
            expression = ("+", expression, 1)
        return ("aggregate", sign, expression, guards, self.random.choice(list(oracle.COMPARE)),
                self.random.randint(0, 5))

    @property
    def text(self) -> str:
        """The program as Morpho reads it, with the literals of its bodies in another order."""
        lines = [f"domain thing = {{{', '.join(SYMBOLS)}}}.", "domain digit = 0..3."]
        for name, kinds in self.kinds.items():
            types = ", ".join("symbol" if kind == "s" else "int" for kind in kinds)
            lines.append(f"predicate {name}{f'({types})' if kinds else ''}.")
        lines += [f"{name}({', '.join(map(str, row))})." for name, rows in self.facts.items() for row in sorted(rows)]
        for (head, terms), guards, conditions in self.rules:
            body = [show(part) for part in (*guards, *conditions)]
            random.Random(len(lines)).shuffle(body)
            lines.append(f"{head}{'(' + ', '.join(map(str, terms)) + ')' if terms else ''} :- {', '.join(body)}.")
        return "\n".join(lines)


def term(one: Any) -> str:
    return f"({term(one[1])} {one[0]} {term(one[2])})" if isinstance(one, tuple) else str(one)


def show(f: Any) -> str:
    """A formula in Morpho's language."""
    kind = f[0]
    if kind == "atom":
        return f"{f[1]}({', '.join(map(str, f[2]))})" if f[2] else f[1]
    if kind == "let":
        return f"{f[1]} = {term(f[2])}"
    if kind == "not":
        return f"not ({show(f[1])})"
    if kind in ("and", "or"):
        return "(" + f" {kind} ".join(f"({show(part)})" for part in f[1]) + ")"
    if kind in ("implies", "iff"):
        return f"(({show(f[1])}) {'->' if kind == 'implies' else '<->'} ({show(f[2])}))"
    if kind == "if":
        return f"(if {show(f[1])} then {show(f[2])} else ({show(f[3])}))"
    if kind in ("exists", "forall"):
        return f"({kind} {f[1]} in {f[2]}: ({show(f[3])}))"
    if kind in oracle.COUNTS:
        return f"({kind} {f[1]} {f[2]} in {f[3]}: ({show(f[4])}))"
    if kind == "compare":
        return f"{term(f[2])} {f[1]} {term(f[3])}"
    value = "" if f[2] is None else f" {term(f[2])}"
    return f"{f[1]}{value} : {{ {', '.join(map(show, f[3]))} }} {f[4]} {term(f[5])}"


def difference(seed: int, engine: str = "auto") -> str:
    """What Morpho and the oracle do not agree on; empty where they do."""
    maker = Maker(seed)
    expected = oracle.model(maker.rules, maker.facts, DOMAINS)
    found = mo.logic.Program(maker.text).run(engine=engine)
    wrong = [f"{name}: {sorted(set(found[name]))} instead of {sorted(expected.get(name, set()))}"
             for name in maker.group if set(found[name]) != expected.get(name, set())]
    return f"seed {seed}\n{maker.text}\n" + "\n".join(wrong) if wrong else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", default="auto", help="auto, tuples, dense or sparse")
    options = parser.parse_args()
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        told = difference(seed, options.engine)
        if told:
            wrong += 1
            print(told)
        done = seed + 1 - options.seed
        if done % 500 == 0:
            print(f"{done} programs so far, {wrong} differ", flush=True)
    print(f"{options.count} programs, {wrong} differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
