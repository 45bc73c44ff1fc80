"""Tensors that leave a compiled function other than in its result, and tensors of its surroundings."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest

import morpho as mo
from morpho.base.errors import CompileError

LEFT = "left the compiled function that made it"


@dataclass
class Held:
    """A container that the compiler does not look into."""

    value: Any


def test_a_traced_tensor_is_no_argument_of_another_function() -> None:
    kept: list[Any] = []
    mo.compile(lambda x: (kept.append(x * 2), x)[1])(mo.ones(50))
    with pytest.raises(CompileError, match=LEFT):
        mo.compile(lambda a: (a + kept[0]).sum())(mo.ones(1))
    with pytest.raises(CompileError, match=LEFT):  # of the same shape, too
        mo.compile(lambda a: (a + kept[0]).sum())(mo.ones(50))


def test_a_traced_tensor_is_no_argument_of_a_later_specialisation() -> None:
    held = {"v": mo.zeros(3)}

    def step(x: Any) -> Any:
        held["v"] = held["v"] + x.sum()
        return held["v"]

    compiled = mo.compile(step)
    compiled(mo.ones(3))
    with pytest.raises(CompileError, match=LEFT):
        compiled(mo.ones(4))


def test_a_traced_tensor_of_a_state_is_no_argument() -> None:
    state, kept = mo.State(mo.ones(2)), []
    mo.compile(lambda x: (kept.append(state.value), x)[1])(mo.ones(2))
    with pytest.raises(CompileError, match=LEFT):
        mo.compile(lambda: kept[0] + 1)()


@pytest.mark.parametrize("read", [lambda t: t.numpy(), lambda t: t.item(), lambda t: bool(t), lambda t: t + 1 > 2 and 1,
                                  lambda t: mo.compile(lambda a: a)(t), lambda t: mo.State(t), mo.nonzero])
def test_reading_a_traced_tensor_outside_says_what_happened(read: Any) -> None:
    kept: list[Any] = []
    mo.compile(lambda x: (kept.append(x * 2), x)[1])(mo.asarray(1.0) if read is not mo.nonzero else mo.ones(3))
    with pytest.raises(CompileError, match=LEFT):
        read(kept[0])


@pytest.mark.parametrize("wrap", [Held, lambda t: {t}, lambda t: deque([t]), lambda t: iter([t])])
def test_reading_a_result_in_an_unknown_container_says_what_happened(wrap: Any) -> None:
    result = mo.compile(lambda x: wrap(x * 2))(mo.ones(2))
    inner = result.value if isinstance(result, Held) else next(iter(result))
    with pytest.raises(CompileError, match=LEFT):
        inner.numpy()


def test_the_function_itself_still_may_not_read_its_arguments() -> None:
    with pytest.raises(CompileError, match="asks for a value of its arguments"):
        mo.compile(lambda x: x if x.sum() > 0 else -x)(mo.ones(2))


@pytest.mark.parametrize("make", [lambda: mo.ones(2), lambda: mo.ones(2).realise() * 3, lambda: mo.ones(2).realise()])
@pytest.mark.parametrize("use", [lambda x, w: x * w, lambda x, w: w, lambda x, w: (w, x)[0]])
def test_tensors_of_the_surroundings_are_read_at_every_call(make: Any, use: Any) -> None:
    w, x = make(), mo.ones(2)
    compiled = mo.compile(lambda x: use(x, w))
    first = compiled(x).tolist()
    w[0] = 7.0
    assert compiled(x).tolist() == [7.0, first[1]] and compiled(x).tolist() == [7.0, first[1]]
    assert compiled.recompiles == 0


def test_an_equal_tensor_made_inside_is_not_of_the_surroundings() -> None:
    outside = mo.zeros(3)  # one node with that made inside

    def fill(x: Any) -> Any:
        made = mo.zeros(3)
        total = made + x
        made[0] = x[1]
        return made + outside, total

    compiled = mo.compile(fill)
    for _ in range(2):
        filled, total = compiled(mo.asarray([1.0, 2.0, 3.0]))
        assert filled.tolist() == [2.0, 0.0, 0.0] and total.tolist() == [1.0, 2.0, 3.0]
    assert outside.tolist() == [0.0, 0.0, 0.0]


def test_a_lazy_tensor_of_the_surroundings_is_not_written() -> None:
    outside = mo.zeros(3)

    def write(x: Any) -> Any:
        outside[0] = x[0]
        return outside

    with pytest.raises(CompileError, match="a tensor of the surroundings is written"):
        mo.compile(write)(mo.ones(3))
    assert outside.tolist() == [0.0, 0.0, 0.0]


def test_gradients_go_through_a_lazy_tensor_of_the_surroundings() -> None:
    w = mo.asarray([1.0, 2.0]).requires_grad_()
    twice = w * 2

    def gradient(x: Any) -> Any:
        w.grad = None
        (x * twice).sum().backward()
        return w.grad

    assert mo.compile(gradient)(mo.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("retains", [False, True])
def test_gradients_go_through_a_computed_tensor_of_the_surroundings(record: bool, retains: bool) -> None:
    with mo.settings(record=record):
        w = mo.asarray([1.0, 2.0]).requires_grad_()
        twice = w * 2
        squared = twice.retain_grad() ** 2 if retains else twice ** 2
        assert squared.tolist() == [4.0, 16.0]

        def gradient(x: Any) -> Any:
            w.grad = None
            if retains:
                twice.grad = None
            value = x * squared
            value.sum().backward()
            return w.grad, value

        compiled = mo.compile(gradient)
        for factor in (1.0, 3.0, 5.0):
            found, value = compiled(mo.full((2,), factor))
            assert found.tolist() == [8 * factor, 16 * factor] and value.tolist() == [4 * factor, 16 * factor]
        assert compiled.recompiles == 0


def test_equal_functions_share_a_program() -> None:
    one, two = mo.compile(lambda x: mo.tanh(x) * 2), mo.compile(lambda x: mo.tanh(x) * 2)
    one(mo.ones(3)), two(mo.ones(3))
    assert one.current.plan.graph.outputs[0] is two.current.plan.graph.outputs[0]
    assert one.current.plan.graph.digest() == two.current.plan.graph.digest()
    assert all("trace" not in node.attributes for node in one.current.plan.graph.nodes)
