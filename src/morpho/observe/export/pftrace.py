"""A trace in Perfetto's own format: protocol buffers, which ui.perfetto.dev, `trace_processor` and SQL over it open.

The fields are those of `perfetto/trace/trace_packet.proto` and its neighbours, as published; a test reads what is
written here with the descriptors that Google publishes. Every rank is a process; tracks are those of `perfetto.py`, so
that slices of a track nest: each is a `TYPE_SLICE_BEGIN` and a `TYPE_SLICE_END`. Memory is two counter tracks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from morpho.observe.export.perfetto import events as json_events
from morpho.observe.trace.model import Trace
from morpho.weights.atomic import write_bytes

SEQUENCE = 1  # all packets are of one writer
CLEARED = 1  # SEQ_INCREMENTAL_STATE_CLEARED, of the first packet
BEGIN, END, COUNTER = 1, 2, 4  # TrackEvent.Type
BYTES_UNIT = 3  # CounterDescriptor.Unit.UNIT_SIZE_BYTES


def varint(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first; a negative one as 64 bits.

    >>> varint(300).hex()
    'ac02'
    """
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | str | bytes | float) -> bytes:
    """One field: numbers as varints, floats as 64 bits, texts and messages with their length."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def _packet(content: bytes, at_ns: int | None = None) -> bytes:
    time = b"" if at_ns is None else field(8, at_ns)
    return field(1, time + field(10, SEQUENCE) + content)


def _annotation(name: str, value: Any) -> bytes:
    """A `DebugAnnotation`: shown beside a slice."""
    if isinstance(value, bool):
        return field(4, field(10, name) + field(2, int(value)))
    if isinstance(value, int):
        return field(4, field(10, name) + field(4, value))
    if isinstance(value, float):
        return field(4, field(10, name) + field(5, value))
    return field(4, field(10, name) + field(6, str(value)))


def _track(uuid: int, content: bytes) -> bytes:
    return _packet(field(60, field(1, uuid) + content))


def _tracks(found: list[dict[str, Any]]) -> Iterator[bytes]:
    """Descriptors of processes, of their tracks (which are no threads of the system), and of the counters of memory."""
    for event in found:
        if event["ph"] == "M" and event["name"] == "process_name":
            name, pid = event["args"]["name"], event["pid"]
            yield _track(_uuid(pid, 0), field(3, field(1, pid + 1) + field(6, name)))
    for event in found:
        if event["ph"] == "M" and event["name"] == "thread_name":
            yield _track(_uuid(event["pid"], event["tid"]),
                         field(5, _uuid(event["pid"], 0)) + field(2, event["args"]["name"]))
    for pid, name in sorted({(event["pid"], name) for event in found if event["ph"] == "C" for name in event["args"]}):
        yield _track(_counter(pid, name), field(5, _uuid(pid, 0)) + field(2, name) + field(8, field(3, BYTES_UNIT)))


def _uuid(pid: int, tid: int) -> int:
    return (pid + 1) << 32 | tid + 1


def _counter(pid: int, name: str) -> int:
    return (pid + 1) << 32 | 1 << 31 | sum(name.encode()) + 1


def encode(trace: Trace) -> bytes:
    """The whole file."""
    found = json_events(trace)
    parts = [_packet(field(13, CLEARED)), *_tracks(found)]
    stamped: list[tuple[int, int, int, bytes]] = []  # time, ends before begins, order, event
    for event in found:
        at_ns = round(1000 * event["ts"])
        if event["ph"] == "C":
            for name, value in event["args"].items():
                track = field(11, _counter(event["pid"], name))
                stamped.append((at_ns, 2, 0, field(9, COUNTER) + track + field(30, int(value))))
        elif event["ph"] == "X":
            track = field(11, _uuid(event["pid"], event["tid"]))
            long = round(1000 * event["dur"])
            notes = b"".join(_annotation(name, value) for name, value in event["args"].items())
            begin = field(9, BEGIN) + track + field(22, event["cat"]) + field(23, event["name"]) + notes
            if long:
                stamped += [(at_ns, 1, -long, begin), (at_ns + long, 0, 0, field(9, END) + track)]
            else:  # begins and ends at once: both in place, so that no other comes between
                stamped.append((at_ns, 1, 0, begin))
                stamped.append((at_ns, 1, 1, field(9, END) + track))
    least = min((at_ns for at_ns, *_ in stamped), default=0)
    stamped.sort(key=lambda row: row[:3])
    return b"".join([*parts, *(_packet(field(11, content), at_ns - min(least, 0)) for at_ns, _, _, content in stamped)])


def write(trace: Trace, path: str | Path) -> Path:
    """Write it; `ui.perfetto.dev` and `trace_processor` open it."""
    where = Path(path)
    write_bytes(where, encode(trace))
    return where
