"""The bits of sparse sums: the order of docs/numerics.md, for any number of threads, columns and instruction set."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo

sys.path.append(str(Path(__file__).resolve().parents[1] / "ops"))
import oracle

Array = Any


def matrix(rng: np.random.Generator, dtype: Any) -> mo.sparse.CSR:
    """Rows of every length from 0 on, and one of a thousand."""
    lengths = np.r_[np.arange(23), 1000, 3, 0]
    rng.shuffle(lengths)
    starts = np.r_[0, np.cumsum(lengths)]
    columns = np.concatenate([np.sort(rng.choice(1200, n, replace=False)) for n in lengths])
    data = rng.normal(size=starts[-1]).astype(dtype)
    return mo.sparse.csr(data, columns.astype(np.int32), starts.astype(np.int32), (len(lengths), 1200))


def four_chains(a: mo.sparse.CSR, x: Array) -> Array:
    """The rule, one product and sum at a time."""
    data, columns, starts = (part.numpy() for part in (a.data, a.indices, a.indptr))
    found = np.zeros((a.shape[0], x.shape[1]), data.dtype)
    for r in range(a.shape[0]):
        chains = [np.zeros(x.shape[1], data.dtype) for _ in range(4)]
        for i, j in enumerate(range(starts[r], starts[r + 1])):
            chains[i % 4] = oracle.fma(np.full(x.shape[1], data[j]), x[columns[j]], chains[i % 4]).astype(data.dtype)
        found[r] = (chains[0] + chains[2]) + (chains[1] + chains[3])
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_is_four_chains(dtype: Any, rng: np.random.Generator) -> None:
    a = matrix(rng, dtype)
    x = rng.normal(size=(1200, 3)).astype(dtype)
    want = four_chains(a, x)
    np.testing.assert_array_equal((a @ mo.asarray(x)).numpy(), want)
    for column in range(3):
        np.testing.assert_array_equal((a @ mo.asarray(x[:, column])).numpy(), want[:, column])


def test_bits_do_not_depend_on_threads_columns_or_instructions(rng: np.random.Generator) -> None:
    a = matrix(rng, np.float32)
    many = mo.sparse.CSR(mo.concat([a.data] * 40), mo.concat([a.indices] * 40),
                         mo.asarray(np.r_[0, np.cumsum(np.tile(np.diff(a.indptr.numpy()), 40))].astype(np.int32)),
                         (40 * a.shape[0], 1200))
    x = mo.asarray(rng.normal(size=(1200, 37)).astype(np.float32))
    y = mo.asarray(rng.normal(size=(many.shape[0], 37)).astype(np.float32))

    def all_of() -> list[Array]:
        return [each.numpy() for each in (many @ x, many @ x[:, 0], many.T @ y, many.sum(axis=1),
                                          mo.sparse.sddmm(many, y, x.T).data, (a @ many.T[:, :50]).data)]

    want = all_of()
    np.testing.assert_array_equal(want[0][:, 0], want[1])
    for options in ({"threads": 1}, {"threads": 3}, {"isa": "scalar"}):
        with mo.settings(**options):
            for found, wanted in zip(all_of(), want, strict=True):
                np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal((many @ x[:, :5]).numpy(), want[0][:, :5])
    np.testing.assert_array_equal((many[100:200] @ x).numpy(), want[0][100:200])
