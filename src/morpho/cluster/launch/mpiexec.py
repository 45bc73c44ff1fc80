"""How processes are started: where mpiexec is, its command line, the options that make Open MPI survive a dead rank.

Everything that starts ranks goes through `command` or `start`:

    start(4, [sys.executable, "-m", "morpho.cluster.launch.worker", "train.py"]).wait()

MPI's ports carry no token: trust the network, or name the interfaces of a private one. The known traps, each with its
option below: ranks of more than one thread must not be bound to a core; the `han` and `cuda` collectives do not
survive; only the `ob1` messaging layer does; a rank that waits spins unless told to yield; a stopped process is noticed
only by a heartbeat, whose defaults are 5 and 10 s.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from morpho.base import settings
from morpho.base.distribution import install
from morpho.base.errors import ArgumentError, GroupError, MorphoError, fail
from morpho.base.machine import allowed_cores, quota_cores, usable_cores

# Of another mpiexec that started this process: a nested one must not take itself for a part of it.
_OF_LAUNCHERS = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "HWLOC_")
_OF_SLURM = ("SLURM_JOBID", "SLURM_JOB_ID")  # by them MPI finds itself in a job, whose `srun` it calls
_OF_PYTHON = ("PYTHONPATH",)  # what other hosts must know too: Morpho lies at the same path there


@dataclass(frozen=True)
class Hosts:
    """Where ranks run: (host, how many of them) in the order of ranks; `agent` is what is called instead of ssh,
    `interfaces` those the ranks speak over (names or subnets), `secret` the file of what all of them must know."""

    slots: tuple[tuple[str, int], ...] = ()
    agent: str = ""
    interfaces: tuple[str, ...] = ()
    secret: str = ""

    def of(self, numbers: Sequence[int]) -> Hosts:
        """Only these of the hosts; this machine stays this machine."""
        return replace(self, slots=tuple(self.slots[number] for number in numbers)) if self.slots else self


HERE = Hosts()


def needs_mpi(reason: str = "") -> MorphoError:
    """The error of a machine without MPI."""
    return fail(GroupError, "cluster", "MPI is not installed" + (f" ({reason.rstrip('.')})" if reason else ""),
                install("cluster"))


def mpiexec() -> str:
    """The path of mpiexec: beside this Python, as the wheel puts it, or on the PATH."""
    beside = Path(sys.prefix) / "bin" / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        raise needs_mpi("no mpiexec" if found is None else "no mpi4py")
    if not beside.exists():
        _refuse_others(found)
    return found


@functools.cache
def _refuse_others(path: str) -> None:
    """An error where mpiexec on the PATH is not Open MPI 5 or later: others do not survive a dead rank."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise needs_mpi(f"{path} does not run: {error}") from error
    version = re.search(r"(?:Open MPI|OpenRTE|PRRTE)\D*(\d+)", said)
    if version is None or ("PRRTE" not in said and int(version[1]) < 5):
        raise needs_mpi(f"{path} is not Open MPI 5 or later")


def command(count: int, program: Sequence[str], hosts: Hosts = HERE, *, heartbeat_s: float | None = None,
            export: Sequence[str] = (), survive: bool = True) -> list[str]:
    """The command line that starts `count` ranks of a program.

    `heartbeat_s` is how long a rank may be silent before it is taken for dead, 0 or None: only its end is noticed.
    `export` names environment variables that other hosts get too. Without `survive` a dead rank ends them all.
    """
    if count < 1:
        raise fail(ArgumentError, "launch", f"{count} processes cannot be started", "one is the least")
    if hosts.slots and sum(number for _, number in hosts.slots) < count:
        raise fail(ArgumentError, "launch", f"the hosts have {sum(number for _, number in hosts.slots)} slots, and "
                   f"{count} processes are wanted", "give a host more slots, or start fewer processes")
    words = [mpiexec(), "-n", str(count), "--bind-to", "none", "--map-by", "slot:OVERSUBSCRIBE",
             *(["--allow-run-as-root"] if os.geteuid() == 0 else []), *(["--with-ft", "ulfm"] if survive else [])]
    if hosts.slots:
        words += ["--host", ",".join(f"{host}:{number}" for host, number in hosts.slots)]
    for name in export:
        words += ["-x", name]
    for name, value in mca_options(count, hosts, heartbeat_s).items():
        words += ["--prtemca" if name.startswith("prte_") or name.startswith("plm_") else "--mca", name, value]
    return [*words, *program]


def mca_options(count: int, hosts: Hosts = HERE, heartbeat_s: float | None = None) -> dict[str, str]:
    """Options of Open MPI's components.

    >>> mca_options(2)["pml"], mca_options(2)["coll"]
    ('ob1', '^han,cuda')
    """
    options = {"pml": "ob1", "coll": "^han,cuda", "mpi_yield_when_idle": "1", "btl": "self,sm,tcp"}
    if heartbeat_s:
        options |= {"mpi_ft_detector": "1", "mpi_ft_detector_thread": "1",
                    "mpi_ft_detector_period": f"{heartbeat_s / 3:.3f}", "mpi_ft_detector_timeout": f"{heartbeat_s:.3f}"}
    if hosts.agent:
        options["plm_ssh_agent"] = hosts.agent
    if hosts.interfaces:
        options |= {"btl_tcp_if_include": ",".join(hosts.interfaces), "prte_if_include": ",".join(hosts.interfaces)}
    return options


def environment(threads: int | None = None, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of ranks: this one's without another launcher's variables; `threads` for each rank (0: as many
    as its settings say)."""
    changes = dict(extra or {})
    if threads:
        changes["MORPHO_THREADS"] = str(threads)
    found = settings.environment(**changes)
    left_out = () if shutil.which("srun") else _OF_SLURM  # without it processes are started through ssh
    return {name: value for name, value in found.items()
            if not name.startswith(_OF_LAUNCHERS) and name not in left_out}


def fair_threads(count: int) -> int:
    """Threads for each of `count` ranks on this machine, so that together they have its cores."""
    return max(1, usable_cores(allowed_cores(), quota_cores()) // count)


def has_cores(count: int) -> bool:
    """Whether each of `count` ranks has a core of this machine to itself, and who started them has one too."""
    return usable_cores(allowed_cores(), quota_cores()) > count


def own_cores(count: int, threads: int) -> list[list[int]]:
    """Cores of this machine for each of `count` ranks, as far from each other as there are; empty where there are too
    few for all.

    >>> own_cores(10_000, 1)
    []
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < count * threads or not has_cores(count):
        return []
    apart = len(cores) // count
    return [cores[number * apart:number * apart + threads] for number in range(count)]


def start(count: int, program: Sequence[str], hosts: Hosts = HERE, *, threads: int | None = None,
          heartbeat_s: float | None = None, extra: Mapping[str, str] | None = None, survive: bool = True,
          stdin: int | IO[Any] | None = subprocess.DEVNULL, **options: Any) -> subprocess.Popen[Any]:
    """Start the ranks; `options` go to `subprocess.Popen`. mpiexec gets a process group of its own, so that it can be
    ended with all its ranks."""
    given = environment(threads, extra)
    export = {*(extra or {}), *(["MORPHO_THREADS"] if threads else []), *(each for each in _OF_PYTHON if each in given)}
    words = command(count, program, hosts, heartbeat_s=heartbeat_s, export=sorted(export) if hosts.slots else (),
                    survive=survive)
    return subprocess.Popen(words, env=given, stdin=stdin, start_new_session=True, **options)
