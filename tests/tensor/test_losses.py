"""Cross entropy against float64: classes and probabilities, smoothing, ignored rows, extremes, wrong classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, IndexFault, ShapeError

Array = Any


def log_softmax(x: Array, axis: int) -> Array:
    x = x.astype(np.float64)
    top = x.max(axis=axis, keepdims=True)
    return x - top - np.log(np.exp(x - top).sum(axis=axis, keepdims=True))


def wanted(x: Array, target: Array, axis: int = -1, smoothing: float = 0.0, ignore: int | None = None) -> Array:
    """The loss of every row in float64."""
    logs = np.moveaxis(log_softmax(x, axis), axis, -1)
    if target.dtype.kind in "iu":
        counts = target != ignore if ignore is not None else np.ones(target.shape, bool)
        p = (np.where(counts, target, 0)[..., None] == np.arange(x.shape[axis])).astype(np.float64)
    else:
        counts, p = np.ones(logs.shape[:-1], bool), np.moveaxis(target, axis, -1).astype(np.float64)
    p = p * (1 - smoothing) + smoothing / x.shape[axis]
    return np.where(counts, -(p * logs).sum(axis=-1), 0)


@pytest.mark.sampled
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "probabilities"])
def test_against_float64(kind: str, axis: int, smoothing: float, rng: np.random.Generator) -> None:
    x = rng.normal(0, 4, (3, 5, 7)).astype(np.float32)
    shape = np.delete(x.shape, axis)
    target = (rng.integers(0, x.shape[axis], shape).astype(kind) if kind != "probabilities"
              else np.exp(log_softmax(rng.normal(0, 1, x.shape), axis)).astype(np.float32))
    rows = wanted(x, target, axis, smoothing)
    for reduction, want in (("none", rows), ("sum", rows.sum()), ("mean", rows.mean())):
        got = mo.cross_entropy(mo.asarray(x), mo.asarray(target), axis=axis, label_smoothing=smoothing,
                               reduction=reduction)
        assert got.shape == np.shape(want) and got.dtype is mo.float32
        assert np.allclose(got.numpy(), want, rtol=2e-6, atol=2e-6)


def test_ignored_rows_count_for_nothing(rng: np.random.Generator) -> None:
    x, target = rng.normal(0, 2, (9, 11)).astype(np.float32), rng.integers(0, 11, 9)
    target[[0, 4, 5]] = -100
    rows = wanted(x, target, ignore=-100)
    assert (rows == 0).sum() == 3
    tensors = mo.asarray(x), mo.asarray(target)
    assert np.allclose(mo.cross_entropy(*tensors, ignore_index=-100, reduction="none").numpy(), rows, rtol=1e-6)
    assert np.isclose(mo.cross_entropy(*tensors, ignore_index=-100).item(), rows.sum() / 6, rtol=1e-6)
    slope = mo.grad(lambda x: mo.cross_entropy(x, tensors[1], ignore_index=-100))(tensors[0]).numpy()
    assert not slope[[0, 4, 5]].any() and slope[1].any()
    nothing = mo.asarray(np.full(9, -100))
    assert mo.cross_entropy(tensors[0], nothing, ignore_index=-100).item() == 0
    assert not mo.grad(lambda x: mo.cross_entropy(x, nothing, ignore_index=-100))(tensors[0]).numpy().any()


@pytest.mark.parametrize("ignore", [None, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("soft", [False, True])
def test_gradients_by_differences(soft: bool, smoothing: float, ignore: int | None, rng: np.random.Generator) -> None:
    x = rng.normal(0, 2, (4, 6))
    target = rng.random((4, 6)) if soft else np.array([0, 5, 2, 3])
    if soft and ignore is not None:
        ignore = None
    options = {"label_smoothing": smoothing, "ignore_index": ignore}
    slope = mo.grad(lambda x: mo.cross_entropy(x, mo.asarray(target), **options))(mo.asarray(x)).numpy()
    counted = 4 if ignore is None else 3
    for place in np.ndindex(*x.shape):
        moved = [x.copy(), x.copy()]
        moved[0][place] += 1e-6
        moved[1][place] -= 1e-6
        high, low = (wanted(m, target, -1, smoothing, ignore).sum() / counted for m in moved)
        assert np.isclose(slope[place], (high - low) / 2e-6, rtol=1e-5, atol=1e-8)


def test_the_gradient_of_the_probabilities(rng: np.random.Generator) -> None:
    x, p = rng.normal(0, 2, (4, 6)), rng.random((4, 6))
    slope = mo.grad(lambda p: mo.cross_entropy(mo.asarray(x), p, reduction="sum"))(mo.asarray(p)).numpy()
    assert np.allclose(slope, -log_softmax(x, -1), rtol=1e-12)


def test_finite_extremes_are_never_nan() -> None:
    big = np.float32(3e38)
    x = mo.asarray(np.array([[big, -big, 0, 1], [-big, -big, -big, -big], [88, -88, 1e-45, 0]], np.float32))
    classes = mo.asarray(np.array([0, 1, 1]))
    for target in (classes, mo.one_hot(classes, 4)):
        rows = mo.cross_entropy(x, target, reduction="none").numpy()
        assert rows[0] == 0 and np.isclose(rows[1], np.log(4)) and np.isclose(rows[2], 176)
        slope = mo.grad(lambda x, target=target: mo.cross_entropy(x, target, reduction="sum"))(x).numpy()
        assert np.allclose(slope, [[0, 0, 0, 0], [0.25, -0.75, 0.25, 0.25], [1, -1, 0, 0]], atol=1e-6)
    assert mo.cross_entropy(x, mo.asarray(np.array([1, 1, 1])), reduction="none").numpy()[0] == np.inf  # 6e38


@pytest.mark.parametrize("wrong", [5, -1, 1 << 40, -100])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_wrong_class_is_a_fault_at_the_users_line(wrong: int, gradient: bool, compiled: bool) -> None:
    x, classes = mo.asarray(np.zeros((3, 5), np.float32)), np.array([0, 1, 4])

    def loss(x: mo.Tensor, target: mo.Tensor) -> mo.Tensor:
        value = mo.cross_entropy(x, target)  # this line
        return value * 2

    def run(x: mo.Tensor, target: mo.Tensor) -> mo.Tensor:
        return mo.grad(loss)(x, target) if gradient else loss(x, target)

    function = mo.compile(run) if compiled else run
    function(x, mo.asarray(classes)).numpy()
    classes[1] = wrong
    line = loss.__code__.co_firstlineno + 1
    name = r"\[cross_entropy\]" if not gradient else ""
    with pytest.raises(IndexFault, match=name + rf".*out of range.*test_losses.py:({line}|\d+)\b") as caught:
        function(x, mo.asarray(classes)).numpy()
    if not gradient:
        assert f"test_losses.py:{line}" in str(caught.value)


def test_one_kernel_forward_and_one_backward(rng: np.random.Generator) -> None:
    x, t = mo.asarray(rng.normal(0, 1, (12, 50)).astype(np.float32)), mo.asarray(rng.integers(0, 50, 12))
    rows = mo.compile(lambda x, t: mo.cross_entropy(x, t, reduction="none"))
    masked = mo.compile(lambda x, t: mo.cross_entropy(x, t, reduction="none", ignore_index=3, label_smoothing=0.1))
    slope = mo.compile(lambda x, t: mo.grad(lambda x: mo.cross_entropy(x, t))(x))
    total = mo.compile(lambda x, t: mo.grad(lambda x: mo.cross_entropy(x * 2, t, ignore_index=3, reduction="sum"))(x))
    for function in (rows, masked, slope, total):
        function(x, t)
        assert function.stats["kernels"] == 1 and function.stats["host_steps"] == 0


@pytest.mark.parametrize(("options", "kernels"), [({}, 2), ({"ignore_index": 3}, 3),
                                                  ({"ignore_index": 3, "reduction": "sum"}, 2)])
def test_loss_and_gradient_together_read_the_logits_once(options: dict[str, Any], kernels: int,
                                                         rng: np.random.Generator) -> None:
    """One kernel over the logits for both; one that adds up the rows, and with rows to ignore one that counts them."""
    from morpho.ops.algebra import constant_like
    from morpho.tensor.autodiff.gradient import pull_back

    def both(x: mo.Tensor, t: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        loss = mo.cross_entropy(x, t, **options)
        return loss, mo.Tensor.of_node(pull_back([loss.node], [constant_like(loss.node, 1)], [x.node])[0])

    f = mo.compile(both)
    f(mo.asarray(rng.normal(0, 1, (12, 50)).astype(np.float32)), mo.asarray(rng.integers(0, 50, 12)))
    assert f.stats["kernels"] == kernels


def test_logits_are_walked_twice_and_exponentials_made_once(rng: np.random.Generator) -> None:
    """The maximum and the picked logit come from one walk, the sum of exponentials from the other."""
    from morpho.tensor.jit.compile import Compiled

    f = mo.compile(lambda x, t: mo.cross_entropy(x, t, reduction="none"))
    assert isinstance(f, Compiled)
    f(mo.asarray(rng.normal(0, 1, (4, 9)).astype(np.float32)), mo.asarray(rng.integers(0, 9, 4)))
    (step,) = next(iter(f.specialisations.values())).plan.program.steps
    assert len(step.kernel.passes) == 2


def test_after_a_product(rng: np.random.Generator) -> None:
    """Behind a matrix product the loss runs on its tiles; a wrong class is found there too."""
    h, w = rng.normal(0, 1, (64, 8)).astype(np.float32), rng.normal(0, 1, (8, 32)).astype(np.float32)
    target = rng.integers(0, 32, 64)
    f = mo.compile(lambda h, w, t: mo.cross_entropy(h @ w, t, reduction="none"))
    got = f(mo.asarray(h), mo.asarray(w), mo.asarray(target)).numpy()
    assert np.allclose(got, wanted(h.astype(np.float64) @ w, target), rtol=1e-5, atol=1e-5)
    target[60] = 32
    with pytest.raises(IndexFault):
        f(mo.asarray(h), mo.asarray(w), mo.asarray(target)).numpy()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_same_bits_at_every_level_and_thread_count(dtype: str, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.normal(0, 3, (40, 300)).astype(np.float32)).astype(dtype)
    target = mo.asarray(rng.integers(0, 300, 40))

    def values() -> list[list[Any]]:
        loss = mo.cross_entropy(x, target, label_smoothing=0.1, ignore_index=7, reduction="none")
        slope = mo.grad(lambda x: mo.cross_entropy(x, target, label_smoothing=0.1, ignore_index=7).astype("float32"))(x)
        return [loss.astype("float32").tolist(), slope.astype("float32").tolist()]

    first = values()
    for level in range(4):
        for threads in (1, 2):
            with mo.settings(level=level, threads=threads):
                assert values() == first


def test_dynamic_rows_and_classes(rng: np.random.Generator) -> None:
    n, c = mo.Dim("n", 0, 100), mo.Dim("c", 1, 100)
    f = mo.compile(lambda x, t: mo.cross_entropy(x, t, label_smoothing=0.2, reduction="none"),
                   dynamic={"x": {0: n, 1: c}, "t": {0: n}})
    for rows, classes in ((3, 5), (40, 67), (0, 4), (1, 1)):
        x, t = rng.normal(0, 1, (rows, classes)).astype(np.float32), rng.integers(0, classes, rows)
        assert np.allclose(f(mo.asarray(x), mo.asarray(t)).numpy(), wanted(x, t, smoothing=0.2), rtol=1e-5, atol=1e-6)


X, T = mo.zeros((3, 4)), mo.asarray([0, 1, 2])


@pytest.mark.parametrize(("kind", "use"), [
    (ShapeError, lambda: mo.cross_entropy(X, T[:2])), (ShapeError, lambda: mo.cross_entropy(X, X[:2])),
    (ShapeError, lambda: mo.cross_entropy(mo.zeros(()), T)),
    (ShapeError, lambda: mo.cross_entropy(mo.zeros((3, 0)), T)),
    (IndexError, lambda: mo.cross_entropy(X, T, axis=2)),
    (ArgumentError, lambda: mo.cross_entropy(X, T, reduction="x")),
    (ArgumentError, lambda: mo.cross_entropy(X, T, label_smoothing=1.5)),
    (ArgumentError, lambda: mo.cross_entropy(X, X, ignore_index=1)),
    (DTypeError, lambda: mo.cross_entropy(X, T > 1)),
])
def test_what_does_not_fit_is_said(kind: type[Exception], use: Any) -> None:
    with pytest.raises(kind, match=r"^\[cross_entropy\]"):
        use()
