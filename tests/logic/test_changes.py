"""Models that change: facts added and removed give the model of a fresh run, with less work; proofs and supports."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import random_programs

import morpho as mo

PATHS = "path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z)."


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(25))
def test_changes_give_the_model_of_a_fresh_run(seed: int) -> None:
    """Random programs, with negation and aggregates, after each of several changes."""
    maker = random_programs.Maker(seed)
    model = mo.logic.Program(maker.text).run()
    rng = random.Random(seed)
    for _ in range(4):
        name = rng.choice(list(random_programs.GIVEN))
        row = tuple(maker.constant(kind) for kind in random_programs.GIVEN[name])
        if rng.random() < 0.5 and maker.facts[name]:
            row = rng.choice(sorted(maker.facts[name]))
            maker.facts[name].discard(row)
            model.remove(name, [row])
        else:
            maker.facts[name].add(row)
            model.add(name, [row])
        fresh = mo.logic.Program(maker.text).run()
        for one in maker.group:
            assert model[one].rows == fresh[one].rows, (seed, one, maker.text)


@pytest.mark.parametrize("semantics", ["(min, +)", "(max, x)", "(+, x)"])
def test_changes_of_values(semantics: str, rng: np.random.Generator) -> None:
    """Semirings too: a fact with a better value, a fact that goes."""
    rows = [(int(a), int(b)) for a, b in np.unique(rng.integers(0, 8, (14, 2)), axis=0) if a < b]
    weights = rng.uniform(0.1, 0.9, len(rows))
    program = mo.logic.Program(PATHS)
    program.add("edge", rows, weights)
    model = program.run(semantics)
    model.add("edge", [(0, 7)], weights=[0.05])
    program.add("edge", [(0, 7)], weights=[0.05])
    assert model["path"].rows == program.run(semantics)["path"].rows
    assert np.allclose(model["path"].weights, program.run(semantics)["path"].weights)
    model.remove("edge", [(0, 7), rows[0]])
    fresh = mo.logic.Program(PATHS)
    kept = [(row, weight) for row, weight in zip(rows, weights) if row not in ((0, 7), rows[0])]
    fresh.add("edge", [row for row, _ in kept], [weight for _, weight in kept])
    assert model["path"].rows == fresh.run(semantics)["path"].rows
    assert np.allclose(model["path"].weights, fresh.run(semantics)["path"].weights)


def test_a_change_does_less_work_than_a_run() -> None:
    """One edge at the end of a long chain: few tuples, where the whole run gives thousands."""
    program = mo.logic.Program(PATHS)
    program.add("edge", [(n, n + 1) for n in range(120)])
    model = program.run(engine="tuples")
    before = model.counters["tuples"]
    model.add("edge", [(500, 0)])
    assert model.counters["tuples"] - before < before / 10
    assert len(model["path"]) == 121 * 120 / 2 + 121
    after = model.counters["tuples"]
    model.remove("edge", [(119, 120)])
    assert model.counters["tuples"] - after < before / 10
    assert len(model["path"]) == 120 * 119 / 2 + 120


def test_a_goal_does_less_work_than_a_run() -> None:
    """Magic sets: from one of a hundred chains, only that chain is walked."""
    program = mo.logic.Program(PATHS)
    program.add("edge", [(chain * 1000 + n, chain * 1000 + n + 1) for chain in range(100) for n in range(10)])
    whole = program.run(engine="tuples").counters["tuples"]
    model, _ = program.goal("path(5000, X)", engine="tuples")
    assert model.counters["tuples"] < whole / 50
    assert [x for x, in program.query("path(5000, X)")] == list(range(5001, 5011))
    assert [x for x, in program.query("path(X, 5003)")] == [5000, 5001, 5002]
    assert program.query("path(5000, 5010)") and not program.query("path(5010, 5000)")
    assert program.query("path(5000, X), path(X, 5003), X != 5001").rows == [(5002,)]


def test_facts_that_do_not_fit_are_told() -> None:
    """Number of terms, type, domain, name."""
    model = mo.logic.Program("domain d = {a, b}. predicate p(d, int). q(X) :- p(X, _). p(a, 1).").run()
    for rows, message in (([("a",)], "2 terms"), ([(1, 1)], "column 1 of p is d"), ([("c", 1)], "c is not in domain d"),
                          ([("a", 1.5)], "column 2 of p is int")):
        with pytest.raises(ValueError, match=message):
            model.add("p", rows)
    with pytest.raises(ValueError, match="no such predicate"):
        model.add("r", [("a",)])
    assert list(model["q"]) == [("a",)]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(12))
def test_supports_are_enough_and_minimal(seed: int) -> None:
    """With the facts of a support alone the tuple holds; without any one of them it does not."""
    rng = random.Random(seed)
    facts = sorted({(rng.randrange(5), rng.randrange(5)) for _ in range(8)})
    text = PATHS + " both(X, Y) :- path(X, Y), path(Y, X)."
    program = mo.logic.Program(text)
    program.add("edge", facts)
    model = program.run()
    for name in ("path", "both"):
        for row in list(model[name])[:4]:
            found = mo.logic.supports(model, name, *row)
            assert found and len(set(found)) == len(found)
            for support in found:
                edges = [tuple(map(int, one[5:-1].split(", "))) for one in support]
                assert row in _run(text, edges)[name]
                for gone in edges:
                    assert row not in _run(text, [one for one in edges if one != gone])[name]
            proof = mo.logic.proof(model, name, *row)
            assert any(support <= proof.facts for support in found)


def _run(text: str, edges: list[tuple[int, ...]]) -> mo.logic.Model:
    program = mo.logic.Program(text)
    program.predicate("edge", "int", "int")
    program.add("edge", edges)
    return program.run()


def test_a_proof_names_rules_and_what_does_not_hold() -> None:
    """Rules as they are written, negations and aggregates as leaves; what does not hold has no proof."""
    program = mo.logic.Program("edge(a, b). edge(b, c).\n" + PATHS +
                               "\nend(X) :- edge(_, X), not edge(X, _)."
                               "\nbusy(X) :- edge(X, _), 1 <= count : { edge(X, _) }.")
    model = program.run()
    assert str(mo.logic.proof(model, "end", "c")).split("\n") == [
        "end(c)    by end(X) :- edge(_, X), not edge(X, _).", "  edge(b, c)    given", "  not edge(c, _)    holds"]
    assert "count" in str(mo.logic.proof(model, "busy", "a"))
    assert mo.logic.proof(model, "edge", "a", "b").facts == {"edge(a, b)"}
    with pytest.raises(ValueError, match="does not hold"):
        mo.logic.proof(model, "path", "c", "a")
    with pytest.raises(ValueError, match="no predicate walk"):
        mo.logic.proof(model, "walk", "c")
