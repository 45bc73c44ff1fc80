"""Every file of `examples/` runs by itself, with only the core dependencies, and ends well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LIMIT_S = 120
# Those that would train for minutes take their number of steps as an argument.
REDUCED = {"38_grpo.py": ["5"], "16_train_a_gpt.py": ["20"], "17_fine_tune.py": ["5"]}


def test_there_are_examples() -> None:
    """An empty folder would let the test below pass without running anything."""
    assert EXAMPLES, "examples/ holds no Python file"
    assert set(REDUCED) <= {path.name for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    """The example exits with 0 in a process and a folder of its own, and leaves nothing there."""
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    command = [sys.executable, str(path), *REDUCED.get(path.name, [])]
    result = subprocess.run(command, cwd=tmp_path, env=environment, timeout=LIMIT_S, capture_output=True, text=True,
                            check=False)
    assert result.returncode == 0, f"{path.name} exited with {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert not list(tmp_path.iterdir()), f"{path.name} leaves files in the current folder"
