"""Scatters along a line on several threads, by runs of columns or ranges of targets, with the bits of one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.driver.threads import engine_statistics
from morpho.base.errors import IndexFault

Array = Any
LENGTH = 100_003  # enough to wake threads for, and no whole number of blocks or vectors


def added(index: Array, value: Array, size: int) -> Array:
    result = np.zeros(size, value.dtype)
    np.add.at(result, index, value)
    return result


def on_threads(function: Callable[..., Any], *given: Array, threads: tuple[int, ...] = (1, 2, 5), isa: str = "") -> Any:
    """The results, which all numbers of threads agree on; several threads share the kernel."""
    found = []
    for count in threads:
        with mo.settings(threads=count, **({"isa": isa} if isa else {})):
            run, before = mo.compile(function), engine_statistics()["shared_kernels"]
            result = run(*map(mo.asarray, given))
            found.append([one.numpy() for one in (result if isinstance(result, tuple) else (result,))])
            assert count == 1 or engine_statistics()["shared_kernels"] > before
    assert all([one.tobytes() for one in other] == [one.tobytes() for one in found[0]] for other in found)
    return found[0]


@pytest.mark.parametrize("order", ["sorted", "random", "nearly", "equal"])
def test_a_sparse_product(order: str, rng: np.random.Generator) -> None:
    rows = {"sorted": np.sort(rng.integers(0, 1900, LENGTH)), "random": rng.integers(0, 1900, LENGTH),
            "nearly": np.sort(rng.integers(0, 1899, LENGTH)), "equal": np.full(LENGTH, 411)}[order].astype(np.int32)
    if order == "nearly":
        rows[-2] = 1899
    values, x, columns = rng.normal(0, 1, LENGTH), rng.normal(0, 1, 50), rng.integers(-50, 50, LENGTH)
    (got,) = on_threads(lambda v, r, c, x: mo.segment_sum(v * mo.take(x, c), r, 1900), values, rows, columns, x)
    assert got.tobytes() == added(rows, values * x[columns], 1900).tobytes()


def test_indices_that_are_computed_and_shared(rng: np.random.Generator) -> None:
    x, weight = rng.random(LENGTH), rng.normal(0, 1, LENGTH)

    def histogram(x: mo.Tensor, weight: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        which = mo.minimum((x * 10).astype("int64"), 9)
        return mo.bincount(which, length=10), mo.bincount(which, weight, length=10)

    counts, weights = on_threads(histogram, x, weight)
    which = np.minimum((x * 10).astype(np.int64), 9)
    assert counts.tolist() == np.bincount(which, minlength=10).tolist()
    assert weights.tobytes() == added(which, weight, 10).tobytes()


def test_both_ends_of_edges(rng: np.random.Generator) -> None:
    """Two indices in one loop, and targets of two lengths; one of the indices ascends, both do, or neither."""
    flow, first, second = rng.random(LENGTH), rng.integers(0, 2000, LENGTH), rng.integers(0, 3000, LENGTH)
    for a, b in ((first, second), (np.sort(first), second), (np.sort(first), np.sort(second))):
        one, other = on_threads(lambda f, a, b: (mo.segment_sum(f * 2, a, 2000), mo.segment_sum(f * 2, b, 3000)),
                                flow, a, b)
        assert one.tobytes() == added(a, flow * 2, 2000).tobytes()
        assert other.tobytes() == added(b, flow * 2, 3000).tobytes()


@pytest.mark.parametrize("method", ["set", "add", "max", "multiply"])
def test_the_last_of_equal_indices_counts_last(method: str, rng: np.random.Generator) -> None:
    index, value = rng.integers(-40, 40, LENGTH), rng.integers(-3, 4, LENGTH).astype(np.int32)
    (got,) = on_threads(lambda i, v: getattr(mo.ones(40, dtype="int32").at[i], method)(v + 1), index, value)
    want, name = np.ones(40, np.int32), {"add": np.add, "max": np.maximum, "multiply": np.multiply}
    if method == "set":
        want[index] = value + 1
    else:
        name[method].at(want, index, value + 1)
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int32"])
@pytest.mark.parametrize("columns", [1, 5, 16])
def test_rows_of_a_few_columns(columns: int, dtype: str, rng: np.random.Generator) -> None:
    rows, points = rng.integers(0, 16, LENGTH), rng.normal(0, 9, (LENGTH, columns)).astype(dtype)
    (got,) = on_threads(lambda p, r: mo.segment_sum(p, r, 16), points, rows, threads=(1, 5))
    wide = np.float32 if dtype == "float16" else np.dtype(dtype)
    want = np.zeros((16, columns), wide)
    np.add.at(want, rows, points.astype(wide))
    assert got.tobytes() == want.astype(dtype).tobytes()
    rows[77] = -1
    with mo.settings(threads=5), pytest.raises(IndexFault):
        mo.compile(lambda p, r: mo.segment_sum(p, r, 16))(mo.asarray(points), mo.asarray(rows)).numpy()


@pytest.mark.parametrize("at", [0, 1500, LENGTH - 1])
def test_an_index_outside_is_an_error_of_every_thread(at: int, rng: np.random.Generator) -> None:
    rows = rng.integers(0, 9, LENGTH)
    rows[at] = 9
    with mo.settings(threads=2), pytest.raises(IndexFault):
        mo.compile(lambda v, r: mo.segment_sum(v * 2, r, 9))(mo.ones(LENGTH), mo.asarray(rows)).numpy()


@pytest.mark.parametrize("isa", ["scalar", "vector128"])
def test_without_masks_indices_are_looked_at_one_by_one(isa: str, rng: np.random.Generator) -> None:
    rows, values = rng.integers(0, 1900, LENGTH), rng.normal(0, 1, LENGTH)
    (got,) = on_threads(lambda v, r: mo.segment_sum(v * 2, r, 1900), values, rows, threads=(1, 5), isa=isa)
    on_threads(lambda v, r: mo.segment_sum(v * 2, r, 1900), values, np.sort(rows), threads=(1, 2), isa=isa)
    assert got.tobytes() == added(rows, values * 2, 1900).tobytes()
