"""Ranks for benchmarks: a script under mpiexec, one thread each, whose ranks print lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from morpho.cluster.launch import launcher, mpiexec

CHECKOUT = Path(__file__).resolve().parents[2]
LIMIT_S = 900.0


def run_ranks(count: int, script: str, *arguments: object) -> list[dict[str, Any]]:
    """What the ranks report, in their order; those that were killed report nothing."""
    words = [sys.executable, "-m", launcher.WORKER, "-m", f"benchmarks.cluster.{script}", *map(str, arguments)]
    process = mpiexec.start(count, words, threads=1, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT)
    try:
        printed, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        launcher.end(process)
        raise
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    if not found:
        raise RuntimeError(f"{count} ranks of {script} reported nothing (status {process.returncode})")
    return sorted(found, key=lambda report: report["rank"])


def report(**figures: Any) -> None:
    """Tell the benchmark."""
    print(json.dumps(figures), flush=True)
