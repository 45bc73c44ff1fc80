"""The CPU behind the seam: graph -> passes -> kernels -> object code -> a run on threads, over when it returns.

Compiled functions do not come this way: their native entry (`driver/`) calls the same kernels without Python between.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from morpho.backends.base import FINISHED, Buffer, Bytes, Event
from morpho.backends.code.compiler import code, llvm
from morpho.backends.driver.executable import Executable
from morpho.backends.kernels.generators import generate
from morpho.backends.lowering.lower_graph import build_program
from morpho.backends.reference.backend import host_buffer
from morpho.base import settings
from morpho.base.errors import ArgumentError, DeviceError, IndexFault, fail
from morpho.base.target import Target, current_target
from morpho.cost.dispatch_thresholds import DispatchThresholds, defaults_for
from morpho.ir.graph import Graph
from morpho.ir.serialise import dump_graph, load_graph
from morpho.passes.pipeline import optimise
from morpho.program.kernel import Kernel
from morpho.program.plan_memory import plan_memory
from morpho.program.program import HostStep, Program, Step

MAGIC = b"morpho-cpu-1\n"


@dataclass(frozen=True)
class Lowered:
    """A graph and the program it became."""

    graph: Graph
    program: Program
    level: int

    @property
    def inputs(self) -> int:
        """How many parameters it takes."""
        return 1 + max((node["index"] for node in self.graph.parameters), default=-1)


class CpuBackend:
    """This machine's processor."""

    device = "cpu"
    host_memory = True

    @property
    def target(self) -> Target:
        """Target of this machine under the current settings."""
        return current_target()

    # -- memory --------------------------------------------------------------------------------------------------------
    def allocate(self, nbytes: int) -> Buffer:
        """New memory of this process; tensors have theirs from the runtime's pool."""
        return host_buffer(self.device, nbytes)

    def release(self, buffer: Buffer) -> None:
        ...

    def copy_in(self, target: Buffer, source: Bytes, stream: int = 0) -> Event:
        data = bytes(memoryview(source).cast("B"))
        ctypes.memmove(target.address, data, len(data))
        return FINISHED

    def copy_out(self, source: Buffer, target: memoryview | bytearray, stream: int = 0) -> Event:
        memoryview(target).cast("B")[:source.nbytes] = ctypes.string_at(source.address, source.nbytes)
        return FINISHED

    def copy_between(self, source: Buffer, target: Buffer, stream: int = 0) -> Event:
        ctypes.memmove(target.address, source.address, source.nbytes)
        return FINISHED

    # -- code ----------------------------------------------------------------------------------------------------------
    def lower(self, graph: Graph) -> Lowered:
        """The graph after the passes of the level in force, as steps over slots."""
        return self._lowered(graph, settings.get().level)

    def _lowered(self, graph: Graph, level: int) -> Lowered:
        inputs = 1 + max((node["index"] for node in graph.parameters), default=-1)
        optimised, _ = optimise(graph, level, "")
        program = build_program(optimised, True, inputs, self.target, (), defaults_for(self.target.vector_bits))
        plan_memory(program, reuse=level > 0, apart=False)
        return Lowered(graph, program, level)

    def compile(self, program: Lowered) -> bytes:
        """The graph, and the object code of every kernel under its key: whoever loads them needs no LLVM to compile."""
        isa = self.target.isa
        objects: dict[str, bytes] = {}
        for kernel in _kernels(program.program):
            key = code.kernel_key(kernel, isa)
            if key not in objects:
                objects[key] = llvm.compile_text(generate(kernel, isa, code.function_name(key)), isa)
        graph = dump_graph(program.graph)
        head = json.dumps({"isa": isa.name, "level": program.level, "graph": len(graph),
                           "objects": [[key, len(data)] for key, data in objects.items()]}).encode()
        return MAGIC + struct.pack("<Q", len(head)) + head + graph + b"".join(objects.values())

    def load(self, code_bytes: bytes) -> CpuExecutable:
        """The program of those bytes. They hold machine code: load what this machine's Morpho has compiled."""
        head, graph, objects = _taken_apart(code_bytes)
        isa = self.target.isa
        if head["isa"] != isa.name:
            raise fail(DeviceError, "load", f"the code is for {head['isa']}, the target here is {isa.name}",
                       "compile it again here")
        lowered = self._lowered(load_graph(graph), head["level"])
        code.adopt(objects, {}, isa)
        return CpuExecutable(lowered, defaults_for(self.target.vector_bits))

    def program(self, graph: Graph) -> CpuExecutable:
        """A graph's program in this process, whose code is compiled when it is asked for."""
        return CpuExecutable(self.lower(graph), defaults_for(self.target.vector_bits))

    def synchronize(self) -> None:
        """Everything is over when its call returns."""


def _kernels(program: Program) -> list[Kernel]:
    return [kernel for step in program.steps if isinstance(step, Step) for kernel in step.kernels]


def _taken_apart(data: bytes) -> tuple[dict[str, Any], bytes, dict[str, bytes]]:
    try:
        if not data.startswith(MAGIC):
            raise ValueError("they begin otherwise")
        start = len(MAGIC) + 8
        (length,) = struct.unpack_from("<Q", data, len(MAGIC))
        head = json.loads(data[start:start + length])
        at = start + length
        sizes = [("", head["graph"]), *((key, size) for key, size in head["objects"])]
        parts = {}
        for key, size in sizes:
            if type(size) is not int or not 0 <= size <= len(data) - at:
                raise ValueError("a part is cut off")
            parts[key] = data[at:at + size]
            at += size
        return head, parts.pop(""), parts
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise fail(ArgumentError, "load", f"the bytes are no code of the CPU backend ({error})") from error


class CpuExecutable:
    """A program of this backend; host steps run in NumPy between native ones."""

    def __init__(self, lowered: Lowered, thresholds: DispatchThresholds) -> None:
        self.lowered, self.program = lowered, lowered.program
        self.native = Executable(self.program, self.program.steps, thresholds)

    def enqueue(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], sizes: Mapping[str, int],
                stream: int = 0) -> Event:
        """Run now."""
        program = self.program
        room = host_buffer("cpu", program.arena_bytes + self.native.scratch_needed(sizes) + 64)
        result = {place.slot: buffer.address for place, buffer in zip(program.outputs, outputs, strict=True)}
        pointers = [buffer.address for buffer in inputs] + [0] * (self.lowered.inputs - len(inputs))
        pointers += [result[i] for i, slot in enumerate(program.slots) if slot.kind == "result"]
        status = self.native.run(pointers, sizes, room.address)
        if status:
            step = self.native.faulty(status)
            if isinstance(step, HostStep):
                raise self.native.host_error(status)
            raise fail(IndexFault, step.label, "an index lies outside its axis", line=step.origin)
        self._copy_repeated(outputs, result, sizes)
        return FINISHED

    def _copy_repeated(self, outputs: Sequence[Buffer], result: Mapping[int, int], sizes: Mapping[str, int]) -> None:
        """An output that is the same value as another one has memory of its own."""
        for place, buffer in zip(self.program.outputs, outputs, strict=True):
            if result[place.slot] != buffer.address:
                ctypes.memmove(buffer.address, result[place.slot], buffer.nbytes)
