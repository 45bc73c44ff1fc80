"""What PyTorch's operation database found in other dtypes than float32, and at infinities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `torch`")

import morpho.torch  # noqa: E402
from morpho.base.errors import DTypeError, fail  # noqa: E402
from morpho.torch.aten.table import TABLE, Entry  # noqa: E402

F = torch.nn.functional
INF = float("inf")
pytestmark = pytest.mark.filterwarnings("ignore")


def compared(function: Callable[..., Any], *tensors: Any, tolerance: float = 1e-6) -> None:
    """The compiled function gives eager's values and dtypes, infinities and NaN among them."""
    torch._dynamo.reset()
    morpho.torch.reset()
    expected = function(*tensors)
    found = torch.compile(function, backend="morpho")(*tensors)
    if isinstance(expected, torch.Tensor):
        found, expected = (found,), (expected,)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_limits() -> None:
    """Of functions that eager PyTorch computes as a product with 0 at an infinity, so that it is NaN, the limit."""
    ends = torch.tensor([-INF, -1.0, -0.0, 0.0, 2.0, INF, float("nan")])
    torch._dynamo.reset()
    for function in (F.mish, F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu):
        found = torch.compile(function, backend="morpho")(torch.tensor([-INF, INF]))
        assert found.tolist() == [0.0, INF] and torch.signbit(found[0])
    compared(lambda x: (F.softplus(x), F.elu(x), F.selu(x), F.logsigmoid(x)), ends)
    var, mean = torch.compile(lambda x: torch.var_mean(x, 0), backend="morpho")(torch.tensor([INF, 1.0, 2.0]))
    assert var.isnan() and mean == INF


def test_signs_of_nan() -> None:
    """PyTorch counts comparisons: NaN is neither above nor below 0."""
    compared(torch.sign, torch.tensor([float("nan"), INF, -INF, 0.0, -0.0, 2.0, -3.0]))
    compared(torch.sign, torch.tensor([float("nan"), -1.0], dtype=torch.bfloat16))


def test_numbers_where_an_operation_takes_a_tensor() -> None:
    """The gradient of a product with a complex number holds `conj(1j)`."""
    def turned(x: Any, y: Any) -> Any:
        return torch.view_as_real(torch.complex(x, y) * (2 - 1j)).sum(0)[0]

    gradients = []
    for function in (turned, torch.compile(turned, backend="morpho")):
        x, y = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
        function(x, y).backward()
        gradients.append((x.grad, y.grad))
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 0.7, 1.0])
def test_a_step_between_infinities(weight: float) -> None:
    a, b = torch.tensor([INF, 1.0, -INF, 0.1]), torch.tensor([1.0, INF, INF, 0.7])
    compared(lambda a, b: (torch.lerp(a, b, weight), torch.lerp(b, a, weight)), a, b)
    compared(torch.lerp, a, b, torch.full((4,), weight))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode: str) -> None:
    table = torch.randn(7, 4)
    for more in ({}, {"padding_idx": 3}):
        bag = torch.nn.EmbeddingBag(7, 4, mode=mode, _weight=table, **more)
        ids, starts = torch.tensor([3, 1, 6, 3, 0, 2, 1]), torch.tensor([0, 2, 2, 5])
        compared(bag, ids, starts)
        assert "aten._embedding_bag.default" in morpho.torch.report().operations
        expected = torch.autograd.grad(bag(ids, starts).square().sum(), bag.weight)[0]
        torch._dynamo.reset()
        found = torch.autograd.grad(torch.compile(bag, backend="morpho")(ids, starts).square().sum(), bag.weight)[0]
        torch.testing.assert_close(found, expected)


def test_averages_in_double_and_half() -> None:
    """Weights of sums are as wide as the sum."""
    x = torch.randn(1, 2, 7, 5, dtype=torch.float64)
    def both(x: Any) -> Any:
        return F.adaptive_avg_pool2d(x, (3, 2)), F.interpolate(x, size=(9, 4), mode="bilinear")
    compared(both, x, tolerance=1e-12)
    compared(both, x.to(torch.bfloat16), tolerance=1e-2)


def test_a_dtype_that_an_operation_has_not_stays_in_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found when the program is traced: named and counted, and the rest of the graph is Morpho's."""
    def lacking(x: Any) -> Any:
        raise fail(DTypeError, "tanh", f"{x.dtype} has none")

    monkeypatch.setitem(TABLE, "aten.tanh.default", Entry("aten.tanh.default", lacking))
    compared(lambda x: torch.tanh(x * 2) + 1, torch.linspace(-1, 1, 5, dtype=torch.float64))
    report = morpho.torch.report()
    assert report.left == {"aten.tanh.default": 1} and "has none" in report.reasons["aten.tanh.default"]
    assert report.operations == {"aten.mul.Tensor": 1, "aten.add.Tensor": 1} and report.functions == 2


def test_complex_numbers() -> None:
    x = torch.tensor([[1 + 2j, 0.5j], [-1.0, 3 - 1j]], dtype=torch.complex64)
    compared(lambda x: (torch.sigmoid(x), torch.var(x, 0), *torch.var_mean(x)), x, tolerance=1e-5)
    assert not morpho.torch.report().left


def test_sums_in_bool() -> None:
    x = torch.tensor([[1, 0], [2, 3]])
    compared(lambda x: (x.sum(0, dtype=torch.bool), x.prod(1, dtype=torch.bool), x.prod(dtype=torch.bool)), x)
