"""Sparse times sparse against the dense product: shapes, row lengths, dtypes, faults, and the bits of every sum."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.machine import available_isas, machine

sys.path.append(str(Path(__file__).resolve().parents[1] / "ops"))
import oracle

Array = Any


def matrix(rng: np.random.Generator, lengths: Array, columns: int, dtype: Any, index: Any = np.int32,
           repeated: bool = False) -> mo.sparse.CSR:
    """Rows of these lengths, columns in no order; with `repeated` some stand in a row more than once."""
    starts = np.r_[0, np.cumsum(lengths)].astype(index)
    places = np.concatenate([rng.choice(columns, n, replace=repeated) for n in lengths] or [np.zeros(0, np.int64)])
    data = rng.integers(-4, 5, starts[-1]).astype(dtype)
    if np.dtype(dtype).kind == "c":
        data = data + (1j * rng.integers(-4, 5, starts[-1])).astype(dtype)
    return mo.sparse.csr(data, places.astype(index), starts, (len(lengths), columns))


def check(a: mo.sparse.CSR, b: mo.sparse.CSR) -> mo.sparse.CSR:
    """Whole numbers are exact; the columns of a row ascend, and none stands twice."""
    found = a @ b
    np.testing.assert_array_equal(found.to_dense().numpy(), a.to_dense().numpy() @ b.to_dense().numpy())
    columns, starts = found.indices.numpy(), found.indptr.numpy()
    for first, last in itertools.pairwise(starts):
        assert (np.diff(columns[first:last]) > 0).all()
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "complex64", "complex128"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_rows_of_every_length(dtype: str, index: Any, rng: np.random.Generator) -> None:
    """Empty rows, short ones that are ranked, and ones that are read from marks; columns repeated in a row."""
    a = matrix(rng, [0, 1, 3, 0, 40, 7, 90, 0], 90, dtype, index, repeated=True)
    b = matrix(rng, rng.integers(0, 40, 90), 700, dtype, index, repeated=True)
    lengths = np.diff(check(a, b).indptr.numpy())
    assert lengths.min() == 0 and lengths.max() > 256 and ((lengths > 0) & (lengths < 256)).any()


@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300])
def test_lengths_where_the_order_is_found_another_way(length: int, rng: np.random.Generator) -> None:
    """A row of a permutation of that many columns, of exactly that many and of more."""
    for columns in (length, 5000):
        check(matrix(rng, [1, 0, 1], 1, "float32"), matrix(rng, [length], columns, "float32"))


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(12))
def test_shapes_drawn_at_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, inner, columns = rng.integers(1, 60, 3)
    check(matrix(rng, rng.integers(0, inner + 1, rows), inner, "float64"),
          matrix(rng, rng.integers(0, columns + 1, inner), columns, "float64"))


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (2, 2, 2)])
def test_nothing_stored(shape: tuple[int, int, int]) -> None:
    a, b = (mo.sparse.csr(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(m + 1, np.int32), (m, n))
            for m, n in (shape[:2], shape[1:]))
    assert (a @ b).nnz == 0 and (a @ b).shape == (shape[0], shape[2])


def test_bits_are_those_of_one_chain_for_any_number_of_threads(rng: np.random.Generator) -> None:
    """The sum of an element is one chain of fma in the order of A's row; threads, pieces and instructions keep it."""
    lengths = rng.integers(0, 12, 400)
    numbers = [mo.asarray(rng.normal(size=lengths.sum()).astype(np.float32)) for _ in range(2)]
    a, b = (matrix(rng, lengths, 400, "float32").with_data(data) for data in numbers)
    (data, columns, starts), (values, others, rows) = ([part.numpy() for part in (x.data, x.indices, x.indptr)]
                                                       for x in (a, b))
    want = np.zeros((400, 400), np.float32)
    for r in range(400):
        for j in range(starts[r], starts[r + 1]):
            own = slice(rows[columns[j]], rows[columns[j] + 1])
            at = r, others[own]
            want[at] = oracle.fma(np.full(len(at[1]), data[j]), values[own], want[at])
    for options in (*[{"threads": n} for n in (1, 2, 3)], *[{"isa": name} for name in available_isas(machine())]):
        with mo.settings(**options):
            np.testing.assert_array_equal((a @ b).to_dense().numpy(), want)


def test_the_rows_are_counted_once(rng: np.random.Generator) -> None:
    """Asking for the number of elements computes all row starts, so that nobody counts again."""
    a = matrix(rng, rng.integers(0, 9, 50), 50, "float32")
    found = a @ a
    assert found.indptr.is_realised
