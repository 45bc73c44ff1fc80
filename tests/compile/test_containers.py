"""Arguments in lists, dicts and tuples of those, in `*args` and by name come through the native entry."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, SharedError
from morpho.runtime.tables import ContextField
from morpho.tensor.gather import Other, gatherer, taker
from morpho.tensor.trees import LEAF


class Pair(NamedTuple):
    left: Any
    right: Any


def vector(*numbers: float) -> mo.Tensor:
    """A float32 tensor with memory of its own."""
    return mo.asarray(np.array(numbers, np.float32), copy=True)


def slow(f: Any) -> int:
    """Calls that went through Python."""
    return int(f.stats["calls"] - f.stats["native_calls"])


def plain(tree: Any) -> Any:
    if isinstance(tree, mo.Tensor | np.ndarray):
        return tree.tolist()
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return [plain(item) for item in tree] if isinstance(tree, tuple | list) else tree


A, B, C = vector(1, 2), vector(3, 5), vector(10, 20)
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "dict": (lambda p, x: p["a"] * x + p["b"], ({"a": A, "b": B}, C), {}),
    "one in a dict": (lambda p: p["a"] + 1, ({"a": A},), {}),
    "list": (lambda items: items[0] - items[1], ([A, B],), {}),
    "tuple": (lambda items: items[0] - items[1], ((A, B),), {}),
    "named tuple": (lambda pair: pair.left - pair.right, (Pair(A, B),), {}),
    "nested": (lambda tree, x: {"sum": tree["pair"].left + tree["list"][1][0] * tree["list"][0] + x,
                                "kept": tree["text"]},
               ({"pair": Pair(A, B), "list": [C, (A,), [], {}], "text": "kept", "none": None}, B), {}),
    "numbers": (lambda x, sizes: x * sizes["k"] + sizes["many"][1], (A, {"k": 2.5, "many": [3, True, "s"]}), {}),
    "star": (lambda *items: items[0] + items[1] * items[2], (A, B, C), {}),
    "star and names": (lambda x, *more, scale=1.0, **named: (x + more[0]) * scale - named["y"], (A, B),
                       {"scale": 2.0, "y": C}),
    "by name": (lambda x, y, z=None: x - y, (A,), {"y": B}),
    "all by name, turned round": (lambda x, y: x - y, (), {"y": B, "x": A}),
    "keyword-only": (lambda x, *, y, scale=2: x * y * scale, (A,), {"y": B}),
    "a default by position": (lambda x, scale=2: x * scale, (A, 2), {}),
    "a tensor as default": (lambda x, y=B: x * y, (A,), {}),
    "derived from dict": (lambda p: p["a"] - p["b"], (OrderedDict(a=A, b=B),), {}),
    "only constants": (lambda sizes: mo.arange(3) * sizes[0], ([2, 3],), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_come_through_the_native_entry(name: str) -> None:
    function, args, kwargs = CALLS[name]
    f = mo.compile(function)
    want = plain(function(*args, **kwargs))
    for _ in range(4):
        assert plain(f(*args, **kwargs)) == want
    assert slow(f) == 1 and f.native_calls == 3


def test_a_training_step() -> None:
    """The typical loop: parameters in a dict, new ones in a dict."""

    def loss(parameters: Any, rows: mo.Tensor, wanted: mo.Tensor) -> mo.Tensor:
        hidden = mo.tanh(rows @ parameters["in"]["weight"] + parameters["in"]["bias"])
        return ((hidden @ parameters["out"]["weight"] - wanted) ** 2).mean()

    def step(parameters: Any, batch: Any) -> Any:
        value, slopes = mo.value_and_grad(loss)(parameters, *batch)
        return {layer: {name: tensor - 0.1 * slopes[layer][name] for name, tensor in part.items()}
                for layer, part in parameters.items()}, value

    key = mo.random.key(0)
    parameters = {"in": {"weight": mo.random.normal(key, (3, 4)).realise(), "bias": mo.zeros(4).realise()},
                  "out": {"weight": mo.random.normal(key, (4, 1)).realise()}}
    batch = (mo.ones((8, 3)).realise(), mo.ones((8, 1)).realise())
    compiled, losses = mo.compile(step), []
    for _ in range(5):
        parameters, value = compiled(parameters, batch)
        losses.append(value.item())
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]
    assert slow(compiled) == 1 and compiled.recompiles == 0


CHANGED: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "another order": (lambda p: [x for x in p.values()][0] + 0, {"a": A, "b": B}, {"b": B, "a": A}),
    "one more": (lambda p: sum(p.values(), C), {"a": A, "b": B}, {"a": A, "b": B, "c": C}),
    "one less": (lambda p: sum(p.values(), C), {"a": A, "b": B}, {"a": A}),
    "another key": (lambda p: p["a"] + p.get("b", -B), {"a": A, "b": B}, {"a": A, "x": B}),
    "a longer list": (lambda p: sum(p, C), [A, B], [A, B, C]),
    "no list": (lambda p: p[0] + (1 if isinstance(p, list) else 2), [A, B], (A, B)),
    "a named tuple": (lambda p: p[0] + (1 if isinstance(p, Pair) else 2), Pair(A, B), (A, B)),
    "a list inside": (lambda p: p["a"][0] + len(p["a"]), {"a": [A, B]}, {"a": [A, B, C]}),
    "no tensor": (lambda p: p["a"] + p["b"], {"a": A, "b": B}, {"a": A, "b": 3}),
    "no dict": (lambda p: p["a"] + 1 if isinstance(p, dict) else p + 2, {"a": A}, A),
    "another number": (lambda p: p["a"] * p["k"], {"a": A, "k": 2}, {"a": A, "k": 3}),
    "a number of another kind": (lambda p: p["a"] // p["k"], {"a": mo.asarray([3, 5]), "k": 2},
                                 {"a": mo.asarray([3, 5]), "k": 2.0}),
    "truth is no number": (lambda p: p["a"] + (1 if p["k"] is True else 2), {"a": A, "k": True}, {"a": A, "k": 1}),
    "another zero": (lambda p: mo.atan2(p["a"] * 0 + p["k"], -p["a"]), {"a": A, "k": 0.0}, {"a": A, "k": -0.0}),
    "no zero": (lambda p: p["a"] + p["k"], {"a": A, "k": 0.0}, {"a": A, "k": float("nan")}),
    "another text": (lambda p: p["a"] + len(p["k"]), {"a": A, "k": "one"}, {"a": A, "k": "three"}),
}


@pytest.mark.parametrize("name", CHANGED)
def test_another_structure_is_another_program(name: str) -> None:
    function, one, other = CHANGED[name]
    f = mo.compile(function)
    for tree in (one, one, other, other, one, other, one, one):
        np.testing.assert_array_equal(f(tree).numpy(), function(tree).numpy())
    assert f.recompiles == 1 and f.native_calls == 3  # a call like the one before it


def test_a_container_that_changes_between_calls() -> None:
    f = mo.compile(lambda p: sum(p["items"], p["first"]))
    tree = {"first": A, "items": [B]}
    assert f(tree).tolist() == [4, 7] and f(tree).tolist() == [4, 7]
    tree["first"] = C
    assert f(tree).tolist() == [13, 25] and f.native_calls == 2 and f.recompiles == 0  # other tensors of the same kind
    tree["items"].append(A)
    assert f(tree).tolist() == [14, 27] and f.recompiles == 1
    tree["first"] = mo.asarray([1, 2])
    assert f(tree).tolist() == [5, 9] and f.recompiles == 2
    tree["items"].clear()
    assert f(tree).tolist() == [1, 2]
    tree["items"] += [B, A]
    tree["first"] = C
    assert f(tree).tolist() == [14, 27] and f.recompiles == 3


def test_a_default_that_changes_between_calls() -> None:
    sizes: list[int] = []
    f = mo.compile(lambda x, sizes=sizes, more=(): x + len(sizes))
    for length in range(3):
        for _ in range(2):
            assert f(A).tolist() == [1 + length, 2 + length]
        sizes.append(length)
    assert f.native_calls == 3


def test_constants_of_equal_value_are_the_same() -> None:
    f = mo.compile(lambda p, scale, *, name: p["x"] * scale * p["n"] + len(name))
    for _ in range(3):
        values = {"x": A, "n": int("1000")}
        assert f(values, float("0.5"), name="".join(["a", "b"])).tolist() == [502, 1002]
    assert slow(f) == 1
    g = mo.compile(lambda x, scale: x * scale)  # by position, too
    for _ in range(3):
        assert g(A, float("2.5")).tolist() == [2.5, 5] and g(A, float("2.5")).dtype is mo.float32
    assert slow(g) == 1


def test_arrays_and_pending_tensors_among_them() -> None:
    """Arrays are read by the way through Python; a pending tensor is computed by its first call."""
    f = mo.compile(lambda p: p["a"] + p["b"])
    array = np.array([1, 1], np.float32)
    for _ in range(2):
        assert f({"a": A, "b": array}).tolist() == [2, 3]
    assert slow(f) == 2 and f.recompiles == 0
    pending = {"a": A * 2, "b": B}
    assert f(pending).tolist() == [5, 9] and slow(f) == 3
    assert f(pending).tolist() == [5, 9] and slow(f) == 3
    array[0] = 7
    assert f({"a": A, "b": array}).tolist() == [8, 3]


# -- out= ------------------------------------------------------------------------------------------------------------
def test_targets_beside_containers() -> None:
    f, target = mo.compile(lambda p, scale=2: p["a"] * p["b"] * scale), mo.empty(2)
    f({"a": A, "b": B})
    for _ in range(2):
        assert f({"a": A, "b": B}, out=target) is target and target.tolist() == [6, 20]
    assert f(p={"a": A, "b": C}, scale=2, out=target) is target and target.tolist() == [20, 80]
    assert f({"a": A, "b": B}, out=None).tolist() == [6, 20]
    assert slow(f) == 1
    held = target.numpy()
    with pytest.raises(SharedError, match="out= shares its memory"):
        f({"a": A, "b": B}, out=target)
    assert held.tolist() == [20, 80]
    with pytest.raises(ArgumentError, match=r"out= is float32\(3,\), the result is float32\(2,\)"):
        f({"a": A, "b": B}, out=mo.empty(3))


def test_targets_in_trees() -> None:
    f = mo.compile(lambda items: {"sum": items[0] + items[1], "rest": [items[0] - items[1], "text"]})
    f([A, B])
    out = {"sum": mo.empty(2), "rest": [mo.empty(2), "text"]}
    for _ in range(2):
        found = f([A, B], out=out)
        assert found["sum"] is out["sum"] and found["rest"][0] is out["rest"][0] and found["rest"][1] == "text"
        assert plain(out) == {"sum": [4, 7], "rest": [[-2, -3], "text"]}
    assert slow(f) == 1
    for wrong in ({"sum": mo.empty(2)}, [mo.empty(2)], mo.empty(2), {"sum": mo.empty(2), "rest": [mo.empty(2), "x"]}):
        with pytest.raises(ArgumentError, match="structure of the result"):
            f([A, B], out=wrong)
    one = mo.empty(2)
    with pytest.raises(SharedError, match="out= shares its memory"):
        f([A, B], out={"sum": one, "rest": [one, "text"]})


def test_a_tuple_of_targets() -> None:
    f, out = mo.compile(lambda *items: (items[0] + items[1], items[0] - items[1])), (mo.empty(2), mo.empty(2))
    f(A, B)
    assert f(A, B, out=out) is out and plain(out) == [[4, 7], [-2, -3]] and slow(f) == 1


def test_an_argument_as_target() -> None:
    """The result may lie where an argument lay; a tensor in a tree is an argument like others."""
    parameters = {"w": vector(1, 2), "b": vector(1, 1)}
    f = mo.compile(lambda p: p["w"] * 2 + p["b"])
    f(parameters)
    for want in ([3, 5], [7, 11]):
        assert f(parameters, out=parameters["w"]).tolist() == want


def test_a_function_with_a_parameter_named_out() -> None:
    f = mo.compile(lambda x, out: x + out)
    for _ in range(3):
        assert f(A, B).tolist() == [4, 7] and f(A, out=B).tolist() == [4, 7]
    assert slow(f) == 1


# -- sizes and states ------------------------------------------------------------------------------------------------
def test_dynamic_sizes_inside_trees() -> None:
    n = mo.Dim("n", 1, 64)
    f = mo.compile(lambda p: p["x"] * 2 + p["y"].sum(), dynamic={"p": {"x": {0: n}, "y": {0: n}}})
    for length in (3, 5, 7, 5):
        x = mo.ones(length).realise()
        assert f({"x": x, "y": x}).tolist() == [2 + length] * length
    assert slow(f) == 1 and f.recompiles == 0
    with pytest.raises(ArgumentError, match=r"axis 0 of p\['x'\] has size 65, outside 1..64"):
        f({"x": mo.ones(65).realise(), "y": mo.ones(65).realise()})
    with pytest.raises(ArgumentError, match="the dynamic dimensions"):
        f({"x": mo.ones(3).realise(), "y": mo.ones(4).realise()})


def test_states_beside_containers() -> None:
    state = mo.State(mo.zeros(2))

    def add(p: Any, *, scale: Any) -> Any:
        state.value = state.value + p["a"] * scale
        return [state.value.sum()]

    f = mo.compile(add)
    for count in range(1, 5):
        assert plain(f({"a": A}, scale=B)) == [13.0 * count]
    assert slow(f) == 1 and state.value.tolist() == [12, 40]


def test_settings_of_a_block() -> None:
    f = mo.compile(lambda p: mo.gelu(p["a"]) + 1)
    f({"a": A})
    before = f.native_calls
    with mo.settings(level=1):
        for _ in range(2):
            f({"a": A})
        assert f.native_calls == before + 1
    with mo.settings(backend="reference"):
        f({"a": A})
    assert f.native_calls == before + 1


def test_methods_and_functions_inside_others() -> None:
    class Model:
        factor = 3.0

        @mo.compile
        def apply(self, p: Any, *, y: Any) -> Any:
            return p["x"] * self.factor + y

    one = Model()
    for _ in range(3):
        assert one.apply({"x": A}, y=B).tolist() == [6, 11]
    assert slow(Model.apply) == 1
    outer = mo.compile(lambda p: one.apply(p, y=p["x"]) * 2)
    assert outer({"x": A}).tolist() == [8, 16] and outer.stats["kernels"] == 1 and slow(Model.apply) == 1


# -- calls that are wrong --------------------------------------------------------------------------------------------
WRONG_CALLS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {}, "missing a required argument: 'p'"), (({"a": A},), {}, "missing a required .*argument: 'y'"),
    (({"a": A}, B), {"y": B}, "too many positional arguments"),
    (({"a": A},), {"y": B, "z": C}, "unexpected keyword argument 'z'"),
    (({"a": A},), {"y": B, "p": C}, "multiple values for argument 'p'"),
    (({"a": {1, 2}},), {"y": B}, "neither a tensor nor hashable")]


@pytest.mark.parametrize(("args", "kwargs", "said"), WRONG_CALLS)
def test_wrong_calls(args: tuple[Any, ...], kwargs: dict[str, Any], said: str) -> None:
    f = mo.compile(lambda p, *, y: p["a"] + y)
    f({"a": A}, y=B)
    for _ in range(2):
        with pytest.raises(ArgumentError, match=said) as caught:
            f(*args, **kwargs)
        assert "test_containers.py:" in str(caught.value)
    assert f({"a": A}, y=B).tolist() == [4, 7] and f.native_calls == 1


def test_errors_of_a_container_itself() -> None:
    """What a class derived from dict raises is what the call raises; an interrupt ends it at once."""

    class Broken(dict[str, Any]):
        error: BaseException | None = None
        asked = 0

        def __iter__(self) -> Any:
            self.asked += 1
            if self.error is not None:
                raise self.error
            return super().__iter__()

    f, tree = mo.compile(lambda p: p["a"] + 1), Broken(a=A)
    assert f(tree).tolist() == [2, 3] and f(tree).tolist() == [2, 3] and f.native_calls == 1
    tree.error = LookupError("mine")
    with pytest.raises(LookupError, match="mine"):
        f(tree)
    tree.error, tree.asked = KeyboardInterrupt(), 0
    with pytest.raises(KeyboardInterrupt):
        f(tree)
    assert tree.asked == 1
    tree.error = None
    assert f(tree).tolist() == [2, 3] and f.native_calls == 2


def test_faults_are_told() -> None:
    f = mo.compile(lambda p: {"row": p["table"][p["index"]]})
    table, index = mo.asarray(np.arange(6, dtype=np.float32).reshape(3, 2), copy=True), mo.asarray([1])
    for _ in range(2):
        assert plain(f({"table": table, "index": index})) == {"row": [[2, 3]]}
    for _ in range(2):
        with pytest.raises(IndexError, match="out of range for an axis of size 3"):
            f({"table": table, "index": mo.asarray([7])})
    assert plain(f({"table": table, "index": index})) == {"row": [[2, 3]]}


# -- memory and threads ----------------------------------------------------------------------------------------------
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
        while thread.is_alive() and not f.words[ContextField.BUSY]:
            pass
        other()
        was_beside = bool(f.words[ContextField.BUSY])
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


def at_once(work: Callable[[int], None], count: int) -> None:
    """Run work(0), work(1), ... in threads that take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)


def test_many_threads_with_trees_of_their_own() -> None:
    f, wrong = mo.compile(lambda p, *, y: {"a": p["a"] * y, "b": p["b"][0] + y}), []
    f({"a": A, "b": [B]}, y=C)
    before = slow(f)

    def work(number: int) -> None:
        tree, y = {"a": vector(number, 1), "b": [vector(2, number)]}, vector(3, 4)
        for _ in range(300):
            if plain(f(tree, y=y)) != {"a": [3 * number, 4], "b": [5, 4 + number]}:
                wrong.append(number)

    at_once(work, 4)
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

    at_once(work, 4)
    assert not wrong and f.recompiles == 3


def test_the_entry_serves_another_program_after_gathering() -> None:
    """A class derived from dict calls the function with another structure while it is asked for its keys."""

    class Meddling(dict[str, Any]):
        meddles = False

        def __iter__(self) -> Any:
            if self.meddles:
                self.meddles = False
                assert f([A], B).tolist() == [3, 10]
            return super().__iter__()

    f, tree = mo.compile(lambda p, y: p["a"] - y if isinstance(p, dict) else p[0] * y), Meddling(a=C)
    f([A], B)
    for _ in range(2):
        assert f(tree, B).tolist() == [7, 15]
    before = f.native_calls
    tree.meddles = True
    assert f(tree, B).tolist() == [7, 15] and f.native_calls == before


# -- the functions that gather ---------------------------------------------------------------------------------------
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


# -- what a reviewer found -------------------------------------------------------------------------------------------
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
