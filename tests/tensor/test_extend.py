"""Plug-ins that are wrong: an error that names the operation, pattern or pass, not one of what runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.reference.reference import run_node
from morpho.base.errors import ArgumentError, CompileError, MorphoError, ShapeError

X = mo.asarray([1.0, 2.0])


@pytest.fixture
def op() -> Iterator[Callable[..., Any]]:
    """`mo.extend.op`, taken back after the test."""
    names: list[str] = []

    def add(name: str, *args: Any, **options: Any) -> Any:
        names.append(name)
        return mo.extend.op(name, *args, **options)

    yield add
    for name in names:
        mo.extend.remove(name)


def test_an_operation_called_with_other_arguments(op: Any) -> None:
    cube = op("own_cube", lambda x: x * x * x)
    sinc = op("own_sinc", reference=np.sinc, native=False)
    minimum = op("own_minimum", reference=np.minimum, native=False)
    calls: list[Callable[[], Any]] = [lambda: cube(X, X), lambda: cube(), lambda: cube(X, power=3), lambda: sinc(X, X),
                                      lambda: minimum()]
    for call in calls:
        with pytest.raises(ArgumentError, match=r"^\[own_\w+\] .*test_extend.py"):
            call()
    assert cube(X).tolist() == [1.0, 8.0] and minimum(X, 1.5).tolist() == [1.0, 1.5]


@pytest.mark.parametrize(("composition", "kind", "text"), [
    (lambda x: None, ArgumentError, "returned NoneType, not a tensor"),
    (lambda x: x.sum(), ShapeError, "elementwise"), (lambda x: x > 1, ShapeError, "elementwise")])
def test_a_composition_that_is_no_elementwise_tensor(op: Any, composition: Any, kind: Any, text: str) -> None:
    wrong = op("own_wrong", composition)
    with pytest.raises(kind, match=rf"^\[own_wrong\] .*{text}"):
        wrong(X).numpy()


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_reference_cannot_write_what_it_is_given(op: Any, device: str, tmp_path: Path) -> None:
    def twice(a: np.ndarray) -> np.ndarray:
        a *= 2
        return a

    own_twice = op("own_twice", reference=twice, native=False)
    borrowed = np.ones(3, np.float32)
    mo.weights.save(tmp_path / "w.safetensors", {"w": mo.ones(3)})
    mapped = mo.weights.load(tmp_path / "w.safetensors")["w"]
    with mo.settings(device=device):
        for x in (mo.asarray([1.0, 2.0, 3.0]), mo.asarray(borrowed, copy=False), mapped):
            before = x.tolist()
            with pytest.raises(ValueError, match="read-only"):
                own_twice(x).numpy()
            assert x.tolist() == before
    assert borrowed.tolist() == [1, 1, 1]


def test_a_reference_may_keep_what_it_is_given(op: Any) -> None:
    arrays: list[np.ndarray] = []

    def remember(a: np.ndarray) -> np.ndarray:
        arrays.append(a)
        return a + 1

    keep = op("own_keep", reference=remember, native=False)
    f = mo.compile(lambda x: keep(x * 2) * 3)
    for start in (1.0, 5.0):
        assert f(mo.full(3, start)).tolist() == [start * 6 + 3] * 3
    assert [array.tolist() for array in arrays] == [[2.0] * 3, [10.0] * 3]


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(("reference", "text"), [
    (lambda a: None, r"None, not float32\(2,\)"), (lambda a: a[:1], r"float32\(1,\), not float32\(2,\)"),
    (lambda a: np.zeros(1000), r"float64\(1000,\), not float32\(2,\)"), (lambda a: a.astype(str), r"<U32\(2,\), not"),
    (lambda a: a + 1j, r"complex64\(2,\), not"), (lambda a: 3.0, r"float64\(\), not"), (lambda a: {}, "a dict, not"),
    (lambda a: [[1.0], [1.0, 2.0]], "a list that is no array")])
def test_what_a_reference_returns_is_checked(op: Any, reference: Any, text: str, device: str) -> None:
    wrong = op("own_result", reference=reference, native=False)
    message = rf"^\[own_result\] the reference returned {text}"
    with mo.settings(device=device), pytest.raises(MorphoError, match=message):
        wrong(X).numpy()


def test_results_of_the_same_kind_are_taken(op: Any) -> None:
    doubles = op("own_doubles", reference=lambda a: [float(v) / 3 for v in a], native=False)
    wholes = op("own_wholes", reference=lambda a: np.ones(a.shape, int), native=False)
    assert doubles(X).tolist() == (X / 3).tolist() and wholes(X).dtype is mo.float32
    assert doubles(X.astype(mo.bfloat16)).dtype is mo.bfloat16


def test_a_backend_cannot_write_values_of_others() -> None:
    def run(node: Any, values: list[Any], sizes: Any) -> Any:
        values[0][...] = 0
        return run_node(node, values, sizes)

    mo.extend.backend("writes", run)
    with mo.settings(device="writes"), pytest.raises(ValueError, match="read-only"):
        mo.exp(X).numpy()
    mo.extend.remove("writes")
    assert X.tolist() == [1.0, 2.0]
    mo.extend.backend("takes", run_node, copy_in=lambda array: np.multiply(array, 2, out=array))
    with mo.settings(device="takes"):
        assert (X + 0).tolist() == [2.0, 4.0]
    mo.extend.remove("takes")
    assert X.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("result", "text"), [
    (lambda node: 3, "returned int, not a node"), (lambda node: X, "returned Tensor, not a node"),
    (lambda node: mo.ones(3).node, r"put float32\(3,\) in place of float32\(29,\)")])
def test_a_pattern_that_returns_no_such_node(result: Any, text: str) -> None:
    def own_pattern(node: Any) -> Any:
        return result(node)

    mo.extend.pattern("tan")(own_pattern)
    try:
        with pytest.raises(CompileError, match=rf"^\[own_pattern\] the pattern {text}.*test_extend.py"):
            mo.tan(mo.asarray(np.zeros(29, np.float32))).numpy()  # of a length that nobody else wrote
    finally:
        mo.extend.remove(own_pattern)


@pytest.mark.parametrize(("result", "text"), [
    (lambda graph: None, "returned NoneType, not a Graph"),
    (lambda graph: type(graph)((mo.ones(3).node,)), "turned outputs")])
def test_a_pass_that_returns_no_such_graph(result: Any, text: str) -> None:
    mo.extend.add_pass("own_pass", result)
    try:
        with pytest.raises(CompileError, match=rf"^\[own_pass\] the pass {text}"):
            mo.tan(X).numpy()
    finally:
        mo.extend.remove("own_pass")


def test_code_that_llvm_rejects_is_its_emitter_s(op: Any) -> None:
    def emit(e: Any, dtype: Any, x: Any) -> Any:
        return e.assign("no instruction at all", x.element, x.lanes)

    broken = op("own_broken", reference=np.sin, emit=emit)
    with pytest.raises(CompileError, match="emitter of 'own_broken'") as caught:
        broken(X).numpy()
    assert "defect of Morpho" not in str(caught.value)


def test_a_name_given_again_means_the_new_operation() -> None:
    """Also while a program of the old one lives."""
    first = mo.extend.op("own_again", lambda x: x + 1)
    old = first(X)
    mo.extend.remove("own_again")
    second = mo.extend.op("own_again", lambda x: x * 10)
    try:
        assert second(X).tolist() == [10.0, 20.0] and old.node is not second(X).node
    finally:
        mo.extend.remove("own_again")


# -- backends ----------------------------------------------------------------------------------------------------------
class Boxed:
    """A value of a backend that is no array."""

    def __init__(self, array: Any) -> None:
        self.array = array


@pytest.fixture
def boxed() -> Iterator[list[str]]:
    """A backend whose values are boxes, and the names of what it computed."""
    names: list[str] = []

    def run(node: Any, values: list[Any], sizes: Any) -> Any:
        names.append(node.op.name)
        assert all(isinstance(value, (Boxed, tuple)) for value in values)
        found = run_node(node, [tuple(part.array for part in value) if isinstance(value, tuple) else value.array
                                for value in values], sizes)
        return tuple(map(Boxed, found)) if isinstance(found, tuple) else Boxed(found)

    mo.extend.backend("boxed", run, copy_in=Boxed, copy_out=lambda value: value.array)
    yield names
    mo.extend.remove("boxed")


def test_a_backend_computes_what_the_reference_does(boxed: list[str], rng: np.random.Generator) -> None:
    x, w = (rng.normal(size=shape).astype("f") for shape in ((5, 6), (6, 3)))

    def loss(w: mo.Tensor) -> mo.Tensor:
        return mo.cross_entropy(mo.gelu(mo.asarray(x) @ w), mo.asarray([0, 1, 2, 0, 1]))

    programs = [lambda: loss(mo.asarray(w)), lambda: mo.grad(loss)(mo.asarray(w)), lambda: mo.sort(mo.asarray(x)),
                lambda: mo.asarray(x).astype("bfloat16") * 3, lambda: mo.random.normal(mo.random.key(3), (4,)),
                lambda: mo.compile(mo.grad(loss))(mo.asarray(w)),
                lambda: mo.compile(lambda x: x[1:] * x.shape[0], dynamic={"x": {0: mo.Dim("n", 2, 9)}})(mo.asarray(x))]
    for program in programs:
        with mo.settings(device="reference"):
            expected = program().numpy()
        boxed.clear()
        with mo.settings(device="boxed"):
            found = program()
            found.numpy()
        assert boxed and found.numpy().tobytes() == expected.tobytes()


def test_a_function_on_a_backend_says_so(boxed: list[str]) -> None:
    f = mo.compile(lambda x: mo.exp(x) + 1)
    with mo.settings(device="boxed"):
        f(X, out=mo.zeros(2).realise())
        assert (f.stats["isa"], f.stats["kernels"]) == ("boxed", 0) and "by the backend boxed" in f.explain()
    assert f(X).tolist() == pytest.approx([np.e + 1, np.e**2 + 1]) and f.stats["kernels"] == 1


def test_backends_that_are_wrong(boxed: list[str]) -> None:
    for name in ("boxed", "cpu", "reference", "a b"):
        with pytest.raises(ArgumentError, match=r"extend\.backend"):
            mo.extend.backend(name, lambda *given: None)
    with pytest.raises(ArgumentError, match="run of 'other' is 3"):
        mo.extend.backend("other", 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"use cpu or reference or .*boxed"), mo.settings(device="other"):
        pass
    with mo.settings(device="boxed"), pytest.raises(ArgumentError, match="is in use"):
        mo.extend.remove("boxed")
    with pytest.raises(ArgumentError, match="no name"):
        mo.extend.backend(3, lambda *given: None)  # type: ignore[arg-type]
    mo.extend.backend("flat", lambda node, values, sizes: np.zeros(7))
    with mo.settings(device="flat"), pytest.raises(ShapeError, match=r"backend 'flat' .* shape \(7,\), not \(2,\)"):
        (X + 1).numpy()
    mo.extend.remove("flat")


def test_a_backend_that_is_removed_while_another_block_names_it() -> None:
    """Nothing runs on another backend in its place, least of all a program that has no code."""
    mo.extend.backend("gone", run_node)
    f = mo.compile(lambda x: x - 1)
    with mo.settings(device="gone"):
        assert f(X).tolist() == [0, 1]
        with mo.settings(device="cpu"):
            mo.extend.remove("gone")
        (lazy,) = [X * 2]
        for call in (lambda: f(X), lazy.numpy, lambda: mo.compile(lambda x: x + 1)(X)):
            with pytest.raises(MorphoError, match=r"'gone' (was removed while|is not there)"):
                call()
    assert f(X).tolist() == [0, 1]


def test_results_of_a_backend_are_rounded_to_their_dtype() -> None:
    def run(node: Any, values: list[Any], sizes: Any) -> Any:
        return values[0] * values[1] if node.op.name == "multiply" else run_node(node, values, sizes)

    mo.extend.backend("unrounded", run)
    x, y = mo.asarray([3.3], dtype=mo.bfloat16), mo.asarray([1.7], dtype=mo.bfloat16)
    with mo.settings(device="unrounded"):
        found = (x * y).numpy()
    assert found.tolist() == (x * y).numpy().tolist()
    mo.extend.remove("unrounded")


def test_names_are_given_once_and_patterns_name_operations() -> None:
    cube = mo.extend.op("own_name", lambda x: x * x * x)
    for add in (lambda: mo.extend.backend("own_name", run_node), lambda: mo.extend.add_pass("own_name", lambda g: g),
                lambda: mo.extend.op("own_name", cube), lambda: mo.extend.add_pass("memory", lambda g: g),
                lambda: mo.extend.op("bad name", cube), lambda: mo.extend.op("add", cube)):
        with pytest.raises(ArgumentError, match=r"exists already|is no name"):
            add()
    mo.extend.remove("own_name")
    for names in (("ad",), ()):
        with pytest.raises(ArgumentError, match="no operation"):
            mo.extend.pattern(*names)
