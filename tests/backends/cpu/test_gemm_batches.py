"""Products of many matrices and of integers: batches of several axes as they lie, and whole numbers that wrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.cost.dispatch_thresholds import DEFAULT
from morpho.runtime import thresholds

pytestmark = pytest.mark.usefixtures("packed")  # few rows too: tests/tensor/test_dispatch_thresholds.py has the others


@pytest.mark.parametrize("shape", [((2, 3, 9, 20), (3, 20, 7)), ((4, 1, 5, 8), (2, 8, 6)), ((3, 7, 8), (8, 5)),
                                   ((6, 4), (2, 4, 3)), ((0, 3, 4), (4, 5)), ((2, 3, 0), (0, 5)), ((1, 1), (1, 1)),
                                   ((7, 1, 65), (7, 65, 1)), ((7, 5, 6), (7, 6, 1)), ((7, 1, 6), (7, 6, 5)),
                                   ((2, 3, 1, 4), (4, 1)), ((3, 1, 0), (3, 0, 1)), ((2, 4, 1), (2, 1, 5))],
                         ids=str)
def test_batches_broadcast(rng: np.random.Generator, shape: tuple[Any, Any]) -> None:
    a, b = (rng.standard_normal(s, np.float32) for s in shape)
    found = (mo.asarray(a) @ mo.asarray(b)).numpy()
    np.testing.assert_allclose(found, np.matmul(a.astype(np.float64), b), rtol=1e-4, atol=1e-5)


BATCHES = [((5, 2), (2,)), ((5, 2), (5, 1)), ((1, 2), (5, 2)), ((5, 1), (2,)), ((2, 5), (5, 2))]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 37])
@pytest.mark.parametrize("left, right", BATCHES, ids=str)
def test_batches_of_two_axes_are_read_as_they_lie(rng: np.random.Generator, left: tuple[int, ...],
                                                  right: tuple[int, ...], rows: int, constant: bool) -> None:
    """Operands that repeat along one axis, or whose axes are exchanged, are not written out; nor are packed ones."""
    a, b = (mo.asarray(rng.standard_normal(shape).astype("f"), copy=True)
            for shape in ((*left, rows, 40), (*right, 40, 50)))
    turned = left == (2, 5) and right == (5, 2)  # exchanged
    expected = (a.numpy().transpose(1, 0, 2, 3) if turned else a.numpy()).astype(np.float64) @ b.numpy()

    def multiplied(a: Any, b: Any) -> Any:
        return mo.maximum((mo.permute_dims(a, (1, 0, 2, 3)) if turned else a) @ b, -1.0)

    f = mo.compile((lambda a: multiplied(a, b)) if constant else multiplied)
    found = f(a) if constant else f(a, b)
    np.testing.assert_allclose(found.numpy(), np.maximum(expected, -1), rtol=1e-4, atol=1e-4)
    assert f.stats["copies"] == 0
    if constant:
        assert f.stats["prepared_bytes"] < 2.5 * b.nbytes + 4096  # panels are up to 96 columns wide


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 37])
@pytest.mark.parametrize("shapes", [((2, 3, 2), (2, 3, 1)), ((2, 3, 2), (1, 3, 2)), ((2, 1, 2, 3), (2, 3, 1, 3)),
                                    ((2, 3, 2, 2), (2, 3, 2, 2)), ((3, 2, 2), (2,))], ids=str)
def test_batches_of_several_axes_are_read_as_they_lie(rng: np.random.Generator, shapes: Any, rows: int,
                                                      constant: bool) -> None:
    """As grouped heads do: axes that repeat an operand, and others in another order than memory has them."""
    left, right = shapes
    order = (*range(1, len(left)), 0)  # the first axis is the fastest among batches
    back = tuple(order.index(axis) for axis in range(len(left)))
    a = rng.integers(-3, 4, (*(left[axis] for axis in order), rows, 40)).astype("f")
    b = rng.integers(-3, 4, (*right, 40, 50)).astype("f")
    axes = (*back, len(left), len(left) + 1)
    x, w = mo.asarray(a, copy=True), mo.asarray(b, copy=True)

    def multiplied(x: Any, w: Any) -> Any:
        return mo.maximum(mo.permute_dims(x, axes) @ w, -1.0)

    f = mo.compile((lambda x: multiplied(x, w)) if constant else multiplied)
    found = f(x) if constant else f(x, w)
    np.testing.assert_array_equal(found.numpy(), np.maximum(a.transpose(axes) @ b, -1))
    assert f.stats["copies"] == 0
    if constant:
        assert f.stats["prepared_bytes"] < 2.5 * w.nbytes + 4096


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64"])
@pytest.mark.parametrize("isa", ["native", "scalar", "vector256"])
def test_few_rows_of_integers_are_multiplied_as_they_lie(rng: np.random.Generator, dtype: str, isa: str) -> None:
    """By columns, streamed and turned, for columns of all widths; with something that follows."""
    info = np.iinfo(dtype)
    with thresholds.using(DEFAULT), mo.settings(isa=isa):
        f, follow = mo.compile(lambda x, y: x @ y), mo.compile(lambda x, y: mo.maximum(x @ y, 3))
        for m, k, n in ((1, 70, 1), (1, 9, 3), (3, 33, 5), (2, 40, 13), (5, 17, 29), (1, 300, 200)):
            a, b = (rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True) for shape in ((m, k), (k, n)))
            for y in (mo.asarray(b), mo.asarray(np.asfortranarray(b), copy=False)):
                np.testing.assert_array_equal(f(mo.asarray(a), y).numpy(), a @ b)
                assert f.stats["copies"] == 0 and (m > 1 or n > 29 or f.stats["products"]["unpacked"] == 1)
                np.testing.assert_array_equal(follow(mo.asarray(a), y).numpy(), np.maximum(a @ b, 3))


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("m", [0, 1, 5, 37])
def test_integers_wrap_whatever_their_layout(rng: np.random.Generator, dtype: str, m: int) -> None:
    """Transposed or not, with what follows in the same kernel, and for sizes that are not known."""
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True) for shape in ((m, 70), (70, 29)))
    expected = a @ b
    follow = mo.compile(lambda x, y: mo.maximum(x @ y, 3) - 1)
    dynamic = mo.compile(lambda x, y: x @ y, dynamic={"x": {0: mo.Dim("m", 0, 50)}})
    for x in (mo.asarray(a), mo.asarray(np.asfortranarray(a), copy=False)):
        for y in (mo.asarray(b), mo.asarray(np.asfortranarray(b), copy=False), mo.asarray(b[::-1].copy())[::-1]):
            for f in (mo.compile(lambda x, y: x @ y), dynamic):
                np.testing.assert_array_equal(f(x, y).numpy(), expected)
                assert f.stats["copies"] == 0 and f.stats["fallbacks"] == 0
            np.testing.assert_array_equal(follow(x, y).numpy(), np.maximum(expected, 3) - np.array(1, dtype))
            assert follow.stats["kernels"] <= 2 and follow.stats["copies"] == 0


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "int16", "int32", "int64"])
def test_batches_of_two_axes_in_other_dtypes(rng: np.random.Generator, dtype: str) -> None:
    a, b = (mo.asarray(rng.integers(-3, 4, shape)).astype(dtype).realise() for shape in ((5, 2, 9, 70), (2, 70, 33)))
    exact = a.astype("float64").numpy() @ b.astype("float64").numpy()
    f = mo.compile(lambda a, b: mo.matmul(a, b, dtype="int32" if dtype == "int8" else None))
    np.testing.assert_array_equal(f(a, b).astype("float64").numpy(), exact)
    assert f.stats["copies"] == 0


def test_two_batch_axes_of_unknown_size(rng: np.random.Generator) -> None:
    some, other = mo.Dim("some", 0, 7), mo.Dim("other", 1, 5)
    f = mo.compile(lambda a, b: a @ mo.permute_dims(b, (1, 0, 2, 3)), dynamic={"a": {0: some, 1: other},
                                                                              "b": {0: other, 1: some}})
    for m, n in ((3, 2), (1, 5), (7, 1), (0, 3)):
        a, b = (rng.standard_normal(shape).astype("f") for shape in ((m, n, 4, 30), (n, m, 30, 20)))
        found = f(mo.asarray(a), mo.asarray(b)).numpy()
        np.testing.assert_allclose(found, a @ b.transpose(1, 0, 2, 3), rtol=1e-4, atol=1e-4)
    assert f.stats["copies"] == 0


def test_few_rows_of_batches_with_one_matrix_are_one_product(rng: np.random.Generator) -> None:
    """The matrix would be read again for each batch; many rows of each are read as they lie."""
    w = mo.asarray(rng.standard_normal((24, 40), np.float32), copy=True)
    for rows, copies in ((2, 1), (40, 0)):
        x = mo.asarray(rng.standard_normal((3, rows, 5, 24), np.float32), copy=True)
        f = mo.compile(lambda x: mo.permute_dims(x, (0, 2, 1, 3)) @ w)
        np.testing.assert_allclose(f(x).numpy(), x.numpy().transpose(0, 2, 1, 3) @ w.numpy(), rtol=1e-4, atol=1e-5)
        assert f.stats["copies"] == copies
