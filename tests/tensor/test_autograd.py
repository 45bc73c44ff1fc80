"""`backward`, `.grad` and what belongs to them: modes, compiled functions, threads, memory."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError
from morpho.ir.node import live_nodes

Array = Any


def leaf(*numbers: float) -> mo.Tensor:
    return mo.asarray(list(numbers)).requires_grad_()


# -- backward --------------------------------------------------------------------------------------------------------
def test_backward_collects_in_grad() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    assert x.grad is None and x.requires_grad
    (x * y + x).sum().backward()
    assert x.grad.tolist() == [4.0, 5.0] and y.grad.tolist() == [1.0, 2.0]


def test_gradients_add_up_until_dropped() -> None:
    x = leaf(1.0, 2.0)
    for _ in range(3):
        (x * x).sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]
    x.grad = None
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_gradient_of_ones_own() -> None:
    x = leaf(1.0, 2.0)
    x.grad = [10.0, 20.0]
    (3 * x).sum().backward()
    assert x.grad.tolist() == [13.0, 23.0]
    with pytest.raises(ShapeError, match="a gradient of"):
        x.grad = mo.ones(3)
    with pytest.raises(ArgumentError, match="wants no gradient"):
        mo.ones(2).grad = mo.ones(2)


def test_what_each_element_counts_for() -> None:
    x = leaf(1.0, 2.0)
    (x * x).backward([1.0, 10.0])
    assert x.grad.tolist() == [2.0, 40.0]
    with pytest.raises(ShapeError, match="not a single number"):
        (x * x).backward()
    with pytest.raises(ShapeError, match="a gradient of shape"):
        (x * x).backward(mo.ones(3))


def test_printing_the_loss_before_backward_changes_nothing() -> None:
    x = leaf(1.0, 2.0)
    loss = (x * x).sum()
    assert "5." in str(loss) and f"{loss:.1f}" == "5.0"
    loss.backward()
    assert x.grad.tolist() == [2.0, 4.0]
    inner = x * 3
    assert inner.tolist() == [3.0, 6.0]  # a value in the middle, too
    x.grad = None
    (inner * inner).sum().backward()
    assert x.grad.tolist() == [18.0, 36.0]


def test_backward_twice() -> None:
    x = leaf(1.0, 2.0)
    loss = (x * x).sum()
    loss.backward()
    with pytest.raises(ArgumentError, match=r"taken before.*retain_graph=True"):
        loss.backward()
    loss = (x * x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert x.grad.tolist() == [6.0, 12.0]


def test_what_has_no_gradient_says_so() -> None:
    with pytest.raises(ArgumentError, match="nothing that this value was computed from requires a gradient"):
        mo.ones(2).sum().backward()
    x = leaf(1.0, 2.0)
    with pytest.raises(DTypeError, match="has no gradient"):
        (x > 1).any().backward()
    with pytest.raises(DTypeError, match="dtype int64 has no gradient"):
        mo.arange(3).requires_grad_()
    with pytest.raises(ArgumentError, match="computed from others that want gradients"):
        (x * 2).requires_grad_()
    with pytest.raises(ArgumentError, match="no gradient flows"):
        mo.ones(2).retain_grad()


def test_requires_grad_is_seen_and_set() -> None:
    x = leaf(1.0, 2.0)
    y = mo.ones(2)
    assert (x + y).requires_grad and not (y * 2).requires_grad and not x.detach().requires_grad
    y.requires_grad = True
    assert (y * 2).requires_grad
    y.requires_grad = False
    assert not (y * 2).requires_grad
    lazy = (mo.ones(2) * 3).requires_grad_()
    (lazy * lazy).sum().backward()
    assert lazy.grad.tolist() == [6.0, 6.0]


def test_retain_grad_keeps_that_of_a_computed_value() -> None:
    x = leaf(1.0, 2.0)
    y = (x * x).retain_grad()
    (y * y).sum().backward()
    assert y.grad.tolist() == [2.0, 8.0] and x.grad.tolist() == [4.0, 32.0]


def test_hooks_see_and_change_gradients() -> None:
    x = leaf(1.0, 2.0)
    y = x * x
    seen: list[Any] = []
    remove = x.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert seen == [[20.0, 40.0]] and x.grad.tolist() == [20.0, 40.0]
    remove()
    (x * x).sum().backward()
    assert len(seen) == 1
    x.register_hook(lambda g: mo.ones(3))
    with pytest.raises(ShapeError, match="a hook turned"):
        (x * x).sum().backward()


def test_slices_side_by_side(rng: np.random.Generator) -> None:
    """The gradients of parts of an axis are put side by side; gaps are zero, overlaps are added."""
    values = rng.standard_normal((3, 6))
    x = mo.asarray(values).requires_grad_()
    a, b, c = x[:, :2], x[:, 2:5], x[1:2]
    (mo.sum(a * a) + 3 * mo.sum(b) + 10 * mo.sum(c) + 100 * mo.sum(x[:, 4:])).backward()
    wanted = np.zeros((3, 6))
    wanted[:, :2], wanted[:, 2:5] = 2 * values[:, :2], 3
    wanted[1] += 10
    wanted[:, 4:] += 100
    assert np.allclose(x.grad.numpy(), wanted)
    y = mo.asarray(values).requires_grad_()
    (mo.sum(y[0] * 2) + mo.sum(y[2])).backward()
    assert np.array_equal(y.grad.numpy(), np.array([[2.0] * 6, [0.0] * 6, [1.0] * 6]))
    program = mo.compile(lambda x: mo.grad(lambda x: sum((mo.sum(x[i] * x[i]) for i in range(3)), mo.asarray(0.0)))(x))
    assert np.array_equal(program(mo.asarray(values)).numpy(), 2 * values)
    assert "fill" not in program.explain()


# -- modes -----------------------------------------------------------------------------------------------------------
def test_blocks_without_gradients() -> None:
    x = leaf(1.0, 2.0)
    with mo.no_grad():
        assert not mo.is_grad_enabled() and not (x * 2).requires_grad
        with mo.enable_grad():
            assert mo.is_grad_enabled() and (x * 2).requires_grad
        assert not mo.is_grad_enabled()
    assert mo.is_grad_enabled() and (x * 2).requires_grad
    with pytest.raises(RuntimeError), mo.no_grad():
        raise RuntimeError
    assert mo.is_grad_enabled()


def test_functions_without_gradients() -> None:
    x = leaf(1.0, 2.0)

    @mo.no_grad()
    def quiet(depth: int) -> mo.Tensor:
        return x * 2 if depth == 0 else quiet(depth - 1)

    @mo.enable_grad()
    def loud() -> mo.Tensor:
        return x * 2

    assert not quiet(2).requires_grad and mo.is_grad_enabled()
    with mo.no_grad():
        assert loud().requires_grad


def test_what_was_computed_without_gradients_stays_so() -> None:
    x = leaf(1.0, 2.0)
    with mo.no_grad():
        y = x * 2
    (x * y).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_detach_lets_nothing_through() -> None:
    x = leaf(1.0, 2.0)
    ((x * x).detach() * x).sum().backward()
    assert x.grad.tolist() == [1.0, 4.0]
    y = x.detach()
    y[0] = 9.0
    assert x.tolist() == [1.0, 2.0]


def test_assignment_to_elements() -> None:
    """A leaf that collects a gradient is written only where gradients are off, and stays a leaf; others may be."""
    x = leaf(1.0, 2.0)
    with pytest.raises(ArgumentError, match=r"collects a gradient.*no_grad"):
        x[0] = 5.0
    with mo.no_grad():
        x[0] = 5.0
    (x * x).sum().backward()
    assert x.tolist() == [5.0, 2.0] and x.grad.tolist() == [10.0, 4.0]
    y = x * 1
    y[0] = x[1] * 3
    x.grad = None
    (y * y).sum().backward()
    assert y.tolist() == [6.0, 2.0] and x.grad.tolist() == [0.0, 40.0]
    w = mo.nn.Parameter([1.0, 2.0])
    w[1] = 7.0
    (w * w).sum().backward()
    assert w.tolist() == [1.0, 7.0] and w.grad.tolist() == [2.0, 14.0]


def test_an_assigned_parameter_has_no_past() -> None:
    """Gradients end at its new value, whatever that was computed from."""
    w = mo.nn.Parameter([1.0, 2.0])
    for _ in range(3):
        (w * w).sum().backward()
        w.assign(w - 0.25 * w.grad)
        w.grad = None
    assert w.tolist() == [0.125, 0.25]
    (w * w).sum().backward()
    assert w.grad.tolist() == [0.25, 0.5]
    mean = mo.State(mo.zeros(2))
    mean.value = mean.value + w
    (mean.value * w).sum().backward()
    assert w.grad.tolist() == [0.375, 0.75]


def test_a_value_assigned_to_another() -> None:
    """Gradients flow through x[i] = v into v, and not into what was overwritten."""
    x = leaf(2.0, 3.0)
    base = mo.zeros((2, 2))
    base[1] = x * x
    base.sum().backward()
    assert x.grad.tolist() == [4.0, 6.0]


# -- compiled functions ----------------------------------------------------------------------------------------------
def test_gradients_inside_a_compiled_function_stay_there() -> None:
    w = mo.nn.Parameter([1.0, 2.0])
    w.grad = mo.asarray([7.0, 7.0])

    @mo.compile
    def gradient(x: mo.Tensor) -> mo.Tensor:
        w.grad = None
        (w * x).sum().backward()
        return w.grad

    for factor in (3.0, 5.0):
        assert gradient(mo.full(2, factor)).tolist() == [factor, factor]
        assert w.grad.tolist() == [7.0, 7.0]
    result = mo.compile(lambda x: (w * x).sum())(mo.ones(2))
    with pytest.raises(ArgumentError, match="its results have no gradient outside"):
        result.backward()


def test_an_argument_may_want_its_gradient_inside() -> None:
    @mo.compile
    def gradient(x: mo.Tensor) -> mo.Tensor:
        x = x.requires_grad_()
        (x * x).sum().backward()
        return x.grad

    assert gradient(mo.asarray([1.0, 2.0])).tolist() == [2.0, 4.0]


# -- threads and memory ----------------------------------------------------------------------------------------------
def test_threads_have_modes_and_gradients_of_their_own() -> None:
    results: list[Any] = [None] * 4
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        x = leaf(float(number), 1.0)
        if number % 2:
            with mo.no_grad():
                barrier.wait()
                results[number] = (x * x).requires_grad
        else:
            barrier.wait()
            (x * x).sum().backward()
            results[number] = x.grad.tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[0.0, 2.0], False, [4.0, 2.0], False]
    assert mo.is_grad_enabled()


def test_programs_go_with_their_values() -> None:
    """After a step nothing of the program is left: nodes are counted, over steps that print and steps that do not."""
    w = mo.nn.Parameter(np.ones((4, 4), dtype=np.float32))
    opt = mo.optim.SGD([w], lr=0.1)
    x = mo.asarray(np.ones((2, 4), dtype=np.float32))

    def step(show: bool) -> None:
        loss = mo.tanh(x @ w).sum()
        if show:
            loss.item()
        loss.backward()
        opt.step()
        opt.zero_grad()

    alive = []
    for number in range(6):
        step(show=number % 2 == 0)
        gc.collect()
        alive.append(live_nodes())
    assert alive[2:4] == alive[4:6]


def test_a_loss_that_is_kept_holds_a_number_and_no_model() -> None:
    """A list of losses is what every training loop has."""
    w = mo.nn.Parameter(np.ones(8, dtype=np.float32))
    opt = mo.optim.SGD([w], lr=0.1)
    losses, alive = [], []
    for _ in range(5):
        loss = mo.square(mo.exp(w * 0.1) - 1).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss)
        gc.collect()
        alive.append(live_nodes())
    assert all(loss.is_realised for loss in losses)
    assert alive[-1] - alive[-2] <= 1


# -- gradients of a compiled function end with it ----------------------------------------------------------------------
def test_gradients_that_would_be_left_behind_are_an_error() -> None:
    """Outside `compile` these lines would add to the gradients of the last call."""
    weight = mo.nn.Parameter([1.0, 2.0])

    @mo.compile
    def forgets(x: mo.Tensor) -> mo.Tensor:
        loss = (weight * x).sum()
        loss.backward()
        return loss

    with pytest.raises(mo.errors.ArgumentError, match="zero_grad"):
        forgets(mo.ones(2))
    assert weight.grad is None

    @mo.compile
    def drops_first(x: mo.Tensor) -> mo.Tensor:
        weight.grad = None
        loss = (weight * x).sum()
        loss.backward()
        weight.assign(weight - weight.grad)
        return loss

    assert drops_first(mo.ones(2)).item() == 3.0 and weight.tolist() == [0.0, 1.0]


def test_backward_twice_is_an_error_inside_compile_too() -> None:
    weight = mo.nn.Parameter([1.0])

    @mo.compile
    def twice(x: mo.Tensor) -> mo.Tensor:
        loss = (weight * x).sum()
        loss.backward()
        loss.backward()
        weight.grad = None
        return loss

    with pytest.raises(mo.errors.ArgumentError, match="taken before"):
        twice(mo.ones(1))


def test_parameters_that_nobody_holds_any_more() -> None:
    """Gradients of a module that is gone go nowhere: alone they are an error that says so, others are right."""
    x = mo.ones((2, 3))
    loss = mo.nn.Linear(3, 1)(x).sum()
    assert not loss.requires_grad
    with pytest.raises(mo.errors.ArgumentError, match=r"\[backward\] the parameters below this value are gone"):
        loss.backward()
    layer = mo.nn.Linear(3, 1)
    bias, loss, weight = layer.bias, layer(x).sum(), layer.weight.numpy(copy=True)
    del layer
    loss.backward()
    assert bias.grad.tolist() == [2.0]
    x = mo.ones((2, 3)).requires_grad_()
    layer = mo.nn.Linear(3, 1)
    weight, loss = layer.weight.numpy(copy=True), layer(x).sum()
    del layer
    loss.backward()
    assert (x.grad.numpy() == weight).all()


def test_a_leaf_whose_first_tensor_is_gone_still_has_a_gradient() -> None:
    first = mo.nn.Parameter([1.0, 2.0])
    second = mo.nn.Parameter([0.0, 0.0])
    second.state = first.state
    used = first * 2
    del first
    (second * 3).sum().backward()
    assert second.grad.tolist() == [3.0, 3.0] and used.tolist() == [2.0, 4.0]


def test_a_module_made_inside_a_compiled_function() -> None:
    with pytest.raises(mo.errors.CompileError, match=r"\[State\] a parameter or state is made inside.*outside of it"):
        mo.compile(lambda x: mo.nn.Linear(3, 1)(x))(mo.ones((2, 3)))


def test_threads_that_train_at_once() -> None:
    """Several losses wait in each thread when another thread's step computes what waits."""
    ends: list[list[float]] = []

    def train() -> None:
        weight = mo.nn.Parameter(mo.ones(3))
        rule = mo.optim.SGD([weight], lr=0.125)
        for _ in range(3):
            for loss in [(weight * weight).sum() for _ in range(10)]:
                loss.backward()
            rule.step()
            rule.zero_grad()
        ends.append(weight.tolist())

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == [[-3.375] * 3] * 3


def test_without_gradients_a_computed_value_is_not_computed_again() -> None:
    """What was computed is read, whether its tensor lives or not: ranks whose programs have collectives would else wait
    for each other where they drop the tensor at other times."""
    calls = []

    def doubled(x: np.ndarray) -> np.ndarray:
        calls.append(x.shape)
        return x * 2

    op = mo.extend.op("doubled_and_counted", reference=doubled, native=False)
    weight = mo.asarray([1.0, 2.0]).requires_grad_()
    y = (op(mo.asarray([1.0, 2.0])) * weight).realise()
    with mo.no_grad():
        z = y * 3
    del y
    assert z.tolist() == [6.0, 24.0] and len(calls) == 1


@pytest.mark.parametrize("record", [True, False])
def test_a_detached_tensor_is_a_leaf_of_its_own(record: bool) -> None:
    with mo.settings(record=record):
        x = mo.asarray([0.3])
        y = x.detach()
        y.requires_grad = True
        mo.sum(mo.tanh(y) * x).backward()
        np.testing.assert_allclose(y.grad.numpy(), (1 - np.tanh(0.3) ** 2) * 0.3, rtol=1e-5)
        assert not x.requires_grad
