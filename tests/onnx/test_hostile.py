"""Files that lie: every one of them is an error of one sentence, and nothing large is allocated for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_building import INT64, helper, model, numpy_helper, onnx, value

import morpho as mo
from benchmarks.onnx_files.fuzz import fuzzed
from morpho.base.errors import MorphoError
from morpho.onnx.export.message import encode, varint

node = helper.make_node


def refused(data: bytes, told: str, *inputs: Any) -> None:
    with pytest.raises(MorphoError, match=told):
        mo.onnx.loads(data)(*inputs)


def external(path: Path, entries: dict[str, str], count: int = 4) -> Path:
    """A model whose weight says that it lies elsewhere."""
    weight = onnx.TensorProto(name="w", dims=[count], data_type=1, data_location=onnx.TensorProto.EXTERNAL)
    for key, text in entries.items():
        weight.external_data.append(onnx.StringStringEntryProto(key=key, value=text))
    graph = helper.make_graph([node("Add", ["x", "w"], ["y"])], "g", [value("x", [count])], [value("y", [count])],
                              [weight])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    np.arange(8, dtype=np.float32).tofile(tmp_path / "w.bin")
    path = external(tmp_path / "m.onnx", {"location": "w.bin", "offset": "16", "length": "16"})
    assert mo.onnx.load(path)(np.zeros(4, np.float32)).tolist() == [4, 5, 6, 7]


ESCAPES = [
    ({"location": "../secret.bin"}, "outside the model's folder"),
    ({"location": "/etc/passwd"}, "not a path inside"),
    ({"location": "link.bin"}, "outside the model's folder"),
    ({"location": "sub/../../secret.bin"}, "outside the model's folder"),
    ({"location": "absent.bin"}, "not a file in the model's folder"),
    ({"location": "."}, "outside the model's folder"),
    ({"location": ""}, "not a path inside"),
    ({"location": "w.bin", "offset": "999999"}, "is not in 'w.bin'"),
    ({"location": "w.bin", "length": "99999999999"}, "and the tensor needs 16"),
    ({"location": "w.bin", "offset": "-4"}, "which is not a number"),
    ({"location": "w.bin", "surprise": "1"}, "key 'surprise', which is not known"),
]


@pytest.mark.parametrize(("entries", "told"), ESCAPES)
def test_external_data_cannot_leave_the_folder(entries: dict[str, str], told: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (folder / "w.bin").write_bytes(bytes(32))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(MorphoError, match=told):
        mo.onnx.load(external(folder / "m.onnx", entries))


def test_external_data_of_bytes_is_refused(tmp_path: Path) -> None:
    data = external(tmp_path / "m.onnx", {"location": "w.bin"}).read_bytes()
    refused(data, "came without a folder")


def test_sizes_are_checked_before_allocating() -> None:
    for dims, told in (([1 << 40], "more than"), ([-1], "negative size"), ([1 << 20], "4194304 bytes, and has 4")):
        weight = {"dims": dims, "data_type": 1, "name": "w", "raw_data": b"1234"}
        refused(encode("Model", {"ir_version": 9, "graph": {"name": "g", "initializer": [weight]}}), told)


BOMBS = [
    (node("ConstantOfShape", ["s"], ["y"]), np.asarray([1 << 20, 1 << 20])),
    (node("Expand", ["x", "s"], ["y"]), np.asarray([1 << 20, 1 << 20])),
    (node("Tile", ["x", "s"], ["y"]), np.asarray([1 << 40])),
    (node("Pad", ["x", "s"], ["y"]), np.asarray([1 << 40, 1 << 40])),
]


@pytest.mark.parametrize(("bomb", "sizes"), BOMBS, ids=lambda item: getattr(item, "op_type", ""))
def test_a_small_file_cannot_ask_for_much(bomb: Any, sizes: Any) -> None:
    refused(model([bomb], [value("x", [1])], [value("y", None)], {"s": sizes}), "more than", np.zeros(1, np.float32))


def test_ranges_are_bounded() -> None:
    data = model([node("Range", ["a", "b", "c"], ["y"])], [], [value("y", None, INT64)],
                 {"a": np.asarray(0), "b": np.asarray(1 << 60), "c": np.asarray(1)})
    refused(data, "more than")


def test_cycles_names_and_nesting() -> None:
    cycle = [node("Add", ["b", "x"], ["a"]), node("Relu", ["a"], ["b"])]
    refused(model(cycle, [value("x", [1])], [value("b", [1])]), "has a cycle")
    refused(model([node("Relu", ["x"], ["y"])] * 2, [value("x", [1])], [value("y", [1])]), "computed by two nodes")
    refused(model([node("Relu", ["x"], ["y"])], [value("x", [1])], [value("z", [1])]), "computed by no node")
    graph = {"name": "g"}
    for _ in range(40):
        graph = {"name": "g", "node": [{"op_type": "If", "attribute": [{"name": "a", "g": graph, "type": 5}]}]}
    refused(encode("Model", {"ir_version": 9, "graph": graph}), "nest deeper")


def test_a_function_that_calls_itself_ends() -> None:
    function = helper.make_function("my", "F", ["a"], ["b"], [node("F", ["a"], ["b"], domain="my")],
                                    [helper.make_opsetid("my", 1)])
    data = model([node("F", ["x"], ["y"], domain="my")], [value("x", [1])], [value("y", [1])],
                 opsets=[helper.make_opsetid("my", 1)], functions=[function])
    refused(data, "calls itself", np.zeros(1, np.float32))


OTHER = [(b"", "no graph"), (b"\x00", "not known"), (b"hello world", "damaged|cut off|no ONNX"),
         (b"\xff" * 40, "longer than"), (varint(7 << 3 | 2) + varint(1 << 60), "cut off"),
         (bytes([8 | 3]), "wire type 3")]


@pytest.mark.parametrize(("data", "told"), OTHER)
def test_other_files(data: bytes, told: str) -> None:
    refused(data, told)


def test_unknown_types_and_opsets() -> None:
    refused(model([node("Relu", ["x"], ["y"])], [value("x", [1])], [value("y", [1])], opset=99), "opset 99")
    weight = numpy_helper.from_array(np.zeros(2, np.float32), "w")
    weight.data_type = 77
    graph = helper.make_graph([], "g", [], [], [weight])
    refused(helper.make_model(graph).SerializeToString(), "element type 77")


def test_damaged_files_are_one_sentence_each() -> None:
    """Bytes changed, cut and repeated, with a fixed seed: what loads may run, and all else is an error of Morpho's."""
    counts = fuzzed(seed=7, rounds=150)
    assert counts["refused"] > 50 and counts["ran"] > 0 and not counts["faults"], counts
