"""Layers and losses equal PyTorch's in float64 on the same weights: results and all gradients, to 1e-9."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import nn

torch = pytest.importorskip("torch", reason="PyTorch is not installed: layers are not compared with its own")
tn = torch.nn
F = torch.nn.functional
TOLERANCE = 1e-9
# PyTorch has a constant of these in float32: 1/6, and the 1e-12 that keeps a division finite.
LOOSER = {"Hardsigmoid": 1e-7, "bce": 1e-8}
Array = Any


def close(found: Array, wanted: Array, what: str = "", tolerance: float = TOLERANCE) -> None:
    scale = 1 + np.max(np.abs(wanted), initial=0)
    assert found.shape == wanted.shape, what
    away = np.max(np.abs(found - wanted), initial=0)
    assert away <= tolerance * scale, (what, away)


def same_weights(mine: nn.Module, theirs: Any) -> None:
    """Give Morpho's module PyTorch's values; the names must be the same."""
    mine.astype(mo.float64)
    values = {name: value.detach().numpy() for name, value in theirs.state_dict().items()}
    assert sorted(mine.state_dict()) == sorted(values)
    mine.load_state_dict(values)


def tensors(results: Any) -> list[Any]:
    """Results in nested tuples, in order."""
    return [leaf for item in results for leaf in tensors(item)] if isinstance(results, tuple) else [results]


def compare(mine: Callable[..., Any], theirs: Callable[..., Any], inputs: list[Array], rng: np.random.Generator,
            parameters: tuple[Any, Any] = ((), ()), tolerance: float = TOLERANCE) -> None:
    """Results, and the gradients of inputs and of named parameters, for a random cotangent of each result."""
    a = [mo.asarray(x) for x in inputs]
    b = [torch.tensor(x) for x in inputs]
    for x, y in zip(a, b, strict=True):
        if x.dtype is mo.float64:
            x.requires_grad_()
            y.requires_grad_()
    ours, reference = tensors(mine(*a)), tensors(theirs(*b))
    assert len(ours) == len(reference)
    for x, y in zip(ours, reference, strict=True):
        close(x.numpy(), y.detach().numpy(), "result")
    weights = [rng.standard_normal(tuple(y.shape)) for y in reference]
    sum(((x * mo.asarray(w)).sum() for x, w in zip(ours, weights, strict=True)), mo.asarray(0.0)).backward()
    sum((y * torch.tensor(w)).sum() for y, w in zip(reference, weights, strict=True)).backward()
    for number, (x, y) in enumerate(zip(a, b, strict=True)):
        if y.requires_grad:
            close(x.grad.numpy(), y.grad.numpy(), f"gradient of input {number}", tolerance)
    wanted = dict(parameters[1])
    for name, parameter in parameters[0]:
        close(parameter.grad.numpy(), wanted[name].grad.numpy(), f"gradient of {name}")


LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(5, 3), lambda: tn.Linear(5, 3), (2, 4, 5)),
    "FusedMLP": (lambda: nn.FusedMLP(5, 7, 3), lambda: tn.Sequential(tn.Linear(5, 7), tn.GELU(), tn.Linear(7, 3)),
                 (2, 4, 5)),
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2),
               lambda: tn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9)),
    "Conv2d": (lambda: nn.Conv2d(3, 4, (3, 2), padding=(1, 0), dilation=(1, 2)),
               lambda: tn.Conv2d(3, 4, (3, 2), padding=(1, 0), dilation=(1, 2)), (2, 3, 5, 6)),
    "Conv2d same": (lambda: nn.Conv2d(3, 4, 3, padding="same", bias=False),
                    lambda: tn.Conv2d(3, 4, 3, padding="same", bias=False), (2, 3, 5, 4)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4), lambda: tn.Conv2d(4, 4, 3, groups=4), (2, 4, 5, 5)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, 2, padding=1, output_padding=1, groups=2),
                        lambda: tn.ConvTranspose1d(4, 6, 3, 2, padding=1, output_padding=1, groups=2), (2, 4, 5)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), lambda: tn.ConvTranspose2d(3, 4, 3, stride=2),
                        (2, 3, 3, 4)),
    "MaxPool1d": (lambda: nn.MaxPool1d(3, 2, padding=1), lambda: tn.MaxPool1d(3, 2, padding=1), (2, 3, 9)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), lambda: tn.MaxPool2d(2), (2, 3, 6, 6)),
    "AvgPool1d": (lambda: nn.AvgPool1d(2), lambda: tn.AvgPool1d(2), (2, 3, 8)),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
                  lambda: tn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 6, 7)),
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(3), lambda: tn.AdaptiveAvgPool1d(3), (2, 3, 7)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((2, 3)), lambda: tn.AdaptiveAvgPool2d((2, 3)), (2, 3, 5, 6)),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(3), lambda: tn.AdaptiveMaxPool1d(3), (2, 3, 7)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(2), lambda: tn.AdaptiveMaxPool2d(2), (2, 3, 5, 4)),
    "LayerNorm": (lambda: nn.LayerNorm(6), lambda: tn.LayerNorm(6), (3, 4, 6)),
    "RMSNorm": (lambda: nn.RMSNorm(6), lambda: tn.RMSNorm(6), (3, 4, 6)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 6), lambda: tn.GroupNorm(2, 6), (3, 6, 4, 5)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), lambda: tn.BatchNorm1d(4), (5, 4)),
    "BatchNorm1d of lines": (lambda: nn.BatchNorm1d(4, momentum=None), lambda: tn.BatchNorm1d(4, momentum=None),
                             (3, 4, 5)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4, momentum=0.3, eps=1e-3),
                    lambda: tn.BatchNorm2d(4, momentum=0.3, eps=1e-3), (3, 4, 5, 2)),
    "BatchNorm2d without": (lambda: nn.BatchNorm2d(4, affine=False, track_running_stats=False),
                            lambda: tn.BatchNorm2d(4, affine=False, track_running_stats=False), (3, 4, 5, 2)),
    "RNN": (lambda: nn.RNN(3, 4, num_layers=2), lambda: tn.RNN(3, 4, 2), (3, 2, 3)),
    "RNN relu": (lambda: nn.RNN(3, 4, nonlinearity="relu", bias=False),
                 lambda: tn.RNN(3, 4, nonlinearity="relu", bias=False), (3, 2, 3)),
    "LSTM": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
             lambda: tn.LSTM(3, 4, 2, bidirectional=True, batch_first=True), (2, 3, 3)),
    "GRU": (lambda: nn.GRU(3, 4, bidirectional=True), lambda: tn.GRU(3, 4, bidirectional=True), (3, 2, 3)),
    "GRU of one": (lambda: nn.GRU(3, 4, bias=False), lambda: tn.GRU(3, 4, bias=False), (3, 3)),
    "ReLU": (nn.ReLU, tn.ReLU, (3, 7)),
    "ReLU6": (nn.ReLU6, tn.ReLU6, (3, 7)),
    "GELU": (nn.GELU, tn.GELU, (3, 7)),
    "GELU tanh": (lambda: nn.GELU("tanh"), lambda: tn.GELU("tanh"), (3, 7)),
    "SiLU": (nn.SiLU, tn.SiLU, (3, 7)),
    "Mish": (nn.Mish, tn.Mish, (3, 7)),
    "SELU": (nn.SELU, tn.SELU, (3, 7)),
    "ELU": (lambda: nn.ELU(0.7), lambda: tn.ELU(0.7), (3, 7)),
    "LeakyReLU": (lambda: nn.LeakyReLU(0.2), lambda: tn.LeakyReLU(0.2), (3, 7)),
    "Sigmoid": (nn.Sigmoid, tn.Sigmoid, (3, 7)),
    "LogSigmoid": (nn.LogSigmoid, tn.LogSigmoid, (3, 7)),
    "Tanh": (nn.Tanh, tn.Tanh, (3, 7)),
    "Softplus": (nn.Softplus, lambda: tn.Softplus(threshold=100), (3, 7)),
    "Hardswish": (nn.Hardswish, tn.Hardswish, (3, 7)),
    "Hardsigmoid": (nn.Hardsigmoid, tn.Hardsigmoid, (3, 7)),
    "Softmax": (lambda: nn.Softmax(1), lambda: tn.Softmax(1), (3, 7)),
    "LogSoftmax": (lambda: nn.LogSoftmax(0), lambda: tn.LogSoftmax(0), (3, 7)),
    "GLU": (lambda: nn.GLU(1), lambda: tn.GLU(1), (3, 6, 2)),
    "Flatten": (nn.Flatten, tn.Flatten, (3, 2, 2)),
    "Unflatten": (lambda: nn.Unflatten(1, (2, 3)), lambda: tn.Unflatten(1, (2, 3)), (3, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str, seed: int, rng: np.random.Generator) -> None:
    """In training mode, two calls, so that running statistics move twice; then after training."""
    make, reference, shape = LAYERS[name]
    torch.manual_seed(seed)
    mine, theirs = make(), reference().double()
    same_weights(mine, theirs)
    parameters = (mine.named_parameters(), theirs.named_parameters())
    compare(mine, theirs, [rng.normal(0, 2, shape)], rng, parameters, LOOSER.get(name, TOLERANCE))
    buffers = dict(theirs.named_buffers())
    if not buffers:
        return
    x = rng.standard_normal(shape)
    close(mine(mo.asarray(x)).numpy(), theirs(torch.tensor(x)).detach().numpy())
    for key, buffer in mine.named_buffers():
        close(buffer.numpy(), buffers[key].numpy(), key)
    mine.eval()
    theirs.eval()
    compare(mine, theirs, [rng.standard_normal(shape)], rng)


def test_states_of_a_recurrent_layer(seed: int, rng: np.random.Generator) -> None:
    torch.manual_seed(seed)
    mine, theirs = nn.LSTM(3, 4, num_layers=2), tn.LSTM(3, 4, 2).double()
    same_weights(mine, theirs)
    h, c = rng.standard_normal((2, 2, 2, 4))
    compare(lambda x, h, c: mine(x, (h, c)), lambda x, h, c: theirs(x, (h, c)), [rng.standard_normal((2, 2, 3)), h, c],
            rng, (mine.named_parameters(), theirs.named_parameters()))


def test_embedding_with_padding(seed: int, rng: np.random.Generator) -> None:
    torch.manual_seed(seed)
    mine, theirs = nn.Embedding(6, 3, padding_idx=2), tn.Embedding(6, 3, padding_idx=2).double()
    same_weights(mine, theirs)
    compare(mine, theirs, [np.array([[1, 2, 5], [2, 1, 1]])], rng, (mine.named_parameters(), theirs.named_parameters()))


REDUCTIONS = ("mean", "sum", "none")
LOSSES: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "mse": (nn.mse_loss, F.mse_loss, "any"),
    "l1": (nn.l1_loss, F.l1_loss, "any"),
    "huber": (lambda a, b, **k: nn.huber_loss(a, b, delta=0.7, **k),
              lambda a, b, **k: F.huber_loss(a, b, delta=0.7, **k), "any"),
    "smooth_l1": (lambda a, b, **k: nn.smooth_l1_loss(a, b, beta=0.7, **k),
                  lambda a, b, **k: F.smooth_l1_loss(a, b, beta=0.7, **k), "any"),
    "bce": (nn.binary_cross_entropy, F.binary_cross_entropy, "probabilities"),
    "bce logits": (nn.binary_cross_entropy_with_logits, F.binary_cross_entropy_with_logits, "targets"),
    "kl": (nn.kl_div, F.kl_div, "logarithms"),
    "kl log": (lambda a, b, **k: nn.kl_div(a, b, log_target=True, **k),
               lambda a, b, **k: F.kl_div(a, b, log_target=True, **k), "any"),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name: str, reduction: str, rng: np.random.Generator) -> None:
    mine, theirs, kind = LOSSES[name]
    a, b = rng.normal(0, 2, (2, 4, 5))
    if kind == "probabilities":
        a, b = rng.uniform(0.05, 0.95, (2, 4, 5))
        a[0, 0], b[0, 0], a[0, 1], b[0, 1] = 0.0, 1.0, 1.0, 1.0  # beyond the logarithm
    elif kind == "targets":
        b = rng.uniform(0, 1, b.shape)
    elif kind == "logarithms":
        a, b = np.log(rng.dirichlet(np.ones(5), 4)), rng.dirichlet(np.ones(5), 4)
    compare(lambda x, y: mine(x, y, reduction=reduction), lambda x, y: theirs(x, y, reduction=reduction), [a, b], rng,
            tolerance=LOOSER.get(name, TOLERANCE))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_losses_with_more_settings(reduction: str, rng: np.random.Generator) -> None:
    x, y, z = rng.normal(0, 1, (3, 4, 5))
    signs = np.array([1, -1, -1, 1])
    how = {"reduction": reduction}
    compare(lambda a, b: nn.cosine_embedding_loss(a, b, mo.asarray(signs), margin=-0.5, **how),
            lambda a, b: F.cosine_embedding_loss(a, b, torch.tensor(signs), margin=-0.5, **how), [x, y], rng)
    for settings in ({"p": 2.0}, {"p": 3.0, "swap": True, "margin": 2.0}):
        compare(partial(nn.triplet_margin_loss, **settings, **how), partial(F.triplet_margin_loss, **settings, **how),
                [x, y, z], rng)
    weight = rng.uniform(0.5, 2, 5)
    target = rng.uniform(0, 1, x.shape)
    entropy, reference = nn.binary_cross_entropy_with_logits, F.binary_cross_entropy_with_logits
    compare(lambda a: entropy(a, mo.asarray(target), pos_weight=mo.asarray(weight), **how),
            lambda a: reference(a, torch.tensor(target), pos_weight=torch.tensor(weight), **how), [x], rng)
    compare(lambda a, b: nn.cosine_similarity(a, b), lambda a, b: F.cosine_similarity(a, b, dim=-1), [x, y], rng)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy(reduction: str, smoothing: float, rng: np.random.Generator) -> None:
    """With ignored targets, along axis 1, with and without weights; and of log-probabilities."""
    x, classes, weight = rng.normal(0, 2, (4, 5, 3)), rng.integers(0, 5, (4, 3)), rng.uniform(0.5, 2, 5)
    classes[0, 1] = classes[2, 2] = 9
    settings = {"label_smoothing": smoothing, "ignore_index": 9, "reduction": reduction}
    for given in (None, weight):
        a, b = (None, None) if given is None else (mo.asarray(given), torch.tensor(given))
        compare(lambda x, a=a: nn.cross_entropy(x, mo.asarray(classes), weight=a, **settings),
                lambda x, b=b: F.cross_entropy(x, torch.tensor(classes), weight=b, **settings), [x], rng)
        compare(lambda x, a=a: nn.nll_loss(x, mo.asarray(classes), weight=a, ignore_index=9,
                                           reduction=reduction),
                lambda x, b=b: F.nll_loss(x, torch.tensor(classes), weight=b, ignore_index=9, reduction=reduction),
                [x], rng)
