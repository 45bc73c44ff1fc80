"""`morpho launch`, and commands that start themselves on several ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console

from morpho.base.errors import ArgumentError, fail
from morpho.cli.server.dashboard import watching_ranks
from morpho.cluster.hosts.file import QUEUE
from morpho.cluster.hosts.file import read_hosts as read_file
from morpho.cluster.hosts.reaching import check_reachable
from morpho.cluster.launch import mpiexec, secret
from morpho.cluster.launch.job_files import JobFile
from morpho.cluster.launch.launcher import HEARTBEAT_S, WIDEN_S, Elastic, Job, module_job
from morpho.cluster.launch.launcher import launch as run_job
from morpho.cluster.launch.mpiexec import HERE, Hosts
from morpho.plan import Plan

RANK = "morpho.cli.rank"
_HOST = re.compile(r"[\w.-]+(:\d+)?")


def read_hosts(text: str | None, count: int | None = None) -> Hosts:
    """Hosts from a list such as a,b:2, or from a hosts file, each of which has its share of `count` ranks.

    >>> read_hosts("a,b:2").slots
    (('a', 1), ('b', 2))
    """
    if text is None:
        return HERE
    if text.endswith(".toml") or text == QUEUE:
        found = _of_file(Path(text))
        share = max(1, -(-(count or 0) // len(found.slots)))
        return replace(found, slots=tuple((host, share) for host, _ in found.slots))
    slots = []
    for word in text.split(","):
        if not _HOST.fullmatch(word):
            raise fail(ArgumentError, "launch", f"--hosts: {word!r} is no host", "write HOST or HOST:RANKS", line="")
        host, _, number = word.partition(":")
        slots.append((host, int(number or 1)))
    return Hosts(tuple(slots))


def _of_file(path: Path) -> Hosts:
    """The hosts of a file, whose ranks must know the secret that it names; in a queue's job the user's own, if there is
    one."""
    file = read_file(path)
    found = file.launch()
    if str(path) == QUEUE and file.secret is not None and not secret.read(file.secret):
        return replace(found, secret="")
    if file.secret is not None:
        secret.check_file(file.secret)
    return found


def launch(program: Sequence[str], count: int | None, hosts: str | None, max_restarts: int, elastic: str | None,
           threads: int | None, heartbeat_s: float | None, dashboard: bool = False,
           widen_after_s: float | None = None) -> None:
    """Start the ranks, and end as they ended; with `dashboard`, a page of them while they run."""
    where = read_hosts(hosts, count)
    bounds = None if elastic is None else Elastic.of(elastic)
    wanted = count or (bounds.most if bounds else sum(slots for _, slots in where.slots) or 1)
    if bounds is None:
        check_reachable([(host, host) for host, _ in where.slots], where.agent)
    if threads is None and not where.slots:
        threads = mpiexec.fair_threads(wanted)
    if heartbeat_s is None:  # a line that goes down says nothing: only silence does
        heartbeat_s = HEARTBEAT_S if len({host for host, _ in where.slots}) > 1 else 0.0
    job = Job(tuple(program), wanted, where, 1, max_restarts, threads, heartbeat_s or None)
    _end(_elastic(job, elastic, widen_after_s, "-n"), dashboard)


def write(kind: str, program: Sequence[str], count: int | None, each: int, threads: int | None, plan: Path | None,
          image: str) -> None:
    """Print the file by which a queue or a cluster starts the ranks."""
    chosen = None
    if plan is not None:
        try:
            chosen = Plan.from_json(plan.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise fail(ArgumentError, "launch", f"the plan {plan} cannot be read: {error}", line="") from None
    print(JobFile(kind, tuple(program), count or each, each, threads, image, chosen, str(plan or "")).text(), end="")


def _elastic(job: Job, elastic: str | None, widen_after_s: float | None, counted_by: str) -> Job:
    """The job with the bounds that its user set."""
    if elastic is None:
        if widen_after_s is not None:
            raise fail(ArgumentError, "launch", "--widen-after says when an elastic job gets lost ranks back",
                       "give --elastic LEAST:MOST too", line="")
        return job
    bounds = Elastic.of(elastic)
    if not bounds.least <= job.count <= bounds.most:
        raise fail(ArgumentError, "launch", f"{counted_by} {job.count} lies outside --elastic {elastic}", line="")
    return replace(job, least=bounds.least, narrows=True, widen_s=WIDEN_S if widen_after_s is None else widen_after_s)


def again(command: str, given: Mapping[str, object], nodes: int, max_restarts: int = 0,
          elastic: str | None = None, widen_after_s: float | None = None) -> None:
    """A command with the options that were given, on several ranks of this machine; the page of `--dashboard` is this
    process's, and shows all of them."""
    given = dict(given)
    dashboard, out = bool(given.pop("dashboard", False)), given.get("out")
    words = [command]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [f"{option}={value}"]
    job = module_job("morpho", words, nodes, max_restarts=max_restarts)
    _end(_elastic(job, elastic, widen_after_s, "--nodes"), dashboard, [Path(str(out))] if out else [])


def _end(job: Job, dashboard: bool = False, runs: Sequence[Path] = ()) -> None:
    console = Console(stderr=True)
    with ExitStack() as page:
        if dashboard:
            place, known = page.enter_context(watching_ranks(runs, [host for host, _ in job.hosts.slots]))
            job = replace(job, worker=(RANK, place), extra={**(job.extra or {}), **known})
        code = run_job(job, lambda text: console.print(text, style="dim"))
    if code:
        raise typer.Exit(code if 0 < code < 256 else 1)
