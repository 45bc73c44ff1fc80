"""Functions that differentiate functions: `mo.grad`, `value_and_grad`, `vjp`, `jvp`, `custom_gradient`."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError


def leaf(*numbers: float) -> mo.Tensor:
    return mo.asarray(list(numbers)).requires_grad_()


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
    assert mo.grad(lambda x: x.sum(), argnums=())(mo.ones(2)) == ()
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


def test_an_op_with_several_outputs_gets_their_gradients_at_once(rng: np.random.Generator) -> None:
    """slogdet: the sign is a step, the logarithm has the transposed inverse; used twice, apart and together."""
    x = mo.asarray(rng.standard_normal((3, 3)) + 3 * np.eye(3))

    def both(x: mo.Tensor) -> mo.Tensor:
        sign, logarithm = mo.linalg.slogdet(x)
        return sign * logarithm * 2 + logarithm

    wanted = np.linalg.inv(x.numpy()).T
    assert np.allclose(mo.grad(both)(x).numpy(), 3 * wanted)
    assert np.allclose(mo.grad(lambda x: mo.linalg.slogdet(x)[1])(x).numpy(), wanted)
    assert not mo.grad(lambda x: mo.linalg.slogdet(x)[0])(x).numpy().any()
    assert np.allclose(mo.grad(lambda x: mo.checkpoint(both, x))(x).numpy(), 3 * wanted)
