"""The recipes of CONTRIBUTING.md, carried out: each adds one thing in the places that the recipe names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.onnx.operators import table as onnx_table
from morpho.onnx.operators.registry import Family

ROOT = Path(__file__).resolve().parents[1]


def test_paths_of_the_recipes_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:src|tests|benchmarks|docs|\.ci|\.github)/[\w./-]*)`", text))
    assert len(paths) > 25
    assert not [path for path in paths if not (ROOT / path).exists()]


@pytest.fixture
def twice() -> Iterator[None]:
    """The operator `Twice` of opset 7 and later, in the table of ONNX operators."""
    family = Family("recipe")
    family.op("Twice", since=7)(lambda call, x: x + x)
    onnx_table.TABLE.update(family.entries)
    onnx_table.FAMILY_OF["", "Twice"] = family.name
    yield
    del onnx_table.TABLE["", "Twice"], onnx_table.FAMILY_OF["", "Twice"]


def test_an_onnx_operator(twice: None) -> None:
    onnx = pytest.importorskip("onnx", reason="the model is built with the onnx package")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([onnx.helper.make_node("Twice", ["x"], ["y"])], "recipe",
                                   [value("x", 1, [3])], [value("y", 1, [3])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    result = mo.onnx.loads(model.SerializeToString())(x=np.array([1, 2, 3], np.float32))
    assert ("ai.onnx", "Twice", "recipe") in mo.onnx.operators()
    assert np.asarray(result[0] if isinstance(result, tuple | list) else result).tolist() == [2, 4, 6]


def test_an_aten_operation() -> None:
    pytest.importorskip("torch", reason="the table of ATen operations belongs to the extra torch")
    from morpho.torch.aten.table import TABLE, op

    op("recipe_twice.default")(lambda x: x + x)
    try:
        assert TABLE["aten.recipe_twice.default"].run(mo.asarray([1.0, 2.0])).tolist() == [2.0, 4.0]
    finally:
        del TABLE["aten.recipe_twice.default"]
