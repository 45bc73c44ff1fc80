"""Sparse matrices against dense ones in NumPy: products, elements, sums, slices, formats, einsum, trees."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.kernels.generators import generate
from morpho.backends.kernels.sparse.kernels import SpmmKernel
from morpho.base.errors import ArgumentError, CompileError, DTypeError, IndexFault, ShapeError
from morpho.base.machine import foreign_machine
from morpho.base.target import target_for
from morpho.sparse import CSC, CSR

Array = Any


def drawn(rng: np.random.Generator, rows: int, columns: int, density: float = 0.3, dtype: Any = np.float64) -> Array:
    """A dense matrix of which most is zero; one row, where there are several, has nothing."""
    dense = rng.integers(1, 9, (rows, columns)) * (rng.random((rows, columns)) < density)
    if np.dtype(dtype).kind == "c":
        dense = dense * (1 + 2j)
    if rows > 2:
        dense[1] = 0
    return dense.astype(dtype)


def same(found: Any, want: Array, tolerance: float = 1e-12) -> None:
    dense = found.to_dense() if mo.sparse.is_sparse(found) else found
    assert tuple(dense.shape) == np.shape(want)
    np.testing.assert_allclose(dense.numpy(), want, rtol=tolerance, atol=tolerance)


@pytest.fixture
def pair(rng: np.random.Generator) -> tuple[CSR, Array]:
    dense = drawn(rng, 13, 9)
    return mo.sparse.from_dense(dense), dense


# -- products ----------------------------------------------------------------------------------------------------------
@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_products_with_dense_operands(dtype: str, index: str, rng: np.random.Generator) -> None:
    dense = drawn(rng, 21, 17, dtype=dtype)
    a = mo.sparse.from_dense(dense, index_dtype=index)
    assert a.indices.dtype == index and a.indptr.dtype == index and a.dtype == dtype
    for columns in (None, 1, 2, 3, 16, 37, 70):
        shape = (17,) if columns is None else (17, columns)
        x, y = (rng.integers(-4, 5, s).astype(dtype) for s in (shape, (21, *shape[1:])))
        same(a @ mo.asarray(x), dense @ x)
        same(a.T @ mo.asarray(y), dense.T @ y)
        same(a.tocsc() @ mo.asarray(x), dense @ x)
        same(mo.asarray(y.T) @ a, y.T @ dense)
        same(y.T @ a, y.T @ dense)  # a NumPy array on the left


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_floats_add_up_in_float32(dtype: str, rng: np.random.Generator) -> None:
    dense = drawn(rng, 40, 64, 0.9, np.float32)
    a = mo.sparse.from_dense(mo.asarray(dense).astype(dtype))
    x = mo.ones(64, dtype=dtype)
    assert (a @ x).dtype == dtype
    np.testing.assert_array_equal((a @ x).astype("float32").numpy(), mo.asarray(dense.sum(1)).astype(dtype).astype(
        "float32").numpy())


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64", "complex128"])
def test_products_of_sparse_matrices(dtype: str, rng: np.random.Generator) -> None:
    x, y = drawn(rng, 15, 300, 0.1, dtype), drawn(rng, 300, 220, 0.05, dtype)
    a, b = mo.sparse.from_dense(x), mo.sparse.from_dense(y)
    for left in (a, a.tocsc()):
        for right in (b, b.tocsc()):
            same(left @ right, x @ y)
    product = a @ b
    assert isinstance(product, CSR) and isinstance(a.tocsc() @ b.tocsc(), CSC)
    rows = product.rows().numpy()
    assert np.all(np.diff(rows * 220 + product.indices.numpy()) > 0), "columns are in order, none twice"


def test_a_product_of_long_rows_and_many_columns_is_right(rng: np.random.Generator) -> None:
    x = drawn(rng, 3, 9000, 0.4, np.float32)
    y = drawn(rng, 9000, 4200, 0.001, np.float32)
    same(mo.sparse.from_dense(x) @ mo.sparse.from_dense(y), x @ y)


@pytest.mark.parametrize("name", ["min_plus", "max_plus", "max_times", "max_min", "min_max"])
def test_semirings(name: str, pair: tuple[CSR, Array], rng: np.random.Generator) -> None:
    a, dense = pair
    x = rng.normal(0, 3, (9, 5))
    plus = {"min": np.min, "max": np.max}[name[:3]]
    times = {"plus": np.add, "times": np.multiply, "min": np.minimum, "max": np.maximum}[name[4:]]
    terms = times(dense[:, :, None], x[None])
    empty = np.inf if plus is np.min else -np.inf
    want = plus(np.where(dense[:, :, None] != 0, terms, empty), axis=1)
    np.testing.assert_array_equal(mo.sparse.matmul(a, mo.asarray(x), semiring=name).numpy(), want)
    bools = a.with_data(a.data != 0)
    some = rng.random(9) < 0.4
    np.testing.assert_array_equal(mo.sparse.matmul(bools, mo.asarray(some), semiring="or_and").numpy(),
                                  (dense != 0) @ some)


def test_products_sampled_at_a_pattern(pair: tuple[CSR, Array], rng: np.random.Generator) -> None:
    a, dense = pair
    for inner in (1, 4, 6):
        x, y = rng.normal(size=(13, inner)), rng.normal(size=(inner, 9))
        for pattern in (a, a.tocsc()):
            same(mo.sparse.sddmm(pattern, x, y), (dense != 0) * (x @ y))
        same(mo.sparse.sddmm(a, x + 1j, y - 2j), (dense != 0) * ((x + 1j) @ (y - 2j)))


# -- elements ----------------------------------------------------------------------------------------------------------
def test_sums_products_and_comparisons(pair: tuple[CSR, Array], rng: np.random.Generator) -> None:
    a, x = pair
    y = drawn(rng, 13, 9)
    b = mo.sparse.from_dense(y)
    for left, right in ((a, b), (a.tocsc(), b.tocsc()), (a, b.tocsc())):
        same(left + right, x + y)
        same(left - right, x - y)
        same(left * right, x * y)
        same(left != right, x != y)
        same(left < right, x < y)
        same(left > right, x > y)
    same(a * 2, x * 2)
    same(3 * a / 4, 3 * x / 4)
    same(-abs(-a), -x)
    row, column = rng.normal(size=9), rng.normal(size=(13, 1))
    same(a * row, x * row)
    same(column * a, column * x)
    same(a / (column + 9), x / (column + 9))
    same(a * mo.asarray(y), x * y)
    same(a + y, x + y)
    same(y - a, y - x)
    same(a > 3, x > 3)
    same(a * a, x * x)
    assert (a + a).indices is a.indices, "the same pattern is not computed again"


def test_what_would_fill_the_matrix_is_refused(pair: tuple[CSR, Array]) -> None:
    a, _ = pair
    for bad in (lambda: a + 1, lambda: 1 - a, lambda: a == a.tocsc(), lambda: a <= a.tocsc(), lambda: a < 3,
                lambda: a / a):
        with pytest.raises(ArgumentError):
            bad()


def test_reductions_norms_and_softmax(pair: tuple[CSR, Array]) -> None:
    a, x = pair
    for b in (a, a.tocsc()):
        same(b.sum(), x.sum())
        same(b.mean(axis=1), x.mean(1))
        for axis in (0, 1):
            same(b.sum(axis=axis), x.sum(axis))
            same(b.max(axis=axis), x.max(axis))
            same((-b).min(axis=axis), (-x).min(axis))
        for order in ("fro", 1, -1, np.inf, -np.inf):
            same(mo.sparse.norm(b, ord=order), np.linalg.norm(x, order))
        for offset in (-20, -4, 0, 3, 20):
            same(mo.sparse.diagonal(b, offset=offset), np.diag(x, offset))
    z = (-a).max(axis=1)
    same(z, (-x).max(1))  # zeros that are not stored count
    inf = np.where(x != 0, x, -np.inf)
    raised = np.exp(inf - np.maximum(inf.max(1), -1e9)[:, None])
    total = raised.sum(1, keepdims=True)
    same(mo.sparse.softmax(a), raised / np.where(total == 0, 1, total))
    same(mo.sparse.softmax(a.T, axis=0), (raised / np.where(total == 0, 1, total)).T)


def test_parts(pair: tuple[CSR, Array]) -> None:
    a, x = pair
    keys: list[Any] = [3, -1, slice(3, 9), slice(None), slice(9, 3), slice(None, None, 2), [4, 1, 1], [], (3, 4),
                       (slice(2, 7), slice(1, 6)), (slice(None), [5, 2, 2]), (slice(None), 3), (2, slice(1, 4)),
                       x.sum(1) > 5, ([1, 2], slice(None, None, -1))]
    for key in keys:
        same(a[key], x[key])
        same(a.tocsc()[key], x[key])
    for bad in (20, (0, 20), "a", ([0], [1.5]), (0, 1, 2)):
        with pytest.raises((IndexFault, ShapeError)):
            a[bad]


# -- formats -----------------------------------------------------------------------------------------------------------
def test_formats(rng: np.random.Generator) -> None:
    x = drawn(rng, 12, 8)
    a = mo.sparse.from_dense(x)
    for b in (a.tocsc(), a.tocoo(), a.tobsr((3, 4)), a.tobsr((1, 8)), a.tobsr((12, 1)), a.tocsc().tocsr()):
        same(b, x)
        same(b.tocsr(), x)
    vectors = rng.normal(size=(8, 3))
    same(a.tobsr((3, 4)) @ vectors, x @ vectors)
    same(a.tobsr((3, 4)) @ vectors[:, 0], x @ vectors[:, 0])
    assert a.T.T.data is a.data and a.T.indices is a.indices, "a transpose is free"
    twice = mo.sparse.coo([1.0, 2.0, 4.0], ([0, 2, 2], [1, 0, 0]), (3, 2))
    same(twice, [[0, 1], [0, 0], [6, 0]])
    assert twice.tocsr().nnz == 2
    same(mo.sparse.eye(2, 3), np.eye(2, 3))
    same(mo.sparse.from_dense(np.zeros((0, 3))), np.zeros((0, 3)))
    same(mo.sparse.from_dense(np.zeros((3, 2))) @ np.ones(2), np.zeros(3))
    bands = mo.sparse.diags([np.arange(1.0, 5), 2.0], [0, -1])
    same(bands, np.diag(np.arange(1.0, 5)) + np.diag([2.0] * 3, -1))
    assert repr(a) == f"CSR(12 x 8, {a.nnz} stored, float64)"


@pytest.mark.parametrize(("parts", "said"), [
    (([1.0], [5], [0, 1], (1, 3)), "column 5 is out of range for 3 columns"),
    (([1.0], [-1], [0, 1], (1, 3)), "column -1 is out of range"),
    (([1.0], [0], [0, 2], (1, 3)), "does not rise from 0 to the 1 elements"),
    (([1.0, 2.0], [0, 1], [0, 2, 1, 2], (3, 3)), "does not rise"),
    (([1.0], [0], [0, 1], (2, 3)), "one more"),
    (([1.0, 2.0], [0], [0, 1], (1, 3)), "numbers for"),
    (([1.0], [0.5], [0, 1], (1, 3)), "not integers"),
    (([1.0], [0], [0, 1], (1,)), "not that of a matrix"),
    (([1.0], [0], [0, 1], (-1, 3)), "negative size"),
])
def test_wrong_parts_are_told(parts: Any, said: str) -> None:
    with pytest.raises((IndexFault, ShapeError, DTypeError), match=said):
        mo.sparse.csr(*parts)


def test_a_kernel_checks_what_nobody_could_before() -> None:
    a = mo.sparse.eye(3)
    run = mo.compile(lambda a, x: a @ x)
    x = mo.ones(3)
    assert run(a, x).tolist() == [1, 1, 1]
    for columns in (1, 40):
        wide = mo.ones((3, columns))
        with pytest.raises(IndexFault):
            run(CSR(a.data, mo.asarray(np.array([0, 7, 1], np.int32)), a.indptr, (3, 3)), wide)
        with pytest.raises(IndexFault):
            run(CSR(a.data, mo.asarray(np.array([0, -2, 1], np.int32)), a.indptr, (3, 3)), wide)
        for starts in ([0, 9, 2, 3], [-5, 1, 2, 3], [0, 2, 1, 3], [0, 1, 2, 1 << 30]):
            with pytest.raises(IndexFault):
                run(CSR(a.data, a.indices, mo.asarray(np.array(starts, np.int32)), (3, 3)), wide)
    bad = CSR(a.data, mo.asarray(np.array([0, 7, 1], np.int32)), a.indptr, (3, 3))
    for product in (lambda: bad.T @ x, lambda: bad @ a, lambda: a @ bad, lambda: mo.sparse.sddmm(bad, mo.ones((3, 2)),
                    mo.ones((2, 3))).data, lambda: mo.sparse.solve_triangular(bad, x)):
        with pytest.raises(IndexFault):
            found = product()
            (found.data if mo.sparse.is_sparse(found) else found).numpy()


# -- einsum ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("subscripts", [
    "ij,jk->ik", "ij,jk->ki", "ij,kj->ik", "ij,j->i", "ij,i->j", "ij,ij->", "ij,ij->i", "ij,ij->ij", "ij,ji->ij",
    "ij->j", "ij->ji", "ij->", "ij,i,j->", "ij,ik,jk->ij", "ij,ik,kj->ji", "ij,jkl->ikl", "ij,jk,kl->il", "ij,jk->j",
    "ij,j", "ij,ik,jl->kl",
])
def test_einsum_with_one_sparse_operand(subscripts: str, rng: np.random.Generator) -> None:
    sizes = {"i": 6, "j": 5, "k": 4, "l": 3}
    terms = subscripts.partition("->")[0].split(",")
    dense = [rng.normal(size=[sizes[c] for c in term]) for term in terms]
    dense[0] = drawn(rng, 6, 5)
    want = np.einsum(subscripts, *dense)
    for a in (mo.sparse.from_dense(dense[0]), mo.sparse.from_dense(dense[0]).tocsc()):
        same(mo.sparse.einsum(subscripts, a, *dense[1:]), want)


def test_einsum_with_two_sparse_operands(rng: np.random.Generator) -> None:
    x, y, z = drawn(rng, 6, 5), drawn(rng, 5, 4), drawn(rng, 6, 5)
    a, b, c = (mo.sparse.from_dense(each) for each in (x, y, z))
    same(mo.sparse.einsum("ij,jk->ik", a, b), x @ y)
    same(mo.sparse.einsum("ij,kj->ik", a, b.T), x @ y)
    same(mo.sparse.einsum("ij,ij->ij", a, c), x * z)
    same(mo.sparse.einsum("ij,jk,k->i", a, b, np.ones(4)), x @ y @ np.ones(4))
    same(mo.sparse.einsum("ii->i", mo.sparse.from_dense(x[:5])), np.diag(x[:5]))
    for bad in ("ij,kl->ijkl", "ij,ik->ijk"):
        with pytest.raises(ArgumentError):
            mo.sparse.einsum(bad, a, c)
    for bad in ("ij", "ij,j->z", "i.j,j", "ijk,j"):
        with pytest.raises((ArgumentError, ShapeError)):
            mo.sparse.einsum(bad, a, np.ones(5))


# -- trees, programs, gradients ----------------------------------------------------------------------------------------
def test_a_matrix_is_an_argument_and_a_result_of_compile(pair: tuple[CSR, Array], rng: np.random.Generator) -> None:
    a, x = pair

    @mo.compile
    def layer(a: CSR, v: Any, bias: Any) -> Any:
        return mo.relu((a @ v) * 2 + bias), a * 3

    for columns in (1, 6):
        v, bias = rng.normal(size=(9, columns)), rng.normal(size=columns)
        out, scaled = layer(a, mo.asarray(v), mo.asarray(bias))
        same(out, np.maximum(x @ v * 2 + bias, 0))
        assert isinstance(scaled, CSR)
        same(scaled, x * 3)
    assert layer.stats["host_steps"] == 0
    labels = str(layer.explain())
    assert "spmm+multiply+add+maximum" in labels, labels
    one = mo.compile(lambda a, v: mo.exp(a @ v))
    same(one(a, mo.ones(9, dtype=mo.float64)), np.exp(x.sum(1)))
    assert one.stats["kernels"] == 1 and "spmv+exp" in str(one.explain())


def test_an_epilogue_has_the_bits_of_its_steps(rng: np.random.Generator) -> None:
    a = mo.sparse.from_dense(drawn(rng, 500, 300, 0.1, np.float32))
    x, bias = (mo.asarray(rng.normal(size=s).astype(np.float32)) for s in ((300, 19), (19,)))
    product = (a @ x).realise()
    apart = mo.gelu(product * 0.5 + bias).numpy()
    fused = mo.compile(lambda a, x, bias: mo.gelu((a @ x) * 0.5 + bias))
    np.testing.assert_array_equal(fused(a, x, bias).numpy(), apart)
    assert fused.stats["kernels"] == 1


def test_what_depends_on_values_is_refused_inside_compile() -> None:
    a = mo.sparse.eye(3)
    for function in (lambda a: a @ a, lambda a: a + a.tocsc(), lambda a: a[1:2]):
        with pytest.raises(CompileError, match="depends on the values"):
            mo.compile(function)(a)


def test_gradients_of_values_and_dense_operands(pair: tuple[CSR, Array], rng: np.random.Generator) -> None:
    a, x = pair
    v, rows, columns = rng.normal(size=(9, 3)), a.rows().numpy(), a.indices.numpy()

    def loss(data: Any, v: Any) -> Any:
        return mo.sum((a.with_data(data) @ v) ** 2)

    for function in (mo.grad(loss, argnums=(0, 1)), mo.compile(mo.grad(loss, argnums=(0, 1)))):
        of_data, of_v = function(a.data, mo.asarray(v))
        ct = 2 * (x @ v)
        np.testing.assert_allclose(of_data.numpy(), np.sum(ct[rows] * v[columns], axis=1), rtol=1e-12)
        np.testing.assert_allclose(of_v.numpy(), x.T @ ct, rtol=1e-12)
    soft = mo.grad(lambda d: mo.sum(mo.sparse.softmax(a.with_data(d)).data ** 2))(a.data)
    step = 1e-6
    for place in (0, a.nnz // 2):
        moved = [float(mo.sum(mo.sparse.softmax(a.with_data(a.data + sign * step * mo.asarray(
            np.eye(a.nnz)[place]))).data ** 2)) for sign in (1, -1)]
        assert abs((moved[0] - moved[1]) / (2 * step) - float(soft[place])) < 1e-7
    b = mo.sparse.from_dense(drawn(rng, 9, 7))
    slope = mo.grad(lambda d, e: mo.sum((a.with_data(d) @ b.with_data(e)).data ** 2), argnums=(0, 1))(a.data, b.data)
    y = b.to_dense().numpy()
    full = 2 * (x @ y) @ y.T
    np.testing.assert_allclose(slope[0].numpy(), full[rows, columns], rtol=1e-12)
    full = x.T @ (2 * (x @ y))
    np.testing.assert_allclose(slope[1].numpy(), full[b.rows().numpy(), b.indices.numpy()], rtol=1e-12)


def test_vmap_has_the_bits_of_rows(rng: np.random.Generator) -> None:
    a = mo.sparse.from_dense(drawn(rng, 60, 50, 0.5, np.float32))
    x = mo.asarray(rng.normal(size=(5, 50)).astype(np.float32))
    batch = mo.vmap(lambda v: a @ v)(x).numpy()
    for row, one in zip(x, batch, strict=True):
        np.testing.assert_array_equal((a @ row).numpy(), one)
    same(mo.vmap(lambda d: a.with_data(d) @ x[0])(mo.stack([a.data, 2 * a.data])),
         np.stack([(a @ x[0]).numpy(), 2 * (a @ x[0]).numpy()]))


def test_parts_go_through_dlpack(pair: tuple[CSR, Array]) -> None:
    a, x = pair
    parts = [np.from_dlpack(part) for part in (a.data, a.indices, a.indptr)]
    same(mo.sparse.csr(*parts, a.shape, copy=False), x)


def test_scipy_shares_memory(pair: tuple[CSR, Array]) -> None:
    scipy = pytest.importorskip("scipy.sparse", reason="the matrices of another library")
    a, x = pair
    theirs = a.to_scipy()
    assert np.shares_memory(theirs.data, a.data.numpy())
    np.testing.assert_array_equal(theirs.toarray(), x)
    for kind in ("csr", "csc", "coo", "bsr", "lil"):
        other = scipy.csr_array(x).asformat(kind)
        same(mo.sparse.from_scipy(other), x)
    borrowed = mo.sparse.from_scipy(scipy.csr_array(x), copy=False)
    same(borrowed, x)
    for ours in (a.tocsc(), a.tocoo()):
        np.testing.assert_array_equal(ours.to_scipy().toarray(), x)


def test_other_libraries_names_have_a_hint(pair: tuple[CSR, Array]) -> None:
    with pytest.raises(ArgumentError, match=r"to_dense\(\)\.numpy\(\)"):
        np.asarray(pair[0])
    for name, word in (("todense", "to_dense"), ("toarray", "to_dense"), ("crow_indices", "indptr")):
        with pytest.raises(AttributeError, match=f"Hint: use {word}"):
            getattr(pair[0], name)
    assert not hasattr(pair[0], "nothing_of_the_kind")


def test_elements_at_places_as_numpy_has_them(pair: tuple[CSR, Array], rng: np.random.Generator) -> None:
    """A number beside rows, two lists, a mask of the whole matrix: what each of NumPy's gives, of CSR and of CSC."""
    a, x = pair
    rows, columns = [0, 4, -1, 4], [1, 0, 2, 0]
    keys: list[Any] = [(slice(2, 7), 3), ([4, 1, 1], -1), (slice(None, None, -2), 0), (3, [1, 0]), (rows, columns),
                       (rows, [1]), (np.array(rows), np.array(columns)), rng.random(x.shape) < 0.5]
    for matrix in (a, a.tocsc(), a.tocoo()):
        for key in keys:
            same(matrix[key], x[key])
    with pytest.raises(ShapeError, match="2 rows and 3 columns are no pairs"):
        a[[0, 1], [0, 1, 2]]
    with pytest.raises(ShapeError, match="for a matrix of shape"):
        a[np.ones((2, 2), bool)]


def test_parts_of_a_mask(pair: tuple[CSR, Array]) -> None:
    a, x = pair
    for matrix in (a > 0, (a > 0).tocsc()):
        assert matrix[[3, 0, 0]].dtype == mo.bool
        for key in ([3, 0, 0], (slice(None), [1, 1]), slice(None, None, -1), (slice(1, 4), 2), (2, 1)):
            same(matrix[key], (x > 0)[key])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32"])
def test_sums_of_small_integers_have_64_bits(dtype: str) -> None:
    dense = np.full((3, 200), np.iinfo(dtype).max, dtype)
    for matrix in (mo.sparse.from_dense(dense), mo.sparse.from_dense(dense).tocsc()):
        for axis in (None, 0, 1):
            found = matrix.sum(axis=axis).numpy()
            assert found.dtype == dense.sum(axis=axis).dtype and (found == dense.sum(axis=axis)).all()


def test_blocks_of_complex_numbers_and_semirings(rng: np.random.Generator) -> None:
    dense = np.round(rng.normal(size=(4, 6)) * 2) + 1j * np.round(rng.normal(size=(4, 6)) * 2)
    blocks = mo.sparse.from_dense(dense).tobsr((2, 3))
    for right in (np.arange(6.0), dense.T):
        assert np.allclose((blocks @ mo.asarray(right)).numpy(), dense @ right)
    real = mo.sparse.from_dense(dense.real).tobsr((2, 3))
    assert np.allclose((real @ mo.asarray(dense.T)).numpy(), dense.real @ dense.T)
    with pytest.raises(ArgumentError, match="in blocks has no product by semiring min_plus"):
        mo.sparse.matmul(real, mo.ones(6, dtype="float64"), semiring="min_plus")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
                                   "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_every_format_holds_every_dtype(dtype: str) -> None:
    x = np.array([[1, 0, 2, 0], [0, 3, 0, 0], [0, 0, 0, 1], [2, 0, 0, 1]])
    for index in ("int32", "int64"):
        a = mo.sparse.from_dense(mo.asarray(x).astype(dtype), index_dtype=index)
        for matrix in (a, a.tocsc(), a.tocoo(), a.tobsr((2, 2))):
            product = matrix @ mo.ones(4).astype(dtype)
            assert product.dtype == dtype and matrix.dtype == dtype and matrix.to_dense().dtype == dtype
            assert np.array_equal(product.astype("complex128").numpy(), x.sum(axis=1))
            assert np.array_equal(matrix.to_dense().astype("complex128").numpy(), x)


@pytest.mark.parametrize("columns", [None, 1, 3, 40])
def test_work_is_pieces_of_rows_and_elements_and_in_vectors(columns: int | None, rng: np.random.Generator) -> None:
    """One row of all elements is as many pieces as even rows, so that no thread waits for it; its loops are vectors."""
    rows, count = 3000, 9000
    even = np.arange(0, count + 1, 3)
    lone = np.where(np.arange(rows + 1) > 7, count, 0)
    x = rng.normal(size=count if columns is None else (count, columns)).astype(np.float32)
    indices, found = np.arange(count), []
    for starts in (even, lone):
        a = mo.sparse.csr(rng.normal(size=count).astype(np.float32), indices, starts, (rows, count))
        run = mo.compile(lambda a, x: a @ x)
        want = np.zeros((rows, *x.shape[1:]))
        np.add.at(want, np.repeat(np.arange(rows), np.diff(starts)), (a.data.numpy() * x[indices].T).T)
        np.testing.assert_allclose(run(a, mo.asarray(x)).numpy(), want, atol=1e-3)
        (step,) = run.current.plan.program.steps
        found.append(step.rows)
    assert found[0] == found[1] == -(-(rows + count) // 1024)
    kernel = SpmmKernel(mo.float32, mo.int32, mo.int32, single=columns is None)
    text = generate(kernel, target_for("avx2", machine=foreign_machine("x86_64")).isa, "kernel")
    assert re.search(r"load <\d+ x float>" if columns else r"<\d+ x i32>", text)
