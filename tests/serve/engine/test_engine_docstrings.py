"""The examples in the engine's docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import morpho as mo
from morpho.serve import engine

MODULES = [found.name for found in pkgutil.walk_packages(engine.__path__, "morpho.serve.engine.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    """`mo` and `np` are at hand in every example."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in doctest.DocTestFinder().find(importlib.import_module(name), name, extraglobs={"mo": mo, "np": np}):
        runner.run(example)
    assert runner.failures == 0
