"""Calls with containers: what they hold, and other threads beside them."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from callers import together

import morpho as mo
from container_calls import A, B, C, plain, slow, vector
from morpho.base.errors import ArgumentError
from morpho.tensor.jit.native.entries import entries


def test_nothing_is_held_after_a_call() -> None:
    f = mo.compile(lambda p, *, y: {"a": [p["a"] + y]})
    tree, y = {"a": vector(1, 2)}, vector(1, 1)
    out = {"a": [mo.empty(2)]}
    for _ in range(3):
        f(tree, y=y), f(tree, y=y, out=out), f({"b": y, "a": y}, y=y)
    counts = [sys.getrefcount(thing) for thing in (tree, tree["a"], y, out, out["a"][0], f.current.gather)]
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(300):
        f(tree, y=y), f(tree, y=y, out=out)
        with pytest.raises(ArgumentError):
            f(tree)
    gc.collect()
    assert [sys.getrefcount(thing) for thing in (tree, tree["a"], y, out, out["a"][0], f.current.gather)] == counts
    assert len(gc.get_objects()) - before < 100


def long_function(x: Any) -> Any:
    """Long enough for its caller to give up the interpreter lock."""
    x = x["x"] if isinstance(x, dict) else x
    if x.shape[0] < 100:
        return ["short", x.sum()]
    for _ in range(6):
        x = mo.tanh(x @ x)
    return {"long": x}


def beside(f: Any, long_call: Callable[[], Any], other: Callable[[], None]) -> Any:
    """The result of a native call in another thread, while which `other` ran here."""
    for _ in range(20):
        found: list[Any] = []
        thread = threading.Thread(target=lambda kept: kept.append(long_call()), args=(found,))
        before = f.native_calls
        thread.start()
        while thread.is_alive() and not f.is_busy:
            pass
        other()
        was_beside = f.is_busy
        thread.join()
        if was_beside and f.native_calls > before:
            return found[0]
    raise AssertionError("the calls were never at the same time")


def test_results_are_arranged_as_their_own_program_says() -> None:
    """While a long program runs, another thread calls the function with other sizes, whose result is another tree."""
    f, large, small = mo.compile(long_function), mo.ones((384, 384)).realise(), mo.ones((4, 4)).realise()
    want = f(large)["long"].numpy()
    shorts: list[Any] = []
    f(small)

    def long_call() -> Any:
        return f(large)

    f(large)
    found = beside(f, long_call, lambda: shorts.append(f(small)))
    np.testing.assert_array_equal(found["long"].numpy(), want)
    assert plain(shorts[-1]) == ["short", 16.0]


def test_a_container_that_changes_while_its_tensors_are_read() -> None:
    f, tree = mo.compile(long_function), {"x": mo.ones((384, 384)).realise()}
    want = f(tree)["long"].numpy()

    def replace() -> None:
        tree["x"] = mo.zeros((384, 384)).realise()
        tree["y"] = A
        mo.ones((384, 384)).realise()  # would take the memory if it were free

    def long_call() -> Any:
        tree.clear()
        tree["x"] = mo.ones((384, 384)).realise()
        return f(tree)

    np.testing.assert_array_equal(beside(f, long_call, replace)["long"].numpy(), want)


def test_many_threads_with_trees_of_their_own() -> None:
    f, wrong = mo.compile(lambda p, *, y: {"a": p["a"] * y, "b": p["b"][0] + y}), []
    f({"a": A, "b": [B]}, y=C)
    before = slow(f)

    def work(number: int) -> None:
        tree, y = {"a": vector(number, 1), "b": [vector(2, number)]}, vector(3, 4)
        for _ in range(300):
            if plain(f(tree, y=y)) != {"a": [3 * number, 4], "b": [5, 4 + number]}:
                wrong.append(number)

    together(work, threads=4, switch_s=1e-6)
    assert not wrong and slow(f) == before


def test_many_threads_with_structures_of_their_own() -> None:
    """The entry's tables change while arguments are gathered: nobody is served by the program of another structure."""
    f, wrong = mo.compile(lambda p, y: [p["a"] - y] if isinstance(p, dict) else {"a": p[0] - y, "b": len(p)}), []
    trees = [{"a": vector(9, 8)}, [vector(7, 6)], (vector(5, 4), A), {"b": 1, "a": vector(3, 2)}]
    wanted: list[Any] = [[[8, 6]], {"a": [6, 4], "b": 1}, {"a": [4, 2], "b": 2}, [[2, 0]]]

    def work(number: int) -> None:
        for _ in range(100):
            for _ in range(3):
                if plain(f(y=A, p=trees[number])) != wanted[number]:
                    wrong.append(number)

    together(work, threads=4, switch_s=1e-6)
    assert not wrong and f.recompiles == 3


@pytest.mark.parametrize("forgets", [False, True])
def test_the_entry_serves_another_program_after_gathering(forgets: bool) -> None:
    """A class derived from dict calls the function with another structure while it is asked for its keys, or changes
    something that may mean other code."""

    class Meddling(dict[str, Any]):
        meddles = False

        def __iter__(self) -> Any:
            if self.meddles:
                self.meddles = False
                assert f([A], B).tolist() == [3, 10]
                if forgets:
                    entries.forget()
            return super().__iter__()

    f, tree = mo.compile(lambda p, y: p["a"] - y if isinstance(p, dict) else p[0] * y), Meddling(a=C)
    f([A], B)
    for _ in range(2):
        assert f(tree, B).tolist() == [7, 15]
    before = f.native_calls
    tree.meddles = True
    assert f(tree, B).tolist() == [7, 15] and f.native_calls == before + (1 if forgets else 2)
