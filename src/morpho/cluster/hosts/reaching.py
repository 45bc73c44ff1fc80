"""Whether a process can be started on a machine, by what starts it there: asked before anything is."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Sequence

from morpho.base import settings
from morpho.base.errors import GroupError, fail

REACH_S = 10.0
HERE_NAMES = ("localhost", "127.0.0.1", "::1")


def is_here(address: str) -> bool:
    """Whether an address is this machine.

    >>> is_here("localhost"), is_here("elsewhere.example")
    (True, False)
    """
    return address in (*HERE_NAMES, socket.gethostname())


def is_reachable(address: str, agent: str = "") -> bool:
    """Whether a process can be started there, through ssh or the agent that takes its place. Inside a job of Slurm its
    own `srun` starts processes on the machines of the job: then nobody is asked."""
    if is_here(address) or (not agent and settings.job_hosts()[0] == "slurm" and shutil.which("srun") is not None):
        return True
    words = agent.split() if agent else ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"]
    try:
        return subprocess.run([*words, address, "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=REACH_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def check_reachable(hosts: Sequence[tuple[str, str]], agent: str = "") -> None:
    """An error that names the first of the hosts (name, address) that cannot be reached.

    >>> check_reachable([("desk", "desk.example")], agent="false")
    Traceback (most recent call last):
    ...
    morpho.base.errors.GroupError: [hosts] desk (desk.example) cannot be reached. Hint: try: false desk.example true...
    """
    for name, address in hosts:
        if not is_reachable(address, agent):
            shown = name if name == address else f"{name} ({address})"
            raise fail(GroupError, "hosts", f"{shown} cannot be reached", f"try: {agent or 'ssh'} {address} true",
                       line="")
