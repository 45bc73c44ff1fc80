"""Scatters along a line that compute their indices and values themselves: one kernel, the bits of one after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import IndexFault

Array = Any
LENGTHS = (1, 3, 4, 7, 64, 1001)


def labels(function: Any) -> list[str]:
    """What the kernels of a compiled function compute, without those that fill memory."""
    steps = [line.split() for line in function.explain().splitlines() if " kernel " in line]
    return [words[2] for words in steps if words[2] != "fill"]


def added(index: Array, value: Array, size: int) -> Array:
    result = np.zeros(size, value.dtype)
    np.add.at(result, index, value)
    return result


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("order", ["sorted", "random", "equal"])
def test_a_sparse_product_is_one_loop(length: int, order: str, rng: np.random.Generator) -> None:
    rows = {"sorted": np.sort(rng.integers(0, 9, length)), "random": rng.integers(0, 9, length),
            "equal": np.full(length, 4)}[order]
    values, x, columns = rng.normal(0, 1, length), rng.normal(0, 1, 50), rng.integers(-50, 50, length)
    f = mo.compile(lambda v, r, c, x: mo.segment_sum(v * mo.take(x, c), r, 9))
    for threads in (1, 2):
        with mo.settings(threads=threads):
            got = f(*map(mo.asarray, (values, rows, columns, x))).numpy()
        assert got.tobytes() == added(rows, values * x[columns], 9).tobytes()
    assert labels(f) == ["less+add+where+gather+multiply+scatter_add"]


def test_scatters_that_share_a_group_share_the_loop(rng: np.random.Generator) -> None:
    x, weight = rng.random((30, 41)), rng.normal(0, 1, (30, 41))

    def histogram(x: mo.Tensor, weight: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        which = mo.minimum((x * 10).astype("int64"), 9).reshape(-1)
        return mo.bincount(which, length=10), mo.bincount(which, weight.reshape(-1), length=10)

    f = mo.compile(histogram)
    counts, weights = f(mo.asarray(x), mo.asarray(weight))
    which = np.minimum((x * 10).astype(np.int64), 9).ravel()
    assert counts.tolist() == np.bincount(which, minlength=10).tolist()
    assert weights.numpy().tobytes() == added(which, weight.ravel(), 10).tobytes()
    assert len(labels(f)) == 1 and labels(f)[0].endswith("scatter_add+scatter_add")


def test_both_ends_of_edges_in_one_loop_in_a_loop(rng: np.random.Generator) -> None:
    state, area = rng.random(20), rng.random(60)
    first, second = rng.integers(0, 20, (2, 60))

    def turn(i: mo.Tensor, state: mo.Tensor) -> mo.Tensor:
        flow = mo.asarray(area) * (mo.take(state, mo.asarray(first)) - mo.take(state, mo.asarray(second)))
        return state - mo.segment_sum(flow, mo.asarray(first), 20) + mo.segment_sum(flow, mo.asarray(second), 20)

    f = mo.compile(lambda state: mo.fori_loop(0, 3, turn, state))
    got, want = f(mo.asarray(state)).numpy(), state
    for _ in range(3):
        flow = area * (want[first] - want[second])
        want = want - added(first, flow, 20) + added(second, flow, 20)
    assert got.tobytes() == want.tobytes()
    assert sum(label.endswith("scatter_add+scatter_add") for label in labels(f)) == 1


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64", "float32", "float64", "bool"])
@pytest.mark.parametrize("reduce", ["add", "mul", "max", "min", "set"])
def test_every_way_to_combine(dtype: str, reduce: str, rng: np.random.Generator) -> None:
    kind = np.dtype(dtype)
    base, value = (rng.integers(0, 2 if dtype == "bool" else 5, n).astype(kind) for n in (17, 40))
    index = rng.integers(0, 17, 40)
    combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "set": lambda a, b: b}[reduce]
    want = base.copy()
    for at, one in zip(index, value, strict=True):
        want[at] = combine(want[at], one)

    def changed(base: mo.Tensor, index: mo.Tensor, value: mo.Tensor) -> mo.Tensor:
        moved = mo.where(index >= 0, index, 0)  # computed by the loop
        if reduce == "set":
            return mo.scatter(base, moved, value)
        return mo.scatter_add(base, moved, value) if reduce == "add" else \
            mo.scatter_reduce(base, moved, value, reduce={"mul": "prod", "max": "amax", "min": "amin"}[reduce])

    f = mo.compile(changed)
    assert f(*map(mo.asarray, (base, index, value))).numpy().tolist() == want.tolist()
    assert labels(f)[-1].startswith(("greater_equal+where", "copy")) or "scatter" in labels(f)[-1]


@pytest.mark.parametrize("segments", [9, 12])
def test_an_index_of_lookup_and_scatter_is_checked_for_both(segments: int, rng: np.random.Generator) -> None:
    """Once where both axes are as long; what a lookup counts from the end is no segment."""
    x, index = rng.random(9), rng.integers(0, 9, 30)
    f = mo.compile(lambda x, i: mo.segment_sum(2 * mo.take(x, i), i, segments))
    assert f(mo.asarray(x), mo.asarray(index)).numpy().tobytes() == added(index, 2 * x[index], segments).tobytes()
    assert len(labels(f)) == 1
    for wrong in (-1, 9, 10, 12, -13):
        index[7] = wrong
        with pytest.raises(IndexFault):
            f(mo.asarray(x), mo.asarray(index))
    g = mo.compile(lambda x, i, r: mo.segment_sum(2 * mo.take(x, i), r, segments))  # from the end, by another index
    index, rows = rng.integers(-9, 9, 30), np.sort(rng.integers(0, segments, 30))
    got = g(*map(mo.asarray, (x, index, rows))).numpy()
    assert got.tobytes() == added(rows, 2 * x[index], segments).tobytes()


@pytest.mark.parametrize("at", [0, 5, 8])
def test_an_index_outside_is_an_error_wherever_it_is(at: int, rng: np.random.Generator) -> None:
    good = rng.integers(0, 9, 9)
    wrong = good.copy()
    wrong[at] = 9
    f = mo.compile(lambda x, i, r: mo.segment_sum(2 * mo.take(x, i), r, 9))
    x = mo.asarray(rng.random(9))
    f(x, mo.asarray(good), mo.asarray(good))
    with pytest.raises(IndexFault, match="take or segment_sum"):
        f(x, mo.asarray(wrong), mo.asarray(good))
    with pytest.raises(IndexFault, match="take or segment_sum"):
        f(x, mo.asarray(good), mo.asarray(wrong))
    with pytest.raises(IndexFault, match="segment_sum"):
        mo.segment_sum(x * 2, mo.asarray(wrong), 9).numpy()


def test_a_value_that_is_changed_and_looked_up_keeps_its_memory(rng: np.random.Generator) -> None:
    """The group that reads the old value is a kernel before the scatter, which then writes into it."""
    x, i, j = rng.random(30), rng.integers(0, 30, 50), rng.integers(0, 30, 50)
    f = mo.compile(lambda x: mo.scatter_add(x + 1, mo.asarray(i), mo.take(x + 1, mo.asarray(j)) * 2))
    want = x + 1
    np.add.at(want, i, (x + 1)[j] * 2)
    assert f(mo.asarray(x)).numpy().tobytes() == want.tobytes()


def scattered(base: mo.Tensor, index: mo.Tensor, value: mo.Tensor, mode: str) -> mo.Tensor:
    """Values put or combined at indices, in all the ways there are."""
    if mode == "gradient":
        return mo.grad(lambda w: (mo.take(w, index) * value).sum())(base)
    if mode.startswith("at."):
        return getattr(base.at[index], mode[3:])(value)
    if mode == "setitem":
        changed = base + 0
        changed[index] = value
        return changed
    return mo.scatter_add(base, index, value) if mode == "scatter_add" else mo.segment_sum(value, index, base.shape[0])


COMPUTED: dict[str, Any] = {  # indices of 5 values into 6 places, from p, which is in [0, 5)
    "range": lambda p: mo.arange(6)[p],
    "taken": lambda p: mo.take(mo.arange(6), p),
    "from the end": lambda p: mo.arange(6)[p - 5],
    "nested": lambda p: mo.arange(5)[mo.arange(6)[p]],
    "of a table": lambda p: mo.asarray([4, 0, 3, 3, 1, 2])[mo.arange(6)[p]],
    "in a table": lambda p: mo.arange(6)[mo.asarray([4, 0, 3, 3, 1, 2])[p]],
    "int32": lambda p: mo.arange(6, dtype=mo.int32)[p],
    "shifted": lambda p: mo.arange(6)[p] + 1,
    "slice": lambda p: mo.arange(1, 6)[p],
    "two axes": lambda p: mo.arange(12).reshape(2, 6)[0, p],
    "columns": lambda p: mo.broadcast_to(mo.arange(6), (3, 6))[1][p],
    "along": lambda p: mo.take_along_axis(mo.arange(6), p, axis=0),
}
MODES = ["scatter_add", "segment_sum", "gradient", "setitem", "at.add", "at.set", "at.min", "at.max", "at.multiply"]


@pytest.mark.sampled
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", COMPUTED)
def test_an_index_looked_up_in_a_range(form: str, mode: str, rng: np.random.Generator) -> None:
    """The kernel that scatters computes the index itself: the bits of level 0, where it is read from memory."""
    p, value = mo.asarray(rng.integers(0, 5, 5)), mo.asarray(rng.integers(1, 9, 5).astype("f"))
    base = mo.asarray(rng.integers(1, 9, 6).astype("f"))

    def f(base: mo.Tensor, p: mo.Tensor, value: mo.Tensor) -> mo.Tensor:
        return scattered(base, COMPUTED[form](p), value, mode)

    with mo.settings(level=0, passes_off="fuse"):
        want = f(base, p, value).numpy()
    index = COMPUTED[form](p).numpy()
    if mode == "scatter_add":
        plain = base.numpy().copy()
        np.add.at(plain, index, value.numpy())
        assert want.tolist() == plain.tolist()
    assert f(base, p, value).numpy().tolist() == want.tolist()
    assert mo.compile(f)(base, p, value).numpy().tolist() == want.tolist()


@pytest.mark.parametrize("form", ["range", "nested", "in a table"])
def test_an_index_looked_up_in_a_range_in_a_loop_and_on_lines(form: str, rng: np.random.Generator) -> None:
    p, value = mo.asarray(rng.integers(0, 5, 5)), mo.asarray(rng.integers(1, 9, 5).astype("f"))

    def lines(p: mo.Tensor, value: mo.Tensor) -> mo.Tensor:
        return mo.zeros((6, 2)).at[COMPUTED[form](p)].add(value[:, None])

    def turns(p: mo.Tensor, value: mo.Tensor) -> mo.Tensor:
        return mo.fori_loop(0, 3, lambda i, x: x.at[COMPUTED[form](p)].add(value * x.sum()), mo.ones(6))

    def rows(p: mo.Tensor, value: mo.Tensor) -> mo.Tensor:
        return mo.vmap(lambda v: mo.scatter_add(mo.zeros(6), COMPUTED[form](p), v))(mo.stack([value, 2 * value]))

    for f in (lines, turns, rows):
        with mo.settings(level=0, passes_off="fuse"):
            want = f(p, value).numpy()
        assert f(p, value).numpy().tolist() == mo.compile(f)(p, value).numpy().tolist() == want.tolist()


@pytest.mark.parametrize("shared", [False, True])
def test_a_range_of_another_length_is_checked(shared: bool) -> None:
    """The lookup's own fault, where the scatter's target is longer; threads that divide the loop, too."""
    length = 1 << 15 if shared else 4
    p = np.arange(length) % 4

    def f(p: mo.Tensor, value: mo.Tensor) -> mo.Tensor:
        return mo.scatter_add(mo.zeros(5000), mo.arange(4)[p], value)

    with mo.settings(threads=4 if shared else 1):
        assert f(mo.asarray(p), mo.ones(length)).numpy()[:5].tolist() == [length // 4] * 4 + [0]
        p[-1] = 4
        with pytest.raises(IndexFault):
            f(mo.asarray(p), mo.ones(length)).numpy()
