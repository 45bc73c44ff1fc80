"""Python loops over a traced body: found again as loops, with the bits of what was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo

WEIGHT = mo.asarray(np.random.default_rng(3).standard_normal((5, 5)).astype(np.float32) / 3)


def recurrent(x: mo.Tensor) -> Any:
    state, sums = mo.zeros((2, 5)), []
    for number in range(30):
        state = mo.tanh(state @ WEIGHT + x[number] * 1.5 + 0.5)
        sums.append(state.sum())
    return state, mo.stack(sums)


def two_back(x: mo.Tensor) -> Any:
    a = b = x[0]
    for number in range(40):
        a, b = b, a * 0.25 + mo.roll(b, 1, axis=1) * 0.5 + number
    return a, b


def backwards(x: mo.Tensor) -> Any:
    carry, rows = x[0], []
    for number in reversed(range(1, 30)):
        carry = mo.sin(carry) @ WEIGHT + x[number]
        rows.append(carry)
    return mo.stack(rows, axis=1), rows[3]


def power(x: mo.Tensor) -> Any:
    y = x[0]
    for _ in range(20):
        y = y @ WEIGHT
        y = y / mo.max(mo.abs(y))
    return y


def written(x: mo.Tensor) -> Any:
    table = mo.zeros((30, 5))
    row = x[0, 0]
    for number in range(30):
        row = mo.cos(row) @ WEIGHT
        table[number] = row
    return table


PROGRAMS: dict[str, tuple[Callable[..., Any], bool]] = {
    "recurrent": (recurrent, True), "two back": (two_back, True), "backwards": (backwards, True),
    "power": (power, True), "written": (written, False)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_are_those_of_what_was_written(name: str, rng: np.random.Generator) -> None:
    program, rolls = PROGRAMS[name]
    x = mo.asarray(rng.standard_normal((30, 2, 5)).astype(np.float32))
    run = mo.compile(program)
    found = run(x)
    with mo.settings(passes_off="roll"):
        wanted = mo.compile(lambda x: program(x))(x)
    for one, other in zip(leaves(found), leaves(wanted), strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()
    assert ("a Python loop became" in run.explain()) == rolls


def leaves(tree: Any) -> list[mo.Tensor]:
    return [leaf for item in tree for leaf in leaves(item)] if isinstance(tree, tuple) else [tree]


def test_gradients_of_a_loop_that_was_written(rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((30, 2, 5)).astype(np.float32))
    slope = lambda x: mo.grad(lambda x: recurrent(x)[0].sum())(x)
    found = mo.compile(slope)(x)
    with mo.settings(passes_off="roll"):
        wanted = mo.compile(lambda x: slope(x))(x)
    assert found.numpy().tobytes() == wanted.numpy().tobytes()


def test_layers_with_weights_of_their_own_are_no_loop(rng: np.random.Generator) -> None:
    weights = [mo.asarray(rng.standard_normal((5, 5)).astype(np.float32)) for _ in range(12)]

    def network(x: mo.Tensor) -> mo.Tensor:
        for weight in weights:
            x = mo.relu(x @ weight) + mo.tanh(x) * 0.1 - mo.mean(x, axis=-1, keepdims=True)
        return x

    run = mo.compile(network)
    run(mo.asarray(rng.standard_normal((3, 5)).astype(np.float32)))
    assert "a Python loop became" not in run.explain()


def test_a_chain_that_is_one_kernel_stays_one(rng: np.random.Generator) -> None:
    def chain(x: mo.Tensor) -> mo.Tensor:
        for _ in range(20):
            x = mo.sin(x) * 0.5 + 0.1
        return x

    run = mo.compile(chain)
    run(mo.asarray(rng.standard_normal(5000).astype(np.float32)))
    with mo.settings(passes_off="roll"):
        plain = mo.compile(lambda x: chain(x))
        plain(mo.asarray(rng.standard_normal(5000).astype(np.float32)))
    assert run.stats["kernels"] == plain.stats["kernels"] <= 2


def test_compiling_does_not_grow_with_the_turns() -> None:
    def many(x: mo.Tensor) -> mo.Tensor:
        for number in range(400):
            x = mo.tanh(x @ WEIGHT) + number
        return x

    run = mo.compile(many)
    run(mo.ones((40, 5)))
    assert run.stats["kernels"] <= 8
    assert "400 turns" in run.explain() or "399 turns" in run.explain()
