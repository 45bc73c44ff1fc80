"""`Trace`: one profile of one process (or several ranks', merged) as plain data.

This is the seam between recording and everything that reads: the analyser, the reports and the tests know nothing
else. Times are seconds from the beginning of the profile, totals are exact, and events may be cut off when there were
too many (`dropped`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from morpho.base.checks import as_path
from morpho.base.errors import ArgumentError, fail
from morpho.weights.atomic import write_text

VERSION = 1
KINDS = ("kernel", "host", "collective")
CATEGORIES = ("kernels", "host", "network", "data", "transfer", "device", "compile", "trace", "launch", "python")
MOST_FILE_BYTES = 1 << 30
MOST_NUMBER = 1e24


@dataclass
class OpRow:
    """One step of a compiled program, over all its calls."""

    name: str  # the operations in it: matmul+relu
    line: str = ""  # of the user's program
    program: str = ""  # the compiled function's name, or "eager"
    kind: str = "kernel"  # one of `KINDS`
    sizes: str = ""
    calls: int = 0
    seconds: float = 0.0
    busy_s: float = 0.0  # of all threads together
    threads: int = 1  # that could have worked on it
    shared_s: float = 0.0  # of the time in which it was divided among threads
    tail_s: float = 0.0  # that threads wait for the last of them in any case: the best call's share of all calls' time
    flops: float = 0.0  # of all calls together
    bytes: float = 0.0
    limit_s: float = 0.0  # what the machine's peaks allow: the roofline
    bound: str = ""  # which peak that is: "compute" or "memory"
    product: bool = False  # a matrix product or convolution
    dtype: str = ""
    apart: bool = False  # reads across rows: strides of a cache line and more
    takes: str = ""  # dtypes and sizes of the arrays that its compiled function takes, with commas between
    gives: str = ""  # ... and of those that it gives
    gathers: bool = False  # reads elements by index
    parts: int = 0  # equal ones that threads take, none of which is divided; 0: as many as they like, or not known
    rank: int = 0

    @property
    def share(self) -> float:
        """Of the roofline that it reached; 0 where nobody knows the limit."""
        return min(self.limit_s / self.seconds, 1.0) if self.seconds else 0.0

    @property
    def threads_busy(self) -> float:
        """Threads at work on average."""
        return self.busy_s / self.seconds if self.seconds else 0.0


@dataclass
class SpanRow:
    """A span of Python: a compilation, a wait for data, a collective, a copy."""

    kind: str
    name: str
    thread: int
    start_s: float
    seconds: float
    detail: dict[str, Any] = field(default_factory=dict)
    rank: int = 0


@dataclass
class EventRow:
    """A native event, for the timeline."""

    kind: str  # "run", "step", "work"
    name: str
    thread: int
    start_s: float
    seconds: float
    op: int = -1  # number among `ops`
    rank: int = 0


@dataclass
class MemoryRow:
    """Memory at a moment: what tensors hold, and the process's resident set."""

    at_s: float
    live_bytes: int
    rss_bytes: int


@dataclass
class Trace:
    """Everything one profile found out."""

    name: str = "profile"
    wall_s: float = 0.0
    ops: list[OpRow] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of the calling thread, by `CATEGORIES`
    counters: dict[str, float] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    spans: list[SpanRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    threads: dict[int, str] = field(default_factory=dict)
    memory: list[MemoryRow] = field(default_factory=list)
    peak_bytes: int = 0
    peak_s: float = 0.0
    holders: list[tuple[str, int, int]] = field(default_factory=list)  # at the peak: line, bytes, blocks
    stacks: dict[str, float] = field(default_factory=dict)  # sampled Python stacks "a;b;c" -> seconds
    lines: dict[str, float] = field(default_factory=dict)  # where no Morpho was at work: "path:line library" -> seconds
    dropped: int = 0  # events that are in the totals and not in `events`
    lost: int = 0  # events written over before they were read: in no total
    rank: int = 0
    ranks: int = 1
    host: str = ""
    started_unix_s: float = 0.0
    clock_offset_s: float = 0.0  # to be added to times for those of rank 0
    clock_error_s: float = 0.0
    version: int = VERSION

    def as_json(self) -> dict[str, Any]:
        """Plain dicts and lists."""
        return asdict(self)

    def save(self, path: str | Path) -> Path:
        """Write it as JSON, from which `Trace.load` reads it again."""
        where = as_path("profile", "path", path)
        write_text(where, json.dumps(self.as_json()))
        return where

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read what `save` wrote."""
        where = as_path("profile", "path", path)
        if where.stat().st_size > MOST_FILE_BYTES:
            raise fail(ArgumentError, "profile", f"{where} has more than {MOST_FILE_BYTES >> 30} GiB", line="")
        try:
            read = json.loads(where.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise fail(ArgumentError, "profile", f"{where} is no trace: {error}", line="") from None
        return Trace.of(read, str(where))

    @staticmethod
    def of(read: Any, origin: str = "the trace") -> Trace:
        """A trace from plain data; an error says what does not belong."""
        if not isinstance(read, dict) or read.get("version") != VERSION:
            raise fail(ArgumentError, "profile", f"{origin} is no trace of version {VERSION}",
                       "profile again; a Perfetto file cannot be read back", line="")
        lists = {"ops": OpRow, "spans": SpanRow, "events": EventRow, "memory": MemoryRow}
        known: dict[str, Any] = {}
        for name, value in _known(Trace, read, origin).items():
            if name in lists:
                known[name] = [lists[name](**_known(lists[name], row, origin)) for row in value]
            elif name == "threads":
                known[name] = {int(number): text for number, text in value.items()}
            elif name == "holders":
                known[name] = [(line, nbytes, blocks) for line, nbytes, blocks in value]
            else:
                known[name] = value
        found = Trace(**known)
        odd = next((row.kind for row in found.ops if row.kind not in KINDS), None)
        if odd is not None:
            raise fail(ArgumentError, "profile", f"{origin}: an operation is of kind {odd!r}, none of {KINDS}", line="")
        if not found.wall_s > 0 and (found.ops or found.seconds):
            raise fail(ArgumentError, "profile", f"{origin}: it took {found.wall_s} s, and has times within", line="")
        return found


def _known(kind: type, read: Any, origin: str) -> dict[str, Any]:
    """The fields of a record; a field that there is none of is an error."""
    if not isinstance(read, Mapping):
        raise fail(ArgumentError, "profile", f"{origin}: a {kind.__name__} is {type(read).__name__}, not a record",
                   line="")
    hints = _hints(kind)
    for name, value in read.items():
        if name not in hints:
            raise fail(ArgumentError, "profile", f"{origin}: a {kind.__name__} has no field {name!r}", line="")
        if not _fits(hints[name], value):
            raise fail(ArgumentError, "profile", f"{origin}: {name} of a {kind.__name__} is {repr(value)[:80]}, not a "
                                                 f"{getattr(hints[name], '__name__', hints[name])}", line="")
    for each in fields(kind):
        if each.default is MISSING and each.default_factory is MISSING and each.name not in read:
            raise fail(ArgumentError, "profile", f"{origin}: a {kind.__name__} has no {each.name}", line="")
    return dict(read)


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _is_number(key: str) -> bool:
    return key.isascii() and key.isdecimal() and len(key) < 21


def _fits(hint: Any, value: Any) -> bool:
    """Whether JSON's value is one of a field of this type; numbers are finite and of a size that sums have."""
    outer, inner = get_origin(hint), get_args(hint)
    if hint is float:
        return type(value) in (int, float) and abs(value) < MOST_NUMBER
    if hint is int:
        return type(value) is int and abs(value) < MOST_NUMBER
    if outer is list and is_dataclass(inner[0]):
        return isinstance(value, list)  # its records are looked at one by one
    if outer is list:
        return isinstance(value, list) and all(_fits(inner[0], each) for each in value)
    if outer is tuple:
        return isinstance(value, list | tuple) and len(value) == len(inner) and all(map(_fits, inner, value))
    if outer is dict and inner[0] is int:  # JSON's keys are texts
        return isinstance(value, dict) and all(map(_is_number, map(str, value))) and all(
            _fits(inner[1], each) for each in value.values())
    if outer is dict:
        return isinstance(value, dict) and (inner[1] is Any or all(_fits(inner[1], each) for each in value.values()))
    return isinstance(value, hint)
