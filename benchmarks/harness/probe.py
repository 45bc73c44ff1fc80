"""Fresh processes: run a module of ``benchmarks/probes`` and read the JSON on its last line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.harness.client import ROOT, environment


class ProbeError(RuntimeError):
    """A probe ended without an answer: one sentence saying why."""


def probe(name: str, *arguments: str, threads: int = 2, extra: dict[str, str] | None = None) -> dict[str, Any]:
    """Run ``python -m benchmarks.probes.<name>`` in a process of its own."""
    return run_python(["-m", f"benchmarks.probes.{name}", *arguments], threads, extra)


def run_python(arguments: list[str], threads: int = 2, extra: dict[str, str] | None = None) -> dict[str, Any]:
    """Run Python with these arguments; the last line it prints is JSON."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, check=False,
                          timeout=600, env=environment(threads, extra))
    what = " ".join(arguments[1:3])
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise ProbeError(f"{what}: status {done.returncode}: {last}")
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        raise ProbeError(f"{what}: no JSON on its last line") from None
