"""float32 times quantised weights on the arithmetic units: one FMA chain per result, k ascending, the CPU's bits.

Weights become numbers on their way into the slices of shared memory. For few rows tiles are low and slices deep: a
block's threads make numbers of 128 values of k of 32 outputs, which its first warps then multiply.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.cuda.gemm.quantised.records import BlockReader
from morpho.backends.cuda.gemm.simt import PAD, SimtCode, SimtGemm
from morpho.ops.neural.quantised import BLOCK

FEW = (4, 32, 1, 1)  # the tile for few rows
FEW_DEPTH = 128


@dataclass(frozen=True)
class QuantisedSimt(SimtGemm):
    """A `SimtGemm` whose right operand is rows of blocks of layout `kind`."""

    kind: str = "q8_0"

    @property
    def depth(self) -> int:
        """Whole blocks."""
        return FEW_DEPTH if self.tile == FEW else BLOCK

    def text(self) -> str:
        return _Code(self).module()


class _Code(SimtCode):
    """Generator of the LLVM text of one code kernel."""

    kernel: QuantisedSimt

    def right_slice(self, depth: Value) -> None:
        """A thread makes numbers of a part of a block of one output."""
        e, f, kernel = self.e, self.frame, self.kernel
        reader = BlockReader(e, kernel.kind)
        each = max(1, kernel.threads // self.columns)  # threads that share an output
        count = min(BLOCK, self.depth // each)  # values of a thread
        line = self.thread & (self.columns - 1)
        part = self.thread.shift_right(self.columns.bit_length() - 1)
        for first in range(0, self.depth // each, count):
            k = part * (self.depth // each) + first
            inside = e.icmp("slt", f.column + line, f.n) & e.icmp("slt", depth + k, f.k)
            words = reader.read(f.b, f.column + line, f.b_n, (depth + k).shift_right(5), inside)
            place = k * (self.columns + PAD) + line
            if count == BLOCK:
                self.put(reader.numbers(words), place)
                continue
            for number in range(BLOCK // count):  # the part of the block that is this thread's
                with e.when(e.icmp("eq", (k & (BLOCK - 1)), number * count)):
                    self.put(reader.numbers(words, number * count, count), place)

    def put(self, values: list[Value], place: Value) -> None:
        """Values of k one below the other."""
        e = self.e
        for number, value in enumerate(values):
            e.store(value, e.offset(self.right, self.element, place + number * (self.columns + PAD)))
