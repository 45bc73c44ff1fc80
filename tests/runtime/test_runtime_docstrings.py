"""The examples in the runtime's docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import morpho.runtime

TIMED = {"measure"}  # its example takes the time of the machine
MODULES = {found.name for found in pkgutil.iter_modules(morpho.runtime.__path__)} - TIMED


@pytest.mark.parametrize("name", sorted(MODULES))
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"morpho.runtime.{name}")).failed == 0
