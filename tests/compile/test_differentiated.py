"""A compiled function called with tensors that are differentiated: the gradient is that of the original."""

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError


@pytest.fixture
def squares():
    made = mo.compile(lambda w: (w ** 2).sum())
    ones = mo.asarray([1.0, 1.0, 1.0])
    made(ones), made(ones)
    assert made.native_calls == 1
    return made


def test_functions_of_gradients_see_through(squares):
    x = mo.asarray([1.0, 2.0, 3.0])
    assert mo.grad(squares)(x).tolist() == [2, 4, 6]
    value, found = mo.value_and_grad(squares)(x)
    assert value.item() == 14 and found.tolist() == [2, 4, 6]
    value, pull = mo.vjp(squares, x)
    assert pull(2.0)[0].tolist() == [4, 8, 12]
    assert mo.jvp(squares, (x,), (mo.ones(3),))[1].item() == 12
    assert mo.grad(lambda x: mo.grad(squares)(x).sum())(x).tolist() == [2, 2, 2]


def test_first_call_of_all():
    assert mo.grad(mo.compile(lambda w: (w ** 2).sum()))(mo.ones(3)).tolist() == [2, 2, 2]


def test_a_value_that_was_printed_on_the_way(squares):
    def loss(w):
        doubled = w * 2
        assert doubled.tolist() == [2, 2, 2] and w.tolist() == [1, 1, 1]  # both are realised now
        return squares(doubled) + squares(w)

    assert mo.grad(loss)(mo.ones(3)).tolist() == [10, 10, 10]


def test_backward(squares):
    w = mo.ones(3).requires_grad_()
    squares(w).backward()
    squares(w * 2).backward()
    assert w.grad.tolist() == [10, 10, 10]
    p = mo.nn.Parameter([1.0, 2.0])
    squares(p).backward()
    assert p.grad.tolist() == [2, 4]


def test_in_containers_and_by_name():
    made = mo.compile(lambda tree, scale: (tree["w"] * tree["b"][0] * scale).sum())
    one = mo.asarray([1.0, 1.0, 1.0])
    for _ in range(3):
        made({"w": one, "b": [one]}, scale=mo.asarray(3.0))
    assert made.native_calls
    w = mo.ones(3).requires_grad_()
    made({"w": one, "b": [w]}, scale=mo.asarray(3.0)).backward()
    assert w.grad.tolist() == [3, 3, 3]
    found = mo.grad(lambda tree, scale: made(tree, scale=scale))({"w": one, "b": [one]}, mo.asarray(3.0))
    assert found["w"].tolist() == found["b"][0].tolist() == [3, 3, 3]


def test_several_results():
    made = mo.compile(lambda a, b: (a * b, a + b))
    a, b = mo.asarray([1.0, 2.0]).requires_grad_(), mo.asarray([3.0, 4.0])
    product, total = made(a, b)
    (product + total).sum().backward()
    assert a.grad.tolist() == [4, 5] and b.grad is None


def test_native_code_serves_what_is_not_differentiated(squares):
    w = mo.ones(3).requires_grad_()
    before = squares.native_calls, squares.slow_calls
    squares(w)
    assert (squares.native_calls, squares.slow_calls) == before
    assert squares(w.detach()).requires_grad is False
    assert squares(mo.asarray([1.0, 1.0, 1.0])).requires_grad is False
    with mo.no_grad():
        result = squares(w)
    assert result.requires_grad is False and result.item() == 3
    w.requires_grad = False
    assert squares(w).requires_grad is False
    assert squares.native_calls > before[0] and squares.slow_calls > before[1]


def test_gradients_that_were_taken_are_values(squares):
    found = mo.grad(squares)(mo.ones(3))
    assert found.tolist() == [2, 2, 2]
    squares(found)  # the first finds that nobody is left to want its gradient
    before = squares.native_calls
    assert squares(found).item() == 12 and squares.native_calls == before + 1


def test_targets_take_values(squares):
    w, target = mo.ones(3).requires_grad_(), mo.empty(())
    with pytest.raises(ArgumentError, match="requires a gradient"):
        squares(w, out=target)
    with mo.no_grad():
        squares(w, out=target)
    assert target.item() == 3


def test_measure_runs_the_compiled_steps(squares):
    assert len(squares.measure(mo.ones(3).requires_grad_(), repeats=1)["measured_s"]) >= 1
    assert len(squares.measure(np.ones(3, np.float32), repeats=1)["measured_s"]) >= 1, "an array is as good as a tensor"


def test_gradient_against_the_original():
    generator = np.random.default_rng(7)
    x, w = (mo.asarray(generator.standard_normal((4, 4)).astype(np.float32)) for _ in range(2))

    def loss(w, x):
        return mo.softmax(mo.tanh(x @ w), axis=-1).max(axis=-1).sum()

    np.testing.assert_array_equal(mo.grad(mo.compile(loss))(w, x).numpy(), mo.grad(loss)(w, x).numpy())
