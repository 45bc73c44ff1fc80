"""Loops whose elements go their own ways: one kernel, the bits of the turns one after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo

Array = Any


def by_element(function: Any) -> int:
    """How many kernels of a compiled function are whole loops."""
    return sum("scan by element" in line for line in function.explain().splitlines())


@pytest.mark.parametrize("shape", [(64,), (33,), (1001,), (3, 5, 7)])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_recurrence_with_slices_and_results(shape: tuple[int, ...], reverse: bool, rng: np.random.Generator) -> None:
    x, scale, first = rng.random((6, *shape)), rng.random(shape), rng.random(shape)
    times = rng.random(6)

    def turn(carry: Any, given: Any) -> Any:
        old, older = carry
        row, time = given
        new = mo.sqrt(mo.maximum(row * time - 0.3 * old, 0.0)) / (older + 2.0) * mo.asarray(scale)
        return (new, old), (new, new > old)

    f = mo.compile(lambda first, x, t: mo.scan(turn, (first, first * 2), (x, t), reverse=reverse))
    slow = mo.compile(lambda first, x, t: mo.scan(turn, (first, first * 2), (x, t), reverse=reverse))
    given = [mo.asarray(a) for a in (first, x, times)]
    with mo.settings(passes_off="registers"):
        (a, b), (ys, larger) = slow(*given)
    assert by_element(slow) == 0
    for threads in (1, 3):
        with mo.settings(threads=threads):
            (c, d), (found, more) = f(*given)
        for one, other in ((a, c), (b, d), (ys, found), (larger, more)):
            assert one.numpy().tobytes() == other.numpy().tobytes()
    assert by_element(f) == 1
    old, older = first, first * 2
    for t in reversed(range(6)) if reverse else range(6):
        old, older = np.sqrt(np.maximum(x[t] * times[t] - 0.3 * old, 0.0)) / (older + 2.0) * scale, old
        assert np.allclose(found.numpy()[t], old, rtol=1e-14)


@pytest.mark.parametrize("rows", [(1003,), (17, 60)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("reverse", [False, True])
def test_time_along_the_last_axis_is_read_where_it_is(rows: tuple[int, ...], dtype: str, reverse: bool,
                                                      rng: np.random.Generator) -> None:
    """Lanes a whole row apart: nothing is copied first, and the bits are those of slices side by side."""
    x = rng.integers(-9, 9, (*rows, 77)).astype(dtype)

    def run(x: Any) -> Any:
        return mo.scan(lambda carry, row: ((carry + row) * 3, carry - row), mo.zeros(rows, dtype=dtype), x,
                       reverse=reverse)

    apart, beside = mo.compile(lambda x: run(mo.moveaxis(x, -1, 0))), mo.compile(run)
    for threads in (1, 3):
        with mo.settings(threads=threads):
            pair = [f(mo.asarray(a)) for f, a in ((apart, x), (beside, np.moveaxis(x, -1, 0).copy()))]
        for one, other in zip(*pair, strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes()
    assert by_element(apart) == by_element(beside) == 1 and "transposed" not in apart.explain()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_carried_as_two(dtype: str, rng: np.random.Generator) -> None:
    c = (rng.normal(0, 1, 37) + 1j * rng.normal(0, 1, 37)).astype(dtype)

    def turn(i: Any, carry: Any) -> Any:
        z, count = carry
        inside = mo.real(z) ** 2 + mo.imag(z) ** 2 < 4
        return mo.where(inside, z * z + mo.asarray(c), z), count + inside.astype("int64") * i

    def run(c: Any) -> Any:
        return mo.fori_loop(0, 12, turn, (c * 0.5, mo.zeros(37, dtype="int64")))

    f, slow = mo.compile(run), mo.compile(lambda c: run(c))
    with mo.settings(passes_off="registers"):
        want = slow(mo.asarray(c))
    got = f(mo.asarray(c))
    assert by_element(f) == 1 and by_element(slow) == 0
    assert [one.numpy().tobytes() for one in got] == [one.numpy().tobytes() for one in want]


def test_columns_of_an_array_are_turned_first_and_integers_stay_exact(rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (20, 11))

    def turn(carry: Any, column: Any) -> Any:
        new = carry * 3 // 2 + column % 5
        return new, new

    f = mo.compile(lambda x: mo.scan(turn, mo.zeros(20, dtype="int64"), x.T))
    last, ys = f(mo.asarray(x))
    want = np.zeros(20, np.int64)
    for t in range(11):
        want = want * 3 // 2 + x[:, t] % 5
        assert ys.numpy()[t].tolist() == want.tolist()
    assert last.tolist() == want.tolist() and by_element(f) == 1


@pytest.mark.parametrize("turn", [
    lambda carry, row: (mo.roll(carry, 1) + row, carry), lambda carry, row: (carry - mo.sum(carry) + row, carry),
    lambda carry, row: (mo.exp(carry) * row, carry)], ids=["neighbours", "sums", "polynomials"])
def test_others_are_loops_over_kernels(turn: Any, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.random((5, 100)))
    f = mo.compile(lambda x: mo.scan(turn, x[0], x))
    f(x)
    assert by_element(f) == 0


@pytest.mark.parametrize("arranged", [
    lambda row: mo.roll(row, 1) - 2 * row + mo.roll(row, -1), lambda row: row - mo.sum(row), mo.sort,
    lambda row: row[::-1] * mo.asarray(np.arange(100.0))], ids=["neighbours", "sums", "sorted", "reversed"])
@pytest.mark.parametrize("reverse", [False, True])
def test_what_looks_at_slices_alone_is_computed_before(arranged: Any, reverse: bool, rng: np.random.Generator) -> None:
    """The carried elements then go their own ways."""
    x, w = mo.asarray(rng.random((7, 100))), mo.asarray(rng.random(100))

    def run(x: Any, w: Any) -> Any:
        def turn(carry: Any, row: Any) -> Any:
            new = (arranged(row) - 0.5 * carry * w) / (2.0 + carry)
            return new, (new, carry)

        return mo.scan(turn, x[0], x, reverse=reverse)

    f, slow = mo.compile(run), mo.compile(run)
    with mo.settings(passes_off="registers"):
        want = slow(x, w)
    got = f(x, w)
    assert by_element(f) == 1 and by_element(slow) == 0
    for one, other in zip(mo.tree.leaves(want), mo.tree.leaves(got), strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()


@pytest.mark.parametrize("chosen", [{}, {"threads": 3}, {"isa": "scalar"}, {"isa": "vector128"}], ids=str)
@pytest.mark.parametrize("count", [33, 100, 257])
def test_carried_values_that_are_the_same_in_all_elements(count: int, chosen: Any, rng: np.random.Generator) -> None:
    """Pivots of a matrix that all systems share; one that soon is not, and one that becomes what all share."""
    rows = mo.asarray(rng.random((9, count)))

    def run(rows: Any) -> Any:
        def turn(carry: Any, row: Any) -> Any:
            pivot, q, mixed, late = carry
            below = 2.0 - 0.5 * pivot
            new = (0.5 / below, (row + 0.5 * q) / below, mixed + q, pivot)
            return new, new

        ones = mo.ones(count, dtype="float64")
        return mo.scan(turn, (ones * 0.0, ones, ones, rows[0]), rows)

    f, slow = mo.compile(run), mo.compile(run)
    with mo.settings(**chosen):
        got = f(rows)
        assert by_element(f) == 1
    with mo.settings(passes_off="registers", **chosen):
        want = slow(rows)
    for one, other in zip(mo.tree.leaves(want), mo.tree.leaves(got), strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()


def test_gradients_and_state(rng: np.random.Generator) -> None:
    x = rng.random((4, 50))

    def loss(x: Any) -> Any:
        return mo.sum(mo.scan(lambda carry, row: (0.5 * carry + row * row, carry), x[0], x)[0])

    slope = mo.compile(mo.grad(loss))(mo.asarray(x)).numpy()
    want = 2 * x * (0.5 ** np.arange(3, -1, -1))[:, None]
    want[0] += 0.5**4
    assert np.allclose(slope, want)


@pytest.mark.parametrize("n", [49, 90, 130])
@pytest.mark.parametrize("chosen", [{}, {"threads": 3}, {"isa": "scalar"}, {"isa": "vector128"}], ids=str)
def test_an_element_that_all_lanes_look_at(n: int, chosen: Any, rng: np.random.Generator) -> None:
    """`best[k]` at turn k, as it was before the turn: one kernel for all turns."""
    table, first = rng.integers(-50, 50, (n, n)).astype(np.int32), rng.integers(-50, 50, n).astype(np.int32)

    def run(first: Any, table: Any) -> Any:
        line = mo.arange(n)

        def turn(k: Any, carry: Any) -> Any:
            best, last = carry
            return mo.where(line > k, mo.maximum(best, best[k] + table[k]), best - last[n - 1 - k]), best

        return mo.fori_loop(0, n, turn, (first, first + 1))

    given = [mo.asarray(first), mo.asarray(table)]
    with mo.settings(**chosen):
        f = mo.compile(run)
        found = f(*given)
        assert by_element(f) == 1
    best, last = first, first + 1
    for k in range(n):
        best, last = np.where(np.arange(n) > k, np.maximum(best, best[k] + table[k]), best - last[n - 1 - k]), best
    assert np.array_equal(found[0].numpy(), best) and np.array_equal(found[1].numpy(), last)


def test_such_a_loop_has_the_bits_of_its_turns(rng: np.random.Generator) -> None:
    first, rows = (mo.asarray(rng.normal(0, 1, shape)) for shape in (100, (60, 100)))

    def run(first: Any, rows: Any) -> Any:
        def turn(k: Any, carry: Any) -> Any:
            return carry * 0.5 + rows[59 - k] / (2 + carry[k] * carry[99 - k])

        return mo.fori_loop(0, 60, turn, first)

    f, slow = mo.compile(run), mo.compile(run)
    with mo.settings(passes_off="registers"):
        want = slow(first, rows)
    assert f(first, rows).numpy().tobytes() == want.numpy().tobytes()
    assert by_element(f) == 1 and by_element(slow) == 0


def test_lookups_by_data_or_of_rows_are_kernels_and_those_outside_errors() -> None:
    def run(turn: Any, first: Any) -> Any:
        f = mo.compile(lambda first: mo.fori_loop(0, 2, turn, first))
        f(first)
        return f

    assert by_element(run(lambda k, carry: carry + carry[(k * k + 1) % 7], mo.arange(50))) == 0
    assert by_element(run(lambda k, carry: carry + carry[k], mo.ones((50, 50)))) == 0
    assert by_element(run(lambda k, carry: carry + carry[k], mo.arange(1 << 14))) == 0  # not in the nearest cache
    with pytest.raises(IndexError):
        run(lambda k, carry: carry + carry[k + 49], mo.arange(50))


def test_what_a_turn_makes_of_its_slice_is_not_kept_for_all_turns_where_that_is_much() -> None:
    """Pairs of a slice's elements, sorted: 160 kB a turn, 64 MB for 400 turns."""
    def medians(x: Any) -> Any:
        return mo.sort(x[:, None] - x[None, :], axis=1)[:, x.shape[0] // 2]

    def run(xs: Any) -> Any:
        return mo.scan(lambda c, x: (c * 0.5 + medians(x), None), mo.zeros(xs.shape[1]), xs)[0]

    few, many = mo.compile(run), mo.compile(run)
    few(mo.ones((20, 64)))
    many(mo.ones((400, 200)))
    assert by_element(few) == 1 and by_element(many) == 0
    assert many.stats["arena_bytes"] < 1 << 20
    weight = mo.ones((600, 600))  # of no slice: not there for every turn
    products = mo.compile(lambda xs: mo.scan(lambda c, x: (c * 0.5 + weight @ x, None), mo.zeros(600), xs)[0])
    products(mo.ones((200, 600)))
    assert by_element(products) == 1
