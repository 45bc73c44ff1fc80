"""The functions that gather tensors among arguments, and what they must look at at every call."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import morpho as mo
from container_calls import A, B, C, slow
from morpho.base.trees import LEAF
from morpho.tensor.jit.native.argument_extractor import Other, gatherer, taker


def test_names_that_python_needs_itself() -> None:
    f = mo.compile(lambda type, len, isinstance=2, *tuple, dict, self=None, **made: type["x"] + len[0] + dict
                   + tuple[0] + made["args"])
    for _ in range(2):
        assert f({"x": A}, [A], 2, B, dict=C, args=A).tolist() == [16, 31]
    assert slow(f) == 1


def test_every_kind_of_parameter() -> None:
    def function(first: Any, /, second: Any, *more: Any, third: Any, fourth: Any = 4, **rest: Any) -> None: ...

    structure = (("first", LEAF), ("second", ("list", (LEAF,))), ("more", ("tuple", (LEAF, LEAF))), ("third", LEAF),
                 ("fourth", ("static", "int", 4)), ("rest", ("dict", (("first", LEAF),))))
    gather = gatherer(inspect.signature(function), structure, LEAF)
    assert gather is not None
    assert gather(1, [2], 3, 4, third=5, first=6) == (None, 1, 2, 3, 4, 5, 6)
    assert gather(1, [2], 3, 4, fourth=4, out=7, third=5, first=6) == (7, 1, 2, 3, 4, 5, 6)
    for wrong in ({"second": [2], "third": 5}, {"third": 5, "first": 6, "fourth": 5}, {"third": 5, "other": 6}):
        with pytest.raises(Exception):  # Python's own or ours: the call goes through Python
            gather(1, [2], 3, 4, **wrong)


def test_classes_that_are_known_by_name_alone_go_through_python() -> None:
    class Items(list[Any]):
        pass

    f = mo.compile(lambda items: items[0] + items[1])
    for _ in range(2):
        assert f(Items([A, B])).tolist() == [4, 7]
    assert f.native_calls == 0 and f([A, B]).tolist() == [4, 7]


class Dial:
    """An object that a program is compiled for, and that tells nobody when it is turned."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def static_key(self) -> float:
        return self.factor


@pytest.mark.parametrize("call", [lambda f, x, dial: f(x, dial), lambda f, x, dial: f(x, dial=dial),
                                  lambda f, x, dial: f((x, [dial]))], ids=["position", "name", "tree"])
def test_objects_with_a_key_are_asked_at_every_call(call: Any) -> None:
    def scaled(x: Any, dial: Any = None) -> mo.Tensor:
        x, (dial,) = x if isinstance(x, tuple) else (x, [dial])
        return x * dial.factor

    f, x, dial = mo.compile(scaled), mo.ones(2).realise(), Dial(2.0)
    for factor in (2.0, 2.0, 2.0, 3.0, 3.0):
        dial.factor = factor
        assert call(f, x, dial).numpy().tolist() == [factor] * 2
    scaler, g = mo.amp.GradScaler(init_scale=4.0), mo.compile(lambda x, s: x * s.growth_factor)
    for factor in (2.0, 2.0, 5.0):
        scaler.growth_factor = factor
        assert g(x, s=scaler).numpy().tolist() == g(x, scaler).numpy().tolist() == [factor] * 2


def test_a_default_of_a_class_derived_from_list_may_change() -> None:
    class Options(list):  # type: ignore[type-arg]
        pass

    for options in (Options([2.0]), (Options([2.0]),)):
        f = mo.compile(lambda x, o=options: x * np.ravel(o)[0].item())
        inner = options if isinstance(options, Options) else options[0]
        for factor in (2.0, 2.0, 5.0):
            inner[0] = factor
            assert f(mo.ones(2).realise()).numpy().tolist() == [factor] * 2


def test_lists_that_trade_items_while_they_are_read() -> None:
    take = taker(("tuple", (("list", (LEAF,)), ("list", (LEAF, LEAF)))))
    first, second = ["a"], ["b", "c"]

    class Trading(list):  # type: ignore[type-arg]
        pass

    got = taker(("list", (LEAF,)))(first)
    first.append(second.pop())  # by another thread, after the first was looked at
    assert tuple(got) == ("a",)
    with pytest.raises(Other):
        take((first, second))
    with pytest.raises(Other):
        take((Trading("a"), ["b", "c"]))


def test_names_that_cannot_be_written_go_through_python() -> None:
    def function(*given: mo.Tensor) -> mo.Tensor:
        return given[0] + given[1]

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter("\ufb01", kind), inspect.Parameter("fi", kind)])  # one name to Python
    assert mo.compile(function)(mo.ones(2), mo.ones(2)).numpy().tolist() == [2.0, 2.0]


def test_defaults_that_cannot_be_compared() -> None:
    class Odd:
        factor = 3.0

        def __eq__(self, other: object) -> Any:
            raise ValueError("no truth")

        __hash__ = object.__hash__

    default = Odd()
    f = mo.compile(lambda x, odd=default: x * odd.factor)
    for given in ((), (Odd(),), ()):
        assert f(mo.ones(2).realise(), *given).numpy().tolist() == [3.0, 3.0]
