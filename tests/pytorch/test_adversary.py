"""Faults that random functions found: views in graphs of open sizes, tensors of no elements."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `torch`")

import morpho as mo  # noqa: E402
import morpho.torch  # noqa: E402

assert morpho.torch


def views(x: Any) -> Any:
    """Views whose arguments are sizes, and others."""
    n, m = x.shape
    return (x[1:], x.mT, x[:, 1:], x.expand(2, -1, -1), x.expand(n, n, m), x.diagonal(), x[n - 1:], x[:, m - 2:].mT,
            *x.chunk(2))


def write(x: Any) -> Any:
    x.mul_(2)
    return views(x)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(("function", "trains"), [
    (views, False), (views, True), (lambda x: views(x * 2), False), (lambda x: views(x * 2), True),
    (write, False)], ids=["input", "input trained", "result", "result trained", "written"])
def test_views_keep_their_place_in_memory(function: Callable[..., Any], trains: bool, dynamic: bool | None) -> None:
    """AOTAutograd makes outputs that alias from the strides and the offset of what the backend returns."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="morpho", dynamic=dynamic)
    for rows in (3, 4, 6):
        x = torch.arange(rows * 5.0).reshape(rows, 5)
        for source in (x, x.clone().mT.contiguous().mT, torch.cat((x, x))[rows:]):
            given, ours = (source.clone(memory_format=torch.preserve_format) for _ in range(2))
            if source.storage_offset():
                if function is write:  # AOTAutograd itself forgets the offset here, with every backend
                    continue
                given, ours = torch.cat((x, source))[rows:], torch.cat((x, source))[rows:]
            given.requires_grad_(trains), ours.requires_grad_(trains)
            for a, b in zip(compiled(ours), function(given), strict=True):
                assert torch.equal(a, b) and a.stride() == b.stride()
            assert torch.equal(ours, given)


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_view_of_the_argument_is_one(dynamic: bool | None) -> None:
    torch._dynamo.reset()
    x = torch.zeros(3, 4)
    torch.compile(lambda x: (x[1:, 2], x + 1), backend="morpho", dynamic=dynamic)(x)[0].add_(1)
    assert x.tolist() == [[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]


def test_sizes_that_are_functions_of_floats() -> None:
    """`scale_factor` makes sizes that are no polynomials: compiled for each size, not a NameError."""
    torch._dynamo.reset()
    f = torch.compile(lambda x: torch.nn.functional.interpolate(x, scale_factor=0.6), backend="morpho", dynamic=True)
    for n in (5, 8):
        x = torch.arange(2.0 * n).reshape(1, 2, n)
        assert torch.equal(f(x), torch.nn.functional.interpolate(x, scale_factor=0.6))


def test_sizes_that_a_compiled_function_cannot_solve_for() -> None:
    """The gradient of a transposed convolution of open sizes is compiled for each size."""
    torch._dynamo.reset()
    x, w = torch.ones(1, 2, 6, requires_grad=True), torch.ones(2, 1, 2, requires_grad=True)
    f = torch.compile(lambda x, w: torch.nn.functional.conv_transpose1d(x, w, None, 3, 1, 0, 2, 2), backend="morpho",
                      dynamic=True)
    f(x, w).square().sum().backward()
    expected = torch.autograd.grad(torch.nn.functional.conv_transpose1d(x, w, None, 3, 1, 0, 2, 2).square().sum(),
                      (x, w))
    assert torch.allclose(x.grad, expected[0]) and torch.allclose(w.grad, expected[1])


def test_a_tensor_of_no_elements_has_no_address() -> None:
    """Nor strides to speak of: programs read element 0 of what is the same along all axes, and ended the process."""
    for empty in (torch.from_numpy(np.zeros((0, 3), np.float32).copy()), torch.empty(0).as_strided((3, 0), (0, 0))):
        for found in (mo.from_dlpack(empty), mo.from_dlpack(empty, copy=True), mo.asarray(empty)):
            assert (found + 1).numpy().shape == tuple(empty.shape) and found.sum().item() == 0
        assert mo.to_torch(lambda x: x.sum())(empty).item() == 0


def test_views_and_parameters_are_read_by_their_value() -> None:
    """PyTorch's `__dlpack__` refuses them, or gives the memory of negated views: numbers of the wrong sign."""
    pairs = torch.tensor([1 + 2j, 3 - 4j])
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    assert pairs.conj().imag.is_neg()
    for take in (mo.from_dlpack, mo.asarray, mo.compile(lambda x: x * 1), lambda x: mo.asarray(x, copy=True)):
        assert take(pairs.conj().imag).tolist() == [-2.0, 4.0]
        assert take(pairs.conj()).tolist() == [1 - 2j, 3 + 4j]
        assert take(weight).tolist() == [1, 2] and take(weight.bfloat16()).dtype is mo.bfloat16
    assert (mo.ones(2) + weight).tolist() == [2, 3] and mo.asarray([weight, weight * 2]).tolist() == [[1, 2], [2, 4]]
    borrowed = mo.asarray(weight, copy=False)
    with torch.no_grad():
        weight.zero_()
    assert borrowed.tolist() == [0, 0] and mo.asarray(pairs[:, None], copy=False).shape == (2, 1)
    for view in (pairs.conj(), pairs.conj().imag):
        for take in (mo.from_dlpack, mo.asarray):
            with pytest.raises(BufferError, match="resolve_conj"):
                take(view, copy=False)


def test_tensors_without_plain_memory_are_refused_in_a_sentence() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        cases = [(fake, "no memory"), (torch.ones(2, device="meta"), "meta"), (nested, "nested.*to_padded_tensor"),
                 (torch.eye(2).to_sparse(), "sparse_coo.*to_dense"), (torch.eye(2).to_sparse_csr(), "sparse_csr"),
                 (torch.ones(2).to_mkldnn(), "to_dense"),
                 (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8), "quantised.*dequantize")]
    for tensor, words in cases:
        for take in (mo.from_dlpack, mo.asarray, lambda x: mo.ones(2) + x):
            with pytest.raises(mo.errors.MorphoError, match=words):
                take(tensor)
