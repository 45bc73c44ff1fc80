"""GEMM on matrix units (AMX): bfloat16 and int8, in tiles of 16 lines of 64 bytes.

A line of an A tile is 32 values of k of one row (64 of int8), a line of a B tile 2 values of k (4) of each of 16
columns. One instruction multiplies two tiles and adds to 16 x 16 sums, for bfloat16 in the order that every machine
follows (docs/numerics.md). Rows, columns and k are padded with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from morpho.backends.kernels.gemm.gemm import GemmKernel
from morpho.backends.kernels.gemm.matmul import Matmul, layout, loop_scratch, rounded
from morpho.backends.kernels.gemm.tiling import Register
from morpho.backends.kernels.quantised.int8 import Int8Matmul
from morpho.base.dims import Shape, upper
from morpho.base.dtypes import bfloat16
from morpho.program.kernel import Kernel

SIDE = 16  # lines of a tile register, and columns of the sums
LINE_BYTES = 64
REGISTER = Register((2 * SIDE, SIDE), 2, SIDE)  # two tiles of rows x two of columns are summed at a time
DEPTH = 512  # values of k per block; sums go to memory and back after each


@dataclass(frozen=True)
class AmxPackKernel(Kernel):
    """B[b, k, n] as [b][16 columns][group of k][16][group]; numbers as of `PackKernel`, called over 16 columns each.

    Groups are filled up to whole tiles.
    """

    right: str
    group: int

    flops = 1

    role = "pack"



@dataclass(frozen=True)
class AmxGemmKernel(GemmKernel):
    """A `GemmKernel` on matrix units; for bytes, which operands are signed."""

    group: int
    left_signed: bool = True
    right_signed: bool = True
    tiles_of_result = False
    on_matrix_unit = True


class _AmxMatmul(Matmul):
    """Base of products on matrix units."""

    group: int
    on_matrix_unit = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        k = max(upper(self.k), 1)
        few = upper(self.m) <= self.thresholds.single_k_block_rows  # they read the right operand in one stream
        blocks = 1 if few else -(-k // DEPTH)
        self.tiling = replace(self.tiling, depth=-(-k // (blocks * self.block)) * self.block)

    def register_of(self, dtype: Any) -> Register:
        return REGISTER

    @property
    def block(self) -> int:
        """Values of k in a tile."""
        return SIDE * self.group

    @property
    def packed_shape(self) -> Shape:
        return (self.right_batches, 2 * self.panels, self.k + (self.block - 1), SIDE)  # enough for whole tiles

    def pack_kernel(self) -> AmxPackKernel:  # type: ignore[override]
        return AmxPackKernel(layout(self.b.rows, self.b.columns, ("rows", "columns")), self.group)

    @property
    def tile_rows(self) -> int:
        return -(-self.tiling.tile_rows // REGISTER.heights[0]) * REGISTER.heights[0]

    @property
    def packed_bytes(self) -> int:
        return rounded(self.tile_rows * self.tiling.depth * (4 // self.group))

    def scratch(self, epilogue: Any) -> tuple[int, int, int]:
        """As of any product, with rows filled up to two tiles."""
        sums_at = self.kept_bytes
        scratch_at = sums_at + rounded(self.tile_rows * self.tiling.stride * 4)
        return sums_at, scratch_at, scratch_at + loop_scratch(epilogue, self.panels * REGISTER.width)


class AmxBf16Matmul(_AmxMatmul):
    """A product of bfloat16."""

    group = 2

    def kernel(self) -> AmxGemmKernel:
        return AmxGemmKernel(bfloat16, layout(self.a.rows, self.a.columns, ("columns", "rows")), self.group)


class AmxInt8Matmul(_AmxMatmul, Int8Matmul):  # type: ignore[misc]  # packs as the matrix units want it
    """A product of bytes."""

    group = 4

    def kernel(self) -> AmxGemmKernel:  # type: ignore[override]
        left = layout(self.a.rows, self.a.columns, ("columns", "rows"))
        return AmxGemmKernel(self.dtype, left, self.group, *self.signed)
