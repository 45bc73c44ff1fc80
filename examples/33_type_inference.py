"""Types of a small functional language by rules: every expression gets the types that its parts allow, and an
expression without one is an error that a rule finds.

    python examples/33_type_inference.py
"""

import morpho as mo

RULES = """
    type(E, int)  :- number(E, _).
    type(E, bool) :- truth(E).
    type(E, int)  :- plus(E, A, B), type(A, int), type(B, int).
    type(E, bool) :- less(E, A, B), type(A, int), type(B, int).
    type(E, T)    :- choice(E, C, A, B), type(C, bool), type(A, T), type(B, T).
    type(E, T)    :- use(E, X), bound(X, V), type(V, T).            % a variable has the type of what it is bound to
    type(E, T)    :- block(E, _, Body), type(Body, T).              % let x = value in body
    bound(X, V)   :- block(_, X, Body), value(X, V), inside(Body, _).
    inside(E, E)  :- expression(E).
    inside(E, Z)  :- inside(E, Y), part(Y, Z).
    part(E, X)    :- plus(E, A, B), (X = A or X = B).
    part(E, X)    :- less(E, A, B), (X = A or X = B).
    part(E, X)    :- choice(E, C, A, B), (X = C or X = A or X = B).
    part(E, X)    :- block(E, _, X).
    wrong(E)      :- expression(E), not type(E, _).
    cause(E)      :- wrong(E), forall X: (part(E, X) -> exists T: type(X, T)).   % the innermost: its parts have types
"""


def facts(tree: tuple, program: mo.logic.Program, names: list[str]) -> str:
    """Number the expressions of a nested tuple, and add a fact for each."""
    name = f"e{len(names)}"
    names.append(name)
    program.add("expression", [(name,)])
    kind, *parts = tree
    if kind == "block":
        variable, value, body = parts
        inner = facts(value, program, names)
        program.add("value", [(variable, inner)])
        program.add("block", [(name, variable, facts(body, program, names))])
    elif kind in ("number", "truth", "use"):
        program.add(kind, [(name, *parts)] if kind != "truth" else [(name,)])
    else:
        program.add(kind, [(name, *(facts(part, program, names) for part in parts))])
    return name


def infer(tree: tuple) -> tuple[str, list[str]]:
    """The type of an expression, and the innermost expressions that have none."""
    program = mo.logic.Program(RULES)
    for kind, size in (("number", 2), ("truth", 1), ("plus", 3), ("less", 3), ("choice", 4), ("use", 2), ("block", 3),
                       ("value", 2), ("expression", 1)):
        program.predicate(kind, size)
    root = facts(tree, program, [])
    found = program.query(f"type({root}, T)")
    return ", ".join(str(row[0]) for row in found), [str(row[0]) for row in program.query("cause(E)")]


good = ("block", "x", ("plus", ("number", 1), ("number", 2)),
        ("choice", ("less", ("use", "x"), ("number", 5)), ("use", "x"), ("number", 0)))
bad = ("choice", ("number", 1), ("number", 2), ("plus", ("truth",), ("number", 3)))
print("let x = 1 + 2 in if x < 5 then x else 0   :", *infer(good))
print("if 1 then 2 else true + 3                 :", *infer(bad))
assert infer(good) == ("int", [])
assert infer(bad) == ("", ["e3"])  # true + 3
