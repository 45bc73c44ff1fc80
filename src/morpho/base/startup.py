"""While the `morpho` command is loading: Ctrl-C is one line and exit code 130, and nobody looks for cycles of garbage,
which took an eighth of the time. Loading comes before any code of the command line runs that could catch an interrupt,
so this is the first thing that the package imports.

A program of the user's own that imports Morpho is interrupted, and collected, as Python does it.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from itertools import pairwise
from typing import Any

EXIT_INTERRUPTED = 130
_COMMANDS = {"morpho", "morpho.exe", "morpho-script.py"}


def is_command() -> bool:
    """Whether this process is the `morpho` command, as a script or as `python -m morpho`."""
    words = sys.orig_argv
    as_module = sys.argv[:1] == ["-m"] and ("-m", "morpho") in pairwise(words)
    return as_module or os.path.basename(next(iter(sys.argv), "")) in _COMMANDS


def leave(number: int, frame: Any) -> None:
    """End the process at once."""
    os.write(2, b"\n[morpho] interrupted.\n")
    os._exit(EXIT_INTERRUPTED)


def begin() -> None:
    """From here on an interrupt ends the command, unless whoever started it said otherwise."""
    if is_command():
        gc.disable()
    if (is_command() and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        signal.signal(signal.SIGINT, leave)


def end() -> None:
    """From here on an interrupt is a KeyboardInterrupt again, and garbage is collected."""
    if is_command():
        gc.enable()
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


begin()
