"""Updates of regions: values as if every assignment made a new array, memory as if it did not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.tensor import recording
from morpho.tensor.steps import counts


def kernels(run: Any) -> list[str]:
    return [line for line in run.explain().splitlines() if " kernel " in line]


def equal(found: Any, wanted: np.ndarray) -> None:
    assert found.numpy().tobytes() == np.ascontiguousarray(wanted).tobytes(), (found.numpy(), wanted)


def test_a_sweep_of_a_stencil_is_one_kernel(rng: np.random.Generator) -> None:
    def sweep(i: Any, arrays: Any) -> Any:
        a, b = arrays
        b[1:-1, 1:-1] = 0.25 * (a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])
        a[1:-1, 1:-1] = 0.25 * (b[1:-1, :-2] + b[1:-1, 2:] + b[:-2, 1:-1] + b[2:, 1:-1])
        return a, b

    run = mo.compile(lambda a, b: mo.fori_loop(0, 5, sweep, (a, b)))
    a, b = rng.random((40, 30)), rng.random((40, 30))
    given = mo.asarray(a), mo.asarray(b)
    found = run(*given)
    for _ in range(5):
        a, b = a.copy(), b.copy()
        b[1:-1, 1:-1] = 0.25 * (a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])
        a[1:-1, 1:-1] = 0.25 * (b[1:-1, :-2] + b[1:-1, 2:] + b[:-2, 1:-1] + b[2:, 1:-1])
    equal(found[0], a)
    equal(found[1], b)
    assert len(kernels(run)) == 4  # two copies of the arguments, and the sweeps


def test_what_is_added_to_a_slice_is_one_kernel(rng: np.random.Generator) -> None:
    def add(i: Any, x: mo.Tensor) -> mo.Tensor:
        x[10:-10] += x[10:-10] * 0.5
        return x

    run = mo.compile(lambda x: mo.fori_loop(0, 3, add, x))
    x = rng.random(4000)
    found = run(mo.asarray(x))
    for _ in range(3):
        x[10:-10] += x[10:-10] * 0.5
    equal(found, x)
    assert len(kernels(run)) == 2


@pytest.mark.parametrize("shift", [1, -1, 3])
def test_a_region_given_elements_of_the_same_value(shift: int, rng: np.random.Generator) -> None:
    def move(i: Any, x: mo.Tensor) -> mo.Tensor:
        if shift > 0:
            x[shift:] = x[:-shift]
        else:
            x[:shift] = x[-shift:]
        return x

    x = rng.random(3000)
    found = mo.compile(lambda x: mo.fori_loop(0, 4, move, x * 1.0))(mo.asarray(x))
    for _ in range(4):
        if shift > 0:
            x[shift:] = x[:-shift].copy()
        else:
            x[:shift] = x[-shift:].copy()
    equal(found, x)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_turn_that_gives_its_written_value_turned(turns: int) -> None:
    """The memory of the carried value is written over, and what is passed on is another view of it."""
    def turned(i: Any, x: mo.Tensor) -> mo.Tensor:
        return x.at[np.array([2, 3])].add(1.0)[::-1]

    def moved(i: Any, x: mo.Tensor) -> mo.Tensor:
        return x.at[np.array([0, 1]), np.array([1, 0])].add(2.0).T

    for shape, body in (((6,), turned), ((3, 3), moved)):
        x = mo.asarray(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
        want = x
        for i in range(turns):
            want = body(i, want)
        assert mo.compile(lambda x, body=body: mo.fori_loop(0, turns, body, x))(x).tolist() == want.tolist()


def test_the_old_value_stays_where_it_is_wanted(rng: np.random.Generator) -> None:
    def both(x: mo.Tensor) -> Any:
        old = x * 2.0
        new = old[:]
        new[3:7] = x[3:7]
        return old, new, old.sum()

    x = rng.random(50)
    old, new, total = mo.compile(both)(mo.asarray(x))
    changed = 2 * x
    changed[3:7] = x[3:7]
    equal(old, 2 * x)
    equal(new, changed)
    np.testing.assert_allclose(total.item(), (2 * x).sum())


def test_arguments_are_not_written(rng: np.random.Generator) -> None:
    def change(x: mo.Tensor) -> mo.Tensor:
        x[0] = 5.0
        return x

    x = mo.asarray(rng.random(4))
    before = x.numpy().copy()
    assert mo.compile(change)(x)[0].item() == 5.0
    equal(x, before)


def test_elements_by_index_inside_a_loop(rng: np.random.Generator) -> None:
    def put(i: mo.Tensor, x: mo.Tensor) -> mo.Tensor:
        return mo.scatter(x, mo.reshape(i, (1,)), mo.reshape(mo.take(x, i - 1, axis=0) * 1.5 + 1, (1,)))

    run = mo.compile(lambda x: mo.fori_loop(1, 200, put, x))
    x = rng.random(200)
    found = run(mo.asarray(x))
    for i in range(1, 200):
        x[i] = x[i - 1] * 1.5 + 1
    np.testing.assert_allclose(found.numpy(), x, rtol=1e-12)


def test_parts_are_computed_where_they_lie(rng: np.random.Generator) -> None:
    run = mo.compile(lambda x, y: (mo.concat([mo.sin(x), y * 2, x], axis=1), mo.stack([x + y, x - y])))
    x, y = rng.random((5, 40)), rng.random((5, 40))
    joined, stacked = run(mo.asarray(x), mo.asarray(y))
    np.testing.assert_allclose(joined.numpy(), np.concatenate([np.sin(x), y * 2, x], axis=1), rtol=1e-14)
    equal(stacked, np.stack([x + y, x - y]))
    assert sum("copy" in line for line in kernels(run)) == 1  # of x itself


def test_results_of_one_kernel_are_parts_too(rng: np.random.Generator) -> None:
    """Stages of Stockham's transform: real and imaginary parts of a product go to their places at once."""

    def fft(x: mo.Tensor, roots: mo.Tensor) -> mo.Tensor:
        n, stride = 16, 1
        while n > 1:
            n //= 2
            pair = x.reshape((2, n, stride))
            x = mo.stack([pair[0] + pair[1], (pair[0] - pair[1]) * roots[::stride, None]], axis=1)
            stride *= 2
        return x.reshape((-1,))

    z = rng.normal(0, 1, 16) + 1j * rng.normal(0, 1, 16)
    whole = mo.compile(fft)
    given = mo.asarray(z), mo.asarray(np.exp(-2j * np.pi * np.arange(8) / 16))
    np.testing.assert_allclose(whole(*given).numpy(), np.fft.fft(z), rtol=1e-12, atol=1e-12)
    kernels = [line.split()[2] for line in whole.explain().splitlines() if " kernel " in line]
    assert kernels.count("copy") <= 4  # at the beginning and the end, not two a stage


@pytest.mark.parametrize("columns", [3, 16, 23])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_short_rows_by_squares(columns: int, dtype: str, rng: np.random.Generator) -> None:
    """Blocks of short rows are transposed by squares of the vectors' size, or of 16 bytes, or one by one."""
    x = rng.integers(-9, 9, (133, columns)).astype(dtype)
    for isa in ("native", "vector128", "scalar"):
        with mo.settings(isa=isa):
            best, shifted = mo.compile(lambda x: (mo.argmin(x, axis=1), x - mo.max(x, axis=1, keepdims=True)))(
                mo.asarray(x))
            assert np.array_equal(best.numpy(), x.argmin(axis=1))
            assert np.array_equal(shifted.numpy(), x - x.max(axis=1, keepdims=True))



SIZE = 9


def _program(rng: np.random.Generator) -> list[tuple[Any, ...]]:
    """Assignments of expressions to regions of four vectors, at random."""
    made = []
    for _ in range(int(rng.integers(2, 9))):
        target, source, other = (int(n) for n in rng.integers(0, 4, 3))
        length = int(rng.integers(1, SIZE + 1))
        places = [int(n) for n in rng.integers(0, SIZE - length + 1, 3)]
        made.append((target, source, other, length, places, rng.integers(0, 4)))
    return made


def _run(program: list[tuple[Any, ...]], vectors: list[Any], keep: list[Any]) -> list[Any]:
    for target, source, other, length, (to, one, two), kind in program:
        a, b = vectors[source][one:one + length], vectors[other][two:two + length]
        value = [lambda a, b: a, lambda a, b: a + b, lambda a, b: a * 0.5, lambda a, b: a - b][kind](a, b)
        if isinstance(value, np.ndarray):
            value = value.copy()
        keep.append(vectors[target] if kind == 1 else value)
        if isinstance(vectors[target], np.ndarray):
            vectors[target] = vectors[target].copy()
        vectors[target][to:to + length] = value
    return vectors


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(25))
@pytest.mark.parametrize("looped", [False, True])
def test_random_assignments(number: int, looped: bool, session_seed: int) -> None:
    rng = np.random.default_rng([session_seed & 0xFFFF, number])
    program = _program(rng)
    vectors = [rng.random(SIZE) for _ in range(4)]

    def traced(*given: mo.Tensor) -> Any:
        if looped:
            return mo.fori_loop(0, 3, lambda i, v: tuple(_run(program, list(v), [])), given)
        own = [one * 1.0 for one in given]
        kept: list[Any] = []
        return tuple(_run(program, own, kept)), [one + 0.0 for one in kept[:2]]

    with mo.settings(passes_off="registers"):
        found = mo.compile(traced)(*[mo.asarray(one) for one in vectors])
    wanted = [one.copy() for one in vectors]
    for _ in range(3 if looped else 1):
        wanted = _run(program, wanted, [])
    for one, other in zip(found if looped else found[0], wanted, strict=True):
        equal(one, other)


def test_borders_copied_from_beside_them(rng: np.random.Generator) -> None:
    """`p[:, -1] = p[:, -2]` touches one column: what is read and what is written lie apart."""
    p = rng.standard_normal((60, 70))

    def turn(i: Any, p: Any) -> Any:
        p[1:-1, 1:-1] = p[1:-1, 1:-1] * 0.5
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1] * 2 + p[:, 3]
        p[::2, 5] = p[::2, 7]
        return p

    f = mo.compile(lambda p: mo.fori_loop(0, 4, turn, p))
    want = p.copy()
    for _ in range(4):
        turn(0, want)
    np.testing.assert_array_equal(f(mo.asarray(p)).numpy(), want)
    steps = [step for step in f.current.plan.program.steps if hasattr(step, "rows")]
    inner = [int(step.rows) * int(step.columns) for step in steps[1:]]
    assert sorted(inner) == [30, 60, 60, 70, 58 * 68]  # nothing but what changes


@pytest.mark.parametrize("loop", ["fori", "while"])
@pytest.mark.parametrize("write", ["slice", "min"])
def test_a_constant_written_into_a_carry_is_written_at_every_turn(write: str, loop: str) -> None:
    """The written value is the same at every turn, but what is written over is not: a step that writes a part of a
    carry stays in the loop, also where an earlier scatter has checked its indices."""
    index, values = np.asarray([2, 4], "uint8"), np.asarray([[1, 2], [3, 0]])

    def turn(x: Any, y: Any, scatter: Any) -> Any:
        if write == "slice":
            x = x + 0
            x[2:5] = 3
            return x + y.sum(), y
        return scatter(x, "set", y[:2]), scatter(y, "min", values)

    def compiled(x: Any, y: Any, index: Any, values: Any) -> Any:
        def scatter(x: Any, how: str, values: Any) -> Any:
            return getattr(x.at[index], how)(values)

        if loop == "fori":
            return mo.fori_loop(0, 3, lambda i, pair: turn(*pair, scatter), (x, y))
        return mo.while_loop(lambda state: state[2] < 3, lambda state: (*turn(*state[:2], scatter), state[2] + 1),
                             (x, y, 0))[:2]

    def scatter(x: Any, how: str, values: Any) -> Any:
        x = x.copy()
        x[index] = values if how == "set" else np.minimum(x[index], values)
        return x

    x, y = np.arange(66).reshape(33, 2), np.arange(66).reshape(33, 2) + 1
    expected = (x, y)
    for _ in range(3):
        expected = turn(*expected, scatter)
    for found, wanted in zip(mo.compile(compiled)(*map(mo.asarray, (x, y, index, values))), expected, strict=True):
        equal(found, wanted)


def test_a_value_read_by_another_view_is_not_written_over() -> None:
    """The second mask reads v as it was, by a line of all its elements; w, a copy of v, was written into its memory."""
    def run(own: Any, v: Any, w: Any, key: Any, c: Any) -> Any:
        first = key > 0
        v[first] = w[first]
        w = own(v)
        second = key + v > 0
        w[::-1] = c
        v[second] = w[second]
        return v

    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, (3, 3)) for _ in range(4)]
    wanted = run(np.copy, *[array.copy() for array in arrays])
    found = mo.compile(lambda *tensors: run(lambda v: v[...], *tensors))(*map(mo.asarray, arrays))
    assert found.tolist() == wanted.tolist()


def test_an_argument_filled_with_a_number_is_written_again() -> None:
    """The same program, kept by somebody else, is older than the trace: the argument was taken for one from outside."""
    def run(v: Any) -> Any:
        v[:] = 2
        v[3] = 7
        return v

    kept = mo.zeros(6, dtype="int32")
    kept[:] = 2
    assert mo.compile(run)(mo.arange(6, dtype="int32")).tolist() == [2, 2, 2, 7, 2, 2]


def test_parts_are_written_in_memory_that_nothing_else_holds(
        rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the elements of the way by graphs, and of NumPy; whatever shares the memory keeps the old ones."""
    start = rng.standard_normal((6, 5)).astype(np.float32)
    monkeypatch.setattr(recording, "is_only_thread", lambda: True)  # whatever other tests did

    def fill(x: Any, tensor: Any) -> Any:
        before = x[2]
        row, pending = tensor(np.arange(5, dtype=np.float32)), x * 2.0
        for i in range(1, 5):
            x[i] = x[i - 1] * 0.5 + row
            x[i, 1:3] = -0.1
            x[:, -1] = x[:, 0]
            x[1:] = x[:-1]
            x[..., ::2] += 1
        x[5], x[-1, 0], x[2:1] = row[None, 2:3][0], 7, 3.0
        return [np.asarray(each).tobytes() for each in (x, before, pending)]

    written = counts.written
    results = fill(mo.asarray(start, copy=True), mo.asarray)
    assert counts.written > written
    with mo.settings(record=False):
        assert fill(mo.asarray(start, copy=True), mo.asarray) == results
    x = mo.asarray(start, copy=True) + 0.0
    for _ in range(2):
        view, array, shared = x[0], x.numpy(), mo.compile(lambda x: x + 1.0)
        sums, wanted = shared(x).numpy().copy(), array.copy()
        x[0] = 5.0
        np.testing.assert_array_equal(view.numpy(), wanted[0])
        np.testing.assert_array_equal(array, wanted)
        np.testing.assert_array_equal(sums, wanted + 1.0)
        np.testing.assert_array_equal(shared(x).numpy(), x.numpy() + 1.0)
        assert (x[0].numpy() == 5.0).all() and (x[1:].numpy() == wanted[1:]).all()
    weight = mo.nn.Parameter([1.0, 2.0])
    y = weight * 3.0
    y[0] = 0.0
    y.numpy()
    y.sum().backward()
    assert weight.grad.tolist() == [0.0, 3.0]
    for key, value in ((9, 1.0), (0, mo.ones(3)), ((0, 0, 0), 1.0), (0, 1j)):
        with pytest.raises((IndexError, ValueError)):
            x[key] = value


def test_a_call_of_setitem_is_of_the_tensor_it_names() -> None:
    """It holds one reference less than the statement does."""
    for call in (lambda y: y.__setitem__(1, 5.0), lambda y: mo.Tensor.__setitem__(y, 1, 5.0)):
        x = mo.asarray([[1.0, 2.0], [3.0, 4.0]])
        y = x[0]
        call(y)
        assert (x.tolist(), y.tolist()) == ([[1, 2], [3, 4]], [1, 5])
