"""Real processes for tests: ranks of a script, ended with all that belongs to them when they take too long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("mpi4py", reason="ranks are MPI processes: pip install 'morpho-tensor[cluster]'")

from morpho.cli.main import app
from morpho.cluster.launch import launcher, mpiexec

HERE = Path(__file__).parent
TINY = ["--layers", "1", "--width", "16", "--heads", "2", "--vocabulary", "270", "--context", "8", "--batch", "8",
        "--steps", "3", "--warmup", "1", "--sample-every", "0", "--save-every", "2"]


def call(*words: object) -> int:
    """The status of a command."""
    return CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False).exit_code


def run_ranks(count: int, script: str | Path, *arguments: object, timeout: float = 120.0, code: int | None = 0,
              **options: object) -> str:
    """What `count` ranks of a script of this folder print; both outputs."""
    program = [sys.executable, "-m", "morpho.cluster.launch.worker", str(HERE / script), *map(str, arguments)]
    process = mpiexec.start(count, program, threads=1, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            **options)
    try:
        printed, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        launcher.end(process)  # mpiexec ends its ranks; killed, it would leave them behind
        printed, _ = process.communicate()
        raise AssertionError(f"{count} ranks of {script} were not done after {timeout} s:\n{printed}") from None
    assert code is None or process.returncode == code, printed
    return printed
