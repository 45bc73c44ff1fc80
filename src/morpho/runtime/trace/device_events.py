"""When queued work of a device began and ended, seen from the host: its queue is in order, so a run begins when it was
queued or when the one before it was over. Nothing is watched while nobody records."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from morpho.backends.base import Event
from morpho.ir.graph import Graph
from morpho.runtime.trace import spans

_queue: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_last_ns: dict[str, int] = {}  # when the last run of a device was over


def watch(event: Event, device: str, graph: Graph) -> None:
    """Note a run that was just queued, if somebody records."""
    global _thread
    if spans.sink is None:
        return
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_wait_for_all, daemon=True, name="morpho-device-events")
        _thread.start()
    line = graph.outputs[0].origin if graph.outputs else ""
    _queue.put((spans.sink, event, device, f"{len(graph.nodes)} nodes", line, time.perf_counter_ns()))


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
        event, device, name, line, queued_ns = told
        try:
            event.wait()
        except Exception:  # whoever asks for the value is told; its end is an end
            pass
        end = time.perf_counter_ns()
        start = max(queued_ns, _last_ns.get(device, 0))
        _last_ns[device] = end
        into.append(spans.Span("device", f"{device}: {name}", start, end, 0,
                               {"device": device, "line": line, "queued_ns": start - queued_ns, "on_device": True}))
