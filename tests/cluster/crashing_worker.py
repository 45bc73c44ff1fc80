"""A worker of which the first one ever started crashes as soon as MPI is there, before it meets anybody."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    from mpi4py import MPI

    marker = Path(os.environ["CRASHED"])
    if MPI.COMM_WORLD.Get_rank() == 0 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    from morpho.cluster.workers.worker import main

    main(sys.argv[1:])
