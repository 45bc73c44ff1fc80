"""Points-to analysis (Andersen 1994): which variables may point to which objects, from the assignments of a program.

    python examples/34_points_to.py
"""

import numpy as np

import morpho as mo

RULES = """
    points(V, O) :- new(V, O).                                     % v = new O
    points(V, O) :- assign(V, W), points(W, O).                    % v = w
    points(V, O) :- load(V, W, F), points(W, P), heap(P, F, O).    % v = w.f
    heap(P, F, O) :- store(V, F, W), points(V, P), points(W, O).   % v.f = w
    alias(V, W)  :- points(V, O), points(W, O), V < W.
"""
program = mo.logic.Program(RULES)
program.add("new", [("a", "o1"), ("b", "o2"), ("p", "o3")])
program.add("assign", [("q", "p"), ("c", "a")])
program.add("store", [("p", "f", "a"), ("q", "f", "b")])
program.add("load", [("x", "q", "f")])
model = program.run()
for variable in "abcpqx":
    print(variable, "->", *(str(row[1]) for row in model["points"] if row[0] == variable))
print("aliases:", *(f"{one}~{two}" for one, two in model["alias"]))
assert [row[1] for row in model["points"] if row[0] == "x"] == ["o1", "o2"]
print(mo.logic.proof(model, "points", "x", "o2"))

# A larger program, drawn at random, of which only one variable is asked for.
rng = np.random.default_rng(0)
large = mo.logic.Program(RULES)
large.add("new", np.stack([rng.permutation(400)[:120], np.arange(120)], axis=1))
large.add("assign", rng.integers(0, 400, (450, 2)))
large.add("store", np.c_[rng.integers(0, 400, 60), rng.integers(0, 4, 60), rng.integers(0, 400, 60)])
large.add("load", np.c_[rng.integers(0, 400, 60), rng.integers(0, 400, 60), rng.integers(0, 4, 60)])
asked = large.query("points(7, O)")
whole = large.run()
assert set(asked) == {row[1:] for row in whole["points"] if row[0] == 7}
print(f"{len(whole['points'])} pairs in all, {len(asked)} objects for the variable asked for")
