"""Models of several layers against ONNX Runtime; dynamic shapes, functions, bad input, the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_building import BOOL, FLOAT, INT64, close, helper, model, onnx, runtime, value

import morpho as mo
from morpho.base.errors import MorphoError


def image_model(rng: np.random.Generator) -> bytes:
    """Convolution, batch norm, pooling, a quantised layer, a reshape by a shape that is computed."""
    f = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    weights = {"w1": f(8, 3, 3, 3), "b1": f(8), "scale": f(8), "bias": f(8), "mean": f(8), "var": np.abs(f(8)) + 1,
               "w2": f(8, 1, 3, 3), "w3": f(8, 5), "q": np.float32(0.05), "zero": np.int8(3),
               "one": np.asarray([0]), "rest": np.asarray([-1])}
    node = helper.make_node
    nodes = [node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
             node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], ["b"]),
             node("HardSwish", ["b"], ["c"]), node("Conv", ["c", "w2"], ["d"], group=8, auto_pad="SAME_UPPER"),
             node("MaxPool", ["d"], ["e"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
             node("QuantizeLinear", ["e", "q", "zero"], ["f"]), node("DequantizeLinear", ["f", "q", "zero"], ["g"]),
             node("GlobalAveragePool", ["g"], ["h"]), node("Shape", ["h"], ["s"]), node("Gather", ["s", "one"], ["n"]),
             node("Concat", ["n", "rest"], ["t"], axis=0), node("Reshape", ["h", "t"], ["r"]),
             node("Gemm", ["r", "w3"], ["l"]), node("Softmax", ["l"], ["y"])]
    return model(nodes, [value("x", ["n", 3, "h", "w"])], [value("y", ["n", 5])], weights)


def sequence_model(rng: np.random.Generator) -> bytes:
    """An embedding, a bidirectional LSTM with lengths, attention by hand, a layer norm."""
    f = lambda *shape: (rng.standard_normal(shape) * 0.3).astype(np.float32)
    weights = {"table": f(20, 8), "w": f(2, 24, 8), "r": f(2, 24, 6), "b": f(2, 48), "scale": f(12), "bias": f(12)}
    node = helper.make_node
    nodes = [node("Gather", ["table", "ids"], ["e"]), node("Transpose", ["e"], ["t"], perm=[1, 0, 2]),
             node("LSTM", ["t", "w", "r", "b", "lengths"], ["h", "last"], hidden_size=6, direction="bidirectional"),
             node("Transpose", ["h"], ["u"], perm=[2, 0, 1, 3]), node("Flatten", ["u"], ["v"], axis=2),
             node("Shape", ["ids"], ["s"]), node("Constant", [], ["twelve"], value_ints=[12]),
             node("Concat", ["s", "twelve"], ["shape"], axis=0), node("Reshape", ["v", "shape"], ["z"]),
             node("LayerNormalization", ["z", "scale", "bias"], ["k"]),
             node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
             node("MatMul", ["k", "kt"], ["scores"]), node("Softmax", ["scores"], ["p"]),
             node("MatMul", ["p", "k"], ["y"])]
    return model(nodes, [value("ids", ["n", "t"], INT64), value("lengths", ["n"], onnx.TensorProto.INT32)],
                 [value("y", ["n", "t", 12]), value("last", [2, "n", 6])], weights)


def test_an_image_model_equals_the_runtime() -> None:
    rng = np.random.default_rng(1)
    data = image_model(rng)
    network = mo.onnx.loads(data)
    for shape in ((1, 3, 17, 12), (2, 3, 16, 16)):
        x = rng.standard_normal(shape).astype(np.float32)
        close(network(x), runtime(data, {"x": x}))
    assert network.stats["host_calls"] == 0 and network.stats["traces"] == 2
    assert "kernel" in network.explain()
    found = network(x).numpy()
    with mo.settings(threads=1):  # the same bits with any number of threads
        assert np.array_equal(mo.onnx.loads(data)(x).numpy(), found)


def test_a_sequence_model_equals_the_runtime() -> None:
    rng = np.random.default_rng(2)
    data = sequence_model(rng)
    ids, lengths = rng.integers(0, 20, (3, 7)), np.asarray([7, 4, 1], np.int32)
    network = mo.onnx.loads(data)
    close(network(ids=ids, lengths=lengths), runtime(data, {"ids": ids, "lengths": lengths}))
    assert network.stats["host_calls"] == 0


def test_named_sizes_are_symbols_of_one_program() -> None:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((4, 2)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Shape", ["a"], ["s"]),
             helper.make_node("ConstantOfShape", ["s"], ["o"]), helper.make_node("Add", ["a", "o"], ["b"]),
             helper.make_node("Relu", ["b"], ["y"])]
    data = model(nodes, [value("x", ["batch", 4])], [value("y", ["batch", 2])], {"w": w})
    network = mo.onnx.loads(data, dynamic={"batch": (1, 64)})
    for count in (1, 5, 64):
        x = rng.standard_normal((count, 4)).astype(np.float32)
        close(network(x), [np.maximum(x @ w, 0)])
    assert network.stats["traces"] == 1 and network.stats["specialised"] == 0
    with pytest.raises(MorphoError, match="dynamic= names the size 'n'"):
        mo.onnx.loads(data, dynamic={"n": (1, 2)})


def test_an_input_that_decides_shapes_is_part_of_the_program() -> None:
    """A shape that is an input: a program for each of its values, and none of them runs on the host."""
    data = model([helper.make_node("Reshape", ["x", "s"], ["y"])], [value("x", [6]), value("s", [2], INT64)],
                 [value("y", None)])
    network = mo.onnx.loads(data)
    for shape in ([2, 3], [3, 2], [2, 3]):
        assert network(np.arange(6, dtype=np.float32), np.asarray(shape)).shape == tuple(shape)
    assert network.stats["static_inputs"] == 1 and network.stats["programs"] == 2 and not network.stats["host_calls"]


def test_a_model_local_function_with_attributes() -> None:
    node = helper.make_node("LeakyRelu", ["a"], ["b"])
    reference = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    node.attribute.append(reference)
    function = helper.make_function("my", "Leaky", ["a"], ["b"], [node], [helper.make_opsetid("", 17)], ["slope"])
    data = model([helper.make_node("Leaky", ["x"], ["y"], domain="my", slope=0.5)], [value("x", [2])],
                 [value("y", [2])], opsets=[helper.make_opsetid("my", 1)], functions=[function])
    assert mo.onnx.loads(data)([-2.0, 2.0]).tolist() == [-1.0, 2.0]


def test_what_is_not_supported_is_listed_at_once() -> None:
    nodes = [helper.make_node("Frob", ["x"], ["a"], domain="my"), helper.make_node("Nicate", ["a"], ["b"], domain="my"),
             helper.make_node("Frob", ["b"], ["y"], domain="my")]
    data = model(nodes, [value("x", [2])], [value("y", [2])], opsets=[helper.make_opsetid("my", 1)])
    with pytest.raises(MorphoError, match=r"2 operators that Morpho does not have: my.Frob \(2\), my.Nicate \(1\)"):
        mo.onnx.loads(data)


BAD: list[tuple[Any, str]] = [
    (lambda f: f(), "input 'x' is missing"),
    (lambda f: f(np.ones(3, np.float64)), "has the type double, and the model takes float"),
    (lambda f: f(np.ones((3, 1), np.float32)), r"has the shape \(3, 1\), and the model takes \(3\)"),
    (lambda f: f(np.ones(3, np.float32), 1), "2 inputs are given, and the model has 1"),
    (lambda f: f(z=np.ones(3, np.float32)), "no input 'z'"),
    (lambda f: f(np.ones(3, np.float32), x=1), "given twice"),
    (lambda f: f(object()), "is no array"),
    (lambda f: f(["a", "b", "c"]), "has the type string"),
]


@pytest.mark.parametrize(("call", "told"), BAD)
def test_bad_input_is_one_sentence(call: Any, told: str) -> None:
    data = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [3])], [value("y", [3])])
    with pytest.raises(MorphoError, match=told):
        call(mo.onnx.loads(data))


def test_texts_and_sequences_run_on_the_host() -> None:
    string = onnx.TensorProto.STRING
    nodes = [helper.make_node("StringConcat", ["a", "b"], ["y"])]
    data = model(nodes, [value("a", [2], string), value("b", [2], string)], [value("y", [2], string)], opset=20)
    network = mo.onnx.loads(data)
    assert network(np.asarray(["x", "y"]), np.asarray(["1", "2"])).tolist() == ["x1", "y2"]
    assert network.stats["host_calls"] == 1
    nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
             helper.make_node("SequenceInsert", ["s", "z"], ["t"]),
             helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0)]
    data = model(nodes, [value("x", [2]), value("z", [1])], [value("y", [5])])
    network = mo.onnx.loads(data)
    assert network([1.0, 2.0], [3.0]).tolist() == [1.0, 2.0, 1.0, 2.0, 3.0] and network.stats["host_calls"] == 0


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from morpho.cli.main import app

    path = tmp_path / "m.onnx"
    path.write_bytes(model([helper.make_node("Add", ["x", "z"], ["y"])], [value("x", [2]), value("z", [2])],
                           [value("y", [2])]))
    np.save(tmp_path / "x.npy", np.float32([1, 2]))
    arguments = ["run", str(path), "--input", f"z={tmp_path}/x.npy", "--input", f"x={tmp_path}/x.npy", "--output",
                 str(tmp_path / "y.npy")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0 and "y: float32[2] [2.0, 4.0]" in done.output
    assert np.load(tmp_path / "y.npy").tolist() == [2, 4]
    missing = CliRunner().invoke(app, ["run", str(path), "--input", f"{tmp_path}/x.npy"])
    assert "the input 'z' is missing; the model takes x float(2); z float(2)" in str(missing.exception)
    for command in ("explain", "profile"):
        shown = CliRunner().invoke(app, [command, str(path)])
        assert shown.exit_code == 0 and "kernel" in shown.output, shown.exception
    assert "no file" in str(CliRunner().invoke(app, ["run", "absent.onnx"]).exception)
    (tmp_path / "z.npy").write_bytes(b"text")
    wrong = CliRunner().invoke(app, ["run", str(path), "--input", f"{tmp_path}/z.npy"])
    assert "is no .npy or .npz file of numbers" in str(wrong.exception) and "pickle" not in str(wrong.exception)
    other = CliRunner().invoke(app, ["run", str(path), "--input", f"q={tmp_path}/x.npy"])
    assert "there is no input 'q'; the model takes x float(2); z float(2)" in str(other.exception)
    for out in (["--out", str(tmp_path / "a.html"), str(path)], [str(path), "--out", str(tmp_path / "b.html")]):
        assert CliRunner().invoke(app, ["profile", *out, *arguments[2:4]]).exit_code == 0
    assert (tmp_path / "a.html").stat().st_size and (tmp_path / "b.html").stat().st_size


def test_kernels_name_the_node_they_come_from(tmp_path: Path) -> None:
    """Not the line of Python that called the model, which is the same for all of them."""
    path = tmp_path / "m.onnx"
    path.write_bytes(model([helper.make_node("Exp", ["x"], ["y"], name="/layer.0/Exp")], [value("x", [37])],
                           [value("y", [37])]))  # a shape of its own: an equal kernel has the name it had first
    network = mo.onnx.load(path)
    network(np.ones(37, np.float32))
    assert "m.onnx:layer.0.Exp" in network.explain() and "test_models.py" not in network.explain()


def test_mistakes_say_what_to_do(tmp_path: Path) -> None:
    network = mo.onnx.loads(model([helper.make_node("Exp", ["x"], ["y"])], [value("x", [2])], [value("y", [2])]))
    with pytest.raises(mo.errors.MorphoError, match=r"Hint: convert it: x.astype\('float32'\)"):
        network(np.ones(2))
    with pytest.raises(mo.errors.MorphoError, match="run takes one dictionary of inputs by name, not ndarray"):
        network.run(np.ones(2, np.float32))
    with pytest.raises(mo.errors.MorphoError, match="one dictionary of inputs by name, not 2 arguments"):
        network.run(None, {"x": np.ones(2, np.float32)})
    (tmp_path / "notes.onnx").write_text("hello there")
    with pytest.raises(mo.errors.MorphoError, match=r"notes\.onnx: field 13 of Model"):
        mo.onnx.load(tmp_path / "notes.onnx")


def test_weights_may_be_named_among_the_inputs() -> None:
    """As files before version 4 have it."""
    data = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [2]), value("w", [2])], [value("y", [2])],
                 {"w": np.float32([1, 2])})
    network = mo.onnx.loads(data)
    assert network.input_names == ("x",) and network([1.0, 1.0]).tolist() == [2.0, 3.0]


def test_bools_stay_bools() -> None:
    data = model([helper.make_node("Greater", ["x", "z"], ["y"])], [value("x", [2]), value("z", [2])],
                 [value("y", [2], BOOL)])
    assert mo.onnx.loads(data)([1.0, 3.0], [2.0, 2.0]).dtype == mo.bool and FLOAT == 1


def test_weights_are_packed_once_wherever_they_lie_in_the_file() -> None:
    """Constants that happen to be aligned in the file's bytes were borrowed from there, and packed at every call."""
    rng = np.random.default_rng(3)
    w, b, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 96), (96,), (8, 32)))
    for length in range(1, 5):  # of a name, which moves what lies behind it
        name = "w" * length
        data = model([helper.make_node("MatMul", ["x", name], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])],
                     [value("x", [8, 32])], [value("y", [8, 96])], {name: w, "b": b})
        network = mo.onnx.loads(data)
        close(network(x), [x @ w + b])
        plan = network.program.current.plan
        assert len(plan.constants) == 2 and len(plan.program.kept) == 1
        assert "packed at every call" not in network.explain()
