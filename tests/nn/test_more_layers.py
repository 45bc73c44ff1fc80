"""Padded batches, buffers, and what the newer layers refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checking import check_gradients

import morpho as mo
from morpho import nn
from morpho.base.errors import ShapeError


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_padding_is_invisible_with_lengths(kind: str, batch_first: bool, rng: np.random.Generator) -> None:
    """Each sequence of a padded batch has the outputs and last states it has alone, in both directions."""
    layer = getattr(nn, kind)(3, 4, num_layers=2, bidirectional=True, batch_first=batch_first, dtype=mo.float64)
    x, lengths = rng.standard_normal((5, 3, 3)), [5, 2, 3]
    with mo.settings(device="reference"):
        given = mo.asarray(np.swapaxes(x, 0, 1) if batch_first else x)
        outputs, last = layer(given, lengths=mo.asarray(lengths))
        outputs = np.swapaxes(outputs.numpy(), 0, 1) if batch_first else outputs.numpy()
        lasts = [one.numpy() for one in (last if isinstance(last, tuple) else (last,))]
        for number, length in enumerate(lengths):
            alone, end = layer(mo.asarray(x[:length, number]))
            np.testing.assert_allclose(outputs[:length, number], alone.numpy(), rtol=1e-12)
            assert not outputs[length:, number].any()
            for one, own in zip(lasts, end if isinstance(end, tuple) else (end,), strict=True):
                np.testing.assert_allclose(one[:, number], own.numpy(), rtol=1e-12)


def test_gradients_do_not_come_from_padding(rng: np.random.Generator) -> None:
    layer = nn.GRU(2, 3, bidirectional=True, dtype=mo.float64)
    x = rng.standard_normal((3, 2, 2))
    check_gradients(lambda x: layer(x, lengths=[3, 1])[0], [x], list(layer.parameters()), rng, backend="reference")
    given = mo.asarray(x).requires_grad_()
    with mo.settings(device="reference"):
        layer(given, lengths=[3, 1])[0].sum().backward()
        assert not given.grad.numpy()[1:, 1].any() and given.grad.numpy()[:, 0].all()


def test_cells_are_steps_of_layers(rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((4, 2, 3)))
    for kind in ("RNN", "LSTM", "GRU"):
        layer, cell = (getattr(nn, kind + what)(3, 5, dtype=mo.float64) for what in ("", "Cell"))
        cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
        with mo.settings(device="reference"):
            wanted, state = layer(x)[0].numpy(), None
            for time in range(4):
                state = cell(x[time], state)
                found = state[0] if isinstance(state, tuple) else state
                np.testing.assert_allclose(found.numpy(), wanted[time], rtol=1e-12)


def test_buffers_are_registered() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            self.register_buffer("scale", mo.asarray([2.0, 3.0]))
            self.register_buffer("table", [1, 2], persistent=False)
            self.register_buffer("nothing", None)

        def forward(self, x: Any) -> Any:
            return x * self.scale

    layer = Scaled()
    assert [name for name, _ in layer.named_buffers()] == ["scale", "table"] and not list(layer.parameters())
    assert list(layer.state_dict()) == ["scale"] and layer.nothing is None and layer.table.dtype is mo.int64
    layer.load_state_dict({"scale": np.ones(2)})
    assert layer(mo.ones(2)).numpy().tolist() == [1.0, 1.0]
    layer.register_buffer("nothing", mo.ones(1))  # what was None may be given later
    assert "nothing" in layer.state_dict()
    for name in ("", "a.b", 3, "forward"):
        with pytest.raises(mo.errors.ArgumentError, match="register_buffer"):
            layer.register_buffer(name, mo.ones(1))
    layer.weight = nn.Parameter([1.0])
    with pytest.raises(mo.errors.ArgumentError, match="Scaled has an attribute 'weight' already"):
        layer.register_buffer("weight", mo.ones(1))


def test_running_statistics_of_instances(rng: np.random.Generator) -> None:
    layer = nn.InstanceNorm1d(2, track_running_stats=True)
    x = rng.standard_normal((3, 2, 4)).astype(np.float32)
    layer(mo.asarray(x))
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.1 * x.mean((0, 2)), rtol=1e-5, atol=1e-7)
    variance = x.var(2, ddof=1).mean(0)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.9 + 0.1 * variance, rtol=1e-5)
    mean, spread = layer.running_mean.numpy()[:, None], layer.running_var.numpy()[:, None]
    np.testing.assert_allclose(layer.eval()(mo.asarray(x)).numpy(), (x - mean) / np.sqrt(spread + 1e-5), rtol=1e-4,
                               atol=1e-5)


BAG = nn.EmbeddingBag(5, 2)
IDS = mo.asarray([1, 2, 3])
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: nn.Conv3d(2, 3, 2)(mo.ones((2, 3, 4, 4))), r"is not \[N, 2, D, H, W\]"),
    (lambda: nn.Conv3d(2, 3, 5)(mo.ones((1, 2, 3, 6, 6))), "5 planes does not fit 3"),
    (lambda: nn.Conv3d(2, 3, (1, 2)), r"kernel_size=\(1, 2\) is not 3 numbers"),
    (lambda: nn.InstanceNorm2d(3)(mo.ones((2, 4, 2, 2))), "with 3 channels"),
    (lambda: nn.InstanceNorm1d(3)(mo.ones((2, 3, 1))), "has no variance"),
    (lambda: nn.PReLU(3)(mo.ones((2, 4))), "is not 3 channels"), (lambda: nn.PReLU(0), "num_parameters=0"),
    (lambda: nn.Upsample(), "one of size and scale_factor"), (lambda: nn.Upsample(2, 2), "one of size and scale"),
    (lambda: nn.Upsample(2, mode="cubic"), "mode 'cubic' is unknown"),
    (lambda: nn.Upsample(2, align_corners=True), "no meaning for mode 'nearest'"),
    (lambda: nn.Upsample(2, mode="bilinear")(mo.ones((1, 1, 4))), "has not the 2 known axes"),
    (lambda: nn.Upsample((2, 2))(mo.ones((1, 1, 4))), "is not one number for each of 1 axes"),
    (lambda: nn.Upsample(scale_factor=-1)(mo.ones((1, 1, 4))), "not made of positive numbers"),
    (lambda: nn.Upsample(scale_factor=0.1)(mo.ones((1, 1, 4))), "nothing is left"),
    (lambda: nn.Upsample("3")(mo.ones((1, 1, 4))), "not made of whole numbers"),
    (lambda: nn.EmbeddingBag(5, 2, mode="min"), "mode 'min' is unknown"), (lambda: BAG(IDS), "without offsets"),
    (lambda: BAG(mo.ones((2, 2), dtype=mo.int64), mo.asarray([0])), "with offsets are no bags"),
    (lambda: BAG(IDS, mo.asarray([1, 2])), r"offsets \[1, 2\] do not ascend from 0"),
    (lambda: BAG(IDS, mo.asarray([0, 4])), "to at most 3"), (lambda: BAG(IDS, mo.asarray([0.5])), "a row of integers"),
    (lambda: BAG(IDS, mo.asarray([0]), mo.ones(3)), "they are for mode='sum'"),
    (lambda: nn.EmbeddingBag(5, 2, padding_idx=7), "padding_idx=7 is not among 5 rows"),
    (lambda: nn.LSTMCell(2, 3)(mo.ones((1, 4))), r"is not \[batch, 2\] or \[2\]"),
    (lambda: nn.LSTMCell(2, 3)(mo.ones((1, 2)), mo.ones((1, 3))), r"the states are not 2 of shape \(1, 3\)"),
    (lambda: nn.RNNCell(2, 3, nonlinearity="sin"), "use 'tanh' or 'relu'"),
    (lambda: nn.GRU(2, 3)(mo.ones((4, 2, 2)), lengths=[4]), "not an integer for each of 2 sequences"),
    (lambda: nn.GRU(2, 3)(mo.ones((4, 2, 2)), lengths=[4, 5]), r"lengths \[4, 5\] are not all between 1 and 4"),
    (lambda: nn.GRU(2, 3)(mo.ones((4, 2, 2)), lengths=[0, 4]), "not all between 1 and 4"),
    (lambda: nn.ctc_loss(mo.ones((2, 1, 3)), mo.asarray([[1]]), [3], [1]), r"input_lengths \[3\] are not all"),
    (lambda: nn.ctc_loss(mo.ones((2, 1, 3)), mo.asarray([[1]]), [2], [2]), r"target_lengths \[2\] are not all"),
    (lambda: nn.ctc_loss(mo.ones((2, 1, 3)), mo.asarray([[1]]), [2], [1], blank=3), "blank=3 is not one of 3"),
    (lambda: nn.ctc_loss(mo.ones((2, 1, 3)), mo.asarray([[1.0]]), [2], [1]), "class numbers are integers"),
    (lambda: nn.ctc_loss(mo.ones((2, 1, 3)), mo.asarray([[7]]), [2], [1]).item(), "class 7"),
    (lambda: nn.ctc_loss(mo.ones((2, 2, 3)), mo.asarray([1, 2]), [2, 2], [1, 2]), "2 labels one after another"),
    (lambda: nn.ctc_loss(mo.ones(3), mo.asarray([1]), [2], [1]), r"not floats \[T, N, C\]"),
    (lambda: nn.multi_margin_loss(mo.ones((2, 3)), mo.asarray([0, 1]), p=3), "p=3 is neither 1 nor 2"),
    (lambda: nn.multi_margin_loss(mo.ones((2, 3, 1)), mo.asarray([0, 1])), r"not floats \[N, C\]"),
    (lambda: nn.margin_ranking_loss(mo.ones(2), mo.ones(2), mo.ones(3)), "do not fit"),
    (lambda: nn.hinge_embedding_loss(mo.ones(2), mo.ones(3)), "differ"),
    (lambda: nn.cosine_embedding_loss(mo.ones((2, 3)), mo.ones((2, 3)), mo.ones(3)), "do not fit pairs"),
    (lambda: nn.cosine_similarity(mo.ones(()), mo.ones(())), "hold no vectors"),
]


@pytest.mark.parametrize(("call", "text"), WRONG)
def test_what_is_refused(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(mo.errors.MorphoError, match=text):
        call()


def test_an_impossible_sequence_has_no_finite_gradient() -> None:
    """Two labels alike need a blank between them: three frames at least."""
    def loss(x: Any, **how: Any) -> Any:
        return nn.ctc_loss(mo.log_softmax(x), mo.asarray([[1, 1]]), [2], [2], reduction="sum", **how)

    x = mo.asarray(np.zeros((2, 1, 3)))
    with mo.settings(device="reference"):
        assert loss(x).item() == np.inf and not np.isfinite(mo.grad(loss)(x).numpy()).all()
        assert loss(x, zero_infinity=True).item() == 0
        assert not mo.grad(lambda x: loss(x, zero_infinity=True))(x).numpy().any()


# -- half floats: squares of numbers from 256 on are beyond float16, and of those below 2e-4 are 0 in it ---------------
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_lengths_of_half_floats(dtype: str, rng: np.random.Generator) -> None:
    wide = rng.standard_normal((4, 1000)) * 30
    wide[0], wide[1] = 300, 1e-4
    x, y = mo.asarray(wide).astype(dtype), mo.asarray(rng.standard_normal((4, 1000)) * 30).astype(dtype)
    a, b = (each.astype("float64").numpy() for each in (x, y))

    def check(found: mo.Tensor, wanted: np.ndarray) -> None:
        assert str(found.dtype) == dtype
        np.testing.assert_allclose(found.astype("float64").numpy(), wanted, rtol=0.02, atol=1e-4)

    for power in (1.5, 2, 3):
        check(mo.linalg.vector_norm(x, axis=1, ord=power), (np.abs(a) ** power).sum(axis=1) ** (1 / power))
    check(mo.linalg.matrix_norm(x), np.sqrt((a * a).sum()))
    check(nn.pairwise_distance(x, y), np.sqrt(((a - b) ** 2).sum(axis=1)))
    cosine = (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    check(nn.cosine_similarity(x, y), cosine)
    check(nn.cosine_embedding_loss(x, y, mo.ones((4,)), reduction="none"), 1 - cosine)


@pytest.mark.parametrize("layer", ["BatchNorm1d", "InstanceNorm1d"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_running_statistics_of_half_floats(layer: str, dtype: str, rng: np.random.Generator) -> None:
    norm = getattr(nn, layer)(3, track_running_stats=True, dtype=dtype)
    x = (rng.standard_normal((4, 3, 50)) * 300).astype("float16")
    norm(mo.asarray(x))
    axes = (0, 2) if layer == "BatchNorm1d" else (2,)
    wanted = 0.9 + 0.1 * x.astype("f").var(axis=axes, ddof=1).reshape(-1, 3).mean(axis=0)
    np.testing.assert_allclose(norm.running_var.numpy(), wanted, rtol=2e-3)


def test_running_statistics_of_nothing_are_refused() -> None:
    norm = nn.InstanceNorm1d(3, track_running_stats=True)
    with pytest.raises(ShapeError, match="no elements for the running statistics"):
        norm(mo.zeros((0, 3, 5)))
    assert norm.running_var.tolist() == [1, 1, 1] and nn.InstanceNorm1d(3)(mo.zeros((0, 3, 5))).shape == (0, 3, 5)


def test_a_distance_of_nothing_has_no_slope() -> None:
    x = mo.ones((2, 3))
    assert mo.grad(lambda x: nn.pairwise_distance(x, mo.ones((2, 3)), eps=0.0).sum())(x).tolist() == [[0] * 3] * 2
