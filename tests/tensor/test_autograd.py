"""`backward`, `.grad` and what belongs to them; gradients as functions; modes; threads; memory."""

from __future__ import annotations

import gc
import threading
from collections import namedtuple
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
    with pytest.raises(ArgumentError, match="nothing below this value wants a gradient"):
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


# -- functions -------------------------------------------------------------------------------------------------------
def test_value_and_grad_of_trees() -> None:
    parameters = {"w": mo.asarray([1.0, 2.0]), "rest": [mo.asarray(3.0), (mo.asarray([4.0]),)]}

    def loss(p: Any, x: mo.Tensor) -> tuple[mo.Tensor, str]:
        return (p["w"] * x).sum() * p["rest"][0] + p["rest"][1][0].sum(), "aux"

    (value, aux), found = mo.value_and_grad(loss, has_aux=True)(parameters, mo.asarray([5.0, 6.0]))
    assert value.item() == 55.0 and aux == "aux"
    assert found["w"].tolist() == [15.0, 18.0] and found["rest"][0].item() == 17.0
    assert found["rest"][1][0].tolist() == [1.0]
    both, aux = mo.grad(loss, argnums=(0, 1), has_aux=True)(parameters, mo.asarray([5.0, 6.0]))
    assert both[1].tolist() == [3.0, 6.0] and aux == "aux"
    last = mo.grad(lambda x, y: (x * y).sum(), argnums=-1)(mo.ones(2), mo.ones(2))
    assert last.tolist() == [1.0, 1.0]


def test_a_function_may_print_on_its_way() -> None:
    """Values that are computed before the gradient is taken still have one."""
    def loud(x: mo.Tensor) -> mo.Tensor:
        y = x * x
        assert y.tolist() == [1.0, 4.0]
        z = mo.sum(y * y)
        assert z.item() == 17.0
        return z

    x = mo.asarray([1.0, 2.0])
    assert mo.grad(loud)(x).tolist() == [4.0, 32.0]
    assert mo.vjp(loud, x)[1](1.0)[0].tolist() == [4.0, 32.0]
    assert mo.jvp(loud, (x,), (mo.ones(2),))[1].item() == 36.0


def test_functions_say_what_is_wrong() -> None:
    with pytest.raises(ArgumentError, match="there is no argument 3 among 1"):
        mo.grad(lambda x: x.sum(), argnums=3)(mo.ones(2))
    with pytest.raises(ArgumentError, match="0-dimensional"):
        mo.grad(lambda x: x)(mo.ones(2))
    with pytest.raises(DTypeError, match="int64 has no gradient"):
        mo.grad(lambda x: x.sum())(mo.arange(2))
    with pytest.raises(ArgumentError, match="1 arguments have 2 tangents"):
        mo.jvp(lambda x: x, (mo.ones(2),), (mo.ones(2), mo.ones(2)))
    with pytest.raises(ShapeError, match="is given one of"):
        mo.vjp(lambda x: x * 2, mo.ones(2))[1](mo.ones(3))
    with pytest.raises(ArgumentError, match="not arranged like"):
        mo.vjp(lambda x: (x, x), mo.ones(2))[1](mo.ones(2))


def test_pulling_and_pushing_agree(rng: np.random.Generator) -> None:
    """<cotangent, J tangent> is the same both ways."""
    matrix = mo.asarray(rng.standard_normal((3, 4)))
    x, tangent, cotangent = (mo.asarray(rng.standard_normal(n)) for n in (4, 4, 3))

    def function(x: mo.Tensor) -> mo.Tensor:
        return mo.tanh(matrix @ x) * x[0]

    value, pull = mo.vjp(function, x)
    same, push = mo.jvp(function, (x,), (tangent,))
    assert np.allclose(value.numpy(), same.numpy())
    left, right = (cotangent * push).sum().item(), (pull(cotangent)[0] * tangent).sum().item()
    assert np.isclose(left, right, rtol=1e-12)
    _, (first, second) = mo.jvp(lambda x, y: (x * y, y), (mo.asarray(2.0), mo.asarray(3.0)),
                                (mo.asarray(1.0), mo.asarray(0.5)))
    assert (first.item(), second.item()) == (4.0, 0.5)


def test_higher_order() -> None:
    third = mo.grad(mo.grad(mo.grad(lambda x: x ** 4)))
    assert third(mo.asarray(2.0)).item() == 48.0
    hessian = [mo.grad(lambda x, i=i: mo.grad(lambda x: x[0] ** 2 * x[1])(x)[i])(mo.asarray([2.0, 3.0])).tolist()
               for i in range(2)]
    assert hessian == [[6.0, 4.0], [4.0, 0.0]]
    x = leaf(1.0, 2.0)
    slope = mo.grad(lambda y: (y ** 3).sum())(x)  # a gradient in a loss: of its norm
    (slope * slope).sum().backward()
    assert x.grad.tolist() == [36.0, 288.0]


def test_custom_gradients() -> None:
    @mo.custom_gradient
    def straight_through(x: mo.Tensor) -> Any:
        return mo.round(x), lambda g: g

    @mo.custom_gradient
    def product(x: mo.Tensor, y: mo.Tensor) -> Any:
        return x * y, lambda g: (g * y * 100, None)

    x, y = leaf(1.2, 2.7), leaf(3.0, 4.0)
    value = straight_through(x)
    (value * value).sum().backward()
    assert value.tolist() == [1.0, 3.0] and x.grad.tolist() == [2.0, 6.0]
    x.grad = None
    product(x, y).sum().backward()
    assert x.grad.tolist() == [300.0, 400.0] and y.grad is None
    assert mo.compile(mo.grad(lambda x: straight_through(x).sum()))(mo.asarray([0.4])).tolist() == [1.0]
    wrong = mo.custom_gradient(lambda x: (x * 1, lambda g: (g, g)))
    with pytest.raises(ArgumentError, match="2 gradients for 1 arguments"):
        wrong(x).sum().backward()
    wrong = mo.custom_gradient(lambda x: (x * 1, lambda g: mo.ones(5)))
    with pytest.raises(ShapeError, match="a gradient of shape"):
        wrong(x).sum().backward()


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


def test_numbers_in_containers_are_differentiated():
    def loss(p):
        return (p["w"] * 3 + p["b"]) ** 2

    for number in (0.5, np.float32(0.5), np.float64(0.5), mo.asarray(0.5)):
        found = mo.grad(loss)({"w": mo.asarray(1.0), "b": number})
        assert found["w"].item() == 21 and found["b"].item() == 7
        assert mo.jvp(loss, ({"w": 1.0, "b": number},), ({"w": 0.0, "b": 1.0},))[1].item() == 7
    Pair = namedtuple("Pair", "a b")
    found = mo.grad(lambda t: t[0] * t[1].a + t[2][0] ** 2)((2.0, Pair(3.0, None), [4.0, "name"]))
    assert found[0].item() == 3 and found[1].a.item() == 2 and found[2][0].item() == 8
    assert found[1].b is None and found[2][1] == "name" and isinstance(found[1], Pair)
    _, pull = mo.vjp(lambda t: t[0] * t[1], (2.0, mo.asarray([1.0, 3.0])))
    assert pull(mo.asarray([1.0, 1.0]))[0][0].item() == 4


@pytest.mark.parametrize("number", [3, True, np.int32(3), np.bool_(True)])
def test_integers_have_no_gradient_wherever_they_stand(number):
    with pytest.raises(DTypeError, match="has no gradient"):
        mo.grad(lambda p: p * 2.0)(number)
    with pytest.raises(DTypeError, match="has no gradient"):
        mo.grad(lambda p: p[0] * p[1])((2.0, number))
    assert mo.grad(lambda p, n: p * n)(2.0, number).item() == number


@pytest.mark.parametrize("exponent", [0, 0.0])
def test_a_constant_to_the_power_of_nothing(exponent):
    x = mo.asarray([0.0, 2.0, -1.0])
    for zero in (exponent, mo.asarray(float(exponent)), mo.zeros(3)):
        for function in (lambda x, zero=zero: (x ** zero).sum(), lambda x, zero=zero: mo.pow(x, zero).sum()):
            assert mo.grad(function)(x).tolist() == [0, 0, 0]
            assert mo.compile(mo.grad(function))(x).tolist() == [0, 0, 0]
    assert mo.grad(lambda x: (x ** mo.asarray([1.0, 2.0, 3.0])).sum())(x).tolist() == [1, 4, 3]


@pytest.mark.parametrize("function", [
    lambda w: mo.asarray((w * 2).numpy()).sum(), lambda w: mo.asarray(np.sin(w)).sum(),
    lambda w: (mo.asarray(np.asarray(w)) * w).sum()], ids=["numpy", "sin", "asarray"])
def test_gradients_do_not_go_through_numpy(function):
    x = mo.asarray([1.0, 2.0])
    for transformed in (mo.grad(function), mo.value_and_grad(function), lambda x: mo.vjp(function, x),
                        lambda x: mo.jvp(function, (x,), (x,))):
        with pytest.raises(ArgumentError, match="does not go through NumPy"):
            transformed(x)
    assert function(x).shape == ()  # and nothing of it stays behind
    assert function(mo.asarray([1.0, 2.0]).requires_grad_()).shape == ()


def test_values_that_numpy_may_take_inside_a_gradient():
    constant, parameter = mo.asarray([3.0, 4.0]), mo.nn.Parameter([5.0, 6.0])
    kept = []

    def loss(w):
        doubled = w * 2
        text = f"{doubled} {w!r} {doubled.sum():.1f}"
        kept.extend([text, doubled.tolist(), float(doubled.sum()), doubled.detach().numpy(), constant.numpy(),
                     parameter.numpy(), (parameter * 2).numpy(), mo.argmax(w).numpy(), (w > 1).numpy()])
        with mo.no_grad():
            kept.append((w * 2).numpy())
        return (doubled * constant).sum()

    value, found = mo.value_and_grad(loss)(mo.asarray([1.0, 2.0]))
    assert found.numpy().tolist() == [6, 8] and value.numpy() == 22
    assert kept[1] == [2, 4] and kept[3].tolist() == [2, 4] and kept[-1].tolist() == [2, 4]


def test_a_step_of_training_by_mo_grad_leaves_no_past(rng: np.random.Generator) -> None:
    """What `mo.grad` differentiated with respect to is gone when it returns: a realised result is a leaf."""
    x, w = mo.asarray(rng.normal(size=(16, 3)).astype("f")), mo.zeros(3)
    for _ in range(4):
        w = w - 0.1 * mo.grad(lambda w: ((x @ w - 1) ** 2).mean())(w)
        w.realise()
        assert not w.program().inputs
    outer = mo.grad(lambda v: (mo.grad(lambda w: (w * w * v).sum())(v).realise() * v).sum())(mo.asarray([2.0]))
    assert outer.tolist() == [24.0]  # inside another one it is kept: the derivative of 2 v * v * v


def test_what_has_no_gradient_says_so_or_has_it() -> None:
    for function in (mo.unique_values, lambda x: mo.unique_all(x).values, lambda x: mo.unique_counts(x).values):
        with pytest.raises(ArgumentError, match=r"unique.* has no gradient"):
            mo.grad(lambda x, f=function: f(x).sum())(mo.asarray([1.3, 2.2]))
    assert mo.unique_values(mo.asarray([1.5, 1.5])).tolist() == [1.5]
    assert mo.grad(lambda x: mo.nextafter(x, mo.asarray(9.0)).sum())(mo.asarray([1.0, 2.0])).tolist() == [1, 1]


def test_the_norm_of_nothing_has_a_slope() -> None:
    assert mo.grad(mo.linalg.vector_norm)(mo.zeros(2)).tolist() == [0, 0]
    rows = mo.asarray([[3.0, 4.0], [0.0, 0.0]])
    slope = mo.grad(lambda x: mo.linalg.vector_norm(x, axis=-1).sum())(rows)
    np.testing.assert_allclose(slope.numpy(), [[0.6, 0.8], [0, 0]], rtol=1e-6)
    assert mo.linalg.vector_norm(rows, axis=-1).tolist() == [5, 0]
