"""Rows added at indices (an embedding's gradient) without atomics: the first of several equal indices adds all of
them, in order. So the sums are the CPU's, one chain per element, and nothing is left to chance.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.code.kernel_abi import FAULT_INDEX
from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.loops.sequential.scatter import INDEX, TARGET, VALUE, ScatterKernel
from morpho.backends.kernels.loops.sequential.scatter_code import combined
from morpho.base.dtypes import int64
from morpho.program.kernel import Kernel

THREADS = 256
MOST_INDICES = 1 << 17  # each block looks at all of them


def on_grid(kernel: ScatterKernel, count: object) -> bool:
    """Whether one index moves whole rows, and there are few enough of them to be compared with each other."""
    return (kernel.outer_rank == 0 and kernel.shared and kernel.unit and kernel.mode == "add"
            and isinstance(count, int) and count <= MOST_INDICES)


@dataclass(frozen=True)
class ScatterRows(WithoutMaps):
    """A block of threads for every index; those whose index stood before have nothing to do."""

    body: ScatterKernel
    places: int
    numbers: int

    def alignments(self) -> tuple[tuple[int, int], ...]:
        return ()

    def unaligned(self) -> ScatterRows:
        return self

    def kernel(self) -> Kernel:
        return self.body

    def launch(self, sizes: Sizes) -> Launch:
        """As many blocks as indices; a word for each 256 of them says whether one of them is equal."""
        count = int(self.body.record.by_name(sizes.values)["count"])
        return Launch(Geometry(max(count, 1), THREADS, 4 * (1 + -(-count // THREADS))))

    def text(self) -> str:
        e, first, kernel = GridEmitter(), int(Header.SIZE), self.body
        memory = [scalars.memory_type(dtype) for dtype in (kernel.index, kernel.dtype, kernel.target)]
        n = {name: e.word(first + self.places + at) for at, name in enumerate(kernel.record.names)}
        bases = [e.address(first + number) for number in range(3)]
        thread, block, shared = e.ask("thread"), e.ask("block"), e.shared()

        def index(position: Value) -> Value:
            loaded = e.load(e.offset(bases[INDEX], memory[INDEX], position * n["index0"]), memory[INDEX], 1)
            return scalars.cast(e, loaded, kernel.index, int64)

        mine, chunks = index(block), (n["count"] + (THREADS - 1)).shift_right(8)
        one = e.constant(1, "i32", 1)
        with e.loop(thread, chunks + 1, THREADS) as loop:
            e.store(e.constant(0, "i32", 1), e.offset(shared, "i32", loop.index))
        e.barrier()
        with e.loop(thread, n["count"], THREADS) as loop, e.when(e.icmp("eq", index(loop.index), mine)):
            with e.when(e.icmp("slt", loop.index, block)):
                e.store(one, shared)
            with e.when(e.icmp("sgt", loop.index, block)):
                e.store(one, e.offset(shared, "i32", loop.index.shift_right(8) + 1))
        e.barrier()
        inside = e.icmp("ult", mine, n["size"])
        e.report(e.select(inside, e.constant(0, "i32", 1), FAULT_INDEX))
        alone = e.icmp("eq", e.load(shared, "i32", 1), 0) & inside
        with e.when(alone), e.loop(thread, n["columns"], THREADS) as columns:
            target = e.offset(bases[TARGET], memory[TARGET], mine * n["target0"] + columns.index)

            def added(position: Value, old: Value, column: Value = columns.index) -> Value:
                place = e.offset(bases[VALUE], memory[VALUE], position * n["value0"] + column)
                new = scalars.from_memory(e, e.load(place, memory[VALUE], 1), kernel.dtype)
                total = combined(e, kernel.mode, kernel.target, old, new)
                return scalars.from_memory(e, scalars.to_memory(e, total, kernel.target), kernel.target)

            start = added(block, scalars.from_memory(e, e.load(target, memory[TARGET], 1), kernel.target))
            cell = "%" + e.fresh("sum")
            e.line(f"{cell} = alloca {start.type}, align 8")
            e.store(start, cell)
            with e.loop(block.shift_right(8), chunks) as chunk, e.when(
                    e.icmp("ne", e.load(e.offset(shared, "i32", chunk.index + 1), "i32", 1), 0)):
                begin = e.intrinsic("smax", chunk.index << 8, block + 1)
                end = e.intrinsic("smin", (chunk.index + 1) << 8, n["count"])
                with e.loop(begin, end) as later, e.when(e.icmp("eq", index(later.index), mine)):
                    e.store(added(later.index, e.load(cell, start.element, 1)), cell)
            e.store(scalars.to_memory(e, e.load(cell, start.element, 1), kernel.target), target)
        return entry("kernel_main", first + self.places + self.numbers, e.text(), " nounwind") + e.outside()
