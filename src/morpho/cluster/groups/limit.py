"""A bound for what must not take for ever: MPI's agreement of survivors, which was seen to hang under heavy load."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

AGREE_S = 60.0  # what survivors have to agree on who is left


def leave() -> NoReturn:
    """End this process as a death that the others survive: mpiexec ends all ranks where one ends with a status other
    than 0, and none where one is killed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


@contextmanager
def limited(seconds: float, what: str) -> Iterator[None]:
    """Let this process end if what it does takes longer: for the others it is then dead, which they can deal with, and
    who started it may start it again. What hangs inside MPI cannot be interrupted in any other way.

    >>> with limited(60.0, "adding"):
    ...     1 + 1
    2
    """
    def end() -> None:
        print(f"[group] {what} took longer than {seconds:g} s: this process ends, so that nobody waits for it",
              file=sys.stderr, flush=True)
        leave()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
