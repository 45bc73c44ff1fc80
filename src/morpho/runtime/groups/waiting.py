"""In which collective or message this process is at the moment, for whoever asks why ranks stand still.

Noting costs a collective two entries of a dictionary; lines are looked up by who asks, from the stacks of threads.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from morpho.base.errors import known_files

_PACKAGE = str(Path(__file__).resolve().parents[2])
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))  # nobody's own lines


@dataclass(frozen=True, slots=True)
class Call:
    """The `number`-th collective of these ranks (numbers of the world), or a message with `peer`."""

    operation: str
    ranks: tuple[int, ...]
    number: int
    peer: int | None
    since: float


_calls: dict[int, Call] = {}  # by thread
silent: dict[tuple[int, ...], list[int]] = {}  # by the ranks of a collective that is waited in: who is not heard of
others: Callable[[], Mapping[int, Mapping[str, Any]]] = dict  # rows of the ranks that a launcher hears, by rank
_counts: dict[tuple[int, ...], int] = {}  # how many collectives of these ranks this process has come to


def come(operation: str, ranks: tuple[int, ...], peer: int | None) -> Call:
    """This process begins with a collective, or with a message."""
    number = 0
    if peer is None:
        number = _counts[ranks] = _counts.get(ranks, 0) + 1
    return Call(operation, ranks, number, peer, time.time())


@contextmanager
def inside(call: Call | None) -> Iterator[None]:
    """While this thread waits for it; None: nobody is waited for."""
    if call is None:
        yield
        return
    thread = threading.get_ident()
    before = _calls.get(thread)
    _calls[thread] = call
    try:
        yield
    finally:
        if before is None:
            _calls.pop(thread, None)
        else:
            _calls[thread] = before


def row() -> dict[str, Any]:
    """Where this process is: the line of its main thread, how many collectives it came to, and those it waits in.

    >>> row()["calls"]
    []
    """
    frames, main = sys._current_frames(), threading.main_thread().ident or 0
    calls = [{"operation": call.operation, "ranks": call.ranks, "number": call.number, "peer": call.peer,
              "since": call.since, "silent": silent.get(call.ranks, []),
              "line": line_of(frames.get(thread))} for thread, call in _calls.copy().items()]
    return {"line": line_of(frames.get(main)), "calls": calls,
            "counts": [[*ranks, number] for ranks, number in _counts.copy().items()]}


def line_of(frame: FrameType | None) -> str:
    """`file:line` of the innermost frame that is neither Morpho's nor a library's, or of the innermost at all.

    >>> line_of(None)
    ''
    """
    first = frame
    while frame is not None:
        name = frame.f_code.co_filename
        if not (name.startswith(("<", _PACKAGE, *_LIBRARIES)) or known_files.get(name, False)):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "" if first is None else f"{first.f_code.co_filename}:{first.f_lineno}"
