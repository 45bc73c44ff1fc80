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
    for transform in (mo.jvp, mo.hvp):
        with pytest.raises(ArgumentError, match="not a tuple of them"):
            transform(lambda x: x.sum(), mo.ones(2), mo.ones(2))
    for transform in (mo.jacfwd, mo.hessian, mo.vmap, mo.custom_jvp):
        with pytest.raises(ArgumentError, match="int is not a function"):
            transform(3)
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
    matrix = rng.standard_normal((3, 3))
    x = mo.asarray(matrix @ matrix.T + np.eye(3))  # a positive determinant, or the sign is another factor

    def both(x: mo.Tensor) -> mo.Tensor:
        sign, logarithm = mo.linalg.slogdet(x)
        return sign * logarithm * 2 + logarithm

    wanted = np.linalg.inv(x.numpy()).T
    assert np.allclose(mo.grad(both)(x).numpy(), 3 * wanted)
    assert np.allclose(mo.grad(lambda x: mo.linalg.slogdet(x)[1])(x).numpy(), wanted)
    assert not mo.grad(lambda x: mo.linalg.slogdet(x)[0])(x).numpy().any()
    assert np.allclose(mo.grad(lambda x: mo.checkpoint(both, x))(x).numpy(), 3 * wanted)


# -- forward mode and Jacobians ----------------------------------------------------------------------------------------
def test_jacobians_of_trees(rng: np.random.Generator) -> None:
    x, y = mo.asarray(rng.standard_normal((2, 3))), mo.asarray(rng.standard_normal(3))

    def function(tree: Any, scale: Any) -> Any:
        return {"product": tree["x"] @ tree["y"] * scale, "sum": mo.sum(tree["x"] ** 2)}

    for transform in (mo.jacfwd, mo.jacrev, lambda f: mo.compile(mo.jacrev(f))):
        found = transform(function)({"x": x, "y": y}, 3.0)
        assert found["product"]["x"].shape == (2, 2, 3) and found["sum"]["y"].shape == (3,)
        assert np.allclose(found["product"]["y"].numpy(), 3 * x.numpy())
        assert np.allclose(found["sum"]["x"].numpy(), 2 * x.numpy()) and not found["sum"]["y"].numpy().any()
    both, extra = mo.jacfwd(lambda a, b: (a * b, "more"), argnums=(0, 1), has_aux=True)(y, y)
    assert extra == "more" and np.allclose(both[0].numpy(), np.diag(y.numpy()))
    second = mo.hessian(lambda a, b: (a @ b).sum(), argnums=(0, 1))(x, y)
    assert second[0][1].shape == (2, 3, 3) and second[1][0].shape == (3, 2, 3)
    assert mo.jacfwd(lambda x: x * 2)(mo.zeros(0)).shape == (0, 0)
    assert mo.jacrev(lambda x: 3.0)(y).tolist() == [0.0] * 3 and mo.jvp(lambda x: 3.0, (y,), (y,))[1].item() == 0.0
    with pytest.raises(DTypeError, match="has no Jacobian of its own"):
        mo.jacrev(lambda x: x * 1j)(mo.ones(2))


def test_products_with_the_hessian(rng: np.random.Generator) -> None:
    x, v = (mo.asarray(rng.standard_normal(4)) for _ in range(2))

    def function(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
        return (mo.tanh(x) * mo.sum(x * y)).sum()

    first, second = mo.hvp(function, (x, x), (v, mo.zeros(4, dtype="float64")))
    whole = mo.hessian(function, argnums=(0, 1))(x, x)
    assert np.allclose(first.numpy(), whole[0][0].numpy() @ v.numpy())
    assert np.allclose(second.numpy(), whole[1][0].numpy() @ v.numpy())


def test_linearize_calls_the_function_once(rng: np.random.Generator) -> None:
    calls = []

    def function(tree: Any) -> Any:
        calls.append(1)
        return mo.exp(tree["x"]) * 2, mo.sin(tree["x"]).sum()

    x = mo.asarray(rng.standard_normal(5))
    (value, total), push = mo.linearize(function, {"x": x})
    for _ in range(2):
        v = mo.asarray(rng.standard_normal(5))
        along, summed = push({"x": v})
        assert np.allclose(along.numpy(), value.numpy() * v.numpy())
        assert np.allclose(summed.item(), (np.cos(x.numpy()) * v.numpy()).sum())
    assert len(calls) == 1
    with pytest.raises(ArgumentError, match="1 arguments have 2 tangents"):
        push({"x": x}, x)
    inside = mo.compile(lambda x, v: mo.linearize(mo.exp, x)[1](v))
    assert np.allclose(inside(x, x).numpy(), np.exp(x.numpy()) * x.numpy())
    pushed = mo.vmap(mo.linearize(mo.tanh, x)[1])(mo.eye(5, dtype="float64"))
    assert np.allclose(pushed.numpy(), mo.jacfwd(mo.tanh)(x).numpy())


def test_forward_mode_goes_through_checkpoints_and_steps(rng: np.random.Generator) -> None:
    x, v = (mo.asarray(rng.standard_normal(4)) for _ in range(2))
    plain = mo.jvp(lambda x: mo.exp(x) * mo.floor(x), (x,), (v,))[1].numpy()
    marked = mo.jvp(lambda x: mo.checkpoint(lambda x: mo.exp(x) * mo.floor(x), x), (x,), (v,))[1].numpy()
    assert plain.tobytes() == marked.tobytes()
    assert mo.jvp(lambda x: (mo.floor(x), mo.stop_gradient(x)), (x,), (v,))[1][0].tolist() == [0.0] * 4
    assert mo.jvp(lambda x: mo.astype(x, "float32"), (x,), (v,))[1].dtype is mo.float32


# -- derivatives of the user's -----------------------------------------------------------------------------------------
def test_custom_vjp_of_trees(rng: np.random.Generator) -> None:
    asked = []

    @mo.custom_vjp
    def function(tree: Any, scale: mo.Tensor) -> Any:
        return {"first": tree["x"] * scale, "second": mo.sum(tree["x"])}

    def backward(kept: Any, cotangent: Any) -> Any:
        asked.append(1)
        return {"x": 10 * cotangent["first"] * kept + cotangent["second"]}, None

    function.defvjp(lambda tree, scale: (function.function(tree, scale), scale), backward)
    x, scale = mo.asarray(rng.standard_normal(3)), mo.asarray(2.0, dtype="float64")

    def loss(x: mo.Tensor, scale: mo.Tensor) -> mo.Tensor:
        result = function({"x": x}, scale)
        return mo.sum(result["first"]) + 5 * result["second"]

    by_x, by_scale = mo.grad(loss, (0, 1))(x, scale)
    assert by_x.tolist() == [25.0] * 3 and by_scale.item() == 0 and len(asked) == 1  # of both results at once
    assert mo.jvp(loss, (x, scale), (mo.ones(3, dtype="float64"), scale))[1].item() == 75.0
    rows = mo.vmap(mo.grad(loss), in_axes=(0, None))(mo.stack([x, x]), scale)
    assert rows.tolist() == [[25.0] * 3] * 2
    assert np.allclose(mo.compile(mo.grad(loss))(x, scale).numpy(), 25.0)
    assert mo.grad(lambda s: mo.grad(loss)(x, s).sum())(scale).item() == 30.0  # through what was kept


def test_custom_jvp_in_both_directions(rng: np.random.Generator) -> None:
    @mo.custom_jvp
    def function(x: mo.Tensor, y: mo.Tensor) -> Any:
        return mo.sin(x) * y, x + y

    @function.defjvp
    def rule(arguments: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = arguments, tangents
        return function(x, y), (mo.cos(x) * dx * y + mo.sin(x) * dy, 7 * dx)

    x, y = (mo.asarray(rng.standard_normal(3)) for _ in range(2))
    assert mo.grad(lambda x: function(x, y)[1].sum())(x).tolist() == [7.0] * 3
    found = mo.grad(lambda x, y: function(x, y)[0].sum(), (0, 1))(x, y)
    assert np.allclose(found[0].numpy(), np.cos(x.numpy()) * y.numpy())
    assert np.allclose(found[1].numpy(), np.sin(x.numpy()))
    assert mo.jvp(lambda x: function(x, y), (x,), (mo.ones(3, dtype="float64"),))[1][1].tolist() == [7.0] * 3
    second = mo.grad(mo.grad(lambda x: function(x, mo.asarray(1.0, dtype="float64"))[0]))(x[0])
    assert np.isclose(second.item(), -np.sin(x[0].item()))


def test_arguments_that_are_not_differentiated() -> None:
    power = mo.custom_vjp(lambda n, x: x ** n, nondiff_argnums=(0,))
    power.defvjp(lambda n, x: (x ** n, x), lambda n, x, g: (g * n * x ** (n - 1),))
    assert mo.grad(lambda x: power(3, x))(mo.asarray(2.0)).item() == 12.0
    scaled = mo.custom_jvp(lambda f, x: f(x), nondiff_argnums=0)
    scaled.defjvp(lambda f, arguments, tangents: (f(arguments[0]), 2 * tangents[0]))
    assert mo.grad(lambda x: scaled(mo.sin, x))(mo.asarray(2.0)).item() == 2.0


def test_rules_say_what_is_wrong() -> None:
    x = mo.ones(2)
    with pytest.raises(ArgumentError, match="has no rule yet"):
        mo.custom_vjp(lambda x: x)(x)
    function = mo.custom_vjp(lambda x: x * 1)
    function.defvjp(lambda x: (x, None), lambda kept, g: (g, g))
    with pytest.raises(ArgumentError, match="2 gradients for 1 arguments"):
        mo.grad(lambda x: function(x).sum())(x)
    function.defvjp(lambda x: (x, None), lambda kept, g: (mo.ones(3),))
    with pytest.raises(ShapeError, match=r"a gradient of shape \(3,\) for an argument of \(2,\)"):
        mo.grad(lambda x: function(x).sum())(x)
    function.defvjp(lambda x: x, lambda kept, g: (g,))
    with pytest.raises(ArgumentError, match="does not return"):
        mo.grad(lambda x: function(x).sum())(x)
    with pytest.raises(ArgumentError, match="is given by name"):
        function(x=x)
    clipped = mo.custom_gradient(lambda x: (x * 1, lambda g: mo.clip(g, -1.0, 1.0)))
    assert mo.grad(lambda x: (5 * clipped(x)).sum())(x).tolist() == [1.0, 1.0]
    with pytest.raises(ArgumentError, match="is not linear in the gradient"):
        mo.jvp(clipped, (x,), (x,))
    pushed = mo.custom_jvp(lambda x: x * 1)
    pushed.defjvp(lambda arguments, tangents: tangents[0])
    with pytest.raises(ArgumentError, match="does not return"):
        mo.grad(lambda x: pushed(x).sum())(x)


def test_stop_gradient_of_a_tree() -> None:
    kept = mo.stop_gradient({"a": mo.ones(2), "b": "word"})
    assert kept["b"] == "word"
    assert mo.grad(lambda x: (mo.stop_gradient([x, x])[0] * x).sum())(mo.ones(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_function_may_change_its_argument(is_recorded: bool) -> None:
    scale = mo.asarray([5.0, 6.0, 7.0])

    def assigning(x: mo.Tensor) -> mo.Tensor:
        before = (x * scale).sum()
        x[1] = 3.0
        return before + (x * scale).sum()

    with mo.settings(record=is_recorded):
        x = mo.asarray([1.0, 2.0, 3.0])
        assert mo.grad(assigning)(x).tolist() == [10.0, 6.0, 14.0]
        assert mo.grad(lambda x: (x.requires_grad_() * scale).sum())(x).tolist() == [5.0, 6.0, 7.0]
        assert x.tolist() == [1.0, 2.0, 3.0]
