"""The examples in the planner's docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

from docs.tools import public
from morpho import plan
from morpho.plan.solve import registry

MODULES = ["morpho.plan", "morpho.cost.layers"]
MODULES += [found.name for found in pkgutil.walk_packages(plan.__path__, "morpho.plan.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything an example needs is in it or in its module. Those of public names are run by tests/docs."""
    monkeypatch.chdir(tmp_path)
    known = set(plan.strategies())
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in doctest.DocTestFinder().find(importlib.import_module(name), name):
        if inspect.cleandoc(example.docstring or "") not in public.docstrings():
            runner.run(example)
    for added in set(plan.strategies()) - known:
        registry.STRATEGIES.pop(added)
    assert runner.failures == 0
