"""A rank: `python -m morpho.cluster.launch.worker [--least N] SCRIPT ARGUMENTS` runs a script as `python SCRIPT` would.

A rank whose script fails must not leave the others waiting for it in a collective: it says what happened and ends at
once, without taking its leave of MPI, and so is a lost rank for them. The launcher's request to stop (SIGUSR1, which
mpiexec hands on) reaches the script as Ctrl-C does.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import traceback

from morpho.cluster import world
from morpho.cluster.groups.mpi import has_lost


def end(code: int) -> None:
    """End this process without waiting for anybody."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(words: list[str]) -> None:
    """Run a script, or a module after -m."""
    if not words:
        raise SystemExit("usage: python -m morpho.cluster.launch.worker [-m MODULE | SCRIPT] [ARGUMENTS]")
    if words[0] == "--least":
        world.set_least(int(words[1]))
        words = words[2:]
    signal.signal(signal.SIGUSR1, lambda number, frame: signal.raise_signal(signal.SIGINT))
    module = words[0] == "-m"
    sys.argv = words[1:] if module else words
    try:
        if module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as left:
        if left.code not in (None, 0):
            if not isinstance(left.code, int):
                print(left.code, file=sys.stderr)
            end(left.code if isinstance(left.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        end(1)
    if has_lost():  # survivors would wait for the dead when MPI is finalised, whoever does that
        end(0)


if __name__ == "__main__":
    main(sys.argv[1:])
