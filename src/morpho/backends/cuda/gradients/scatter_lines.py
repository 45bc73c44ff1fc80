"""Values put or combined at indices along one axis (a prompt's keys and values into their caches): a thread for every
line across that axis and every column, which takes its indices in order. So the last of equal ones is what stays, and
sums are the CPU's. Several indices and values are on their way at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.code.kernel_abi import FAULT_INDEX
from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps, known
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.loops.sequential.scatter import INDEX, TARGET, VALUE, ScatterKernel
from morpho.backends.kernels.loops.sequential.scatter_code import combined
from morpho.base.dtypes import int64
from morpho.program.kernel import Kernel

THREADS = 32  # of a block: there are few lines, which are to lie on many multiprocessors
TOGETHER = 8  # indices whose loads are in flight


@dataclass(frozen=True)
class ScatterLines(WithoutMaps):
    """A thread a line and column."""

    body: ScatterKernel
    places: int
    numbers: int

    def alignments(self) -> tuple[tuple[int, int], ...]:
        return ()

    def unaligned(self) -> ScatterLines:
        return self

    def kernel(self) -> Kernel:
        return self.body

    def launch(self, sizes: Sizes) -> Launch:
        """As many threads as lines and columns."""
        numbers = self.body.record.by_name(sizes.values)
        items = known(numbers["columns"])
        for axis in range(self.body.outer_rank):
            items *= known(numbers[f"extents{axis}"])
        return Launch(Geometry(max(-(-items // THREADS), 1), THREADS))

    def text(self) -> str:
        return LinesCode(self).module()


class LinesCode:
    """Generator of the LLVM text of one lines kernel."""

    def __init__(self, device: ScatterLines) -> None:
        self.e, self.device, self.kernel = GridEmitter(), device, device.body
        kernel, first = self.kernel, int(Header.SIZE)
        self.memory = [scalars.memory_type(dtype) for dtype in (kernel.index, kernel.dtype, kernel.target)]
        self.n = {name: self.e.word(first + device.places + at) for at, name in enumerate(kernel.record.names)}

    def module(self) -> str:
        e, n, first = self.e, self.n, int(Header.SIZE)
        items = n["columns"]
        for axis in range(self.kernel.outer_rank):
            items = items * n[f"extents{axis}"]
        item = e.ask("block") * e.ask("threads") + e.ask("thread")
        with e.when(e.icmp("slt", item, items)):
            self.bases = self.places(item)
            whole = n["count"] & -TOGETHER
            with e.loop(0, whole, TOGETHER) as loop:
                self.put([loop.index + number for number in range(TOGETHER)])
            with e.loop(whole, n["count"]) as rest:
                self.put([rest.index])
        words = first + self.device.places + self.device.numbers
        return entry("kernel_main", words, e.text(), " nounwind") + e.outside()

    def places(self, item: Value) -> list[str]:
        """Where index, value and target of a thread begin."""
        e, n, rank = self.e, self.n, self.kernel.outer_rank
        line = e.instruction("udiv", item, n["columns"])
        column = item - line * n["columns"]
        offsets = [column * n[f"{name}{rank + 1}"] for name in ("index", "value", "target")]
        for axis in reversed(range(rank)):
            quotient = e.instruction("udiv", line, n[f"extents{axis}"])
            at = line - quotient * n[f"extents{axis}"]
            offsets = [offset + at * n[f"{name}{axis}"]
                       for offset, name in zip(offsets, ("index", "value", "target"), strict=True)]
            line = quotient
        first = int(Header.SIZE)
        return [e.offset(e.address(first + number), kind, offset)
                for number, (kind, offset) in enumerate(zip(self.memory, offsets, strict=True))]

    def put(self, numbers: list[Value]) -> None:
        """The values of several indices: all loads first, then each in its place, in order."""
        e, n, kernel, along = self.e, self.n, self.kernel, self.kernel.outer_rank
        found = [e.load(e.offset(self.bases[INDEX], self.memory[INDEX], at * n[f"index{along}"]), self.memory[INDEX], 1)
                 for at in numbers]
        given = [e.load(e.offset(self.bases[VALUE], self.memory[VALUE], at * n[f"value{along}"]), self.memory[VALUE], 1)
                 for at in numbers]
        for loaded, value in zip(found, given, strict=True):
            index = scalars.cast(e, loaded, kernel.index, int64)
            inside = e.icmp("ult", index, n["size"])
            e.report(e.select(inside, e.constant(0, "i32", 1), FAULT_INDEX))
            with e.when(inside):
                self.combine(value, e.offset(self.bases[TARGET], self.memory[TARGET], index * n[f"target{along}"]))

    def combine(self, new: Value, target: str) -> None:
        """A value and what stands in its place."""
        e, kernel = self.e, self.kernel
        if kernel.mode != "set":
            old = scalars.from_memory(e, e.load(target, self.memory[TARGET], 1), kernel.target)
            new = scalars.from_memory(e, new, kernel.dtype)
            new = scalars.to_memory(e, combined(e, kernel.mode, kernel.target, old, new), kernel.target)
        e.store(new, target)
