"""Operators whose form changed: the same network as files of different opsets have it, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_building import close, helper, model, runtime, value

import morpho as mo

NEWEST = 24  # of those that the least ONNX Runtime of the tests computes whole


def network(opset: int) -> bytes:
    """Attributes became inputs, and axes of Softmax another default, with the opset that stands beside each."""
    weights: dict[str, Any] = {}
    nodes = []

    def add(name: str, inputs: list[str], *outputs: str, since: int = 0, stays: Any = None, **values: Any) -> None:
        """A node whose values are attributes before an opset, and inputs in the order given from then on."""
        given = values if opset >= since else {}
        for key, held in given.items():
            weights[f"{outputs[0]}.{key}"] = np.asarray(held, None if isinstance(held, int | list) else np.float32)
        nodes.append(helper.make_node(name, [*inputs, *(f"{outputs[0]}.{key}" for key in given)], outputs,
                                      **(stays or {}), **({} if given else values)))

    add("Softmax", ["x"], "softmax")  # over all axes from the second on before 13, the last one since
    add("Clip", ["x"], "clip", since=11, min=-0.5, max=0.5)
    add("Slice", ["x"], "slice", since=10, starts=[1, -3], ends=[9, -1], axes=[1, 2])
    add("ReduceSum", ["x"], "sum", since=13, axes=[1])
    add("ReduceMean", ["x"], "mean", since=18, axes=[0, 2])
    add("Squeeze", ["sum"], "squeeze", since=13, axes=[1])
    add("Unsqueeze", ["squeeze"], "unsqueeze", since=13, axes=[0, 3])
    add("Pad", ["x"], "pad", since=11, pads=[0, 1, 0, 0, 0, 2], value=3.0)
    add("TopK", ["x"], "largest", "places", since=10, k=[2] if opset >= 10 else 2)
    add("Split", ["x"], "left", "right", since=13, stays={"axis": 2}, split=[1, 3])
    scales = np.float32([1, 1, 2, 3])
    if opset < 9:
        nodes.append(helper.make_node("Upsample", ["unsqueeze"], ["resize"], scales=scales.tolist()))
    else:
        weights |= {"scales": scales, **({"roi": np.zeros(0, np.float32)} if opset >= 11 else {})}
        name, inputs = "Upsample" if opset < 10 else "Resize", ["roi"] if opset >= 11 else []
        more = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if opset >= 11 else {}
        nodes.append(helper.make_node(name, ["unsqueeze", *inputs, "scales"], ["resize"], **more))
    outputs = [name for node in nodes for name in node.output]
    return model(nodes, [value("x", [2, 3, 4])], [value(name, None, 7 if name == "places" else 1) for name in outputs],
                 weights, opset=opset)


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 13, 18, NEWEST])
def test_a_network_in_the_forms_of_its_opset(opset: int) -> None:
    x = np.random.default_rng(opset).standard_normal((2, 3, 4)).astype(np.float32)
    data = network(opset)
    loaded = mo.onnx.loads(data)
    close(loaded(x), runtime(data, {"x": x}), 1e-6)
    assert loaded.stats["host_calls"] == 0
