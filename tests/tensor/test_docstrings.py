"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from docs.tools import public

FOLDERS = ["tensor", "nn", "optim", "amp", "data", "weights", "models"]
MODULES = ["morpho", *(f"morpho.{folder}" for folder in FOLDERS)] + [
    found.name for folder in FOLDERS
    for found in pkgutil.walk_packages(importlib.import_module(f"morpho.{folder}").__path__, f"morpho.{folder}.")]


class Finder(doctest.DocTestFinder):
    """Finds the examples of functions with a frame around them, too."""

    def _from_module(self, module: Any, object: Any) -> Any:
        return super()._from_module(module, inspect.unwrap(object))  # type: ignore[misc]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mo` and `np` are at hand in every example. Those of public names are run by tests/docs."""
    monkeypatch.chdir(tmp_path)
    finder = Finder()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in finder.find(importlib.import_module(name), name, extraglobs={"mo": mo, "np": np}):
        if inspect.cleandoc(example.docstring or "") not in public.docstrings():
            runner.run(example)
    assert runner.failures == 0
