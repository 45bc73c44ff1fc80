"""A stand-in for a rank that another launcher started: run by mpiexec, it hands its environment to that process.

MPI knows a rank by the environment that mpiexec's daemon gives it. The stand-in writes its own into a folder, where the
real process takes it over, and then lives and dies with that process: what MPI does when a rank is killed it does here
too. It imports nothing of Morpho: it has to be there at once, and to need no memory.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from pathlib import Path

FORWARDED = ("PMIX", "OMPI_", "PRTE", "PRRTE", "HWLOC_", "OPAL_", "UCX_")  # variables that make a process a rank
_LOOK_EVERY_S = 0.25


def gone(process: int, seconds: float) -> bool:
    """Whether a process has ended, looked at for so long."""
    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(process)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([handle], [], [], seconds)[0])
        finally:
            os.close(handle)
    time.sleep(seconds)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def main(folder: Path, environment: Path, patience_s: float) -> None:
    """Hand over the environment, which a file has, and end as the real process does."""
    lines = environment.read_bytes().decode("utf-8", "surrogateescape").split("\0")
    environment.unlink()
    variables = dict(line.split("=", 1) for line in lines if "=" in line)
    rank, parent, limit = variables["OMPI_COMM_WORLD_RANK"], os.getppid(), time.monotonic() + patience_s
    known = {name: value for name, value in variables.items() if name.startswith(FORWARDED)}
    while not folder.is_dir():
        _end_if(time.monotonic() > limit or os.getppid() != parent)
        time.sleep(_LOOK_EVERY_S / 10)
    text = json.dumps({"variables": known, "process": os.getpid()})
    (folder / f"{rank}.new").write_text(text)
    (folder / f"{rank}.new").rename(folder / f"{rank}.json")
    answer = folder / f"{rank}.process"
    while not answer.exists():
        _end_if(time.monotonic() > limit or os.getppid() != parent)
        time.sleep(_LOOK_EVERY_S / 10)
    process = int(answer.read_text())
    while not gone(process, _LOOK_EVERY_S):
        if os.getppid() != parent:  # mpiexec is gone: nobody would notice deaths any more
            os.kill(process, signal.SIGKILL)
    failed = not (folder / f"{rank}.done").exists()
    for file in [*folder.glob(f"{rank}.*"), folder / "ranks"]:
        file.unlink(missing_ok=True)
    try:
        folder.rmdir()  # the last one of this host
    except OSError:
        pass
    _end_if(failed)


def ask_for_daemon(folder: Path, host: str, command: str) -> None:
    """Act as ssh for mpiexec: leave a daemon's command to rank 0, which hands it to a rank on that host."""
    fresh = folder / f"daemon-{os.getpid()}.new"
    fresh.write_text(f"{host}\n{command}")
    fresh.rename(fresh.with_suffix(".command"))


def _end_if(wrong: bool) -> None:
    """End as a killed rank, which MPI tells the others; one that ends with a status would end them all."""
    if wrong:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[1] == "stand":
        main(Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
    else:
        ask_for_daemon(Path(sys.argv[2]), sys.argv[3], " ".join(sys.argv[4:]))
