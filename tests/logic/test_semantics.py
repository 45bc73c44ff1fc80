"""Logics and semirings: connectives on {0, 1} and in [0, 1], both engines agree, shortest and widest paths are
Dijkstra's."""

from __future__ import annotations

import heapq
import itertools
import math

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import MemoryLimit
from morpho.base.machine import machine
from morpho.logic.semantics.semirings import SEMIRINGS
from morpho.logic.semantics.truth_values import LOGICS

PATHS = "path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z)."
GRID = np.linspace(0, 1, 21, dtype=np.float32)
EXACT = {"both": lambda a, b: a and b, "either": lambda a, b: a or b, "implies": lambda a, b: not a or b,
         "iff": lambda a, b: a == b}


@pytest.mark.parametrize("name", LOGICS)
def test_connectives_are_exact_on_truth_values(name: str) -> None:
    """Every connective of every logic has the truth table."""
    logic = LOGICS[name]
    for a, b in itertools.product([0.0, 1.0], repeat=2):
        x, y = mo.asarray([a]), mo.asarray([b])
        for connective, expected in EXACT.items():
            assert getattr(logic, connective)(x, y).item() == float(expected(bool(a), bool(b))), (connective, a, b)
        assert logic.negate(x).item() == 1 - a
        for c in (0.0, 1.0):
            assert logic.if_then_else(x, y, mo.asarray([c])).item() == (b if a else c)
    if name != "ltn":
        for row in itertools.product([0.0, 1.0], repeat=3):
            x = mo.asarray(row)
            assert logic.exists(x, (0,)).item() == max(row) and logic.forall(x, (0,)).item() == min(row)
    for row in itertools.product([0.0, 1.0], repeat=3):
        for number in range(5):
            assert logic.at_least(number, mo.asarray(row), (0,)).item() == float(sum(row) >= number)


@pytest.mark.parametrize("name", LOGICS)
def test_connectives_stay_inside_and_are_monotone(name: str) -> None:
    """On a grid of [0, 1]: `and` and `or` rise in both arguments, `implies` falls in the first and rises in the
    second."""
    logic = LOGICS[name]
    a, b = (mo.asarray(part.copy()) for part in np.meshgrid(GRID, GRID, indexing="ij"))
    slack = 1e-6
    for connective, signs in (("both", (1, 1)), ("either", (1, 1)), ("implies", (-1, 1))):
        values = getattr(logic, connective)(a, b).numpy()
        assert values.min() >= 0 and values.max() <= 1, connective
        for axis, sign in enumerate(signs):
            assert (np.diff(values, axis=axis) * sign >= -slack).all(), (connective, axis)
    values = logic.iff(a, b).numpy()
    assert values.min() >= 0 and values.max() <= 1
    commuted = logic.both(b, a).numpy()
    assert np.allclose(commuted, logic.both(a, b).numpy()), "and commutes"


@pytest.mark.parametrize("name", LOGICS)
def test_quantifiers_stay_inside_and_are_monotone(name: str, rng: np.random.Generator) -> None:
    """Raising a truth value never lowers `exists`, `forall` or `at least`; all equal values are their own mean."""
    logic = LOGICS[name]
    for _ in range(20):
        low = rng.random(6).astype(np.float32)
        high = np.minimum(1, low + rng.random(6).astype(np.float32) * 0.3).astype(np.float32)
        for quantify in (lambda x: logic.exists(x, (0,)), lambda x: logic.forall(x, (0,)),
                         lambda x: logic.at_least(3, x, (0,))):
            one, two = quantify(mo.asarray(low)).item(), quantify(mo.asarray(high)).item()
            assert 0 <= one <= two + 1e-6 and two <= 1
    for value in (0.0, 1.0):
        same = mo.full((4,), value)
        assert logic.exists(same, (0,)).item() == value and logic.forall(same, (0,)).item() == value


def test_names_of_logics_and_semirings() -> None:
    """By name, by pair, with an umlaut; anything else is an error that lists them."""
    assert mo.logic.logic("Gödel").name == "goedel" and mo.logic.logic("Łukasiewicz").name == "lukasiewicz"
    for pair, name in (("(+, ×)", "plus_times"), ("(max,x)", "max_times"), ("(max,min)", "max_min"),
                       ("(min,+)", "min_plus"), ("(or,and)", "or_and"), ("log-sum-exp", "log_sum_exp")):
        assert mo.logic.semiring(pair).name == name
    with pytest.raises(ValueError, match="goedel, product"):
        mo.logic.logic("fuzzy")
    with pytest.raises(ValueError, match="min_plus"):
        mo.logic.semiring("(mean, +)")


@pytest.mark.parametrize("name", [name for name in SEMIRINGS if name != "ltn"])
def test_semirings_keep_their_laws(name: str, rng: np.random.Generator) -> None:
    """Neutral elements, and for those that say so idempotence and distribution."""
    ring = SEMIRINGS[name]
    for a, b, c in rng.random((50, 3)):
        a, b, c = (float(round(x)) if ring.crisp else x for x in (a, b, c))
        assert np.isclose(float(ring.plus(a, ring.zero)), a) and np.isclose(float(ring.times(a, ring.one)), a)
        assert np.isclose(float(ring.plus(a, b)), float(ring.plus(b, a)))
        if ring.idempotent:
            assert float(ring.plus(a, a)) == a
        if ring.distributive:
            apart = ring.plus(ring.times(a, b), ring.times(a, c))
            assert np.isclose(float(ring.times(a, ring.plus(b, c))), float(apart))
        values = np.asarray([a, b, c])
        assert np.isclose(float(ring.plus_all(values, np.asarray([0]))[0]), float(ring.plus(ring.plus(a, b), c)))


def _graph(rng: np.random.Generator, nodes: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.unique(rng.integers(0, nodes, (edges, 2)), axis=0)
    return rows, rng.integers(1, 20, len(rows)).astype(float)


def _dijkstra(rows: np.ndarray, weights: np.ndarray, source: int, join, better, start: float) -> dict[int, float]:
    """Best value of a walk of at least one edge from a source."""
    best: dict[int, float] = {}
    heap = [(better * join(start, w), int(t)) for (s, t), w in zip(rows, weights) if s == source]
    heapq.heapify(heap)
    while heap:
        value, node = heapq.heappop(heap)
        if node in best:
            continue
        best[node] = better * value
        for (s, t), w in zip(rows, weights):
            if s == node and t not in best:
                heapq.heappush(heap, (better * join(best[node], w), int(t)))
    return best


@pytest.mark.parametrize("engine", ["tuples", "dense"])
@pytest.mark.parametrize(("semantics", "join", "better", "start"), [
    ("(min, +)", lambda a, b: a + b, 1, 0.0), ("(max, min)", min, -1, math.inf)])
def test_shortest_and_widest_paths_are_dijkstras(semantics: str, join, better: int, start: float, engine: str,
                                                 rng: np.random.Generator) -> None:
    """From every source, to every target, exactly."""
    rows, weights = _graph(rng, 25, 80)
    program = mo.logic.Program(PATHS)
    program.add("edge", rows, weights)
    answer = program.run(semantics, engine)["path"]
    found = dict(zip(answer.rows, answer.weights.tolist()))
    expected = {(source, target): value for source in range(25)
                for target, value in _dijkstra(rows, weights, source, join, better, start).items()}
    assert found == expected


@pytest.mark.parametrize("semantics", ["boolean", "(min,+)", "(max,min)", "(max,x)", "goedel", "product", "lukasiewicz",
                                       "(+,x)", "log_sum_exp"])
def test_both_engines_agree(semantics: str, rng: np.random.Generator) -> None:
    """Recursion, negation, comparison, constants and repeated variables, on tuples and on tensors."""
    program = mo.logic.Program("""
        path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z).
        far(X, Y) :- path(X, Y), not edge(X, Y), X < Y. loop(X, X, 3) :- path(X, X), X != 0.
        other(Y) :- far(_, Y), not far(3, Y). deep(X) :- other(X). deep(Y) :- deep(X), far(Y, X).
    """)
    rows = np.unique(rng.integers(0, 12, (30, 2)), axis=0)
    weights = rng.uniform(0.05, 0.9, len(rows))
    if semantics in ("(+,x)", "log_sum_exp"):
        weights = weights * 0.05 if semantics == "(+,x)" else np.log(weights * 0.05)
    program.add("edge", [(*row,) for row in np.r_[rows, [[3, 4]]].tolist()], [*weights, weights[0]])
    one, two = program.run(semantics, "tuples"), program.run(semantics, "dense")
    assert one.choices and {choice.engine for choice in two.choices.values()} == {"dense"}
    for name in ("path", "far", "loop", "other", "deep"):
        if one[name].weights is None:
            assert one[name].rows == two[name].rows, name
            continue
        found = [{row: weight for row, weight in zip(answer[name].rows, answer[name].weights.tolist())
                  if semantics != "lukasiewicz" or weight > 1e-12} for answer in (one, two)]  # a + b - 1 may round to 0
        assert list(found[0]) == list(found[1]), name
        assert np.allclose([*found[0].values()], [*found[1].values()], rtol=1e-9, atol=1e-11), name


LINEAR = {
    "left": PATHS, "right": "path(X, Y) :- edge(X, Y). path(X, Z) :- edge(X, Y), path(Y, Z).",
    "masked": """path(X, Y) :- edge(X, Y), X < 9. even(X) :- edge(X, _), X mod 2 = 0.
                 path(X, Z) :- path(X, Y), edge(Y, Z), Z != 7, even(X). 0.5 :: path(X, Z) :- path(X, Y), edge(Z, Y), Y
                 < 5.""",
}


@pytest.mark.parametrize("semantics", ["boolean", "(min,+)", "(max,min)", "(max,x)", "goedel", "(+,x)"])
@pytest.mark.parametrize("form", LINEAR)
def test_linear_recursion_by_sparse_products_agrees(form: str, semantics: str, rng: np.random.Generator) -> None:
    """The passenger on either side, masks on both ends, several recursive rules, more passengers than a word has
    bits."""
    program = mo.logic.Program(LINEAR[form])
    rows = np.unique(rng.integers(0, 80, (160, 2)), axis=0)
    program.add("edge", rows, rng.uniform(0.1, 0.9, len(rows)) * (0.05 if semantics == "(+,x)" else 1))
    one, two = program.run(semantics, "tuples"), program.run(semantics, "sparse")
    assert two.choices[frozenset(["path"])].engine == "sparse"
    assert one.count("path") == two.count("path") and one["path"].rows == two["path"].rows
    if one["path"].weights is not None:
        assert np.allclose(one["path"].weights, two["path"].weights, rtol=1e-9)
    kernels = program.explain(semantics=semantics, engine="sparse")
    assert "kernel spm" in kernels and "while_loop" in kernels


def test_the_engine_is_chosen_by_cost() -> None:
    """Few passengers: tuples. Many, over a sparse relation: products of it. Over a dense one: matrix products."""
    def engine(nodes: int, edges: int, sources: int, text: str) -> str:
        program = mo.logic.Program(text)
        program.add("edge", np.random.default_rng(0).integers(0, nodes, (edges, 2)))
        program.add("source", np.arange(sources)[:, None])
        return program.run().choices[frozenset(["reach"])].engine

    some = "reach(S, X) :- source(S), edge(S, X). reach(S, Z) :- reach(S, Y), edge(Y, Z)."
    all_pairs = "reach(X, Y) :- edge(X, Y), source(_). reach(X, Z) :- reach(X, Y), reach(Y, Z)."
    assert engine(20_000, 60_000, 2, some) == "tuples"
    assert engine(20_000, 60_000, 500, some) == "sparse"
    assert engine(300, 20_000, 2, all_pairs) == "dense"


def test_crisp_values_have_the_boolean_model(rng: np.random.Generator) -> None:
    """With weights of 1, every logic derives what Boolean logic does, with a degree of 1."""
    program = mo.logic.Program(PATHS + "lone(X) :- node(X), not path(X, X). node(X) :- edge(X, _) or edge(_, X).")
    program.add("edge", np.unique(rng.integers(0, 10, (12, 2)), axis=0))
    expected = program.run()
    for semantics in ("goedel", "product", "lukasiewicz", "max_times"):
        model = program.run(semantics)
        for name in ("path", "lone"):
            assert model[name].rows == expected[name].rows, (semantics, name)
            assert np.allclose(model[name].weights, 1.0)


@pytest.mark.parametrize("semantics", ["(min,+)", "(max,x)", "goedel", "(+,x)", "product"])
def test_a_goal_has_the_values_of_the_whole_model(semantics: str, rng: np.random.Generator) -> None:
    """What is asked for on the way (magic sets) has no weight of its own, whichever side the recursion is on."""
    for text in LINEAR["left"], LINEAR["right"], PATHS + " path(X, Z) :- path(X, Y), path(Y, Z).":
        if semantics == "(+,x)" and "path(Y, Z)" in text.split(".")[-2]:
            continue  # derivations without end
        program = mo.logic.Program(text)
        rows = np.unique(rng.integers(0, 9, (16, 2)), axis=0)
        rows = np.unique(np.sort(rows, axis=1), axis=0)
        rows = rows[rows[:, 0] != rows[:, 1]]
        program.add("edge", rows, rng.uniform(0.1, 0.9, len(rows)))
        whole, asked = program.run(semantics)["path"], program.query("path(0, X)", semantics)
        assert [(0, *row) for row in asked] == [row for row in whole if row[0] == 0]
        for row in asked:
            assert np.isclose(asked.weight(*row), whole.weight(0, *row), rtol=1e-9), (text, row)


def test_negated_formulas_have_the_degree_of_the_formula_alone() -> None:
    """`not exists` under Goedel's logic: what binds its variables outside takes no part in its degree."""
    program = mo.logic.Program("p(X) :- q(X), not exists Y: (r(Y), X < Y). 0.3 :: q(1). 0.4 :: r(2).")
    assert program.run("goedel")["p"].weights.tolist() == [0.3]  # min(0.3, 1 - 0.4)
    program = mo.logic.Program("p(X) :- q(X), not exists Y: (r(Y), X < Y). 0.9 :: q(1). 0.8 :: r(2).")
    assert np.allclose(program.run("goedel")["p"].weights, [0.2])
    assert np.allclose(program.run("product")["p"].weights, [0.9 * 0.2])


def test_sums_count_derivations_and_say_when_they_do_not_end() -> None:
    """(+, x) counts paths of a graph without cycles; a cycle of weight 1 has no sum."""
    program = mo.logic.Program(PATHS)
    program.add("edge", [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)])
    for engine in ("tuples", "dense"):
        answer = program.run("(+, x)", engine)["path"]
        assert answer.weight(0, 4) == 2.0 and answer.weight(0, 3) == 2.0 and answer.weight(4, 0) == 0.0
    half = mo.logic.Program(PATHS)
    half.add("edge", [(0, 0)], weights=[0.5])
    assert abs(half.run("(+, x)")["path"].weight(0, 0) - 1.0) < 1e-9
    program.add("edge", [(4, 0)], weights=[1e20])  # soon infinite
    for engine in ("tuples", "dense"):
        with pytest.raises(ValueError, match="no end after"):
            program.run("(+, x)", engine)


def test_rule_weights_join_the_derivation() -> None:
    """A weight in front of a rule is one more factor of what it derives."""
    program = mo.logic.Program("0.5 :: p(X) :- q(X). 0.8 :: q(a). q(b).")
    answer = program.run("max_times")["p"]
    assert answer.rows == [("a",), ("b",)] and answer.weights.tolist() == [0.4, 0.5]
    assert list(program.run()["p"]) == [("a",), ("b",)]


@pytest.mark.parametrize("engine", ["tuples", "dense"])
@pytest.mark.parametrize(("semantics", "want"), [
    ("product", 1 - (1 - 0.8 * 0.5) * (1 - 0.8 * 0.75)), ("lukasiewicz", min(1, (0.8 + 0.5 - 1) + (0.8 + 0.75 - 1))),
    ("goedel", 0.75), ("max_times", 0.8 * 0.75), ("plus_times", 0.8 * 1.25)])
def test_a_rule_weight_is_a_factor_of_each_derivation(semantics: str, want: float, engine: str) -> None:
    """Of two derivations by one rule, also where `or` does not distribute; by every engine, and as a function."""
    program = mo.logic.Program("0.8 :: p(X) :- q(X, _). r(X) :- p(X).")
    program.add("q", [(1, 2), (1, 3)], weights=[0.5, 0.75])
    assert np.isclose(program.run(semantics, engine)["r"].weight(1), want, rtol=1e-12)
    assert np.isclose(program.tensors(semantics)()["r"].item(), want, rtol=1e-6)


@pytest.mark.parametrize(("semantics", "want"), [("product", 0.36), ("lukasiewicz", 0.2), ("min_plus", 1.2),
                                                 ("plus_times", 0.36), ("goedel", 0.6), ("boolean", 1.0)])
@pytest.mark.parametrize("engine", ["tuples", "dense"])
@pytest.mark.parametrize("body", ["f(X), f(X)", "f(X), f(Y), X = Y", "f(X) and (f(X) or f(X) and X != X)"])
def test_an_atom_that_comes_twice_is_two_factors(body: str, engine: str, semantics: str, want: float) -> None:
    """However a body says that the same tuple holds twice, and as `truth` has it; atoms of one text were one."""
    program = mo.logic.Program(f"domain t = {{a}}. predicate f(t). p(X) :- {body}.")
    program.add("f", ["a"], weights=[0.6])
    found = program.run(semantics, engine)["p"]
    assert found.rows == [("a",)]
    assert semantics == "boolean" or np.isclose(found.weight("a"), want, rtol=1e-12)


@pytest.mark.parametrize("semantics", ["goedel", "product", "lukasiewicz", "max_times"])
def test_a_weight_that_is_no_degree_is_refused(semantics: str) -> None:
    """Where 1 - a is taken of it, or a + b - ab: of 3.0 a negation was -2.0 by one engine and no tuple by another."""
    text = "p(X) :- q(X), not r(X). q(a). r(b). q(b)."
    for facts, loaded in ((" 3.0 :: r(a).", None), ("", 3.0), ("", -0.5)):
        program = mo.logic.Program(text + facts)
        if loaded is not None:
            program.add("r", [("a",)], weights=[loaded])
        for engine in ("tuples", "dense"):
            with pytest.raises(mo.errors.ArgumentError, match=rf"a fact of r has the weight .*{semantics} has degrees"):
                program.run(semantics, engine)
        assert program.run("plus_times")["p"].rows == []
    model = mo.logic.Program(text).run(semantics)
    with pytest.raises(mo.errors.ArgumentError, match="has the weight -1, and"):
        model.add("r", ["a"], -1.0)
    best = mo.logic.Program("p(X) :- q(X).")
    best.add("q", ["a"], weights=[5.0])
    assert best.run("max_times")["p"].weight("a") == 5.0  # the best derivation of any positive numbers


def test_a_model_knows_its_predicates() -> None:
    model = mo.logic.Program("p(X) :- q(X). q(a).").run()
    assert "p" in model and "gone" not in model and model.get("gone") is None and model.get("p").rows == [("a",)]


@pytest.mark.parametrize("engine", ["tuples", "dense", "sparse"])
@pytest.mark.parametrize("semantics", ["boolean", "min_plus", "max_times", "plus_times"])
def test_a_chain_may_be_longer_than_the_rounds_that_are_waited_for(semantics: str, engine: str,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tuples", "dense"):
        monkeypatch.setattr(f"morpho.logic.{module}.fixpoint.MOST_ROUNDS", 20)
    monkeypatch.setattr("morpho.logic.dense.linear.MOST_ROUNDS", 20)
    monkeypatch.setattr("morpho.logic.tuples.fixpoint.MOST_UNBOUNDED_ROUNDS", 20)
    program = mo.logic.Program("path(X, Y) :- start(X), edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z). start(0).")
    program.add("edge", [(one, one + 1) for one in range(50)])
    model = program.run(semantics, engine)
    assert model.count("path") == 50 and model.counters["rounds"] >= 50
    if semantics != "boolean":  # a cycle that makes values better without end
        program.add("edge", [(50, 10)], weights=[-100.0 if semantics == "min_plus" else 3.0])
        with pytest.raises(ValueError, match=r"no end after .*cycle"):
            program.run(semantics, engine)


def test_a_recursion_may_count_through_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rounds than constants and facts: an odometer of two digits."""
    monkeypatch.setattr("morpho.logic.tuples.fixpoint.MOST_UNBOUNDED_ROUNDS", 20)
    program = mo.logic.Program("p(0, 0). p(X, Z) :- p(X, Y), next(Y, Z). p(Z, 0) :- p(X, 9), next(X, Z).")
    program.add("next", [(one, one + 1) for one in range(9)])
    for semantics in ("boolean", "min_plus"):
        assert program.run(semantics, "tuples").count("p") == 100


def test_a_join_beyond_memory_names_its_rule_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused while it grows, long before the memory is full."""
    monkeypatch.setattr("morpho.logic.tuples.evaluate.BLOCK_ROWS", 1000)
    monkeypatch.setattr("morpho.logic.tuples.evaluate.SHARE_OF_MEMORY", machine().memory_bytes // 100_000)
    program = mo.logic.Program("pairs(A, B, C, D) :- n(A), n(B), n(C), n(D).")
    program.add("n", [(one,) for one in range(30)])
    with pytest.raises(MemoryLimit, match=r"rule pairs\(A, B.* :- .* gives more than \d,\d\d\d tuples, \d\d\d? kB"):
        program.run("boolean", "tuples")
    small = mo.logic.Program("few(A, D) :- n(A), n(B), n(C), n(D).")  # the same join, of which little is kept
    small.add("n", [(one,) for one in range(30)])
    assert small.run("boolean", "tuples").count("few") == 900
