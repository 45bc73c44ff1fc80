"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import morpho as mo

FOLDERS = ["tensor", "nn", "optim", "amp", "data", "weights", "models"]
MODULES = ["morpho", *(f"morpho.{folder}" for folder in FOLDERS)] + [
    f"morpho.{folder}.{found.name}" for folder in FOLDERS
    for found in pkgutil.iter_modules(importlib.import_module(f"morpho.{folder}").__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    """`mo` and `np` are at hand in every example."""
    finder = doctest.DocTestFinder()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in finder.find(importlib.import_module(name), name, extraglobs={"mo": mo, "np": np}):
        runner.run(example)
    assert runner.failures == 0
