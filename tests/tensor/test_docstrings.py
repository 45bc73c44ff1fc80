"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import morpho as mo
import morpho.nn
import morpho.tensor

MODULES = ["morpho"] + [f"{package.__name__}.{found.name}" for package in (morpho.tensor, morpho.nn)
                        for found in pkgutil.iter_modules(package.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    """`mo` and `np` are at hand in every example."""
    finder = doctest.DocTestFinder()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in finder.find(importlib.import_module(name), name, extraglobs={"mo": mo, "np": np}):
        runner.run(example)
    assert runner.failures == 0
