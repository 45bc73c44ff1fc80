"""Programs on any backend, through the seam alone: lower, compile, load once; then allocate and enqueue.

The CPU has a way of its own beside this one (`evaluate.py`, and the native entry above it): the same code, called
without Python between its kernels.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from morpho.backends.base import Executable
from morpho.backends.registry import HOST, backend_of, default_device, memory_of
from morpho.base import settings
from morpho.base.dims import evaluate
from morpho.base.errors import MemoryLimit
from morpho.cost.tuned_choices import NO_CHOICES
from morpho.ir.graph import Graph
from morpho.ir.op import changes as registry_changes
from morpho.ops.order import unmarked
from morpho.passes.pipeline import MARKS
from morpho.runtime import thresholds
from morpho.runtime.code_cache.cache import BoundedCache
from morpho.runtime.memory.buffer import Buffer, allocate
from morpho.runtime.memory.device_memory import DeviceMemory, Part, allocate_on, moved, part, upload
from morpho.runtime.trace import device_events

log = logging.getLogger("morpho")
counts = {"fallbacks": 0}  # runs that the CPU took over because a device had no memory left
_told: set[tuple[int, ...]] = set()  # programs of which that was said
NOTHING: Mapping[int, Buffer] = MappingProxyType({})
EXECUTABLE_BYTES = 16 << 20  # bytes of loaded executables kept per process
_executables: BoundedCache[tuple[Any, ...], tuple[Graph, Executable]] = BoundedCache(EXECUTABLE_BYTES, "executables")


def running(memory: str) -> str:
    """The device that computes on values in some memory (`""`: nowhere yet): that of the settings where it works on
    that memory, else the one whose memory it is."""
    chosen = default_device()
    if not memory:
        return chosen
    return chosen if memory_of(chosen) == memory else memory


def executable(graph: Graph, device: str) -> Executable:
    """The graph compiled by its device's backend, made once."""
    backend = backend_of(device)
    choices = thresholds.current().choices if hasattr(backend, "choices") else NO_CHOICES

    def make() -> tuple[Graph, Executable]:
        plain = unmarked(graph, MARKS)[0] if any(node.op.name in MARKS for node in graph.nodes) else graph
        if hasattr(backend, "choices"):
            backend.choices = choices
        return graph, backend.load(backend.compile(backend.lower(plain)))  # the graph is held: its identity is the key

    key = (tuple(node.serial for node in graph.outputs), device, id(backend), settings.get().level, settings.get().tf32,
           registry_changes(), choices)
    return _executables.get_or_create(key, make, lambda made: 2048 * (1 + len(made[0].nodes)))[1]


def own_program(graph: Graph, device: str) -> Any | None:
    """The executable of a device that shows the program it runs (`program`, `report`); None where it shows none."""
    found = executable(graph, device)
    return found if hasattr(found, "program") and hasattr(found, "report") else None


def run(graph: Graph, device: str, inputs: Sequence[Buffer], sizes: Mapping[str, int],
        into: Mapping[int, Buffer] = NOTHING) -> list[Buffer]:
    """Queue one run of a graph; its results are there when their memory's event is over. Where the device has no memory
    for it and the user says `fallback`, the CPU runs it. What lies nowhere is on the host still. `into` gives results
    their memory, by number: that of an input which the program may write over."""
    try:
        if memory_of(device) != HOST:
            inputs = [moved(buffer, device) if buffer.device == HOST else buffer for buffer in inputs]
        return _queued(graph, device, inputs, sizes, into)
    except MemoryLimit as error:
        if memory_of(device) == HOST or not settings.get().fallback:
            raise
        return _on_cpu(graph, device, inputs, sizes, error)


def _on_cpu(graph: Graph, device: str, inputs: Sequence[Buffer], sizes: Mapping[str, int],
            error: MemoryLimit) -> list[Buffer]:
    """The same on the host: operands come here, results go back to their device. Counted, and said once a program."""
    counts["fallbacks"] += 1
    said = tuple(node.serial for node in graph.outputs)
    if said not in _told:
        _told.add(said)
        log.warning("a program of %d operations runs on the CPU instead of %s: %s", len(graph.nodes), device, error)
    arrays = [buffer.numpy() for buffer in inputs]  # laid out as they are there
    given = [Part(HOST, array.nbytes, int(array.ctypes.data), array) for array in arrays]
    shapes = [tuple(evaluate(size, sizes) for size in node.shape) for node in graph.outputs]
    results = [allocate(shape, node.dtype) for shape, node in zip(shapes, graph.outputs, strict=True)]
    executable(graph, HOST).enqueue(given, [part(buffer) for buffer in results], sizes).wait()
    return [upload(buffer.numpy(), buffer.dtype, device) for buffer in results]


def _queued(graph: Graph, device: str, inputs: Sequence[Buffer], sizes: Mapping[str, int],
            into: Mapping[int, Buffer]) -> list[Buffer]:
    found = executable(graph, device)
    shapes = [tuple(evaluate(size, sizes) for size in node.shape) for node in graph.outputs]
    host = memory_of(device) == HOST
    results = [into[number] if number in into else
               allocate(shape, node.dtype) if host else allocate_on(device, shape, node.dtype)
               for number, (shape, node) in enumerate(zip(shapes, graph.outputs, strict=True))]
    begun = device_events.begin(backend_of(device), device)
    event = found.enqueue([part(buffer) for buffer in inputs], [part(buffer) for buffer in results], sizes)
    device_events.watch(event, device, graph, begun)
    if host:
        event.wait()  # what is in the host's memory may be read at any time
    else:
        for buffer in results:
            memory: DeviceMemory = buffer.storage
            memory.event = event
    return results


def realise(graph: Graph, inputs: Sequence[Buffer], device: str) -> list[Buffer]:
    """The values of a program without dynamic sizes."""
    return run(graph, device, inputs, {})
