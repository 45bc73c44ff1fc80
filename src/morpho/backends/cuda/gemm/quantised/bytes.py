"""int8 and uint8 on tensor cores: `mma.sync` of 32 values of k, exact sums in int32.

Of both operands k lies side by side. A fragment of 32 bytes lies over a warp as one of 16 half floats does, so that
slices, swizzles and `ldmatrix` are those of half floats, of which two bytes are one.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.cuda.gemm.half.mma import MmaCode, MmaGemm

CHUNK = 16  # bytes


@dataclass(frozen=True)
class BytesMma(MmaGemm):
    """An `MmaGemm` of pairs of bytes; `signs`: "s" or "u" of both operands."""

    signs: str = "ss"

    def unaligned(self) -> BytesMma:
        return self

    def text(self) -> str:
        return _Code(self).module()


class _Code(MmaCode):
    """Generator of the LLVM text of one code kernel."""

    def __init__(self, kernel: BytesMma) -> None:
        super().__init__(kernel)
        self.mma, self.sum = f"mma_{kernel.signs[0]}8_{kernel.signs[1]}8", "i32"

    def store_pair(self, row: Value, column: Value, values: list[Value]) -> None:
        """Two neighbours of a row, as they are."""
        e, frame = self.e, self.frame
        for n, value in enumerate(values):
            with e.when(e.icmp("slt", column + n, frame.n)):
                e.store(value, e.offset(frame.c, "i32", row * frame.c_m + (column + n) * frame.c_n))
