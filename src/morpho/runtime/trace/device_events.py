"""When queued work of a device began and ended. A device with a clock of its own (`clock_mark`, `clock_seconds` of its
backend) says so itself; of others it is seen from the host: their queue is in order, so a run begins when it was queued
or when the one before it was over. Nothing is watched while nobody records."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from morpho.backends.base import Event
from morpho.base.errors import DeviceError
from morpho.ir.graph import Graph
from morpho.runtime.trace import spans

_queue: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_clocks: dict[str, Clock] = {}
_last_ns: dict[str, int] = {}  # when the last run of a device was over


class Clock:
    """A device's clock beside the host's: one point of both, from which on others are counted."""

    def __init__(self, backend: Any) -> None:
        self.backend, self.zero = backend, backend.clock_mark()
        backend.clock_seconds(self.zero, self.zero)  # waits for it
        self.host_ns = time.perf_counter_ns()

    def nanoseconds(self, mark: Any) -> int:
        """A point of the device's queue that is over, on the host's clock."""
        seconds: float = self.backend.clock_seconds(self.zero, mark)
        return self.host_ns + round(1e9 * seconds)


def begin(backend: Any, device: str) -> Any:
    """A mark of the device's clock before a run, if somebody records and it has one."""
    if spans.sink is None or not hasattr(backend, "clock_mark"):
        return None
    if device not in _clocks or _clocks[device].backend is not backend:
        _clocks[device] = Clock(backend)
    return backend.clock_mark()


def watch(event: Event, device: str, graph: Graph, begun: Any = None) -> None:
    """Note a run that was just queued, if somebody records; `begun` is what `begin` gave before."""
    global _thread
    if spans.sink is None:
        return
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_wait_for_all, daemon=True, name="morpho-device-events")
        _thread.start()
    line = graph.outputs[0].origin if graph.outputs else ""
    marks = None if begun is None else (begun, _clocks[device].backend.clock_mark())
    _queue.put((spans.sink, event, device, f"{len(graph.nodes)} nodes", line, time.perf_counter_ns(), marks))


def settle() -> None:
    """Return when everything noted so far is over and recorded."""
    if _thread is not None and _thread.is_alive():
        over = threading.Event()
        _queue.put((over,))
        over.wait()


def _wait_for_all() -> None:
    while True:
        into, *told = _queue.get()
        if not told:
            into.set()
            continue
        event, device, name, line, queued_ns, marks = told
        try:
            event.wait()
        except Exception:  # whoever asks for the value is told; its end is an end
            pass
        end = time.perf_counter_ns()
        start = max(queued_ns, _last_ns.get(device, 0))
        if marks is not None:
            try:
                start, end = map(_clocks[device].nanoseconds, marks)
            except DeviceError:  # a device that is lost has no clock; what the host saw stands
                marks = None
        _last_ns[device] = end
        into.append(spans.Span("device", f"{device}: {name}", start, end, 0,
                               {"device": device, "line": line, "queued_ns": max(start - queued_ns, 0),
                                "on_device": True, "clock": "host" if marks is None else "device"}))
