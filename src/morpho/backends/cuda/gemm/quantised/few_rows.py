"""Few rows of half floats times quantised weights: a block has 16 outputs, all of whose bytes it asks for at once.

Bytes come as they lie into stages of shared memory, 256 values of k each. Four warps make half floats of a slice while
the first warp multiplies the one before. Sums are those of `half/few_rows.py`: a row has the same bits among many.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import WARP, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, Sizes
from morpho.backends.cuda.codegen.warp_math import pack
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.gemm.half.few_rows import NARROW, STEP, FewRowsCode, FewRowsGemm
from morpho.backends.cuda.gemm.half.fragments import CHUNK
from morpho.backends.cuda.gemm.quantised.records import BlockReader
from morpho.ops.neural.quantised import BLOCK, LAYOUTS

THREADS = 160  # a warp that multiplies, four that make half floats
MOST_STAGES, LEAST_STAGES = 16, 3
STAGES_BYTES = 84 << 10  # of all stages: two blocks share a multiprocessor


@dataclass(frozen=True)
class QuantisedFew(FewRowsGemm):
    """A `FewRowsGemm` of 16 columns whose weights are rows of blocks of layout `kind`."""

    kind: str = "q8_0"

    @property
    def block_bytes(self) -> int:
        """Of 32 weights."""
        return LAYOUTS[self.kind].block_bytes

    @property
    def line_bytes(self) -> int:
        """Of a column's part of a slice."""
        return self.slice_depth // BLOCK * self.block_bytes

    @property
    def weights_bytes(self) -> int:
        """Of the weights of a stage."""
        return NARROW * self.line_bytes

    @property
    def stage_bytes(self) -> int:
        """The weights of a slice, and its rows where there are several."""
        return self.weights_bytes + (0 if self.single else 2 * self.slice_depth * self.rows)

    @property
    def stages(self) -> int:
        """Slices in flight."""
        return max(LEAST_STAGES, min(MOST_STAGES, self.slices, STAGES_BYTES // self.stage_bytes))

    @property
    def half_bytes(self) -> int:
        """Of the half floats of a slice; there are two of them."""
        return 2 * self.slice_depth * NARROW

    @property
    def halves_at(self) -> int:
        """Where they begin in shared memory."""
        return self.sums_at + self.sums_bytes

    def launch(self, sizes: Sizes) -> Launch:
        """A block for 16 columns."""
        blocks = -(-sizes.values[1] // NARROW)
        return Launch(Geometry(max(blocks, 1), THREADS, self.halves_at + 2 * self.half_bytes))

    def text(self) -> str:
        return _Code(self).module()


class _Code(FewRowsCode):
    """Generator of the LLVM text of one code kernel."""

    kernel: QuantisedFew

    def __init__(self, kernel: QuantisedFew) -> None:
        super().__init__(kernel)
        self.reader = BlockReader(self.e, kernel.kind)

    def module(self) -> str:
        e, kernel = self.e, self.kernel
        self.begin()
        ahead = [(e.constant(number * self.depth, "i64", 1), e.constant(number * kernel.stage_bytes, "i64", 1))
                 for number in range(kernel.stages)]
        self.ask_for_slices(ahead)
        for multiplies in e.both(e.icmp("slt", self.thread, WARP)):
            sums = self.main_loop(multiplies)
            if multiplies:
                self.store_sums(sums)
        self.finish()
        words = int(Header.SIZE) + kernel.places + kernel.numbers
        body = e.text()
        if self.after is not None:
            body = "\n".join([*self.after.head(body), body])
        return entry("kernel_main", words, body, f' nounwind "nvvm.maxntid"="{THREADS}"') + e.outside()

    def fetch_weights(self, depth: Value, stage: Value) -> None:
        """The bytes of a slice, chunk by chunk; what is not there is zero."""
        e, kernel = self.e, self.kernel
        chunks = kernel.line_bytes // 16  # of a column
        start = depth.shift_right(BLOCK.bit_length() - 1) * kernel.block_bytes
        for number in range(-(-NARROW * chunks // THREADS)):
            place = self.thread + number * THREADS
            line = e.instruction("udiv", place, e.constant(chunks, "i64", 1))
            at = start + (place - line * chunks) * 16
            inside = e.icmp("slt", self.column + line, self.n) & e.icmp(
                "slt", at, kernel.depth // BLOCK * kernel.block_bytes)
            offset = e.select(inside, (self.column + line) * self.b_n + at, 0)
            with e.when(e.icmp("slt", place, NARROW * chunks)):
                self.parts.fetch(e.offset(self.b, "i8", offset), inside, stage + place * 16, True)

    def main_loop(self, works: bool) -> list[Value]:
        """Multiply slice by slice, or make half floats of the one behind. A stage is asked for again one turn after its
        slice was multiplied: its rows are read until then."""
        e, kernel = self.e, self.kernel
        count, size = kernel.rows // 8 * 4, kernel.stage_bytes
        zero = e.constant(0.0, "float", 1)
        e.line(f"call void @gpu.cp_wait_{kernel.stages - 1}(ptr %ctx)")
        e.barrier()
        if not works:
            self.dequantise(e.constant(0, "i64", 1), e.constant(kernel.halves_at, "i64", 1))
        places = [e.constant(at, "i64", 1) for at in (0, size, (kernel.stages - 1) * size)]
        with e.loop(0, kernel.slices, carried=[zero] * count + places) as loop:
            *sums, here, behind, before = loop.values
            e.line(f"call void @gpu.cp_wait_{kernel.stages - 3}(ptr %ctx)")
            e.barrier()
            if kernel.stages < kernel.slices:
                self.fetch((loop.index + (kernel.stages - 1)) * self.depth, before)
            else:
                e.line("call void @gpu.cp_commit(ptr %ctx)")
            self.first = loop.index * (2 * self.depth) + kernel.stages * size  # of a single row
            half = (loop.index & 1) * kernel.half_bytes
            if works:
                self.half = half + kernel.halves_at
                for step in range(self.depth // STEP):
                    sums = self.multiply(step, here, sums)
            else:
                self.dequantise(behind, (half ^ kernel.half_bytes) + kernel.halves_at)
            end = kernel.stages * size
            following = [e.select(e.icmp("eq", at + size, end), e.constant(0, "i64", 1), at + size)
                         for at in (here, behind, before)]
            loop.next(*sums, *following)
        return loop.values[:count]

    def dequantise(self, stage: Value, target: Value) -> None:
        """A thread of the last four warps has a block of 32 weights of one column."""
        e, kernel, reader = self.e, self.kernel, self.reader
        warp, lane = self.thread.shift_right(5) - 1, self.lane
        column, block = warp * 4 + (lane & 3), lane.shift_right(2)  # so that chunks of eight lanes lie in other banks
        source = e.offset(e.shared(), "i8", stage + column * kernel.line_bytes + block * kernel.block_bytes)
        kind = f"i{8 * reader.unit}"
        words = [e.load(e.offset(source, kind, n), kind, 1, align=reader.unit) for n in range(reader.words)]
        numbers = reader.numbers(words)
        for chunk in range(BLOCK // CHUNK):
            eight = numbers[chunk * CHUNK:(chunk + 1) * CHUNK]
            at = target + self.swizzled(column, block * (BLOCK // CHUNK) + chunk, self.depth // CHUNK)
            text = "poison"
            for n in range(4):
                name = "%" + e.fresh("w")
                word = pack(e, kernel.dtype, *eight[2 * n:2 * n + 2])
                e.line(f"{name} = insertelement <4 x i32> {text}, i32 {word}, i64 {n}")
                text = name
            e.line(f"store <4 x i32> {text}, ptr {e.offset(e.shared(), 'i8', at)}, align 16")

    def weights(self, step: int, stage: Value) -> list[str]:
        """16 columns and 16 values of k, made before."""
        return super().weights(step, self.half)
