"""A model's file that was traced before is neither parsed nor traced again; whatever is odd about what was kept is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.code.compiler import code
from morpho.onnx.run.kept import ModelFile, ProgramSource
from morpho.runtime.plans import stored_trace

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, nothing_foreign: None) -> Iterator[Path]:
    """A cache of its own."""
    with mo.settings(cache_dir=str(tmp_path / "cache")):
        yield tmp_path


def saved(folder: Path, name: str = "m.onnx", seed: int = 0) -> Path:
    """A file with two layers, whose weights are large enough to be tensors."""
    mo.nn.seed(seed)
    module = mo.nn.Sequential(mo.nn.Linear(4, 40), mo.nn.GELU(), mo.nn.Linear(40, 5)).eval()
    return Path(mo.onnx.save(module, folder / name, mo.zeros((3, 4))))


def traces(path: Path, expected: Any = None) -> int:
    """How often a freshly loaded model traced for one call, which gives what it should."""
    network = mo.onnx.load(path)
    result = network(X).numpy()
    if expected is not None:
        assert np.array_equal(result, expected)
    return int(network.stats["traces"])


def test_the_second_load_parses_and_traces_nothing(folder: Path) -> None:
    path = saved(folder)
    first = mo.onnx.load(path)
    expected = first(X).numpy()
    again = mo.onnx.load(path)
    assert (again.input_names, again.output_names) == (first.input_names, first.output_names)
    assert np.array_equal(again(X).numpy(), expected)
    assert again.stats["traces"] == 0 and again._model is None and not again.program.current.plan.graph.is_loaded
    assert again.explain().splitlines()[0] == first.explain().splitlines()[0]  # which looks inside
    assert len(again.model.graph.nodes) == len(first.model.graph.nodes)  # and this parses
    assert first.stats["traces"] == 1


def test_other_shapes_other_bytes_and_other_settings_are_other_traces(folder: Path) -> None:
    path = saved(folder)
    expected = mo.onnx.load(path)(X).numpy()
    other = mo.onnx.load(saved(folder, "other.onnx", seed=1))
    assert not np.array_equal(other(X).numpy(), expected) and other.stats["traces"] == 1
    path.write_bytes((folder / "other.onnx").read_bytes())  # another model under the old name
    changed = mo.onnx.load(path)
    assert np.array_equal(changed(X).numpy(), other(X).numpy())
    with mo.settings(level=1):
        assert traces(path) == 1
    with mo.settings(cache=False):
        assert traces(path) == 1 and traces(path) == 1


def test_dynamic_sizes_and_static_inputs_are_kept_too(folder: Path) -> None:
    rows = mo.Dim("n", 1, 64)
    path = mo.onnx.save(lambda x: mo.softmax(x @ x.T), folder / "s.onnx", mo.zeros((2, 3)), dynamic={"x": {0: rows}})
    for expected in (1, 0):
        network = mo.onnx.load(path, dynamic=True)
        results = [network(np.ones((n, 3), np.float32)) for n in (1, 5, 9)]
        assert [result.shape for result in results] == [(1, 1), (5, 5), (9, 9)]
        assert network.stats["traces"] == expected


def test_a_static_input_is_remembered(folder: Path) -> None:
    building = pytest.importorskip("onnx_building", reason="models are built with the onnx package")
    node = building.helper.make_node
    path = folder / "r.onnx"
    path.write_bytes(building.model([node("Reshape", ["x", "shape"], ["y"])],
                                    [building.value("x", [3, 4]), building.value("shape", [2], building.INT64)],
                                    [building.value("y", ["a", "b"])]))
    for expected in (2, 0):  # the first of which asks for the value
        network = mo.onnx.load(path)
        assert network(X, np.asarray([2, 6])).shape == (2, 6)
        assert network.stats["traces"] == expected and network.stats["static_inputs"] == 1
    assert network(X, np.asarray([6, 2])).shape == (6, 2) and network.stats["traces"] == 1


def entries(folder: Path) -> dict[str, Any]:
    """The JSON of everything that was kept, by key."""
    disk, found = code.disk_cache(), {}
    assert disk is not None
    for file in sorted((folder / "cache").rglob("*.morpho")):
        data = disk.get(file.stem)
        if data is not None and data.startswith(b"{"):
            found[file.stem] = json.loads(data)
    return found


def damaged(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a bug, or somebody who can write to the folder, might make of a trace or a header."""
    for name in content:
        yield {**content, name: None}
        yield {key: value for key, value in content.items() if key != name}
    if "captured" not in content:
        yield {**content, "inputs": [["x", ["tensor", "float", [3], None]]]}
        return
    yield {**content, "captured": content["captured"][1:]}
    yield {**content, "captured": [[1 << 40, *row[1:]] for row in content["captured"]]}
    yield {**content, "captured": [[-8, *row[1:]] for row in content["captured"]]}
    yield {**content, "captured": [[row[0], row[1], [1, *row[2]]] for row in content["captured"]]}
    yield {**content, "captured": [["AAAA", *row[1:]] for row in content["captured"]]}
    yield {**content, "captured": [[row[0], "no such", row[2]] for row in content["captured"]]}
    yield {**content, "parameters": [{**row, "shape": ["tuple", 1 << 20]} for row in content["parameters"]]}
    yield {**content, "parameters": [{**row, "index": 99} for row in content["parameters"]]}
    yield {**content, "parameters": [{**row, "more": 1} for row in content["parameters"]]}
    yield {**content, "order": content["order"][:-1]}
    yield {**content, "outputs": 2}
    yield {**content, "structure": ["set", ["*"]]}
    yield {**content, "results": [[["tuple", 7, 7, 7], "float32"]]}


def test_what_is_odd_is_refused_and_made_anew(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = saved(folder)
    expected = mo.onnx.load(path)(X).numpy()
    disk = code.disk_cache()
    assert disk is not None and traces(path, expected) == 0
    kept = {key: content for key, content in entries(folder).items() if "captured" in content or "static" in content}
    assert len(kept) == 2
    for key, content in kept.items():
        for wrong in damaged(content):
            disk.put(key, json.dumps(wrong).encode())
            traces(path, expected)
            changed = [name for name in content if name not in wrong or wrong[name] != content[name]]
            now = disk.get(key)
            assert now is not None and json.loads(now).keys() == content.keys(), changed  # it was written again
    assert "made again" in caplog.text


def test_a_graph_that_is_not_what_it_says_is_an_error(folder: Path) -> None:
    path = saved(folder)
    mo.onnx.load(path)(X)
    (key, content), = [pair for pair in entries(folder).items() if "captured" in pair[1]]
    content["nodes"] = content["nodes"].replace("gelu", "silu")
    disk = code.disk_cache()
    assert disk is not None and disk.put(key, json.dumps(content).encode())
    network = mo.onnx.load(path)
    network(X)
    with pytest.raises(mo.errors.MorphoError, match="not the one that it says"):
        network.program.text()


def test_external_data_and_tensors_without_a_place_are_not_kept(folder: Path) -> None:
    building = pytest.importorskip("onnx_building", reason="models are built with the onnx package")
    onnx = building.onnx
    weights = np.arange(400, dtype=np.float32).reshape(4, 100)
    data = building.model([building.helper.make_node("MatMul", ["x", "w"], ["y"])], [building.value("x", [3, 4])],
                          [building.value("y", [3, 100])], {"w": weights})
    path = folder / "e.onnx"
    onnx.save_model(onnx.load_from_string(data), path, save_as_external_data=True, location="e.bin", size_threshold=0)
    assert traces(path) == traces(path, X @ weights) == 1
    (folder / "e.bin").write_bytes((2 * weights).tobytes())
    assert traces(path, X @ (2 * weights)) == 1


def test_a_tensor_is_named_by_its_place_or_its_bytes(folder: Path) -> None:
    path = saved(folder)
    network = mo.onnx.load(path)
    network(X)
    (content,) = [found for found in entries(folder).values() if "captured" in found]
    places = [row[0] for row in content["captured"]]
    assert any(type(place) is int for place in places) and len(json.dumps(content)) < path.stat().st_size * 20
    file = ModelFile(path.read_bytes(), "m.onnx")
    source = ProgramSource(file, (), network._constants, lambda: None)
    large = mo.zeros((1 << 18) + 1).realise()
    assert source.name_of(large) is None and source.name_of(mo.zeros((4, 4)).realise().T) is None
    small = mo.asarray([1.5, 2.5])
    assert source.tensor_of(source.name_of(small.realise())).tolist() == [1.5, 2.5]


def test_an_operation_of_a_users_own_is_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stored_trace.trace_key("a", 1, []) is not None
    monkeypatch.setattr(stored_trace, "foreign", {"mine"})
    assert stored_trace.trace_key("a", 1, []) is None
