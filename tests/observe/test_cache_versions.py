"""`@mo.cache`: whatever a result depends on is part of its key, in this process and in the next."""

from __future__ import annotations

import functools
import textwrap
import types
from typing import Any

import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.runtime.object_cache.values import decode, encode
from morpho.tensor.tools.code_version import code_version

FACTOR = 2
TERMS = [1]


def test_what_a_function_reads_may_change_between_calls() -> None:
    global FACTOR
    offset, inner = 1, [1]

    def helper(x: int, more: list[int] = inner) -> int:
        return x + sum(more)

    @mo.cache
    def f(x: int) -> int:
        return FACTOR * helper(x) + offset + sum(TERMS)

    wanted = f.__wrapped__
    assert f(3) == wanted(3) == 10
    FACTOR = 5
    assert f(3) == wanted(3)
    offset = 100
    assert f(3) == wanted(3)
    inner.append(7)
    assert f(3) == wanted(3)
    TERMS.append(1000)
    assert f(3) == wanted(3)
    del TERMS[1:]
    FACTOR, offset = 2, 1
    del inner[1:]
    assert f(3) == 10 and f.stats()["made"] == 5  # as at first: a hit


def test_what_a_run_changes_itself_is_no_other_version() -> None:
    calls = []

    @mo.cache
    def f(x: int) -> int:
        calls.append(x)
        return x

    assert [f(1), f(1), f(2), f(1)] == [1, 1, 2, 1] and calls == [1, 2]


def times(k: int) -> Any:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(x: int) -> Any:
            return k * function(x)
        return wrapped
    return decorate


class Scaler:
    def __init__(self, k: int) -> None:
        self.k = k

    def go(self, x: int) -> int:
        return self.k * x


def _decorated(store: Any, k: int) -> Any:
    @store
    @times(k)
    def f(x: int) -> int:
        return x
    return f


def _calls_decorated(store: Any, k: int) -> Any:
    @times(k)
    def g(x: int) -> int:
        return x

    @store
    def f(x: int) -> Any:
        return g(x)
    return f


def _twins(store: Any, k: int) -> Any:
    def made(by: int) -> Any:
        return lambda x: by * x
    first, second = made(0), made(k)

    @store
    def f(x: int) -> Any:
        return first(x) + second(x)
    return f


def _class(store: Any, k: int) -> Any:
    class Own:
        factor = k

        @staticmethod
        def go(x: int) -> int:
            return Own.factor * x

    @store
    def f(x: int) -> int:
        return Own.go(x)
    return f


def _module(store: Any, k: int) -> Any:
    module = types.ModuleType("program.helpers")
    exec(f"def go(x): return {k} * x", module.__dict__)
    space: dict[str, Any] = {"__name__": "program.main", "helpers": module, "store": store}
    exec(textwrap.dedent("""
        @store
        def f(x): return helpers.go(x)
    """), space)
    return space["f"]


@pytest.mark.parametrize("made", [_decorated, _calls_decorated, _twins, _class, _module])
def test_what_a_function_uses_is_of_its_version(made: Any) -> None:
    store = mo.cache(memory="1MiB")
    assert [made(store, k)(10) for k in (2, 3, 2)] == [20, 30, 20] and store.stats()["made"] == 2


def test_a_method_of_an_object_without_content_is_an_error() -> None:
    method = Scaler(2).go
    with pytest.raises(ArgumentError, match=r"has no digest.*give version="):
        mo.cache(lambda x: method(x))(1)


def test_versions_are_the_same_in_every_process() -> None:
    text = "def f(x): return x in {'a', 'b', 'c', 'd', 'e'}"
    spaces: list[dict[str, Any]] = [{"__name__": "program"}, {"__name__": "program"}]
    for space in spaces:
        exec(text, space)
    code = spaces[1]["f"].__code__
    turned = tuple(frozenset(sorted(each, reverse=True)) if isinstance(each, frozenset) else each
                   for each in code.co_consts)
    spaces[1]["f"].__code__ = code.replace(co_consts=turned)
    assert code_version(spaces[0]["f"]) == code_version(spaces[1]["f"])


def test_dicts_in_another_order_are_other_inputs() -> None:
    names = mo.cache(lambda d: list(d))
    assert names({"a": 1, "b": 2}) == ["a", "b"] and names({"b": 2, "a": 1}) == ["b", "a"]
    options = mo.cache(lambda **d: list(d))
    assert options(a=1, b=2) == ["a", "b"] and options(b=2, a=1) == ["b", "a"]


def test_ints_of_any_length(tmp_path: Any) -> None:
    big = 7 ** 6000
    same = mo.cache(lambda x: x, disk=tmp_path)
    assert [same(big), same(-big), decode(encode([big, 1]))] == [big, -big, [big, 1]]
