"""The text: what it means, errors with line, column and caret, the builder, and texts that are no programs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import morpho as mo
from morpho.base.errors import ValueFault
from morpho.logic import LogicError, Program
from morpho.logic.syntax.parser import parse, parse_formula

ERRORS = [  # text, what the message has, line, column
    ("p(X) :- q(Y).", "variable X is in the head", 1, 3),
    ("q(a).\np(X) :- q(X), X < Y.", "variable Y is compared", 2, 19),
    ("p(X) :- q(X), not r(X, Y).", "variable Y is negated", 1, 24),
    ("p(_) :- q(a).", "the unnamed variable _ is in the head", 1, 3),
    ("p(X) :- q(X) or r(Y).", "in one of its alternatives", 1, 3),
    ("p(X + 1) :- q(Y).", "variable X is compared", 1, 3),
    ("p(a, b).\np(a).", "predicate p has 1 term here and 2 terms elsewhere (line 1)", 2, 1),
    ("p(a).\np(1).", "1 is a number, and column 1 of p is a symbol", 2, 3),
    ("q(1). p(X) :- q(X), X = a.", "types do not fit", 1, 23),
    ("q(a). p(X + 1) :- q(X).", "types do not fit", 1, 21),
    ("domain d = {a, b}.\npredicate p(d).\np(c).", "c is not in domain d", 3, 3),
    ("domain d = {a}. domain e = {b}. predicate p(d). predicate q(e). r(X) :- p(X), q(X).", "of domain", 1, 81),
    ("predicate p(colour).", "type colour is not known", 1, 13),
    ("domain d = {a}. domain d = {b}.", "declared twice", 1, 24),
    ("domain d = {a}. d(b) :- q(b).", "is a domain, and here is the head", 1, 17),
    ("domain d = {a, 1}.", "mixes symbols with integers", 1, 16),
    ("p(X) :- q(X), exists X: r(X).", "quantified here and used outside", 1, 22),
    ("p(X) :- q(X), exists Y: r(X).", "does not occur in what follows", 1, 22),
    ("p(X) :- q(X), N = sum Z : { r(X) }, N > 1.", "Z is aggregated and does not occur", 1, 23),
    ("p(X) :- q(X), not p(X).", "not stratified: p depends on p through negation", 1, 19),
    ("p(X) :- q(X), not r(X).\nr(X) :- q(X), p(X).", "not stratified", 1, 19),
    ("p(X) :- q(X), 0 = count : { p(_) }.", "through an aggregate", 1, 19),
    ("p(X) :- q(X), forall Y in d: p(Y). domain d = {a}.", "not stratified", 1, 30),
    ("p(X) :- q(X", "expected `)`", 1, 12),
    ("p(X) :- .", "expected a constant", 1, 9),
    ("p(X) q(X).", "expected `:-` or `.`", 1, 6),
    ("p(\"a).", "a string is not closed", 1, 3),
    ("p(a) :- q & r.", "'&' has no meaning", 1, 11),
    ("p(99999999999999999999).", "more than 64 bits hold", 1, 3),
    ("count(a).", "`count` is a word of the language", 1, 1),
    ("p(a) :- at most Y: q(Y).", "expected an integer", 1, 17),
    (":- p(a).", "expected a predicate", 1, 1),
]


@pytest.mark.parametrize(("text", "message", "line", "column"), ERRORS, ids=[text for text, *_ in ERRORS])
def test_a_mistake_is_told_with_its_place(text: str, message: str, line: int, column: int) -> None:
    """The sentence, the line and the column, and a caret below that column."""
    with pytest.raises(LogicError) as caught:
        Program(text, "family.dl")
    error = caught.value
    assert message in str(error)
    assert (error.line, error.column) == (line, column), str(error)
    shown, caret = error.excerpt.split("\n")
    assert shown == "  " + text.split("\n")[line - 1] and caret.index("^") == column + 1
    assert f"family.dl:{line}:{column}:" in str(error)


def test_a_predicate_that_nothing_defines_is_told_when_it_runs() -> None:
    """With a name that is close; before that, facts may still come."""
    program = Program("path(X, Y) :- edge(X, Y). edges(a, b).")
    assert program.undefined() == ["edge"]
    with pytest.raises(LogicError, match=r"edge has no fact.*did you mean edges"):
        program.run()
    program.add("edge", [("a", "b")])
    assert list(program.run()["path"]) == [("a", "b")]


def test_text_is_what_is_printed() -> None:
    """Parsing what a rule prints as gives the rule again."""
    text = """
        p(X, N + 1) :- q(X, N), (X = a or not r(X)), exists Y in d: (q(Y, _)), N mod 2 != 0 .
        s :- forall X: (q(X, 1) -> r(X)), at least 2 Y: r(Y), 3 < sum N : { q(_, N) } .
        0.5 :: t("Ann Lee", -1, 2.5) :- if s then r(a) else (r(b) <-> r(c)).
    """
    for rule in parse(text).rules:
        again, = parse(str(rule)).rules
        assert str(again) == str(rule)


def test_the_builder_makes_the_same_program() -> None:
    """Atoms, connectives, comparisons, arithmetic, weights; mistakes point into the rule's text."""
    program = Program()
    person = program.domain("person", ["ann", "bob", "cid"])
    parent, age = program.predicate("parent", person, person), program.predicate("age", person, "int")
    older, childless = program.predicate("older", 2), program.predicate("childless", 1)
    X, Y, N, M = mo.logic.variables("X Y N M")
    program.rule(older(X, Y), age(X, N) & age(Y, M) & (N > M + 1))
    program.rule(childless(X), person(X) & ~parent(X, mo.logic.Variable("_")))
    program.fact(parent("ann", "bob"))
    program.add("age", [("ann", 40), ("bob", 12), ("cid", 39)])
    model = program.run()
    assert list(model["older"]) == [("ann", "bob"), ("cid", "bob")]
    assert list(model["childless"]) == [("bob",), ("cid",)]
    with pytest.raises(LogicError, match="variable Y is in the head") as caught:
        program.rule(older(X, Y), person(X))
    assert caught.value.excerpt.startswith("  older(X, Y) :- person(X).\n")
    with pytest.raises(ValueError, match="2 terms, and 1 are given"):
        parent("ann")


def test_names_are_apart() -> None:
    """A variable of one aggregate or quantifier has nothing to do with the same name in another."""
    program = Program("e(a, 1). e(a, 2). e(b, 5). "
                      "p(X, N, S) :- e(X, _), N = count : { e(X, Y) }, S = sum Y : { e(X, Y) }. "
                      "q(X) :- e(X, _), exists Y: (e(X, Y), Y > 1), exists Y: (e(X, Y), Y < 2).")
    model = program.run()
    assert list(model["p"]) == [("a", 2, 3), ("b", 1, 5)]
    assert list(model["q"]) == [("a",)]


@pytest.mark.parametrize("engine", ["tuples", "dense"])
def test_a_symbol_that_stands_only_in_a_comparison_has_its_place_in_the_alphabet(engine: str) -> None:
    """It has no number before the rule runs; getting one moves the places of the others."""
    facts = "e(c, f). e(d, a). e(f, f)."
    for text, want in [("p(X) :- e(X, _), X > b.", ["c", "d", "f"]), ("p(X) :- e(X, _), b < X.", ["c", "d", "f"]),
                       ("p(X) :- e(X, _), X <= e.", ["c", "d"]), ("p(X) :- e(X, _), e >= X.", ["c", "d"]),
                       ("p(X) :- e(X, Y), X < dd, Y > b.", ["c"]), ("p(X) :- e(X, _), b < a.", []),
                       ("p(X) :- e(X, _), aa < ab.", ["c", "d", "f"])]:
        assert [one for one, in Program(f"{facts} {text}").run(engine=engine)["p"]] == want, text


@pytest.mark.parametrize("text", ["n(0). n(N + 1) :- n(N).", "n(0). n(M) :- n(N), M = N + 1.",
                                  "n(0.5). n(N + 1) :- n(N).", "n(0). m(N - 1) :- n(N). n(N) :- m(N)."])
def test_numbers_without_end_are_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon, where nothing in the recursion may end it; a comparison, a remainder or a long chain of facts may."""
    monkeypatch.setattr("morpho.logic.tuples.fixpoint.MOST_UNBOUNDED_ROUNDS", 40)
    for semantics in ("boolean", "min_plus"):
        with pytest.raises(ValueFault, match=r"no end after 40 rounds of .* Hint: a recursion that makes new"):
            Program(text).run(semantics)
    for ended in ("n(0). n(N + 1) :- n(N), N < 90.", "n(0). n(M) :- n(N), M = (N + 1) mod 91."):
        assert len(Program(ended).run()["n"]) == 91
    chain = Program("n(0, 0). n(X, N + 1) :- n(Y, N), next(Y, X).")
    chain.add("next", [(one, one + 1) for one in range(90)])
    assert (90, 90) in chain.run()["n"].rows


WORDS = ["p", "q(", ")", "X", "Y", ",", ".", ":-", "not", "exists", "forall", ":", "(", "a", "1", "2.5", '"s"', "=",
         "<",
         "+", "-", "*", "/", "mod", "count", "sum", "{", "}", "->", "<->", "or", "and", "if", "then", "else", "domain",
         "predicate", "in", "..", "::", "?-", "at", "least", "exactly", "_", "true", "false", "\n", "%", "'", "&"]


@pytest.mark.parametrize("seed", range(10))
def test_no_text_breaks_the_parser(seed: int) -> None:
    """Random words: a program, or an error with a place inside the text."""
    rng = random.Random(seed)
    for _ in range(100):
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 25)))
        _parses_or_tells(text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_no_characters_break_the_parser(text: str) -> None:
    """Whatever a file holds."""
    _parses_or_tells(text)
    try:
        parse_formula(text)
    except LogicError as error:
        assert error.line >= 1 and error.column >= 1


def _parses_or_tells(text: str) -> None:
    try:
        Program(text)
    except LogicError as error:
        assert str(error).startswith("[logic] ")
        if error.line:
            assert 1 <= error.line <= text.count("\n") + 1
            assert 1 <= error.column <= len(text.split("\n")[error.line - 1]) + 1


@pytest.mark.parametrize("text", ["p :- " + "(" * 3000, "p :- " + "not " * 3000 + "q", "p :- X = " + "-" * 3000 + "1",
                                  "p :- X = " + "(" * 3000 + "1", "p :- " + "q -> " * 3000 + "q",
                                  "p :- " + "if " * 3000, "p :- exists X: " * 3000,
                                  "q(1). p(Y) :- q(X), Y = X" + " + X" * 3000 + ".",
                                  "q(1). p(X" + " * X" * 3000 + ") :- q(X).", "q. p :- q" + " <-> q" * 3000 + "."])
def test_depth_has_a_limit_and_an_error(text: str) -> None:
    """No recursion error of Python's."""
    with pytest.raises(LogicError):
        Program(text)
