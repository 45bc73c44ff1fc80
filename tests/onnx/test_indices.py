"""Indices of ONNX operators: those outside an axis are errors that name the index, never another element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from tests.onnx.onnx_building import FLOAT, INT64, close, helper, model, runtime, value

X = np.arange(20, dtype=np.float32).reshape(4, 5)
# Operator, attributes, whether it writes, the shape of its indices, and where an index stands among them.
FORMS: list[tuple[str, dict[str, Any], bool, tuple[int, ...], tuple[int, ...], int]] = [
    ("Gather", {"axis": 0}, False, (3,), (1,), 4), ("Gather", {"axis": 1}, False, (2, 2), (1, 0), 5),
    ("GatherElements", {"axis": 1}, False, (4, 2), (2, 1), 5), ("GatherND", {}, False, (2, 2), (1, 1), 5),
    ("GatherND", {}, False, (3, 1), (2, 0), 4), ("GatherND", {"batch_dims": 1}, False, (4, 1), (3, 0), 5),
    ("ScatterElements", {"axis": 0}, True, (2, 5), (1, 2), 4),
    ("ScatterElements", {"axis": 1}, True, (2, 3), (0, 1), 5),
    ("ScatterElements", {"axis": 1, "reduction": "add"}, True, (4, 2), (0, 1), 5),
    ("ScatterND", {}, True, (2, 2), (0, 0), 4), ("ScatterND", {}, True, (2, 1), (1, 0), 4),
    ("ScatterND", {"reduction": "add"}, True, (3, 2), (1, 1), 5)]


def built(form: Any, indices: np.ndarray, constant: bool) -> tuple[bytes, dict[str, np.ndarray]]:
    name, attributes, writes, *_ = form
    feed = {"x": X, "i": indices}
    shape = indices.shape
    if writes:
        depth = shape[-1]
        feed["u"] = -np.ones((*shape[:-1], *X.shape[depth:]) if name == "ScatterND" else shape, np.float32)
    node = helper.make_node(name, ["x", "i", *(["u"] if writes else [])], ["y"], **attributes)
    kinds = {"x": FLOAT, "i": INT64, "u": FLOAT}
    inputs = [value(each, array.shape, kinds[each]) for each, array in feed.items() if each != "i" or not constant]
    data = model([node], inputs, [value("y", None)], {"i": indices} if constant else None, opset=16)
    if constant:
        del feed["i"]
    return data, feed


@pytest.mark.parametrize("constant", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[0]}{form[3]}")
def test_indices_are_wrapped_once(form: Any, constant: bool, rng: np.random.Generator) -> None:
    shape, place, size = form[3:]
    indices = np.zeros(shape, np.int64)
    indices[place] = -size
    data, feed = built(form, indices, constant)
    close(mo.onnx.loads(data).run(feed)["y"], [*runtime(data, feed)])
    for outside in (size, -size - 1, -2 * size):
        indices[place] = outside
        data, feed = built(form, indices, constant)
        with pytest.raises((IndexError, ValueError), match=rf"index {outside} "):
            mo.asarray(mo.onnx.loads(data).run(feed)["y"]).numpy()


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_resize_with_aligned_corners_and_a_fractional_scale(mode: str, rng: np.random.Generator) -> None:
    x = rng.normal(size=(1, 1, 5, 6)).astype(np.float32)
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode, coordinate_transformation_mode="align_corners")
    data = model([node], [value("x", x.shape)], [value("y", None)],
                 {"s": np.array([1, 1, 1.7, 0.6], np.float32)}, opset=13)
    close(mo.onnx.loads(data).run({"x": x})["y"], runtime(data, {"x": x}), 1e-5)
