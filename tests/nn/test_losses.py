"""Losses against plain NumPy, their gradients against differences, their extremes, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checking import check_gradients

import morpho as mo
from morpho import nn
from morpho.base.errors import ArgumentError, DTypeError, ShapeError

Array = Any


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def cosine(a: Array, b: Array) -> Array:
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def distance(a: Array, b: Array) -> Array:
    return np.sqrt(np.square(a - b + 1e-6).sum(-1))


def focal(x: Array, t: Array) -> Array:
    p = 1 / (1 + np.exp(-x))
    p, alpha = np.where(t > 0.5, p, 1 - p), np.where(t > 0.5, 0.25, 0.75)
    return -alpha * (1 - p) ** 2 * np.log(p)


def log_softmax(x: Array) -> Array:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


SIGNS, CLASSES = np.array([1, -1, 1, -1]), np.array([2, 0, 1, 1])
BITS = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]] * 2)
WEIGHT = np.array([0.5, 1.0, 2.0])

# name -> (function of tensors, the same in NumPy without reduction, how many inputs of shape (4, 3))
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Array], int]] = {
    "mse": (nn.mse_loss, lambda a, b: (a - b) ** 2, 2),
    "l1": (nn.l1_loss, lambda a, b: np.abs(a - b), 2),
    "huber": (lambda a, b, **k: nn.huber_loss(a, b, delta=0.5, **k),
              lambda a, b: np.where(np.abs(a - b) <= 0.5, (a - b) ** 2 / 2, 0.5 * (np.abs(a - b) - 0.25)), 2),
    "smooth_l1": (lambda a, b, **k: nn.smooth_l1_loss(a, b, beta=0.5, **k),
                  lambda a, b: np.where(np.abs(a - b) < 0.5, (a - b) ** 2, np.abs(a - b) - 0.25), 2),
    "bce": (lambda a, **k: nn.binary_cross_entropy(mo.sigmoid(a), mo.asarray(BITS), **k),
            lambda a: softplus(a) - BITS * a, 1),
    "bce_with_logits": (lambda a, **k: nn.binary_cross_entropy_with_logits(a, mo.asarray(BITS), **k),
                        lambda a: softplus(a) - BITS * a, 1),
    "kl": (lambda a, **k: nn.kl_div(mo.log_softmax(a), mo.asarray(BITS / 2), **k),
           lambda a: np.where(BITS > 0, -np.log(2) / 2, 0) - BITS / 2 * log_softmax(a), 1),
    "cosine": (lambda a, b, **k: nn.cosine_embedding_loss(a, b, mo.asarray(SIGNS), -0.9, **k),
               lambda a, b: np.where(SIGNS > 0, 1 - cosine(a, b), np.maximum(cosine(a, b) + 0.9, 0)), 2),
    "triplet": (lambda a, b, c, **k: nn.triplet_margin_loss(a, b, c, 2.5, **k),
                lambda a, b, c: np.maximum(distance(a, b) - distance(a, c) + 2.5, 0), 3),
    "focal": (lambda a, **k: nn.focal_loss(a, mo.asarray(BITS), **k), lambda a: focal(a, BITS), 1),
    "cross_entropy": (lambda a, **k: nn.cross_entropy(a, mo.asarray(CLASSES), **k),
                      lambda a: -log_softmax(a)[np.arange(4), CLASSES], 1),
    "nll": (lambda a, **k: nn.nll_loss(a, mo.asarray(CLASSES), **k), lambda a: -a[np.arange(4), CLASSES], 1),
}


@pytest.mark.parametrize("name", CASES)
def test_loss(name: str, rng: np.random.Generator) -> None:
    function, reference, count = CASES[name]
    inputs = [rng.standard_normal((4, 3)) for _ in range(count)]
    wanted = reference(*inputs)
    tensors = [mo.asarray(x) for x in inputs]
    for reduction, value in (("none", wanted), ("sum", wanted.sum()), ("mean", wanted.mean())):
        assert np.allclose(function(*tensors, reduction=reduction).numpy(), value, rtol=1e-6, atol=1e-6), reduction
    check_gradients(function, inputs, [], rng)


def test_weights_and_smoothing(rng: np.random.Generator) -> None:
    """A mean divides by the weights of the targets that count."""
    x, classes = rng.standard_normal((4, 3)), np.array([2, 0, 9, 1])
    logs, kept = log_softmax(x), classes != 9
    picked = np.where(kept, -logs[np.arange(4), classes * kept] * WEIGHT[classes * kept], 0)
    total = WEIGHT[classes[kept]].sum()
    settings = {"weight": mo.asarray(WEIGHT), "ignore_index": 9}
    assert np.isclose(nn.cross_entropy(mo.asarray(x), mo.asarray(classes), **settings).item(), picked.sum() / total)
    even = np.where(kept, -(logs * WEIGHT).sum(1), 0)
    wanted = 0.7 * picked + 0.1 * even
    found = nn.cross_entropy(mo.asarray(x), mo.asarray(classes), label_smoothing=0.3, reduction="none", **settings)
    assert np.allclose(found.numpy(), wanted)
    nothing = nn.nll_loss(mo.asarray(x), mo.full(4, 9, dtype=mo.int64), ignore_index=9)
    assert nothing.item() == 0.0


def test_binary_weights(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 3))
    found = nn.binary_cross_entropy_with_logits(mo.asarray(x), mo.asarray(BITS), weight=mo.asarray(WEIGHT),
                                                pos_weight=mo.asarray(2 * WEIGHT), reduction="none")
    wanted = WEIGHT * np.where(BITS > 0, 2 * WEIGHT * softplus(-x), softplus(x))
    assert np.allclose(found.numpy(), wanted)


@pytest.mark.parametrize("dtype", [mo.float32, mo.float16], ids=str)
def test_extremes_are_finite(dtype: Any) -> None:
    """Neither the loss nor its gradient is NaN or infinite for the largest logits and for certain probabilities."""
    most = float(mo.finfo(dtype).max) / 4
    logits = mo.asarray([most, -most, 0.0, 30.0], dtype=dtype)
    targets = mo.asarray([0.0, 1.0, 1.0, 1.0], dtype=dtype)
    for loss in (nn.binary_cross_entropy_with_logits, nn.focal_loss):
        x = mo.asarray(logits, copy=True).requires_grad_()
        value = loss(x, targets, reduction="none")
        value.backward(mo.ones_like(value))
        assert np.isfinite(value.numpy()).all() and np.isfinite(x.grad.numpy()).all(), loss
    if dtype is mo.float32:
        p = mo.asarray([0.0, 1.0, 0.0, 1.0]).requires_grad_()
        value = nn.binary_cross_entropy(p, mo.asarray([0.0, 1.0, 1.0, 0.0]), reduction="none")
        value.backward(mo.ones_like(value))
        assert value.numpy().tolist() == [0.0, 0.0, 100.0, 100.0] and np.isfinite(p.grad.numpy()).all()
        assert p.grad.numpy()[2] < 0 < p.grad.numpy()[3]  # a way out of where the logarithm is cut off


def test_vectors_of_zeros_have_a_cosine() -> None:
    x = mo.zeros((1, 3)).requires_grad_()
    loss = nn.cosine_embedding_loss(x, mo.ones((1, 3)), mo.asarray([1]))
    loss.backward()
    assert np.isfinite(loss.item()) and np.isfinite(x.grad.numpy()).all()


def test_what_is_refused() -> None:
    one, row = mo.ones((4, 1)), mo.ones(4)
    with pytest.raises(ShapeError, match="differ"):
        nn.mse_loss(one, row)  # never broadcast to (4, 4)
    with pytest.raises(ArgumentError, match="reduction 'average' is unknown"):
        nn.l1_loss(row, row, reduction="average")
    with pytest.raises(DTypeError, match="predictions are int64"):
        nn.mse_loss(mo.asarray([1, 2]), mo.asarray([1, 2]))
    with pytest.raises(ArgumentError, match="delta"):
        nn.huber_loss(row, row, delta=0.0)
    with pytest.raises(ShapeError, match="not classes of shape"):
        nn.nll_loss(mo.ones((4, 3)), mo.asarray([1, 2]))
    with pytest.raises(ArgumentError, match="gamma"):
        nn.focal_loss(row, row, gamma=-1.0)


MODULES = {
    "MSELoss": (nn.MSELoss, nn.mse_loss), "L1Loss": (nn.L1Loss, nn.l1_loss), "HuberLoss": (nn.HuberLoss, nn.huber_loss),
    "SmoothL1Loss": (nn.SmoothL1Loss, nn.smooth_l1_loss), "FocalLoss": (nn.FocalLoss, nn.focal_loss),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, nn.binary_cross_entropy_with_logits),
    "KLDivLoss": (nn.KLDivLoss, nn.kl_div),
}


def test_losses_as_modules(rng: np.random.Generator) -> None:
    a, b = (mo.asarray(rng.uniform(0.1, 0.9, (4, 3))) for _ in range(2))
    for name, (module, function) in MODULES.items():
        assert module(reduction="sum")(a, b).item() == function(a, b, reduction="sum").item(), name
        assert repr(module()) == f"{name}()"
    assert nn.KLDivLoss(reduction="batchmean")(a, b).item() == nn.kl_div(a, b, reduction="batchmean").item()
    classes = mo.asarray(CLASSES)
    assert nn.CrossEntropyLoss(label_smoothing=0.1)(a, classes).item() == mo.cross_entropy(
        a, classes, label_smoothing=0.1, ignore_index=-100).item()
    weighed = nn.CrossEntropyLoss(mo.ones(3), ignore_index=7)  # by place, as a buffer
    assert list(weighed.state_dict()) == ["weight"] and repr(weighed) == "CrossEntropyLoss(weight=..., ignore_index=7)"
    assert (weighed.ignore_index, weighed.reduction, weighed.label_smoothing) == (7, "mean", 0.0)
    with pytest.raises(ArgumentError, match="2 settings are given by place, and 1 are taken so"):
        nn.CrossEntropyLoss(mo.ones(3), 7)
    with pytest.raises(ArgumentError, match="weight is given twice"):
        nn.CrossEntropyLoss(mo.ones(3), weight=mo.ones(3))
    assert nn.TripletMarginLoss(margin=0.5)(a, b, b).item() == nn.triplet_margin_loss(a, b, b, margin=0.5).item()
    with pytest.raises(ArgumentError, match=r"no setting 'smoothing'.*label_smoothing"):
        nn.CrossEntropyLoss(smoothing=0.1)
    with pytest.raises(ArgumentError, match="takes 3 tensors"):
        nn.TripletMarginLoss()(a, b)
    with pytest.raises(ArgumentError, match="reduction"):
        nn.MSELoss(reduction="batchmean")


def test_an_ignored_row_may_hold_anything() -> None:
    x = mo.asarray(np.array([[1, np.inf, 2], [np.nan, 0, 0], [1, 2, 3]], np.float32))
    classes = mo.asarray(np.array([9, 9, 1]))
    loss, slope = mo.value_and_grad(lambda x: mo.nn.cross_entropy(x, classes, ignore_index=9))(x)
    assert np.isfinite(float(loss)) and not np.any(slope.numpy()[:2]) and np.all(np.isfinite(slope.numpy()))


def test_the_class_axis_never_depends_on_sizes(rng: np.random.Generator) -> None:
    """Axis 1 for (N, C, L), of equal sizes too, and for one example its only axis; others are named."""
    for shape in ((3, 4, 5), (3, 4, 4), (4, 4, 4), (2, 4, 3, 3), (3, 4), (4,)):
        x = rng.standard_normal(shape)
        axis = min(1, x.ndim - 1)
        classes = rng.integers(0, 4, tuple(np.delete(shape, axis)))
        logs = x - np.log(np.exp(x).sum(axis, keepdims=True))
        wanted = -np.take_along_axis(logs, np.expand_dims(classes, axis), axis).squeeze(axis)
        for function, given in ((nn.cross_entropy, x), (nn.nll_loss, logs)):
            found = function(mo.asarray(given), mo.asarray(classes), reduction="none")
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)
            moved = function(mo.asarray(np.moveaxis(given, axis, -1)), mo.asarray(classes), reduction="none", dim=-1)
            np.testing.assert_allclose(moved.numpy(), wanted, rtol=1e-6)
    for loss in (nn.cross_entropy, nn.nll_loss):
        with pytest.raises(ShapeError, match=r"classes of \(2, 6, 5\) lie in axis 1.*say dim=-1"):
            loss(mo.zeros((2, 6, 5)), mo.zeros((2, 6), dtype=mo.int64))


def test_targets_of_minus_100_are_ignored() -> None:
    x, classes = mo.asarray([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]]), mo.asarray([0, -100])
    alone = nn.cross_entropy(x[:1], classes[:1])
    assert nn.cross_entropy(x, classes).item() == pytest.approx(alone.item())
    assert nn.nll_loss(x, classes).item() == -2.0
    assert nn.cross_entropy(x, mo.asarray([0, 1], dtype=mo.uint8)).item() > alone.item()  # no number of a byte is -100
    assert nn.cross_entropy(x, mo.softmax(x)).shape == ()  # probabilities have no such number
    with pytest.raises(ArgumentError, match="ignore_index"):
        nn.cross_entropy(x, mo.softmax(x), ignore_index=1)
    with pytest.raises(mo.errors.IndexFault, match="class -100"):
        nn.cross_entropy(x, classes, ignore_index=7).item()


def test_probabilities_with_a_weight(rng: np.random.Generator) -> None:
    x, target = rng.standard_normal((4, 3)), rng.dirichlet(np.ones(3), 4)
    wanted = -(log_softmax(x) * (0.7 * target + 0.1) * WEIGHT).sum(1)
    for reduction, value in (("none", wanted), ("mean", wanted.mean())):
        found = nn.cross_entropy(mo.asarray(x), mo.asarray(target), mo.asarray(WEIGHT), reduction=reduction,
                                 label_smoothing=0.3)
        np.testing.assert_allclose(found.numpy(), value)
    with pytest.raises(ShapeError, match="probabilities of shape"):
        nn.cross_entropy(mo.asarray(x), mo.asarray(target[:2]), mo.asarray(WEIGHT))


def test_a_cosine_is_that_of_the_broadcast_vectors(rng: np.random.Generator) -> None:
    """A length is that of the whole vector, not of what it was broadcast from: no cosine is beyond 1."""
    assert nn.cosine_similarity(mo.ones((1,)), mo.ones((4,))).item() == 1.0
    for one, other, dim in (((4, 1), (4, 3), 1), ((5,), (2, 5), -1), ((2, 1, 3), (4, 1), 1), ((1, 3), (4, 3), 0)):
        a, b = np.broadcast_arrays(x := rng.standard_normal(one), y := rng.standard_normal(other))
        wanted = (a * b).sum(dim) / np.sqrt((a * a).sum(dim) * (b * b).sum(dim))
        found = nn.cosine_similarity(mo.asarray(x), mo.asarray(y), dim=dim)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)
    check_gradients(lambda a, b: nn.cosine_similarity(a, b, dim=0), [rng.standard_normal(1), rng.standard_normal(4)],
                    [], rng)
    with pytest.raises(DTypeError, match="angle"):
        nn.cosine_similarity(mo.asarray([1j]), mo.asarray([1.0]))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, np.inf])
def test_a_distance_is_real(p: float, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal((2, 3)) + 1j * rng.standard_normal((2, 3)) for _ in range(2))
    found = nn.pairwise_distance(mo.asarray(a), mo.asarray(b), p=p, keepdim=True)
    assert found.dtype is mo.float64
    np.testing.assert_allclose(found.numpy(), np.linalg.norm(a - b + 1e-6, p, axis=-1, keepdims=True), rtol=1e-9)
