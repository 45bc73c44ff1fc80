"""The command line of mpiexec, with what survival needs: ULFM, the ob1 layer, heartbeats in a thread of their own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from morpho.base.settings import process_environment

HEARTBEAT_S, TIMEOUT_S = 0.3, 1.5
PARAMETERS = {
    "pml": "ob1", "coll": "^han,cuda", "mpi_ft_detector": "true", "mpi_ft_detector_thread": "true",
    "mpi_ft_detector_period": str(HEARTBEAT_S), "mpi_ft_detector_timeout": str(TIMEOUT_S),
    "mpi_yield_when_idle": "true", "btl": "^openib", "mpi_abort_print_stack": "false",
}


def mpiexec() -> str | None:
    """Where mpiexec is: beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def mpi_command(program: Sequence[str], count: int, hosts: Sequence[str] = (), options: Sequence[str] = ()
                ) -> list[str]:
    """mpiexec for so many ranks of a program, one for each of the hosts if there are any.

    >>> " ".join(mpi_command(["python", "x.py"], 2))[-14:]
    '2 python x.py'
    """
    found = [mpiexec() or "mpiexec", "--with-ft", "ulfm", "--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        found.append("--allow-run-as-root")
    for name, value in PARAMETERS.items():
        found += ["--mca", name, value]
    if hosts:
        found += ["--host", ",".join(hosts), "--map-by", "node"]
    return [*found, *options, "-n", str(count), *program]


def mpi_environment() -> dict[str, str]:
    """The environment of the workers: this one, without what another MPI job left in it."""
    return {name: value for name, value in process_environment().items()
            if not name.startswith(("OMPI_", "PMIX_", "PRTE_"))}
