"""Spans of Python: compiling, realising, waiting for data, for the network, for copies. Off, each costs one comparison.

>>> with recording() as spans:
...     with span("data", "next batch"):
...         pass
>>> spans[0].kind, spans[0].name
('data', 'next batch')
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ContextManager, NamedTuple

KINDS = ("compile", "trace", "realise", "data", "network", "transfer", "device", "user")
MOST_SPANS = 1 << 20  # kept of one recording; later ones are counted


class Span(NamedTuple):
    """What a thread did for a while, in nanoseconds of `time.perf_counter_ns`."""

    kind: str  # one of `KINDS`
    name: str
    start_ns: int
    end_ns: int
    thread: int
    detail: dict[str, Any]


class Recording(list[Span]):
    """Spans in the order in which they ended."""

    dropped = 0


_steps = threading.local()  # .depth: how many host steps of programs this thread is in


def in_step() -> bool:
    """Whether this thread runs a step of a program, whose time that step has already."""
    return bool(getattr(_steps, "depth", 0))


@contextmanager
def step() -> Iterator[None]:
    """A step of a program that is Python's runs in this block."""
    _steps.depth = getattr(_steps, "depth", 0) + 1
    try:
        yield
    finally:
        _steps.depth -= 1


sink: Recording | None = None  # of the recording that is on
_NOTHING: ContextManager[dict[str, Any]] = nullcontext({})


def span(kind: str, name: str) -> ContextManager[dict[str, Any]]:
    """Record a block under a kind and a name; what is put into the dict it gives is shown beside it."""
    return _NOTHING if sink is None else _timed(sink, kind, name)


@contextmanager
def _timed(into: Recording, kind: str, name: str) -> Iterator[dict[str, Any]]:
    detail: dict[str, Any] = {}
    start = time.perf_counter_ns()
    try:
        yield detail
    finally:
        end = time.perf_counter_ns()
        if len(into) < MOST_SPANS:
            into.append(Span(kind, name, start, end, threading.get_ident(), detail))
        else:
            into.dropped += 1


@contextmanager
def recording() -> Iterator[Recording]:
    """Collect the spans of all threads while the block runs. One at a time: a second one takes over until it ends."""
    global sink
    before, sink = sink, Recording()
    try:
        yield sink
    finally:
        sink = before
