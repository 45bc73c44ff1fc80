"""Sparse matrices on the emulated GPU: the CPU's bits, by kernels of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.cuda.codegen import select
from morpho.backends.cuda.sparse.products import SpmmTeams, Team, team_for
from morpho.backends.registry import backend_of
from morpho.base.errors import IndexFault

ROWS, COLUMNS = 37, 90


def matrix(rng: np.random.Generator, dtype: Any = np.float32, index: Any = np.int32) -> mo.sparse.CSR:
    """Rows of every length from 0 on, and one of eighty."""
    lengths = np.r_[np.arange(ROWS - 2) % 23, 80, 0]
    rng.shuffle(lengths)
    columns = np.concatenate([np.sort(rng.choice(COLUMNS, n, replace=False)) for n in lengths])
    data = rng.normal(size=len(columns)) * 4
    return mo.sparse.csr(data.astype(dtype), columns.astype(index), np.r_[0, np.cumsum(lengths)].astype(index),
                         (ROWS, COLUMNS))


def same(there: Any, here: Any) -> None:
    assert there.device != "cpu" and there.numpy().tobytes() == here.numpy().tobytes()


@pytest.mark.parametrize(("dtype", "index"), [("float32", np.int32), ("float64", np.int64), ("bfloat16", np.int32),
                                              ("int32", np.int64)])
def test_products_have_the_cpus_bits(gpu: str, rng: np.random.Generator, dtype: str, index: Any) -> None:
    a = matrix(rng, index=index).astype(dtype)
    there = a.to(gpu)
    before = backend_of(gpu).host_steps  # type: ignore[attr-defined]
    for columns in (1, 3, 20, 70):
        x = mo.astype(mo.asarray((rng.normal(size=(COLUMNS, columns)) * 4).astype("f")), dtype).realise()
        same(there @ x.to(gpu), a @ x)
    same(there @ x.to(gpu)[:, 5], a @ x[:, 5])  # a column of a matrix: its elements lie apart
    assert backend_of(gpu).host_steps == before  # type: ignore[attr-defined]


@pytest.mark.parametrize("columns", [1, 6, 40])
def test_what_follows_a_product_is_its_epilogue(gpu: str, rng: np.random.Generator, columns: int,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    a = matrix(rng)
    kinds: list[Any] = []

    def chosen(step: Any, plain: Any = select.device_kernel) -> Any:
        kinds.append(plain(step))
        return kinds[-1]

    monkeypatch.setattr("morpho.backends.cuda.backend.device_kernel", chosen)
    x = mo.asarray(rng.normal(size=(COLUMNS, columns) if columns > 1 else COLUMNS).astype("f"))
    bias = mo.asarray(rng.normal(size=columns).astype("f"))
    f = mo.compile(lambda a, x, bias: mo.gelu((a @ x) * 0.5 + bias))
    same(f(a.to(gpu), x.to(gpu), bias.to(gpu)), f(a, x, bias))
    assert {type(kind) for kind in kinds} == {SpmmTeams} and all(kind.after is not None for kind in kinds)


@pytest.mark.parametrize("team", [Team(8, 1, True), Team(16, 2, False), Team(32, 1, False), Team(2, 1, True)])
def test_every_division_into_teams_has_the_same_bits(gpu: str, rng: np.random.Generator, team: Team,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    a, x = matrix(rng), mo.asarray(rng.normal(size=(COLUMNS, 11)).astype("f"))
    want = a @ x
    monkeypatch.setattr("morpho.backends.cuda.sparse.products.team_for", lambda columns: team)
    same(mo.compile(lambda a, x: a @ x)(a.to(gpu), x.to(gpu)), want)
    assert team_for(11) == Team(16, 1, False)


def test_reductions_samples_and_softmax(gpu: str, rng: np.random.Generator) -> None:
    a = matrix(rng)
    there = a.to(gpu)
    for how in ("sum", "max", "min", "mean"):
        same(getattr(there, how)(axis=1), getattr(a, how)(axis=1))
    same(mo.sparse.softmax(there).data, mo.sparse.softmax(a).data)
    x, y = (mo.asarray(rng.normal(size=shape).astype("f")) for shape in ((ROWS, 23), (23, COLUMNS)))
    same(mo.sparse.sddmm(there, x.to(gpu), y.to(gpu)).data, mo.sparse.sddmm(a, x, y).data)


@pytest.mark.parametrize("semiring", ["min_plus", "max_times", "max_min"])
def test_semirings(gpu: str, rng: np.random.Generator, semiring: str) -> None:
    a, x = matrix(rng), mo.asarray(rng.normal(size=(COLUMNS, 9)).astype("f"))
    for y in (x, x[:, 0]):
        same(mo.sparse.matmul(a.to(gpu), y.to(gpu), semiring=semiring), mo.sparse.matmul(a, y, semiring=semiring))
    yes, full = a.with_data(a.data > 0), x > 1
    same(mo.sparse.matmul(yes.to(gpu), full.to(gpu), semiring="or_and"), mo.sparse.matmul(yes, full, semiring="or_and"))


def test_turned_products_and_gradients(gpu: str, rng: np.random.Generator) -> None:
    a = matrix(rng)
    for columns in (1, 7):
        x = mo.asarray(rng.normal(size=(ROWS, columns)).astype("f"))
        same(a.to(gpu).T @ x.to(gpu), a.T @ x)

    def loss(data: Any, x: Any, a: Any) -> Any:
        return mo.sum((a.with_data(data) @ x) ** 2)

    x = mo.asarray(rng.normal(size=(COLUMNS, 5)).astype("f"))
    of = mo.grad(loss, argnums=(0, 1))
    for got, want in zip(of(a.to(gpu).data, x.to(gpu), a.to(gpu)), of(a.data, x, a), strict=True):
        same(got, want)


def test_two_sparse_matrices_and_a_solver(gpu: str) -> None:
    grid = mo.sparse.diags([4.0, -1.0, -1.0], [0, 1, -1], shape=(40, 40))
    there = grid.to(gpu)
    product, want = there @ there, grid @ grid
    for name in ("data", "indices", "indptr"):
        same(getattr(product, name), getattr(want, name))
    found, wanted = mo.sparse.cg(there, mo.ones(40, device=gpu)), mo.sparse.cg(grid, mo.ones(40))
    same(found.x, wanted.x)
    assert found.iterations.item() == wanted.iterations.item()


def test_a_wrong_index_is_told(gpu: str, rng: np.random.Generator) -> None:
    a = matrix(rng)
    indices = a.indices.numpy().copy()
    indices[7] = COLUMNS + 5
    wrong = mo.sparse.CSR(a.data, mo.asarray(indices), a.indptr, a.shape).to(gpu)
    for columns in (1, 40):
        with pytest.raises(IndexFault, match="outside"):
            (wrong @ mo.ones((COLUMNS, columns), device=gpu)).numpy()
    with pytest.raises(IndexFault, match="outside"):
        mo.sparse.sddmm(wrong, mo.ones((ROWS, 4), device=gpu), mo.ones((4, COLUMNS), device=gpu)).data.numpy()
    starts = a.indptr.numpy().copy()
    starts[3] = -1
    with pytest.raises(IndexFault, match="outside"):
        (mo.sparse.CSR(a.data, a.indices, mo.asarray(starts), a.shape).to(gpu) @ mo.ones(COLUMNS, device=gpu)).numpy()


def test_parts_sums_and_blocks_stay_on_the_device(gpu: str, rng: np.random.Generator) -> None:
    a = matrix(rng)
    there = a.to(gpu)
    for how in (lambda a: (a + a[:, ::1]).data, lambda a: a[3:9].data, lambda a: a[:, [1, 4, 2]].data,
                lambda a: a[5, 6],
                lambda a: (a * mo.full((COLUMNS,), 2.0)).data, lambda a: a.to_dense(), lambda a: a.diagonal(),
                lambda a: a.sum(axis=0), lambda a: a.T.tocsr().data, lambda a: mo.sparse.norm(a),
                lambda a: a.tocoo().tocsr().data):
        same(how(there), how(a))
