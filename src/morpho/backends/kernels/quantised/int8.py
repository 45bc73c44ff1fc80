"""int8 GEMM: products of int8 and uint8 summed in int32, in groups of four values of k for dot-product instructions.

Packed rows and panels are those of any product, with a group of four bytes in place of an element; k is padded with
zeros. Sums wrap, so their order is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from morpho.backends.kernels.gemm.gemm import GemmKernel
from morpho.backends.kernels.gemm.matmul import Matmul, layout, rounded
from morpho.base.dims import Shape
from morpho.base.dtypes import DType, int8, int32
from morpho.program.kernel import Kernel

GROUP = 4  # values of k that a dot-product instruction sums


@dataclass(frozen=True)
class Int8PackKernel(Kernel):
    """B[b, k, n] as [b][panel][group of k][width][4]; numbers as of `PackKernel`, called over panels like it."""

    right: str
    width: int

    flops = 1

    role = "pack"



@dataclass(frozen=True)
class Int8GemmKernel(GemmKernel):
    """A `GemmKernel` of bytes with sums of `dtype` int32; which operands are signed."""

    left_signed: bool
    right_signed: bool
    tiles_of_result = False


class Int8Matmul(Matmul):
    """One product of bytes being lowered."""

    tunes_register = False

    def __init__(self, dtypes: Sequence[DType], *given: Any) -> None:
        super().__init__(int32, *given)
        self.signed = tuple(dtype is int8 for dtype in (reversed(dtypes) if self.swapped else dtypes))

    @property
    def packed_shape(self) -> Shape:
        return (self.right_batches, self.panels, self.k + (GROUP - 1), self.register.width)  # bytes, for whole groups

    @property
    def packed_bytes(self) -> int:
        return rounded(self.tiling.tile_rows * self.tiling.depth)

    def pack_kernel(self) -> Int8PackKernel:  # type: ignore[override]
        return Int8PackKernel(layout(self.b.rows, self.b.columns, ("rows", "columns")), self.register.width)

    def kernel(self) -> Int8GemmKernel:
        left = layout(self.a.rows, self.a.columns, ("columns", "rows"))
        return Int8GemmKernel(self.dtype, left, *self.signed)
