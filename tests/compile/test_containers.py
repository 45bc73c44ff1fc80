"""Arguments in lists, dicts and tuples of those, in `*args` and by name come through the native entry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import morpho as mo
from container_calls import A, B, C, plain, slow, vector
from morpho.base.errors import ArgumentError, SharedError


class Pair(NamedTuple):
    left: Any
    right: Any


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
    assert f.recompiles == 1 and f.native_calls == 6  # all but the first of each


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
    with mo.settings(device="reference"):
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
    (({"a": A},), {"y": B, "z": C}, "there is no argument 'z'"),
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
