"""The seed that a session prints is that of all its draws."""

from __future__ import annotations

import types
from pathlib import Path

import pytest


def test_other_processes_draw_from_the_sessions_seed(pytestconfig: pytest.Config) -> None:
    """pytest-xdist tells its processes what `pytest_configure_node` writes, not what was settled after it began."""
    ours = pytestconfig.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    node = types.SimpleNamespace(config=pytestconfig, workerinput={})
    ours.pytest_configure_node(node)
    option = types.SimpleNamespace(seed=None, hypothesis_seed=1)
    ours.pytest_configure(types.SimpleNamespace(option=option, workerinput=node.workerinput))
    assert option.seed == pytestconfig.option.seed
