"""Around the `morpho` command: whatever goes wrong is one sentence on standard error and an exit code, never a
traceback; `MORPHO_LOG=debug` shows that too.

2 is a mistake of the user's or something the system refuses (a full disk, a file that may not be read), 1 a fault of
Morpho's own, 130 Ctrl-C, and 141 a reader of standard output that went away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from morpho.base import startup
from morpho.base.errors import MorphoError
from morpho.base.startup import EXIT_INTERRUPTED

_OF_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
EXIT_FAULT, EXIT_ERROR, EXIT_PIPE = 1, 2, 141


def guarded(command: Callable[[], Any]) -> NoReturn:
    """Call a command, and end the process as it ended."""
    try:
        startup.end()
        open_streams()
        status = _flushed(_status(command))
    except KeyboardInterrupt:  # a second one, or one between two steps of these
        status = EXIT_INTERRUPTED
    sys.exit(status)


def _status(command: Callable[[], Any]) -> int:
    try:
        command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else EXIT_FAULT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_PIPE
    except BaseException as error:
        show_error(error)
        return EXIT_ERROR if isinstance(error, MorphoError | OSError | MemoryError) else EXIT_FAULT
    return 0


def _flushed(status: int) -> int:
    """Flush what was printed: an error of writing is reported here, not when the interpreter ends."""
    error = _output_error()
    if error is None:
        return status
    if not status and not isinstance(error, BrokenPipeError):
        show_error(error)
    with contextlib.suppress(OSError, ValueError):  # the interpreter flushes once more, and would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status or (EXIT_PIPE if isinstance(error, BrokenPipeError) else EXIT_ERROR)


def _output_error() -> Exception | None:
    """Error of writing to standard output, if there is one."""
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        return error
    except (OSError, ValueError) as error:
        return OSError(getattr(error, "errno", None) or errno.EBADF, _reason(error))
    return None


def open_streams() -> None:
    """Have three open streams that take any text. A closed one would lend its number to the next file that is opened,
    and what is printed would go into that; a terminal that knows ASCII alone shows `?` for the rest."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and getattr(stream, "errors", "") in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def show_error(error: BaseException) -> None:
    """One red line on standard error, without the place in the command line's own machinery where it was raised."""
    with contextlib.suppress(Exception):  # standard error may be closed or full as well
        from rich.console import Console

        if _wants_traceback():
            traceback.print_exception(error)
        console = Console(stderr=True)
        console.print(sentence_of(error), style="bold red", markup=False, highlight=False, soft_wrap=True)
        if excerpt := getattr(error, "excerpt", ""):  # the line of a program, with a caret under what is wrong
            console.print(excerpt, markup=False, highlight=False, soft_wrap=True)


def sentence_of(error: BaseException) -> str:
    """The message of an error, in one line.

    >>> sentence_of(PermissionError(13, "Permission denied", "notes.txt"))
    '[morpho] notes.txt: Permission denied.'
    """
    if isinstance(error, MorphoError):
        text = " ".join(str(error).removesuffix(getattr(error, "excerpt", "")).split()) or type(error).__name__
        return re.sub(r" At (?:(?! At ).)*[/\\]typer[/\\][^:]*:\d+\.", "", text)
    if isinstance(error, OSError):
        # Morpho's own files have names in their errors: what has none was to be printed.
        printed = error.filename is None and error.errno in _OF_WRITING
        place = error.filename if error.filename is not None else "standard output cannot be written" if printed else ""
        return f"[morpho] {place}{': ' if place else ''}{_reason(error)}."
    if isinstance(error, MemoryError):
        return "[morpho] there is not enough memory. Hint: a smaller model, batch or context needs less."
    told = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":. ")[:500]
    return f"[morpho] a fault of Morpho's own: {told}. Hint: MORPHO_LOG=debug shows where; please report it."


def _reason(error: BaseException) -> str:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(reason.split()).rstrip(".")


def _wants_traceback() -> bool:
    from morpho.base import settings

    try:
        return settings.get().log == "debug"
    except MorphoError:  # that may be the error
        return False
