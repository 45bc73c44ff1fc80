"""Files that lie: every one of them is an error of one sentence, and nothing large is allocated for it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_building import BOOL, INT64, helper, model, numpy_helper, onnx, value

import morpho as mo
from benchmarks.onnx_files.fuzz import fuzzed
from morpho.base.errors import MorphoError
from morpho.onnx.export.message import encode, varint
from morpho.onnx.operators.attributes import ATTRIBUTES
from morpho.onnx.operators.table import TABLE

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


def relu(**attributes: Any) -> Any:
    return node("Relu", ["x"], ["y"], **attributes)


X, Y = [value("x", [2, 3])], [value("y", None)]
BLANK = np.zeros((2, 3), np.float32)
TWICE = [
    ([node("Split", ["x"], ["y", "y"], axis=1)], {}, "computed by two nodes, or twice by one"),
    ([node("Neg", ["x"], ["x"]), relu()], {}, "'x' is computed by node 'Neg', and is an input or a weight"),
    ([node("Neg", ["x"], ["w"]), node("Add", ["x", "w"], ["y"])], {"w": BLANK}, "'w' is computed by node 'Neg'"),
]


@pytest.mark.parametrize(("nodes", "weights", "told"), TWICE)
def test_a_name_stands_for_one_value(nodes: Any, weights: Any, told: str) -> None:
    refused(model(nodes, X, Y, weights), told)


def test_what_a_file_says_twice_is_refused() -> None:
    weight = {"dims": [1], "data_type": 1, "name": "w", "raw_data": bytes(4)}

    def told(words: str, node: Any = (), opsets: Any = (), **graph: Any) -> None:
        data = {"ir_version": 9, "graph": {"name": "g", "node": [*node], **graph}, "opset_import": [*opsets]}
        refused(encode("Model", data), words)

    told("two weights of graph 'g' have the same name, 'w'", initializer=[weight, weight])
    told("has its numbers twice: in raw_data and in float_data", initializer=[{**weight, "float_data": [1.0]}])
    told("more than 2147483648 elements", initializer=[{**weight, "dims": [0, 1 << 40, 1 << 40], "raw_data": b""}])
    alpha = {"name": "alpha", "f": 0.5, "type": 1}
    told("'LeakyRelu' has the attribute 'alpha' twice", [{"op_type": "LeakyRelu", "attribute": [alpha, alpha]}])
    told("two opsets of ai.onnx are named: 17 and 7", opsets=[{"version": 17}, {"domain": "ai.onnx", "version": 7}])


MISREAD = [
    (relu(slope=0.1), "Relu has no attribute 'slope'"),
    (node("Relu", ["x", "x"], ["y"]), "Relu takes 1 input, and the node has 2"),
    (node("Add", ["x"], ["y"]), "Add takes 2 inputs, and the node has 1"),
    (node("Clip", ["x"] * 4, ["y"]), "Clip takes 1 to 3 inputs, and the node has 4"),
    (node("BatchNormalization", ["x"] * 5, ["y"], spatial=0), "spatial is 0, and only 1 is computed"),
    (node("RotaryEmbedding", ["x"] * 4, ["y"], domain="com.microsoft", scale=2.0), "only 1.0 is computed"),
    (node("GroupQueryAttention", ["x"] * 12, ["y"], domain="com.microsoft", num_heads=1, kv_num_heads=1),
     "takes 7 to 11 inputs, and the node has 12"),
]


@pytest.mark.parametrize(("wrong", "told"), MISREAD)
def test_what_a_node_says_and_nobody_computes_is_refused(wrong: Any, told: str) -> None:
    """ONNX Runtime refuses unknown attributes too; what would change the result is never left out in silence."""
    refused(model([wrong], X, Y, opsets=[helper.make_opsetid("com.microsoft", 1)]), told)


def test_all_that_is_wrong_with_nodes_is_listed_at_once() -> None:
    data = model([relu(slope=0.1), node("Neg", ["y"], ["z"], place=1)], X, [value("z", None)])
    refused(data, "no attribute 'slope'; Neg has no attribute 'place'")


def test_attributes_are_those_of_the_specifications() -> None:
    """Every attribute of an operator's specification is taken, or known to be refused."""
    specified: dict[tuple[str, str], set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        key = "" if schema.domain == "ai.onnx" else schema.domain, schema.name
        specified.setdefault(key, set()).update(schema.attributes)
    known = {key: specified[key] - {"consumed_inputs"} for key in TABLE if key in specified}
    refused_ones = {("", "Upsample"): {"height_scale", "width_scale"}}
    assert {key: names - ATTRIBUTES.get(key, set()) for key, names in known.items()
            if names - ATTRIBUTES.get(key, set())} == refused_ones
    assert not {key: names for key, names in ATTRIBUTES.items() if names - known.get(key, names)}
    assert set(ATTRIBUTES) <= set(TABLE)


def unread(operator: Any) -> set[str]:
    """The inputs of an operator's function that its text does not mention."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(operator)))
    read = {name.id for name in ast.walk(tree) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)}
    return {*[*inspect.signature(operator).parameters][1:]} - read


def test_every_input_of_every_operator_is_looked_at() -> None:
    """An input that is taken is used, or refused with a reason: none is left out in silence."""
    assert not {key: names for key, rows in TABLE.items() for _, operator in rows if (names := unread(operator))}

    def careless(call: Any, x: Any, mask: Any = None) -> Any:
        return x

    assert unread(careless) == {"mask"}


def test_loops_without_end_and_tensors_without_bound() -> None:
    body = helper.make_graph([node("Identity", ["c"], ["d"]), node("Identity", ["v"], ["w"])], "b",
                             [value("i", [], INT64), value("c", [], BOOL), value("v", [2, 3])],
                             [value("d", [], BOOL), value("w", [2, 3])])
    more = {"m": np.asarray(1 << 40)}
    endless = model([node("Loop", ["m", "", "x"], ["y"], body=body)], X, Y, more)
    refused(endless, "given up, and this one has 1099511627776", BLANK)
    refused(model([node("Loop", ["", "", "x"], ["y"], body=body)], X, Y), "and this one never ends", BLANK)
    hot = {"i": np.asarray([1]), "d": np.asarray(1 << 40), "v": np.zeros(2, np.float32)}
    refused(model([node("OneHot", ["i", "d", "v"], ["y"])], [], Y, hot), "more than 2147483648")
    wide = node("Conv", ["x", "k"], ["y"], pads=[1 << 40, 1 << 40])
    image = np.zeros((1, 1, 8), np.float32)
    refused(model([wide], [value("x", [1, 1, 8])], Y, {"k": image}), "more than 2147483648", image)


def test_an_output_of_another_type_than_declared_is_refused() -> None:
    data = model([relu()], X, [value("y", [2, 3], INT64)])
    refused(data, "the output 'y' is declared as int64, and is float", BLANK)


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
