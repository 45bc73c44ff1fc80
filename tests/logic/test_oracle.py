"""Programs drawn at random mean what the textbook says: a thousand here, 100,000 by
`python tests/logic/random_programs.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import datalog_oracle as oracle
import random_programs

import morpho as mo

PARTS, EACH = 8, 125


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs_have_the_oracles_model(part: int) -> None:
    """All derived predicates, tuple by tuple."""
    for seed in range(part * EACH, (part + 1) * EACH):
        told = random_programs.difference(seed)
        assert not told, told


@pytest.mark.parametrize(("seed", "engine"), [(seed, "dense") for seed in (0, 502, 503, 557)] +
                         [(seed, "sparse") for seed in range(20)])
def test_other_engines_have_the_oracles_model(seed: int, engine: str) -> None:
    """Predicates without terms, subqueries and all else beside what these engines take themselves."""
    told = random_programs.difference(seed, engine)
    assert not told, told


def test_the_random_programs_are_not_trivial() -> None:
    """They derive something, and use every connective, quantifier and aggregate."""
    texts, derived = "", 0
    for seed in range(200):
        maker = random_programs.Maker(seed)
        texts += maker.text
        derived += sum(bool(rows) for name, rows in oracle.model(maker.rules, maker.facts,
                                                                 random_programs.DOMAINS).items()
                       if name in maker.group)
    assert derived > 150
    for word in ("not (", " and ", " or ", "->", "<->", "if ", "exists", "forall", "at least", "at most", "exactly",
                 "count :", "sum ", "min ", "max ", "mean ", " mod ", " / ", "!=", "<="):
        assert word in texts, word


def test_the_oracle_finds_a_difference() -> None:
    """It is no yes-man: a model with a tuple more or less is told."""
    rules = [(("p", ("X",)), [("atom", "q", ("X",))], [("not", ("atom", "r", ("X",)))])]
    found = oracle.model(rules, {"q": {("a",), ("b",)}, "r": {("b",)}}, {})
    assert found["p"] == {("a",)}


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(40))
def test_queries_are_what_the_whole_model_has(seed: int) -> None:
    """Magic sets: a goal with a known term gives those tuples of the full model that fit."""
    maker = random_programs.Maker(seed)
    program = mo.logic.Program(maker.text)
    model = program.run()
    for name in maker.group:
        kinds = maker.kinds[name]
        if not kinds:
            assert bool(program.query(name)) == bool(len(model[name]))
            continue
        known = "a" if kinds[0] == "s" else 1
        goal = f"{name}({', '.join([str(known)] + [f'X{n}' for n in range(1, len(kinds))])})"
        assert set(program.query(goal)) == {row[1:] for row in model[name] if row[0] == known}, goal
