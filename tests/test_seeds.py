"""What a session of tests promises: its seed is that of all its draws, and its core tests exist."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from core_cases import CORE, core_cases


def test_other_processes_draw_from_the_sessions_seed(pytestconfig: pytest.Config) -> None:
    """pytest-xdist tells its processes what `pytest_configure_node` writes, not what was settled after it began."""
    ours = pytestconfig.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    node = types.SimpleNamespace(config=pytestconfig, workerinput={})
    ours.pytest_configure_node(node)
    option = types.SimpleNamespace(seed=None, hypothesis_seed=1)
    ours.pytest_configure(types.SimpleNamespace(option=option, workerinput=node.workerinput))
    assert option.seed == pytestconfig.option.seed


def test_core_tests_exist() -> None:
    folder = Path(__file__).parent
    for file, names in CORE.items():
        text = (folder / file).read_text(encoding="utf-8")
        assert not [name for name in names if f"def {name}(" not in text], file


def test_core_takes_one_case_of_a_test_and_one_of_an_op() -> None:
    items = [("ops/test_ops.py", "test_elementwise[add-int8]"), ("ops/test_ops.py", "test_elementwise[add-float32]"),
             ("ops/test_ops.py", "test_elementwise[gcd-int8]"), ("ops/test_ops.py", "test_casts[bool]"),
             ("amp/test_amp.py", "test_the_policy[bfloat16]"), ("amp/test_amp.py", "test_the_policy[float16]"),
             ("other.py", "test_elementwise[add-float32]")]
    assert core_cases(items) == {1, 2, 4}
