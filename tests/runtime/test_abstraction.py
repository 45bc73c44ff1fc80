"""Lazy programs that differ in their numbers alone are one program."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from morpho.backends.code.compiler import code
from morpho.ir.node import Node
from morpho.runtime.plans.abstraction import abstract
from morpho.tensor.core import Tensor


def lifted(x: Tensor) -> list[float]:
    """The numbers of a program that became parameters."""
    graph, buffers = abstract([x.program()], lift=True)
    assert len(buffers) == len([node for node in graph.nodes if node.op.name == "parameter"])
    return [float(buffer.numpy()) for buffer in buffers if buffer.shape == ()]


def test_a_number_that_changes_compiles_nothing() -> None:
    """A step of gradient descent whose length shrinks."""
    w = mo.asarray(np.linspace(-1, 1, 50, dtype=np.float32))
    want = w.numpy().copy()
    made = []
    for step in range(6):
        w = w - 0.1 * 0.9**step * mo.tanh(w)
        want = want - np.float32(0.1 * 0.9**step) * np.tanh(want)
        assert np.allclose(w.numpy(), want, atol=1e-6)
        made.append(code.counters.compiled + code.counters.disk_hits)
    assert made[1:] == made[1:2] * 5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("level", [0, 3])
def test_bits_are_those_of_compiled_functions(dtype: str, level: int, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.normal(size=(3, 37)).astype(dtype))

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return ((x * 0.3 - 1.7) / 0.9, mo.clip(x, -0.3, 1.1), mo.where(x > 0.1, x, -0.7), 0.1 - x, 3.3 / x,
                mo.minimum(x, 0.123456789123456789), x == 0.3, (x + 1e-3) * 1e-3)

    with mo.settings(level=level):
        for lazy, compiled in zip(f(x), mo.compile(f)(x), strict=True):
            assert lazy.dtype == compiled.dtype and lazy.numpy().tobytes() == compiled.numpy().tobytes()


def test_what_rules_look_for_stays_a_number() -> None:
    x = mo.asarray(np.ones(3, np.float32))
    assert lifted(x * 0.3 + 5.5) == pytest.approx([0.3, 5.5])
    assert lifted(x * 0.3 + 0.3) == pytest.approx([0.3])  # one number
    for value in (0.0, -0.0, 1.0, -1.0, 2.0, 0.25, -64.0, float("inf"), float("nan")):
        assert lifted(x * value) == []
    assert lifted(x ** 2.5) == [] and lifted(mo.asarray([1, 2]) * 3) == []
    assert lifted(mo.exp(x) + 0 * x) == []


def test_values_of_numbers_alone_have_memory_of_their_own() -> None:
    a = mo.full((3,), 0.37)
    b = mo.full((3,), 0.37) + 0.25
    a[0] = 1.0
    assert a.tolist() == pytest.approx([1.0, 0.37, 0.37]) and b.tolist() == pytest.approx([0.62] * 3)
    assert lifted(mo.full((3,), 0.37) + 0.3) == []


@mo.settings(record=False)  # programs as nodes
def test_a_number_may_be_moved_any_number_of_times() -> None:
    """No walk of a program is as deep as the program."""
    number = mo.full((1,), 0.3, dtype=mo.float32)
    for _ in range(600):  # two moves each
        number = mo.flip(mo.permute_dims(mo.expand_dims(number, axis=0), (1, 0))[:, 0])
    assert lifted(mo.asarray(np.ones(3, np.float32)) * number) == pytest.approx([0.3])


def test_gradients_see_the_program_as_it_was_written() -> None:
    x = mo.asarray([1.0, 2.0])
    found = mo.grad(lambda x: (x * 0.3 * x).sum())(x)
    assert found.tolist() == pytest.approx([0.6, 1.2])
    node: Node = (x * 0.3).program()
    assert any(n.op.name == "constant" for n in _all(node))


def _all(node: Node) -> list[Node]:
    return [node, *(below for child in node.inputs for below in _all(child))]
