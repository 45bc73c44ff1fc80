"""The backend behind `device="auto"`: tensors lie in the host's memory, and each program runs where it is expected to
be done first, its transfers counted (`choice.py`)."""

from __future__ import annotations

import ctypes
import json
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from morpho.backends.auto import manager
from morpho.backends.auto.choice import Choice, Rates, choose, moved_bytes
from morpho.backends.auto.measure import rates_of
from morpho.backends.base import FINISHED, Backend, Buffer, Bytes, Event, Executable
from morpho.backends.reference.backend import host_buffer, parameter_layout
from morpho.base import settings
from morpho.base.errors import ArgumentError, MemoryLimit, fail
from morpho.base.target import Target
from morpho.ir.graph import Graph
from morpho.ir.serialise import dump_graph, load_graph

log = logging.getLogger("morpho")
HOST, MAGIC = "cpu", b"morpho-auto-1\n"


@dataclass(frozen=True)
class Lowered:
    """A graph and the device chosen for it."""

    graph: Graph
    choice: Choice


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a device from an address on."""

    device: str
    nbytes: int
    address: int
    owner: Any


class AutoBackend:
    """Chooses among the CPU and the devices of `names()` that have memory of their own."""

    device, host_memory = "auto", True

    def __init__(self, backend_of: Callable[[str], Any], names: Callable[[], Sequence[str]]) -> None:
        self.backend_of, self.names = backend_of, names
        self.rates: dict[str, Rates] = {}
        self.runs: dict[str, int] = {}  # runs so far, by device
        self.fallbacks = 0  # runs that went to the CPU because a device had no memory left

    @property
    def target(self) -> Target:
        """The CPU's."""
        target: Target = self.backend_of(HOST).target
        return target

    # -- memory: the host's --------------------------------------------------------------------------------------------
    def allocate(self, nbytes: int) -> Buffer:
        """New memory of this process."""
        return host_buffer(self.device, nbytes)

    def release(self, buffer: Buffer) -> None:
        ...

    def copy_in(self, target: Buffer, source: Bytes, stream: int = 0) -> Event:
        return self.cpu.copy_in(target, source)

    def copy_out(self, source: Buffer, target: memoryview | bytearray, stream: int = 0) -> Event:
        return self.cpu.copy_out(source, target)

    def copy_between(self, source: Buffer, target: Buffer, stream: int = 0) -> Event:
        return self.cpu.copy_between(source, target)

    @property
    def cpu(self) -> Backend:
        """The host's."""
        found: Backend = self.backend_of(HOST)
        return found

    # -- code ----------------------------------------------------------------------------------------------------------
    def measured(self, device: str) -> Rates:
        """The rates of a device, measured when they are first asked for. An emulated one is never the faster, and
        measuring it takes minutes."""
        if device not in self.rates:
            slow = device.startswith("cuda_emulated")
            self.rates[device] = Rates(1e6, 1e6, 1e6, 1.0, 1e6, 1.0) if slow else rates_of(self.backend_of(device))
        return self.rates[device]

    def lower(self, graph: Graph) -> Lowered:
        """The graph and its device: of several GPUs the one with room and the least queued."""
        known = {HOST: self.measured(HOST)}
        states = manager.states([name for name in self.names() if name.partition(":")[0] != HOST], self.backend_of)
        fitting = [state for state in states if state.free_bytes >= 2 * moved_bytes(graph)]
        if fitting:
            best = manager.best_of(fitting, 0).device
            known[best] = self.measured(best)
        return Lowered(graph, choose(graph, known))

    def compile(self, program: Lowered) -> bytes:
        """The graph, its device, and that device's code."""
        inner: Any = self.backend_of(program.choice.device)
        code: bytes = inner.compile(inner.lower(program.graph))
        graph = dump_graph(program.graph)
        choice = program.choice
        head = json.dumps({"device": choice.device, "seconds": dict(choice.seconds), "flops": choice.flops,
                           "moved": choice.moved_bytes, "share": choice.gpu_share, "graph": len(graph)}).encode()
        return MAGIC + struct.pack("<Q", len(head)) + head + graph + code

    def load(self, code: bytes) -> AutoExecutable:
        """The program of those bytes."""
        if not code.startswith(MAGIC) or len(code) < len(MAGIC) + 8:
            raise fail(ArgumentError, "load", "the bytes are no code of the backend auto")
        (length,) = struct.unpack_from("<Q", code, len(MAGIC))
        start = len(MAGIC) + 8 + length
        head = json.loads(code[len(MAGIC) + 8:start])
        graph = load_graph(code[start:start + head["graph"]])
        choice = Choice(head["device"], head["seconds"], head["flops"], head["moved"], head["share"])
        inner = self.backend_of(choice.device).load(code[start + head["graph"]:])
        return AutoExecutable(self, graph, choice, inner)

    def synchronize(self) -> None:
        """Everything is over when its call returns."""


class AutoExecutable:
    """A program where it was put."""

    def __init__(self, backend: AutoBackend, graph: Graph, choice: Choice, inner: Executable) -> None:
        self.backend, self.graph, self.choice, self.inner = backend, graph, choice, inner
        self.other: Executable | None = None  # on the CPU, when the device had no memory

    @property
    def said(self) -> list[str]:
        """For `explain()`."""
        return [self.choice.said]

    def enqueue(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], sizes: Mapping[str, int],
                stream: int = 0) -> Event:
        """Run it; results are there when this returns."""
        device = self.choice.device
        try:
            if device == HOST:
                self.inner.enqueue(inputs, outputs, sizes).wait()
            else:
                self.elsewhere(self.backend.backend_of(device), inputs, outputs, sizes)
        except MemoryLimit as error:
            if device == HOST or not settings.get().fallback:
                raise
            self.on_cpu(inputs, outputs, sizes, error)
            device = HOST
        self.backend.runs[device] = self.backend.runs.get(device, 0) + 1
        return FINISHED

    def on_cpu(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], sizes: Mapping[str, int],
               error: MemoryLimit) -> None:
        """By the host instead; counted, and said at the first time."""
        cpu: Any = self.backend.cpu
        self.backend.fallbacks += 1
        if self.other is None:
            log.warning("a program of %d operations runs on the CPU instead of %s: %s", len(self.graph.nodes),
                        self.choice.device, error)
            self.other = cpu.load(cpu.compile(cpu.lower(self.graph)))
        self.other.enqueue(inputs, outputs, sizes).wait()

    def elsewhere(self, backend: Any, inputs: Sequence[Buffer], outputs: Sequence[Buffer],
                  sizes: Mapping[str, int]) -> None:
        """Operands there, a run, results back."""
        held: list[Any] = []
        given: dict[int, Any] = {}
        try:
            for node in self.graph.parameters:
                shape, strides = parameter_layout(node, sizes)
                if 0 in shape:
                    continue
                steps = [(n - 1) * s * node.dtype.itemsize for n, s in zip(shape, strides, strict=True)]
                low = sum(step for step in steps if step < 0)
                nbytes = sum(step for step in steps if step > 0) - low + node.dtype.itemsize
                buffer = backend.allocate(nbytes)
                held.append(buffer)
                origin = inputs[node["index"]].address + low
                backend.copy_in(buffer, memoryview((ctypes.c_uint8 * nbytes).from_address(origin)))
                given[node["index"]] = Span(backend.device, nbytes + low, buffer.address - low, buffer)
            made = [backend.allocate(max(output.nbytes, 1)) for output in outputs]
            held += made
            nothing = Span(backend.device, 0, 0, None)
            there = [Span(backend.device, output.nbytes, buffer.address, buffer)
                     for output, buffer in zip(outputs, made, strict=True)]
            self.inner.enqueue([given.get(n, nothing) for n in range(len(inputs))], there, sizes).wait()
            for output, buffer in zip(outputs, there, strict=True):
                if output.nbytes:
                    room = memoryview((ctypes.c_uint8 * output.nbytes).from_address(output.address))
                    backend.copy_out(buffer, room).wait()
        finally:
            for buffer in held:
                backend.release(buffer)
