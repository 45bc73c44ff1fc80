"""Layers: gradients against differences in float64, results against plain NumPy, and how many kernels they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checking import check_gradients

import morpho as mo
from morpho import nn
from morpho.base.errors import ArgumentError, ShapeError

Array = Any


@pytest.fixture(autouse=True)
def _seeded(seed: int) -> None:
    nn.seed(seed)


SMOOTH: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(4, 3), (2, 3, 4)),
    "FusedMLP": (lambda: nn.FusedMLP(4, 5, 3, "silu"), (2, 3, 4)),
    "SwiGLU": (lambda: nn.SwiGLU(4, 5), (3, 4)),
    "GeGLU": (lambda: nn.GeGLU(4, 5, bias=True), (3, 4)),
    "GLU": (nn.GLU, (3, 6)),
    "Conv1d": (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 2, 7)),
    "Conv2d": (lambda: nn.Conv2d(2, 3, (3, 2), padding=1), (2, 2, 4, 5)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(2, 3, 3, stride=2, output_padding=1), (2, 2, 4)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), (2, 2, 3, 3)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (2, 2, 4, 4)),
    "AvgPool1d": (lambda: nn.AvgPool1d(2), (2, 2, 6)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((2, 3)), (2, 2, 5, 4)),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(3), (2, 2, 7)),
    "GlobalAvgPool": (nn.GlobalAvgPool, (2, 3, 4, 2)),
    "GlobalMaxPool": (lambda: nn.GlobalMaxPool(keepdims=True), (2, 3, 4, 2)),
    "LayerNorm": (lambda: nn.LayerNorm(5), (3, 5)),
    "RMSNorm": (lambda: nn.RMSNorm(5), (3, 5)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (3, 4, 3)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(3), (5, 3)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (2, 3, 3, 2)),
    "BatchNorm2d after training": (lambda: nn.BatchNorm2d(3).eval(), (2, 3, 3, 2)),
    "RNN": (lambda: nn.RNN(3, 4), (2, 2, 3)),
    "LSTM": (lambda: nn.LSTM(3, 2), (2, 2, 3)),
    "GRU": (lambda: nn.GRU(3, 2, bidirectional=True, batch_first=True), (2, 2, 3)),
    "LogSigmoid": (nn.LogSigmoid, (7,)),
    "Hardswish": (nn.Hardswish, (7,)),
    "ELU": (nn.ELU, (7,)),
    "LeakyReLU": (nn.LeakyReLU, (7,)),
}


UNROLLED = ("GRU",)  # many kernels for little: LSTM stands for both as native code


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient(name: str, rng: np.random.Generator) -> None:
    make, shape = SMOOTH[name]
    layer = make().astype(mo.float64)
    first = (lambda x: layer(x)[0]) if isinstance(layer, nn.RNN | nn.LSTM | nn.GRU) else layer
    backend = "reference" if name in UNROLLED else "cpu"
    check_gradients(first, [rng.standard_normal(shape)], list(layer.parameters()), rng, backend)


def test_gradient_of_an_embedding(rng: np.random.Generator) -> None:
    layer = nn.Embedding(5, 3, dtype=mo.float64)
    check_gradients(layer, [np.array([[1, 4, 1], [0, 1, 4]])], list(layer.parameters()), rng)


# -- against NumPy ---------------------------------------------------------------------------------------------------
def values(module: nn.Module) -> dict[str, Array]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm_step(v: dict[str, Array], x: Array, states: list[Array]) -> list[Array]:
    i, f, g, o = np.split(x @ v["weight_ih_l0"].T + v["bias_ih_l0"] + states[0] @ v["weight_hh_l0"].T + v["bias_hh_l0"],
                          4, axis=1)
    cell = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(cell), cell]


def gru_step(v: dict[str, Array], x: Array, states: list[Array]) -> list[Array]:
    xr, xz, xn = np.split(x @ v["weight_ih_l0"].T + v["bias_ih_l0"], 3, axis=1)
    hr, hz, hn = np.split(states[0] @ v["weight_hh_l0"].T + v["bias_hh_l0"], 3, axis=1)
    z = sigmoid(xz + hz)
    return [(1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * states[0]]


def rnn_step(v: dict[str, Array], x: Array, states: list[Array]) -> list[Array]:
    return [np.tanh(x @ v["weight_ih_l0"].T + v["bias_ih_l0"] + states[0] @ v["weight_hh_l0"].T + v["bias_hh_l0"])]


@pytest.mark.parametrize(("kind", "step"), [(nn.RNN, rnn_step), (nn.LSTM, lstm_step), (nn.GRU, gru_step)],
                         ids=["RNN", "LSTM", "GRU"])
def test_recurrence(kind: Any, step: Callable[..., Any], rng: np.random.Generator) -> None:
    """The plain equations, step by step, from given states; without a batch the same."""
    layer = kind(3, 4, dtype=mo.float64)
    x, states = rng.standard_normal((3, 2, 3)), [rng.standard_normal((2, 4)) for _ in range(kind.kept)]
    given = [mo.asarray(state[None]) for state in states]
    outputs, last = layer(mo.asarray(x), given[0] if kind.kept == 1 else tuple(given))
    for time in range(3):
        states = step(values(layer), x[time], states)
        assert np.allclose(outputs.numpy()[time], states[0], atol=1e-12)
    for found, wanted in zip((last,) if kind.kept == 1 else last, states, strict=True):
        assert np.allclose(found.numpy()[0], wanted, atol=1e-12)


def test_recurrent_layers_say_what_is_wrong() -> None:
    layer = nn.LSTM(3, 4)
    with pytest.raises(ShapeError, match="not \\[time, batch, 3\\]"):
        layer(mo.ones((2, 2, 5)))
    with pytest.raises(ShapeError, match="the states are not 2 of shape"):
        layer(mo.ones((2, 2, 3)), (mo.ones((1, 2, 4)),))
    with pytest.raises(ShapeError, match="number of steps"):
        layer(mo.ones((0, 2, 3)))
    with pytest.raises(ArgumentError, match="nonlinearity"):
        nn.RNN(3, 4, nonlinearity="sin")


def test_group_norm(rng: np.random.Generator) -> None:
    layer = nn.GroupNorm(2, 4, dtype=mo.float64)
    layer.weight.assign(rng.standard_normal(4))
    layer.bias.assign(rng.standard_normal(4))
    x = rng.standard_normal((3, 4, 5))
    rows = x.reshape(3, 2, 10)
    normal = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    wanted = normal.reshape(x.shape) * layer.weight.numpy()[:, None] + layer.bias.numpy()[:, None]
    assert np.allclose(layer(mo.asarray(x)).numpy(), wanted, atol=1e-12)
    with pytest.raises(ArgumentError, match="3 groups"):
        nn.GroupNorm(3, 4)
    with pytest.raises(ShapeError, match="4 channels"):
        layer(mo.ones((2, 3)))


def test_activations_by_name() -> None:
    for name in ("elu", "gelu", "gelu_tanh", "leaky_relu", "mish", "relu", "selu", "sigmoid", "silu", "tanh"):
        x = mo.asarray([-1.5, 0.5])
        wanted = mo.gelu(x, approximate="tanh") if name == "gelu_tanh" else getattr(mo, name)(x)
        assert np.array_equal(nn.activation(name)(x).numpy(), wanted.numpy()), name
    with pytest.raises(ArgumentError, match="there are elu"):
        nn.activation("swoosh")


# -- batch norm ------------------------------------------------------------------------------------------------------
def test_running_statistics(rng: np.random.Generator) -> None:
    """They move by the momentum, the variance without bias; reading one computes them all, once."""
    layer = nn.BatchNorm1d(3, momentum=0.25, dtype=mo.float64)
    mean, variance = np.zeros(3), np.ones(3)
    for _ in range(3):
        x = rng.normal(1, 2, (6, 3))
        layer(mo.asarray(x))
        mean, variance = 0.75 * mean + 0.25 * x.mean(0), 0.75 * variance + 0.25 * x.var(0, ddof=1)
    assert np.allclose(layer.running_mean.numpy(), mean, atol=1e-12)
    assert np.allclose(layer.running_var.numpy(), variance, atol=1e-12)
    assert layer.num_batches_tracked.item() == 3
    x = rng.normal(1, 2, (2, 3))
    wanted = (x - mean) / np.sqrt(variance + 1e-5)
    assert np.allclose(layer.eval()(mo.asarray(x)).numpy(), wanted, atol=1e-12)
    assert layer.num_batches_tracked.item() == 3  # not after training


def test_average_over_all_batches(rng: np.random.Generator) -> None:
    layer = nn.BatchNorm1d(2, momentum=None, dtype=mo.float64)
    batches = rng.standard_normal((4, 5, 2))
    for x in batches:
        layer(mo.asarray(x))
    assert np.allclose(layer.running_mean.numpy(), batches.mean((0, 1)), atol=1e-12)


def test_statistics_wait_for_the_step(rng: np.random.Generator) -> None:
    """Outside a compiled function they are computed with the optimiser's step: the model runs once, not per layer."""
    from morpho.runtime.plans.evaluate import counts
    from morpho.tensor import recording
    from morpho.tensor.steps import counts as recordings

    def computed() -> int:
        return counts.realisations + recordings.runs

    recording.flush()
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    opt = mo.optim.SGD(model.parameters(), lr=0.1)
    x = mo.asarray(rng.standard_normal((5, 3)).astype(np.float32))
    before = computed()
    loss = mo.mean(mo.square(model(x)))
    loss.backward()
    assert computed() == before
    opt.step()
    assert computed() == before + 1
    assert model[1].num_batches_tracked.item() == model[3].num_batches_tracked.item() == 1
    assert computed() == before + 1 and loss.is_realised
    saved = model.state_dict()
    model(x)  # nothing asks for these statistics until the next reads them
    assert model.state_dict()["1.num_batches_tracked"].item() == 2 and saved["1.num_batches_tracked"].item() == 1


def test_batch_norm_in_a_compiled_function(rng: np.random.Generator) -> None:
    """The statistics are states of it; the mode is part of what it is compiled for."""
    eager, compiled = nn.BatchNorm2d(2), nn.BatchNorm2d(2)
    call = mo.compile(lambda x: compiled(x))
    for _ in range(2):
        x = mo.asarray(rng.standard_normal((3, 2, 2, 2)).astype(np.float32))
        assert np.array_equal(call(x).numpy(), eager(x).numpy())
        assert np.array_equal(compiled.running_var.numpy(), eager.running_var.numpy())
    eager.eval()
    compiled.eval()
    assert np.array_equal(call(x).numpy(), eager(x).numpy())
    assert compiled.num_batches_tracked.item() == 2


def test_batch_norm_says_what_is_wrong() -> None:
    with pytest.raises(ShapeError, match="no variance to train with"):
        nn.BatchNorm1d(3)(mo.ones((1, 3)))
    with pytest.raises(ShapeError, match="3 channels in axis 1"):
        nn.BatchNorm2d(3)(mo.ones((2, 4, 2, 2)))
    with pytest.raises(ArgumentError, match="momentum"):
        nn.BatchNorm1d(3, momentum=2.0)


# -- dropout ---------------------------------------------------------------------------------------------------------
def test_dropout() -> None:
    """Scaled so that the mean stays; every call draws anew; nothing happens for p=0 and after training."""
    x = mo.ones((40, 50))
    layer = nn.Dropout(0.25)
    first, second = layer(x).numpy(), layer(x).numpy()
    assert set(np.unique(first)) == {0.0, np.float32(1 / 0.75)} and abs((first == 0).mean() - 0.25) < 0.05
    assert not np.array_equal(first, second)
    assert layer.eval()(x) is x and nn.Dropout(0.0)(x) is x
    assert not nn.Dropout(1.0)(x).numpy().any()
    for wrong in (-0.1, 1.5, x):
        with pytest.raises(ArgumentError, match="between 0 and 1"):
            nn.Dropout(wrong)


def test_dropout_is_seeded_and_the_same_bits_when_compiled(seed: int) -> None:
    layer = nn.Dropout(0.5)
    x = mo.ones((7, 9))
    nn.seed(seed)
    eager = [layer(x).numpy() for _ in range(3)]
    nn.seed(seed)
    call = mo.compile(lambda x: layer(x))
    assert all(np.array_equal(call(x).numpy(), wanted) for wanted in eager)


def test_dropout_of_channels() -> None:
    y = nn.Dropout2d(0.5)(mo.ones((8, 9, 3, 3))).numpy()
    assert np.array_equal(y, np.broadcast_to(y[:, :, :1, :1], y.shape)) and 0 < (y == 0).mean() < 1
    with pytest.raises(ShapeError, match="use Dropout"):
        nn.Dropout2d()(mo.ones((2, 3)))


# -- kernels ---------------------------------------------------------------------------------------------------------
def products(compiled: Any) -> list[str]:
    """The steps of a compiled function, without those that lay out weights."""
    lines = compiled.explain().split("steps\n")[1].split("\ncost")[0].splitlines()
    return [line.split()[2] for line in lines if line.split()[2] not in ("pack",)]


def test_a_fused_mlp_is_two_kernels() -> None:
    """Bias and activation belong to the products, also for more than two axes; and it stands in for a Sequential."""
    plain = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    fused = nn.FusedMLP(8, 16, 4)
    fused.load_state_dict(plain.state_dict())
    call = mo.compile(lambda x: fused(x))
    x = mo.asarray(np.linspace(-2, 2, 48, dtype=np.float32).reshape(2, 3, 8))
    assert np.array_equal(call(x).numpy(), plain(x).numpy())
    assert products(call) == ["matmul+add+gelu", "matmul+add"]
    shared = nn.FusedMLP.of(plain)
    assert shared[0] is plain[0] and np.array_equal(shared(x).numpy(), plain(x).numpy())
    with pytest.raises(ArgumentError, match="a Linear, an activation and a Linear"):
        nn.FusedMLP.of(nn.Sequential(nn.ReLU()))


def test_gradients_of_linear_layers_are_one_product_each() -> None:
    """For (batch, time, features) too: no product per example that is summed afterwards."""
    model = nn.FusedMLP(8, 16, 4)

    def step(x: mo.Tensor) -> list[mo.Tensor]:
        model.zero_grad()
        mo.sum(mo.square(model(x))).backward()
        return [parameter.grad for parameter in model.parameters()]

    call = mo.compile(step)
    call(mo.ones((2, 3, 8)))
    assert sum("matmul" in step for step in products(call)) == 5  # 2 forward, 2 weights, 1 between the layers


def test_convolution_bias_norm_and_relu_are_one_kernel_after_training() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()).eval()
    call = mo.compile(lambda x: model(x))
    call(mo.ones((2, 2, 5, 5)))
    found = products(call)
    assert found[-1] == "conv+add+multiply+add+maximum"
    assert len(found) == 2  # besides it one of 4 elements: scale and shift per channel


# -- arguments -------------------------------------------------------------------------------------------------------
def test_layers_say_what_is_wrong() -> None:
    with pytest.raises(ArgumentError, match="2 groups"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(ArgumentError, match="kernel_size"):
        nn.Conv2d(2, 4, 0)
    with pytest.raises(ShapeError, match="does not end in 4 features"):
        nn.Linear(4, 2)(mo.ones((3, 5)))
    with pytest.raises(ArgumentError, match="padding_idx=7"):
        nn.Embedding(5, 3, padding_idx=7)
    with pytest.raises(ShapeError, match="no halves"):
        nn.GLU()(mo.ones((2, 3)))
    with pytest.raises(ShapeError, match="no axes 2 to -1"):
        nn.Flatten(2)(mo.ones((2, 3)))


def test_a_row_of_padding_stays_zero() -> None:
    layer = nn.Embedding(4, 3, padding_idx=-1)
    assert layer.padding_idx == 3 and not layer.weight.numpy()[3].any()
    layer(mo.asarray([0, 3, 3])).sum().backward()
    assert layer.weight.grad.numpy().tolist() == [[1.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3]


def test_a_dynamic_batch() -> None:
    """One program for every batch size, training included."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.FusedMLP(8, 5, 2))
    call = mo.compile(lambda x: model(x), dynamic={"x": {0: mo.Dim("batch", 1, 64)}})
    rng = np.random.default_rng(3)
    for batch in (3, 5):
        x = mo.asarray(rng.standard_normal((batch, 1, 4, 4)).astype(np.float32))
        before = {name: tensor.numpy(copy=True) for name, tensor in model.state_dict().items()}
        found = call(x).numpy()
        variance = model[1].running_var.numpy(copy=True)
        model.load_state_dict(before)
        assert np.array_equal(found, model(x).numpy())
        assert np.array_equal(variance, model[1].running_var.numpy())
    assert call.stats["recompiles"] == 0
