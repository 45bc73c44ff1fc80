"""The meaning of a logic program, from the textbook's definitions and nothing else: no line of the compiler is used.

A program is plain tuples (below). Its model is the stratified one of Apt, Blair and Walker (1988): predicates get the
least stratum numbers that are no less than those of what they use and more than those of what they negate or aggregate;
then, stratum by stratum, the immediate consequences of all rules are added until there are none that are new. Formulas
have the truth that Tarski gave them; quantifiers range over a listed domain.

    rule       (head, guards, conditions)      head: (predicate, terms)
    guard      ("atom", predicate, terms) | ("let", variable, expression)
    condition  guard's atom | ("not", f) | ("and", fs) | ("or", fs) | ("implies", f, g) | ("iff", f, g) | ("if", f, g,
    h)
               | ("exists", variable, domain, f) | ("forall", variable, domain, f)
               | ("at least" | "at most" | "exactly", n, variable, domain, f)
               | ("compare", operator, expression, expression)
               | ("aggregate", operator, expression or None, own guards, comparison, expression)
    expression variable | value | ("+" | "-" | "*" | "/" | "mod", expression, expression)

Variables are strings with a capital letter, symbols those without, `_` is anything.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

Facts = dict[str, set[tuple[Any, ...]]]
COMPARE = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
           ">=": operator.ge}
COUNTS = {"at least": operator.ge, "at most": operator.le, "exactly": operator.eq}


def is_variable(term: Any) -> bool:
    return isinstance(term, str) and (term[0].isupper() or term == "_")


def value(expression: Any, env: dict[str, Any]) -> Any:
    """A number or a symbol; None where there is none (a divisor of 0)."""
    if isinstance(expression, tuple):
        sign, left, right = expression[0], value(expression[1], env), value(expression[2], env)
        if left is None or right is None or (sign in ("/", "mod") and right == 0):
            return None
        return {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv,
                "mod": operator.mod}[sign](left, right)
    return env[expression] if is_variable(expression) else expression


def matches(terms: tuple[Any, ...], row: tuple[Any, ...], env: dict[str, Any]) -> dict[str, Any] | None:
    """The environment in which an atom's terms are a row, if there is one that extends `env`."""
    found = dict(env)
    for term, cell in zip(terms, row):
        if term == "_":
            continue
        if is_variable(term):
            if found.setdefault(term, cell) != cell:
                return None
        elif term != cell:
            return None
    return found


def bindings(guards: list[Any], env: dict[str, Any], facts: Facts) -> Iterator[dict[str, Any]]:
    """All extensions of `env` under which every guard holds."""
    if not guards:
        yield env
        return
    first, rest = guards[0], guards[1:]
    if first[0] == "let":
        number = value(first[2], env)
        if number is not None and env.get(first[1], number) == number:
            yield from bindings(rest, {**env, first[1]: number}, facts)
        return
    for row in facts.get(first[1], ()):
        extended = matches(first[2], row, env)
        if extended is not None:
            yield from bindings(rest, extended, facts)


def holds(f: Any, env: dict[str, Any], facts: Facts, domains: dict[str, list[Any]]) -> bool:
    """Whether a formula is true under an environment of all its free variables."""
    kind = f[0]
    if kind == "atom":
        return any(matches(f[2], row, env) is not None for row in facts.get(f[1], ()))
    if kind == "not":
        return not holds(f[1], env, facts, domains)
    if kind in ("and", "or"):
        return (all if kind == "and" else any)(holds(part, env, facts, domains) for part in f[1])
    if kind == "implies":
        return not holds(f[1], env, facts, domains) or holds(f[2], env, facts, domains)
    if kind == "iff":
        return holds(f[1], env, facts, domains) == holds(f[2], env, facts, domains)
    if kind == "if":
        return holds(f[2] if holds(f[1], env, facts, domains) else f[3], env, facts, domains)
    if kind in ("exists", "forall"):
        truths = (holds(f[3], {**env, f[1]: one}, facts, domains) for one in domains[f[2]])
        return any(truths) if kind == "exists" else all(truths)
    if kind in COUNTS:
        return bool(COUNTS[kind](sum(holds(f[4], {**env, f[2]: one}, facts, domains) for one in domains[f[3]]), f[1]))
    if kind == "compare":
        left, right = value(f[2], env), value(f[3], env)
        return left is not None and right is not None and bool(COMPARE[f[1]](left, right))
    assert kind == "aggregate"
    return aggregate_holds(f, env, facts)


def aggregate_holds(f: Any, env: dict[str, Any], facts: Facts) -> bool:
    _, sign, expression, guards, comparison, other = f
    distinct = {tuple(sorted(found.items())) for found in bindings(guards, env, facts)}
    values = [value(expression, dict(found)) if expression is not None else 1 for found in distinct]
    if sign == "count":
        result: Any = len(distinct)
    elif sign == "sum":
        result = sum(values)
    elif not values:
        return False
    else:
        result = {"min": min, "max": max, "mean": lambda all_: Fraction(sum(all_), len(all_))}[sign](values)
    right = value(other, env)
    return right is not None and bool(COMPARE[comparison](result, right))


def used(f: Any, negative: bool = False) -> Iterator[tuple[str, bool]]:
    """Predicates of a formula, and whether they stand where they must be complete first."""
    if f[0] == "atom":
        yield f[1], negative
    elif f[0] == "aggregate":
        for guard in f[3]:
            yield from used(guard, True)
    elif f[0] not in ("compare", "let"):
        inside = negative or f[0] not in ("and", "or", "exists")
        for part in f[1:]:
            for one in part if isinstance(part, list) else [part]:
                if isinstance(one, tuple) and one and isinstance(one[0], str) and not is_variable(one[0]):
                    yield from used(one, inside)


def strata(rules: list[Any]) -> dict[str, int]:
    """The least stratum numbers."""
    number: dict[str, int] = {rule[0][0]: 0 for rule in rules}
    changed = True
    while changed:
        changed = False
        for (head, _), guards, conditions in rules:
            for part in (*guards, *conditions):
                for name, negative in used(part):
                    least = number.get(name, 0) + negative if name in number else 0
                    if number[head] < least:
                        number[head] = least
                        changed = True
                        assert least <= len(number), "not stratified"
    return number


def model(rules: list[Any], facts: Facts, domains: dict[str, list[Any]]) -> Facts:
    """The stratified model."""
    found = {name: set(rows) for name, rows in facts.items()}
    found |= {name: {(one,) for one in values} for name, values in domains.items()}
    numbers = strata(rules)
    for stratum in sorted(set(numbers.values())):
        own = [rule for rule in rules if numbers[rule[0][0]] == stratum]
        while True:
            new = [(head, tuple(value(term, env) for term in terms)) for (head, terms), guards, conditions in own
                   for env in bindings(guards, {}, found)
                   if all(holds(one, env, found, domains) for one in conditions)]
            fresh = [(head, row) for head, row in new if row not in found.setdefault(head, set())]
            if not fresh:
                break
            for head, row in fresh:
                found[head].add(row)
    return found
