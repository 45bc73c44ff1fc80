"""Sparse times dense by cuSPARSE under `fast`, over a fake of it: how operands are told to the library, who is asked,
and what stays ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_sparse import FakeSparse

import morpho as mo
from morpho.backends.cuda.vendor.sparse import Sparse
from morpho.backends.registry import backend_of

ROWS, COLUMNS = 30, 21


@pytest.fixture
def sparse(gpu: str) -> Iterator[Sparse]:
    backend: Any = backend_of(gpu)
    backend._sparse = Sparse(backend.gpu, FakeSparse())
    yield backend._sparse
    backend._sparse = None


def matrix(rng: np.random.Generator, dtype: str, index: Any) -> mo.sparse.CSR:
    dense = rng.standard_normal((ROWS, COLUMNS)) * (rng.random((ROWS, COLUMNS)) < 0.2)
    dense[7] = 0
    at = np.nonzero(dense)
    starts = np.r_[0, np.cumsum((dense != 0).sum(1))]
    return mo.sparse.csr(dense[at], at[1].astype(index), starts.astype(index), dense.shape).astype(dtype)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(("dtype", "bound"), [("bfloat16", 1e-2), ("float32", 1e-6), ("float64", 1e-14)])
def test_products_are_told_as_the_library_wants_them(gpu: str, sparse: Sparse, rng: np.random.Generator, dtype: str,
                                                     bound: float, index: Any) -> None:
    a = matrix(rng, dtype, index)
    x = mo.asarray(rng.standard_normal((COLUMNS, 5))).astype(dtype).realise()
    want = a.astype("float64").to_dense().numpy() @ x.astype("float64").numpy()
    before, device = len(backend_of(gpu).gpu.blocks), backend_of(gpu).gpu  # type: ignore[attr-defined]
    with mo.settings(fast=True):
        f = mo.compile(lambda a, x: a @ x)
        there, y = a.to(gpu), x.to(gpu)
        for found, wanted in ((f(there, y), want), (there @ y[:, 2], want[:, 2]),  # a column: its elements lie apart
                              (there @ x[:, 2].to(gpu), want[:, 2]), (there @ y[:, 1:4], want[:, 1:4])):
            got = found.realise().astype("float64").numpy()  # a cast that follows would be ours
            assert np.linalg.norm(got - wanted) <= bound * np.linalg.norm(wanted)
        assert "by cuSPARSE (fast)" in f.explain()
    assert sparse.calls == sparse.handle.streams == 4 and not sparse.handle.things
    del f, there, y, found
    assert len(device.blocks) <= before + 1  # the library's room goes back


def test_what_the_library_does_not_have_stays_ours(gpu: str, sparse: Sparse, rng: np.random.Generator) -> None:
    a, x = matrix(rng, "float32", np.int32), mo.asarray(rng.standard_normal((COLUMNS, 5)).astype("f"))
    there, y = a.to(gpu), x.to(gpu)
    own = (there @ y).numpy()
    assert sparse.calls == 0  # nobody said fast
    with mo.settings(fast=True):
        followed = mo.relu((there @ y) * 2).numpy()  # what follows is in our kernel
        assert followed.tobytes() == mo.relu((a @ x) * 2).numpy().tobytes()
        shortest = mo.sparse.matmul(there, y, semiring="min_plus").numpy()
        assert shortest.tobytes() == mo.sparse.matmul(a, x, semiring="min_plus").numpy().tobytes()
        whole = (there.astype("int32") @ y.astype("int32")).numpy()
        assert whole.tobytes() == (a.astype("int32") @ x.astype("int32")).numpy().tobytes()
        assert sparse.calls == 0
        sparse.handle.supports = False
        for _ in range(2):
            assert (there @ y).numpy().tobytes() == own.tobytes()
    assert sparse.calls == 0 and not sparse.handle.things


def test_a_status_of_the_library_is_a_sentence(gpu: str, sparse: Sparse, rng: np.random.Generator,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    there = matrix(rng, "float32", np.int32).to(gpu)
    monkeypatch.setattr(FakeSparse, "cusparseSpMM", lambda *given: 6)
    x = mo.ones((COLUMNS, 2)).to(gpu)
    with mo.settings(fast=True), pytest.raises(mo.errors.DeviceError, match="cusparseSpMM gave the status 6"):
        (there @ x).numpy()
    assert not sparse.handle.things
