"""The parent's side of a worker: start it, ask it, notice when it dies or hangs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS",
                    "VECLIB_MAXIMUM_THREADS", "NPROC", "PJRT_NPROC", "MORPHO_THREADS")


class PeerError(RuntimeError):
    """A peer could not do a case: one sentence saying why."""


class PeerDied(PeerError):
    """The peer's process ended or hung; it must be started anew."""


def environment(threads: int, extra: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a worker: the same number of threads for all, this checkout importable."""
    found = dict(os.environ)
    found.update({name: str(threads) for name in THREAD_VARIABLES})
    found["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"
    found["JAX_PLATFORMS"] = "cpu"
    found["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no compiler processes left running beside the measurement
    if found.pop("PYTHONDONTWRITEBYTECODE", ""):  # times of a start are those of a process that finds its bytecode
        found["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / f"morpho-bench-{os.getuid()}")
    path = [str(ROOT), found.get("PYTHONPATH", ""), str(ROOT / "src")]
    found["PYTHONPATH"] = os.pathsep.join(part for part in path if part)
    found.update(extra or {})
    return found


class PeerProcess:
    """A worker process. It sleeps in a read whenever it is not asked."""

    def __init__(self, name: str, module: str, threads: int, timeout_s: float = 600.0,
                 extra_environment: dict[str, str] | None = None) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.waiting_cpu_share = 0.0
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.harness.worker", module, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, cwd=ROOT,
            env=environment(threads, extra_environment))

    def ask(self, command: str, **details: Any) -> dict[str, Any]:
        """Send a command and wait for the answer; PeerError when it is an error, PeerDied when none comes."""
        try:
            self.process.stdin.write(json.dumps({"command": command, **details}).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise PeerDied(self.obituary(command)) from None
        if not select.select([self.process.stdout], [], [], self.timeout_s)[0]:
            self.process.kill()
            raise PeerDied(f"{self.name}: no answer to '{command}' in {self.timeout_s:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise PeerDied(self.obituary(command))
        reply = json.loads(line)
        self.waiting_cpu_share = reply.get("waiting_cpu_share", 0.0)
        if not reply["ok"]:
            raise PeerError(f"{self.name}: {reply['error']}")
        return reply

    def settle(self, most_seconds: float = 0.6) -> None:
        """Wait until the process uses no CPU: OpenMP's threads spin for up to 0.2 s after their work."""
        deadline = time.monotonic() + most_seconds
        before = self.cpu_ticks()
        while before is not None and time.monotonic() < deadline:
            time.sleep(0.025)  # more than two of the kernel's ticks
            now = self.cpu_ticks()
            if now == before:
                return
            before = now

    def cpu_ticks(self) -> int | None:
        """Processor time of all threads in the kernel's ticks; None where there is no /proc."""
        try:
            with open(f"/proc/{self.process.pid}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return None
        return int(fields[11]) + int(fields[12])

    def obituary(self, command: str) -> str:
        """How the process ended, with the last line it wrote to stderr."""
        status = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        last = f": {lines[-1]}" if lines else ""
        return f"{self.name}: process ended with status {status} during '{command}'{last}"

    def close(self) -> None:
        """End the process: it stops when its input closes."""
        if self.process.poll() is None:
            try:
                self.process.stdin.close()
                self.process.wait(timeout=5)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.errors.close()
