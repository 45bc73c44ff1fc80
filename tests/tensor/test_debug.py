"""`mo.debug.nans` names who made NaN, lazily and compiled; `mo.testing.check_gradients` finds wrong gradients."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, GradientMismatch, NotFinite


def blamed(function: Any, *arguments: Any) -> str:
    with mo.debug.nans(), pytest.raises(NotFinite) as caught:
        mo.realise(function(*arguments))
    return str(caught.value)


def wrong(x: mo.Tensor) -> mo.Tensor:
    y = x * 2 - 4
    z = mo.log(y)  # the line to be named
    return (z + 1).sum()


WRONG_LINE = wrong.__code__.co_firstlineno + 2


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_first_operation_is_named(compiled: bool, dtype: str) -> None:
    """With the element, its operands' range and the user's line; the result is what it was once the block is left."""
    function = mo.compile(wrong) if compiled else wrong
    x = mo.asarray([3.0, 2.5, 1.5, 2.0]).astype(dtype)
    for _ in range(2):  # the native entry must not slip through the second time
        text = blamed(function, x)
        assert text.startswith(f"[log] 2 of 4 elements are not finite, the first, nan, at [2]; its operands are "
                               f"{dtype}(4,) from -1 to 2. At {__file__}:{WRONG_LINE}."), text
    assert np.isnan(function(x).item())
    with mo.debug.nans():
        assert np.isfinite(function(mo.asarray([3.0])).item())


def test_gradients_overflow_and_several_operands() -> None:
    """Infinity by overflow, a division by zero, and a gradient that is not finite although the value is."""
    assert "[multiply]" in blamed(lambda x: x * 1e38 * 10, mo.asarray([1.0]))
    text = blamed(lambda x, y: x / (y - y), mo.asarray([1.0]), mo.asarray([2.0]))
    assert "[divide]" in text and "float32(1,) from 1 to 1, float32(1,) from 0 to 0" in text
    assert "not finite" in blamed(mo.grad(lambda x: mo.sqrt(x).sum()), mo.zeros(2))
    assert re.search(r"\[matmul\].*inf, at \[0, 0\]", blamed(lambda x: x @ x, mo.full((2, 2), 1e30)))


def test_infinities_that_were_given_are_nobodys_fault() -> None:
    """Masks of -inf pass; NaN that came in from outside is said to have."""
    with mo.debug.nans():
        scores = mo.where(mo.asarray([True, False]), mo.ones(2), -mo.inf)
        assert mo.softmax(scores).tolist() == [1.0, 0.0]
        assert scores.tolist() == [1.0, -mo.inf]
        mo.realise(mo.full(2, mo.inf) + 1)
    assert "has NaN already, first at [1], 1 in all" in blamed(lambda x: x + 1, mo.asarray([0.0, mo.nan]))


def test_every_operation_can_be_looked_at() -> None:
    """NaN that `where` hides is found with every=True; otherwise a finite result is enough."""
    hidden = lambda x: mo.where(x > 0, mo.log(x), 0.0).sum()
    x = mo.asarray([1.0, -1.0])
    with mo.debug.nans():
        assert hidden(x).item() == 0.0
    for function in (hidden, mo.compile(hidden)):
        with pytest.raises(NotFinite, match=r"\[log\]"), mo.debug.nans(every=True):
            mo.realise(function(x))


def test_a_step_that_fails_changes_no_state() -> None:
    """Parameters written in place otherwise are what they were, and the function works on afterwards."""
    w = mo.nn.Parameter([1.0, 2.0])
    opt = mo.optim.SGD([w], lr=1.0)

    @mo.compile
    def step(x: mo.Tensor) -> mo.Tensor:
        loss = (w * x).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    step(mo.asarray([0.25, 0.25]))
    with pytest.raises(NotFinite, match=r"\[multiply\]"), mo.debug.nans():
        step(mo.asarray([3e38, 3e38]))
    assert w.tolist() == [0.75, 1.75] and opt.state_dict()["count"] == 1
    step(mo.asarray([0.25, 0.25]))
    assert w.tolist() == [0.5, 1.5]


def test_a_target_that_is_an_argument_is_written_last() -> None:
    """The operands named are those from before the call, and the target keeps its elements."""
    f = mo.compile(lambda x: mo.log(x - 2))
    x = mo.asarray([1.0, 4.0], copy=True)
    with pytest.raises(NotFinite, match=r"\[log\] 1 of 2 .* from -1 to 2"), mo.debug.nans():
        f(x, out=x)
    assert x.tolist() == [1.0, 4.0]


def test_the_decorator_and_the_other_backend() -> None:
    """A decorated function; NumPy's backend; dynamic sizes."""
    @mo.debug.nans()
    def decorated(x: mo.Tensor) -> float:
        return float(mo.log(x).sum().item())

    assert decorated(mo.ones(2)) == 0.0
    with pytest.raises(NotFinite, match=r"\[log\]"):
        decorated(mo.zeros(2))
    with mo.settings(device="reference"):
        assert "[log]" in blamed(mo.compile(lambda x: mo.log(x)), mo.zeros(2))
    f = mo.compile(lambda x: mo.log(x).sum(), dynamic={"x": {0: mo.Dim("n", 1, 8)}})
    assert "5 of 5 elements" in blamed(f, mo.zeros(5))
    with pytest.raises(ArgumentError, match="nans"):
        mo.settings(nans="yes")


# -- check_gradients ---------------------------------------------------------------------------------------------------
def test_right_gradients_pass() -> None:
    """Several arguments, trees, integers beside them, results of any form; float32 is checked as float64."""
    def function(pair: Any, index: mo.Tensor, factor: float) -> Any:
        x, w = pair
        return {"a": mo.tanh(x @ w) * factor, "b": [mo.take(w, index, axis=0).sum(), index]}

    x, w = mo.ones((2, 3)) * 0.3, mo.arange(6, dtype=mo.float32).reshape((3, 2)) / 5
    assert mo.testing.check_gradients(function, (x, w), mo.asarray([0, 2]), 0.5) < 1e-8
    assert mo.testing.check_gradients(lambda x: mo.sin(x), mo.ones(500), most=20) < 1e-8
    assert mo.testing.check_gradients(lambda x: x.detach() * 0 + 1, mo.ones(2)) == 0.0


def test_parameters_are_checked_and_left_alone() -> None:
    """Their values and gradients are those of before."""
    model = mo.nn.Sequential(mo.nn.Linear(3, 4), mo.nn.Tanh(), mo.nn.Linear(4, 1)).astype("float64")
    before = [p.numpy(copy=True) for p in model.parameters()]
    first = next(iter(model.parameters()))
    first.grad = mo.ones(first.shape, dtype=mo.float64)
    assert mo.testing.check_gradients(model, mo.ones((2, 3)), parameters=model.parameters()) < 1e-8
    for value, parameter in zip(before, model.parameters(), strict=True):
        np.testing.assert_array_equal(value, parameter.numpy())
    assert first.grad.tolist() == np.ones(first.shape).tolist()
    with pytest.raises(DTypeError, match="parameter 0 is float32"):
        mo.testing.check_gradients(model, mo.ones((2, 3)), parameters=mo.nn.Linear(1, 1).parameters())


def test_a_wrong_gradient_is_found_at_its_worst_element() -> None:
    """The argument, the index, both numbers, and how many differ."""
    @mo.custom_gradient
    def cube(x: mo.Tensor) -> Any:
        return x ** 3, lambda ct: ct * (3 * x * x + 0.1 * x * x * x)  # the last part is wrong

    with pytest.raises(GradientMismatch) as caught:
        mo.testing.check_gradients(lambda y, x: y.sum() + cube(x).sum(), mo.ones(2), mo.asarray([[0.0, 1.0, 2.0]]))
    text = str(caught.value)
    assert re.match(r"\[check_gradients\] the gradient of argument 1 at \[0, 2\] is \S+, and \S+ by differences of "
                    r"1e-05: a relative error of 0\.0667, more than 1e-06; 2 of 5 elements differ\.", text), text


def test_functions_that_cannot_be_checked() -> None:
    """Each with the reason."""
    keys = iter(range(100))
    with pytest.raises(ArgumentError, match="for the same arguments"):
        mo.testing.check_gradients(lambda x: x * mo.random.normal(mo.random.key(next(keys)), (2,)), mo.ones(2))
    with pytest.raises(ArgumentError, match="nothing to differentiate"):
        mo.testing.check_gradients(lambda x: x, mo.arange(2))
    with pytest.raises(ArgumentError, match="no float tensor"):
        mo.testing.check_gradients(lambda x: x > 0, mo.ones(2))
    with pytest.raises(ArgumentError, match="not both positive"):
        mo.testing.check_gradients(lambda x: x, mo.ones(2), eps=0.0)
    with pytest.raises(ArgumentError, match="not a function"):
        mo.testing.check_gradients(3, mo.ones(2))  # type: ignore[arg-type]
