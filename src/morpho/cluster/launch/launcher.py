"""`morpho launch`: ranks of any script, started again where they do not survive by themselves.

A rank that dies is a lost one: scripts that train with `cluster.Trainer`, or call `shrink()`, go on without it. Where
all end in failure, or fewer live than are allowed, the launcher starts them anew, up to `max_restarts` times; the
script goes on from its own checkpoint. The first Ctrl-C reaches the script as it would alone; a second one ends
everything.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.cluster.launch import mpiexec
from morpho.cluster.launch.mpiexec import HERE, Hosts

WORKER = "morpho.cluster.launch.worker"
ASKED = signal.SIGUSR1  # what mpiexec hands on to its ranks; the worker makes it a Ctrl-C


@dataclass(frozen=True)
class Elastic:
    """The least and the most ranks.

    >>> Elastic.of("2:8")
    Elastic(least=2, most=8)
    """

    least: int
    most: int

    @staticmethod
    def of(text: str) -> Elastic:
        """From a text such as 2:8."""
        parts = text.split(":")
        if len(parts) != 2 or not all(part.isdigit() for part in parts) or not 1 <= int(parts[0]) <= int(parts[1]):
            raise fail(ArgumentError, "launch", f"--elastic {text!r} is not LEAST:MOST, such as 2:8", line="")
        return Elastic(int(parts[0]), int(parts[1]))


@dataclass(frozen=True)
class Job:
    """What to start. `program` is a script with its arguments, or -m and a module."""

    program: tuple[str, ...]
    count: int
    hosts: Hosts = HERE
    least: int = 1
    max_restarts: int = 0
    threads: int | None = None
    heartbeat_s: float | None = None
    extra: Mapping[str, str] | None = None
    worker: tuple[str, ...] = (WORKER,)  # the module that a rank is, and its first arguments

    def words(self) -> list[str]:
        """The command of one rank."""
        return [sys.executable, "-m", *self.worker, "--least", str(self.least), *self.program]


def launch(job: Job, say: Callable[[str], Any] = lambda text: None) -> int:
    """Run a job to its end, with restarts; the exit status of the last try."""
    _check(job)
    for attempt in range(job.max_restarts + 1):
        if attempt:
            say(f"restart {attempt} of {job.max_restarts}")
        process = mpiexec.start(job.count, job.words(), job.hosts, threads=job.threads, heartbeat_s=job.heartbeat_s,
                                extra=job.extra)
        with _handing_on(process) as asked:
            code = process.wait()
        if code == 0 or asked:
            return code
        if job.max_restarts:
            say(f"the {job.count} ranks ended with status {code}")
    return code


def _check(job: Job) -> None:
    script = job.program[0]
    if script != "-m" and not os.path.isfile(script):
        raise fail(ArgumentError, "launch", f"there is no script {script}", line="")
    if job.max_restarts < 0:
        raise fail(ArgumentError, "launch", f"--max-restarts {job.max_restarts} is negative", line="")
    if job.least > job.count:
        raise fail(ArgumentError, "launch", f"{job.count} ranks are fewer than the least, {job.least}", line="")


@contextmanager
def _handing_on(process: subprocess.Popen[Any]) -> Iterator[list[int]]:
    """Hand a first Ctrl-C, or a request to terminate, on to the ranks; end them all at a second one, or when this block
    is left while they run."""
    asked: list[int] = []

    def interrupted(number: int, frame: Any) -> None:
        asked.append(number)
        if len(asked) == 1:
            process.send_signal(ASKED)
        else:
            end(process)

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process.poll() is None:
            end(process)


def end(process: subprocess.Popen[Any], patience_s: float = 5.0) -> None:
    """End mpiexec with all its ranks: asked first, killed where that does not help."""
    try:
        process.terminate()
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def module_job(module: str, arguments: Sequence[str], count: int, **options: Any) -> Job:
    """Ranks of a module, each with its fair share of this machine's threads."""
    options.setdefault("threads", mpiexec.fair_threads(count) if "hosts" not in options else None)
    return Job(("-m", module, *arguments), count, **options)
