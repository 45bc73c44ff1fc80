"""Loops and branches under `vmap` and in forward mode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import morpho as mo

STEP = 1e-6
Function = Callable[[mo.Tensor], mo.Tensor]


@pytest.fixture
def x(rng: np.random.Generator) -> mo.Tensor:
    return mo.asarray(rng.uniform(0.2, 1.0, (3, 4)) * rng.choice([-1, 1], (3, 1)))


def recurrent(x: mo.Tensor) -> mo.Tensor:
    """Carried and stacked values, one of which no row touches; the body reads the row from its surroundings."""
    def turn(carry: tuple[mo.Tensor, mo.Tensor], t: mo.Tensor) -> tuple[tuple[mo.Tensor, mo.Tensor], mo.Tensor]:
        state, count = carry
        state = mo.tanh(state * 0.5 + t * x)
        return (state, count + 1.0), mo.sum(state) * count

    (state, count), sums = mo.scan(turn, (x, mo.asarray(0.0, dtype="float64")), mo.arange(5, dtype="float64"))
    return mo.concat([state * count, sums])


def until_large(x: mo.Tensor) -> mo.Tensor:
    """Rows go on for different numbers of turns."""
    return mo.while_loop(lambda v: mo.sum(v) < 10, lambda v: v * 1.5 + mo.abs(x), mo.abs(x))


def fixed_turns(x: mo.Tensor) -> mo.Tensor:
    return mo.while_loop(lambda v: v[1] < 4, lambda v: (mo.sin(v[0]) * 2, v[1] + 1), (x, mo.asarray(0)))[0]


def chosen(x: mo.Tensor) -> mo.Tensor:
    """Rows take different branches."""
    return mo.cond(mo.sum(x) > 0, lambda v: v * v, lambda v: mo.sin(v) * x, x)


def chosen_for_all(x: mo.Tensor) -> mo.Tensor:
    which = mo.asarray(1)
    return mo.switch(which, [lambda v: v, lambda v: mo.exp(v), lambda v: v * 3], x)


FUNCTIONS = [recurrent, until_large, fixed_turns, chosen, chosen_for_all]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_batch_has_the_bits_of_its_rows(function: Function, x: mo.Tensor) -> None:
    want = np.stack([function(x[i]).numpy() for i in range(3)])
    assert mo.vmap(function)(x).numpy().tobytes() == want.tobytes()
    assert mo.compile(mo.vmap(function))(x).numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_along_a_tangent(function: Function, x: mo.Tensor, rng: np.random.Generator) -> None:
    point, tangent = x[0], mo.asarray(rng.standard_normal(4))
    found = mo.jvp(function, (point,), (tangent,))[1].numpy()
    ahead, behind = (function(point + sign * STEP * tangent).numpy() for sign in (1, -1))
    assert np.allclose(found, (ahead - behind) / (2 * STEP), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("function", [recurrent, chosen], ids=lambda f: f.__name__)
def test_second_derivatives(function: Function, x: mo.Tensor) -> None:
    slope = mo.grad(lambda v: mo.sum(function(v) ** 2))
    ahead, behind = (np.stack([slope(x[0] + mo.asarray(sign * STEP * one)).numpy() for one in np.eye(4)])
                     for sign in (1, -1))
    want = (ahead - behind) / (2 * STEP)
    assert np.allclose(mo.hessian(lambda v: mo.sum(function(v) ** 2))(x[0]).numpy(), want, rtol=1e-4, atol=1e-6)


def test_derivatives_of_the_user_s_inside_a_body(x: mo.Tensor) -> None:
    """A rule that was given is used at the arguments of each turn."""
    @mo.custom_vjp
    def doubled(v: mo.Tensor) -> mo.Tensor:
        return mo.sin(v)

    doubled.defvjp(lambda v: (mo.sin(v), v), lambda v, g: (2 * g * mo.cos(v),))

    def loss(v: mo.Tensor) -> mo.Tensor:
        return mo.sum(mo.scan(lambda h, t: (doubled(h) * t, None), v, mo.asarray([0.5, 2.0], dtype="float64"))[0])

    found = mo.grad(loss)(x[0]).numpy()
    first = np.sin(x[0].numpy()) * 0.5
    assert np.allclose(found, 2 * np.cos(first) * 2 * 2 * np.cos(x[0].numpy()) * 0.5)
    rows = mo.vmap(mo.grad(loss))(x).numpy()
    assert np.allclose(rows[0], found)


# -- forward mode ----------------------------------------------------------------------------------------------------
def test_values_and_tangents_are_one_loop(rng: np.random.Generator) -> None:
    """`mo.jvp` of a loop, of which the values are wanted too, runs it once."""
    w = mo.asarray(rng.standard_normal((40, 40)) * 0.1)
    x, v = (mo.asarray(rng.standard_normal(40)) for _ in range(2))
    loops = {
        "scan": lambda x: mo.scan(lambda c, _: (mo.tanh(c @ w), c * 2), x, None, length=9),
        "while_loop": lambda x: mo.while_loop(lambda s: s[1] < 9, lambda s: (mo.sin(s[0] @ w), s[1] + 1), (x, 0))[0]}
    for name, loop in loops.items():
        f = mo.compile(lambda x, v, loop=loop: mo.jvp(loop, (x,), (v,)))
        found = mo.tree.leaves(f(x, v))
        steps = str(f.explain()).partition("\nlowering\n")[0]  # the rows that lowered them are named behind
        assert sum(f" {name}: " in line for line in steps.splitlines()) == 1
        apart = [*mo.tree.leaves(mo.compile(loop)(x)),
                 *mo.tree.leaves(mo.compile(lambda x, v, loop=loop: mo.jvp(loop, (x,), (v,))[1])(x, v))]
        for one, other in zip(found, apart, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


STOPPING = {
    "branch": (lambda x, stop: mo.cond(x > 0, lambda y: stop(y) * y, lambda y: y, x), 3.0),
    "one of several": (lambda x, stop: mo.switch(mo.asarray(1), [lambda y: y, lambda y: stop(y) * y], x), 3.0),
    "surroundings": (lambda x, stop: mo.cond(x > 0, lambda: stop(x) * x, lambda: x), 3.0),
    "carry": (lambda x, stop: mo.fori_loop(0, 2, lambda i, c: stop(c) * x, x), 9.0),
    "slices": (lambda x, stop: mo.map(lambda e: stop(e) * e, mo.stack([x, x])).sum(), 6.0),
    "all of it": (lambda x, stop: mo.scan(lambda c, e: (stop(c) * stop(e), c), x, mo.stack([x, x]))[0], 0.0),
    "rows": (lambda x, stop: mo.vmap(lambda e: stop(e) * e)(mo.stack([x, x])).sum(), 6.0),
}


def without_gradients(x: mo.Tensor) -> mo.Tensor:
    with mo.no_grad():
        return x * 1.0


@pytest.mark.parametrize("name", STOPPING)
@pytest.mark.parametrize("stop", [mo.stop_gradient, mo.Tensor.detach, without_gradients], ids=lambda f: f.__name__)
def test_no_gradient_flows_through_what_a_body_stops(name: str, stop: Function) -> None:
    """Of a body's own arguments and of rows it did, as if nothing stopped it: they have no owner when they are read."""
    function, wanted = STOPPING[name]
    x, one = mo.asarray(3.0, dtype="float64"), mo.asarray(1.0, dtype="float64")
    slope = mo.grad(lambda x: function(x, stop))
    assert slope(x).item() == wanted == mo.compile(slope)(x).item()
    assert mo.jvp(lambda x: function(x, stop), (x,), (one,))[1].item() == wanted
