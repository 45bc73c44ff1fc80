"""A family tree: recursion, negation, counting, aggregates and quantifiers, with a proof of one answer.

    python examples/32_family_tree.py
"""

import morpho as mo

program = mo.logic.Program("""
    domain person = {ada, ben, cleo, dan, eva, finn, gus, hope}.
    predicate parent(person, person).   predicate born(person, int).

    parent(ada, cleo).  parent(ben, cleo).  parent(ada, dan).   parent(ben, dan).
    parent(cleo, eva).  parent(cleo, finn). parent(dan, gus).   parent(gus, hope).
    born(ada, 1921). born(ben, 1919). born(cleo, 1948). born(dan, 1952).
    born(eva, 1975). born(finn, 1979). born(gus, 1980). born(hope, 2010).

    ancestor(X, Y) :- parent(X, Y).
    ancestor(X, Z) :- ancestor(X, Y), parent(Y, Z).
    sibling(X, Y)  :- parent(P, X), parent(P, Y), X != Y.
    cousin(X, Y)   :- parent(A, X), parent(B, Y), sibling(A, B).
    only_child(X)  :- parent(_, X), not sibling(X, _).
    generation(X, 0)     :- person(X), not parent(_, X).
    generation(Y, N + 1) :- generation(X, N), parent(X, Y).
    children(X, N) :- person(X), N = count : { parent(X, _) }.
    youngest(X)    :- born(X, Y), Y = max Z : { born(_, Z) }.
    prolific(X)    :- person(X), at least 2 Y: parent(X, Y).
    old_line(X)    :- person(X), forall Y: (ancestor(Y, X) -> exists N: (born(Y, N), N < 1955)).
""")
model = program.run()
for name in ("cousin", "only_child", "generation", "children", "youngest", "prolific", "old_line"):
    print(f"{name:11}", *(", ".join(map(str, row)) for row in model[name]), sep="  ")

print("\nwhy is ada an ancestor of hope?")
print(mo.logic.proof(model, "ancestor", "ada", "hope"))

assert ("eva", "gus") in model["cousin"] and list(model["youngest"]) == [("hope",)]
model.add("parent", [("hope", "eva")])  # a change of the facts: what follows is brought up to date
assert ("ada", "eva") in model["ancestor"] and ("hope", "eva") in model["ancestor"]
