"""Perfetto's own format, read by somebody else: the descriptors that Google publishes, in the package `perfetto`."""

from __future__ import annotations

from pathlib import Path

import pytest

import morpho as mo
from morpho.observe.export import perfetto
from morpho.observe.export.pftrace import encode
from morpho.observe.trace.model import EventRow, MemoryRow, SpanRow, Trace

protocol = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2",
                               reason="the package perfetto is not installed")


def written() -> Trace:
    """Two ranks, nested and touching slices, one of no length, odd names, memory."""
    trace = Trace("odd \udc80 name", 1.0, ranks=2, threads={1: "main", 2: "worker"})
    trace.events = [EventRow("run", "f", 1, 0.1, 0.5, -1), EventRow("step", "exp", 1, 0.1, 0.2, -1),
                    EventRow("step", "tanh", 1, 0.3, 0.3, -1), EventRow("work", "exp", 2, 0.1, 0.0, -1),
                    EventRow("run", "g", 1, 0.6, 0.1, -1)]
    trace.events[-1].rank = 1
    trace.spans = [SpanRow("device", "cuda:0: gemm", 0, -0.25, 0.5, {"device": "cuda:0", "on_device": True, "n": -3,
                                                                     "share": 0.5, "line": "a.py:1"})]
    trace.memory = [MemoryRow(0.0, 100, 1 << 40), MemoryRow(0.5, 200, 1 << 41)]
    return trace


def profiled() -> Trace:
    f = mo.compile(lambda x: mo.softmax(x @ x, axis=-1))
    x = mo.ones((64, 64))
    f(x)
    with mo.profile() as p:
        for _ in range(20):
            f(x)
        (mo.exp(x) + 1).realise()
    return p.trace


@pytest.mark.parametrize("make", [written, profiled])
def test_what_is_written_is_what_the_published_format_reads(make: object) -> None:
    trace = make()  # type: ignore[operator]
    read = protocol.Trace.FromString(encode(trace))
    assert read.packet[0].sequence_flags == 1
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in read.packet
              if packet.HasField("track_descriptor")}
    found, open_, last = [], {}, 0
    for packet in read.packet:
        assert packet.trusted_packet_sequence_id == 1 and not packet.ListFields()[0][0].name.startswith("unknown")
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert packet.timestamp >= last and event.track_uuid in tracks  # in order, on a track that was described
        last = packet.timestamp
        if event.type == protocol.TrackEvent.TYPE_SLICE_BEGIN:
            open_.setdefault(event.track_uuid, []).append((event.name, packet.timestamp, list(event.categories)))
        elif event.type == protocol.TrackEvent.TYPE_SLICE_END:
            name, begun, categories = open_[event.track_uuid].pop()
            found.append((name, begun, packet.timestamp - begun, categories[0]))
    assert not any(open_.values())  # every slice ends
    expected = [event for event in perfetto.events(trace) if event["ph"] == "X"]
    shift = min(0, *(round(1000 * event["ts"]) for event in expected))
    assert sorted(found) == sorted((event["name"], round(1000 * event["ts"]) - shift, round(1000 * event["dur"]),
                                    event["cat"]) for event in expected)


def test_names_counters_and_notes_are_there() -> None:
    read = protocol.Trace.FromString(encode(written()))
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in read.packet
              if packet.HasField("track_descriptor")}
    processes = [track.process.process_name for track in tracks.values() if track.HasField("process")]
    assert sorted(processes) == ["rank 0", "rank 1"]
    assert {"main", "worker", "cuda:0", "tensors_bytes"} <= {track.name for track in tracks.values()}
    counted = [packet.track_event.counter_value for packet in read.packet
               if packet.track_event.type == protocol.TrackEvent.TYPE_COUNTER]
    assert sorted(counted) == [100, 200, 1 << 40, 1 << 41]
    (device,) = [packet.track_event for packet in read.packet if packet.track_event.name == "device: cuda:0: gemm"]
    notes = {note.name: note for note in device.debug_annotations}
    assert notes["n"].int_value == -3 and notes["share"].double_value == 0.5 and notes["on_device"].bool_value
    assert notes["line"].string_value == "a.py:1"


def test_a_file_by_its_ending(tmp_path: Path) -> None:
    from morpho.observe.export.files import save

    path = save(written(), tmp_path / "trace.pftrace")
    assert protocol.Trace.FromString(path.read_bytes()).packet
