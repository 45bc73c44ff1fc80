"""If, Loop and Scan: in the graph where shapes stay, on the host (counted) where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_building import BOOL, INT64, close, helper, model, runtime, value

import morpho as mo
from morpho.base.errors import MorphoError
from morpho.onnx.operators import control

node = helper.make_node


def branch(name: str, *nodes: Any, shape: Any = (2,)) -> Any:
    return helper.make_graph([*nodes], name, [], [value(nodes[-1].output[0], shape)])


def test_if_on_data_is_a_branch_of_the_program() -> None:
    data = model([node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["c"]),
                  node("If", ["c"], ["y"], then_branch=branch("a", node("Neg", ["x"], ["p"])),
                       else_branch=branch("b", node("Mul", ["x", "x"], ["q"])))],
                 [value("x", [2])], [value("y", [2])], {"zero": np.float32(0)})
    network = mo.onnx.loads(data)
    for x in ([1.0, 2.0], [-1.0, -2.0]):
        close(network(x), runtime(data, {"x": np.float32(x)}))
    assert network.stats["traces"] == 1 and network.stats["host_calls"] == 0


def test_if_with_other_shapes_asks_for_the_value() -> None:
    data = model([node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["c"]),
                  node("If", ["c"], ["y"], then_branch=branch("a", node("Neg", ["x"], ["p"])),
                       else_branch=branch("b", node("Concat", ["x", "x"], ["q"], axis=0), shape=(4,)))],
                 [value("x", [2])], [value("y", None)], {"zero": np.float32(0)})
    network = mo.onnx.loads(data)
    assert network([1.0, 2.0]).shape == (2,) and network([-1.0, -2.0]).shape == (4,)
    assert network.stats["host_calls"] == 2 and network.stats["host_values"] >= 2
    assert "not compiled" in network.explain()


def loop_model(grows: bool, ends: bool) -> bytes:
    """v doubles at every turn and is collected; it may grow, and the loop may end itself."""
    step = node("Concat", ["v", "v"], ["w"], axis=0) if grows else node("Add", ["v", "v"], ["w"])
    last = [node("ReduceSum", ["w"], ["t"], keepdims=0), node("Less", ["t", "limit"], ["on"])] if ends else [
        node("Identity", ["c"], ["on"])]
    rows = [] if ends or grows else [node("Mul", ["w", "w"], ["row"])]
    body = helper.make_graph([step, *last, *rows], "body",
                             [value("i", [], INT64), value("c", [], BOOL), value("v", None)],
                             [value("on", [], BOOL), value("w", None), *([value("row", [2])] if rows else [])])
    outputs = ["y", "rows"] if rows else ["y"]
    return model([node("Loop", ["n", "go", "x"], outputs, body=body)],
                 [value("x", [2]), value("n", [], INT64)], [value(name, None) for name in outputs],
                 {"go": np.asarray(True), "limit": np.float32(40)})


@pytest.mark.parametrize(("grows", "ends"), [(False, False), (False, True), (True, False)])
def test_loops_equal_the_runtime(grows: bool, ends: bool) -> None:
    data = loop_model(grows, ends)
    network = mo.onnx.loads(data)
    x, count = np.float32([1, 2]), np.asarray(6)
    close(network(x, count), runtime(data, {"x": x, "n": count}))
    assert bool(network.stats["host_loops"]) == grows


def test_scan_equals_the_runtime() -> None:
    body = helper.make_graph([node("Add", ["s", "x"], ["t"]), node("Mul", ["t", "x"], ["z"])], "body",
                             [value("s", [2]), value("x", [2])], [value("t", [2]), value("z", [2])])
    data = model([node("Scan", ["a", "b"], ["last", "rows"], body=body, num_scan_inputs=1, scan_input_directions=[1],
                       scan_output_axes=[1])], [value("a", [2]), value("b", [3, 2])],
                 [value("last", [2]), value("rows", [2, 3])])
    network = mo.onnx.loads(data)
    a, b = np.float32([1, 2]), np.arange(6, dtype=np.float32).reshape(3, 2)
    close(network(a, b), runtime(data, {"a": a, "b": b}))
    assert network.stats["host_calls"] == 0
    network.measure({"a": a, "b": b}, repeats=1)
    assert "measured" in network.explain()  # also where a step takes no time


def test_an_endless_loop_on_the_host_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from morpho.onnx.operators import control

    monkeypatch.setattr(control, "MOST_TURNS", 3)
    network = mo.onnx.loads(loop_model(True, False))
    with pytest.raises(MorphoError, match="has not ended after 3 turns"):
        network(np.float32([1, 2]), np.asarray(1 << 40))


@pytest.mark.parametrize("counted", [False, True])
def test_a_loop_whose_end_depends_on_data_has_to_end(counted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one compiled loop, and given up after so many turns; one that ends on the last of them is not."""
    monkeypatch.setattr(control, "MOST_TURNS", 100)
    body = helper.make_graph([node("Add", ["v", "x"], ["w"]), node("Less", ["w", "limit"], ["on"])], "body",
                             [value("i", [], INT64), value("c", [], BOOL), value("v", [])],
                             [value("on", [], BOOL), value("w", [])])
    data = model([node("Loop", ["n" if counted else "", "", "zero"], ["y"], body=body)],
                 [value("x", []), value("limit", []), *([value("n", [], INT64)] if counted else [])],
                 [value("y", [])], {"zero": np.float32(0)})
    network = mo.onnx.loads(data)
    more = [np.asarray(1 << 40)] if counted else []
    for limit in (30, 99.5):
        close(network(np.float32(1), np.float32(limit), *more), [np.ceil(np.float32(limit))])
    with pytest.raises(IndexError, match=r"\[Loop\] .*turn.* out of range for a loop .* its condition still holds"):
        network(np.float32(0), np.float32(1), *more)
    assert not network.stats["host_loops"]
    if counted:  # a count within the bound is the file's own end
        close(network(np.float32(0), np.float32(1), np.asarray(100)), [np.float32(0)])
