"""The steps of a program at given sizes, ready to be launched: words, grids, tensor maps, and one table of them all.

Sizes may be traced ones (`driver/regions/traced.py`): then the table is for all sizes of a region.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from morpho.backends.cuda.codegen.grid import Header
from morpho.backends.cuda.codegen.kernels import DeviceKernel, Launch, Sizes
from morpho.backends.cuda.driver.interface import Device
from morpho.backends.cuda.driver.launch_code import Kernel as LaunchKernel
from morpho.backends.cuda.driver.launch_code import LaunchTable
from morpho.backends.cuda.driver.regions.traced import is_traced, plain
from morpho.backends.cuda.driver.tensor_map import MAP_WORDS, TensorMap, aligned_words
from morpho.backends.cuda.flatten import flattened
from morpho.backends.cuda.gemm.simt import SimtGemm
from morpho.backends.cuda.vendor.products import FastProducts
from morpho.base.dims import evaluate, product
from morpho.program.program import Program, Step

THREADS_AT_ONCE = 2048  # of a multiprocessor


class Maker(Protocol):
    """Where kernels are loaded."""

    gpu: Device

    def function(self, kernel: DeviceKernel) -> Any: ...


class PreparedStep:
    """A step with everything that does not change from call to call: its words, but for addresses, and its grid."""

    def __init__(self, step: Step, kernel: DeviceKernel, function: Any, sizes: Mapping[str, int], gpu: Device) -> None:
        def number(size: Any) -> int:
            return evaluate(size, sizes)

        self.step, self.kernel, self.function, self.sizes, self.gpu = step, kernel, function, sizes, gpu
        self.alignments = [(number + int(Header.SIZE), nbytes) for number, nbytes in kernel.alignments()]
        self.other: PreparedStep | None = None  # for addresses that this one does not take
        rows, columns = number(step.rows), number(step.columns)
        values = tuple(number(value) for value in step.values)
        own = kernel.kernel()
        scratch = -(-columns // 64) * 64 * own.scratch_bytes_per_column + own.scratch_bytes + step.scratch
        self.launch: Launch = kernel.launch(Sizes(rows, columns, values, scratch, gpu.properties.multiprocessors))
        self.places = [(place.slot, number(place.offset) * place.dtype.itemsize) if place is not None else None
                       for place in step.views]
        head = [0] * int(Header.SIZE)
        head[Header.ROWS], head[Header.COLUMNS] = rows, columns
        head[Header.PIECES], head[Header.GRAIN] = self.launch.pieces, self.launch.grain
        head[Header.SCRATCH_STRIDE], head[Header.EXTRA] = self.launch.scratch_stride, self.launch.extra
        self.maps: tuple[TensorMap, ...] = kernel.maps(values)
        words = [*head, *[0] * len(self.places), *values]
        self.words = aligned_words(max([len(words), *[made.word + MAP_WORDS for made in self.maps]]))
        self.moving: list[tuple[int, Any]] = [(at, word) for at, word in enumerate(words) if is_traced(word)]
        for at, word in enumerate(words):
            self.words[at] = plain(word)
        self.empty = rows <= 0 or (columns <= 0 and getattr(own, "role", "loop") == "loop" and not _reduces(own))
        self.empty = self.empty or any(place is not None and product(tuple(map(number, place.shape))) == 0
                                       for place in step.written)

    def for_any_address(self, backend: Maker) -> PreparedStep:
        """The step by a kernel that needs no alignment, made when it is first wanted."""
        if self.other is None:
            kernel = self.kernel.unaligned()
            self.other = PreparedStep(self.step, kernel, backend.function(kernel), self.sizes, self.gpu)
        return self.other

    def entry(self, fault: int, where: Sequence[tuple[int, int] | None]) -> LaunchKernel:
        """The launch for a table, with words of its own; `where`: slots and bytes of its operands. Products on
        arithmetic units of more blocks than there are multiprocessors do not come early: blocks would gather where
        there is room first (a step of a network of 784-1024-1024-10 took 315 us so, and 283 without)."""
        masks, grid = {at - int(Header.SIZE): n - 1 for at, n in self.alignments}, self.launch.geometry
        places = [(-1, 0, 0) if place is None else (*place, masks.get(number, 0)) for number, place in enumerate(where)]
        large = plain(grid.blocks) > self.gpu.properties.multiprocessors
        words = aligned_words(len(self.words))
        ctypes.memmove(words, self.words, ctypes.sizeof(words))
        return LaunchKernel(self.function.value or 0, grid.blocks, grid.threads, grid.shared_bytes, words, places,
                            fault, int(Header.SIZE), self.maps, self.moving,
                            not (large and isinstance(self.kernel, SimtGemm)))

    def fill(self, slots: list[int], scratch: int, fault: int,
             instead: Mapping[int, int] = MappingProxyType({})) -> bool:
        """The addresses of a call, or others instead; False where one does not fit."""
        words = self.words
        words[Header.SCRATCH], words[Header.FAULT] = scratch, fault
        for number, place in enumerate(self.places, int(Header.SIZE)):
            words[number] = 0 if place is None else slots[place[0]] + place[1]
        for at, address in instead.items():
            words[at] = address
        if any(words[at] % n for at, n in self.alignments):
            return False
        for made in self.maps:
            self.gpu.encode_map(made, words)
        return True


def _reduces(kernel: Any) -> bool:
    return any(instruction.reduces for instruction in getattr(kernel, "instructions", ()))


class Prepared:
    """A program at given sizes: its steps, the bytes it needs, and one table where it is launches alone."""

    def __init__(self, gpu: Device, program: Program, kernels: Sequence[tuple[DeviceKernel, Any] | None],
                 faulty: Sequence[int], sizes: Mapping[str, int], fast: FastProducts | None = None) -> None:
        """`fast`: libraries whose products are among the launches."""
        self.steps = [PreparedStep(step, *kernel, sizes, gpu) if isinstance(step, Step) and kernel is not None else None
                      for step, kernel in zip(program.steps, kernels, strict=True)]
        self.scratch = [step.launch.scratch_bytes for step in self.steps if step is not None]
        self.room = program.arena_bytes + max(map(plain, self.scratch), default=0)
        self.table: LaunchTable | None = None
        if gpu.launch_entry():
            self.launches = launches = flattened(program, self.steps, sizes)
            if launches is not None:
                fault_of = {step: 4 * number for number, step in enumerate(faulty)}
                made = [(None if fast is None else fast.launch(self.steps[number].step, places))  # type: ignore
                        or self.steps[number].entry(fault_of.get(number, -1), places)  # type: ignore
                        for number, places in launches]
                self.table = LaunchTable(_kept_late(made, gpu.properties.multiprocessors), len(program.slots))


def _kept_late(kernels: Sequence[LaunchKernel], multiprocessors: int) -> list[LaunchKernel]:
    """Launches come before the one ahead is over where neither fills the GPU: blocks of large ones would take places of
    those that still run. A training step of GPT-2 takes 23.6 ms if all come early, 23.1 if none does; a step of text
    needs them (317 us, and 379 where all of more blocks than multiprocessors come late)."""
    small = [plain(kernel.blocks * kernel.threads) <= multiprocessors * THREADS_AT_ONCE for kernel in kernels]
    return [kernel._replace(early=kernel.early and here and before)
            for kernel, here, before in zip(kernels, small, [True, *small], strict=False)]
