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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

KINDS = ("compile", "trace", "realise", "data", "network", "transfer", "device", "user")
FROM_ARRAY = "mo.asarray"  # a copy of NumPy's memory: a transfer within the host
MOST_SPANS = 1 << 20  # kept of one recording; later ones are counted


class Span(NamedTuple):
    """An activity of a thread, in nanoseconds of `time.perf_counter_ns`."""

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


def is_first_value() -> bool:
    """Whether this thread computes what a state begins with: what is compiled for that is compiled once."""
    return bool(getattr(_steps, "first", False))


@contextmanager
def first_value() -> Iterator[None]:
    """The first value of a parameter or state is computed in this block."""
    before, _steps.first = is_first_value(), True
    try:
        yield
    finally:
        _steps.first = before


sink: Recording | None = None  # of the recording that is on


class _Ignored(dict[str, Any]):
    """Takes what is told and keeps none of it."""

    def __setitem__(self, name: str, value: Any) -> None:
        pass

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        return self


_NOTHING: AbstractContextManager[dict[str, Any]] = nullcontext(_Ignored())


def span(kind: str, name: str, **detail: Any) -> AbstractContextManager[dict[str, Any]]:
    """Record a block under a kind and a name; `detail`, and what is put into the dict it gives, is shown beside it."""
    return _NOTHING if sink is None else _Timed(sink, kind, name, detail)


class _Timed:
    """A block that is being recorded."""

    __slots__ = ("_detail", "_into", "_kind", "_name", "_start")

    def __init__(self, into: Recording, kind: str, name: str, detail: dict[str, Any]) -> None:
        self._into, self._kind, self._name, self._detail = into, kind, name, detail

    def __enter__(self) -> dict[str, Any]:
        self._start = time.perf_counter_ns()
        return self._detail

    def __exit__(self, *error: object) -> None:
        end, into = time.perf_counter_ns(), self._into
        if len(into) < MOST_SPANS:
            into.append(Span(self._kind, self._name, self._start, end, threading.get_ident(), self._detail))
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
