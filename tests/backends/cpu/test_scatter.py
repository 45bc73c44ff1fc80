"""Scatter and lookups in native code: order of addition, threads, half floats, faults, gradients without the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.kernels.loops.sequential.scatter import PIECE
from morpho.base.errors import DTypeError, IndexFault, ShapeError

Array = Any


def in_order(base: Array, index: Array, value: Array, axis: int, add: bool) -> Array:
    """One element after another, along the axis first."""
    result = base.copy()
    for place in sorted(np.ndindex(*index.shape), key=lambda p: p[axis]):
        target = (*place[:axis], int(index[place]), *place[axis + 1:])
        result[target] = result[target] + value[place] if add else value[place]
    return result


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((9, 3 * PIECE + 5), 0), ((9,), 0), ((70, 9), 1), ((2, 9, 130), 1),
                                             ((9, 2, 3, 33), 0), ((4, 3, 9), 2)])
@pytest.mark.parametrize("shared", [False, True])
def test_every_element_in_index_order(shape: tuple[int, ...], axis: int, shared: bool, add: bool,
                                      rng: np.random.Generator) -> None:
    counts = tuple(40 if i == axis else size for i, size in enumerate(shape))
    alone = tuple(40 if i == axis else 1 for i in range(len(shape)))
    index = np.broadcast_to(rng.integers(0, 9, alone if shared else counts), counts)
    base, value = (rng.normal(0, 1, s).astype(np.float32) for s in (shape, counts))
    want = in_order(base, index, value, axis, add)
    function = mo.scatter_add if add else mo.scatter
    f = mo.compile(lambda b, i, v: function(b, i, v, axis=axis))
    for threads in (1, 2, 3):
        with mo.settings(threads=threads):
            got = f(mo.asarray(base), mo.asarray(index), mo.asarray(value)).numpy()
            assert np.array_equal(got.view(np.int32), want.view(np.int32))
    assert f.stats["host_steps"] == 0


def test_many_columns_are_shared_among_threads(rng: np.random.Generator) -> None:
    base, index = np.zeros((50, 4096), np.float32), rng.integers(0, 50, 300)
    value = rng.normal(0, 1, (300, 4096)).astype(np.float32)
    want = base.copy()
    np.add.at(want, index, value)
    for threads in (1, 2):
        with mo.settings(threads=threads):
            got = mo.scatter_add(mo.asarray(base), mo.asarray(index[:, None]), mo.asarray(value), axis=0).numpy()
            assert np.array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_floats_add_in_float32_and_round_once(dtype: str) -> None:
    """4096 ones on top of 4096: each addition rounded to half precision would stay at 4096."""
    base, ones = mo.full((1, 70), 4096.0, dtype=dtype), mo.ones((4096, 70), dtype=dtype)
    index = mo.zeros((4096, 1), dtype="int64")
    assert mo.scatter_add(base, index, ones, axis=0).astype("float32").tolist() == [[8192.0] * 70]
    table = mo.zeros((2, 3), dtype=dtype)
    slope = mo.grad(lambda w: mo.embedding(w, mo.zeros(4000, dtype="int64")).astype("float32").sum())(table)
    assert slope.astype("float32").tolist() == [[4000.0] * 3, [0.0] * 3]


@pytest.mark.parametrize("lookup", [
    lambda w, ids: mo.embedding(w, ids), lambda w, ids: w[ids], lambda w, ids: mo.take(w, ids, axis=0),
    lambda w, ids: w[ids, 1:], lambda w, ids: w.T[:, ids],
    lambda w, ids: mo.take_along_axis(w, ids[..., None] % 5, axis=1),
], ids=["embedding", "index", "take", "index and slice", "columns", "along"])
def test_gradients_of_lookups_stay_native(lookup: Callable[..., mo.Tensor], rng: np.random.Generator) -> None:
    w, ids = rng.normal(0, 1, (12, 37)), rng.integers(0, 12, 12)
    f = mo.compile(lambda w, i: mo.grad(lambda w: mo.square(lookup(w, i)).sum())(w))
    got = f(mo.asarray(w), mo.asarray(ids)).numpy()
    assert f.stats["host_steps"] == 0
    step = 1e-6
    for _ in range(20):
        place = tuple(rng.integers(0, w.shape))
        high, low = w.copy(), w.copy()
        high[place] += step
        low[place] -= step
        values = [mo.square(lookup(mo.asarray(m), mo.asarray(ids))).sum().item() for m in (high, low)]
        assert np.isclose(got[place], (values[0] - values[1]) / (2 * step), rtol=1e-4, atol=1e-5)


def test_a_lookup_is_one_kernel_and_its_gradient_three(rng: np.random.Generator) -> None:
    """The gradient fills the table with zeros and adds; the cotangent is the third."""
    w, ids = mo.asarray(rng.normal(0, 1, (50, 64)).astype("f")), mo.asarray(rng.integers(0, 50, (4, 6)))
    look = mo.compile(lambda w, i: mo.embedding(w, i))
    assert np.array_equal(look(w, ids).numpy(), w.numpy()[ids.numpy()]) and look.stats["kernels"] == 1
    slope = mo.compile(lambda w, i: mo.grad(lambda w: (mo.embedding(w, i) * 3).sum())(w))
    slope(w, ids)
    assert slope.stats["kernels"] == 3 and slope.stats["host_steps"] == 0


@pytest.mark.parametrize("columns", [1, 3, 16, 37, 64, 67])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "float16"])
def test_rows_of_a_table(dtype: str, columns: int, rng: np.random.Generator) -> None:
    table = (rng.normal(0, 10, (9, columns))).astype("int8").astype(dtype)
    ids = rng.integers(0, 9, (3, 5)).astype(np.int32)
    assert np.array_equal(mo.embedding(mo.asarray(table), mo.asarray(ids)).numpy(), table[ids])
    scaled = mo.embedding(mo.asarray(table).astype("float32"), mo.asarray(ids)) * 2 + 1  # fused behind the lookup
    assert np.array_equal(scaled.numpy(), table[ids].astype("float32") * 2 + 1)
    assert np.array_equal(mo.asarray(table)[:, ::-1][mo.asarray(ids)].numpy(), table[:, ::-1][ids])


@pytest.mark.parametrize("wrong", [9, -10, 1 << 40])
@pytest.mark.parametrize("use", [lambda w, i: mo.embedding(w, i),
                                 lambda w, i: mo.scatter_add(w, i[:, None], 1.0, axis=0),
                                 lambda w, i: mo.grad(lambda w: mo.embedding(w, i).sum())(w)],
                         ids=["lookup", "scatter", "gradient"])
def test_wrong_indices_are_faults(use: Callable[..., mo.Tensor], wrong: int) -> None:
    table, ids = mo.zeros((9, 5)), np.array([0, wrong, 8])
    f = mo.compile(use)
    for function in (use, f):
        with pytest.raises(IndexFault, match=r"out of range.*test_scatter.py"):
            function(table, mo.asarray(ids)).numpy()
    assert np.isfinite(f(table, mo.asarray(np.array([0, 1, 8]))).numpy()).all()


def test_an_id_does_not_count_from_the_end() -> None:
    table, last = mo.asarray(np.arange(6.0).reshape(3, 2)), mo.asarray([-1])
    assert table[last].tolist() == mo.take(table, last, axis=0).tolist() == [[4.0, 5.0]]
    with pytest.raises(IndexFault):
        mo.embedding(table, last).numpy()


def test_a_wrong_index_of_the_surroundings_is_a_fault_too() -> None:
    """What depends on captured tensors alone runs once, before the first call; checks of indices do not."""
    table, ids, target = mo.asarray(np.ones((4, 3), "f")), mo.asarray(np.array([0, 4])), mo.zeros((5, 3))
    for f in (mo.compile(lambda x: x + mo.embedding(table, ids)),
              mo.compile(lambda x: x + mo.scatter_add(target, ids[:, None] + 1, 1.0, axis=0).sum())):
        with pytest.raises(IndexFault):
            f(mo.zeros((2, 3))).numpy()


def test_dynamic_ids_and_columns(rng: np.random.Generator) -> None:
    n, c = mo.Dim("n", 0, 200), mo.Dim("c", 0, 200)
    f = mo.compile(lambda w, i: mo.grad(lambda w: mo.embedding(w, i).sum())(w), dynamic={"w": {1: c}, "i": {0: n}})
    for count, columns in ((5, 3), (0, 4), (150, 130), (7, 0)):
        w, ids = rng.normal(0, 1, (6, columns)).astype("f"), rng.integers(0, 6, count)
        want = np.bincount(ids, minlength=6)[:, None] * np.ones((6, columns))
        assert np.array_equal(f(mo.asarray(w), mo.asarray(ids)).numpy(), want)


def test_a_state_is_unharmed_by_a_fault() -> None:
    state = mo.State(mo.zeros((3, 2)))

    @mo.compile
    def add(ids: mo.Tensor) -> mo.Tensor:
        state.value = mo.scatter_add(state.value, ids, 1.0, axis=0)
        return state.value.sum()

    add(mo.asarray([[0, 1]]))
    with pytest.raises(IndexFault):
        add(mo.asarray([[0, 3]])).numpy()
    assert state.value.tolist() == [[1, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize(("kind", "use"), [
    (ShapeError, lambda: mo.embedding(mo.zeros(4), mo.asarray([1]))),
    (DTypeError, lambda: mo.embedding(mo.zeros((4, 2)), mo.zeros(3))),
])
def test_what_is_no_lookup_is_said(kind: type[Exception], use: Callable[[], mo.Tensor]) -> None:
    with pytest.raises(kind, match=r"^\[embedding\]"):
        use()
