"""Plug-ins that are wrong: an error that names the operation, pattern or pass, not one of what runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, CompileError, ShapeError

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


@pytest.mark.parametrize(("result", "text"), [
    (lambda node: 3, "returned int, not a node"), (lambda node: X, "returned Tensor, not a node"),
    (lambda node: mo.ones(3).node, r"put float32\(3,\) in place of float32\(2,\)")])
def test_a_pattern_that_returns_no_such_node(result: Any, text: str) -> None:
    def own_pattern(node: Any) -> Any:
        return result(node)

    mo.extend.pattern("tan")(own_pattern)
    try:
        with pytest.raises(CompileError, match=rf"^\[own_pattern\] the pattern {text}.*test_extend.py"):
            mo.tan(X).numpy()
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
