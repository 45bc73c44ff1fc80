"""GPUs behind the seam: graph -> passes -> steps -> kernels for a grid -> PTX -> launches in a stream."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from morpho.backends.base import Buffer, Bytes, Event
from morpho.backends.cuda.assembly.early import check_early
from morpho.backends.cuda.codegen.kernels import ISA, DeviceKernel
from morpho.backends.cuda.codegen.select import device_kernel
from morpho.backends.cuda.driver.free_blocks import functions
from morpho.backends.cuda.driver.interface import Device, HostWords
from morpho.backends.cuda.driver.launch_code import RAISED
from morpho.backends.cuda.executable import CudaExecutable
from morpho.backends.cuda.faults import FaultSlabs, StandingFaults
from morpho.backends.cuda.host_programs import HostCompiler
from morpho.backends.cuda.lowering import optimised_and_lowered, program_of
from morpho.backends.cuda.vendor.assembler import assembler
from morpho.base import settings
from morpho.base.errors import ArgumentError, DeviceError, MorphoError, fail
from morpho.base.machine import foreign_machine
from morpho.base.target import Target
from morpho.cost.tuned_choices import NO_CHOICES, PLAIN, Choices, choice_from_row
from morpho.ir.graph import Graph
from morpho.ir.serialise import dump_graph, load_graph
from morpho.passes.pipeline import Report
from morpho.program.program import Program, Step

MAGIC = b"morpho-cuda-1\n"
MOST_TEXTS = 4096
LOADERS = 6  # threads in which nvJitLink assembles, at most; the driver assembles one kernel at a time
MOST_MARKS = 8  # devices that records can name


@dataclass(frozen=True, slots=True)
class DeviceBuffer:
    """Memory of a GPU."""

    device: str
    nbytes: int
    address: int
    owner: Any


@dataclass(frozen=True)
class Lowered:
    """A graph and the program it became."""

    graph: Graph
    program: Program
    report: Report
    level: int


class CheckedEvent:
    """The end of a copy to the host, and faults of the programs before it."""

    def __init__(self, event: Event, backend: CudaBackend) -> None:
        self.event, self.backend = event, backend

    def done(self) -> bool:
        """Whether it is over."""
        return self.event.done()

    def wait(self) -> None:
        """Return when it is over; raise what failed."""
        self.event.wait()
        self.backend.raise_faults()


class CudaBackend:
    """One GPU, or one that is emulated."""

    host_memory = False

    def __init__(self, name: str, device: Device, host: HostCompiler | None = None) -> None:
        """`host` compiles steps of the host; NumPy runs them where there is none."""
        self.device, self.gpu, self.host = name, device, host
        self.functions: dict[str, Any] = {}  # loaded kernels, by the digest of their text
        self.images: dict[str, bytes] = {}
        self.texts: dict[DeviceKernel, tuple[str, str]] = {}  # keys and texts of kernels
        self.recent: tuple[bytes, Program, Report] | None = None  # what was compiled last, and its program
        self.loading: dict[str, Future[Any]] = {}
        self.loaders: ThreadPoolExecutor | None = None
        self.pending: list[Event] = []
        self.choices = NO_CHOICES  # the tuner's, among kernels of the same bits
        self.host_steps = 0  # operations that ran on the host so far
        self.standing: weakref.WeakSet[StandingFaults] = weakref.WeakSet()  # of programs that the native entry launches
        self.fault_words = FaultSlabs(self.host_words)
        self.errors: dict[int, BaseException] = {}  # of what native code had Python do, by thread

    @property
    def target(self) -> Target:
        """Scalar code, for one thread of a grid."""
        return self.target_with(settings.get().tf32)

    def target_with(self, tf32: bool) -> Target:
        """The same; with `tf32`, float32 is multiplied on tensor cores."""
        features = {"wgmma"} if self.gpu.properties.capability == (9, 0) else set()
        features |= {"tf32"} if tf32 and self.gpu.properties.capability >= (8, 0) else set()
        return Target("cuda", ISA, foreign_machine("nvptx64", frozenset(features)), 1)

    # -- memory --------------------------------------------------------------------------------------------------------
    def allocate(self, nbytes: int) -> Buffer:
        """Memory of the device."""
        return DeviceBuffer(self.device, nbytes, self.gpu.allocate(max(nbytes, 1)), self)

    def free_blocks(self, nbytes: int) -> tuple[int, int, int] | None:
        """For native code: the stack of free blocks for so many bytes, and of a capsule that holds one the name and the
        destructor; None where there is none."""
        found = self.gpu.free_blocks(nbytes)
        return (found, functions().name, functions().drop) if found else None

    def memory_now(self) -> tuple[int, int]:
        """Bytes that are free, kept ones among them, and all bytes."""
        return self.gpu.free_bytes(), self.gpu.properties.memory_bytes

    def queued(self) -> int:
        """Runs that are queued and not over, as far as anybody watches them."""
        return sum(not event.done() for event in self.pending)

    def release(self, buffer: Buffer) -> None:
        """Give it back, in the order of what was queued."""
        self.gpu.free(buffer.address, buffer.nbytes)

    def copy_in(self, target: Buffer, source: Bytes, stream: int = 0) -> Event:
        """Queue a copy from the host."""
        return self.gpu.copy_in(target.address, source, stream)

    def copy_ahead(self, target: Buffer, source: Bytes) -> Event:
        """Queue a copy from the host beside what runs now; what is queued from now on waits for it."""
        return self.gpu.copy_ahead(target.address, source)

    # -- the device's clock --------------------------------------------------------------------------------------------
    def clock_mark(self) -> Any:
        """A point in the queue, whose time the device notes."""
        return self.gpu.mark()

    def clock_seconds(self, first: Any, last: Any) -> float:
        """From one point to another by the device's own clock; waits for both."""
        return self.gpu.seconds_between(first, last)

    def copy_out(self, source: Buffer, target: memoryview | bytearray, stream: int = 0) -> Event:
        """Queue a copy to the host; whoever waits for it also hears of faults of what ran before."""
        event = self.gpu.copy_out(source.address, memoryview(target).cast("B")[:source.nbytes], stream)
        return CheckedEvent(event, self) if self.standing else event

    def host_room(self, nbytes: int) -> np.ndarray:
        """Memory of the host for so many bytes of the device's: pinned, where there is any."""
        found = self.gpu.host_room(nbytes)
        return np.empty(nbytes, np.uint8) if found is None else found

    def host_words(self, count: int) -> HostWords:
        """Zeroed words of the host, pinned where there is such memory: copies to them run beside the host's work."""
        return self.gpu.host_words(count)

    def raise_faults(self) -> None:
        """Raise what a program has reported whose run is over. One that the native entry launched has no event of its
        own, so whoever waits for anything hears of it, and of what ran before it."""
        if self.pending:
            self.pending = [event for event in self.pending if not _is_settled(event)]
        if not self.fault_words.any():
            return
        for faults in self.standing:
            error = faults.error()
            if error is not None:
                raise error

    def copy_between(self, source: Buffer, target: Buffer, stream: int = 0) -> Event:
        """Queue a copy within the device."""
        self.gpu.copy(source.address, target.address, source.nbytes, stream)
        return self.gpu.record(stream)

    # -- code ----------------------------------------------------------------------------------------------------------
    def lower(self, graph: Graph) -> Lowered:
        """The graph after the passes of the level in force, as steps."""
        level = settings.get().level
        return Lowered(graph, *optimised_and_lowered(graph, level, self.target, self.gpu.properties.name, self.choices),
                       level)

    def slice_executable(self, graph: Graph, choices: Choices) -> CudaExecutable:
        """A part of a program that has been through the passes, with other choices: for the tuner."""
        level = settings.get().level
        program = program_of(graph, level, self.target, self.gpu.properties.name, choices)
        return self.checked(program, [(kernel, self.function(kernel)) if kernel is not None else None
                                      for kernel in map(_kernel, program.steps)], Report())

    def compile(self, program: Lowered) -> bytes:
        """The graph, and the image of every kernel under its key."""
        images: dict[str, bytes] = {}
        texts = dict(self.keyed(device_kernel(step)) for step in program.program.steps if isinstance(step, Step))
        for key, text in sorted(texts.items(), key=lambda item: -len(item[1])):  # what takes longest to assemble first
            images[key] = self.image(key, text)
            self.load_ahead(key, images[key])
        graph = dump_graph(program.graph)
        head = json.dumps({"architecture": self.gpu.properties.architecture, "level": program.level,
                           "tf32": settings.get().tf32,
                           "choices": {key: self.choices.get(key).row() for key in program.program.problems},
                           "graph": len(graph), "images": [[key, len(data)] for key, data in images.items()]}).encode()
        code = MAGIC + struct.pack("<Q", len(head)) + head + graph + b"".join(images.values())
        self.recent = code, program.program, program.report
        return code

    def load_ahead(self, key: str, image: bytes) -> None:
        """Have the driver assemble an image while LLVM writes the next one, where it may be called from threads."""
        if self.gpu.loads_in_threads and key not in self.functions and key not in self.loading:
            if self.loaders is None:
                self.loaders = ThreadPoolExecutor(
                    1 if assembler() is None else min(LOADERS, os.cpu_count() or 1), "morpho-cuda-load")
            self.loading[key] = self.loaders.submit(self.gpu.load, image, "kernel_main")

    def loaded(self, key: str, image: Callable[[], bytes]) -> Any:
        """The kernel of a key; it may be on its way."""
        if key not in self.functions:
            ahead = self.loading.pop(key, None)
            try:
                self.functions[key] = self.gpu.load(image(), "kernel_main") if ahead is None else ahead.result()
            except MorphoError:  # what the others' loading has found is told now: the next call loads them again
                wait(self.loading.values())
                self.loading = {name: one for name, one in self.loading.items() if one.exception() is None}
                raise
        return self.functions[key]

    def image(self, key: str, text: str) -> bytes:
        """A kernel's image, made once per process."""
        found = self.images.get(key)
        if found is None:
            found = self.images[key] = self.gpu.build(text)
        return found

    def keyed(self, kernel: DeviceKernel) -> tuple[str, str]:
        """A kernel's key and text; equal kernels are written once."""
        found = self.texts.get(kernel)
        if found is None:
            if len(self.texts) >= MOST_TEXTS:
                self.texts.clear()
            text = kernel.text()
            found = self.texts[kernel] = digest(text), text
        return found

    def function(self, kernel: DeviceKernel) -> Any:
        """A kernel ready to be launched."""
        key, text = self.keyed(kernel)
        return self.loaded(key, lambda: self.image(key, text))

    def load(self, code: bytes) -> CudaExecutable:
        """The program of those bytes. They hold machine code: load what Morpho has compiled."""
        if self.recent is not None and self.recent[0] is code:  # compiled here a moment ago: lowered already
            (_, program, report), self.recent = self.recent, None
            return self.checked(program, [(kernel, self.function(kernel)) if kernel is not None else None
                                          for kernel in map(_kernel, program.steps)], report)
        head, graph, images = _taken_apart(code)
        if head["architecture"] != self.gpu.properties.architecture:
            raise fail(DeviceError, "load", f"the code is for {head['architecture']}, {self.device} is "
                                            f"{self.gpu.properties.architecture}", "compile it again here")
        rows = {key: choice_from_row(row) or PLAIN for key, row in head.get("choices", {}).items()}
        target = self.target_with(bool(head.get("tf32")))
        program, report = optimised_and_lowered(load_graph(graph), head["level"], target, self.gpu.properties.name,
                                                Choices.of(rows))
        kernels: list[tuple[DeviceKernel, Any] | None] = []
        for step in program.steps:
            if not isinstance(step, Step):
                kernels.append(None)
                continue
            kernel = device_kernel(step)
            key, _ = self.keyed(kernel)
            if key not in self.functions and key not in images:
                raise fail(ArgumentError, "load", "the bytes lack a kernel of their program")
            kernels.append((kernel, self.loaded(key, lambda key=key: images[key])))  # type: ignore[misc]
        return self.checked(program, kernels, report)

    def checked(self, program: Program, kernels: Sequence[tuple[DeviceKernel, Any] | None],
                report: Report) -> CudaExecutable:
        """The executable of a program whose kernels may come early."""
        for step, kernel in zip(program.steps, kernels, strict=True):
            if isinstance(step, Step) and kernel is not None:
                check_early(step, program, self.keyed(kernel[0])[1])
        return CudaExecutable(self, program, kernels, report)

    def synchronize(self) -> None:
        """Wait for everything queued; raise the first error that nobody has seen."""
        pending, self.pending = self.pending, []
        self.gpu.synchronize()
        for event in pending:
            if not getattr(event, "seen", False):
                event.wait()
        self.raise_faults()

    @cached_property
    def native_mark(self) -> int:
        """The number of its memory in the records that the native entry reads; 0 where it launches nothing here."""
        number = self.gpu.number + 1
        return number if number < MOST_MARKS and self.gpu.native_entries() else 0

    def launch_error(self, status: int) -> BaseException:
        """The error behind a status that a native call returned."""
        signed = status - (1 << 32) if status >> 31 else status
        return self.errors.pop(threading.get_ident()) if signed == RAISED else self.gpu.launch_error(signed)

    # -- other libraries -----------------------------------------------------------------------------------------------
    @property
    def dlpack_device(self) -> tuple[int, int] | None:
        """DLPack's numbers of the memory; None where the device is emulated."""
        return self.gpu.dlpack_device

    def stream_handle(self) -> int:
        """The driver's handle of the stream that programs run in."""
        return self.gpu.stream_handle()

    def let_wait(self, stream: int) -> None:
        """Let another library's stream wait for what was queued so far."""
        self.gpu.let_wait(stream)

    def wait_for_stream(self, stream: int) -> None:
        """Let what is queued from now on wait for another library's stream."""
        self.gpu.wait_for_stream(stream)

    def watch(self, event: Event) -> Event:
        """Remember an event whose error somebody must see."""
        self.pending = [known for known in self.pending if not getattr(known, "seen", False)][-256:] + [event]
        return event


def _is_settled(event: Event) -> bool:
    """Whether a run is over and its error, if any, was raised; raises one that was not."""
    if not getattr(event, "seen", False) and event.done():
        event.wait()
    return getattr(event, "seen", False)


def _kernel(step: object) -> DeviceKernel | None:
    return device_kernel(step) if isinstance(step, Step) else None


def digest(text: str) -> str:
    """The key of a kernel's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _taken_apart(data: bytes) -> tuple[dict[str, Any], bytes, dict[str, bytes]]:
    try:
        if not data.startswith(MAGIC):
            raise ValueError("they begin otherwise")
        start = len(MAGIC) + 8
        (length,) = struct.unpack_from("<Q", data, len(MAGIC))
        head = json.loads(data[start:start + length])
        at = start + length
        sizes: Sequence[tuple[str, int]] = [("", head["graph"]), *((key, size) for key, size in head["images"])]
        parts = {}
        for key, size in sizes:
            if type(size) is not int or not 0 <= size <= len(data) - at:
                raise ValueError("a part is cut off")
            parts[key] = data[at:at + size]
            at += size
        if type(head["architecture"]) is not str or type(head["level"]) is not int:
            raise ValueError("its head is of another kind")
        return head, parts.pop(""), parts
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise fail(ArgumentError, "load", f"the bytes are no code of the cuda backend ({error})") from error
