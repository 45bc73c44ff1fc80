"""Half floats times quantised weights on tensor cores. A thread has a block of 32 weights of one output at a time,
which wait in its registers as they are while an earlier slice is multiplied, and become half floats in shared memory.

Sums go over 16 values of k at a time, as in all products on tensor cores: a row's bits do not depend on the tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.warp_math import pack
from morpho.backends.cuda.gemm.half.mma import CHUNK, DEPTH, MmaGemm, ReadAhead
from morpho.backends.cuda.gemm.quantised.records import BlockReader
from morpho.ops.neural.quantised import BLOCK

FEW = (16, 128, 16, 32)  # the tile for few rows: of a block, and of a warp
SLICE_BLOCKS = DEPTH // BLOCK


@dataclass(frozen=True)
class QuantisedMma(MmaGemm):
    """An `MmaGemm` whose right operand is rows of blocks of layout `kind`."""

    kind: str = "q8_0"

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Rows are read by chunks, blocks by words."""
        return ((0, 16), (1, 4), *([] if self.epilogue is None else self.epilogue.alignments))

    def unaligned(self) -> QuantisedMma:
        """Itself: operands that do not lie so are copied first."""
        return self

    def text(self) -> str:
        return _Code(self).module()


class _Code(ReadAhead):
    """Generator of the LLVM text of one code kernel."""

    def __init__(self, kernel: QuantisedMma) -> None:
        super().__init__(kernel)
        self.reader = BlockReader(self.e, kernel.kind)
        self.blocks = self.columns * SLICE_BLOCKS // kernel.threads  # of a thread

    def mine(self, number: int) -> tuple[Value, Value]:
        """The output and the block of a slice that is this thread's."""
        place = self.thread + number * self.kernel.threads
        return place.shift_right(SLICE_BLOCKS.bit_length() - 1), place & (SLICE_BLOCKS - 1)

    def read(self, depth: Value) -> list[Value]:
        """The words of this thread's blocks."""
        e, f, found = self.e, self.frame, []
        for number in range(self.blocks):
            line, block = self.mine(number)
            k = depth + block * BLOCK
            inside = e.icmp("slt", f.column + line, f.n) & e.icmp("slt", k, f.k)
            found += self.reader.read(f.b, f.column + line, f.b_n, k.shift_right(5), inside)
        return found

    def put(self, values: list[Value], stage: Value) -> None:
        """Half floats, eight of a chunk."""
        e, words, memory = self.e, self.reader.words, self.e.shared()
        for number in range(self.blocks):
            line, block = self.mine(number)
            numbers = self.reader.numbers(values[number * words:(number + 1) * words])
            for chunk in range(BLOCK // CHUNK):
                at = self.swizzled(line, block * (BLOCK // CHUNK) + chunk, DEPTH // CHUNK) + 2 * DEPTH * self.rows
                eight = numbers[chunk * CHUNK:(chunk + 1) * CHUNK]
                text = "poison"
                for n in range(4):
                    name = "%" + e.fresh("w")
                    word = pack(e, self.kernel.dtype, *eight[2 * n:2 * n + 2])
                    e.line(f"{name} = insertelement <4 x i32> {text}, i32 {word}, i64 {n}")
                    text = name
                e.line(f"store <4 x i32> {text}, ptr {e.offset(memory, 'i8', stage + at)}, align 16")
