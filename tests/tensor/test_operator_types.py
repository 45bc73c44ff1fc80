"""What type checkers are told of `Tensor` is what it has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import morpho as mo
from benchmarks import spelled_stubs
from morpho.spelling import methods
from morpho.tensor import core

STUB = Path(core.__file__).with_name("operator_types.pyi")
GIVEN = {"__getattr__", "__array_priority__", "__dir__"}  # of no use to a type checker


def declared() -> set[str]:
    (found,) = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef)]
    named = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
    return named | {node.target.id for node in found.body
                    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}


def test_the_names_are_those_that_operators_gives() -> None:
    tree = ast.parse(Path(core.__file__).read_text())
    (written,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Tensor"]
    own = {node.name for node in written.body if isinstance(node, ast.FunctionDef)}
    own |= {node.targets[0].id for node in written.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    slots = {name for name in mo.Tensor.__slots__ if name != "__weakref__"}
    plain = vars(type("", (), {}))
    installed = {name for name in vars(mo.Tensor) if name not in own | slots | GIVEN and name not in plain}
    installed -= {"__slots__", "__init__", "__hash__", "__annotations__"}
    installed -= {*methods.names()}  # put on the class when they are first asked for
    assert declared() >= installed, installed - declared()
    assert not [name for name in declared() if not hasattr(mo.Tensor, name)]


def test_the_stub_of_foreign_methods_is_the_table() -> None:
    assert spelled_stubs.STUB.read_text(encoding="utf-8") == spelled_stubs.text(), "python -m benchmarks.spelled_stubs"
    assert "def masked_fill(" in spelled_stubs.text() and (Path(mo.__file__).parent / "py.typed").exists()


def test_an_editor_completes_methods_of_numpy_and_pytorch() -> None:
    jedi = pytest.importorskip("jedi")
    line = "import morpho as mo\nmo.Tensor.masked_f"
    assert "masked_fill" in {found.name for found in jedi.Script(line).complete(2, len("mo.Tensor.masked_f"))}
