"""GEMM on block-quantised weights: panels stay quantised and are dequantised where they are multiplied.

The bytes of a weight (n, k) are packed into panels of `width` outputs. Per panel and block of 32 values of k there is a
record: the float16 scales of all columns (then their minima), then the codes, column-interleaved. With few rows the
micro-kernel dequantises in registers, so that only the small records pass through memory; with many, a block of a panel
is dequantised once into scratch for all rows of the tile. The bits are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from morpho.backends.code.kernel_abi import Record
from morpho.backends.kernels.gemm.gemm import GemmKernel
from morpho.backends.kernels.gemm.matmul import Matmul, layout
from morpho.base.dims import Shape, Size, upper
from morpho.ops.neural.quantised import BLOCK, LAYOUTS
from morpho.program.kernel import Kernel

REGISTER_ROWS = 4  # rows up to which weights are dequantised in registers, once per row
QUANTISED_PACK = Record("n k row_bytes")


@dataclass(frozen=True)
class QuantisedPackKernel(Kernel):
    """Rows of blocks as [panel][block] records; called over panels. Columns past the last one are zeros."""

    kind: str
    width: int

    flops = 1

    role = "pack"



@dataclass(frozen=True)
class QuantisedGemmKernel(GemmKernel):
    """A `GemmKernel` whose right operand is in records of layout `kind`. With at most `few` rows numbers are made in
    registers; 0 stands for many, of which there `may_be_few` when it runs."""

    kind: str
    few: int
    may_be_few: bool = False
    tiles_of_result = False


class QuantisedMatmul(Matmul):
    """One product with quantised weights being lowered. The right `Matrix` is of bytes, a row for each output."""

    sides_change = False
    tunes_register = False

    def __init__(self, kind: str, *given: Any) -> None:
        super().__init__(*given)
        self.kind = kind

    @property
    def packed_shape(self) -> Shape:
        return (1, self.panels, self.k // BLOCK, LAYOUTS[self.kind].block_bytes * self.register.width)

    def pack_kernel(self) -> QuantisedPackKernel:  # type: ignore[override]
        return QuantisedPackKernel(self.kind, self.register.width)

    def pack_values(self) -> tuple[Size, ...]:
        return QUANTISED_PACK.values(n=self.b.view.shape[0], k=self.k, row_bytes=self.b.rows)

    def kernel(self) -> QuantisedGemmKernel:
        left = layout(self.a.rows, self.a.columns, ("columns", "rows"))
        most = upper(self.m)
        varies = not isinstance(self.m, int) and most > REGISTER_ROWS
        return QuantisedGemmKernel(self.dtype, left, self.kind, max(most, 1) if most <= REGISTER_ROWS else 0,
                                   may_be_few=varies)

    def scratch(self, epilogue: Any) -> tuple[int, int, int]:
        """As of any product, with room for an unpacked panel in front of the sums."""
        panel = 0 if self.kernel().few else 4 * self.tiling.depth * self.register.width
        sums_at, scratch_at, size = super().scratch(epilogue)
        return sums_at + panel, scratch_at + panel, size + panel
