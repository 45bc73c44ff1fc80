"""A program on a GPU: its steps as launches in a stream, loops and branches decided here, host operations in between.

Nothing waits for the device but what must know a value: a `while`, a branch, an operation that runs in NumPy.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

import numpy as np

from morpho.backends.base import Buffer, Event
from morpho.backends.cuda.attention.decode.kernel import DecodeSpec
from morpho.backends.cuda.codegen.grid import Header
from morpho.backends.cuda.codegen.kernels import DeviceKernel
from morpho.backends.cuda.codegen.maps import MapKernel
from morpho.backends.cuda.control import ControlFlow
from morpho.backends.cuda.driver.interface import Device
from morpho.backends.cuda.driver.native_call import NativeCall
from morpho.backends.cuda.driver.regions.dynamic_call import MOST_REGIONS, DynamicCall, Region
from morpho.backends.cuda.driver.regions.traced import SizeTrace
from morpho.backends.cuda.faults import FaultSlabs, RunEvent, StandingFaults, suspects_of
from morpho.backends.cuda.gemm.lower import FollowedStep
from morpho.backends.cuda.grouped.step import GroupStep
from morpho.backends.cuda.host_programs import HostCompiler, HostPrograms
from morpho.backends.cuda.prepared import Prepared, PreparedStep
from morpho.backends.cuda.vendor.products import FastProducts, fast_products
from morpho.backends.cuda.vendor.solver import matrices, solver_of
from morpho.backends.driver import host_call
from morpho.backends.kernels.attention.pages import PageWriteKernel
from morpho.backends.reference import reference
from morpho.base import settings
from morpho.base.dims import Dim, evaluate, upper
from morpho.base.errors import MemoryLimit
from morpho.cost.estimate import node_flops
from morpho.passes.memory.liveness import Updates
from morpho.passes.pipeline import Report
from morpho.program.footprint import Uses
from morpho.program.program import Control, HostStep, Program, Step
from morpho.program.view import View


class Owner(Protocol):
    """The backend whose program it is."""

    device: str
    gpu: Device
    host_steps: int
    host: HostCompiler | None
    standing: weakref.WeakSet[StandingFaults]
    fault_words: FaultSlabs
    errors: dict[int, BaseException]

    def watch(self, event: Event) -> Event: ...
    def function(self, kernel: DeviceKernel) -> Any: ...


class CudaExecutable:
    """A loaded program."""

    def __init__(self, backend: Owner, program: Program, kernels: Sequence[tuple[DeviceKernel, Any] | None],
                 report: Report) -> None:
        self.backend, self.program, self.kernels, self.report = backend, program, kernels, report
        self.prepared: dict[tuple[tuple[str, int], ...], Prepared] = {}
        self.regions: list[Region] = []  # of runs through Python
        self.faulty = [number for number, step in enumerate(program.steps)
                       if isinstance(step, Step) and (step.may_fault or _matrix(step))]
        self.offsets = [slot.offset for slot in program.slots]
        self.host_programs = HostPrograms(backend.host)

    @property
    def said(self) -> list[str]:
        """For `explain()`: the kernels, what the host computes, and how much of the work the GPU does."""
        kinds: dict[str, int] = {}
        here = there = 0
        fast = self.fast()
        for step, kernel in zip(self.program.steps, self.kernels, strict=True):
            if isinstance(step, Step) and kernel is not None:
                name = " ".join(filter(None, (type(kernel[0]).__name__, step.label, step.choice)))
                library = "" if fast is None else fast.library(step)
                name = f"{step.label} by {library} (fast)" if library else name
                there += upper(step.cost.flops)
            elif isinstance(step, HostStep):
                found = solver_of(self.backend) if settings.get().fast else None
                served, flops = found is not None and found.serves(step.node), node_flops(step.node)
                here, there = (here, there + flops) if served else (here + flops, there)
                name = f"{step.label} by {'cuSOLVER (fast)' if served else 'the host'}"
            else:
                continue
            kinds[name] = kinds.get(name, 0) + 1
        share = 100 * there / (here + there) if here + there else 100
        return [*(f"{count} x {name}" for name, count in kinds.items()), f"{share:.0f} % of the operations on the GPU"]

    def fast(self) -> FastProducts | None:
        """The libraries for products of this program, where the user says `fast` and they are there."""
        return fast_products(self.backend, self.program.steps)

    def _prepare(self, sizes: Mapping[str, int]) -> Prepared:
        key = tuple(sorted(sizes.items())) if sizes else ()
        found = self.prepared.get(key)
        if found is None:
            if len(self.prepared) >= 64:
                self.prepared.clear()
            found = self.prepared[key] = self._at(sizes)
        return found

    def _at(self, sizes: Mapping[str, int], fast: FastProducts | None = None) -> Prepared:
        """The program at some sizes, with tables of its own; with `fast`, its products by libraries among them."""
        return Prepared(self.backend.gpu, self.program, self.kernels, self.faulty, sizes, fast)

    def enqueue(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], sizes: Mapping[str, int],
                stream: int = 0) -> Event:
        """Queue one run."""
        gpu, program = self.backend.gpu, self.program
        faults = gpu.host_words(len(self.faulty)) if self.faulty else None
        slots = self._slots(inputs, outputs)
        before = suspects_of([getattr(getattr(buffer, "owner", None), "event", None) for buffer in inputs])
        if not sizes or self.fast() is not None or not self._by_region(slots, faults, sizes, stream):
            prepared = self._prepare(sizes)
            with self._arena(slots, prepared.room) as behind:
                if prepared.table is None or self.fast() is not None or not gpu.launch_all(
                        prepared.table, slots, behind, 0 if faults is None else faults.address, stream):
                    Run(self, prepared.steps, slots, behind, faults, sizes, stream).all()
        self._copy_repeated(outputs, slots, stream)
        event = RunEvent(gpu.record(stream), None if faults is None else faults.array,
                         [program.steps[n] for n in self.faulty], (_borrowed((*inputs, *outputs)), faults),  # type: ignore[misc]
                         before)
        return self.backend.watch(event) if faults is not None else event

    def _by_region(self, slots: list[int], faults: Any, sizes: Mapping[str, int], stream: int) -> bool:
        """Launch by the table of a region of dynamic sizes, made when its first sizes come; False where there is none,
        or operands do not lie as its kernels need."""
        gpu, numbers = self.backend.gpu, list(sizes.values())
        if not gpu.launch_entry():
            return False
        for region in [*self.regions, None]:
            found = region or self._region([], sizes)
            if found is None:
                return False
            with found.table.lock:
                if found.trace.symbols == list(sizes) and found.fits(numbers):
                    if region is None:
                        self.regions = [found, *self.regions[:MOST_REGIONS - 1]]
                    with self._arena(slots, self.program.arena_bytes + found.scratch_bytes) as behind:
                        return gpu.launch_all(found.table, slots, behind, 0 if faults is None else faults.address,
                                              stream)
        return False

    @contextmanager
    def _arena(self, slots: list[int], room: int) -> Iterator[int]:
        """Memory for the temporaries of a run among its slots; given is where scratch begins."""
        gpu, program = self.backend.gpu, self.program
        arena = gpu.allocate(room + 256) if room else 0
        for number, slot in enumerate(program.slots):
            if slot.kind == "temporary":
                slots[number] = arena + slot.offset
        try:
            yield arena + -(-program.arena_bytes // 256) * 256 if room else 0
        finally:
            if room:
                gpu.free(arena, room)

    def native_call(self, inputs: int, symbols: Sequence[Dim] = ()) -> NativeCall | DynamicCall | None:
        """The program as one native function of the addresses of so many inputs and of all results, and of its dynamic
        sizes; None where a host must look in between, or a result has no memory of its own."""
        gpu, program = self.backend.gpu, self.program
        places = [place.slot for place in program.outputs]
        own = all(program.slots[place.slot].kind == "result" and place.offset == 0 for place in program.outputs)
        fast = self.fast()
        if fast is not None and (symbols or not fast.all_native(program.steps)):
            return None
        if not gpu.native_entries() or not own or len(set(places)) < len(places):
            return None
        prepared = self._prepare({str(symbol): upper(symbol) for symbol in symbols})
        if prepared.table is None:
            return None
        room = prepared.room + 256 if prepared.room else 0
        try:
            arena = gpu.allocate(room) if room else 0
        except MemoryLimit:
            return None  # every call asks again, and may be the CPU's
        try:
            found = self._native_call(inputs, symbols, prepared, (arena, room))
            found.complete = True
            return found
        except BaseException:
            if room:
                gpu.free(arena, room)
            raise

    def _native_call(self, inputs: int, symbols: Sequence[Dim], prepared: Prepared,
                     given: tuple[int, int]) -> NativeCall | DynamicCall:
        """The same, with an arena and its bytes, which are the call's once it is there."""
        gpu, program, fast, (arena, room) = self.backend.gpu, self.program, self.fast(), given
        places = [place.slot for place in program.outputs]
        slots = [arena + slot.offset if slot.kind == "temporary" else 0 for slot in program.slots]
        taken = {slot.index: number for number, slot in enumerate(program.slots) if slot.kind == "input"}
        faults = StandingFaults(self.backend.fault_words, [program.steps[n] for n in self.faulty],  # type: ignore[misc]
                                gpu) if self.faulty else None
        if faults is not None:
            self.backend.standing.add(faults)
        which = [*[taken.get(number, -1) for number in range(inputs)], *places]
        behind = arena + -(-program.arena_bytes // 256) * 256 if room else 0
        scratch = prepared.room - program.arena_bytes
        run = partial(self._queue, slots, scratch, behind, which, faults)
        if symbols:
            return DynamicCall(gpu, symbols, which, (arena, room, behind), faults,
                               partial(self._region, slots, most=scratch), run, self.backend.errors)
        table = self._at({}, fast).table  # of its own: others fill theirs with other addresses
        assert table is not None
        return NativeCall(gpu, table, which, slots, (arena, room, behind), faults, run, self.backend.errors)

    def _region(self, slots: Sequence[int], sizes: Mapping[str, int], most: int | None = None) -> Region | None:
        """The launches of all sizes like these, in an arena; None where these need more scratch than it has."""
        trace = SizeTrace(sizes)
        prepared = self._at(trace.sizes)  # type: ignore[arg-type]
        if prepared.table is None or (most is not None and any(nbytes > most for nbytes in prepared.scratch)):
            return None
        prepared.table.slots[:len(slots)] = list(slots)
        return Region(trace, prepared.table, prepared.scratch)

    def _queue(self, slots: Sequence[int], scratch: int, behind: int, which: Sequence[int], faults: Any,
               sizes: Mapping[str, int], addresses: Sequence[int]) -> None:
        """One run of a native call through Python, launch by launch."""
        gpu, prepared, filled = self.backend.gpu, self._prepare(sizes), list(slots)
        for slot, address in zip(which, addresses, strict=True):
            if slot >= 0:
                filled[slot] = address
        needed = prepared.room - self.program.arena_bytes
        own = gpu.allocate(needed) if needed > scratch else 0
        try:
            Run(self, prepared.steps, filled, own or behind, faults, sizes, 0).all()
        finally:
            if own:
                gpu.free(own, needed)

    def in_place(self, updates: Updates) -> dict[int, int]:
        """Of (output, input) pairs those where a native call may write the output over the input: by kernels whose
        threads read and write elements of their own alone, or that write a few lines of what is there."""
        uses, found = Uses(self.program), {}
        for output, index in uses.in_place(updates).items():
            writer = uses.first_write.get(self.program.outputs[output].slot)
            if writer is not None and self._own_elements(writer, output, index):
                found[output] = index
        return found | self._lines_in_place(updates, uses)

    def _lines_in_place(self, updates: Updates, uses: Uses) -> dict[int, int]:
        """Caches that attention puts one new line into: it looks whether the memory is the same."""
        inputs = {slot.index: number for number, slot in enumerate(self.program.slots) if slot.kind == "input"}
        found: dict[int, int] = {}
        for output, index in updates:
            slot, source = self.program.outputs[output].slot, inputs.get(index, -1)
            step = self.program.steps[uses.first_write.get(slot, 0)]
            if not isinstance(step, Step) or not isinstance(step.kernel, DecodeSpec) or not step.kernel.appends:
                continue
            pairs = [(step.views[1], step.views[-2]), (step.views[2], step.views[-1])]
            same = any(held is not None and made is not None and (held.slot, made.slot) == (source, slot)
                       and (held.offset, held.strides) == (made.offset, made.strides) for held, made in pairs)
            if same and uses.written_after_faults(slot) and uses.last_read[source] == uses.first_write[slot]:
                found[output] = index
        return found

    def _own_elements(self, writer: int, output: int, index: int) -> bool:
        """Whether the step that writes an output over an input reads no element of it that another thread writes."""
        step, kernel, slots = self.program.steps[writer], self.kernels[writer], self.program.slots
        if kernel is None:
            return False
        if isinstance(step, GroupStep):
            source = next(n for n, slot in enumerate(slots) if slot.kind == "input" and slot.index == index)
            return step.same_member(self.program.outputs[output].slot, source)
        return isinstance(step, FollowedStep) or isinstance(kernel[0], MapKernel) or isinstance(
            kernel[0].kernel(), PageWriteKernel)

    def _slots(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> list[int]:
        """The addresses of a run's slots; those of temporaries are the arena's."""
        slots = [0 for _ in self.program.slots]
        for index, slot in enumerate(self.program.slots):
            if slot.kind == "input" and slot.index < len(inputs):
                slots[index] = inputs[slot.index].address
        for place, buffer in zip(self.program.outputs, outputs, strict=True):
            slots[place.slot] = slots[place.slot] or buffer.address
        return slots

    def _copy_repeated(self, outputs: Sequence[Buffer], slots: list[int], stream: int) -> None:
        """An output that is the same value as another one has memory of its own."""
        for place, buffer in zip(self.program.outputs, outputs, strict=True):
            if slots[place.slot] != buffer.address and buffer.nbytes:
                self.backend.gpu.copy(slots[place.slot], buffer.address, buffer.nbytes, stream)


def _borrowed(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Memory of other libraries, which must be there until the run is over. The pool's own goes back in the order of
    the queue: holding it would hold all that its values were computed from, and keep states from being written in
    place."""
    return [buffer for buffer in buffers if not getattr(getattr(buffer, "owner", None), "own", True)]


def _matrix(step: Step) -> bool:
    return type(step.kernel).__name__ in ("MatrixKernel", "RegisterLoop")


class Run(ControlFlow):
    """One run being queued."""

    def __init__(self, executable: CudaExecutable, steps: Sequence[PreparedStep | None], slots: list[int], scratch: int,
                 faults: Any, sizes: Mapping[str, int], stream: int) -> None:
        super().__init__(executable.program, slots, sizes)
        self.executable, self.prepared, self.scratch = executable, steps, scratch
        self.gpu, self.stream, self.fast = executable.backend.gpu, stream, executable.fast()
        self.fault_of = {} if faults is None else {
            step: faults.address + 4 * number for number, step in enumerate(executable.faulty)}

    def all(self) -> None:
        """Every step, in the order that loops and branches give."""
        number, steps = 0, self.program.steps
        while number < len(steps):
            prepared = self.prepared[number]
            if prepared is not None:
                if not prepared.empty:
                    self.kernel(prepared, self.fault_of.get(number, 0))
                number += 1
                continue
            step = steps[number]
            if isinstance(step, Control):
                number += self.control(number, step)
            else:
                assert isinstance(step, HostStep)
                self.on_host(step)
                number += 1

    def kernel(self, prepared: PreparedStep, fault: int) -> None:
        """One launch. Operands that do not lie as its kernel needs go to another kernel, or are copied first."""
        if self.fast is not None and self.fast.library(prepared.step) and self.multiplied(self.fast, prepared.step):
            return
        with ExitStack() as held:
            copies: dict[int, tuple[int, int]] = {}
            if not prepared.fill(self.slots, self.scratch, fault):
                if prepared.kernel.unaligned() is not prepared.kernel:
                    prepared = prepared.for_any_address(self.executable.backend)
                else:
                    copies = {at: self.aligned(prepared.words[at], prepared.step.views[at - int(Header.SIZE)], held)
                              for at, n in prepared.alignments if prepared.words[at] % n}
                prepared.fill(self.slots, self.scratch, fault, {at: address for at, (address, _) in copies.items()})
            self.gpu.launch(prepared.function, prepared.launch.geometry, prepared.words, self.stream)
            for at, (address, nbytes) in copies.items():
                number = at - int(Header.SIZE)
                place = prepared.places[number]
                if number in prepared.step.writes and place is not None:
                    self.gpu.copy(address, self.slots[place[0]] + place[1], nbytes, self.stream)

    def multiplied(self, fast: FastProducts, step: Step) -> bool:
        """Have a library compute a product; False where it has no way to."""
        return fast.run(step, tuple(self.place(view) if view is not None else 0 for view in step.views))

    def aligned(self, address: int, place: View | None, held: ExitStack) -> tuple[int, int]:
        """A copy of an operand at an address of its own, which goes back with `held`, and its bytes."""
        assert place is not None
        last = sum((self.number(n) - 1) * self.number(step) for n, step in zip(place.shape, place.strides, strict=True))
        nbytes = (last + 1) * place.dtype.itemsize
        fresh = self.gpu.allocate(nbytes)
        held.callback(self.gpu.free, fresh, nbytes)
        self.gpu.copy(address, fresh, nbytes, self.stream)
        return fresh, nbytes

    # -- what the host must know or do ---------------------------------------------------------------------------------
    def read(self, place: View, dtype: Any) -> np.ndarray:
        """One number of the device; waits for it."""
        room = np.empty(1, dtype)
        self.gpu.copy_out(self.place(place), memoryview(room).cast("B"), self.stream).wait()  # type: ignore[arg-type]
        return room

    def write(self, place: View, number: int) -> None:
        """One number to the device."""
        self.gpu.copy_in(self.place(place), np.asarray(number, np.int64).tobytes(), self.stream)

    def move(self, source: int, target: int, nbytes: int) -> None:
        """Bytes within the device."""
        self.gpu.copy(source, target, nbytes, self.stream)

    def on_host(self, step: HostStep) -> None:
        """An operation by LAPACK or in NumPy: its operands come to the host, its results go back. Where the user says
        `fast`, NVIDIA's library computes those that it has."""
        if settings.get().fast and self.by_library(step):
            return
        self.executable.backend.host_steps += 1
        given = [reference.decode(self._array(place), place.dtype) for place in step.inputs]
        found = self.executable.host_programs.run(step.node, given)
        if found is None:
            host_call.told(step)
            found = reference.run_node(step.node, given, self.sizes)
        for place, part in zip(step.outputs, found if isinstance(found, tuple) else (found,), strict=True):
            stored = np.ascontiguousarray(reference.encode(part, place.dtype))
            if stored.nbytes:
                self.gpu.copy_in(self.place(place), stored.data.cast("B"), self.stream)

    def by_library(self, step: HostStep) -> bool:
        """Have cuSOLVER compute an operation where its operands lie; False where it is not there or has none such."""
        found = solver_of(self.executable.backend)
        if found is None or not found.serves(step.node):
            return False

        def numbers(sizes: Sequence[Any]) -> tuple[int, ...]:
            return tuple(self.number(size) for size in sizes)

        views = [*step.inputs, *step.outputs]
        places = [(self.place(view), numbers(view.shape), numbers(view.strides), view.dtype.itemsize)
                  for view in views]
        batch = numbers(step.inputs[0].shape[:-2])
        ranks = [len(place[1]) - len(batch) for place in places]
        for row in matrices(places, ranks, batch):
            found.run(step.node, row[:len(step.inputs)], row[len(step.inputs):], self.stream)
        return True

    def _array(self, place: View) -> np.ndarray:
        """The elements of a place as an array of the host's."""
        shape, strides = (tuple(evaluate(n, self.sizes) for n in numbers) for numbers in (place.shape, place.strides))
        item = place.dtype.itemsize
        if 0 in shape:
            return np.empty(shape, place.dtype.numpy)
        steps = [stride * item for stride in strides]
        low = sum(min(0, (n - 1) * s) for n, s in zip(shape, steps, strict=True))
        high = sum(max(0, (n - 1) * s) for n, s in zip(shape, steps, strict=True))
        room = bytearray(high - low + item)
        self.gpu.copy_out(self.place(place) + low, memoryview(room), self.stream).wait()
        return np.ndarray(shape, place.dtype.numpy, room, -low, steps)
