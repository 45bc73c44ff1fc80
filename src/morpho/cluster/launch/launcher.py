"""`morpho launch`: ranks of any script, started again where they do not survive by themselves.

A rank that dies is a lost one: scripts that train with `cluster.Trainer`, or call `shrink()`, go on without it. Where
all end in failure, or fewer live than are allowed, the launcher starts them anew, up to `max_restarts` times; the
script goes on from its own checkpoint. An elastic job is started anew too where it can have more ranks than live: ranks
that see this save after the step they are in, and end with the status `told.AGAIN`. The first Ctrl-C reaches the script
as it would alone; a second one ends everything, as `GRACE_S` after the first request to terminate does. A launcher that
is killed takes its ranks along.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, GroupError, fail
from morpho.cluster.hosts.reaching import is_reachable
from morpho.cluster.launch import mpiexec, standing, told
from morpho.cluster.launch.mpiexec import HERE, Hosts

WORKER = "morpho.cluster.launch.worker"
ASKED = signal.SIGUSR1  # what mpiexec hands on to its ranks; the worker makes it a Ctrl-C
ROOM = signal.SIGUSR2  # what it hands on too: there is room for more ranks
WIDEN_S = 60.0  # seconds after a start from which it may end for more ranks
GRACE_S = 20.0  # what ranks have to end after a request to terminate, which nobody repeats
_LOOK_EVERY_S = 0.2
_ASK_HOSTS_EVERY_S = 15.0
LEFT_S = 60.0  # what other ranks have to end, once those that went on without lost ones have
HEARTBEAT_S = 10.0  # by default, of ranks on several hosts
_PATIENCE_S = 5.0  # what mpiexec has to end its ranks before they are killed


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
    """Ranks to start. `program` is a script with its arguments, or -m and a module."""

    program: tuple[str, ...]
    count: int
    hosts: Hosts = HERE
    least: int = 1
    max_restarts: int = 0
    threads: int | None = None
    heartbeat_s: float | None = None
    extra: Mapping[str, str] | None = None
    worker: tuple[str, ...] = (WORKER,)  # the module that a rank is, and its first arguments
    narrows: bool = False  # whether a start may have fewer ranks, `least` or more, where hosts do not answer
    widen_s: float = WIDEN_S  # seconds after a start from which lost ranks are wanted back, if it narrows

    def words(self, folder: str = "", starts: int = 0, began_s: float = 0.0) -> list[str]:
        """The command of one rank, which tells a folder how it ends."""
        options = ["--least", str(self.least), "--starts", str(starts), "--began", str(began_s)]
        if self.narrows:
            options += ["--widen-after", str(self.widen_s)]
        if folder:
            options += ["--told", folder]
        if self.hosts.secret:  # the last: whose rank can say how it ends
            options += ["--secret", self.hosts.secret, secrets.token_hex()]
        return [sys.executable, "-m", *self.worker, *options, *self.program]


def launch(job: Job, say: Callable[[str], Any] = lambda text: None) -> int:
    """Run a job to its end, with restarts; the exit status of the last try."""
    _check(job)
    wanted, failures, began_s = job, 0, time.time()
    for starts in itertools.count():
        job = _on_those_that_answer(wanted, say)
        with tempfile.TemporaryDirectory(prefix="morpho-ranks-", ignore_cleanup_errors=True) as folder, \
                standing.listed(job.program, job.count, Path(folder), job.hosts):
            process = mpiexec.start(job.count, job.words(folder, starts, began_s), job.hosts, threads=job.threads,
                                    heartbeat_s=job.heartbeat_s, extra=job.extra, preexec_fn=_dies_with_us())
            with _handing_on(process) as asked, _looking_for_room(wanted, job, process, Path(folder)):
                code = _waited(process, asked, job, Path(folder), say)
            code = told.verdict(code, told.read(Path(folder)), job.count)
        if code == told.AGAIN and job.narrows:
            if asked:  # they have saved, as they were to
                return 0
            say("the ranks have saved, and are started anew")
            continue
        if code == 0 or asked or not wanted.max_restarts:
            return code
        say(f"the {job.count} ranks ended with status {code}")
        if failures == wanted.max_restarts:
            return code
        failures += 1
        say(f"restart {failures} of {wanted.max_restarts}")
    raise AssertionError("unreachable")


@contextmanager
def _looking_for_room(wanted: Job, job: Job, process: subprocess.Popen[Any], folder: Path) -> Iterator[None]:
    """While the block runs, look whether hosts that were left out answer, and tell the ranks once: those that can
    go on from what they save do so, and end. Ranks that were lost they see themselves."""
    missing = [host for host, count in wanted.hosts.slots if (host, count) not in job.hosts.slots]
    over = threading.Event()

    def look() -> None:
        began = time.monotonic()
        while not over.wait(max(began + wanted.widen_s - time.monotonic(), _ASK_HOSTS_EVERY_S)):
            if (_hear(told.read(folder), time.monotonic() - began)
                    and any(is_reachable(host, wanted.hosts.agent) for host in missing) and not over.is_set()):
                process.send_signal(ROOM)
                return

    if job.count < wanted.count:
        threading.Thread(target=look, name="morpho-room", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _hear(ranks: list[told.Rank], seconds: float) -> bool:
    """Whether all ranks, of other hosts too, are far enough to take a signal, which ends a process that expects none:
    one is past MPI's start only if all have come to it."""
    return any(rank.came == told.JOINED for rank in ranks) or (not ranks and seconds > WIDEN_S)


def _on_those_that_answer(job: Job, say: Callable[[str], Any]) -> Job:
    """The job on the hosts that answer now; others are left out, until a start that they answer at."""
    if not job.narrows:
        return job
    slots = tuple((host, count) for host, count in job.hosts.slots if is_reachable(host, job.hosts.agent))
    if len(slots) == len(job.hosts.slots):
        return job
    count = min(job.count, sum(number for _, number in slots))
    silent = ", ".join(host for host, number in job.hosts.slots if (host, number) not in slots)
    if count < job.least:
        raise fail(GroupError, "launch", f"{silent} cannot be reached: {count} ranks are left, and {job.least} are the "
                   "least", line="")
    say(f"{silent} cannot be reached: {count} of {job.count} ranks are started")
    return replace(job, count=count, hosts=replace(job.hosts, slots=slots))


def _check(job: Job) -> None:
    script = job.program[0]
    if script != "-m" and not os.path.isfile(script):
        raise fail(ArgumentError, "launch", f"there is no script {script}", line="")
    if job.max_restarts < 0:
        raise fail(ArgumentError, "launch", f"--max-restarts {job.max_restarts} is negative", line="")
    if job.least > job.count:
        raise fail(ArgumentError, "launch", f"{job.count} ranks are fewer than the least, {job.least}", line="")
    if not 0 <= job.widen_s < math.inf:
        raise fail(ArgumentError, "launch", f"--widen-after {job.widen_s} is no number of seconds", line="")


def _waited(process: subprocess.Popen[Any], asked: list[int], job: Job, folder: Path,
            say: Callable[[str], Any]) -> int:
    """The status of mpiexec, once it is over: by itself, or because it was asked to, or waited for nobody."""
    deadline = left_s = None
    while True:
        try:
            code = process.wait(_LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            pass
        else:
            if code < 0 and not asked:
                say(f"mpiexec was ended by signal {-code} ({_signal_name(-code)}), and its ranks with it")
                _end_ranks(told.read(folder))
            return code
        if signal.SIGTERM in asked and deadline is None:
            deadline = time.monotonic() + GRACE_S
        if len(asked) > 1 or (deadline is not None and time.monotonic() > deadline):
            end(process)
            return process.wait()
        ranks = told.read(folder)
        if _is_stuck(process, job, ranks):
            say("a rank ended before the ranks had found each other: the others wait for it, and are ended")
            end(process)
            return process.wait()
        well = told.has_left(ranks)
        if not well and not (ranks and all(rank.is_over for rank in ranks)):
            left_s = None
        elif left_s is None:
            left_s = time.monotonic()
        elif time.monotonic() - left_s > LEFT_S and (well or _has_lost_others(job, len(ranks))):
            say("the ranks that went on have ended well; those that they went on without have not, and are ended" if
                well else
                "all ranks that are heard have ended, and mpiexec waits for one of a host that does not answer")
            end(process)
            return 0 if well else process.wait()


def _has_lost_others(job: Job, heard: int) -> bool:
    """Whether there is nobody to wait for: all ranks are heard, or a host of others does not answer."""
    return heard >= job.count or not all(is_reachable(host, job.hosts.agent) for host, _ in job.hosts.slots)


def _end_ranks(ranks: list[told.Rank]) -> None:
    """End the ranks of this machine: without mpiexec they notice nobody's death, and wait for ever."""
    for rank in ranks:
        if rank.began and not rank.is_over:
            try:
                os.kill(rank.process, signal.SIGKILL)
            except OSError:
                pass  # it has ended meanwhile


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _is_stuck(process: subprocess.Popen[Any], job: Job, ranks: list[told.Rank]) -> bool:
    """Whether ranks wait in MPI's start for one that is gone, perhaps before it could say that it was there."""
    waits = any(rank.came == told.JOINING for rank in ranks)
    silent = waits and len(ranks) < job.count and not job.hosts.slots
    return told.is_stuck(ranks) or (silent and 0 < len(children(process.pid)) < job.count)


def _dies_with_us() -> Callable[[], None] | None:
    """Preparation of mpiexec: ask the system to be terminated, with its ranks, when this process is
    killed. None where the system cannot."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "prctl"):
        return None
    wanted = 1  # PR_SET_PDEATHSIG
    return lambda: library.prctl(wanted, int(signal.SIGTERM)) and None


@contextmanager
def _handing_on(process: subprocess.Popen[Any]) -> Iterator[list[int]]:
    """Hand a first Ctrl-C, or a request to terminate, on to the ranks, and note all of them; end the ranks when this
    block is left while they run. Who waits for the process must end it: within a handler nobody can wait for it."""
    asked: list[int] = []

    def interrupted(number: int, frame: Any) -> None:
        asked.append(number)
        if len(asked) == 1:
            process.send_signal(ASKED)

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process.poll() is None:
            end(process)


def end(process: subprocess.Popen[Any], patience_s: float = _PATIENCE_S) -> None:
    """End mpiexec with all its ranks: asked first, killed where that does not help."""
    try:
        process.terminate()
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        for number in [*descendants(process.pid), process.pid]:  # each rank leads a group of its own
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()


def descendants(number: int) -> list[int]:
    """The processes that a process of this machine started, and those that they did.

    >>> descendants(-1)
    []
    """
    parents = _parents()
    found = list(parents.get(number, ()))
    for child in found:  # which grows
        found += parents.get(child, ())
    return found


def children(number: int) -> list[int]:
    """The processes that a process of this machine started, and that have not ended.

    >>> children(-1)
    []
    """
    return [child for child in _parents().get(number, ()) if told.started(child)]


def _parents() -> dict[int, list[int]]:
    """The processes that each process of this machine started."""
    found: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        found.setdefault(int(words[1]), []).append(int(file.parent.name))
    return found


def module_job(module: str, arguments: Sequence[str], count: int, **options: Any) -> Job:
    """Ranks of a module, each with its fair share of this machine's threads."""
    options.setdefault("threads", mpiexec.fair_threads(count) if "hosts" not in options else None)
    return Job(("-m", module, *arguments), count, **options)
