"""Programs as differentiable functions: values of the tuple engine, gradients checked numerically, rules as a loss."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from morpho.logic.semantics.truth_values import LOGICS

PATHS = "path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z)."
SMOKERS = """
    domain person = {ann, bob, cid}.
    predicate friends(person, person). predicate smokes(person).
    friends(ann, bob). friends(bob, cid). smokes(ann).
    0.5 :: smokes(Y) :- smokes(X), friends(X, Y).
"""


@pytest.mark.parametrize("semantics", ["boolean", "goedel", "product", "lukasiewicz", "max_times", "max_min",
                                       "min_plus"])
def test_the_function_computes_what_a_run_does(semantics: str, rng: np.random.Generator) -> None:
    """With as many rounds as the graph is long."""
    rows = np.unique(rng.integers(0, 6, (9, 2)), axis=0)
    rows = rows[rows[:, 0] < rows[:, 1]]  # no cycle: five rounds are enough
    program = mo.logic.Program(PATHS)
    program.add("edge", rows, rng.uniform(0.2, 0.9, len(rows)))
    f = program.tensors(semantics, rounds=6)
    found, expected = f()["path"].numpy(), program.run(semantics)["path"]
    values = f.axis("path", 0)
    for i, source in enumerate(values):
        for j, target in enumerate(f.axis("path", 1)):
            there = (source, target) in expected
            value = expected.weight(source, target) if there else mo.logic.semiring(semantics).zero
            assert np.isclose(float(found[i, j]), value, rtol=1e-5), (source, target)


@pytest.mark.parametrize("semantics", ["goedel", "max_times", "max_min", "min_plus", "log_sum_exp", "ltn"])
def test_a_function_of_no_facts(semantics: str) -> None:
    """A domain without values: the largest of nothing is the semiring's zero."""
    program = mo.logic.Program(PATHS + " some :- path(X, X).")
    program.add("edge", np.zeros((0, 2), np.int64))
    found = program.tensors(semantics, rounds=2)()
    assert found["path"].shape == (0, 0) and found["some"].item() == mo.logic.semiring(semantics).zero


@pytest.mark.parametrize("semantics", ["plus_times", "max_times", "product", "log_sum_exp", "min_plus", "ltn"])
def test_gradients_are_the_numeric_ones(semantics: str, rng: np.random.Generator) -> None:
    """With respect to facts and to the weights of rules."""
    program = mo.logic.Program("0.7 :: path(X, Y) :- edge(X, Y). 0.6 :: path(X, Z) :- path(X, Y), edge(Y, Z).")
    program.add("edge", [(0, 1), (1, 2), (2, 3), (0, 2)], rng.uniform(0.3, 0.8, 4))
    f = program.tensors(semantics, rounds=3)
    edge = mo.asarray(rng.uniform(0.2, 0.8, (4, 4)))
    weights = mo.asarray(rng.uniform(0.4, 0.9, 2))

    def value(edge, weights):
        return f({"edge": edge, "path": mo.astype(f.facts["path"], mo.float64)}, weights)["path"].sum() \
            if semantics not in ("min_plus", "log_sum_exp") else \
            f({"edge": edge, "path": mo.full((4, 4), f.semiring.ring.zero, dtype=mo.float64)}, weights)["path"][0, 3]

    slopes = mo.grad(value, argnums=(0, 1))(edge, weights)
    step = 1e-6
    for number, x in enumerate((edge, weights)):
        base = x.numpy()
        for index in list(np.ndindex(*base.shape))[:8]:
            moved = [base.copy(), base.copy()]
            moved[0][index] += step
            moved[1][index] -= step
            ends = [float(value(*(mo.asarray(one) if k == number else (edge, weights)[k] for k in range(2))))
                    for one in moved]
            assert np.isclose(float(slopes[number].numpy()[index]), (ends[0] - ends[1]) / (2 * step), atol=1e-5), index


def test_weights_of_rules_are_learned() -> None:
    """Gradient descent finds the weight with which the rule says what was observed."""
    f = mo.logic.Program(SMOKERS).tensors("max_times", rounds=3)
    observed = mo.asarray([1.0, 0.8, 0.64])
    step = mo.compile(lambda weights: weights - 0.5 * mo.grad(
        lambda weights: mo.mean((f(weights=weights)["smokes"] - observed) ** 2))(weights))
    weights = f.weights
    for _ in range(200):
        weights = step(weights)
    assert abs(float(weights[0]) - 0.8) < 1e-3


@pytest.mark.parametrize("semantics", list(LOGICS))
def test_the_truth_of_formulas_is_boolean_on_truth_values(semantics: str, rng: np.random.Generator) -> None:
    """Every connective and quantifier (but means, where not all agree) against Python."""
    f = mo.logic.Program(SMOKERS + "predicate old(person).").tensors("product")
    formulas = {
        "smokes(X) and not old(X)": lambda s, o, fr: s & ~o,
        "smokes(X) or old(X)": lambda s, o, fr: s | o,
        "smokes(X) -> old(X)": lambda s, o, fr: ~s | o,
        "smokes(X) <-> old(X)": lambda s, o, fr: s == o,
        "if smokes(X) then old(X) else X != ann": lambda s, o, fr: np.where(s, o, [False, True, True]),
        "smokes(bob), X = X, old(X)": lambda s, o, fr: s[1] & o,
        "at least 2 Y: friends(X, Y)": lambda s, o, fr: fr.sum(axis=1) >= 2,
        "at most 1 Y: friends(X, Y)": lambda s, o, fr: fr.sum(axis=1) <= 1,
        "exactly 1 Y: friends(X, Y)": lambda s, o, fr: fr.sum(axis=1) == 1,
        "friends(X, X)": lambda s, o, fr: np.diag(fr),
    }
    if semantics != "ltn":
        formulas |= {"exists Y: (friends(X, Y) and smokes(Y))": lambda s, o, fr: (fr & s).any(axis=1),
                     "forall Y in person: (friends(Y, X) -> smokes(Y))":
                         lambda s, o, fr: (~fr | s[:, None]).all(axis=0)}
    for _ in range(4):
        s, o, fr = rng.random(3) < 0.5, rng.random(3) < 0.5, rng.random((3, 3)) < 0.5
        tensors = {name: mo.asarray(x.astype(np.float32)) for name, x in (("smokes", s), ("old", o), ("friends", fr))}
        for text, expected in formulas.items():
            found = f.truth(text, tensors, semantics).numpy()
            assert np.allclose(found, np.asarray(expected(s, o, fr), np.float32)), (text, s, o, fr)


def test_rules_teach_a_network() -> None:
    """One label, one rule: the truth of the rule rises, and with it what was never labelled."""
    f = mo.logic.Program(SMOKERS).tensors("product")
    rule = "forall X, Y: (smokes(X) and friends(X, Y) -> smokes(Y))"

    def loss(logits):
        smokes = mo.sigmoid(logits)
        return -mo.log(smokes[0]) + 1 - f.truth(rule, {"smokes": smokes}, "lukasiewicz")

    step = mo.compile(lambda logits: logits - 0.5 * mo.grad(loss)(logits))
    logits = mo.asarray([0.0, -1.0, -1.0])
    for _ in range(300):
        logits = step(logits)
    assert (mo.sigmoid(logits).numpy() > 0.9).all()


def test_what_has_no_tensor_form_is_told() -> None:
    """Arithmetic, tensors of wrong shapes or names, formulas with unknown parts."""
    with pytest.raises(mo.logic.LogicError, match="no tensor form"):
        mo.logic.Program("p(N + 1) :- q(N). q(1).").tensors()
    f = mo.logic.Program(SMOKERS).tensors()
    with pytest.raises(ValueError, match=r"smokes has shape \(2,\)"):
        f({"smokes": mo.zeros(2)})
    with pytest.raises(ValueError, match="no predicate drinks"):
        f({"drinks": mo.zeros(3)})
    for text, message in (("drinks(X)", "predicate drinks has no tensor"), ("smokes(X, Y)",
                                                                            "has 1 terms, and here are 2"),
                          ("smokes(dan)", "dan is not among"), ("forall X in dog: smokes(X)",
                                                                "domain dog is not declared"),
                          ("X < 2", "has no domain"), ("exists Z: smokes(X)", "Z has no domain")):
        with pytest.raises(mo.logic.LogicError, match=message):
            f.truth(text)
    with pytest.raises(ValueError, match="rounds=0"):
        mo.logic.Program(SMOKERS).tensors(rounds=0)


def test_completion_of_a_knowledge_graph() -> None:
    """Embeddings learn what is known, a rule's loss lifts what it implies, and the rule explains it."""
    names = [f"n{number}" for number in range(31)]
    up = {names[n]: names[(n - 1) // 2] for n in range(1, 31)}
    parents = [(child, "parent", parent) for child, parent in up.items()]
    grand = [(child, "grand", up[parent]) for child, parent in up.items() if parent in up]
    held_out = grand[::4]
    known = parents + [one for one in grand if one not in held_out]
    graph = mo.logic.KnowledgeGraph(known, dimension=16, rules="grand(X, Z) :- parent(X, Y), parent(Y, Z).")
    losses = graph.train(steps=80)
    assert losses[-1] < losses[0] / 10 and graph.rank(known).mrr > 0.95
    before = graph.rank(held_out).mrr
    graph.train(steps=80, rule_weight=50.0)
    assert graph.rank(held_out).mrr > before + 0.1
    assert graph.explain(*held_out[0]).facts == {"parent(n3, n1)", "parent(n1, n0)"}
    assert graph.explain("n0", "grand", "n3") is None
    assert graph.complete("n5", "parent", 1)[0][0] == "n2"
    with pytest.raises(ValueError, match="no relation aunt"):
        graph.complete("n5", "aunt")
    with pytest.raises(ValueError, match="no triple"):
        mo.logic.KnowledgeGraph([("a", "b")])
    with pytest.raises(ValueError, match="score 'transe'"):
        mo.logic.KnowledgeGraph(known, score="transe")
    other = mo.logic.KnowledgeGraph(parents, dimension=16, score="distmult")
    losses = other.train(steps=60)
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("semantics", ["boolean", "goedel", "product", "lukasiewicz", "ltn", "plus_times", "max_times",
                                       "max_min", "min_plus", "log_sum_exp"])
def test_a_join_has_no_intermediate_with_the_variable_that_goes(semantics: str) -> None:
    """A function of n x n relations needs a few times n^2 numbers."""
    count = 90
    program = mo.logic.Program("path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z), path(Z, X).")
    nodes = np.arange(count)
    program.add("edge", np.stack([nodes, (7 * nodes + 1) % count], axis=1), np.full(count, 0.5))
    f = program.tensors(semantics, rounds=2)
    run = mo.compile(lambda edge: f({"edge": edge})["path"])
    run(f.facts["edge"])
    assert run.stats["arena_bytes"] <= 8 * 4 * count**2 and run.stats["host_steps"] == 0


@pytest.mark.parametrize("semantics", ["log_sum_exp", "min_plus", "ltn"])
def test_what_a_comparison_or_a_negation_leaves_out_has_no_slope(semantics: str, rng: np.random.Generator) -> None:
    """Values that no sum has on either side, and those beside them."""
    program = mo.logic.Program("0.7 :: far(X, Z) :- edge(X, Y), edge(Y, Z), X != Z. far(X, Y) :- edge(Y, X), not "
                               "edge(X, Y). 0.5 :: far(X, X) :- edge(X, 1), far(1, X).")
    program.add("edge", [(0, 1), (1, 2), (2, 0)])
    f = program.tensors(semantics, rounds=2)
    none = mo.full((3, 3), f.semiring.ring.zero, dtype=mo.float64)
    edge, weight = rng.uniform(0.55, 0.9, (3, 3)), mo.asarray(rng.uniform(0.2, 1, (3, 3)))

    def value(edge):
        found = f({"edge": edge, "far": none})["far"]
        return mo.sum(mo.where(mo.isinf(found), mo.zeros_like(found), found) * weight)

    slope, run = mo.grad(value)(mo.asarray(edge)).numpy(), mo.compile(value)
    for place in np.ndindex(3, 3):
        step = 1e-6 * (np.arange(9).reshape(3, 3) == 3 * place[0] + place[1])
        assert np.isclose(slope[place], (run(mo.asarray(edge + step)) - run(mo.asarray(edge - step))).item() / 2e-6,
                          atol=1e-6), place
