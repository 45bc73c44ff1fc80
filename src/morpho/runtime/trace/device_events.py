"""When queued work of a device began and ended.

A device that stamps its work says so itself, in its own clock (`backends.base.StampedEvent`, `ClockedBackend`), which
is laid beside the host's. Of any other it is seen from the host: its queue is in order, so a run begins when it was
queued or when the one before it was over. Nothing is watched, and nothing stamped, while nobody records.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from morpho.backends.base import ClockedBackend, Event, StampedEvent
from morpho.backends.registry import backend_of
from morpho.ir.graph import Graph
from morpho.runtime.trace import spans
from morpho.runtime.trace.device_clock import DeviceClock

_queue: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_last_ns: dict[str, int] = {}  # when the last run of a device was over, as the host saw it
_clocks: dict[str, DeviceClock] = {}  # of devices that stamp, while somebody records
_stamped: list[tuple[Any, ...]] = []  # (into, device, name, line, stamps): until the clocks are looked at again


def watch(event: Event, device: str, graph: Graph) -> None:
    """Note a run that was just queued, if somebody records."""
    global _thread
    if spans.sink is None:
        return
    if device not in _clocks and isinstance(backend := backend_of(device), ClockedBackend):
        backend.stamping = True  # from the next run on
        _clocks[device] = DeviceClock(backend.device_ns)
        _clocks[device].look()
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_wait_for_all, daemon=True, name="morpho-device-events")
        _thread.start()
    line = graph.outputs[0].origin if graph.outputs else ""
    _queue.put((spans.sink, event, device, f"{len(graph.nodes)} nodes", line, time.perf_counter_ns()))


def settle() -> None:
    """Return when everything noted so far is over and recorded; devices stop stamping."""
    if _thread is not None and _thread.is_alive():
        over = threading.Event()
        _queue.put((over,))
        over.wait()


def _wait_for_all() -> None:
    while True:
        into, *told = _queue.get()
        if not told:
            _align()
            into.set()
            continue
        event, device, name, line, queued_ns = told
        try:
            event.wait()
        except Exception:  # whoever asks for the value is told; its end is an end
            pass
        end = time.perf_counter_ns()
        stamps = list(event.stamps()) if device in _clocks and isinstance(event, StampedEvent) else []
        if stamps:
            _stamped.append((into, device, name, line, stamps))
        else:
            start = max(queued_ns, _last_ns.get(device, 0))
            into.append(spans.Span("device", f"{device}: {name}", start, end, 0,
                                   {"device": device, "line": line, "queued_ns": start - queued_ns, "on_device": True}))
        _last_ns[device] = end


def _align() -> None:
    """Look at the clocks once more, and lay the stamps beside the host's time."""
    for clock in _clocks.values():
        clock.look()
    for into, device, name, line, stamps in _stamped:
        clock = _clocks[device]
        for what, start_ns, end_ns in stamps:
            into.append(spans.Span("device", f"{device}: {what or name}", clock.host_ns(start_ns),
                                   clock.host_ns(end_ns), 0, {"device": device, "line": line, "on_device": True,
                                                              "clock_error_ns": clock.error_ns}))
    _stamped.clear()
    for device in _clocks:
        backend = backend_of(device)
        if isinstance(backend, ClockedBackend):
            backend.stamping = False
    _clocks.clear()
