"""Results in lists, dicts and tuples of those come through the native entry too."""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError


class Both(NamedTuple):
    more: Any
    less: Any


ARRANGED = {
    "list": lambda x: [x + 1, x * 2],
    "one in a list": lambda x: [x + 1],
    "dict": lambda x: {"a": x + 1, "b": x * 2},
    "nested": lambda x: {"a": (x + 1, [x * 2]), "b": "text", "c": 3},
    "named": lambda x: Both(x + 1, x - 1),
}


def plain(tree: Any) -> Any:
    if isinstance(tree, mo.Tensor):
        return tree.tolist()
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(*map(plain, tree)) if hasattr(tree, "_fields") else type(tree)(map(plain, tree))
    return tree


@pytest.mark.parametrize("name", ARRANGED)
def test_arranged_results_come_through_the_native_entry(name: str) -> None:
    f, x = mo.compile(ARRANGED[name]), mo.asarray(np.arange(3, dtype=np.float32), copy=True)
    want = plain(ARRANGED[name](x))
    for _ in range(3):
        assert plain(f(x)) == want and type(f(x)) is type(ARRANGED[name](x))
    assert f.stats["native_calls"] == 5


def test_out_takes_the_arrangement_of_the_result() -> None:
    f, x = mo.compile(ARRANGED["dict"]), mo.ones(3)
    f(x)
    out = {"a": mo.empty(3), "b": mo.empty(3)}
    found = f(x, out=out)
    assert found["a"] is out["a"] and out["b"].tolist() == [2, 2, 2]
    with pytest.raises(ArgumentError, match="structure of the result"):
        f(x, out=(mo.empty(3), mo.empty(3)))


def test_states_are_updated_beside_arranged_results() -> None:
    state = mo.State(mo.zeros(3))

    def step(x: Any) -> Any:
        state.value = state.value + x
        return {"sum": state.value.sum(), "last": [x * 2]}

    f = mo.compile(step)
    for count in range(1, 5):
        assert plain(f(mo.ones(3))) == {"sum": 3.0 * count, "last": [[2, 2, 2]]}
    assert state.value.tolist() == [4, 4, 4]


def test_dropped_results_are_freed() -> None:
    f, x = mo.compile(ARRANGED["nested"]), mo.ones(3)
    f(x)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(1000):
        f(x)
    gc.collect()
    assert len(gc.get_objects()) - before < 100
