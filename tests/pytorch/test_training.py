"""Training, state, random numbers, dynamic sizes, breaks, and Morpho functions inside PyTorch."""

from __future__ import annotations

import copy
import re
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `torch`")

from torch.nn import functional as F  # noqa: E402

import morpho as mo  # noqa: E402
import morpho.torch  # noqa: E402
from pytorch import programs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    morpho.torch.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="morpho", **options)


def step(model: Any, call: Any, optimiser: Any, x: Any, y: Any) -> float:
    optimiser.zero_grad()
    logits = call(x)
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
    loss.backward()
    optimiser.step()
    return float(loss.detach())


@pytest.mark.parametrize("name", ["language", "images"])
def test_training_steps_are_eager_pytorchs(name: str) -> None:
    """Losses, gradients and buffers of two steps: forward and backward are one native function each."""
    if name == "language":
        model, x, y = programs.Language(), torch.randint(50, (2, 12)), torch.randint(50, (2, 12))
    else:
        model, x, y = programs.Images().train(), torch.randn(4, 3, 16, 16), torch.randint(5, (4,))
    other = copy.deepcopy(model)
    call = compiled(other, fullgraph=True)
    optimisers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, other)]
    for _ in range(2):
        losses = step(model, model, optimisers[0], x, y), step(other, call, optimisers[1], x, y)
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        for (parameter, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=2e-6, msg=lambda t, n=parameter: f"{n}: {t}")
        for (buffer, p), q in zip(model.named_buffers(), other.named_buffers(), strict=True):
            torch.testing.assert_close(q[1], p, rtol=1e-5, atol=1e-6, msg=lambda t, n=buffer: f"{n}: {t}")
    report = morpho.torch.report()
    assert dict(report.graphs) == {"forward": 1, "backward": 1} and report.functions == 2 and report.left == {}


def test_what_attention_needs_backward_is_not_kept_twice() -> None:
    """The forward graph returns no sums of the softmax: Morpho's backward pass does not read them."""
    q = torch.randn(1, 2, 8, 4, requires_grad=True)
    f = compiled(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), fullgraph=True)
    f(q).sum().backward()
    forward = morpho.torch.report().compiled[0]
    assert "logsumexp" not in forward.text()
    found = q.grad.clone()
    q.grad = None
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    torch.testing.assert_close(found, q.grad, rtol=1e-4, atol=1e-5)


def test_arguments_and_buffers_that_are_written() -> None:
    """In place, through views, and by assignment to a slice; results that share memory share it."""

    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            x.view(-1)[1:3].mul_(2)
            self.calls.add_(1)
            self.calls[0] = x.sum()
            y = x + 1
            return y, y.t()

    eager, module = Counts(), Counts()
    call = compiled(module)
    x, same = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3)
    for _ in range(2):
        expected, found = eager(x), call(same)
    assert x.tolist() == same.tolist() and eager.calls.tolist() == module.calls.tolist()
    assert found[1].tolist() == expected[1].tolist() and found[1].stride() == expected[1].stride()
    found[0][0, 0] = 99.0
    assert found[1][0, 0] == 99.0


def test_dropout_repeats_with_the_seed() -> None:
    """Morpho's stream, with a key from PyTorch's generator for each call; the backward pass has the same mask."""
    f = compiled(lambda x: F.dropout(x, 0.25))
    x = torch.ones(2000, requires_grad=True)
    torch.manual_seed(5)
    one, two = f(x), f(x)
    torch.manual_seed(5)
    assert torch.equal(f(x), one) and not torch.equal(one, two)
    assert sorted(set(one.tolist())) == pytest.approx([0.0, 4 / 3])
    assert abs(float((one == 0).float().mean()) - 0.25) < 0.05
    one.sum().backward()
    assert torch.equal(x.grad, one.detach())
    assert morpho.torch.report().left == {}


def test_graph_breaks_are_listed() -> None:
    """What PyTorch's tracer leaves to eager never reaches the backend."""
    morpho.torch.reset()
    assert "graph break" not in str(morpho.torch.report())
    for layer in (torch.nn.LSTM(3, 4), torch.nn.GRU(3, 4)):
        torch._dynamo.reset()  # code that broke once is not looked at again, of whichever module
        compiled(layer)(torch.ones(2, 1, 3))
        assert re.search(rf"graph break.*RNN.*{type(layer).__name__}\(3, 4\) x 1", str(morpho.torch.report()))
    report = morpho.torch.report()
    assert sum(report.breaks.values()) >= 1 and not report.operations

    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    compiled(broken)(torch.ones(2))
    assert sum(morpho.torch.report().breaks.values()) >= 1 and sum(morpho.torch.report().operations.values()) == 2
    morpho.torch.reset()
    assert not morpho.torch.report().breaks


def test_dynamic_sizes_are_compiled_once() -> None:
    """One graph, one native function for each direction, whatever the batch."""
    model = programs.Language()
    call = compiled(model, dynamic=True)
    for rows in (3, 5, 8):
        ids = torch.randint(50, (rows, 7))
        found, expected = call(ids), model(ids)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        model.zero_grad()
        found.square().mean().backward()
        gradient = model.tokens.weight.grad.clone()
        model.zero_grad()
        model(ids).square().mean().backward()
        torch.testing.assert_close(gradient, model.tokens.weight.grad, rtol=1e-3, atol=1e-6)
    report = morpho.torch.report()
    assert report.static == {}, report.static
    assert dict(report.graphs) == {"forward": 1, "backward": 1} and len(report.compiled) == 2
    assert [f.stats["recompiles"] for f in report.compiled] == [0, 0]


def test_a_dynamic_size_outgrows_its_memory() -> None:
    """Memory is planned for a few times the first size; a larger one makes new code, with right answers."""
    f = compiled(lambda x: x.softmax(-1).sum(0), dynamic=True)
    for rows in (3, 400):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(f(x), x.softmax(-1).sum(0), rtol=1e-4, atol=1e-5)
    assert dict(morpho.torch.report().graphs) == {"inference": 1} and len(morpho.torch.report().compiled) == 2


def test_autocast() -> None:
    """bfloat16 where PyTorch says so, within its tolerance."""
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8))

    def call(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return layer(x)

    x = torch.randn(4, 8)
    found, expected = compiled(call)(x), call(x)
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-2)


def test_operations_left_in_pytorch_are_named_and_counted() -> None:
    """Before, between and after native functions; also those excluded by name, and sizes that the data decide."""

    def f(x: Any) -> Any:
        s = torch.linalg.svd(x + 1)[1] * 2
        return (x * s).sin() + torch.linalg.qr(x)[0].abs() + s

    x = torch.randn(3, 3)
    torch.testing.assert_close(compiled(f)(x), f(x), rtol=1e-4, atol=1e-5)
    report = morpho.torch.report()
    assert dict(report.left) == {"aten._linalg_svd.default": 1, "aten.linalg_qr.default": 1} and report.functions == 2
    assert "left in PyTorch: aten._linalg_svd.default x 1 (Morpho has no such operation)" in str(report)

    morpho.torch.exclude("aten.sin.default")
    try:
        torch.testing.assert_close(compiled(lambda x: x.sin() + 1)(x), x.sin() + 1)
        assert report.reasons["aten.sin.default"] == "excluded"
    finally:
        morpho.torch.exclude()
    with pytest.raises(RuntimeError, match=r"'aten\.nothing' is no operation of the table"):
        morpho.torch.exclude("aten.nothing")


def test_custom_operations_and_breaks() -> None:
    """A custom operation stays in PyTorch; Python between two graphs runs as it is."""

    @torch.library.custom_op("morpho_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(lambda x: torch.empty_like(x))

    def f(x: Any) -> Any:
        y = twice(x + 1)
        torch._dynamo.graph_break()
        return y * 3 if y.sum() > 0 else y

    assert compiled(f)(torch.ones(3)).tolist() == [12.0] * 3
    report = morpho.torch.report()
    assert report.left["morpho_test.twice.default"] == 1 and report.graphs["inference"] >= 2


def test_a_mask_decides_a_size() -> None:
    """`x[mask]` stays in PyTorch, what is computed from it does not."""
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        f = compiled(lambda x: (x[x > 0] * 2).exp().sum())
        for seed in (1, 2):
            x = torch.randn(20, generator=torch.Generator().manual_seed(seed))
            torch.testing.assert_close(f(x), (x[x > 0] * 2).exp().sum(), rtol=1e-5, atol=1e-5)
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = False


def test_a_number_from_the_data() -> None:
    """`item()` inside a graph stays in PyTorch, without bounds on the number; what is computed with it does not."""
    torch._dynamo.config.capture_scalar_outputs = True
    try:
        f = compiled(lambda x, n: x * n.item() + 1, fullgraph=True)
        for number in (3, -2):
            assert f(torch.ones(2), torch.tensor(number)).tolist() == [number + 1.0] * 2
    finally:
        torch._dynamo.config.capture_scalar_outputs = False
    assert morpho.torch.report().left["aten._local_scalar_dense.default"] == 1


def test_memory_is_shared_and_owned() -> None:
    """Arguments are borrowed, strided ones too; results are PyTorch's to write, each its own."""
    f = compiled(lambda x: (x * 1.0, x * 1.0, x + 1))
    x = torch.arange(12.0).view(3, 4).t()[1:]
    one, two, three = f(x)
    one.add_(5)
    assert two.tolist() == x.tolist() and three.tolist() == (x + 1).tolist()
    weight = torch.nn.Parameter(torch.ones(3))
    g = compiled(lambda x: x * weight)
    with torch.no_grad():
        assert g(torch.ones(3)).tolist() == [1.0] * 3
        weight.mul_(2)
        assert g(torch.ones(3)).tolist() == [2.0] * 3
        weight.data = torch.full((3,), 7.0)
        assert g(torch.ones(3)).tolist() == [7.0] * 3


def test_morpho_functions_in_pytorch() -> None:
    """Values and gradients, several arguments and results, numbers, and PyTorch's own check."""
    f = mo.to_torch(lambda x, y, scale: (mo.tanh(x) @ y * scale, mo.sum(x)))
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    product, total = f(a, b, 2.0)
    (product.square().sum() + total).backward()
    found = a.grad.clone(), b.grad.clone()
    a.grad = b.grad = None
    ((torch.tanh(a) @ b * 2.0).square().sum() + a.sum()).backward()
    torch.testing.assert_close(found, (a.grad, b.grad), rtol=1e-4, atol=1e-5)
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mo.to_torch(lambda x: mo.exp(x) * mo.sin(x)), x)


def test_gradients_of_gradients_of_morpho_functions() -> None:
    """A penalty on a gradient is learned from; PyTorch lets a gradient that has none pass in silence as a constant."""
    f = mo.to_torch(lambda x, y, scale: (mo.sin(x) * y * scale, mo.sum(x * y)))
    x, y = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradgradcheck(lambda x, y: f(x, y, 2.0), (x, y))
    slope, = torch.autograd.grad(mo.to_torch(mo.sin)(x).sum(), x, create_graph=True)
    slope.square().sum().backward()
    torch.testing.assert_close(x.grad, -torch.sin(2 * x.detach()))


def test_bad_arguments_of_to_torch() -> None:
    """One sentence each."""
    with pytest.raises(ValueError, match="a int is no function"):
        mo.to_torch(3)
    with pytest.raises(ValueError, match=r"use mo\.from_torch"):
        mo.to_torch(torch.nn.ReLU())
    with pytest.raises(ValueError, match="is a Morpho tensor, not PyTorch's"):
        mo.to_torch(lambda x: x)(mo.ones(3))
    with pytest.raises(ValueError, match="returns a dict"):
        mo.to_torch(lambda x: {"x": x})(torch.ones(3))


@pytest.mark.parametrize(("shape", "stride", "start"), [((3, 3), (1, 2), 1), ((4, 2), (5, 1), 0), ((6,), (0,), 2)])
def test_gradients_of_overlapping_windows(shape: Any, stride: Any, start: int) -> None:
    """The backward pass adds at indices that are looked up in a range."""
    found = []
    for wrap in (lambda f: f, compiled):
        x = torch.arange(20.).reshape(4, 5).requires_grad_()
        y = wrap(lambda x: torch.as_strided(x, shape, stride, start) * 2)(x)
        (y * torch.arange(y.numel()).reshape(shape)).sum().backward()
        found.append(x.grad)
    assert found[0].tolist() == found[1].tolist()
