"""A device of the tests' own: memory that NumPy cannot see, a queue that runs late, on threads, in order per stream.

It keeps the seam honest: whoever above it reads through an address finds nothing there, and whoever assumes that a call
has finished reads what was there before.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.backends import registry
from morpho.backends.base import Buffer, Bytes
from morpho.backends.reference import reference
from morpho.backends.reference.backend import parameter_layout
from morpho.base.machine import choose_isa, machine
from morpho.base.target import Target
from morpho.ir.graph import Graph
from morpho.ir.serialise import dump_graph, load_graph

DELAY_S = 2e-4
FAR = 1 << 48  # addresses begin where no process has memory
ROOM = 1 << 40  # between allocations


@dataclass(frozen=True)
class DelayedBuffer:
    device: str
    nbytes: int
    address: int
    owner: Any


class DelayedEvent:
    def __init__(self) -> None:
        self.over, self.error, self.seen = threading.Event(), None, False

    def done(self) -> bool:
        return self.over.is_set()

    def wait(self) -> None:
        self.over.wait()
        if self.error is not None:
            self.seen = True
            raise self.error


class DelayedBackend:
    host_memory = False

    def __init__(self, number: int) -> None:
        self.device = f"delayed:{number}"
        self.target = Target("delayed", choose_isa("scalar", machine()), machine(), 1)
        self.memory: dict[int, bytearray] = {}
        self.failed: dict[int, Exception] = {}  # by allocation: what was to be written there and was not
        self.numbers = itertools.count(1)
        self.streams: dict[int, queue.Queue[Any]] = {}
        self.events: list[DelayedEvent] = []
        self.lock = threading.Lock()
        self.runs = 0

    # -- memory --------------------------------------------------------------------------------------------------------
    def allocate(self, nbytes: int) -> DelayedBuffer:
        address = FAR + next(self.numbers) * ROOM
        self.memory[address] = bytearray(b"\xa5" * nbytes)
        return DelayedBuffer(self.device, nbytes, address, self)

    def release(self, buffer: Buffer) -> None:
        self._queue(0, lambda: (self.memory.pop(buffer.address), self.failed.pop(buffer.address, None)))

    def _find(self, address: int) -> tuple[int, int]:
        base = FAR + (address - FAR) // ROOM * ROOM
        return base, address - base

    def read(self, address: int, nbytes: int) -> bytes:
        base, offset = self._find(address)
        if base in self.failed:
            raise self.failed[base]
        assert 0 <= offset <= offset + nbytes <= len(self.memory[base]), "a read outside its allocation"
        return bytes(self.memory[base][offset:offset + nbytes])

    def write(self, address: int, data: bytes) -> None:
        base, offset = self._find(address)
        assert 0 <= offset <= offset + len(data) <= len(self.memory[base]), "a write outside its allocation"
        self.memory[base][offset:offset + len(data)] = data
        self.failed.pop(base, None)

    def copy_in(self, target: Buffer, source: Bytes, stream: int = 0) -> DelayedEvent:
        data = bytes(source)
        return self._queue(stream, lambda: self.write(target.address, data))

    def copy_out(self, source: Buffer, target: Any, stream: int = 0) -> DelayedEvent:
        def copy() -> None:
            memoryview(target).cast("B")[:source.nbytes] = self.read(source.address, source.nbytes)

        return self._queue(stream, copy)

    def copy_between(self, source: Buffer, target: Buffer, stream: int = 0) -> DelayedEvent:
        return self._queue(stream, lambda: self.write(target.address, self.read(source.address, source.nbytes)),
                           [target])

    # -- code ----------------------------------------------------------------------------------------------------------
    def lower(self, graph: Graph) -> Graph:
        return graph

    def compile(self, program: Graph) -> bytes:
        return dump_graph(program)

    def load(self, code: bytes) -> DelayedExecutable:
        return DelayedExecutable(load_graph(code), self)

    def synchronize(self) -> None:
        with self.lock:
            events, self.events = self.events, []
        for event in events:
            event.over.wait()
        for event in events:
            if event.error is not None and not event.seen:
                event.wait()

    # -- the queue -----------------------------------------------------------------------------------------------------
    def _queue(self, stream: int, job: Callable[[], Any], writes: Sequence[Buffer] = ()) -> DelayedEvent:
        event = DelayedEvent()
        with self.lock:
            if stream not in self.streams:
                self.streams[stream] = queue.Queue()
                threading.Thread(target=self._serve, args=(self.streams[stream],), daemon=True).start()
            self.events = [known for known in self.events if not known.done() or known.error] + [event]
            self.streams[stream].put((event, job, writes))
        return event

    def _serve(self, jobs: queue.Queue[Any]) -> None:
        while True:
            event, job, writes = jobs.get()
            time.sleep(DELAY_S)
            try:
                job()
            except Exception as error:  # of the device: it belongs to the event
                event.error = error
                for buffer in writes:
                    self.failed[self._find(buffer.address)[0]] = error
            del job, writes  # or they would hold memory until the next one comes
            event.over.set()


class DelayedExecutable:
    def __init__(self, graph: Graph, backend: DelayedBackend) -> None:
        self.graph, self.backend = graph, backend

    def enqueue(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], sizes: Mapping[str, int],
                stream: int = 0) -> DelayedEvent:
        held = [*inputs, *outputs]

        def run() -> None:
            self.backend.runs += 1
            found = reference.run_graph(self.graph.outputs, lambda node: self.leaf(node, held), sizes)
            for node, array, buffer in zip(self.graph.outputs, found, outputs, strict=True):
                rounded = reference.encode(reference.rounded(array, node.dtype), node.dtype)
                self.backend.write(buffer.address, np.ascontiguousarray(rounded).tobytes())

        self.sizes = sizes
        return self.backend._queue(stream, run, outputs)

    def leaf(self, node: Any, held: Sequence[Buffer]) -> np.ndarray:
        shape, strides = parameter_layout(node, self.sizes)
        item = node.dtype.itemsize
        low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True)) * item
        high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True)) * item
        if 0 in shape:
            return reference.decode(np.empty(shape, node.dtype.numpy), node.dtype)
        data = self.backend.read(held[node["index"]].address + low, high - low + item)
        array = np.ndarray(shape, node.dtype.numpy, data, -low, [s * item for s in strides])
        return reference.decode(array, node.dtype)


def install() -> None:
    """Make `delayed:0` and `delayed:1` known to this process."""
    if "delayed" not in registry._kinds:
        registry.register("delayed", DelayedBackend, count=lambda: 2, numbered=True)
