"""Calls whose answers once differed from NumPy's or PyTorch's, or were refused: `morpho bench conformance` met them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError

A = np.array([[0.0, 3.0, 1.0], [4.0, 0.0, 2.0]], np.float32)
B, C = np.array([True, False, True]), np.array([[True], [False]])
UNEVEN = np.array([0.0, 1.0, 3.0], np.float32)
INTEGERS = np.array([[3, 1], [1, 2]])

# Calls of functions that NumPy has: the module is an argument, so that both make the same call.
NUMPY: list[Any] = [
    *[lambda m, name=name: getattr(m, name)(m.asarray(B), m.asarray(C)) for name in (
        "add", "multiply", "maximum", "minimum", "less", "less_equal", "greater", "greater_equal", "fmax", "fmin")],
    *[lambda m, name=name: getattr(m, name)(m.asarray(A), 2) for name in ("logical_and", "logical_or", "logical_xor")],
    lambda m: m.logical_not(3), lambda m: m.logical_not(m.asarray([1j, 0])), lambda m: m.square(m.asarray(B)),
    lambda m: m.where(m.asarray(A), 1, 2), lambda m: m.diff(m.asarray(B)),
    lambda m: m.outer(m.asarray(B), m.asarray(B)),
    lambda m: m.clip(m.asarray(B), m.asarray(C), None), lambda m: m.full((2, 2), m.asarray([1, 2])),
    lambda m: m.take(m.asarray(A), m.asarray([5, 2])), lambda m: m.take(m.asarray(7), m.asarray([0, 0]), axis=0),
    lambda m: m.reshape(m.asarray(A), (3, 2), order="F"), lambda m: m.reshape(m.asarray(A), (3, -1), order="F"),
    lambda m: m.ravel(m.asarray(A), order="F"), lambda m: m.asarray(A).reshape(3, 2, order="F"),
    lambda m: m.asarray(A).reshape((3, 2), order="F"), lambda m: m.asarray(A).ravel("F"),
    lambda m: m.asarray(A).flatten("F"), lambda m: m.stack(m.unravel_index(m.asarray([31, 41]), (7, 6), order="F")),
    lambda m: m.ravel_multi_index(m.asarray([[3, 6], [4, 5]]), (7, 6), order="F"),
    lambda m: m.ravel_multi_index(m.asarray([[3, 9], [4, 7]]), (7, 6), mode=("clip", "wrap")),
    lambda m: m.trim_zeros(m.asarray([[0, 0, 0], [0, 1, 2], [0, 0, 0]])), lambda m: m.trim_zeros(m.asarray([0, 1, 0])),
    lambda m: m.linalg.det(m.asarray(INTEGERS)), lambda m: m.linalg.solve(m.asarray(INTEGERS), m.asarray([9, 8])),
    lambda m: m.linalg.svdvals(m.asarray(INTEGERS)), lambda m: m.linalg.vector_norm(m.asarray(INTEGERS)),
    lambda m: m.linalg.matrix_rank(m.asarray(A), 4.0), lambda m: m.linalg.eigvalsh(m.asarray(INTEGERS), UPLO="U"),
    lambda m: m.linalg.cross(m.asarray(A), m.asarray(A[::-1].copy()), axis=1), lambda m: m.fft.fft(m.asarray(B)),
    lambda m: m.gradient(m.asarray(A), m.asarray(UNEVEN), axis=1, edge_order=2),
]


@pytest.mark.parametrize("call", NUMPY)
def test_calls_of_numpy(call: Any) -> None:
    got, wanted = call(mo).numpy(), np.asarray(call(np))
    assert got.shape == wanted.shape and got.dtype.kind == wanted.dtype.kind
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


L = np.array([[2, 0], [1 + 1j, 3]], np.complex64)
S = np.array([[1, 2j, 3], [0.5, 1 + 1j, 2]], np.complex64)
X4 = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)

# Calls of functions as PyTorch spells them, with the module and what makes a tensor of an array.
TORCH: list[Any] = [
    *[lambda m, t, args=args, name=name: getattr(m, name)(t(A), *args) for name in ("std_mean", "var_mean")
      for args in ((), (False,), (1, False), (1, True, True))],
    *[lambda m, t, name=name: getattr(m, name)(t(np.float32(2)), 0) for name in (
        "softmax", "log_softmax", "logsumexp", "logcumsumexp", "cummax")],
    lambda m, t: m.topk(t(np.float32(2)), 1, dim=0), lambda m, t: m.transpose(t(np.float32(2)), 0, 0),
    lambda m, t: m.kthvalue(t(np.float32(2)), 1), lambda m, t: m.cummax(t(A), 1), lambda m, t: m.squeeze(t(A), dim=0),
    lambda m, t: m.nanmedian(t(np.array([[1, np.nan, 3], [4, 5, 6]], np.float32)), dim=1),
    lambda m, t: m.unique_consecutive(t(INTEGERS[[0, 0, 1]]), return_counts=True, dim=0),
    lambda m, t: m.nonzero(t(A), as_tuple=False), lambda m, t: m.logspace(0, 2, 3, base=2.0, device="cpu"),
    lambda m, t: m.cholesky_inverse(t(L)), lambda m, t: m.cholesky_solve(t(L), t(L)), lambda m, t: m.logdet(t(L)),
    lambda m, t: m.istft(t(S.T.copy()), 3, 1), lambda m, t: m.constant_pad_nd(t(A), [1, 0], 5.0),
    lambda m, t: m.scatter_add(t(B), 0, t(np.array([1, 0])), t(B)),
    lambda m, t: m.diagonal_scatter(t(INTEGERS > 1), t(B[:2])),
    lambda m, t: m.cat([t(A), t(np.zeros(0, np.float32))], 1),
    lambda m, t: m.index_add(t(np.float32(2)), 0, t(np.array([0])), t(np.float32(3))),
    lambda m, t: m.scatter_reduce(t(A), 1, t(np.array([[0, 0]])), t(A), "amax", include_self=False),
    lambda m, t: m.linalg.matrix_norm(t(A[..., None]), 1, (0, 1), True),
    lambda m, t: m.linalg.solve_triangular(t(L), t(L), upper=False, left=False),
    lambda m, t: m.linalg.diagonal(t(A[None]), dim1=0, dim2=2),
    lambda m, t: m.nn.functional.conv1d(t(S[None]), t(S[:, :2, None].copy()), None, 2, 1),
    lambda m, t: m.nn.functional.avg_pool2d(t(X4), 3, 1, 1, False, True, 4),
    lambda m, t: m.nn.functional.adaptive_max_pool2d(t(X4), 2, True),
    lambda m, t: m.nn.functional.adaptive_avg_pool2d(t(X4), (None, 2)),
    lambda m, t: m.nn.functional.prelu(t(np.float32(-2)), t(np.array([0.5], np.float32))),
]


@pytest.mark.parametrize("call", TORCH)
def test_calls_of_pytorch(call: Any) -> None:
    torch = pytest.importorskip("torch")
    got, wanted = call(mo, mo.asarray), call(torch, torch.as_tensor)
    pairs = zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
    for one, other in pairs:
        assert tuple(one.shape) == tuple(other.shape) and one.numpy().dtype == other.numpy().dtype
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("call", "words"), [
    (lambda x: mo.std(x, 0, True), r"axis=0, correction=0.*axis=0, correction=1"),
    (lambda x: mo.var(x, False), r"correction=0\)"),
    (lambda x: mo.max(x, 1, True), r"axis=1, keepdims.*dim=1, keepdim"),
    (lambda x: mo.logspace(0, 1, 3, 2.0), "base=2.0"), (lambda x: mo.reshape(x, (3, 2), order="x"), "'C' or 'F'"),
    (lambda x: mo.addmv(mo.asarray([1, 2]), mo.asarray(INTEGERS), mo.asarray([1, 2]), beta=0.5), "fraction"),
])
def test_calls_that_the_two_libraries_answer_differently(call: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        call(mo.asarray(A))


def test_calls_that_numpy_answers_with_whole_numbers_or_not_at_all() -> None:
    assert mo.vander(mo.asarray([5, 25], dtype=mo.uint8), 3).tolist() == [[25, 5, 1], [625, 25, 1]]
    assert mo.sin(mo.zeros(2), where=True).tolist() == [0.0, 0.0]
    mask = mo.asarray([True, False, True])
    assert mo.nansum(mo.asarray([1.0, 2.0, 4.0]), 0, where=mask).item() == 5.0
    with pytest.raises(ArgumentError, match="leaves the other elements undefined"):
        mo.sin(mo.zeros(3), where=mask)
    for call in (lambda: mo.mean(mo.arange(4), dtype=mo.int64), lambda: mo.std(mo.arange(4), dtype="int32")):
        with pytest.raises(ArgumentError, match="holds no fractions"):
            call()
    with pytest.raises(ArgumentError, match=r"NumPy.*PyTorch"):
        mo.max(mo.ones(3), mo.asarray(0))
    with pytest.raises(ArgumentError, match=r"NumPy.*PyTorch"):
        mo.select(mo.ones((2, 2)), 0, 1)
