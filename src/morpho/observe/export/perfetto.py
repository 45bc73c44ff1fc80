"""A trace in the Trace Event Format (JSON), which ui.perfetto.dev and chrome://tracing open.

Every rank is a process. A thread has up to two tracks, one for native code and one for Python's spans, so that events
of a track always nest; a device's queue has one of its own. Memory is a counter.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from morpho.observe.trace.model import Trace
from morpho.weights.atomic import write_text


def events(trace: Trace) -> list[dict[str, Any]]:
    """The list `traceEvents`: metadata, complete events (`X`) and counters (`C`), by time; microseconds."""
    tracks = _Tracks(trace)
    found: list[dict[str, Any]] = []
    for one in trace.events:
        args: dict[str, Any] = {}
        if one.op >= 0 and one.kind == "step":
            row = trace.ops[one.op]
            args = {"line": row.line, "program": row.program, "sizes": row.sizes,
                    "share of roofline": round(row.share, 3), "bound": row.bound}
        found.append(_complete(one.name, one.kind, one.start_s, one.seconds, one.rank,
                               tracks.number(one.rank, one.thread, "native"), args))
    for span in trace.spans:
        where = span.detail["device"] if span.detail.get("on_device") else "python"
        track = tracks.number(span.rank, span.thread, where)
        found.append(_complete(f"{span.kind}: {span.name}", span.kind, span.start_s, span.seconds, span.rank, track,
                               {name: value for name, value in span.detail.items() if _is_plain(value)}))
    for sample in trace.memory:
        found.append({"name": "memory", "ph": "C", "ts": 1e6 * sample.at_s, "pid": trace.rank, "tid": 0,
                      "args": {"tensors_bytes": sample.live_bytes, "resident_bytes": sample.rss_bytes}})
    found.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    return [*tracks.metadata(), *found]


class _Tracks:
    """Small numbers for (rank, thread, what runs there), with names."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._numbers: dict[tuple[int, int, str], int] = {}

    def number(self, rank: int, thread: int, what: str) -> int:
        return self._numbers.setdefault((rank, thread, what), len(self._numbers) + 1)

    def metadata(self) -> list[dict[str, Any]]:
        ranks = sorted({rank for rank, _, _ in self._numbers} | {self._trace.rank})
        found = [_meta("process_name", rank, 0, f"rank {rank}" if self._trace.ranks > 1 else self._trace.name)
                 for rank in ranks]
        for (rank, thread, what), number in self._numbers.items():
            name = self._trace.threads.get(thread, f"thread {thread}")
            label = name if what == "native" else f"{name}: Python" if what == "python" else what
            found.append(_meta("thread_name", rank, number, label))
        return found


def _meta(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": {"name": name}}


def _complete(name: str, category: str, start_s: float, seconds: float, pid: int, tid: int,
              args: dict[str, Any]) -> dict[str, Any]:
    first, last = round(1e9 * start_s), round(1e9 * (start_s + max(seconds, 0.0)))  # whole nanoseconds: neighbours meet
    return {"name": name, "cat": category, "ph": "X", "ts": first / 1000, "dur": (last - first) / 1000, "pid": pid,
            "tid": tid, "args": args}


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool) or (isinstance(value, list) and all(map(_is_plain, value)))


def as_json(trace: Trace) -> dict[str, Any]:
    """The object form of the format."""
    return {"traceEvents": events(trace), "displayTimeUnit": "ns",
            "otherData": {"name": trace.name, "wall_s": trace.wall_s, "dropped": trace.dropped, **{
                name: value for name, value in trace.machine.items() if _is_plain(value)}}}


def write(trace: Trace, path: str | Path) -> Path:
    """Write it; drop the file on ui.perfetto.dev."""
    where = Path(path)
    write_text(where, json.dumps(as_json(trace)))
    return where
