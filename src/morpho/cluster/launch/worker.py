"""A rank: `python -m morpho.cluster.launch.worker OPTIONS SCRIPT ARGUMENTS` runs a script as `python SCRIPT` would.

A rank whose script fails must not leave the others waiting for it in a collective: it says what happened, tells the
launcher its status, and kills itself, and so is a lost rank for them (where a rank merely ends with a status other
than 0, MPI tells nobody, and the others wait for ever). The launcher's request to stop (SIGUSR1, which
mpiexec hands on) reaches the script as Ctrl-C does; its word that there is room for more ranks (SIGUSR2) is noted.

Options are the launcher's: `--told FOLDER`, and what `world.Terms` says: `--least N`, `--widen-after SECONDS`,
`--starts N`, `--began SECONDS`. With `--secret FILE NONCE` ranks show that they know a secret before the script begins.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from morpho.base import settings
from morpho.base.errors import MorphoError
from morpho.cluster import world
from morpho.cluster.groups import mpi
from morpho.cluster.groups.limit import leave
from morpho.cluster.groups.mpi import has_lost, has_peers
from morpho.cluster.launch import secret, standing
from morpho.cluster.launch.told import AGAIN, telling
from morpho.cluster.workers.meeting import version


def _end_with_parent() -> None:
    """Have this rank end when mpiexec, or its daemon on this host, does: without it nobody's death is noticed any more,
    and ranks wait for each other for ever."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "prctl"):
        return
    wanted = 1  # PR_SET_PDEATHSIG
    library.prctl(wanted, int(signal.SIGKILL))
    first = Path("/proc/1/comm")
    if os.getppid() == 1 and first.exists() and not first.read_text().startswith(("prte", "mpi", "orte", "slurm")):
        _exit(1)  # it ended before


def end(code: int) -> NoReturn:
    """End this process without waiting for anybody; one that failed and has peers as a death, which they notice."""
    group = world.current()
    telling.tell(status=code, left=group.members if has_lost() and group is not None else ())
    if code and has_peers():
        leave()
    _exit(code)


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _end_for_more() -> NoReturn:
    """End this process to be started anew with others. All ranks have agreed on it, and nobody waits for this one;
    mpiexec is told where the launcher does not hear it."""
    telling.tell(status=AGAIN)
    code = 0 if telling.is_heard else AGAIN
    if has_lost():  # survivors would wait for the dead when MPI is finalised
        _exit(code)
    raise SystemExit(code)


def _understood(words: list[str]) -> list[str]:
    """Do what the launcher's options say; the words after them."""
    terms = world.Terms()
    while words[0] in ("--least", "--widen-after", "--starts", "--began", "--told"):
        name, value, words = words[0], words[1], words[2:]
        if name == "--least":
            terms = replace(terms, least=int(value))
        elif name == "--widen-after":
            terms = replace(terms, widen_s=float(value))
        elif name == "--starts":
            terms = replace(terms, starts=int(value))
        elif name == "--began":
            terms = replace(terms, began_s=float(value))
        else:
            telling.begin(value, settings.world_rank() or 0)
            standing.report(value, settings.world_rank() or 0)
    world.set_terms(terms)
    return words


def _shown(words: list[str]) -> list[str]:
    """The words after the secret's; where one rank does not know it all of them end."""
    if words[0] != "--secret":
        return words
    try:
        secret.check_ranks(mpi.world(), Path(words[1]), words[2], version())
    except MorphoError as error:
        print(error, file=sys.stderr)
        telling.tell(status=1)
        _exit(1)
    return words[3:]


def main(words: list[str]) -> None:
    """Run a script, or a module after -m."""
    if not words:
        raise SystemExit("usage: python -m morpho.cluster.launch.worker [-m MODULE | SCRIPT] [ARGUMENTS]")
    _end_with_parent()
    words = _understood(words)
    signal.signal(signal.SIGUSR1, lambda number, frame: signal.raise_signal(signal.SIGINT))
    signal.signal(signal.SIGUSR2, lambda number, frame: world.widen())
    words = _shown(words)
    module = words[0] == "-m"
    sys.argv = words[1:] if module else words
    try:
        if module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as left:
        if left.code == AGAIN and world.terms().widen_s is not None:
            _end_for_more()
        if left.code not in (None, 0):
            if not isinstance(left.code, int):
                print(left.code, file=sys.stderr)
            end(left.code if isinstance(left.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        end(1)
    if has_lost():  # survivors would wait for the dead when MPI is finalised, whoever does that
        end(0)
    telling.tell(status=0)


if __name__ == "__main__":
    main(sys.argv[1:])
