"""4. From text to a program that can run: parsing, checks, lowering, types, strata, plans; below 100 ms.

    morpho bench logic --only compile
"""

from __future__ import annotations

import morpho as mo
from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.logic.graphs import CLOSURE, graph, seconds

FAMILY = """
    domain person = {ada, ben, cleo, dan}.
    predicate parent(person, person).
    ancestor(X, Y) :- parent(X, Y). ancestor(X, Z) :- ancestor(X, Y), parent(Y, Z).
    cousin(X, Y) :- parent(A, X), parent(B, Y), A != B, exists G: (parent(G, A), parent(G, B)).
    childless(X) :- person(X), not parent(X, _).
    children(X, N) :- person(X), N = count : { parent(X, _) }.
    old(X) :- person(X), forall Y: (ancestor(Y, X) -> childless(Y)).
"""


def run(session: Session) -> ThemeResult:
    """The best of several, as a second program of the same process pays."""
    result = ThemeResult("compile_times")
    table = Table("compile times", ["what", "time"])
    result.tables.append(table)
    rounds = 2 if session.quick else 10
    front, _ = seconds(lambda: mo.logic.Program(FAMILY), rounds)
    table.rows.append(["a family's rules: text to core rules", duration(front)])
    program = mo.logic.Program(CLOSURE)
    program.add("edge", graph(64, 200))
    for engine in ("tuples", "dense", "sparse"):
        taken, _ = seconds(lambda engine=engine: program.run(engine=engine), rounds)
        table.rows.append([f"closure of 64 nodes on {engine}, compiled and run", duration(taken)])
        result.figures[engine] = taken
    result.figures["front"] = front
    result.targets.append(Target("text to core rules", 1000 * front, 100.0, False, " ms"))
    worst = max(result.figures[engine] for engine in ("tuples", "dense", "sparse"))
    result.targets.append(Target("a recursive stratum, compiled and run", 1000 * worst, 100.0, False, " ms"))
    return result
