"""Loops and branches: the bits of their turns written out, gradients, states, dynamic sizes, memory, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, CompileError, MorphoError, ShapeError, ValueFault


def equal(found: Any, wanted: Any) -> None:
    one, other = np.asarray(found.numpy()), np.asarray(wanted.numpy())
    assert one.shape == other.shape and one.dtype == other.dtype
    assert one.tobytes() == other.tobytes(), (one, other)


def draw(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> mo.Tensor:
    return mo.asarray(rng.standard_normal(shape).astype(dtype))


def written_out(f: Callable[..., Any], carry: Any, xs: mo.Tensor, reverse: bool = False) -> tuple[Any, Any]:
    """What `mo.scan` stands for."""
    ys = []
    count = xs.shape[0]
    for number in reversed(range(count)) if reverse else range(count):
        carry, y = f(carry, xs[number])
        ys.append(y)
    return carry, mo.stack(ys[::-1] if reverse else ys)


# Bodies that read, write and exchange their carries in every way: (turn, first carries, width of a slice)
BODIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "in place": (lambda c, x: (0.9 * c + x, mo.sin(c)), lambda r: draw(r, 5)),
    "product": (lambda c, x: (mo.tanh(c @ WEIGHT + x), c * 2), lambda r: draw(r, 4, 5)),
    "exchange": (lambda c, x: ((c[1] + x, c[0]), c[0] * c[1]), lambda r: (draw(r, 5), draw(r, 5))),
    "unchanged": (lambda c, x: ((c[0], c[1] * c[0] + x), c[1]), lambda r: (draw(r, 5), draw(r, 5))),
    "constant": (lambda c, x: (mo.ones(5), c + x), lambda r: draw(r, 5)),
    "shifted": (lambda c, x: (mo.roll(c, 1) * 0.5 + x, c[1:]), lambda r: draw(r, 5)),
    "reduction": (lambda c, x: (c * 0.5 + x.sum(), x / (1 + c * c)), lambda r: draw(r)),
    "view of x": (lambda c, x: (x[::-1], x), lambda r: draw(r, 5)),
    "same twice": (lambda c, x: ((c[0] + x, c[0] + x), c[0] + x), lambda r: (draw(r, 5), draw(r, 5))),
    "updated": (lambda c, x: (put(c, x), c[2]), lambda r: draw(r, 5)),
}
WEIGHT = mo.asarray(np.random.default_rng(5).standard_normal((5, 5)).astype(np.float32) / 3)


def put(c: mo.Tensor, x: mo.Tensor) -> mo.Tensor:
    c = c + 0
    c[1:3] = x[1:3] * 2
    return c


@pytest.fixture(params=["registers", "steps"])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Small loops as one kernel, and as steps between marks."""
    with mo.settings(passes_off="" if request.param == "registers" else "registers"):
        yield request.param


@pytest.mark.sampled
@pytest.mark.parametrize("turns", [1, 2, 5])
@pytest.mark.parametrize("name", BODIES)
def test_a_scan_has_the_bits_of_its_turns(name: str, turns: int, form: str, rng: np.random.Generator) -> None:
    turn, first = BODIES[name]
    carry, xs = first(rng), draw(rng, turns, 5)
    for reverse in (False, True):
        wanted = written_out(turn, carry, xs, reverse)
        function: Any = lambda c, x, reverse=reverse: mo.scan(turn, c, x, reverse=reverse)
        compiled = mo.compile(function)
        for found in (function(carry, xs), compiled(carry, xs)):
            for one, other in zip(mo_leaves(found), mo_leaves(wanted), strict=True):
                equal(one, other)
        assert ("scan in registers" in compiled.explain()) == (form == "registers")


def mo_leaves(tree: Any) -> list[mo.Tensor]:
    return [leaf for item in tree for leaf in mo_leaves(item)] if isinstance(tree, tuple) else [tree]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_bits_do_not_depend_on_level_or_threads(level: int, threads: int, rng: np.random.Generator) -> None:
    carry, xs = draw(rng, 40, 5), draw(rng, 6, 5)
    turn = BODIES["product"][0]
    with mo.settings(level=3, threads=1):
        wanted = written_out(turn, carry, xs)
        mo.realise(*wanted)
    with mo.settings(level=level, threads=threads):
        found = mo.compile(lambda c, x: mo.scan(turn, c, x))(carry, xs)
    equal(found[0], wanted[0])
    equal(found[1], wanted[1])


def test_a_loop_is_one_native_function_whatever_its_length(rng: np.random.Generator) -> None:
    @mo.compile
    def run(x: mo.Tensor) -> mo.Tensor:
        return mo.fori_loop(0, 400, lambda i, x: mo.tanh(x @ WEIGHT), x)

    x = draw(rng, 40, 5)
    run(x)
    run(x)
    assert run.native_calls >= 1
    assert run.stats["host_steps"] == 0
    assert run.stats["kernels"] <= 4
    assert "400 turns" in run.explain()


def test_what_does_not_change_is_computed_before_the_loop(rng: np.random.Generator) -> None:
    @mo.compile
    def run(x: mo.Tensor, w: mo.Tensor) -> mo.Tensor:
        return mo.fori_loop(0, 10, lambda i, x: x @ (w * 2 + mo.exp(w)), x)

    x, w = draw(rng, 40, 64), draw(rng, 64, 64) / 30
    wanted = x
    for _ in range(10):
        wanted = wanted @ (w * 2 + mo.exp(w))
    equal(run(x, w), wanted)
    lines = run.explain().splitlines()
    begin = next(n for n, line in enumerate(lines) if "10 turns" in line)
    end = next(n for n, line in enumerate(lines) if "end of scan" in line)
    inside = "\n".join(lines[begin:end])
    assert "exp" not in inside and "pack" not in inside


@pytest.mark.parametrize("turns", [0, 1, 2, 7])
def test_fori_and_while(turns: int, form: str) -> None:
    assert mo.fori_loop(2, 2 + turns, lambda i, x: x * 2 + i, 1).item() == _horner(2, turns)
    count, last = mo.while_loop(lambda s: s[0] < turns, lambda s: (s[0] + 1, s[1] * 2 + s[0] + 2), (0, 1))
    assert (count.item(), last.item()) == (turns, _horner(2, turns))
    bound = mo.asarray(2 + turns)
    assert mo.fori_loop(2, bound, lambda i, x: x * 2 + i, 1).item() == _horner(2, turns)


def test_bounds_that_are_known_only_while_the_function_runs() -> None:
    def triangle(n: mo.Tensor) -> mo.Tensor:
        return mo.fori_loop(0, n, lambda i, total: mo.fori_loop(i + 1, n, lambda j, total: total + j, total), 0)

    compiled = mo.compile(triangle)
    for n in (0, 1, 5, 9):
        assert compiled(mo.asarray(n)).item() == sum(j for i in range(n) for j in range(i + 1, n))


def _horner(start: int, turns: int) -> int:
    value = 1
    for number in range(start, start + turns):
        value = value * 2 + number
    return value


def test_while_ends_in_either_buffer(form: str, rng: np.random.Generator) -> None:
    x, turns = draw(rng, 3, 5), mo.asarray(0)
    run = mo.compile(lambda x, n: mo.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] @ WEIGHT), (0, x))[1])
    wanted = x
    for count in range(5):
        equal(run(x, turns + count), wanted)
        wanted = wanted @ WEIGHT


@pytest.mark.parametrize("unroll", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_unroll_changes_no_bit(unroll: int, reverse: bool, rng: np.random.Generator) -> None:
    turn, first = BODIES["in place"]
    carry, xs = first(rng), draw(rng, 7, 5)
    found, wanted = mo.scan(turn, carry, xs, reverse=reverse, unroll=unroll), written_out(turn, carry, xs, reverse)
    equal(found[0], wanted[0])
    equal(found[1], wanted[1])


def test_loops_in_loops(form: str, rng: np.random.Generator) -> None:
    xs = draw(rng, 6, 3)

    def inside(number: Any, x: mo.Tensor) -> mo.Tensor:
        return mo.scan(lambda c, r: (c + r * number, c * r), x[0], x)[1] + number

    wanted = xs
    for number in range(3):
        carry, rows = wanted[0], []
        for k in range(6):
            rows.append(carry * wanted[k])
            carry = carry + wanted[k] * float(number)
        wanted = mo.stack(rows) + float(number)
    equal(mo.compile(lambda x: mo.fori_loop(0, 3, inside, x))(xs), wanted)
    triangle = mo.fori_loop(0, 5, lambda i, s: mo.while_loop(lambda t: t[0] <= i, lambda t: (t[0] + 1, t[1] + t[0]),
                                                              (0, s))[1], 0)
    assert triangle.item() == sum(sum(range(i + 1)) for i in range(5))


@pytest.mark.parametrize("name", ["in place", "product", "exchange", "reduction", "shifted"])
def test_gradients_agree_with_those_of_the_turns(name: str, form: str, rng: np.random.Generator) -> None:
    turn, first = BODIES[name]
    carry, xs = first(rng), draw(rng, 4, 5)

    def loss(loop: Callable[..., Any]) -> Callable[..., mo.Tensor]:
        return lambda c, x: sum((mo.sin(leaf).sum() for leaf in mo_leaves(loop(turn, c, x))), mo.asarray(0.0))

    wanted = mo.grad(loss(written_out), argnums=(0, 1))(carry, xs)
    found = mo.compile(lambda c, x: mo.grad(loss(mo.scan), argnums=(0, 1))(c, x))(carry, xs)
    for one, other in zip(mo_leaves(found), mo_leaves(wanted), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=3e-6, atol=1e-7)


def test_gradients_of_what_a_loop_finds_around_it(rng: np.random.Generator) -> None:
    x, w = draw(rng, 4, 5), draw(rng, 5, 5) / 3
    found = mo.grad(lambda w: mo.fori_loop(0, 3, lambda i, x: mo.tanh(x @ w), x).sum())(w)
    wanted = mo.grad(lambda w: mo.tanh(mo.tanh(mo.tanh(x @ w) @ w) @ w).sum())(w)
    equal(found, wanted)


def test_the_gradient_runs_the_loop_once_forwards(rng: np.random.Generator) -> None:
    run = mo.compile(lambda x: mo.value_and_grad(lambda x: mo.fori_loop(0, 9, lambda i, x: mo.sin(x), x).sum())(x))
    run(draw(rng, 500))
    assert run.explain().count("9 turns") == 1  # the way back is a product of cosines: one kernel
    assert run.explain().count("scan by element") == 1


def test_second_derivatives(rng: np.random.Generator) -> None:
    x = mo.asarray(0.3)
    loop = lambda x: mo.fori_loop(0, 3, lambda i, y: mo.sin(y) * x, x)
    plain = lambda x: mo.sin(mo.sin(mo.sin(x) * x) * x) * x
    np.testing.assert_allclose(mo.grad(mo.grad(loop))(x).item(), mo.grad(mo.grad(plain))(x).item(), rtol=1e-5)


def test_while_has_no_gradient_and_says_so() -> None:
    with pytest.raises(ArgumentError, match="while_loop has no gradient"):
        mo.grad(lambda x: mo.while_loop(lambda y: y < 10, lambda y: y * x, x))(mo.asarray(2.0))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond_and_its_gradient(sign: float) -> None:
    x = mo.asarray(np.array([1.0, 2.0], np.float32) * sign)
    choose = lambda x: mo.cond(x.sum() > 0, lambda x: (x * x).sum(), lambda x: (3 * x).sum(), x)
    assert choose(x).item() == (5.0 if sign > 0 else -9.0)
    assert mo.grad(choose)(x).tolist() == ([2.0, 4.0] if sign > 0 else [3.0, 3.0])
    run = mo.compile(choose)
    assert run(x).item() == run(x).item() == choose(x).item()
    assert run.native_calls == 1


def test_a_branch_that_is_not_taken_computes_nothing(rng: np.random.Generator) -> None:
    """Neither its faults nor its work are there, whether it is given operands or finds them around it."""
    x = draw(rng, 4)
    picked = mo.compile(lambda x, i: mo.cond(i < 4, lambda: x[i] * 2, lambda: mo.sum(x)))
    assert picked(x, mo.asarray(2)).item() == x[2].item() * 2
    assert picked(x, mo.asarray(9)).item() == mo.sum(x).item()
    singular = mo.zeros((3, 3))
    for number, wanted in ((0, singular), (1, singular + 1)):
        found = mo.switch(mo.asarray(number), [lambda: singular, lambda: singular + 1, lambda: mo.linalg.inv(singular)])
        equal(found, wanted)
    steps = mo.compile(lambda x, p: mo.cond(p, lambda: mo.sort(x), lambda: mo.exp(x)))
    steps(x, mo.asarray(True))
    text = steps.explain()
    assert text.index("branch of switch") < min(text.index("kernel sort"), text.index("kernel exp"))
    slope = mo.grad(lambda x, p: mo.cond(p, lambda: mo.sum(x * x), lambda: mo.sum(mo.sqrt(-mo.abs(x)))))
    equal(slope(x, mo.asarray(True)), 2 * x)


@pytest.mark.parametrize("kind", ["fori", "while", "scan"])
def test_a_loop_without_turns_asks_for_nothing(kind: str, form: str) -> None:
    """What a turn finds around it and may fail is computed before the loop, once, but only where there is a turn."""
    def turn(c: mo.Tensor, a: mo.Tensor) -> mo.Tensor:
        return c + mo.exp(mo.linalg.inv(a)) * a

    def fori(n: mo.Tensor, a: mo.Tensor, c: mo.Tensor) -> mo.Tensor:
        return mo.fori_loop(0, n, lambda i, c: turn(c, a), c)

    def by_test(n: mo.Tensor, a: mo.Tensor, c: mo.Tensor) -> mo.Tensor:
        return mo.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, turn(s[1], a)), (mo.asarray(0), c))[1]

    def scan(n: mo.Tensor, a: mo.Tensor, c: mo.Tensor) -> mo.Tensor:
        return mo.scan(lambda c, x: (turn(c, a), None), c, n)[0]

    def number(turns: int) -> mo.Tensor:
        return mo.zeros(turns) if kind == "scan" else mo.asarray(turns)

    f = {"fori": fori, "while": by_test, "scan": scan}[kind]
    compiled = mo.compile(f, dynamic={"n": {0: mo.Dim("n", 0, 8)}} if kind == "scan" else None)
    begin, regular = mo.ones((3, 3)), mo.eye(3) * 2
    wanted = turn(turn(begin, regular), regular)
    for run in (f, compiled):
        equal(run(number(2), regular, begin), wanted)
        equal(run(number(0), mo.zeros((3, 3)), begin), begin)
        with pytest.raises(MorphoError, match="singular"):
            run(number(1), mo.zeros((3, 3)) * 3, begin).numpy()
    text = compiled.explain()
    assert text.index("branch of switch") < text.index("kernel inv") < text.index("join of switch")
    assert text.count("kernel inv") == 1
    if kind != "scan":
        rows = mo.vmap(compiled, in_axes=(0, None, None))
        equal(rows(mo.asarray([0, 2]), regular, begin), mo.stack([begin, wanted]))
        equal(rows(mo.asarray([0, 0]), mo.zeros((3, 3)), begin), mo.stack([begin, begin]))


def test_a_loop_in_a_branch_that_is_not_taken_computes_nothing(form: str) -> None:
    def run(p: mo.Tensor, a: mo.Tensor) -> mo.Tensor:
        inner = lambda j, d: d + mo.linalg.inv(a + d * 0)[0, 0]
        return mo.fori_loop(0, 4, lambda i, c: mo.cond(p, lambda: c + 1, lambda: mo.fori_loop(0, 2, inner, c)), 0.0)

    assert mo.compile(run)(mo.asarray(True), mo.zeros((2, 2))).item() == 4.0


@pytest.mark.parametrize("index", [-5, 0, 1, 2, 9])
def test_switch(index: int) -> None:
    branches = [lambda x: x + 1, lambda x: x * 10, lambda x: x - 3]
    wanted = branches[min(max(index, 0), 2)](4)
    assert mo.switch(mo.asarray(index), branches, mo.asarray(4)).item() == wanted
    assert mo.switch(index, branches, mo.asarray(4)).item() == wanted


def test_map(rng: np.random.Generator) -> None:
    xs = draw(rng, 6, 5)
    equal(mo.map(lambda row: row / row.sum(), xs), mo.stack([xs[i] / xs[i].sum() for i in range(6)]))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(count: int, reverse: bool, rng: np.random.Generator) -> None:
    values = rng.integers(-50, 50, (2, count))
    found = mo.associative_scan(mo.add, mo.asarray(values), reverse=reverse, axis=1)
    wanted = np.cumsum(values[:, ::-1], 1)[:, ::-1] if reverse else np.cumsum(values, 1)
    assert found.tolist() == wanted.tolist()


def test_a_state_written_in_a_body_outside_of_compile_is_an_error() -> None:
    """It was written once for any number of turns, and by branches that were not taken."""
    state, x = mo.State(mo.zeros(())), mo.asarray(1.0)

    def write(*_: object) -> mo.Tensor:
        state.value = state.value + 1.0
        return x

    compiled, layer = mo.compile(write), mo.nn.Dropout(0.5)
    for run in (lambda: mo.cond(x > 0, lambda: x, write), lambda: mo.switch(mo.asarray(0), [lambda: x, write]),
                lambda: mo.scan(lambda c, _: (write(), None), x, length=3), lambda: mo.fori_loop(0, 3, write, x),
                lambda: mo.while_loop(lambda c: c < 3, write, x), lambda: mo.map(write, mo.zeros(3)),
                lambda: mo.cond(x > 0, lambda: mo.fori_loop(0, 3, write, x), lambda: x),
                lambda: mo.fori_loop(0, 3, lambda i, c: compiled(c), x),
                lambda: mo.fori_loop(0, 3, lambda i, c: layer(c), mo.ones(3))):
        with pytest.raises(mo.errors.ArgumentError, match=r"a state is given a new value.*put mo\.compile around it"):
            run()
        assert state.version == 0
    write()
    assert mo.cond(True, write, lambda: x).item() == 1.0 and state.version == 2
    double = mo.compile(lambda x: x * 2)
    assert mo.fori_loop(0, 3, lambda i, c: double(c), x).item() == 8.0  # which asked for a value


def test_states_are_carried(form: str) -> None:
    state = mo.State(mo.zeros(2))

    @mo.compile
    def run(x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        def turn(carry: mo.Tensor, row: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
            state.value = state.value * 2 + row
            return carry + state.value, state.value

        return mo.scan(turn, mo.zeros(2), x)

    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    value, total = np.zeros(2), np.zeros(2)
    for _ in range(2):
        found, _ = run(mo.asarray(rows))
        total[:] = 0
        for row in rows:
            value = value * 2 + row
            total += value
        assert found.tolist() == total.tolist() and state.value.tolist() == value.tolist()

    @mo.compile
    def choose(x: mo.Tensor) -> mo.Tensor:
        def write() -> mo.Tensor:
            state.value = state.value + 1
            return state.value.sum()

        return mo.cond(x > 0, write, lambda: x * 1.0)

    choose(mo.asarray(-1.0))
    assert state.value.tolist() == value.tolist()
    choose(mo.asarray(1.0))
    assert state.value.tolist() == (value + 1).tolist()


def test_dynamic_lengths(form: str, rng: np.random.Generator) -> None:
    turn, first = BODIES["product"]
    carry, xs = first(rng), draw(rng, 7, 5)
    run = mo.compile(lambda c, x: mo.scan(turn, c, x), dynamic={"x": {0: mo.Dim("n", 0, 64)}})
    for count in (7, 1, 4, 2):
        found, wanted = run(carry, xs[:count]), written_out(turn, carry, xs[:count])
        equal(found[0], wanted[0])
        equal(found[1], wanted[1])
    equal(run(carry, xs[:0])[0], carry)
    assert run.stats["specialisations"] == 1


def test_an_operation_of_the_host_in_a_body_is_counted(rng: np.random.Generator) -> None:
    x = draw(rng, 4, 4)
    run = mo.compile(lambda x: mo.fori_loop(0, 2, lambda i, x: mo.linalg.inv(x), x))
    np.testing.assert_allclose(run(x).numpy(), x.numpy(), rtol=1e-3, atol=1e-4)


def test_checkpointed_loops(rng: np.random.Generator) -> None:
    x = draw(rng, 5)
    block = lambda x: mo.fori_loop(0, 3, lambda i, x: mo.sin(x) * 2, x)
    found = mo.grad(lambda x: mo.checkpoint(block, x).sum())(x)
    equal(found, mo.grad(lambda x: block(x).sum())(x))


def test_faults_inside_a_loop_name_the_line(form: str) -> None:
    table, rows = mo.asarray([1.0, 2.0]), mo.asarray([0, 1, 5])
    with pytest.raises(MorphoError, match=r"test_control\.py"):
        mo.scan(lambda c, i: (c + mo.take(table, i, axis=0), None), 0.0, rows)[0].item()


def test_wrong_use_is_one_sentence() -> None:
    ones = mo.ones((3, 2))
    for call, kind, words in [
        (lambda: mo.scan(lambda c, x: c, 0.0, ones), ArgumentError, "two things"),
        (lambda: mo.scan(lambda c, x: (c + x, None), mo.zeros(()), ones), ShapeError, "carried value 0"),
        (lambda: mo.scan(lambda c, x: ((c, c), None), 0.0, ones), ArgumentError, "carry goes in"),
        (lambda: mo.scan(lambda c, x: (c, x), 0.0), ArgumentError, "length="),
        (lambda: mo.scan(lambda c, x: (c, x), 0.0, ones, length=2), ShapeError, "differ"),
        (lambda: mo.scan(lambda c, x: (c, x), 0.0, mo.asarray(1.0)), ShapeError, "no slices"),
        (lambda: mo.scan(lambda c, x: (c, x), 0.0, ones, unroll=0), ArgumentError, "unroll"),
        (lambda: mo.scan(lambda c, x: (c, "text"), 0.0, ones), ArgumentError, "no tensor or number"),
        (lambda: mo.while_loop(lambda x: x, lambda x: x, 0.0), ArgumentError, "one bool"),
        (lambda: mo.while_loop(lambda x: x < 3, lambda x: (x, x), 0.0), ArgumentError, "carry"),
        (lambda: mo.cond(mo.ones(2) > 0, lambda: 1, lambda: 2), ArgumentError, "one bool"),
        (lambda: mo.cond(mo.asarray(True), lambda: 1.0, lambda: mo.ones(2)), ShapeError, "branch"),
        (lambda: mo.switch(mo.asarray(0.5), [lambda: 1.0]), ArgumentError, "whole number"),
        (lambda: mo.switch(0, []), ArgumentError, "no branches"),
        (lambda: mo.fori_loop(0, 2**63, lambda i, x: x, 0), ValueFault, "bound 9223372036854775808 leaves int64"),
        (lambda: mo.fori_loop(-2**62, 2**62, lambda i, x: x, 0), ValueFault, "more than int64 can count"),
        (lambda: mo.fori_loop(0.5, 3, lambda i, x: x, 0), ArgumentError, "whole number"),
        (lambda: mo.fori_loop(0, 3, lambda i, x: x if float(x) > 0 else -x, mo.asarray(1.0)), CompileError, "while"),
        (lambda: mo.associative_scan(mo.add, ()), ArgumentError, "no tensor"),
    ]:
        with pytest.raises(kind, match=words):
            call()


# -- transformations ---------------------------------------------------------------------------------------------------
def test_vmap_of_loops_has_the_bits_of_the_rows(form: str, rng: np.random.Generator) -> None:
    carry, xs = draw(rng, 4, 5), draw(rng, 4, 6, 5)
    f = lambda c, x: mo.scan(BODIES["in place"][0], c, x)
    found = mo.compile(mo.vmap(f))(carry, xs)
    for row in range(4):
        wanted = f(carry[row], xs[row])
        equal(found[0][row], wanted[0])
        equal(found[1][row], wanted[1])
    nested = mo.vmap(mo.vmap(lambda x: mo.fori_loop(0, 3, lambda i, y: mo.sin(y) + i, x)))(xs[:, :, 0])
    assert nested.shape == (4, 6)


def test_vmap_of_while_and_switch(form: str) -> None:
    powers = mo.vmap(lambda n: mo.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2.0), (0, 1.0))[1])
    assert powers(mo.asarray([1, 5, 3, 0])).tolist() == [2.0, 32.0, 8.0, 1.0]
    branches = [lambda x: x + 1, lambda x: x * 10, lambda x: -x]
    found = mo.vmap(lambda i, x: mo.switch(i, branches, x))(mo.asarray([0, 1, 2]), mo.asarray([4.0, 5.0, 6.0]))
    assert found.tolist() == [5.0, 50.0, -6.0]


def test_forward_mode(form: str, rng: np.random.Generator) -> None:
    one = mo.asarray(1.0)
    value, along = mo.jvp(lambda x: mo.while_loop(lambda y: y < 10, lambda y: y * x + 1, x), (mo.asarray(2.0),), (one,))
    assert (value.item(), along.item()) == (11.0, 13.0)  # x -> (x^2 + 1) x + 1, 3 x^2 + 1 at 2
    loop = lambda x: mo.fori_loop(0, 3, lambda i, y: mo.sin(y) * x, x)
    x = mo.asarray(0.3)
    np.testing.assert_allclose(mo.jvp(loop, (x,), (one,))[1].item(), mo.grad(loop)(x).item(), rtol=1e-6)
    chosen = lambda x: mo.cond(x > 0, lambda: x * x, lambda: -x)
    assert mo.jvp(chosen, (mo.asarray(3.0),), (one,))[1].item() == 6.0


def test_a_small_carry_is_looked_up_by_an_index() -> None:
    """A carry that would fit registers, read at a place that is computed, or read whole besides."""
    def by_carry(x: mo.Tensor) -> mo.Tensor:
        return mo.fori_loop(0, 5, lambda i, c: c + c[c[0] % 4] + c[(i + 1) % 4], x)

    def both(x: mo.Tensor, table: mo.Tensor) -> mo.Tensor:
        return mo.fori_loop(0, 5, lambda i, c: c + table[i % 4] * mo.sum(table, dtype=mo.int32), x)

    x, table = np.array([1, 2, 3, 4], np.int32), np.array([5, 6, 7, 8], np.int32)
    expected = x.copy()
    for i in range(5):
        expected = expected + expected[expected[0] % 4] + expected[(i + 1) % 4]
    assert mo.compile(by_carry)(mo.asarray(x)).tolist() == expected.tolist()
    expected = x + sum(table[i % 4] for i in range(5)) * table.sum()
    assert mo.compile(both)(mo.asarray(x), mo.asarray(table)).tolist() == expected.tolist()


@pytest.mark.parametrize("wanted", ["scan and map", "map and scan", "one result and map", "two maps and scan"])
def test_a_map_beside_a_loop_over_the_same_slices_is_itself(wanted: str) -> None:
    """Its result is no carry of the loop's."""
    def run(x: mo.Tensor, w: mo.Tensor) -> tuple[mo.Tensor, ...]:
        carry, each = mo.scan(lambda c, r: (c * 0.5 + r.sum(), c), x, w)
        alone, _ = mo.scan(lambda c, r: (c * 0.5, None), x, w)
        mapped, (first, second) = mo.map(lambda r: r + 1, w), mo.map(lambda r: (r * 3, r.sum()), w)
        return {"scan and map": (carry, mapped), "map and scan": (mapped, carry, each),
                "one result and map": (alone + 1, mapped * 2), "two maps and scan": (first, second, carry)}[wanted]

    x, w = mo.arange(20, dtype=mo.float32).reshape((4, 5)), mo.arange(15, dtype=mo.float32).reshape((5, 3))
    for found, lazy in zip(mo.compile(run)(x, w), run(x, w), strict=True):
        np.testing.assert_array_equal(found.numpy(), lazy.numpy())
    if wanted == "scan and map":
        np.testing.assert_array_equal(mo.compile(run)(x, w)[1].numpy(), w.numpy() + 1)
