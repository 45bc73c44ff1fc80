"""Patterns as others write them: columns out of order, places stored twice, formats that are built from."""

from __future__ import annotations

import numpy as np

import morpho as mo


def loose(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Parts of a CSR matrix of 7 x 5 with columns in any order and some places twice, and the dense one."""
    counts = rng.integers(0, 7, 7)
    starts = np.concatenate([[0], np.cumsum(counts)])
    columns, data = rng.integers(0, 5, starts[-1]), rng.integers(1, 9, starts[-1]).astype(np.float64)
    dense = np.zeros((7, 5))
    np.add.at(dense, (np.repeat(np.arange(7), counts), columns), data)
    return data, columns, starts, dense


def test_columns_in_any_order_and_places_twice(rng: np.random.Generator) -> None:
    for _ in range(6):
        data, columns, starts, dense = loose(rng)
        for a, expected in ((mo.sparse.csr(data, columns, starts, (7, 5)), dense),
                            (mo.sparse.csc(data, columns, starts, (5, 7)), dense.T)):
            assert np.array_equal(a.to_dense().numpy(), expected)
            assert a.nnz == np.count_nonzero(dense)
            assert a[0, 1].item() == expected[0, 1] and a[4, 4].item() == expected[4, 4]
            assert np.array_equal((a * a).to_dense().numpy(), expected * expected)
            assert np.array_equal((a > 2.5).to_dense().numpy(), expected > 2.5)
            assert np.isclose(mo.sparse.norm(a).item(), np.linalg.norm(expected))
            assert np.array_equal(a.max(axis=0).numpy(), expected.max(axis=0))
    whole = mo.sparse.eye(4)
    assert mo.sparse.csr(whole.data, whole.indices, whole.indptr, (4, 4)).indices is whole.indices  # in order: as it is


def test_operators_of_formats_that_are_built_from() -> None:
    """Those of the matrix, not of the tuple that holds its parts."""
    a = mo.sparse.coo([1.0, 2.0, 3.0], ([0, 1, 1], [1, 0, 0]), (2, 2))
    dense = np.array([[0.0, 1.0], [5.0, 0.0]])
    for one in (a, a.tocsr().tobsr((1, 1))):
        x = mo.asarray(np.array([1.0, 2.0], np.float32))
        assert np.array_equal((one @ x).numpy(), dense @ [1, 2]) and np.array_equal((x @ one).numpy(), [1, 2] @ dense)
        for found, expected in ((one + one, 2 * dense), (one - one * 2, -dense), (2 * one, 2 * dense), (-one, -dense),
                                (abs(-one), dense), (one / 2, dense / 2), (one > 2, dense > 2), (one != 0, dense != 0)):
            assert np.array_equal(found.to_dense().numpy(), expected)
        assert one[1, 0].item() == 5.0
